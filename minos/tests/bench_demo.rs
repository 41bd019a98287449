//! `minos demo` as a newcomer runs it: it starts its own servers and ends them.

use std::process::Command;

use serde_json::Value;

fn demo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_minos")).arg("demo").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_discipline_is_measured_with_each_workload() {
    let scores: Value = serde_json::from_str(&demo(&["--seconds", "1", "--json"])).unwrap();
    let scores = scores["scores"].as_array().unwrap();
    for contestant in ["minos size-aware", "minos keyhash"] {
        let of_contestant: Vec<&Value> =
            scores.iter().filter(|score| score["contestant"] == contestant).collect();
        assert_eq!(of_contestant.len(), 2, "{contestant}");
        for score in of_contestant {
            let report = &score["report"];
            assert_eq!(report["errors"], 0, "{score}");
            assert!(report["latency_us"]["small"]["count"].as_u64() > Some(0), "{score}");
            assert!(report["latency_us"]["large"]["count"].as_u64() > Some(0), "{score}");
        }
    }
}
