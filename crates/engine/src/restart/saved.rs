//! The words that a region keeps beside index and items, so that another process can reopen it.
//!
//! ```text
//! word 0   the clock's base          word 4   next CAS unique     word 6   next bucket of the sweep
//! word 1   whether versions are kept word 5   items               word 7   generation when its pass began
//! word 2   how keys and values lie   word 8   oldest generation that may be there
//! word 3   bits of the key hash      word 9   next bucket that is freed of what dangles
//! ```
//!
//! Words 0 to 3 are the table's, and only those of the first partition are used; they are right at any time.
//! The others are written when the table is closed.

use crate::{config::StoreConfig, mode::Mode, partition::Writing, restart::OpenError, store::Engine};
use minos_base::SizeClass;
use minos_region::{Offset, Region};
use minos_sync::Access;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

/// Words that a partition has for this.
pub(crate) const SAVED_WORDS: u64 = 16;

const CLOCK_BASE: u64 = 0;
const VERSIONS: u64 = 1;
const SHAPE: u64 = 2;
const HASH_MASK: u64 = 3;
const CAS_NEXT: u64 = 4;
const ITEMS: u64 = 5;
const SWEEP: [u64; 3] = [6, 7, 8];
const SCANNED: u64 = 9;

/// Chains have versions, so that it is known which of them were being written.
const KEPT: u64 = 1;
/// One thread alone has written, without versions.
const NOT_KEPT: u64 = 2;

/// The shift of the shard bits in the word that describes how keys and values lie.
const SHARD_SHIFT: u32 = 32;

/// Where the saved words of a partition lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    start: Offset,
}

impl Saved {
    pub(crate) fn at(start: Offset) -> Self {
        Self { start }
    }

    /// The base of the clock of which expiries are seconds.
    pub(crate) fn clock_base(self, region: &Region) -> &AtomicU64 {
        self.word(region, CLOCK_BASE)
    }

    /// The next CAS unique of a partition, as its writer has left it.
    pub(crate) fn cas_next(self, region: &Region) -> &AtomicU64 {
        self.word(region, CAS_NEXT)
    }

    /// Writes the table's shape. To be called once the table is complete, before anything is stored.
    pub(crate) fn put_shape<M: Mode, A: Access>(self, engine: &Engine<M, A>, config: &StoreConfig) {
        let region = engine.memory().region();
        self.word(region, SHAPE).store(shape(engine, config), Relaxed);
        self.word(region, HASH_MASK).store(config.hash_mask, Relaxed);
        // Release: a table without this word is not complete.
        self.word(region, VERSIONS).store(if A::IS_SHARED { KEPT } else { NOT_KEPT }, Release);
    }

    /// True if a table was created here completely.
    pub(crate) fn has_shape(self, region: &Region) -> bool {
        self.word(region, VERSIONS).load(Relaxed) != 0
    }

    /// True if the versions show which chains were being written.
    pub(crate) fn has_versions(self, region: &Region) -> bool {
        self.word(region, VERSIONS).load(Relaxed) == KEPT
    }

    /// Checks that `engine` looks for keys and values where they lie.
    pub(crate) fn compare<M: Mode, A: Access>(
        self,
        engine: &Engine<M, A>,
        config: &StoreConfig,
    ) -> Result<(), OpenError> {
        let word = |at| self.word(engine.memory().region(), at).load(Relaxed);
        let (found, expected) = (word(SHAPE), shape(engine, config));
        let class = |word: u64| SizeClass::from_index((word & u64::from(u32::MAX)) as usize);
        let inline_bytes_max = |word| class(word).map_or(0, SizeClass::bytes_max);
        let pairs = [
            ("shard bits", found >> SHARD_SHIFT, expected >> SHARD_SHIFT),
            (
                "bytes of the largest value beside its key",
                inline_bytes_max(found),
                inline_bytes_max(expected),
            ),
            ("bits of the key hash", word(HASH_MASK), config.hash_mask),
        ];
        match pairs.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => {
                Err(minos_region::OpenError::Differs { what, found, expected }.into())
            }
            None => Ok(()),
        }
    }

    /// Saves the state that only the writer of a partition holds.
    pub(crate) fn save<M: Mode, A: Access>(self, writing: &Writing<'_, M, A>) {
        let region = writing.region();
        let put = |at, value| self.word(region, at).store(value, Relaxed);
        put(CAS_NEXT, writing.writer.cas_next);
        put(ITEMS, writing.partition.counts.items());
        for (at, value) in SWEEP.into_iter().zip(writing.writer.sweep.to_words()) {
            put(at, value);
        }
        put(SCANNED, M::scanned(&writing.writer.room));
    }

    /// Restores the state of a writer that was saved.
    ///
    /// # Errors
    /// The words cannot have been saved.
    pub(crate) fn restore<M: Mode, A: Access>(self, writing: &mut Writing<'_, M, A>) -> Result<(), String> {
        let region = writing.region();
        let word = |at| self.word(region, at).load(Relaxed);
        let buckets = writing.partition.index.buckets(region);
        let (items, found) = (word(ITEMS), writing.partition.counts.items());
        if items != found {
            return Err(format!("it has {found} items instead of {items}"));
        }
        if word(SWEEP[0]) >= buckets || word(SCANNED) >= buckets {
            return Err("it looks at buckets that it has not".to_owned());
        }
        writing.writer.cas_next = word(CAS_NEXT);
        writing.writer.sweep = crate::sweep::Progress::from_words(SWEEP.map(word));
        M::set_scanned(&mut writing.writer.room, word(SCANNED));
        Ok(())
    }

    fn word(self, region: &Region, at: u64) -> &AtomicU64 {
        region.word(self.start.plus(at))
    }
}

/// Which values lie beside their keys, and which bits of the hash choose the partition.
fn shape<M: Mode, A: Access>(engine: &Engine<M, A>, config: &StoreConfig) -> u64 {
    u64::from(config.shard_bits) << SHARD_SHIFT | engine.inline_class_max.index() as u64
}
