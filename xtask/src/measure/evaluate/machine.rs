//! The machine, and the driver on it.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::ensure;
use serde_json::Value;

use crate::measure::{
    Samples,
    driver::{Measurement, Pace, WARMUP_MS},
    stolen::Stolen,
    turn,
};

const DRAIN: &str = "300ms";

/// The processors of servers and driver.
pub(super) struct Machine {
    pub(super) processors: usize,
    /// Model of the processor, and the kernel.
    pub(super) name: String,
    /// What the hypervisor took in a second of idleness.
    pub(super) stolen_percent: f64,
}

impl Machine {
    pub(super) fn find() -> anyhow::Result<Self> {
        let processors = thread::available_parallelism()?.get();
        ensure!(processors >= 2, "servers and driver need a processor each");
        let before = Stolen::now()?;
        thread::sleep(Duration::from_secs(1));
        let stolen_percent = Stolen::now()?.percent_since(before);
        Ok(Self { processors, name: name()?, stolen_percent })
    }

    /// Workers of the largest server: a driver takes more than half of a request's time.
    pub(super) fn workers(&self) -> usize {
        (self.processors * 3 / 8).max(1)
    }

    /// Numbers of workers to compare: 1, 2, 4 and so on, and the most.
    pub(super) fn scales(&self) -> Vec<usize> {
        let most = self.workers();
        let doublings = (0..).map(|power| 1 << power).take_while(|&workers| workers < most);
        doublings.chain([most]).collect()
    }

    /// The processors of a server with so many workers.
    pub(super) fn servers(&self, workers: usize) -> String {
        if workers == 1 { "0".to_owned() } else { format!("0-{}", workers - 1) }
    }

    /// The arguments that place the driver's threads.
    pub(super) fn driver_threads(&self) -> [String; 4] {
        let pins: Vec<_> = (self.workers()..self.processors).map(|cpu| cpu.to_string()).collect();
        ["--threads".to_owned(), pins.len().to_string(), "--pin".to_owned(), pins.join(",")]
    }

    /// Connections for a server with so many workers: each thread of the driver has as many.
    pub(super) fn connections(&self, workers: usize) -> String {
        let threads = self.processors - self.workers();
        ((16 * workers).next_multiple_of(threads)).to_string()
    }
}

fn name() -> anyhow::Result<String> {
    let info = fs::read_to_string("/proc/cpuinfo")?;
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").trim().to_owned()
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let (name, model, kernel) = (field("model name"), field("model\t"), kernel.trim());
    let siblings = fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    let core =
        siblings.map_or_else(|_| String::new(), |cpus| format!(", processor {} to a core", cpus.trim()));
    Ok(format!("{name} (model {model}{core}), Linux {kernel}"))
}

/// A server to measure.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) url: &'a str,
    pub(super) pid: u32,
}

/// `minos bench` on the driver's processors.
pub(super) struct Driver<'a> {
    pub(super) program: &'a Path,
    pub(super) machine: &'a Machine,
    pub(super) millis: u32,
}

/// The figures of one measurement. Latencies are in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shot {
    pub(super) per_s: f64,
    pub(super) lost: f64,
    pub(super) small_p50: f64,
    pub(super) small_p99: f64,
    pub(super) small_p999: f64,
    pub(super) large_p50: f64,
    pub(super) server_us: f64,
    /// Share of the driver's time in which it was busy.
    pub(super) driver_busy: f64,
}

impl Driver<'_> {
    /// Measures with requests that are drawn anew for each round.
    pub(super) fn shoot(&self, round: u32, target: Target<'_>, arguments: &[&str]) -> anyhow::Result<Shot> {
        let threads = self.machine.driver_threads();
        Shot::of(&self.run(
            (Pace::Spin, round),
            target,
            &threads.each_ref().map(String::as_str),
            arguments,
        )?)
    }

    /// Measures with a driver that is placed by `threads`, which rests then.
    pub(super) fn run(
        &self,
        (pace, draw): (Pace, u32),
        target: Target<'_>,
        threads: &[&str],
        arguments: &[&str],
    ) -> anyhow::Result<Value> {
        let measurement = Measurement {
            target: target.url,
            server_pid: target.pid,
            threads,
            pace,
            drain: DRAIN,
            warmup_ms: WARMUP_MS,
            millis: self.millis,
            draw,
            arguments,
        };
        turn::run(self.program, &measurement)
    }
}

impl Shot {
    pub(super) fn of(result: &Value) -> anyhow::Result<Self> {
        ensure!(result["errors"] == 0, "{} errors: {}", result["errors"], result["errors_by_kind"]);
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let (small, large) = (&result["latency_us"]["small"], &result["latency_us"]["large"]);
        Ok(Self {
            per_s: number(&result["operations_per_s"]),
            lost: number(&result["lost"]),
            small_p50: number(&small["p50"]),
            small_p99: number(&small["p99"]),
            small_p999: number(&small["p999"]),
            large_p50: number(&large["p50"]),
            server_us: 1e6 / number(&result["operations_per_server_cpu_s"]),
            driver_busy: number(&result["driver"]["busy"]),
        })
    }
}

/// Measurements of one case over the rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(pub(super) Vec<Shot>);

impl Series {
    pub(super) fn samples(&self, figure: impl Fn(&Shot) -> f64) -> Samples {
        let mut samples = Samples::default();
        self.0.iter().for_each(|shot| samples.push(figure(shot)));
        samples
    }

    pub(super) fn median(&self, figure: impl Fn(&Shot) -> f64) -> f64 {
        self.samples(figure).median()
    }

    /// Round by round.
    pub(super) fn ratio(&self, base: &Self, figure: impl Fn(&Shot) -> f64) -> Samples {
        let mut samples = Samples::default();
        self.0.iter().zip(&base.0).for_each(|(shot, base)| samples.push(figure(shot) / figure(base)));
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(processors: usize) -> Machine {
        Machine { processors, name: String::new(), stolen_percent: 0.0 }
    }

    #[test]
    fn servers_and_driver_share_no_processor() {
        let sixteen = machine(16);
        assert_eq!((sixteen.workers(), sixteen.scales()), (6, vec![1, 2, 4, 6]));
        assert_eq!(sixteen.servers(6), "0-5");
        assert_eq!(sixteen.driver_threads()[1..], ["10", "--pin", "6,7,8,9,10,11,12,13,14,15"]);
        assert_eq!(sixteen.connections(6), "100");
        let two = machine(2);
        assert_eq!((two.scales(), two.servers(1)), (vec![1], "0".to_owned()));
        assert_eq!(two.driver_threads()[1..], ["1", "--pin", "1"]);
    }
}
