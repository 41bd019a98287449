//! The process of a contestant, as its parent sees it.

use super::job::{Job, Outcome, Peer, Plan};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A process that stands still unless it works on a job. It is killed when this is dropped.
pub(super) struct Process {
    peer: Peer,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one of this program's own processes.
    pub(super) fn start(plan: &Plan) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg("flash-peer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a contestant")?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).context("pipes")?;
        let mut process = Self { peer: plan.peer, child, input, output: BufReader::new(output) };
        process.send(plan)?;
        Ok(process)
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Lets the process run until it has done a job.
    pub(super) fn ask(&mut self, job: &Job) -> Result<Outcome> {
        self.signal(Signal::CONT)?;
        self.send(job)?;
        let outcome = self.answer().with_context(|| format!("{}: {job:?}", self.peer.name()))?;
        self.signal(Signal::STOP)?;
        Ok(outcome)
    }

    fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(message)?;
        writeln!(self.input, "{line}").with_context(|| format!("{} has ended", self.peer.name()))
    }

    /// The next line of JSON; libraries may print others.
    fn answer(&mut self) -> Result<Outcome> {
        let mut lines = (&mut self.output).lines();
        let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with('{')));
        Ok(serde_json::from_str(&line.context("the process has ended")??)?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("process id")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
