//! Pauses of processors, found by timing the same instructions again and again.

use std::{
    hint::black_box,
    process::{self, Command},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use super::driver;
use anyhow::{Context, bail, ensure};

/// Steps of the loop between two clock reads, about a microsecond.
const STEPS: u32 = 100;
/// The memory that the loop writes to: more than the first two cache levels hold.
const MEMORY_BYTES: usize = 1 << 20;
/// The loop itself causes no gap above this.
const GAP_MIN: Duration = Duration::from_micros(5);
const PROCESSORS: [&str; 2] = ["0", "1"];

/// Runs for `length`; prints each pause, in nanoseconds.
pub(crate) fn print(length: Duration) {
    let (mut memory, mut place) = (vec![0_u8; MEMORY_BYTES], 1_u32);
    let (mut pauses, mut last) = (Vec::new(), Instant::now());
    let end = last + length;
    while last < end {
        for _ in 0..STEPS {
            place = place.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let byte = &mut memory[(place >> 8) as usize % MEMORY_BYTES];
            *byte = byte.wrapping_add(1);
        }
        // A system call and its return.
        black_box(process::id());
        let now = Instant::now();
        if now - last >= GAP_MIN {
            pauses.push(now - last);
        }
        last = now;
    }
    black_box(&memory);
    // Printed afterwards, so that the time of printing is not counted as a pause.
    pauses.iter().for_each(|pause| println!("{}", pause.as_nanos()));
}

/// Pauses of both processors.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// Length of the observation, summed over both processors.
    watched_s: f64,
    lengths_ns: Vec<f64>,
}

impl Pauses {
    /// Watches both processors for `length`, under SCHED_FIFO if that is allowed.
    pub(super) fn watch(length: Duration) -> anyhow::Result<Self> {
        let outputs = thread::scope(|scope| {
            PROCESSORS
                .map(|processor| scope.spawn(move || watch_one(processor, length)))
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread has panicked")))
        });
        let watched_s = PROCESSORS.len() as f64 * length.as_secs_f64();
        let mut pauses = Self { watched_s, lengths_ns: Vec::new() };
        for output in outputs {
            for line in output?.lines() {
                pauses.lengths_ns.push(f64::from_str(line).with_context(|| line.to_owned())?);
            }
        }
        pauses.lengths_ns.sort_by(f64::total_cmp);
        Ok(pauses)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.watched_s += other.watched_s;
        self.lengths_ns.extend(&other.lengths_ns);
        self.lengths_ns.sort_by(f64::total_cmp);
    }

    /// The share of the time, in percent.
    pub(super) fn percent(&self) -> f64 {
        self.lengths_ns.iter().sum::<f64>() / 1e7 / self.watched_s
    }

    /// The number of longer pauses a second.
    pub(super) fn per_s_above(&self, us: f64) -> f64 {
        let shorter = self.lengths_ns.partition_point(|&ns| ns <= 1e3 * us);
        (self.lengths_ns.len() - shorter) as f64 / self.watched_s
    }

    pub(super) fn longest_us(&self) -> f64 {
        self.lengths_ns.last().map_or(0.0, |ns| ns / 1e3)
    }
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

    #[test]
    fn pauses_add_up() {
        let mut pauses = Pauses { watched_s: 1.0, lengths_ns: vec![10e3, 14e3, 200e3] };
        pauses.add(&Pauses { watched_s: 3.0, lengths_ns: vec![12e3, 2e6] });
        assert_eq!(pauses.per_s_above(12.0), 0.75);
        assert_eq!(pauses.longest_us(), 2000.0);
        assert!((pauses.percent() - 100.0 * 2236e-6 / 4.0).abs() < 1e-9);
    }
}
