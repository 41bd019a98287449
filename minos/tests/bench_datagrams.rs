//! `minos bench` over datagrams, against the server itself and against memcached.

#![cfg(feature = "lab")]

use std::{path::Path, process::Command};

use minos_testkit::Server;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_minos");

/// A short run with some large values, every byte of which is compared; long time-outs, because a busy
/// machine must lose nothing.
const BRIEF: [&str; 17] = [
    "--json",
    "--load",
    "--verify",
    "--keys",
    "200",
    "--large-keys",
    "4",
    "--large-percent",
    "3",
    "--duration",
    "300ms",
    "--warmup",
    "100ms",
    "--pace",
    "sleep",
    "--timeout",
    "60s",
];

/// A server whose datagrams have the same port as its connections.
fn minos(options: &[&str]) -> Server {
    let server = Server::start(Path::new(PROGRAM), |port, _| {
        let address = format!("127.0.0.1:{port}");
        let fixed = ["serve", "--memory", "256m", "--memcached", &address, "--native", &address];
        fixed.iter().chain(options).map(|&text| text.to_owned()).collect()
    });
    server.unwrap_or_else(|error| panic!("{error}"))
}

/// The report of a run with an answer in its window, which a process that stands still for a moment may sleep through.
fn bench(target: &str, arguments: &[&str]) -> Value {
    let mut reports = std::iter::repeat_with(|| bench_once(target, arguments)).take(20).flatten();
    reports.find(|report| report["achieved_rps"] != 0.0).expect("no window had an answer")
}

/// None if nothing was answered.
fn bench_once(target: &str, arguments: &[&str]) -> Option<Value> {
    let mut command = Command::new(PROGRAM);
    command.args(["bench", "--target", target, "--drain", "60s"]).args(BRIEF).args(arguments);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("answered nothing") {
        return None;
    }
    assert!(output.status.success(), "{arguments:?}: {said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn assert_clean(report: &Value) {
    for name in ["errors", "lost", "misses"] {
        assert_eq!(report[name], 0, "{report}");
    }
    assert!(report["completed"].as_u64() > Some(0) && report["server_cpu_us_per_op"].is_f64(), "{report}");
}

#[test]
fn vectors_of_the_native_protocol_are_driven_whichever_queue_they_go_to() {
    let server = minos(&["--workers", "2", "--engine", "store"]);
    let target = format!("minos://{}", server.address());
    for queue_by in [&[][..], &["--queue-by", "random"], &["--queue-by", "key"], &["--queue-by", "wrong"]] {
        let load = ["--rate", "500", "--multiget", "8", "--get-ratio", "0.5"];
        let report = bench(&target, &[&load[..], queue_by].concat());
        assert_clean(&report);
        assert!(report["latency_us"]["large"]["count"].as_u64() > Some(0), "{report}");
        let figure = |name: &str| report[name].as_f64().unwrap();
        assert!((figure("operations_per_s") / figure("achieved_rps") - 8.0).abs() < 1e-6, "{report}");
    }
    assert_clean(&bench(&target, &["--pipeline", "4", "--workload", "ycsb-f"]));
}

#[test]
fn a_server_with_one_port_has_no_wrong_one() {
    let server = minos(&["--workers", "2", "--native-single-port"]);
    let target = format!("minos://{}", server.address());
    assert_clean(&bench(&target, &["--rate", "500", "--multiget", "4", "--queue-by", "key"]));
    let output =
        Command::new(PROGRAM).args(["bench", "--target", &target, "--queue-by", "wrong"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no queue is wrong"));
}

#[test]
fn memcached_is_driven_in_its_own_datagrams() {
    let server = Server::start(Path::new("memcached"), |port, _| {
        let text = format!("-l 127.0.0.1 -u root -p {port} -U {port}");
        text.split(' ').map(str::to_owned).collect()
    });
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let target = format!("memcached+udp://{}", server.address());
    for load in [&["--rate", "500"][..], &["--rate", "500", "--multiget", "5"], &["--pipeline", "3"]] {
        assert_clean(&bench(&target, &[load, &["--workload", "mica-small"]].concat()));
    }
}
