//! What the simulator says.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    designs::{Design, KEYHASH},
    runner::Latency,
};
use crate::measure::driver;

/// Requests of a simulated run.
const REQUESTS: &str = "500k";
/// More than any server answers, and so few requests that an RX queue holds them all: none is dropped.
const TOO_MANY_PER_S: &str = "100m";
const TOO_MANY: &str = "60k";

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
}

/// Where the costs of a design are.
pub(super) fn costs_file(folder: &Path, design: Design) -> PathBuf {
    folder.join(format!("dispatch-costs-{}.toml", design.name))
}

/// `minos sim dispatch` with one worker.
pub(super) struct Model<'a> {
    pub(super) program: &'a Path,
    /// The folder with a file of costs for each design.
    pub(super) costs: &'a Path,
    /// Percentile of the sizes up to which requests are small.
    pub(super) percentile: &'static str,
}

impl Model<'_> {
    /// Requests a second that one worker can serve.
    pub(super) fn capacity_per_s(&self, mix: &Mix) -> anyhow::Result<f64> {
        let run = self.run(
            KEYHASH,
            mix,
            &["--rate", TOO_MANY_PER_S, "--requests", TOO_MANY, "--warmup-percent", "0"],
        )?;
        Ok(run["achieved_rps"].as_f64().unwrap_or(f64::NAN))
    }

    pub(super) fn predict(&self, design: Design, mix: &Mix, rate: f64) -> anyhow::Result<Prediction> {
        let rate = format!("{rate:.0}");
        let run = self.run(design, mix, &["--rate", &rate, "--requests", REQUESTS])?;
        let latency = |class: &str| Latency::of(&run["latency_us"][class]);
        Ok(Prediction { small: latency("small"), large: latency("large") })
    }

    fn run(&self, design: Design, mix: &Mix, arguments: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(self.program);
        command.args(["sim", "dispatch", "--workers", "1", "--dispatch", design.name, "--json"]);
        command.args(["--small-percentile", self.percentile, "--costs"]).arg(costs_file(self.costs, design));
        command.args(mix.arguments()).args(arguments);
        Ok(driver::json(command)?["runs"][0].take())
    }
}
