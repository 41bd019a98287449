//! The server under test.
//!
//! `MINOS_TEST_SERVER=memcached` puts stock memcached in its place, which shows that a test asks
//! for what memcached does and not for what we think it does. Anything else is the path of a `minos`
//! that was built otherwise, with a sanitizer.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::{Path, PathBuf};

use minos_testkit::{Client, Server};

/// The options that choose each engine, for tests of what both have in common.
pub(crate) const ENGINES: [&[&str]; 2] = [&["--engine=cache"], &["--engine=store"]];

/// What a test may want of its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) workers: usize,
    pub(crate) memory: &'a str,
    pub(crate) max_connections: Option<usize>,
    pub(crate) idle_timeout_s: Option<u64>,
    pub(crate) max_item_size: Option<&'a str>,
    /// Options that memcached has no counterpart of.
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

/// The server named in the environment, or Minos as it was just built.
pub(crate) fn program() -> PathBuf {
    let named = std::env::var_os("MINOS_TEST_SERVER").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_minos")))
}

/// Whether stock memcached stands in for Minos.
pub(crate) fn is_memcached() -> bool {
    program() == Path::new("memcached")
}

/// Starts the server under test, or fails with the reason.
pub(crate) fn start(wanted: Wanted<'_>) -> Server {
    let result = if is_memcached() { memcached(wanted) } else { minos(wanted) };
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Starts the server under test with nothing special about it.
pub(crate) fn start_plain() -> Server {
    start(Wanted::default())
}

/// A new connection to `server`.
pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(server.address()).unwrap_or_else(|error| panic!("cannot connect: {error}"))
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
    // Many test servers share few processors: binding them all to the same would only hurt.
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
