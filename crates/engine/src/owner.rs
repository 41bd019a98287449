//! CREW: every partition has one writer, who takes no lock (MICA §4.1.2).

use crate::{
    burst::{Delete, Put},
    config::{CreateError, StoreConfig},
    entry::Entry,
    item::ItemView,
    mode::Mode,
    partition::{OutOfMemory, Writing},
    store::Engine,
    store_mode::StoreMode,
    sweep::Swept,
};
use minos_base::{KeyHash, Seconds};
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
    tokens: Vec<Option<OwnerToken>>,
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
        let engine = Arc::new(engine);
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
        Ok((engine, list))
    }
}

impl<M: Mode> Owner<M> {
    /// The table.
    pub fn engine(&self) -> &Arc<Engine<M, Crew>> {
        &self.engine
    }

    /// Whether keys with this hash are this owner's to write.
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

    /// As [`Engine::read`], and writes down that the item was read if it is this owner's: of other owners' items
    /// nobody does (MICA §4.1.2: reads are counted by the exclusive writer only).
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
        if let (Some(slot), Some(_), Some(token)) = (due, &result, &mut self.tokens[partition.number]) {
            let writer = Crew::enter(&partition.writer, token);
            Writing { engine, partition, writer }.record_access(hash, key, slot, now);
        }
        result
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
        for (first, puts) in crate::burst::chunks(puts, self.engine.prefetch_depth) {
            self.engine.stage_items(puts.iter().map(|put| put.hash));
            for (at, put) in puts.iter().enumerate() {
                f(first + at, self.entry(put.hash, put.key, now).insert(&[put.value], put.meta));
            }
        }
    }

    /// As [`Engine::delete_many`].
    ///
    /// # Panics
    /// If a key is another owner's.
    pub fn delete_many(&mut self, deletes: &[Delete<'_>], now: Seconds, mut f: impl FnMut(usize, bool)) {
        for (first, deletes) in crate::burst::chunks(deletes, self.engine.prefetch_depth) {
            self.engine.stage_items(deletes.iter().map(|delete| delete.hash));
            for (at, delete) in deletes.iter().enumerate() {
                f(first + at, self.entry(delete.hash, delete.key, now).remove());
            }
        }
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
                while !self.writing(partition).flush_slice() {}
            }
        }
    }

    fn writing(&mut self, partition: usize) -> Writing<'_, M, Crew> {
        let engine = &*self.engine;
        let token = self.tokens[partition].as_mut().expect("a partition of this owner");
        let partition = &engine.partition_list()[partition];
        Writing { engine, partition, writer: Crew::enter(&partition.writer, token) }
    }

    /// Walks the whole memory of a table and says what is wrong with it. For tests.
    ///
    /// # Errors
    /// What is wrong, or that an owner is missing.
    #[doc(hidden)]
    pub fn check(owners: &mut [Self]) -> Result<(), String> {
        let Some(engine) = owners.first().map(|owner| Arc::clone(&owner.engine)) else { return Ok(()) };
        let mut writings: Vec<_> = (0..engine.partitions()).map(|_| None).collect();
        for owner in owners {
            for (partition, token) in owner.tokens.iter_mut().enumerate() {
                if let Some(token) = token {
                    let part = &engine.partition_list()[partition];
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
