//! How `minos bench` is run.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::bail;
use serde_json::Value;

/// Where its threads run.
pub(super) const ON_THE_SECOND: &[&str] = &["--threads", "1", "--pin", "1"];
pub(super) const ON_BOTH: &[&str] = &["--threads", "2", "--pin", "0,1"];

/// Whether processes may be put before all others (SCHED_FIFO).
pub(super) fn may_be_realtime() -> bool {
    let probe = Command::new("chrt").args(["--fifo", "1", "true"]).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// A program that goes before everything else on its processors, where that is allowed.
pub(super) fn realtime(program: &Path) -> Command {
    if !may_be_realtime() {
        return Command::new(program);
    }
    let mut command = Command::new("chrt");
    command.args(["--fifo", "1"]).arg(program);
    command
}

/// Stores the items of a workload at `target`.
pub(super) fn load(program: &Path, target: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(["bench", "--target", target, "--load-only", "--json"]).args(arguments);
    json(command).map(|_| ())
}

/// What a program prints.
///
/// # Errors
/// It fails, or prints something else.
pub(super) fn json(mut command: Command) -> anyhow::Result<Value> {
    let Output { status, stdout, stderr } = command.env("RUST_LOG", "warn").output()?;
    if !status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&stderr));
    }
    Ok(serde_json::from_slice(&stdout)?)
}
