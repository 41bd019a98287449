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
use minos_engine::{Access, CacheMode, Crcw, Crew, Engine, Erew, Mode, StoreConfig, StoreMode};
use minos_workload::Workload;

pub(super) use args::InprocArgs;

use super::{BenchArgs, emit_either, target::Table, team::pin};
use crate::serve::AccessMode;
use args::HashArg;
use driver::{Driver, Manner, Tally};
use load::{Extent, Loaded};
use report::{InprocReport, TableStats};
use script::Script;
use seat::Seat;

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
    let access = args.inproc.access.unwrap_or(AccessMode::Crew);
    ensure!(
        table == Table::Cache || args.inproc.evict.is_none(),
        "--evict: a store evicts nothing; it goes with --target inproc://cache"
    );
    let workload = Workload::open(&args.workload, &args.shape(), args.seed)?.with_draw(args.draw);
    let plan = Plan::new(args, table, &workload);
    let report = plan.run_with(access)?;
    emit_either(args.json, &report, &report.to_string())?;
    report.judge(table)
}

/// Threads on a table within the process, for a figure.
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct TablePoint<'a> {
    pub(in crate::lab) table: Table,
    pub(in crate::lab) access: AccessMode,
    pub(in crate::lab) workload: &'a Workload,
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
    let config = InprocArgs::default().table_config(workload, threads);
    let manner = Manner { hashes_inline: false, prefetches: true };
    let (width, warmup) = (BURST_MAX, duration / 4);
    let plan = Plan { workload, table, config, threads, width, manner, cpus, warmup, duration };
    let report = plan.run_with(access)?;
    report.judge(table)?;
    Ok(report.rates().collect())
}

impl InprocArgs {
    /// The configuration of a table that `threads` threads share.
    fn table_config(&self, workload: &Workload, threads: usize) -> StoreConfig {
        let extent = Extent::of(workload);
        let room = extent.memory_bytes(workload.item_count());
        let memory_bytes = self.memory.map_or(room, |memory| memory.0);
        let (owners, value_bytes_max) = (threads as u32, extent.value_bytes_max.max(1));
        StoreConfig { owners, value_bytes_max, ..self.store_config(memory_bytes) }
    }
}

impl<'a> Plan<'a> {
    fn new(args: &'a BenchArgs, table: Table, workload: &'a Workload) -> Self {
        let threads = args.thread_count();
        let config = args.inproc.table_config(workload, threads);
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

    fn run_with(&self, access: AccessMode) -> Result<InprocReport> {
        match (self.table, access) {
            (Table::Cache, AccessMode::Erew) => self.run::<CacheMode, Erew>(),
            (Table::Cache, AccessMode::Crew) => self.run::<CacheMode, Crew>(),
            (Table::Cache, AccessMode::Crcw) => self.run::<CacheMode, Crcw>(),
            (Table::Store, AccessMode::Erew) => self.run::<StoreMode, Erew>(),
            (Table::Store, AccessMode::Crew) => self.run::<StoreMode, Crew>(),
            (Table::Store, AccessMode::Crcw) => self.run::<StoreMode, Crcw>(),
        }
    }

    fn run<M: Mode, A: Access>(&self) -> Result<InprocReport> {
        let memory = SizeText(self.config.memory_bytes);
        let engine = Engine::<M, A>::create(&self.config).with_context(|| format!("--memory {memory}"))?;
        let time = self.warmup + self.duration;
        let prepared = self.in_threads(&engine, |seat| {
            Ok((load::load(seat, self.workload), Script::draw(seat, self.workload, time, self.width)?))
        })?;
        let (loads, scripts): (Vec<_>, Vec<_>) = prepared.into_iter().unzip();
        check_load(&loads, self.table, memory)?;
        let ready = Barrier::new(self.threads);
        let tallies = self.in_threads(&engine, |seat| {
            let lines = scripts[seat.number].lines();
            let mut driver = Driver::new(seat.engine, &lines, self.manner);
            ready.wait();
            driver.run(self.warmup);
            Ok(driver.run(self.duration))
        })?;
        Ok(InprocReport::of(self, TableStats::of(&engine), tallies))
    }

    /// Runs `f` for each seat in a thread of its own, which owns the seat's partitions meanwhile.
    fn in_threads<M: Mode, A: Access, T: Send>(
        &self,
        engine: &Engine<M, A>,
        f: impl Fn(&Seat<'_, M, A>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let f = &f;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    scope.spawn(move || {
                        pin(self.cpus, number)?;
                        engine.take_up(number);
                        let result = f(&Seat { engine, number, seats: self.threads });
                        engine.give_up(number);
                        result
                    })
                })
                .collect();
            let results = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
            results.collect()
        })
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
