//! How processors stand still, and how fast they are meanwhile: the time of the same instructions again and again.

use std::{
    hint::black_box,
    process::{self, Command},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use toml::{Table, Value};

use super::driver;

/// Steps of the loop between two looks at the clock, about a microsecond.
const STEPS: u32 = 100;
/// What the loop writes to: more than the first two caches hold.
const MEMORY_BYTES: usize = 1 << 20;
/// In which the loop's speed is averaged.
const SPAN: Duration = Duration::from_millis(1);
/// A gap above this is none of the loop's own.
const GAP_MIN: Duration = Duration::from_micros(5);
/// By this factor the longest of those that are taken for alike is longer than the shortest.
const ALIKE: f64 = 1.5;
/// Processors that are measured on.
const PROCESSORS: [&str; 2] = ["0", "1"];

/// Goes on for so long; prints each pause, in nanoseconds, and how long a step took on average in each span without them.
pub(crate) fn print(length: Duration) {
    let (mut memory, mut place) = (vec![0_u8; MEMORY_BYTES], 1_u32);
    let (mut pauses, mut spans) = (Vec::new(), Vec::new());
    let (mut worked, mut times) = (Duration::ZERO, 0_u32);
    let mut last = Instant::now();
    let (end, mut span_end) = (last + length, last + SPAN);
    while last < end {
        for _ in 0..STEPS {
            place = place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let byte = &mut memory[(place >> 8) as usize % MEMORY_BYTES];
            *byte = byte.wrapping_add(1);
        }
        // A way into the kernel and back.
        black_box(process::id());
        let now = Instant::now();
        if now - last >= GAP_MIN {
            pauses.push(now - last);
        } else {
            (worked, times) = (worked + (now - last), times + 1);
        }
        last = now;
        if now >= span_end && times > 0 {
            spans.push(worked.as_nanos() as f64 / f64::from(times * STEPS));
            (worked, times, span_end) = (Duration::ZERO, 0, now + SPAN);
        }
    }
    black_box(&memory);
    // What printing takes is no pause.
    pauses.iter().for_each(|pause| println!("pause {}", pause.as_nanos()));
    spans.iter().for_each(|span| println!("step {span:.4}"));
}

/// Pauses of both processors, and their speed.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// How long was looked, both processors together.
    watched_s: f64,
    lengths_ns: Vec<f64>,
    /// Of each processor, how long a step took in each span, in nanoseconds.
    steps_ns: [Vec<f64>; 2],
}

impl Pauses {
    /// Watches both processors for so long, before everything else there, if that is allowed.
    pub(super) fn watch(length: Duration) -> anyhow::Result<Self> {
        let outputs = thread::scope(|scope| {
            PROCESSORS
                .map(|processor| scope.spawn(move || watch_one(processor, length)))
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread has panicked")))
        });
        let watched_s = PROCESSORS.len() as f64 * length.as_secs_f64();
        let mut pauses = Self { watched_s, ..Self::default() };
        for (output, steps_ns) in outputs.into_iter().zip(&mut pauses.steps_ns) {
            for line in output?.lines() {
                let (what, ns) = line.split_once(' ').unwrap_or_default();
                let ns = f64::from_str(ns).with_context(|| line.to_owned())?;
                if what == "pause" { pauses.lengths_ns.push(ns) } else { steps_ns.push(ns) }
            }
        }
        pauses.lengths_ns.sort_by(f64::total_cmp);
        Ok(pauses)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.watched_s += other.watched_s;
        self.lengths_ns.extend(&other.lengths_ns);
        for (all, more) in self.steps_ns.iter_mut().zip(&other.steps_ns) {
            all.extend(more);
        }
        self.lengths_ns.sort_by(f64::total_cmp);
    }

    /// Percent of the time.
    pub(super) fn percent(&self) -> f64 {
        self.lengths_ns.iter().sum::<f64>() / 1e7 / self.watched_s
    }

    /// How many a second that are longer.
    pub(super) fn per_s_above(&self, us: f64) -> f64 {
        let shorter = self.lengths_ns.partition_point(|&ns| ns <= 1e3 * us);
        (self.lengths_ns.len() - shorter) as f64 / self.watched_s
    }

    pub(super) fn longest_us(&self) -> f64 {
        self.lengths_ns.last().map_or(0.0, |ns| ns / 1e3)
    }

    /// How fast processors were, as costs of the simulator have it: the worker's is the first one.
    pub(super) fn speed(&self) -> Value {
        let [worker, client] = self.steps_ns.each_ref().map(|steps_ns| times(steps_ns));
        let entries =
            [("span_us", Value::Float(SPAN.as_secs_f64() * 1e6)), ("worker", worker), ("client", client)];
        Value::Table(entries.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    }

    /// Those up to `longest`, as costs of the simulator have them: those that are about alike have one length.
    pub(super) fn costs(&self, longest: Duration) -> Value {
        let mut left = &self.lengths_ns[..];
        left = &left[..left.partition_point(|&ns| ns <= longest.as_nanos() as f64)];
        let mut kinds = Vec::new();
        while let Some(&shortest) = left.first() {
            let (alike, longer) = left.split_at(left.partition_point(|&ns| ns <= ALIKE * shortest));
            let (per_s, ns) = (alike.len() as f64 / self.watched_s, mean(alike));
            let number = |value: f64| Value::Float((value * 1e3).round() / 1e3);
            let entries = [("per_s", per_s), ("ns", ns)];
            let kind: Table =
                entries.map(|(name, value)| (name.to_owned(), number(value))).into_iter().collect();
            kinds.push(Value::Table(kind));
            left = longer;
        }
        Value::Array(kinds)
    }
}

/// How many times as long as on average a step took, span by span.
fn times(steps_ns: &[f64]) -> Value {
    let mean_ns = mean(steps_ns);
    Value::Array(steps_ns.iter().map(|ns| Value::Float((1e3 * ns / mean_ns).round() / 1e3)).collect())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn watch_one(processor: &str, length: Duration) -> anyhow::Result<String> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processor]);
    if driver::may_be_realtime() {
        command.args(["chrt", "--fifo", "1"]);
    }
    command.arg(std::env::current_exe()?).args(["pauses", "--millis", &length.as_millis().to_string()]);
    let output = command.output().context("taskset")?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_that_are_alike_are_one_kind() {
        let mut pauses = Pauses {
            watched_s: 1.0,
            lengths_ns: vec![10e3, 14e3, 200e3],
            steps_ns: [vec![9.0, 11.0], Vec::new()],
        };
        pauses.add(&Pauses { watched_s: 3.0, lengths_ns: vec![12e3, 2e6], ..Pauses::default() });
        assert_eq!(pauses.per_s_above(12.0), 0.75);
        assert_eq!(pauses.longest_us(), 2000.0);
        assert!((pauses.percent() - 100.0 * 2236e-6 / 4.0).abs() < 1e-9);
        let costs =
            toml::to_string(&Table::from_iter([("pauses".to_owned(), pauses.costs(MILLISECOND))])).unwrap();
        let wanted = "[[pauses]]\nns = 12000.0\nper_s = 0.75\n\n[[pauses]]\nns = 200000.0\nper_s = 0.25\n";
        assert_eq!(costs, wanted);
        let wanted = "client = []\nspan_us = 1000.0\nworker = [0.9, 1.1]\n";
        assert_eq!(toml::to_string(&pauses.speed()).unwrap(), wanted);
        assert_eq!(Pauses::default().costs(MILLISECOND), Value::Array(Vec::new()));
    }
}
