//! CREW: every partition has one writer, which takes no lock (MICA §4.1.2).

use crate::{
    burst::{Delete, Get, Put},
    candidate::Staged,
    config::{CreateError, StoreConfig},
    create::Tokens,
    entry::Entry,
    item::ItemView,
    mode::Mode,
    partition::{OutOfMemory, Partition},
    store::{Engine, Writing},
    store_mode::StoreMode,
    sweep::Swept,
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, Seconds, limits::BURST_MAX};
use minos_sync::{Access, Crew, OwnerToken};
use std::{ops::Deref, sync::Arc};

/// The writer of some partitions of a table that any thread may read.
///
/// It can be moved to another thread but not be shared or cloned; that is all that keeps its writes
/// apart from others'. Reading works as on the table itself, to which it dereferences.
#[derive(Debug)]
pub struct Owner<M: Mode = StoreMode> {
    engine: Arc<Engine<M, Crew>>,
    /// By partition; `None` for those of others.
    pub(crate) tokens: Vec<Option<OwnerToken>>,
}

impl<M: Mode> Engine<M, Crew> {
    /// Makes an empty table and `owners` owners of its partitions: partition p is written by owner
    /// p * `owners` / number of partitions, so that the highest bits of a hash choose the owner.
    ///
    /// # Errors
    /// The configuration is not possible, or the memory cannot be had.
    pub fn create_owned(
        config: &StoreConfig,
        owners: usize,
    ) -> Result<(Arc<Self>, Vec<Owner<M>>), CreateError> {
        let (engine, tokens) = Self::create_with_tokens(config)?;
        Ok(engine.dealt(tokens, owners))
    }

    pub(crate) fn dealt(self, tokens: Tokens<Crew>, owners: usize) -> (Arc<Self>, Vec<Owner<M>>) {
        let engine = Arc::new(self);
        let mut list: Vec<_> = (0..owners.max(1))
            .map(|_| {
                let tokens = (0..engine.partitions()).map(|_| None).collect();
                Owner { engine: Arc::clone(&engine), tokens }
            })
            .collect();
        for (partition, token) in tokens.into_iter().enumerate() {
            let owner = partition * list.len() / engine.partitions();
            list[owner].tokens[partition] = Some(token);
        }
        (engine, list)
    }
}

impl<M: Mode> Owner<M> {
    /// The table.
    pub fn engine(&self) -> &Arc<Engine<M, Crew>> {
        &self.engine
    }

    /// True if this owner may write keys with this hash.
    #[inline]
    pub fn owns(&self, hash: KeyHash) -> bool {
        self.tokens[self.engine.partition_of(hash)].is_some()
    }

    /// The partitions that are this owner's to write.
    pub fn own_partitions(&self) -> impl Iterator<Item = usize> + use<'_, M> {
        (0..self.tokens.len()).filter(|&partition| self.tokens[partition].is_some())
    }

    /// Finds the key and lets it be written. A dead item is reclaimed on the way.
    ///
    /// # Panics
    /// If the key is another owner's.
    #[inline]
    pub fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8], now: Seconds) -> Entry<'a, M, Crew> {
        let partition = self.engine.partition_of(hash);
        Entry::find(self.writing(partition), hash, key, now)
    }

    /// As [`Engine::read`], and records the access if the item is this owner's. Reads of other owners' items
    /// are not recorded (MICA §4.1.2: reads are counted by the exclusive writer only).
    pub fn read<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        let mut due = None;
        let engine = &*self.engine;
        let partition = engine.partition(hash);
        let result = engine.read(hash, key, now, |item| {
            due = engine.is_note_due(partition, item, item.slot()).then(|| item.slot());
            f(item)
        });
        if let (Some(slot), Some(_), true) = (due, &result, self.tokens[partition.number].is_some()) {
            enter(engine, partition, &mut self.tokens).record_access(hash, key, slot, now);
        }
        result
    }

    /// As [`Engine::get_many`], and writes down which of this owner's items were read.
    pub fn get_many(
        &mut self,
        gets: &[Get<'_>],
        now: Seconds,
        mut f: impl FnMut(usize, Option<&ItemView<'_>>),
    ) {
        let engine = &*self.engine;
        for (chunk, gets) in gets.chunks(engine.prefetch_depth).enumerate() {
            let first = chunk * engine.prefetch_depth;
            let mut due = ArrayVec::<_, BURST_MAX>::new();
            engine.get_many(gets, now, |at, item| {
                // An earlier report for this key is void: the key is looked up again.
                due.retain(|&mut (other, _, _)| other != at);
                let partition = engine.partition(gets[at].hash);
                if let Some(item) = item
                    && self.tokens[partition.number].is_some()
                    && engine.is_note_due(partition, item, item.slot())
                {
                    due.push((at, partition, item.slot()));
                }
                f(first + at, item);
            });
            for (at, partition, slot) in due {
                let Get { hash, key } = gets[at];
                enter(engine, partition, &mut self.tokens).record_access(hash, key, slot, now);
            }
        }
    }

    /// As [`Engine::note_reads`], for the partitions of this owner; reads in others' are passed over.
    pub fn note_reads(&mut self, reads: &[(KeyHash, u64)], now: Seconds) {
        let engine = &*self.engine;
        engine.each_noted(reads, |partition, noted| {
            if self.tokens[partition.number].is_some() {
                enter(engine, partition, &mut self.tokens).note_reads(noted, now);
            }
        });
    }

    /// As [`Engine::put_staged`]; `staged` is of the same table.
    ///
    /// # Panics
    /// If the key is another owner's.
    #[inline]
    pub fn put_staged(
        &mut self,
        staged: &Staged<'_>,
        put: &Put<'_>,
        now: Seconds,
    ) -> Result<u64, OutOfMemory> {
        self.writing(self.engine.partition_of(put.hash)).put_staged(staged, put, now)
    }

    /// As [`Engine::put_many`].
    ///
    /// # Panics
    /// If a key is another owner's.
    pub fn put_many(
        &mut self,
        puts: &[Put<'_>],
        now: Seconds,
        mut f: impl FnMut(usize, Result<u64, OutOfMemory>),
    ) {
        let engine = &*self.engine;
        engine.stage_each(
            puts,
            |put| put.hash,
            |at, put, ((partition, _), staged)| {
                let writing = enter(engine, partition, &mut self.tokens);
                f(at, writing.put_staged(staged, put, now));
            },
        );
    }

    /// As [`Engine::delete_many`].
    ///
    /// # Panics
    /// If a key is another owner's.
    pub fn delete_many(&mut self, deletes: &[Delete<'_>], now: Seconds, mut f: impl FnMut(usize, bool)) {
        let engine = &*self.engine;
        engine.stage_each(
            deletes,
            |delete| delete.hash,
            |at, delete, ((partition, head), staged)| {
                let writing = enter(engine, partition, &mut self.tokens);
                let mut entry = Entry::find_staged(writing, (*head, staged), delete.hash, delete.key, now);
                f(at, entry.remove());
            },
        );
    }

    /// As [`Engine::sweep`], for a partition of this owner.
    ///
    /// # Panics
    /// If it is another owner's.
    pub fn sweep(&mut self, partition: usize, buckets_max: usize, now: Seconds) -> Swept {
        self.writing(partition).sweep_slice(buckets_max, now)
    }

    /// As [`Engine::flush`], for the partitions of this owner.
    pub fn flush(&mut self) {
        for partition in 0..self.tokens.len() {
            if self.tokens[partition].is_some() {
                self.writing(partition).flush();
            }
        }
    }

    fn writing(&mut self, partition: usize) -> Writing<'_, M, Crew> {
        enter(&self.engine, &self.engine.partitions[partition], &mut self.tokens)
    }

    /// Walks the whole memory of a table and checks its consistency. For tests.
    ///
    /// # Errors
    /// The inconsistency found, or a message that an owner is missing.
    #[doc(hidden)]
    pub fn check(owners: &mut [Self]) -> Result<(), String> {
        let Some(engine) = owners.first().map(|owner| Arc::clone(&owner.engine)) else { return Ok(()) };
        let mut writings: Vec<_> = (0..engine.partitions()).map(|_| None).collect();
        for owner in owners {
            for (partition, token) in owner.tokens.iter_mut().enumerate() {
                if let Some(token) = token {
                    let part = &engine.partitions[partition];
                    let writer = Crew::enter(&part.writer, token);
                    writings[partition] = Some(Writing { engine: &*engine, partition: part, writer });
                }
            }
        }
        let writings: Option<Vec<_>> = writings.into_iter().collect();
        crate::check::check(&engine, &mut writings.ok_or("not all owners are here")?)
    }
}

impl<M: Mode> Deref for Owner<M> {
    type Target = Engine<M, Crew>;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

/// A partition's writer, for its owner.
#[inline]
fn enter<'a, M: Mode>(
    engine: &'a Engine<M, Crew>,
    partition: &'a Partition<M, Crew>,
    tokens: &'a mut [Option<OwnerToken>],
) -> Writing<'a, M, Crew> {
    let token = tokens[partition.number].as_mut().expect("a partition of this owner");
    Writing { engine, partition, writer: Crew::enter(&partition.writer, token) }
}
