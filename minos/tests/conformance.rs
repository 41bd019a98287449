//! Third-party conformance tests for memcached servers.

mod common;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use common::Wanted;

/// The virtual environment that `cargo xtask setup` makes.
fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python")
}

fn run(command: &mut Command) -> Output {
    let program = command.get_program().to_owned();
    command
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask setup`", Path::new(&program).display()))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn memccapable_passes() {
    for minos_only in [&[][..]].into_iter().chain(common::OWNED) {
        passes_memccapable(&common::start(Wanted { minos_only, ..Wanted::default() }));
    }
}

fn passes_memccapable(server: &minos_testkit::Server) {
    let port = server.address().port().to_string();
    // The text protocol, and the binary one.
    for protocol in ["-a", "-b"] {
        // Its own time-out is a second, which a busy machine exceeds.
        let arguments = ["-h", "127.0.0.1", "-p", &port, "-t", "60", protocol];
        let output = run(Command::new("memccapable").args(arguments));
        let text = text(&output);
        // It prints a line for each of its 27 tests, and exits with success even if some failed.
        assert_eq!(text.matches("[pass]").count(), 27, "{text}");
        assert!(output.status.success() && text.contains("All tests passed"), "{text}");
    }
}

#[test]
fn pymemcache_passes() {
    // Its tests expect the limit of a stock memcached.
    let server = common::start(Wanted { max_item_size: Some("1m"), ..Wanted::default() });
    let port = server.address().port().to_string();
    let tests = run(Command::new(python()).args([
        "-c",
        "import pymemcache, os; print(os.path.join(os.path.dirname(pymemcache.__file__), 'test'))",
    ]));
    let folder = String::from_utf8_lossy(&tests.stdout).trim().to_owned();
    assert!(tests.status.success(), "{}; run `cargo xtask setup`", text(&tests));
    let output = run(Command::new(python())
        .args([
            "-m",
            "pytest",
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            "-m",
            "integration",
        ])
        .args(["--server", "127.0.0.1", "--port", &port, &folder]));
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    // The six that are skipped need TLS.
    assert!(text.contains("passed") && !text.contains("failed"), "{text}");
}

#[test]
fn clients_of_the_binary_protocol_work() {
    let server = common::start_plain();
    let port = server.address().port().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/binary_clients.py");
    let output = run(Command::new(python()).args([script, &port]));
    assert!(output.status.success(), "{}", text(&output));
    if !common::is_memcached() {
        // Each has had a connection of its own.
        let stats = common::connect(&server).stats("minos").unwrap();
        let count = |(name, value): &(String, String)| {
            name.ends_with(":binary_connections").then(|| value.parse::<u32>().unwrap())
        };
        assert!(stats.iter().filter_map(count).sum::<u32>() >= 3, "{stats:?}");
    }
}

#[test]
fn redis_py_works() {
    if common::is_memcached() {
        return;
    }
    let arguments = |port: u16, _: &std::path::Path| {
        let resp = format!("127.0.0.1:{port}");
        let words = [
            "serve",
            "--memcached=127.0.0.1:0",
            "--resp",
            &resp,
            "--workers=2",
            "--memory=256m",
            "--pin=off",
        ];
        words.map(str::to_owned).to_vec()
    };
    let server = minos_testkit::Server::start(&common::program(), arguments).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis_clients.py");
    let output = run(Command::new(python()).args([script, &server.address().port().to_string()]));
    assert!(output.status.success(), "{}", text(&output));
}
