//! Five seconds of `minos bench` against `minos serve`, without an error.

use std::process::Command;

use anyhow::{Context, ensure};
use minos_testkit::Server;
use serde_json::Value;

use crate::command::{self, cargo, root};

/// Requests a second: far below the capacity of any machine, as this is no measurement.
const RATE: &str = "5k";

/// Builds and starts the server, and runs the bench.
fn bench() -> anyhow::Result<Value> {
    command::run(&mut cargo(&["build", "--release", "-p", "minos"]))?;
    let program = root().join("target/release/minos");
    let server = Server::minos(&program, &["--workers=2", "--memory=512m", "--pin=off"])?;
    let target = format!("memcached://{}", server.address());
    let output = Command::new(&program)
        .args(["bench", "--target", &target, "--rate", RATE, "--duration", "5s", "--warmup", "1s"])
        .args(["--load", "--keys", "20000", "--large-keys", "50", "--connections", "8", "--pace", "sleep"])
        .args(["--verify", "--json", "--drain", "60s"])
        .output()
        .context("cannot run minos bench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "minos bench ended with {}:\n{text}{errors}", output.status);
    serde_json::from_str(&text).with_context(|| format!("not JSON:\n{text}"))
}

/// Runs the bench and checks its report.
pub(crate) fn run() -> anyhow::Result<()> {
    let report = bench()?;
    check(&report)?;
    println!("smoke: {} requests without an error", report["completed"]);
    Ok(())
}

/// Checks that requests were completed, and that none failed or was lost.
fn check(report: &Value) -> anyhow::Result<()> {
    let completed = report["completed"].as_u64().context("no number `completed`")?;
    ensure!(completed > 0, "nothing was completed: {report}");
    for kind in ["errors", "lost"] {
        let count = sum(&report[kind]).with_context(|| format!("no number `{kind}` in {report}"))?;
        ensure!(count == 0, "{kind}: {count} in {report}");
    }
    let count = report["latency_us"]["small"]["count"].as_u64().unwrap_or(0);
    ensure!(count > 0, "no latencies of small requests: {report}");
    Ok(())
}

/// A number, or the sum of an object of numbers.
fn sum(value: &Value) -> Option<u64> {
    match value {
        Value::Object(kinds) => kinds.values().map(sum).sum(),
        value => value.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_and_losses_are_noticed() {
        let report = |completed: u64, errors: Value, lost: u64, count: u64| {
            json!({"completed": completed, "errors": errors, "lost": lost,
                   "latency_us": {"small": {"count": count}}})
        };
        assert!(check(&report(9, json!(0), 0, 9)).is_ok());
        assert!(check(&report(9, json!({"server": 0}), 0, 9)).is_ok());
        assert!(check(&report(0, json!(0), 0, 0)).is_err());
        assert!(check(&report(9, json!(1), 0, 9)).is_err());
        assert!(check(&report(9, json!({"server": 1}), 0, 9)).is_err());
        assert!(check(&report(9, json!(0), 2, 9)).is_err());
        assert!(check(&report(9, json!(0), 0, 0)).is_err());
        assert!(check(&json!({"completed": 9})).is_err());
    }
}
