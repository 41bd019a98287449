//! Many operations at once: the cache misses of a burst overlap (MICA §4.3.2, multi-stage prefetching).
//!
//! A burst goes through three stages: hash the key and prefetch the bucket; find the tag and prefetch the
//! item; compare the key and execute the operation. Each stage runs for all operations of the burst before
//! the next stage begins, so that their cache misses overlap.

use crate::{
    candidate::Staged,
    entry::Entry,
    item::{ItemMeta, ItemView},
    mode::Mode,
    partition::{OutOfMemory, Partition},
    store::{Engine, Writing},
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, Seconds, limits::BURST_MAX};
use minos_region::Offset;
use minos_sync::Access;

/// A key to be read.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The key's [`Engine::hash`].
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
}

/// A value to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The key's [`Engine::hash`].
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Everything else.
    pub meta: ItemMeta,
}

/// A key to be deleted.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// The key's [`Engine::hash`].
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Reads many keys. `f` is called with the place of a key in `gets` and its live item, `None` if there
    /// is none.
    ///
    /// As in [`Engine::read`], `f` may be called more than once for a key, in a row; the last call counts.
    #[inline]
    pub fn get_many(&self, gets: &[Get<'_>], now: Seconds, mut f: impl FnMut(usize, Option<&ItemView<'_>>)) {
        // Not by `stage_each`: there, stage three becomes a call of its own.
        for (chunk, gets) in gets.chunks(self.prefetch_depth).enumerate() {
            let first = chunk * self.prefetch_depth;
            let (mut heads, mut staged) = (Burst::new(), Burst::new());
            self.stage_all(gets.iter().map(|get| get.hash), &mut heads, &mut staged);
            for (at, (get, ((partition, _), staged))) in
                gets.iter().zip(heads.iter().zip(&staged)).enumerate()
            {
                let found =
                    self.read_staged_in(partition, staged, get, now, |item| f(first + at, Some(item)));
                if found.is_none() {
                    f(first + at, None);
                }
            }
        }
    }

    /// Stage 2 of a lookup whose bucket is in the cache: finds the key's tag and prefetches the item.
    #[inline]
    pub fn stage(&self, hash: KeyHash) -> Staged<'_> {
        let reader = self.reader(self.partition(hash));
        reader.stage(reader.head(hash), hash)
    }

    /// Stage 3: as [`Engine::read`], with the result of [`Engine::stage`] for the same key.
    #[inline]
    pub fn read_staged<R>(
        &self,
        staged: &Staged<'_>,
        get: &Get<'_>,
        now: Seconds,
        f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        self.read_staged_in(self.partition(get.hash), staged, get, now, f)
    }

    #[inline]
    fn read_staged_in<R>(
        &self,
        partition: &Partition<M, A>,
        staged: &Staged<'_>,
        get: &Get<'_>,
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        self.readable(partition);
        if let Some(candidate) = &staged.candidate
            && self.reader(partition).may_be_linked(candidate)
            && let Some(result) = self.glance(partition, (get.hash, get.key), candidate, now, &mut f)
        {
            return Some(result);
        }
        self.read_carefully(partition, (get.hash, get.key), now, f)
    }

    /// Runs stages 1 and 2 for groups of operations whose misses overlap, and calls `last`, stage 3, with
    /// each operation's place and its staged result.
    #[inline]
    fn stage_each<'a, T>(
        &'a self,
        operations: &[T],
        hash: impl Fn(&T) -> KeyHash,
        mut last: impl FnMut(usize, &T, (&Head<'a, M, A>, &Staged<'a>)),
    ) {
        for (chunk, operations) in operations.chunks(self.prefetch_depth).enumerate() {
            let (mut heads, mut staged) = (Burst::new(), Burst::new());
            self.stage_all(operations.iter().map(&hash), &mut heads, &mut staged);
            for (at, (operation, (head, staged))) in
                operations.iter().zip(heads.iter().zip(&staged)).enumerate()
            {
                last(chunk * self.prefetch_depth + at, operation, (head, staged));
            }
        }
    }

    /// Stages 1 and 2 for a part of a burst that is not longer than [`BURST_MAX`]; `heads` and `staged` are empty.
    #[inline]
    fn stage_all<'a>(
        &'a self,
        hashes: impl Iterator<Item = KeyHash> + Clone,
        heads: &mut Burst<Head<'a, M, A>>,
        staged: &mut Burst<Staged<'a>>,
    ) {
        let prefetched = |hash| {
            let partition = self.partition(hash);
            (partition, self.reader(partition).prefetch_bucket(hash))
        };
        heads.extend(hashes.clone().map(prefetched));
        let mut is_complete = true;
        let stage = |(hash, &(partition, head)): (KeyHash, &Head<'a, M, A>)| {
            let staged = self.reader(partition).stage(head, hash);
            is_complete &= staged.candidate.is_some();
            staged
        };
        staged.extend(hashes.clone().zip(&*heads).map(stage));
        if !is_complete {
            for (hash, ((partition, head), staged)) in hashes.zip(heads.iter().zip(staged)) {
                if staged.candidate.is_none() {
                    staged.candidate = self.reader(partition).stage_spare(*head, hash);
                }
            }
        }
    }
}

/// One for each operation of a part of a burst.
type Burst<T> = ArrayVec<T, BURST_MAX>;

/// The result of an operation's first stage: its partition, and the first bucket of its chain.
type Head<'a, M, A> = (&'a Partition<M, A>, Offset);

impl<M: Mode, A: Access> Engine<M, A> {
    /// Stores many values. Calls `f` with the place of a value in `puts` and the CAS unique of its item, or
    /// an error if there is no room; the old item then stays.
    pub fn put_many(
        &self,
        puts: &[Put<'_>],
        now: Seconds,
        mut f: impl FnMut(usize, Result<u64, OutOfMemory>),
    ) {
        self.stage_each(
            puts,
            |put| put.hash,
            |at, put, ((partition, _), staged)| {
                let writing = Writing { engine: self, partition, writer: A::enter(&partition.writer) };
                f(at, writing.put_staged(staged, put, now));
            },
        );
    }

    /// Deletes many keys. Calls `f` with the place of a key in `deletes`, and true if there was an item.
    pub fn delete_many(&self, deletes: &[Delete<'_>], now: Seconds, mut f: impl FnMut(usize, bool)) {
        self.stage_each(
            deletes,
            |delete| delete.hash,
            |at, delete, ((partition, head), staged)| {
                let writing = Writing { engine: self, partition, writer: A::enter(&partition.writer) };
                let mut entry = Entry::find_staged(writing, (*head, staged), delete.hash, delete.key, now);
                f(at, entry.remove());
            },
        );
    }
}
