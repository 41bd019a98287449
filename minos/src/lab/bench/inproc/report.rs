//! The report of a run within the process.

use std::fmt;

use anyhow::{Result, ensure};
use comfy_table::Cell;
use minos_base::SizeText;
use minos_engine::{Access, Engine, Mode};
use minos_workload::{DriverShare, LatencyReport, Quantiles, Report};
use serde::Serialize;

use super::{Plan, Tally};
use crate::lab::bench::{
    table::{number, numbers_table},
    target::Table,
};

/// The common report, and the figures of a table within the process.
#[derive(Debug, Serialize)]
pub(super) struct InprocReport {
    /// Latencies of sampled bursts, each divided by its operations; all count as small.
    #[serde(flatten)]
    common: Report,
    engine: EngineReport,
}

/// The configuration of the table, and its own statistics.
#[derive(Debug, Serialize)]
struct EngineReport {
    mode: &'static str,
    access: &'static str,
    partitions: usize,
    burst: usize,
    prefetch_depth: usize,
    hash: &'static str,
    simd: bool,
    backing: String,
    /// Bytes of this process in transparent huge pages, if the kernel tells.
    huge_page_bytes: Option<u64>,
    mops: f64,
    threads: Vec<ThreadReport>,
    gets: u64,
    hit_ratio: f64,
    bytes_per_item: f64,
    stats: TableStats,
}

#[derive(Debug, Serialize)]
struct ThreadReport {
    mops: f64,
    ns_per_op: f64,
    /// Processor time; excludes time in which the thread was preempted.
    cpu_ns_per_op: Option<f64>,
    operations: u64,
    gets: u64,
    misses: u64,
}

/// The table, and its own statistics.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TableStats {
    #[serde(skip)]
    mode: &'static str,
    #[serde(skip)]
    access: &'static str,
    #[serde(skip)]
    backing: String,
    #[serde(skip)]
    partitions: usize,
    memory_bytes: u64,
    items: u64,
    item_bytes: u64,
    used_bytes: u64,
    index_bytes: u64,
    buckets: u64,
    spare_buckets: u64,
    chain_buckets_max: u64,
    read_retries: u64,
    read_fallbacks: u64,
    out_of_memory: u64,
    evictions_log: u64,
    evictions_index: u64,
    evictions_large: u64,
    reinserted: u64,
    log_bytes: u64,
    log_capacity_bytes: u64,
    extents: u64,
}

impl TableStats {
    pub(super) fn of<M: Mode, A: Access>(engine: &Engine<M, A>) -> Self {
        let stats = engine.stats();
        Self {
            mode: M::NAME,
            access: A::NAME,
            backing: engine.backing_text().to_owned(),
            partitions: engine.partitions(),
            memory_bytes: stats.memory_bytes,
            items: stats.items,
            item_bytes: stats.item_bytes(),
            used_bytes: stats.used_bytes,
            index_bytes: stats.index_bytes,
            buckets: stats.buckets,
            spare_buckets: stats.spare_buckets,
            chain_buckets_max: stats.chain_buckets_max,
            read_retries: stats.read_retries,
            read_fallbacks: stats.read_fallbacks,
            out_of_memory: stats.out_of_memory,
            evictions_log: stats.evictions_log,
            evictions_index: stats.evictions_index,
            evictions_large: stats.evictions_large,
            reinserted: stats.reinserted,
            log_bytes: stats.log_bytes,
            log_capacity_bytes: stats.log_capacity_bytes,
            extents: stats.extents,
        }
    }
}

impl InprocReport {
    pub(super) fn of(plan: &Plan<'_>, mut stats: TableStats, mut tallies: Vec<Tally>) -> Self {
        let common = common(plan, &mut tallies);
        let gets: u64 = tallies.iter().map(|tally| tally.gets).sum();
        let threads = tallies.iter().map(ThreadReport::of).collect();
        let engine = EngineReport {
            mode: stats.mode,
            access: stats.access,
            partitions: stats.partitions,
            burst: plan.width,
            prefetch_depth: plan.config.prefetch_depth,
            hash: if plan.manner.hashes_inline { "inline" } else { "before" },
            simd: cfg!(all(target_arch = "x86_64", not(minos_no_simd))),
            backing: std::mem::take(&mut stats.backing),
            huge_page_bytes: huge_page_bytes(),
            mops: common.achieved_rps / 1e6,
            threads,
            gets,
            hit_ratio: share(gets - common.misses, gets),
            bytes_per_item: share(stats.used_bytes, stats.items),
            stats,
        };
        Self { common, engine }
    }

    /// Operations of each thread in a second of its processor time, or of time if the kernel does not tell.
    pub(super) fn rates(&self) -> impl Iterator<Item = f64> {
        self.engine.threads.iter().map(|thread| 1e9 / thread.cpu_ns_per_op.unwrap_or(thread.ns_per_op))
    }

    /// Checks that the table kept its items.
    pub(super) fn judge(&self, table: Table) -> Result<()> {
        let Report { errors_by_kind, misses, .. } = &self.common;
        let mismatches = errors_by_kind.get("mismatch").copied().unwrap_or(0);
        ensure!(mismatches == 0, "{mismatches} GETs found another value than was stored");
        ensure!(
            table == Table::Cache || *misses == 0,
            "{misses} GETs of {} did not find what was stored",
            self.engine.gets
        );
        Ok(())
    }
}

impl ThreadReport {
    fn of(tally: &Tally) -> Self {
        let Tally { operations, gets, misses, .. } = *tally;
        let rate = tally.rate();
        let cpu_ns_per_op = tally.processor.map(|time| time.as_secs_f64() * 1e9 / operations as f64);
        Self { mops: rate / 1e6, ns_per_op: 1e9 / rate, cpu_ns_per_op, operations, gets, misses }
    }
}

/// The report that all targets have in common, for scripts.
fn common(plan: &Plan<'_>, tallies: &mut [Tally]) -> Report {
    let rate: f64 = tallies.iter().map(Tally::rate).sum();
    let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
    let kinds = [("mismatch", sum(|tally| tally.wrong)), ("out_of_memory", sum(|tally| tally.refused))];
    let errors = kinds.iter().map(|(_, count)| count).sum();
    let (operations, misses) = (sum(|tally| tally.operations), sum(|tally| tally.misses));
    let mut samples_us: Vec<f64> =
        tallies.iter_mut().flat_map(|tally| std::mem::take(&mut tally.samples_us)).collect();
    let processor: Option<f64> =
        tallies.iter().map(|tally| tally.processor.map(|time| time.as_secs_f64())).sum();
    let bursts = Quantiles::of_samples(&mut samples_us);
    let seen = kinds.into_iter().filter(|(_, count)| *count > 0);
    Report {
        offered_rps: rate,
        achieved_rps: rate,
        completed: operations - errors,
        errors,
        lost: 0,
        server_cpu_us_per_op: processor.map(|seconds| seconds * 1e6 / operations as f64),
        operations_per_s: rate,
        operations_per_server_cpu_s: processor.map(|seconds| operations as f64 / seconds),
        latency_us: LatencyReport {
            all: bursts,
            small: bursts,
            large: Quantiles::default(),
            octaves: Vec::new(),
        },
        errors_by_kind: seen.map(|(name, count)| (name.to_owned(), count)).collect(),
        misses,
        driver: DriverShare::default(),
        duration_s: plan.duration.as_secs_f64(),
        target: plan.table.to_string(),
        workload: plan.workload.name().to_owned(),
        seed: plan.workload.seed(),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn huge_page_bytes() -> Option<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

impl fmt::Display for InprocReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { common, engine } = self;
        writeln!(
            f,
            "{} on {}, {}, bursts of {}, prefetch depth {}, hashed {}, {} s, seed {}",
            common.workload,
            common.target,
            engine.access,
            engine.burst,
            engine.prefetch_depth,
            engine.hash,
            common.duration_s,
            common.seed
        )?;
        let mut table =
            numbers_table(&["thread", "Mops/s", "ns/op", "CPU ns/op", "operations", "GETs", "misses"]);
        for (number, thread) in engine.threads.iter().enumerate() {
            table.add_row(row(&number.to_string(), thread));
        }
        writeln!(f, "{table}")?;
        let Quantiles { p50, p99, max, count, .. } = common.latency_us.all;
        writeln!(
            f,
            "{:.2} Mops/s in all, hits {:.3} %, errors {}; of {count} sampled bursts an operation took p50 {p50:.3} \
             p99 {p99:.3} max {max:.3} us",
            engine.mops,
            100.0 * engine.hit_ratio,
            common.errors
        )?;
        self.write_table(f)
    }
}

fn row(name: &str, thread: &ThreadReport) -> Vec<Cell> {
    let ThreadReport { mops, ns_per_op, cpu_ns_per_op, operations, gets, misses } = thread;
    let mut cells = vec![Cell::new(name), number(format!("{mops:.2}")), number(format!("{ns_per_op:.1}"))];
    cells.push(number(cpu_ns_per_op.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1}"))));
    cells.extend([operations, gets, misses].map(|count| number(count.to_string())));
    cells
}

impl InprocReport {
    /// Writes the table's own statistics.
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineReport { stats, backing, huge_page_bytes, partitions, .. } = &self.engine;
        let mib = |bytes: u64| SizeText(bytes >> 20 << 20);
        writeln!(
            f,
            "{} items of {:.1} bytes in {partitions} partitions, {} of {} used: {backing}{}",
            stats.items,
            self.engine.bytes_per_item,
            mib(stats.used_bytes),
            mib(stats.memory_bytes),
            huge_page_bytes.map_or_else(String::new, |bytes| format!(" ({} of the process)", mib(bytes))),
        )?;
        write!(
            f,
            "{} buckets and {} spare ones, chains up to {}; reads repeated {}, in turn {}; evicted {} with the log, \
             {} from full buckets, {} large; moved {}; refused {}",
            stats.buckets,
            stats.spare_buckets,
            stats.chain_buckets_max,
            stats.read_retries,
            stats.read_fallbacks,
            stats.evictions_log,
            stats.evictions_index,
            stats.evictions_large,
            stats.reinserted,
            stats.out_of_memory
        )
    }
}
