//! A table in a region that somebody else writes, mapped to be read only.

use crate::{
    candidate::Attempt,
    item::ItemView,
    mode::Mode,
    plan::Plan,
    reader::{ATTEMPTS_MAX, Contents, Reader},
    restart::{OpenError, named},
    saved::{CLOCK_BASE, HASH_MASK, SHAPE, Saved, inline_class_of, shard_bits_of},
    store::Hashing,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::Image;
use minos_sync::Crew;
use std::{marker::PhantomData, path::Path};

/// A table on a file that is read while its owner writes, from this process or another.
///
/// It stores nothing in the region and takes no lock, so its reads are not recorded, and it keeps no large
/// value from being evicted: for those it names the owner.
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
    /// Only the owner can tell: the value is large, or it was written during each attempt.
    AskOwner,
}

impl<M: Mode> ReadOnly<M> {
    /// Maps the table in the file at `path`, which must have been made with versions.
    ///
    /// # Errors
    /// There is no such table in this mode, or the file cannot be used.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let image = Image::open(path)?;
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
        Self::assemble(image, partitions, saved).ok_or_else(|| unreliable("it has no such size class"))
    }

    fn assemble(image: Image, partitions: Box<[Contents<M>]>, saved: Saved) -> Option<Self> {
        let word = |at| saved.seen(image.view(), at);
        let hashing = Hashing {
            seed: image.geometry().hash_seed,
            mask: word(HASH_MASK),
            partition_shift: shard_bits_of(word(SHAPE)) + partitions.len().ilog2(),
        };
        let inline_class_max = inline_class_of(word(SHAPE))?;
        let clock_base = word(CLOCK_BASE);
        Some(Self { partitions, hashing, inline_class_max, clock_base, image })
    }

    /// As [`crate::Engine::hash`].
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hashing.hash(key)
    }

    /// As [`crate::Engine::clock_base`], when the table was mapped.
    pub fn clock_base(&self) -> u64 {
        self.clock_base
    }

    /// Reads the live item with this key. As in [`crate::Engine::read`], `f` may run more than once and may see
    /// bytes that are being written; its last result counts. Attempts are bounded.
    pub fn read<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Answer<R> {
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(hash, key, now, &mut f) {
                Attempt::Found(Some(result)) => return Answer::Found(result),
                Attempt::Found(None) => return Answer::AskOwner,
                Attempt::Missing => return Answer::Missing,
                Attempt::Disturbed => std::hint::spin_loop(),
            }
        }
        Answer::AskOwner
    }

    /// One attempt: `None` for a large value.
    fn attempt<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<Option<R>> {
        let reader = self.reader(hash);
        let found = reader.find(hash, |candidate| reader.header_for(candidate, key, now));
        found.and_then(|(candidate, state)| {
            if reader.is_large(candidate.slot) {
                return reader.unfit(&candidate, &state).unwrap_or(Attempt::Found(None));
            }
            reader.finish(&candidate, state, &mut |item| Some(f(item)))
        })
    }

    fn reader(&self, hash: KeyHash) -> Reader<'_, M, Crew> {
        let Contents { index, space } =
            &self.partitions[self.hashing.partition_of(hash, self.partitions.len())];
        Reader {
            region: self.image.view(),
            index,
            space,
            inline_class_max: self.inline_class_max,
            access: PhantomData,
        }
    }
}
