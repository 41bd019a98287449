//! `minos serve --flash` as an operator runs it: items outlive the server, and nothing foreign is written over.

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use common::{Wanted, connect};
use minos_testkit::{Client, Server};
use tempfile::TempDir;

/// Three times what memory holds.
const KEYS: u32 = 12_000;
const VALUE_BYTES: usize = 1000;

fn file() -> (TempDir, PathBuf) {
    let folder = TempDir::with_prefix("minos-flash-").unwrap();
    let path = folder.path().join("flash");
    (folder, path)
}

fn serve(engine: &str, path: &Path) -> Server {
    let (engine, flash) = (format!("--engine={engine}"), format!("--flash={}:64m", path.display()));
    let minos_only: &[&str] = &[&engine, &flash, "--stop-timeout=60s"];
    common::start(Wanted { memory: "4m", max_item_size: Some("64k"), minos_only, ..Wanted::default() })
}

/// The output of a server that must not start.
fn refused(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(["serve", "--memcached=127.0.0.1:0", "--memory=4m", "--max-item-size=64k"]).args(options);
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{options:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn value(key: u32) -> Vec<u8> {
    format!("{key} ").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

fn fill(client: &mut Client) {
    for key in 0..KEYS {
        assert_eq!(client.set(&format!("key{key}"), &value(key)).unwrap(), "STORED");
    }
}

/// How many keys are found; each has its value.
fn found(client: &mut Client) -> u32 {
    let found = (0..KEYS).filter(|&key| match client.get(&format!("key{key}")).unwrap() {
        Some(found) => {
            assert_eq!(found.value, value(key), "{key}");
            true
        }
        None => false,
    });
    found.count() as u32
}

fn stat(client: &mut Client, name: &str) -> u64 {
    let stats = client.stats("flash").unwrap();
    stats.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1.parse().unwrap()
}

#[test]
fn a_store_has_everything_after_a_restart() {
    let (_folder, path) = file();
    let mut server = serve("store", &path);
    let mut client = connect(&server);
    fill(&mut client);
    assert_eq!(client.ask("delete key7").unwrap(), "DELETED");
    assert_eq!(found(&mut client), KEYS - 1);
    assert!(stat(&mut client, "flash_items") > 0 && stat(&mut client, "read_found") > 0);
    let status = server.terminate(Duration::from_secs(60)).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{}", server.log());
    drop(server);
    let server = serve("store", &path);
    let mut client = connect(&server);
    assert_eq!(found(&mut client), KEYS - 1, "{}", server.log());
    assert_eq!(client.get("key7").unwrap(), None);
}

#[test]
fn a_cache_that_was_killed_keeps_what_was_on_flash() {
    let (_folder, path) = file();
    let server = serve("cache", &path);
    let mut client = connect(&server);
    fill(&mut client);
    let patience = Instant::now() + Duration::from_secs(60);
    while stat(&mut client, "flash_items") == 0 {
        assert!(Instant::now() < patience, "nothing comes to flash: {}", server.log());
    }
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    drop(server);
    let server = serve("cache", &path);
    let mut client = connect(&server);
    assert!(found(&mut client) > 0, "{}", server.log());
}

#[test]
fn nothing_foreign_is_written_over() {
    let (_folder, path) = file();
    let flash = format!("--flash={}", path.display());
    let text = b"somebody's letters".repeat(1 << 20);
    fs::write(&path, &text).unwrap();
    for options in [&[&*flash][..], &[&flash, "--flash-format"]] {
        let message = refused(options);
        assert!(message.contains("not a table"), "{message}");
        assert!(fs::read(&path).unwrap() == text, "{options:?}");
    }
    fs::write(&path, vec![0; 32 << 20]).unwrap();
    assert!(refused(&[&flash]).contains("--flash-format makes one"));
}

#[test]
fn a_device_is_served_once() {
    let (_folder, path) = file();
    let _server = serve("cache", &path);
    let message = refused(&[&format!("--flash={}", path.display())]);
    assert!(message.contains("in use"), "{message}");
}

#[test]
fn what_is_not_there_yet_is_said() {
    let (_folder, path) = file();
    let flash = format!("--flash={}:64m", path.display());
    assert!(refused(&[&flash, "--native=127.0.0.1:0"]).contains("--native is not served above --flash yet"));
    assert!(refused(&[&flash, "--durability=flush"]).contains("--durability flush"));
    assert!(refused(&["--flash-format"]).contains("--flash"));
}
