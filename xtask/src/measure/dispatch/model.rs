//! What the simulator says.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    designs::{Design, KEYHASH},
    runner::{Latency, json},
};

/// Requests of a simulated run.
const REQUESTS: &str = "500k";
/// More than any server answers.
const TOO_MANY_PER_S: f64 = 5e6;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    /// Percent of the requests (p_L).
    pub(super) large_percent: &'static str,
    /// Bytes of the largest item (s_L).
    pub(super) large_max: &'static str,
}

impl Mix {
    /// What `minos bench` and `minos sim dispatch` both take.
    pub(super) fn arguments(&self) -> [&'static str; 4] {
        ["--large-percent", self.large_percent, "--large-max", self.large_max]
    }
}

/// A prediction, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    pub(super) small: Latency,
    pub(super) large: Latency,
    achieved_per_s: f64,
}

/// `minos sim dispatch` with one worker.
pub(super) struct Model<'a> {
    pub(super) program: &'a Path,
    /// A file.
    pub(super) costs: PathBuf,
    /// Percentile of the sizes up to which requests are small.
    pub(super) percentile: &'static str,
}

impl Model<'_> {
    /// Requests a second that one worker can serve.
    pub(super) fn capacity_per_s(&self, mix: &Mix) -> anyhow::Result<f64> {
        Ok(self.predict(KEYHASH, mix, TOO_MANY_PER_S)?.achieved_per_s)
    }

    pub(super) fn predict(&self, design: Design, mix: &Mix, rate: f64) -> anyhow::Result<Prediction> {
        let mut command = Command::new(self.program);
        command.args(["sim", "dispatch", "--workers", "1", "--dispatch", design.name, "--json"]);
        command.args(["--requests", REQUESTS, "--small-percentile", self.percentile]).args(mix.arguments());
        command.args(["--rate", &format!("{rate:.0}"), "--costs"]).arg(&self.costs);
        let results = json(command)?;
        let run = &results["runs"][0];
        let latency = |class: &str| Latency::of(&run["latency_us"][class]);
        let achieved_per_s = run["achieved_rps"].as_f64().unwrap_or(f64::NAN);
        Ok(Prediction { small: latency("small"), large: latency("large"), achieved_per_s })
    }
}
