//! The report of a store above a device.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use minos_device::Device;
use minos_tier::Tier;
use minos_workload::{Latencies, Quantiles};
use serde::Serialize;

use super::{Plan, Preparation, driver::Tally};

/// The figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct TierReport {
    target: String,
    driver: String,
    width: usize,
    threads: usize,
    keys: u64,
    value_bytes: usize,
    duration_s: f64,
    seed: u64,
    keys_per_s: f64,
    gets: u64,
    puts: u64,
    vectors: u64,
    wrong: u64,
    /// Puts that found no room and were repeated.
    refused: u64,
    /// Processor time of this process, the keeper's included.
    cpu_us_per_key: f64,
    /// Records read for each key.
    reads_per_key: f64,
    /// Bytes read for each key.
    read_bytes_per_key: f64,
    vector_us: Quantiles,
    load_s: f64,
    write_amplification: f64,
    recovered_records: u64,
    recovery_s: f64,
}

impl TierReport {
    pub(super) fn of(
        plan: &Plan<'_>,
        device: &Device,
        tier: &Arc<Tier>,
        (preparation, tallies, spent): (Preparation, &[Tally], Duration),
    ) -> Self {
        let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
        let mut latencies = Latencies::new();
        tallies.iter().for_each(|tally| latencies.merge(&tally.latencies));
        let (gets, puts) = (sum(|tally| tally.gets), sum(|tally| tally.puts));
        let (done, reads) = ((gets + puts).max(1) as f64, tier.stats().reads);
        Self {
            target: plan.target.to_string(),
            driver: device.facts().driver.to_string(),
            width: plan.work.width,
            threads: plan.threads,
            keys: plan.work.keys,
            value_bytes: plan.work.value_bytes,
            duration_s: plan.duration.as_secs_f64(),
            seed: plan.seed,
            keys_per_s: ((gets + puts) as f64 / plan.duration.as_secs_f64()).round(),
            gets,
            puts,
            vectors: sum(|tally| tally.vectors),
            wrong: sum(|tally| tally.wrong),
            refused: sum(|tally| tally.refused),
            cpu_us_per_key: rounded(spent.as_secs_f64() * 1e6 / done),
            reads_per_key: rounded(reads.read_records as f64 / reads.read_keys.max(1) as f64),
            read_bytes_per_key: rounded(reads.read_bytes as f64 / reads.read_keys.max(1) as f64),
            vector_us: latencies.quantiles(),
            load_s: rounded(preparation.load.as_secs_f64()),
            write_amplification: rounded(preparation.amplification),
            recovered_records: preparation.records,
            recovery_s: rounded(preparation.recovery.as_secs_f64()),
        }
    }

    /// An error if an item was lost or nothing was done.
    pub(super) fn check(&self) -> Result<()> {
        let Self { wrong, recovered_records, keys, .. } = self;
        ensure!(self.gets + self.puts > 0, "{} completed nothing", self.target);
        ensure!(*wrong == 0, "{wrong} gets found nothing, or another key's value");
        ensure!(recovered_records == keys, "of {keys} items {recovered_records} were found again");
        Ok(())
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl fmt::Display for TierReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, driver, width, threads, keys, value_bytes, duration_s, seed, .. } = self;
        writeln!(
            f,
            "{keys} keys with {value_bytes} bytes on {target}, {driver}, width {width}, {threads} threads, \
             {duration_s} s, seed {seed}"
        )?;
        writeln!(
            f,
            "loaded in {} s, {} bytes written for each stored; found again in {} s",
            self.load_s, self.write_amplification, self.recovery_s
        )?;
        writeln!(
            f,
            "{:.0} keys/s, CPU {:.2} us a key, {} records read for each",
            self.keys_per_s, self.cpu_us_per_key, self.reads_per_key
        )?;
        let Quantiles { p50, p99, p999, max, .. } = self.vector_us;
        write!(f, "a vector: p50 {p50:.0}, p99 {p99:.0}, p99.9 {p999:.0}, max {max:.0} us")
    }
}
