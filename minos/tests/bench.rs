//! `minos bench` as a user runs it, against a server within the test.

#![cfg(feature = "lab")]

use std::process::{Command, Output};

use serde_json::Value;

#[path = "../../lab/workload/tests/fake/mod.rs"]
mod fake;
use fake::{FakeServer, Fault};

/// A small and short run.
const BRIEF: [&str; 8] = ["--duration", "300ms", "--warmup", "100ms", "--keys", "200", "--pace", "sleep"];

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_minos")).arg("bench").args(arguments).output().unwrap()
}

/// The same, repeated when nothing was answered within the window: a process that stands still for a moment may sleep
/// through it.
fn bench_answered(arguments: &[&str]) -> Output {
    let mut outputs = std::iter::repeat_with(|| bench(arguments)).take(20);
    let is_answered = |output: &Output| !String::from_utf8_lossy(&output.stderr).contains("answered nothing");
    outputs.find(is_answered).expect("no window had an answer")
}

fn target(server: &FakeServer) -> String {
    format!("memcached://{}", server.address)
}

/// True if no window was without an answer, as one is that a process which stands still for a moment sleeps through.
fn is_answered(report: &Value) -> bool {
    match report {
        Value::Object(fields) => {
            fields.get("achieved_rps").is_none_or(|rate| rate != 0.0) && fields.values().all(is_answered)
        }
        Value::Array(values) => values.iter().all(is_answered),
        _ => true,
    }
}

/// The JSON output of a run that must succeed, and whose windows had answers.
fn json(server: &FakeServer, arguments: &[&str]) -> Value {
    let target = target(server);
    let mut all = vec!["--target", &target, "--json"];
    all.extend(BRIEF);
    all.extend(arguments);
    let mut reports = std::iter::repeat_with(|| -> Value {
        let output = bench_answered(&all);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
    .take(20);
    reports.find(is_answered).expect("each run had a window without an answer")
}

/// Reports of as many runs as a slow machine may need until something has happened that is rare.
fn reports(server: &FakeServer, arguments: &[&str]) -> impl Iterator<Item = Value> {
    std::iter::repeat_with(|| json(server, arguments)).take(20)
}

/// The fields that scripts rely on.
fn assert_is_report(report: &Value) {
    for name in ["offered_rps", "achieved_rps"] {
        assert!(report[name].as_f64().unwrap() > 0.0, "{name}: {report}");
    }
    for name in ["completed", "errors", "lost"] {
        assert!(report[name].is_u64(), "{name}: {report}");
    }
    assert!(report.get("server_cpu_us_per_op").is_some());
    for class in ["all", "small", "large"] {
        let latency = &report["latency_us"][class];
        for name in ["p50", "p90", "p99", "p999", "max"] {
            assert!(latency[name].is_f64(), "{class} {name}: {report}");
        }
        assert!(latency["count"].is_u64(), "{class}: {report}");
    }
}

#[test]
fn json_has_the_shape_that_scripts_rely_on() {
    let server = FakeServer::start(Fault::None, 1);
    let options = ["--load", "--verify", "--rate", "2k", "--large-percent", "5", "--large-keys", "3"];
    let report = json(&server, &options);
    assert_is_report(&report);
    assert_eq!(server.item_count(), 203);
    assert_eq!((report["errors"].as_u64(), report["lost"].as_u64()), (Some(0), Some(0)), "{report}");
    assert_eq!(report["offered_rps"].as_f64(), Some(2000.0));
    let latency = &report["latency_us"];
    let count = |class: &str| latency[class]["count"].as_u64().unwrap();
    assert_eq!(report["completed"].as_u64(), Some(count("all")));
    assert_eq!(count("all"), count("small") + count("large"));
    assert!(count("large") > 0);
    for class in ["all", "small", "large"] {
        let of = |name: &str| latency[class][name].as_f64().unwrap();
        assert!(of("p50") > 0.0 && of("p50") <= of("p90") && of("p99") <= of("p999"), "{latency}");
        assert!(of("p999") <= of("max") * 1.01, "{latency}");
    }
}

#[test]
fn what_goes_wrong_is_counted_and_does_not_stop_a_run() {
    for (fault, kind) in [
        (Fault::Refused, "server_error"),
        (Fault::Altered, "mismatch"),
        (Fault::Closed, "closed"),
        (Fault::Nonsense, "protocol"),
    ] {
        // The first fault falls into the measured window, which begins after some 2000 requests.
        let server = FakeServer::start(fault, 3000);
        let is_counted = |report: &Value| {
            assert_is_report(report);
            report["errors_by_kind"][kind].as_u64() > Some(0)
        };
        let mut reports = reports(&server, &["--load", "--verify"]);
        assert!(reports.any(|report| is_counted(&report)), "{fault:?}");
    }
    let is_lost = |report: Value| report["lost"].as_u64() > Some(0) && report["errors"] == 0;
    assert!(reports(&FakeServer::start(Fault::Silent, 3000), &["--load"]).any(is_lost));
}

#[test]
fn a_sweep_is_a_list_of_reports() {
    let server = FakeServer::start(Fault::None, 1);
    let sweep = json(&server, &["--load", "--sweep", "500..2k", "--sweep-steps", "3"]);
    let reports = sweep["sweep"].as_array().unwrap();
    assert!(!reports.is_empty() && reports.len() <= 3);
    reports.iter().for_each(assert_is_report);
}

#[test]
fn a_comparison_takes_both_servers_in_turn() {
    let (one, two) = (FakeServer::start(Fault::None, 1), FakeServer::start(Fault::None, 1));
    let rival = target(&two);
    let compared = json(&one, &["--load", "--rate", "1k", "--vs", &rival, "--rounds", "2"]);
    assert_eq!(one.item_count(), two.item_count());
    assert_eq!(compared["b"], rival);
    let p99 = &compared["figures"]["small_p99_us"];
    assert!(p99["ratio"].as_f64().unwrap() > 0.0);
    assert!(p99["a"]["min"].as_f64().unwrap() <= p99["a"]["median"].as_f64().unwrap());
    for side in ["a", "b"] {
        let reports = compared["rounds"][side].as_array().unwrap();
        assert_eq!(reports.len(), 2);
        reports.iter().for_each(assert_is_report);
    }
}

#[test]
fn people_get_a_table() {
    let server = FakeServer::start(Fault::None, 1);
    let target = target(&server);
    let mut arguments = vec!["--target", &target, "--load", "--pipeline", "4"];
    arguments.extend(BRIEF);
    let output = bench_answered(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["stored 300 items", "errors 0, lost 0", "p99.9", "small", "closed loop"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // No colours and no progress where there is no terminal.
    assert!(
        !text.contains('\x1b') && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    for (arguments, code, message) in [
        (&["--target", "minos://127.0.0.1:1"][..], 1, "nobody answers"),
        (&["--target", "memcached://127.0.0.1:1", "--queue-by", "key"], 1, "minos:// only"),
        (&["--target", "memcached+udp://127.0.0.1:1", "--queue-by", "wrong"], 1, "minos:// only"),
        (&["--target", "memcached://127.0.0.1:1", "--timeout", "1s"], 1, "datagrams only"),
        (&["--target", "gopher://127.0.0.1:1"], 2, "memcached://HOST:PORT"),
        (&["--target", "memcached://127.0.0.1:1", "--rate", "0"], 2, "above 0"),
        (&["--target", "memcached://127.0.0.1:1", "--get-ratio", "95"], 2, "from 0 to 1"),
        (&["--target", "memcached://127.0.0.1:1", "--rate", "5k", "--pipeline", "4"], 1, "closed loop"),
        (&["--target", "memcached://127.0.0.1:1"], 1, "cannot connect to memcached://127.0.0.1:1"),
        (&["--target", "memcached://127.0.0.1:1", "--workload", "etcetera"], 1, "table1-0.125-500k"),
        (&[], 2, "--target"),
    ] {
        let output = bench(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_load_that_fails_is_a_failure() {
    let server = FakeServer::start(Fault::None, 1);
    let target = target(&server);
    let output = bench(&["--target", &target, "--load-only", "--json", "--keys", "100", "--large-keys", "1"]);
    assert!(output.status.success());
    let loaded: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((loaded["stored"].as_u64(), loaded["errors"].as_u64()), (Some(101), Some(0)));
    let output = bench(&["--target", "memcached://127.0.0.1:1", "--load-only"]);
    assert_eq!(output.status.code(), Some(1));
}
