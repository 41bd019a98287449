//! Processes that are stopped for a moment, as by a hypervisor, count it.

#![cfg(feature = "lab")]

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Server};
use serde_json::Value;

mod common;

/// Longer than a turn of a loop; a measured 99th percentile can miss it.
const STOP: Duration = Duration::from_millis(20);

fn signal(name: &str, pid: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success());
}

fn stop_for_a_moment(pid: u32) {
    signal("STOP", pid);
    thread::sleep(STOP);
    signal("CONT", pid);
}

fn long_turns(server: &Server) -> u64 {
    let stats = Client::connect(server.address()).unwrap().stats("minos").unwrap();
    let of_worker = stats.iter().filter(|(name, _)| name.ends_with(":long_turns"));
    let turns: Vec<u64> = of_worker.map(|(_, value)| value.parse().unwrap()).collect();
    assert_eq!(turns.len(), 1, "{stats:?}");
    turns[0]
}

#[test]
fn a_worker_that_stood_still_says_so() {
    if common::is_memcached() {
        return;
    }
    let server = Server::minos(&common::program(), &["--workers=1", "--poll=busy"]).unwrap();
    for _ in 0..5 {
        let before = long_turns(&server);
        stop_for_a_moment(server.pid());
        // The turn that was stopped may be the one that answers the first request.
        let deadline = Instant::now() + Duration::from_secs(60);
        while long_turns(&server) == before {
            assert!(Instant::now() < deadline, "nothing was counted");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Long turns of a driver that is stopped now and then.
fn long_turns_of_driver(target: &str) -> u64 {
    let options = ["--load", "--keys", "200", "--rate", "1k", "--pace", "spin", "--duration", "1s", "--json"];
    let mut bench = Command::new(env!("CARGO_BIN_EXE_minos"))
        .args(["bench", "--warmup", "100ms", "--target", target])
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while bench.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(80));
        stop_for_a_moment(bench.id());
    }
    let output = bench.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["driver"]["long_turns"].as_u64().unwrap()
}

#[test]
fn a_driver_that_stood_still_says_so() {
    let server = common::start_plain();
    let target = format!("memcached://{}", server.address());
    // On a machine that stands still itself, no stop may fall into the window of a run.
    assert!((0..20).any(|_| long_turns_of_driver(&target) > 0), "nothing was counted");
}
