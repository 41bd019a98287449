//! A server with `--region` stops or is killed, and another continues with its items.

#[path = "../common/mod.rs"]
mod common;
mod keeper;

use std::{
    collections::HashMap,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use common::{Wanted, connect, refusal, stop};
use minos_base::seeded;
use minos_testkit::{Client, Server};
use rand::{Rng, RngExt};
use tempfile::TempDir;

const MODES: [&str; 2] = ["cache", "store"];
const MEMORY: &str = "64m";
const KEYS: u32 = 10_000;
const LARGE_BYTES: usize = 100_000;
/// Seconds to live of an item that expires shortly after the restart.
const PASSING_S: u64 = 5;

/// A server on the region at `path`, created if it does not exist.
fn serve(engine: &str, path: &Path) -> Server {
    serve_at(engine, &path.display().to_string())
}

/// A server on a region, by its option.
fn serve_at(engine: &str, region: &str) -> Server {
    let region = format!("--region={region}");
    let engine = format!("--engine={engine}");
    common::start(Wanted {
        memory: MEMORY,
        minos_only: &[&region, &engine, "--stop-timeout=1s"],
        ..Wanted::default()
    })
}

fn region() -> (TempDir, PathBuf) {
    let folder = TempDir::with_prefix("minos-region-").unwrap();
    let path = folder.path().join("region");
    (folder, path)
}

/// A value that contains its key and version.
fn value(key: u32, version: u32) -> Vec<u8> {
    let bytes = if key.is_multiple_of(200) { LARGE_BYTES } else { 20 + (key % 300) as usize };
    format!("{key} {version} ").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// True if `found` is a value that was set for `key` at some time.
fn is_of(key: u32, found: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&found[..found.len().min(30)]).into_owned();
    let mut words = text.split(' ');
    let (number, version) = (words.next().and_then(|word| word.parse().ok()), words.next());
    let version = version.and_then(|word| word.parse().ok());
    number == Some(key) && version.is_some_and(|version| found == value(key, version))
}

/// The number behind a flag in the reply to an `mg`, as in `HD t-1 c7`.
fn flag(line: &str, name: char) -> i64 {
    let text = line.split(' ').find_map(|word| word.strip_prefix(name));
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line:?}"))
}

/// Seconds to live of an item, by its key; 0 is forever.
fn exptime(key: u32) -> u32 {
    [0, 1000, 100_000][key as usize % 3]
}

#[test]
fn everything_of_a_cache_is_there_again() {
    let (_folder, path) = region();
    everything_is_there_again("cache", &path.display().to_string());
}

#[test]
fn everything_of_a_store_is_there_again() {
    let (_folder, path) = region();
    everything_is_there_again("store", &path.display().to_string());
}

fn everything_is_there_again(engine: &str, region: &str) {
    let server = serve_at(engine, region);
    let mut client = connect(&server);
    for key in 0..KEYS {
        let value = value(key, 0);
        let line = format!("set key{key} {key} {} {}", exptime(key), value.len());
        assert_eq!(client.store(&line, &value).unwrap(), "STORED");
    }
    let unique: Vec<u64> =
        (0..KEYS).map(|key| client.get(&format!("key{key}")).unwrap().unwrap().cas).collect();
    let stored = Instant::now();
    assert_eq!(client.store(&format!("set passing 0 {PASSING_S} 1"), b"x").unwrap(), "STORED");
    stop(server);

    let server = serve_at(engine, region);
    let log = server.log();
    assert!(log.contains("warm: 10001 items"), "{log}");
    let mut client = connect(&server);
    for key in 0..KEYS {
        let found = client.get(&format!("key{key}")).unwrap().expect("every item is there again");
        assert!(found.value == value(key, 0), "key{key}");
        assert_eq!((found.flags, found.cas), (key, unique[key as usize]), "key{key}");
        let left_s = flag(&client.ask(&format!("mg key{key} t")).unwrap(), 't');
        match exptime(key) {
            0 => assert_eq!(left_s, -1),
            // On a busy machine the test may take long.
            exptime => assert!((i64::from(exptime) - 300..=i64::from(exptime)).contains(&left_s)),
        }
    }
    // Servers count whole seconds.
    let passed = Duration::from_millis(1000 * PASSING_S + 1100);
    thread::sleep(passed.saturating_sub(stored.elapsed()));
    assert_eq!(client.get("passing").unwrap(), None, "it outlived its time");
    assert_eq!(client.set("new", b"value").unwrap(), "STORED");
    let newest = client.get("new").unwrap().unwrap().cas;
    assert!(!unique.contains(&newest), "a CAS unique comes twice");
    assert_eq!(client.cas("key7", b"other", unique[7]).unwrap(), "STORED");
}

#[test]
fn what_is_under_way_does_not_keep_a_region_from_being_closed() {
    for engine in MODES {
        let (_folder, path) = region();
        let server = serve(engine, &path);
        let mut client = connect(&server);
        let large = vec![b'v'; 7 << 20];
        assert_eq!(client.set("large", &large).unwrap(), "STORED");
        // One client does not read its value, another does not send the rest of its own.
        let mut deaf = connect(&server);
        deaf.send("get large large large\r\n").unwrap();
        let mut silent = connect(&server);
        silent.send("set large 0 0 7000000\r\nabc").unwrap();
        thread::sleep(Duration::from_millis(200));
        stop(server);
        let server = serve(engine, &path);
        assert!(server.log().contains("warm: 1 items"), "{}", server.log());
        assert!(connect(&server).get("large").unwrap().unwrap().value == large);
    }
}

/// Keys of the writers whose server is killed.
const KILLED_KEYS: u32 = 2000;

/// Sets, deletes and increments random keys until the server is gone, and counts its answers.
fn write_until_killed(mut client: Client, seed: u64, (is_over, answers): (&AtomicBool, &AtomicU64)) {
    let mut random = seeded(seed);
    for version in 0.. {
        let key = random.random_range(0..KILLED_KEYS);
        let said = match random.next_u32() % 10 {
            0 => client.ask(&format!("delete key{key}")),
            1 => client.ask(&format!("touch key{key} 1000")),
            _ => client.set(&format!("key{key}"), &value(key, version)),
        };
        if said.is_err() || is_over.load(Relaxed) {
            return;
        }
        answers.fetch_add(1, Relaxed);
    }
}

#[test]
fn what_a_killed_server_left_is_right_or_gone() {
    for engine in MODES {
        let (_folder, path) = region();
        kill_under_load(engine, &path.display().to_string());
    }
}

/// Kills servers under load, and checks what they left; returns the log of the last one.
fn kill_under_load(engine: &str, region: &str) -> String {
    let mut found = 0;
    for round in 0..5 {
        let server = serve_at(engine, region);
        found += check_all(&mut connect(&server));
        let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let clients = [connect(&server), connect(&server)];
        thread::scope(|scope| {
            for (index, client) in clients.into_iter().enumerate() {
                let (seed, shared) = (round * 2 + index as u64, (&is_over, &answers));
                scope.spawn(move || write_until_killed(client, seed, shared));
            }
            thread::sleep(Duration::from_millis(300 + 37 * round));
            // On a busy machine that may be too short.
            let deadline = Instant::now() + Duration::from_secs(30);
            while answers.load(Relaxed) < 1000 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            // Dropping it kills it.
            drop(server);
            is_over.store(true, Relaxed);
        });
    }
    let server = serve_at(engine, region);
    found += check_all(&mut connect(&server));
    let log = server.log();
    assert!(log.contains("repaired") || log.contains("empty"), "{log}");
    assert!(found > 0 || log.contains("empty"), "nothing was ever found:\n{log}");
    stop(server);
    log
}

/// Checks all keys of a killed server, and returns the number found.
fn check_all(client: &mut Client) -> usize {
    let mut found = 0;
    for key in 0..KILLED_KEYS {
        if let Some(item) = client.get(&format!("key{key}")).unwrap() {
            assert!(is_of(key, &item.value), "key{key}: {:?}", String::from_utf8_lossy(&item.value));
            found += 1;
        }
    }
    found
}

#[test]
fn a_region_is_for_one_server_of_its_kind() {
    let (_folder, path) = region();
    let server = serve("store", &path);
    let region = format!("--region={}", path.display());
    let refused = |more: &[&str]| refusal(&[&[&*region, "--memory=64m"], more].concat());
    let text = refused(&["--engine=store"]);
    assert!(text.contains("in use by another"), "{text}");
    assert_eq!(connect(&server).set("a", b"1").unwrap(), "STORED");
    stop(server);
    let text = refused(&["--engine=cache"]);
    assert!(text.contains("cache") && text.contains("store"), "{text}");
    let text = refused(&["--engine=store", "--partitions=2"]);
    assert!(text.contains("partitions 16, but 2"), "{text}");
    let text = refused(&["--engine=store", "--backing=memfd"]);
    assert!(text.contains("--backing"), "{text}");
    let other = std::fs::read(&path).unwrap();
    let foreign = path.with_extension("txt");
    std::fs::write(&foreign, "something that somebody needs").unwrap();
    let text = refusal(&[&format!("--region={}", foreign.display()), "--memory=64m"]);
    assert!(text.contains("something else"), "{text}");
    assert_eq!(std::fs::read(&foreign).unwrap(), b"something that somebody needs");
    assert!(std::fs::read(&path).unwrap() == other, "a refusal changed the region");
}

#[test]
fn a_damaged_region_is_not_served() {
    for engine in MODES {
        let (_folder, path) = region();
        let server = serve(engine, &path);
        assert_eq!(connect(&server).set("a", b"a value that is easily found").unwrap(), "STORED");
        stop(server);
        let mut bytes = std::fs::read(&path).unwrap();
        let value = bytes.windows(6).position(|bytes| bytes == b"easily").unwrap();
        bytes[value] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        if engine == "store" {
            let region = format!("--region={}", path.display());
            let text = refusal(&[&region, "--memory=64m", "--engine=store"]);
            assert!(text.contains("cannot be relied on") && text.contains("damaged"), "{text}");
            assert!(std::fs::read(&path).unwrap() == bytes, "a refusal changed the region");
            continue;
        }
        let server = serve(engine, &path);
        let log = server.log();
        assert!(log.contains("empty") && log.contains("damaged"), "{log}");
        assert_eq!(connect(&server).get("a").unwrap(), None);
    }
}

#[test]
fn a_region_that_others_may_read_is_narrowed() {
    let (_folder, path) = region();
    stop(serve("store", &path));
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let server = serve("store", &path);
    assert!(server.log().contains("mode=644") || server.log().contains("\"644\""), "{}", server.log());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn memory_in_a_file_leaves_another_file_alone() {
    let (_folder, path) = region();
    std::fs::write(&path, "something that somebody needs").unwrap();
    let text = refusal(&[&format!("--backing=file:{}", path.display()), "--memory=64m"]);
    assert!(text.contains("there is a file already"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), b"something that somebody needs");
}

#[test]
fn memory_without_a_region_says_nothing_of_one() {
    let settings = |server: &Server| -> HashMap<String, String> {
        connect(server).stats("settings").unwrap().into_iter().collect()
    };
    assert!(!settings(&common::start_plain()).contains_key("region"));
    let (_folder, path) = region();
    assert_eq!(settings(&serve("cache", &path))["region"], path.display().to_string());
}
