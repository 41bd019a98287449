//! Runs of `minos bench`.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use anyhow::bail;
use serde_json::Value;

/// The arguments that place its threads.
pub(super) const ON_THE_SECOND: &[&str] = &["--threads", "1", "--pin", "1"];
pub(super) const ON_BOTH: &[&str] = &["--threads", "2", "--pin", "0,1"];

/// Warm-up before each measurement, which clears the queues and caches of the last one.
pub(super) const WARMUP_MS: u32 = 200;
/// Linux throttles threads that spin under SCHED_FIFO for more than 950 ms of a second. So after a
/// measurement with a spinning driver, there is a pause of this share of its length.
const SPINNING_PAUSE: f64 = 0.5;

/// The way in which the driver waits until the next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It has a processor of its own.
    Spin,
    /// It shares its processor with a worker, and preempts it when a request is due, but not for each answer.
    Due,
}

impl Pace {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Due => "due",
        }
    }

    /// Sleeps for as long as a driver of this pace must be absent before a measurement of so many
    /// milliseconds, warm-up included.
    pub(super) fn pause(self, millis: u32) {
        if self == Self::Spin {
            thread::sleep(Duration::from_millis(millis.into()).mul_f64(SPINNING_PAUSE));
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement<'a> {
    pub(super) target: &'a str,
    pub(super) server_pid: u32,
    /// The arguments that place the driver's threads.
    pub(super) threads: &'a [&'a str],
    pub(super) pace: Pace,
    /// Time to wait for answers after the last request.
    pub(super) drain: &'static str,
    pub(super) warmup_ms: u32,
    pub(super) millis: u32,
    /// Which requests are drawn of a workload: the same for all that are compared in a round, others in each.
    pub(super) draw: u32,
    pub(super) arguments: &'a [&'a str],
}

impl Measurement<'_> {
    /// Runs `minos bench`; returns its JSON output.
    pub(super) fn run(&self, program: &Path) -> anyhow::Result<Value> {
        let mut command = bench(realtime(program), self.target, self.server_pid);
        let [warmup, duration] = [self.warmup_ms, self.millis].map(|millis| format!("{millis}ms"));
        command.args(self.threads);
        command.args(["--pace", self.pace.name(), "--warmup", &warmup, "--drain", self.drain]);
        command.args(["--duration", &duration, "--draw", &self.draw.to_string()]).args(self.arguments);
        json(command)
    }
}

/// Lets `program` measure the server at `target` with this process.
pub(super) fn bench(mut program: Command, target: &str, server_pid: u32) -> Command {
    program.args(["bench", "--json", "--target", target, "--server-pid", &server_pid.to_string()]);
    program
}

/// True if processes may use SCHED_FIFO.
pub(super) fn may_be_realtime() -> bool {
    let probe = Command::new("chrt").args(["--fifo", "1", "true"]).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// A command that runs `program` under SCHED_FIFO, if that is allowed.
fn realtime(program: &Path) -> Command {
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

/// The JSON output of a program.
pub(super) fn json(mut command: Command) -> anyhow::Result<Value> {
    let Output { status, stdout, stderr } = command.env("RUST_LOG", "warn").output()?;
    if !status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&stderr));
    }
    Ok(serde_json::from_slice(&stdout)?)
}
