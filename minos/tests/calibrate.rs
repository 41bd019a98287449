//! `minos calibrate` as a user runs it: the measurements are plausible, and the simulator accepts them.

#![cfg(feature = "lab")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn minos(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_minos")).args(arguments).output().unwrap()
}

/// The JSON output of a run that must succeed.
fn printed(arguments: &[&str]) -> Value {
    let output = minos(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Calibrates quickly for this packet path.
fn calibrate(path: &str, out: &Path, options: &[&str]) -> Value {
    let out = out.to_str().unwrap();
    printed(&[&["calibrate", "--quick", "--json", "--path", path, "--out", out], options].concat())
}

fn numbers(of: &Value) -> impl Iterator<Item = (&String, f64)> {
    of.as_object().unwrap().iter().filter_map(|(name, value)| Some((name, value.as_f64()?)))
}

/// Asserts that all measurements are present and positive.
fn assert_measured(report: &Value, count: usize) {
    assert_eq!(report["evidence"], "measured");
    let measurements = report["measurements"].as_array().unwrap();
    assert_eq!(measurements.len(), count);
    for measurement in measurements {
        let spread_percent = measurement["spread_percent"].as_f64().unwrap();
        assert!(spread_percent.is_finite() && spread_percent >= 0.0, "{measurement}");
        // An intercept or a slope may be smaller than the noise of a busy machine.
        let is_direct =
            measurement["r_squared"].is_null() && !measurement["name"].as_str().unwrap().contains("beside");
        let value = measurement["value"].as_f64().unwrap();
        assert!(value.is_finite() && (value > 0.0 || !is_direct), "{measurement}");
    }
    let costs = &report["costs"];
    assert!(numbers(costs).all(|(_, value)| value.is_finite() && value >= 0.0), "{costs}");
    for key in ["lookup_ns", "hand_off_ns", "poll_ns", "ring_poll_ns", "profile_ns", "link_gbps"] {
        assert!(costs[key].as_f64().unwrap() > 0.0, "{key}: {costs}");
    }
}

/// Asserts that the file matches the output, and that the simulator accepts it.
fn assert_simulated(report: &Value, file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let read: Value = serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
    assert_eq!(read, report["costs"]);
    let file = file.to_str().unwrap();
    let arguments =
        ["sim", "dispatch", "--dispatch", "size-aware", "--rate", "10k", "--requests", "5k", "--costs"];
    let simulated = printed(&[arguments.as_slice(), &[file, "--json"]].concat());
    assert_eq!(simulated["costs"], report["costs"]);
    assert_eq!(simulated["runs"][0]["dropped"], 0);
}

#[test]
fn costs_of_sockets_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.toml");
    let report = calibrate("sockets", &file, &["--poll", "sleep", "--link-gbps", "25"]);
    assert_measured(&report, 25);
    let costs = &report["costs"];
    assert!(costs["source"].as_str().unwrap().contains("UDP over loopback"), "{costs}");
    assert!(costs["wake_ns"].as_f64().unwrap() > 0.0, "{costs}");
    assert_eq!(costs["link_gbps"], 25.0);
    assert!(costs["also_measured"]["round_trip_ns"].as_f64().unwrap() > 0.0, "{costs}");
    assert_simulated(&report, &file);
}

#[test]
fn costs_without_a_kernel_say_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.toml");
    let report = calibrate("kernel-bypass", &file, &[]);
    assert_measured(&report, 14);
    let costs = &report["costs"];
    let source = costs["source"].as_str().unwrap();
    assert!(source.contains("no kernel and no driver") && source.contains("worth nothing"), "{source}");
    // The values of the paper's platform.
    assert_eq!((costs["link_gbps"].as_f64(), costs["wake_ns"].as_f64()), (Some(40.0), Some(0.0)));
    assert_simulated(&report, &file);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (arguments, name) in [
        (["--link-gbps", "0"], "--link-gbps: 0 is not allowed; allowed is 0.001 to 1e5"),
        (["--path", "carrier-pigeon"], "kernel-bypass"),
        (["--out", "/nowhere/costs.toml"], "--out /nowhere/costs.toml"),
    ] {
        let output = minos(&[["calibrate", "--quick"], arguments].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(name), "{arguments:?}: {message}");
    }
}
