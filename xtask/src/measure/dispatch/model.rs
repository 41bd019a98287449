//! What the simulator says.

use std::{path::Path, process::Command};

use minos_base::limits::SLICE_BYTES;
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
const MANY_CLIENTS: &str = "1000";

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

/// `minos sim dispatch` with one worker.
pub(super) struct Model<'a> {
    pub(super) program: &'a Path,
    pub(super) costs: &'a Path,
    /// Largest small value.
    pub(super) threshold: &'static str,
}

impl Model<'_> {
    /// Requests a second that one worker can serve, whatever the driver can.
    pub(super) fn capacity_per_s(&self, mix: &Mix) -> anyhow::Result<f64> {
        let all_at_once = ["--requests", TOO_MANY, "--warmup-percent", "0", "--clients", MANY_CLIENTS];
        let run = self.run(KEYHASH, mix, &[&["--rate", TOO_MANY_PER_S], &all_at_once[..]].concat())?;
        Ok(run["achieved_rps"].as_f64().unwrap_or(f64::NAN))
    }

    pub(super) fn predict(&self, design: Design, mix: &Mix, rate: f64) -> anyhow::Result<Prediction> {
        let rate = format!("{rate:.0}");
        let run = self.run(design, mix, &["--rate", &rate, "--requests", REQUESTS, "--clients", "1"])?;
        let latency = |class: &str| Latency::of(&run["latency_us"][class]);
        Ok(Prediction { small: latency("small"), large: latency("large") })
    }

    fn run(&self, design: Design, mix: &Mix, arguments: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(self.program);
        command.args(["sim", "dispatch", "--workers", "1", "--dispatch", design.name, "--json"]);
        let slice = SLICE_BYTES.to_string();
        command.args(["--threshold", self.threshold, "--large-order", "shortest", "--slice", &slice]);
        command.arg("--costs").arg(self.costs).args(mix.arguments()).args(arguments);
        Ok(driver::json(command)?["runs"][0].take())
    }
}
