//! What the simulator says.

use std::{
    env, fs,
    path::Path,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context;
use minos_base::limits::SLICE_BYTES;
use serde_json::Value;
use toml::Table;

use super::{
    CONNECTIONS,
    designs::{Design, KEYHASH},
    runner::Latency,
};
use crate::measure::driver;

/// Requests of a simulated run.
const REQUESTS: &str = "300k";
/// Runs that tell how fast the machine was, and their requests.
const TRIALS: u32 = 2;
const TRIAL_REQUESTS: &str = "100k";
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

/// A prediction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    /// In microseconds.
    pub(super) small: Latency,
    pub(super) large: Latency,
    /// Time that worker and driver are busy for a request.
    pub(super) busy: Busy,
}

/// Time for a request, in nanoseconds. Not a number, if it is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    /// The worker's, but for what follows.
    pub(super) worker_ns: f64,
    /// In which the worker moves the bytes of large values.
    pub(super) moving_ns: f64,
    /// The driver's, to send and to receive.
    pub(super) sending_ns: f64,
    pub(super) receiving_ns: f64,
}

/// `minos sim dispatch` with one worker.
pub(super) struct Model<'a> {
    pub(super) program: &'a Path,
    /// Largest small value.
    pub(super) threshold: &'static str,
}

/// What is predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) design: Design,
    pub(super) mix: Mix,
    /// Requests a second.
    pub(super) rate: f64,
}

impl Model<'_> {
    /// Requests a second that one worker can serve, whatever the driver can.
    pub(super) fn capacity_per_s(&self, costs: &Table, mix: &Mix) -> anyhow::Result<f64> {
        let all_at_once = ["--requests", TOO_MANY, "--warmup-percent", "0", "--clients", MANY_CLIENTS];
        let run = self.run(costs, KEYHASH, mix, &[&["--rate", TOO_MANY_PER_S], &all_at_once[..]].concat())?;
        Ok(run["achieved_rps"].as_f64().unwrap_or(f64::NAN))
    }

    /// What is to be expected of a machine that has these costs, but is as much faster or slower in each as worker and driver
    /// were busy for a request.
    pub(super) fn predict(&self, costs: &Table, case: &Case, busy: Busy) -> anyhow::Result<Prediction> {
        let mut speed = Speed { worker: 1.0, moving: 1.0, sending: 1.0, receiving: 1.0 };
        for _ in 0..TRIALS {
            speed.correct(busy, self.predict_at(&speed.costs(costs), case, TRIAL_REQUESTS)?.busy);
        }
        self.predict_at(&speed.costs(costs), case, REQUESTS)
    }

    fn predict_at(&self, costs: &Table, case: &Case, requests: &str) -> anyhow::Result<Prediction> {
        let rate = format!("{:.0}", case.rate);
        let connections = ["--clients", "1", "--connections", CONNECTIONS];
        let arguments = [&["--rate", &rate, "--requests", requests], &connections[..]].concat();
        let run = self.run(costs, case.design, &case.mix, &arguments)?;
        let latency = |class: &str| Latency::of(&run["latency_us"][class]);
        let busy_ns = |share: &Value| 1e9 * share.as_f64().unwrap_or(f64::NAN) / case.rate;
        let worker = &run["workers"][0];
        let (moving_ns, sending_ns) = (busy_ns(&worker["moving"]), busy_ns(&run["clients_sending"]));
        let busy = Busy {
            worker_ns: busy_ns(&worker["busy"]) - moving_ns,
            moving_ns,
            sending_ns,
            receiving_ns: busy_ns(&run["clients_busy"]) - sending_ns,
        };
        Ok(Prediction { small: latency("small"), large: latency("large"), busy })
    }

    fn run(&self, costs: &Table, design: Design, mix: &Mix, arguments: &[&str]) -> anyhow::Result<Value> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = env::temp_dir().join(format!("minos-costs-{}-{number}.toml", process::id()));
        fs::write(&file, toml::to_string(costs)?).with_context(|| file.display().to_string())?;
        let mut command = Command::new(self.program);
        command.args(["sim", "dispatch", "--workers", "1", "--dispatch", design.name, "--json"]);
        let slice = SLICE_BYTES.to_string();
        command.args(["--threshold", self.threshold, "--large-order", "shortest", "--slice", &slice]);
        command.arg("--costs").arg(&file).args(mix.arguments()).args(arguments);
        let result = driver::json(command);
        fs::remove_file(&file)?;
        Ok(result?["runs"][0].take())
    }
}

/// Costs of moving a large value's bytes.
const MOVING: [&str; 3] = ["per_byte_ns", "per_byte_in_ns", "per_slice_ns"];

/// How many times as long things take as the costs say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    worker: f64,
    moving: f64,
    sending: f64,
    receiving: f64,
}

impl Speed {
    /// Learns from what was measured and what was expected at this speed.
    fn correct(&mut self, measured: Busy, expected: Busy) {
        let ratios = [
            (&mut self.worker, measured.worker_ns / expected.worker_ns),
            (&mut self.moving, measured.moving_ns / expected.moving_ns),
            (&mut self.sending, measured.sending_ns / expected.sending_ns),
            (&mut self.receiving, measured.receiving_ns / expected.receiving_ns),
        ];
        // Some drivers take no time in the simulator, and without large values nobody moves any.
        for (speed, ratio) in ratios.into_iter().filter(|(_, ratio)| ratio.is_finite()) {
            *speed *= ratio;
        }
    }

    fn costs(&self, costs: &Table) -> Table {
        let scaled = |(name, value): (&String, &toml::Value)| {
            let value = match (name.as_str(), value) {
                ("client", toml::Value::Table(client)) => {
                    times(client, |name| if name.starts_with("sen") { self.sending } else { self.receiving })
                        .into()
                }
                ("after_idle", toml::Value::Table(more)) => times(more, |_| self.worker).into(),
                (name, toml::Value::Float(cost)) if MOVING.contains(&name) => (cost * self.moving).into(),
                // A look is the same beside anything else, and may not take less than a nanosecond.
                (name, toml::Value::Float(cost)) if name.ends_with("_ns") && !name.ends_with("poll_ns") => {
                    (cost * self.worker).into()
                }
                _ => value.clone(),
            };
            (name.clone(), value)
        };
        costs.iter().map(scaled).collect()
    }
}

fn times(costs: &Table, factor: impl Fn(&str) -> f64) -> Table {
    let product = |(name, cost): (&String, &toml::Value)| {
        (name.clone(), cost.as_float().map_or(cost.clone(), |cost| toml::Value::Float(factor(name) * cost)))
    };
    costs.iter().map(product).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_machine_has_higher_costs() {
        let text = "a_ns = 2.0\nper_byte_ns = 1.0\nlink_gbps = 5.0\n[after_idle]\nb_ns = 3.0\n[client]\nreceive_ns = 4.0\nsend_ns = 4.0\n";
        let costs: Table = toml::from_str(text).unwrap();
        let mut speed = Speed { worker: 1.0, moving: 1.0, sending: 1.0, receiving: 1.0 };
        let busy = |worker_ns, sending_ns| Busy {
            worker_ns,
            moving_ns: 3.0 * worker_ns,
            sending_ns,
            receiving_ns: 5.0,
        };
        speed.correct(busy(8.0, 30.0), busy(4.0, f64::NAN));
        assert_eq!(speed, Speed { worker: 2.0, moving: 2.0, sending: 1.0, receiving: 1.0 });
        speed.correct(Busy { moving_ns: 48.0, ..busy(8.0, 30.0) }, busy(8.0, 10.0));
        let wanted = "a_ns = 4.0\nlink_gbps = 5.0\nper_byte_ns = 4.0\n\n[after_idle]\nb_ns = 6.0\n\n[client]\nreceive_ns = 4.0\nsend_ns = 12.0\n";
        assert_eq!(toml::to_string(&speed.costs(&costs)).unwrap(), wanted);
    }
}
