//! `minos bench --target inproc://`: a table within this process, driven by threads that do nothing else
//! (MICA §5.1, figure 12, §5.5).
//!
//! The operations are drawn before the measurement. Each thread executes its own over and over in bursts, as
//! fast as it can. The first bytes of every value that is read are compared with the stored ones.

mod args;
mod driver;
mod load;
mod report;
mod script;
mod seat;

use std::{sync::Barrier, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use minos_base::{SizeText, limits::BURST_MAX};
use minos_engine::{CacheMode, StoreConfig, StoreMode};
use minos_workload::Workload;

pub(in crate::lab) use args::AccessArg;
pub(super) use args::InprocArgs;

use super::{BenchArgs, emit_either, target::Table};
use args::HashArg;
use driver::{Driver, Manner, Tally};
use load::{Extent, Loaded};
use report::{InprocReport, TableStats};
use script::Script;
use seat::{Alone, Owning, Seat, Sharing};

/// The parameters of a run, except the modes of the table.
struct Plan<'a> {
    workload: &'a Workload,
    table: Table,
    config: StoreConfig,
    threads: usize,
    width: usize,
    manner: Manner,
    cpus: &'a [usize],
    warmup: Duration,
    duration: Duration,
}

/// Runs the benchmark and prints the report. It is an error if the table lost or changed a value.
pub(super) fn run(args: &BenchArgs, table: Table) -> Result<()> {
    args.check_inproc()?;
    let threads = args.thread_count();
    let access = args.inproc.access.unwrap_or_default();
    ensure!(
        access != AccessArg::Erew || threads.is_power_of_two(),
        "--threads {threads}: with --access erew the number must be a power of two, such as {}, because bits of a \
         key's hash choose its thread",
        threads.next_power_of_two()
    );
    ensure!(
        table == Table::Cache || args.inproc.evict.is_none(),
        "--evict: a store evicts nothing; it goes with --target inproc://cache"
    );
    let workload = Workload::open(&args.workload, &args.shape(), args.seed)?;
    let plan = Plan::new(args, table, access, &workload);
    let report = plan.run_with(access)?;
    emit_either(args.json, &report, &report.to_string())?;
    report.judge(table)
}

/// Threads on a table within the process, for a figure.
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct TablePoint<'a> {
    pub(in crate::lab) table: Table,
    pub(in crate::lab) access: AccessArg,
    pub(in crate::lab) workload: &'a Workload,
    /// With [`AccessArg::Erew`] a power of two.
    pub(in crate::lab) threads: usize,
    /// One for each thread, or none: where the system puts them.
    pub(in crate::lab) cpus: &'a [usize],
    pub(in crate::lab) duration: Duration,
}

/// Operations of each thread in a second of its processor time, in bursts of [`BURST_MAX`].
///
/// # Errors
/// There is no memory for all items, or the table lost or changed a value.
pub(in crate::lab) fn measure_table(point: &TablePoint<'_>) -> Result<Vec<f64>> {
    let &TablePoint { table, access, workload, threads, cpus, duration } = point;
    let config = InprocArgs::default().table_config(workload, threads, access);
    let manner = Manner { hashes_inline: false, prefetches: true };
    let (width, warmup) = (BURST_MAX, duration / 4);
    let plan = Plan { workload, table, config, threads, width, manner, cpus, warmup, duration };
    let report = plan.run_with(access)?;
    report.judge(table)?;
    Ok(report.rates().collect())
}

impl InprocArgs {
    /// The configuration of the tables: with [`AccessArg::Erew`] each thread has its own.
    fn table_config(&self, workload: &Workload, threads: usize, access: AccessArg) -> StoreConfig {
        let tables = if access == AccessArg::Erew { threads as u64 } else { 1 };
        let extent = Extent::of(workload);
        let room = extent.memory_bytes(workload.item_count(), tables);
        let memory_bytes = self.memory.map_or(room, |memory| memory.0);
        StoreConfig { value_bytes_max: extent.value_bytes_max.max(1), ..self.store_config(memory_bytes) }
    }
}

impl<'a> Plan<'a> {
    fn new(args: &'a BenchArgs, table: Table, access: AccessArg, workload: &'a Workload) -> Self {
        let threads = args.thread_count();
        let config = args.inproc.table_config(workload, threads, access);
        let manner = Manner {
            hashes_inline: args.inproc.hash == Some(HashArg::Inline),
            prefetches: config.prefetch_depth > 1,
        };
        Self {
            workload,
            table,
            config,
            threads,
            width: args.multiget.map_or(BURST_MAX, |width| width as usize),
            manner,
            cpus: args.cpus(),
            warmup: args.warmup_time(),
            duration: args.measured_time(),
        }
    }

    fn run_with(&self, access: AccessArg) -> Result<InprocReport> {
        match (self.table, access) {
            (Table::Cache, AccessArg::Erew) => self.run::<Alone<CacheMode>>(),
            (Table::Cache, AccessArg::Crew) => self.run::<Owning<CacheMode>>(),
            (Table::Cache, AccessArg::Crcw) => self.run::<Sharing<CacheMode>>(),
            (Table::Store, AccessArg::Erew) => self.run::<Alone<StoreMode>>(),
            (Table::Store, AccessArg::Crew) => self.run::<Owning<StoreMode>>(),
            (Table::Store, AccessArg::Crcw) => self.run::<Sharing<StoreMode>>(),
        }
    }

    fn run<S: Seat>(&self) -> Result<InprocReport> {
        let memory = SizeText(self.config.memory_bytes);
        let mut seats =
            S::arrange(&self.config, self.threads).with_context(|| format!("--memory {memory}"))?;
        let prepared = self.in_threads(&mut seats, |thread, seat| {
            let loaded = load::load(seat, self.workload);
            Ok((loaded, Script::draw(seat, self.workload, (thread, self.threads), self.width)?))
        })?;
        let (loads, scripts): (Vec<_>, Vec<_>) = prepared.into_iter().unzip();
        check_load(&loads, self.table, memory)?;
        let ready = Barrier::new(self.threads);
        let tallies = self.in_threads(&mut seats, |thread, seat| {
            let lines = scripts[thread].lines();
            let mut driver = Driver::new(seat, &lines, self.manner);
            ready.wait();
            driver.run(self.warmup);
            Ok(driver.run(self.duration))
        })?;
        Ok(InprocReport::of(self, TableStats::of(&seats), tallies))
    }

    /// Runs `f` for each seat in a thread of its own.
    fn in_threads<S: Seat, T: Send>(
        &self,
        seats: &mut [S],
        f: impl Fn(usize, &mut S) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let f = &f;
        thread::scope(|scope| {
            let threads: Vec<_> = seats
                .iter_mut()
                .enumerate()
                .map(|(number, seat)| {
                    scope.spawn(move || {
                        self.pin(number)?;
                        f(number, seat)
                    })
                })
                .collect();
            let results = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
            results.collect()
        })
    }

    fn pin(&self, thread: usize) -> Result<()> {
        let Some(cpu) = self.cpus.get(thread % self.cpus.len().max(1)) else { return Ok(()) };
        minos_net::pin_to(*cpu).with_context(|| format!("--pin {cpu}"))
    }
}

/// Checks that a store took everything.
fn check_load(loads: &[Loaded], table: Table, memory: SizeText) -> Result<()> {
    let refused: u64 = loads.iter().map(|loaded| loaded.refused).sum();
    let items: u64 = loads.iter().map(|loaded| loaded.items).sum();
    if table == Table::Store && refused > 0 {
        bail!("--memory {memory}: there is no room for {refused} of {items} items");
    }
    Ok(())
}
