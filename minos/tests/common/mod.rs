//! The server under test.
//!
//! `MINOS_TEST_SERVER=memcached` runs the tests against stock memcached, which shows that they test for
//! memcached's behaviour and not for our idea of it. Any other value is the path of another build of `minos`,
//! such as one with a sanitizer.

#![allow(dead_code, reason = "each test file uses its part of this")]

pub(crate) mod keeper;
pub(crate) mod kills;
pub(crate) mod ports;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Server};

/// The options of each engine, for tests of their common behaviour.
pub(crate) const ENGINES: [&[&str]; 2] = [&["--engine=cache"], &["--engine=store"]];

/// Options of servers whose partitions belong to workers.
pub(crate) const OWNED: [&[&str]; 2] =
    [&["--access=erew"], &["--access=crew", "--dispatch=keyhash", "--engine=store"]];

/// The requirements of a test on its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) workers: usize,
    pub(crate) memory: &'a str,
    pub(crate) max_connections: Option<usize>,
    pub(crate) idle_timeout_s: Option<u64>,
    pub(crate) max_item_size: Option<&'a str>,
    /// Options that memcached has no counterpart for.
    pub(crate) minos_only: &'a [&'a str],
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Self {
            workers: 2,
            memory: "256m",
            max_connections: None,
            idle_timeout_s: None,
            max_item_size: None,
            minos_only: &[],
        }
    }
}

/// The server named in the environment, or the `minos` that was just built.
pub(crate) fn program() -> PathBuf {
    let named = std::env::var_os("MINOS_TEST_SERVER").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_minos")))
}

/// True if stock memcached replaces Minos.
pub(crate) fn is_memcached() -> bool {
    program() == Path::new("memcached")
}

/// Starts the server under test, or fails with the reason.
pub(crate) fn start(wanted: Wanted<'_>) -> Server {
    let result = if is_memcached() { memcached(wanted) } else { minos(wanted) };
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Starts the server under test with default settings.
pub(crate) fn start_plain() -> Server {
    start(Wanted::default())
}

/// A server for Redis' clients at its address, and where memcached's clients reach it.
pub(crate) fn start_with_resp(options: &[&str]) -> (Server, SocketAddr) {
    let arguments = |port: u16, _: &Path| {
        let resp = format!("--resp=127.0.0.1:{port}");
        let fixed = ["serve", "--memcached=127.0.0.1:0", &resp, "--workers=2", "--pin=off"];
        fixed.iter().chain(options).map(|&word| word.to_owned()).collect()
    };
    let server = Server::start(&program(), arguments).unwrap_or_else(|error| panic!("{error}"));
    // It says where it listens a moment after it does.
    let begun = Instant::now();
    loop {
        let log = server.log();
        if let Some(address) = log.lines().find_map(|line| line.strip_prefix("listening on memcached ")) {
            return (server, address.parse().unwrap());
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{log}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Redis with one database, as Minos has.
pub(crate) fn redis() -> Server {
    Server::redis(&["--databases", "1"]).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(server.address()).unwrap_or_else(|error| panic!("cannot connect: {error}"))
}

/// Stops a server, which must end well.
pub(crate) fn stop(mut server: Server) {
    let status = server.terminate(Duration::from_secs(60)).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", server.log());
}

/// The error output of `minos serve` with options that it must refuse.
pub(crate) fn refusal(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    let output = command.args(["serve", "--memcached=127.0.0.1:0"]).args(options).output().unwrap();
    assert!(!output.status.success(), "{options:?} is no error");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn memcached(wanted: Wanted<'_>) -> Result<Server, minos_testkit::StartError> {
    let mut options = vec!["-o".to_owned(), "no_modern".to_owned()];
    options.extend(["-t".to_owned(), wanted.workers.to_string()]);
    options.extend(["-m".to_owned(), wanted.memory.trim_end_matches('m').to_owned()]);
    if let Some(connections) = wanted.max_connections {
        options.extend(["-c".to_owned(), connections.to_string()]);
    }
    if let Some(seconds) = wanted.idle_timeout_s {
        options.extend(["-o".to_owned(), format!("idle_timeout={seconds}")]);
    }
    if let Some(size) = wanted.max_item_size {
        options.extend(["-I".to_owned(), size.to_owned()]);
    }
    Server::memcached(&options.iter().map(String::as_str).collect::<Vec<_>>())
}

fn minos(wanted: Wanted<'_>) -> Result<Server, minos_testkit::StartError> {
    let mut options = vec![format!("--workers={}", wanted.workers), format!("--memory={}", wanted.memory)];
    // Many test servers share few processors: binding them all to the same ones would only slow them down.
    options.push("--pin=off".to_owned());
    if let Some(connections) = wanted.max_connections {
        options.push(format!("--max-connections={connections}"));
    }
    if let Some(seconds) = wanted.idle_timeout_s {
        options.push(format!("--idle-timeout={seconds}s"));
    }
    if let Some(size) = wanted.max_item_size {
        options.push(format!("--max-item-size={size}"));
    }
    options.extend(wanted.minos_only.iter().map(|&option| option.to_owned()));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Server::minos(&program(), &options)
}
