//! A table in a region that somebody else writes, mapped to be read only.

mod burst;
#[cfg(test)]
mod tests;
mod walk;

use crate::{
    candidate::{Attempt, Candidate},
    config::PARTITION_BITS_MAX,
    item::{ItemState, ItemView},
    mode::Mode,
    plan::Plan,
    reader::{ATTEMPTS_MAX, Contents, Reader},
    restart::{OpenError, named},
    saved::{CLOCK_BASE, HASH_MASK, INLINE_CLASS_MAX, Saved, inline_class_of},
    store::Hashing,
};
pub use burst::StagedOwned;
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::{Image, Ownership};
use minos_sync::{Crew, ReadWord, tenure};
use std::{marker::PhantomData, os::fd::OwnedFd, path::Path};
pub use walk::Unfinished;

/// A partition of a foreign region.
type Foreign<'a, M> = Reader<'a, M, Crew, true>;

/// A table on a file or memfd that is read while its owner writes, from this process or another.
///
/// It stores nothing in the region and takes no lock, so its reads are not recorded until the owner is told
/// ([`crate::Engine::note_reads`]). It keeps no large value in place: one that is replaced or evicted while it is
/// copied is read again, or the owner is named. It trusts no word of the region: whatever another process stores
/// there, a read ends, and is wrong at most.
#[derive(Debug)]
pub struct ReadOnly<M: Mode> {
    image: Image,
    partitions: Box<[Contents<M>]>,
    hashing: Hashing,
    inline_class_max: SizeClass,
    clock_base: u64,
}

/// The answer of a table that is read only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// There is a live item.
    Found(R),
    /// There is none.
    Missing,
    /// Only the owner can tell: the value may be on flash, or it was written during each attempt, or its
    /// micro-shard is not this table's.
    AskOwner,
}

/// The tenure of a micro-shard, before anything of it was read.
#[derive(Clone, Copy, Debug)]
struct Tenure<'a> {
    word: &'a ReadWord,
    seen: u64,
}

impl Tenure<'_> {
    /// The result of an attempt made in this tenure, if it has not ended meanwhile.
    fn cover<T>(self, attempt: Attempt<T>) -> Attempt<T> {
        if tenure::still(self.word, self.seen) { attempt } else { Attempt::Disturbed }
    }
}

impl<M: Mode> ReadOnly<M> {
    /// Maps the table in the file at `path`, which must have been made with versions.
    ///
    /// # Errors
    /// There is no such table in this mode, or the file cannot be used.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::of(Image::open(path)?, path)
    }

    /// As [`ReadOnly::open`], for the table behind a descriptor from [`crate::Engine::descriptor_to_read`].
    ///
    /// # Errors
    /// As [`ReadOnly::open`].
    pub fn from_descriptor(fd: OwnedFd) -> Result<Self, OpenError> {
        Self::of(Image::from_descriptor(fd)?, Path::new("a descriptor"))
    }

    /// As [`ReadOnly::open`], for the table in an image.
    ///
    /// # Errors
    /// As [`ReadOnly::open`].
    pub fn from_image(image: Image) -> Result<Self, OpenError> {
        Self::of(image, Path::new("an image"))
    }

    fn of(image: Image, path: &Path) -> Result<Self, OpenError> {
        let geometry = *image.geometry();
        if geometry.layout != M::LAYOUT {
            let (found, expected) = (geometry.layout, M::LAYOUT);
            return Err(named(minos_region::OpenError::Differs { what: "engine layout", found, expected }));
        }
        let unreliable =
            |reason: &str| OpenError::Unreliable { path: path.to_owned(), reason: reason.to_owned() };
        let plan = Plan::of(geometry).ok_or_else(|| unreliable("its sizes fit nowhere"))?;
        let saved = plan.saved_at(image.partition_start(0));
        if !saved.has_versions(image.view()) {
            return Err(unreliable("its writer keeps no versions, so nobody can read beside it"));
        }
        let partitions =
            plan.look::<M>(&image).ok_or_else(|| unreliable("its tables contradict themselves"))?;
        Self::assemble(image, partitions, saved).ok_or_else(|| unreliable("its sizes contradict themselves"))
    }

    fn assemble(image: Image, partitions: Box<[Contents<M>]>, saved: Saved) -> Option<Self> {
        let word = |at| saved.seen(image.view(), at);
        let hashing = Hashing {
            seed: image.geometry().hash_seed,
            mask: word(HASH_MASK),
            partition_shift: partition_bits(partitions.len())?,
        };
        let inline_class_max = inline_class_of(word(INLINE_CLASS_MAX))?;
        let clock_base = word(CLOCK_BASE);
        Some(Self { partitions, hashing, inline_class_max, clock_base, image })
    }

    /// As [`crate::Engine::hash`].
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hashing.hash(key)
    }

    /// True if a keeper has the table's memory, too, so that it outlives its owner's process.
    pub fn is_kept(&self) -> bool {
        self.image.is_kept()
    }

    /// As [`crate::Engine::clock_base`], when the table was mapped.
    pub fn clock_base(&self) -> u64 {
        self.clock_base
    }

    /// Number of micro-shards whose ownership the table shows.
    pub fn micro_shards(&self) -> u32 {
        u32::try_from(self.image.geometry().micro_shards).unwrap_or(u32::MAX)
    }

    /// Who owns a micro-shard, at this moment. Nobody, if there is no such micro-shard.
    pub fn ownership(&self, micro_shard: u32) -> Ownership {
        let word = self.image.owner_word(micro_shard).map_or(0, tenure::look);
        Ownership::from_word(word)
    }

    /// As [`ReadOnly::ownership`], after everything that this thread has read: if the epoch is that of before, the owner
    /// has owned the micro-shard throughout.
    pub fn ownership_after_reads(&self, micro_shard: u32) -> Ownership {
        let word = self.image.owner_word(micro_shard).map_or(0, tenure::look_again);
        Ownership::from_word(word)
    }

    /// Reads the live item with this key. As in [`crate::Engine::read`], `f` may run more than once and may see
    /// bytes that are being written; its last result counts. Attempts are bounded.
    ///
    /// Right only while the owner runs: [`ReadOnly::read_owned`] notices that it restarts.
    pub fn read<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Answer<R> {
        undisturbed(|| self.attempt(hash, key, now, &mut f))
    }

    /// As [`ReadOnly::read`], for a key of this micro-shard: names the owner too if the table does not own it.
    ///
    /// The answer is that of one moment at which the table owned the micro-shard. So it is right whatever
    /// happens to the owner meanwhile: it may restart, or give the micro-shard away.
    pub fn read_owned<R>(
        &self,
        micro_shard: u32,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Answer<R> {
        undisturbed(|| match self.tenure(micro_shard) {
            Some(tenure) => tenure.cover(self.attempt(hash, key, now, &mut f)),
            None => Attempt::Found(None),
        })
    }

    /// True if the owner should be told of the read of an item with this hash, by [`ItemView::slot_word`] and
    /// [`crate::Engine::note_reads`]: it was not read before, or for a minute, or would be evicted soon.
    pub fn is_noteworthy(&self, hash: KeyHash, item: &ItemView<'_>) -> bool {
        let reader = self.reader(hash);
        item.is_access_due() || M::is_old(reader.space, reader.region, item.slot().link())
    }

    /// The tenure of a micro-shard that may be read here.
    fn tenure(&self, micro_shard: u32) -> Option<Tenure<'_>> {
        let word = self.image.owner_word(micro_shard)?;
        let seen = tenure::look(word);
        Ownership::from_word(seen).is_readable().then_some(Tenure { word, seen })
    }

    /// One attempt: `None` if the owner is to be asked.
    #[inline(always)]
    fn attempt<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<Option<R>> {
        let reader = self.reader(hash);
        let found = reader.find(hash, |candidate| reader.header_for(candidate, key, now));
        match found.and_then(|(candidate, state)| Self::finish(reader, hash, &candidate, state, f)) {
            // It may be on flash.
            Attempt::Missing if M::HAS_FLASH => match reader.is_surely_missing(hash) {
                Attempt::Found(false) => Attempt::Found(None),
                Attempt::Found(true) => Attempt::Missing,
                Attempt::Missing | Attempt::Disturbed => Attempt::Disturbed,
            },
            attempt => attempt,
        }
    }

    /// The rest of an attempt that has found a candidate with the right key.
    #[inline(always)]
    fn finish<R>(
        reader: Foreign<'_, M>,
        hash: KeyHash,
        candidate: &Candidate<'_>,
        state: ItemState,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<Option<R>> {
        if candidate.slot.class() != Some(SizeClass::of(state.value_bytes() as u64)) {
            // One of the two was being written, or is not to be trusted.
            return Attempt::Disturbed;
        }
        let f = &mut |item: &ItemView<'_>| Some(f(item));
        if reader.is_large(candidate.slot) {
            return reader.finish_large(hash, candidate, state, f);
        }
        reader.finish(candidate, state, f)
    }

    fn reader(&self, hash: KeyHash) -> Foreign<'_, M> {
        self.reader_at(self.hashing.partition_of(hash, self.partitions.len()))
    }

    fn reader_at(&self, partition: usize) -> Foreign<'_, M> {
        let Contents { index, space } = &self.partitions[partition];
        Reader {
            region: self.image.view(),
            index,
            space,
            inline_class_max: self.inline_class_max,
            access: PhantomData,
        }
    }
}

/// Bits of a hash that are a partition's number; `None` if there are not so many.
pub(crate) fn partition_bits(partitions: usize) -> Option<u32> {
    let bits = partitions.checked_ilog2()?;
    (bits <= PARTITION_BITS_MAX).then_some(bits)
}

/// Repeats an attempt that writers may disturb. `None` asks the owner.
fn undisturbed<R>(mut attempt: impl FnMut() -> Attempt<Option<R>>) -> Answer<R> {
    for _ in 0..ATTEMPTS_MAX {
        match attempt() {
            Attempt::Found(Some(result)) => return Answer::Found(result),
            Attempt::Found(None) => return Answer::AskOwner,
            Attempt::Missing => return Answer::Missing,
            Attempt::Disturbed => std::hint::spin_loop(),
        }
    }
    Answer::AskOwner
}
