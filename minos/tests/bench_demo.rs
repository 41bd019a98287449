//! `minos demo` as a newcomer runs it: it starts its own servers and stops them.

#![cfg(feature = "lab")]

use std::{process::Command, sync::LazyLock};

use serde_json::Value;

static SCORES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let demo = Command::new(env!("CARGO_BIN_EXE_minos")).args(["demo", "--seconds", "1", "--json"]).output();
    let output = demo.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    printed["scores"].as_array().unwrap().clone()
});

#[test]
fn each_design_is_measured_with_each_workload() {
    for contestant in ["minos size-aware", "minos keyhash"] {
        let of_contestant: Vec<&Value> =
            SCORES.iter().filter(|score| score["contestant"] == contestant).collect();
        assert_eq!(of_contestant.len(), 2, "{contestant}");
        for score in of_contestant {
            let report = &score["report"];
            assert_eq!(report["errors"], 0, "{score}");
            assert!(report["latency_us"]["small"]["count"].as_u64() > Some(0), "{score}");
            assert!(report["latency_us"]["large"]["count"].as_u64() > Some(0), "{score}");
        }
    }
}

#[test]
fn servers_take_turns_in_short_rounds() {
    let begin = |contestant: &str, round: usize| {
        let score = SCORES.iter().find(|score| score["contestant"] == contestant).unwrap();
        score["rounds"][round]["at_s"].as_f64().unwrap()
    };
    assert!(begin("minos size-aware", 0) < begin("minos keyhash", 0));
    assert!(begin("minos keyhash", 0) < begin("minos size-aware", 1));
    assert!(begin("minos size-aware", 1) < begin("minos keyhash", 1));
    assert!(SCORES.iter().all(|score| score["rounds"][0]["disturbance"]["others"].is_number()));
}
