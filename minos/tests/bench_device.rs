//! `minos bench --target device:` as a user runs it: files, modelled memory, and the refused options.

#![cfg(feature = "lab")]

#[path = "common/brief_bench.rs"]
mod brief_bench;

use std::{fs, path::Path};

use brief_bench::{BriefBench, number};
use serde_json::Value;

/// A short run. A file system may take tens of milliseconds for the first writes to a file.
const BENCH: BriefBench = BriefBench { options: &[["--duration", "500ms"], ["--warmup", "10ms"]] };

/// The name in reports of a driver that was asked for.
fn name(driver: &str) -> &str {
    match driver {
        "ring" => "io_uring",
        "cooperative-ring" => "io_uring (cooperative)",
        other => other,
    }
}

fn target(path: &Path) -> String {
    format!("device:{}", path.display())
}

#[test]
fn vectors_of_every_width_and_depth_are_measured_on_every_driver() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    for (width, depth, driver) in [("1", "1", "ring"), ("8", "32", "cooperative-ring"), ("4", "8", "threads")]
    {
        let arguments = ["--device-size", "4m", "--width", width, "--depth", depth, "--driver", driver];
        let report = BENCH.json(&target(&path), &arguments);
        let device = &report["device"];
        assert!(number(&report, "completed") > 0.0 && number(device, "iops") > 0.0, "{report}");
        assert_eq!(
            (&report["errors"], &report["lost"], &device["writes"]),
            (&0.into(), &0.into(), &0.into())
        );
        assert_eq!(device["driver"], name(driver));
        assert_eq!(device["unregistered_lanes"], 0, "{report}");
        assert_eq!((&device["capacity_bytes"], &device["request_bytes"]), (&(4 << 20).into(), &4096.into()));
        assert!(number(device, "cpu_us_per_request") > 0.0, "{report}");
        let latency = &report["latency_us"]["all"];
        assert!(number(latency, "p50") > 0.0 && number(latency, "p50") <= number(latency, "max"), "{report}");
        // Every vector is full.
        let vectors = number(device, "vectors") * width.parse::<f64>().unwrap();
        assert!(vectors >= number(&report, "completed") - depth.parse::<f64>().unwrap(), "{report}");
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 20);
}

#[test]
fn writes_need_a_file_of_ones_own_or_an_explicit_word() {
    let folder = tempfile::tempdir().unwrap();
    let (made, kept) = (folder.path().join("made"), folder.path().join("kept"));
    let report = BENCH.json(&target(&made), &["--device-size", "1m", "--get-ratio", "0.5", "--threads", "2"]);
    let device = &report["device"];
    assert!(number(device, "reads") > 0.0 && number(device, "writes") > 0.0, "{report}");

    let bytes = vec![7; 1 << 20];
    fs::write(&kept, &bytes).unwrap();
    let text = BENCH.refusal(&target(&kept), &["--get-ratio", "0.5"]);
    assert!(text.contains("--device-write"), "{text}");
    BENCH.json(&target(&kept), &[]);
    assert!(fs::read(&kept).unwrap() == bytes, "a file of others was written to");
    BENCH.json(&target(&kept), &["--get-ratio", "0", "--device-write", "--block", "16k"]);
    assert!(fs::read(&kept).unwrap() != bytes);
}

#[test]
fn flushes_follow_writes_and_count_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let made = target(&folder.path().join("made"));
    let arguments = ["--device-size", "1m", "--get-ratio", "0", "--depth", "4", "--width", "2"];
    let run = || BENCH.json(&made, &[&arguments[..], &["--flush-every", "3"]].concat());
    // A slow disk may end none within the window.
    let flushes = |report: &Value| number(&report["device"], "flushes");
    let report = std::iter::repeat_with(run).take(20).find(|report| flushes(report) > 0.0).expect("a flush");
    let device = &report["device"];
    let (writes, flushes) = (number(device, "writes"), number(device, "flushes"));
    assert_eq!(number(&report, "completed"), writes);
    // Each end of the window may lie between writes and their flush, and cuts off what is in flight.
    assert!(flushes > 0.0 && (writes - 3.0 * flushes).abs() <= 2.0 * (3.0 + 4.0), "{report}");
    assert!(number(&device["flush_latency_us"], "p50") > 0.0, "{report}");
    let output = BENCH.run(
        &target(&folder.path().join("other")),
        &[&arguments[..], &["--flush-every", "1", "--must-register"]].concat(),
    );
    assert!(String::from_utf8(output.stdout).unwrap().contains("flushes"));
}

#[test]
fn an_open_loop_keeps_its_rate_in_modelled_memory() {
    let report =
        BENCH.json("device:memory", &["--rate", "2k", "--width", "4", "--block", "512", "--pace", "sleep"]);
    assert_eq!((number(&report, "offered_rps"), number(&report, "errors")), (2000.0, 0.0));
    assert!(number(&report["latency_us"]["all"], "p50") >= 10.0, "it has the paper's service time: {report}");
    assert!(number(&report["driver"]["send_lag_us"], "count") > 0.0, "{report}");
}

#[test]
fn people_get_a_table() {
    let output = BENCH.run("device:memory", &["--block", "512"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["random 512 bytes on device:memory, memory, width 1, depth 32", "IOPS", "us a request", "p99.9"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let missing = target(&folder.path().join("missing"));
    for (target, arguments, message) in [
        (missing.as_str(), &[][..], "--device-size creates it"),
        ("device:/dev/null", &[], "neither a file nor a block device"),
        ("device:", &[], "device:PATH"),
        ("device:memory", &["--width", "8", "--depth", "4"], "--width 8 is more than --depth 4"),
        ("device:memory", &["--block", "3k"], "a power of two"),
        ("device:memory", &["--flush-every", "1"], "--flush-every needs writes"),
        ("device:memory", &["--pipeline", "4"], "--pipeline does not go with --target device:"),
        ("device:memory", &["--access", "erew"], "--access goes with --target inproc://"),
        ("inproc://store", &["--must-register"], "--must-register goes with --target device:PATH"),
        ("inproc://store", &["--width", "8"], "--width goes with --target device:PATH"),
        ("memcached://127.0.0.1:1", &["--device-write"], "--device-write goes with --target device:PATH"),
    ] {
        let text = BENCH.refusal(target, arguments);
        assert!(text.contains(message), "{target} {arguments:?}: {text}");
    }
    assert!(!folder.path().join("missing").exists());
}
