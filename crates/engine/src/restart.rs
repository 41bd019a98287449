//! Warm restart: a table on a file, or at a keeper, outlives its process (MICA keeps none; this is Minos's own).
//!
//! A closed table is reopened if checksums show that its memory is unchanged, and heaps, index, logs, headers
//! and keys agree. A table whose process was killed before closing is repaired: items that were being written
//! are dropped, and the heaps are rebuilt around the others. After a stop of the machine, or if anything
//! is inconsistent, a cache starts empty in a new file, and a store is refused.

pub(crate) mod cache;
mod outcome;
pub(crate) mod reopen;
mod saved;
mod survey;
#[cfg(test)]
mod tests;

use crate::{
    config::{CreateError, StoreConfig},
    mode::Mode,
    plan::Plan,
    saved::{CLOCK_BASE, PROCESS, VERSIONS},
    store::{Engine, Writing},
};
use minos_region::{Memory, Opened};
use minos_sync::Access;
pub(crate) use outcome::named;
use outcome::report;
pub use outcome::{CloseError, OpenError, Opening};
use reopen::Survey;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
};

impl<M: Mode, A: Access> Engine<M, A> {
    /// Reopens the table in the file or at the keeper that `config` names, or creates one there. Without either, as
    /// [`Engine::create`].
    ///
    /// A reopened table keeps its file's seed of the key hash. Nothing that fails a check is served: the item
    /// is left out, a cache starts empty, or a store is refused.
    ///
    /// # Errors
    /// The configuration is not possible, or differs from the file's; the file is open elsewhere; the memory
    /// is not available; or the table is a store that fails a check.
    pub fn open(config: &StoreConfig) -> Result<(Self, Opening), OpenError> {
        let plan = Plan::new::<M>(config)?;
        let create = |opening| Ok((Self::found(config, &plan, plan.map(config)?)?, opening));
        let Some(path) = config.backing.lasting_name() else { return create(Opening::Created) };
        use minos_region::OpenError as Region;
        let opened = match Memory::open(&config.backing, &plan.geometry) {
            Err(Region::Absent { .. }) => create(Opening::Created),
            Err(error @ (Region::Damaged { .. } | Region::Length { .. })) => {
                Self::begin_anew(config, &plan, path, &error.to_string())
            }
            Err(error) => Err(named(error)),
            Ok(Opened::Clean(memory)) => Self::go_on(config, &plan, path, memory, true),
            Ok(Opened::Unclean { memory, same_boot: true }) => {
                Self::go_on(config, &plan, path, memory, false)
            }
            Ok(Opened::Unclean { memory, same_boot: false }) => {
                drop(memory);
                Self::begin_anew(config, &plan, path, "it was not closed before the machine stopped")
            }
        };
        if let Ok((_, opening)) = &opened {
            report(path, opening);
        }
        opened
    }

    /// Saves the table in its file or at its keeper, so that [`Engine::open`] can reopen it.
    /// Without either it just drops the table.
    ///
    /// Takes as long as reading all memory in use and writing the file.
    ///
    /// # Errors
    /// The file cannot be written.
    ///
    /// # Panics
    /// If another thread has not given up its partitions, where these belong to threads.
    pub fn close(self) -> Result<(), CloseError> {
        if !self.memory().is_lasting() {
            // It goes with this process.
            self.memory().end_ownership();
            return Ok(());
        }
        self.memory().freeze_ownership();
        // What other processes read meanwhile, and afterwards, is as it was: no reader needs the writers' own state.
        for number in 0..self.partitions() {
            let mut writing = self.writing_at(number);
            M::settle_all(&mut writing);
            writing.drop_lost_values();
            survey::mark_free_spares(&writing);
            writing.partition.saved.save(&mut writing);
        }
        Ok(self.memory().mark_clean()?)
    }

    /// As [`Engine::close`], for the last reference to a shared table.
    ///
    /// # Errors
    /// As [`Engine::close`], and if other references exist.
    ///
    /// # Panics
    /// As [`Engine::close`].
    pub fn close_shared(self: Arc<Self>) -> Result<(), CloseError> {
        Arc::into_inner(self).ok_or(CloseError::InUse)?.close()
    }

    /// The zero of the clock in whose seconds expiries are given (see [`minos_base::Clock::zero_unix_s`]).
    /// The table keeps it when it is closed or its process is killed. 0 until it is set.
    pub fn clock_base(&self) -> u64 {
        self.saved().word(self.memory().region(), CLOCK_BASE).load(Relaxed)
    }

    /// Sets [`Engine::clock_base`]. To be called before any item with an expiry is stored.
    pub fn set_clock_base(&self, clock_base: u64) {
        self.saved().word(self.memory().region(), CLOCK_BASE).store(clock_base, Release);
    }

    /// The seed of the key hash. A table on flash, and one that is reopened, have one of their own.
    pub fn hash_seed(&self) -> u64 {
        self.memory().geometry().hash_seed
    }

    /// Numbers this process: `number`, or a higher one if an earlier process that had the table has that or one above.
    pub fn number_process(&self, number: u64) -> u64 {
        let last = self.saved().word(self.memory().region(), PROCESS);
        let number = number.max(last.load(Relaxed).saturating_add(1));
        last.store(number, Relaxed);
        number
    }

    /// False if the table goes with this process: it has no file, and no keeper, or none any more.
    pub fn is_lasting(&self) -> bool {
        self.memory().is_lasting()
    }

    /// Notes, also for readers in other processes, that the keeper of the table's memory has ended.
    pub fn forsake(&self) {
        self.memory().forsake();
    }

    /// Reopens the table in the memory if it passes the checks.
    fn go_on(
        config: &StoreConfig,
        plan: &Plan,
        path: &Path,
        memory: Memory,
        is_closed: bool,
    ) -> Result<(Self, Opening), OpenError> {
        let saved = plan.saved_at(memory.partition_start(0));
        let is_complete = saved.seen(memory.region(), VERSIONS) != 0;
        let Some(parts) = plan.find(config, &memory).filter(|_| is_complete) else {
            drop(memory);
            return Self::begin_anew(config, plan, path, "its tables contradict themselves");
        };
        let mut engine = Self::assemble(config, memory, parts);
        if let Err(error) = saved.compare(&engine, config) {
            if is_closed {
                engine.memory().mark_clean()?;
            }
            return Err(error);
        }
        if !is_closed && !saved.has_versions(engine.memory().region()) {
            let reason = "it was not closed, and one who writes alone leaves no trace of what was unfinished";
            drop(engine);
            return Self::begin_anew(config, plan, path, reason);
        }
        match engine.survey(Survey::new(is_closed, config.uniques.clone())) {
            Ok(opening) => {
                saved.put_shape(&engine, config);
                if !is_closed {
                    engine.memory().mark_repaired()?;
                }
                Ok((engine, opening))
            }
            Err(reason) => {
                // The survey has changed parts of the table: the next start must not accept the rest.
                engine.memory().mark_damaged()?;
                drop(engine);
                Self::begin_anew(config, plan, path, &reason)
            }
        }
    }

    /// A new table in place of one that fails a check, if its mode may lose items.
    fn begin_anew(
        config: &StoreConfig,
        plan: &Plan,
        path: &Path,
        reason: &str,
    ) -> Result<(Self, Opening), OpenError> {
        if !M::LOSES_SILENTLY {
            return Err(OpenError::Unreliable { path: path.to_owned(), reason: reason.to_owned() });
        }
        let interleaving = config.nodes().begin();
        let memory = Memory::replace(plan.geometry, &config.backing).map_err(CreateError::Map)?;
        interleaving.end(memory.region());
        let engine = Self::found(config, plan, memory)?;
        Ok((engine, Opening::StartedEmpty { reason: reason.to_owned() }))
    }

    /// Checks the whole table, and repairs one that was not closed.
    fn survey(&mut self, mut survey: Survey) -> Result<Opening, String> {
        let is_closed = survey.is_closed;
        for number in 0..self.partitions() {
            let mut writing = self.writing_at(number);
            survey.partition(&mut writing).map_err(|what| format!("partition {number}: {what}"))?;
            drop(writing);
            // Any thread may take it up.
            A::give_up(&self.partitions[number].writer);
        }
        let (items, dropped) = survey.counts();
        if is_closed {
            return Ok(Opening::Warm { items });
        }
        self.memory.rebuild(&survey.into_used())?;
        Ok(Opening::Repaired { items, dropped })
    }
}

impl<M: Mode, A: Access> Writing<'_, M, A> {
    /// Removes items whose large values are gone, because the next process could not tell.
    fn drop_lost_values(&mut self) {
        let (region, index) = (self.region(), &self.partition.index);
        for number in 0..index.buckets(region) {
            let places: Vec<_> = crate::chain::places(region, index.bucket(region, number))
                .filter(|place| place.slot(region).class_index() > self.engine.inline_class_max.index())
                .collect();
            // From the last to the first: the item that fills a gap was checked before.
            for &place in places.iter().rev() {
                self.reclaim_if_dead(place, 0);
            }
        }
    }
}
