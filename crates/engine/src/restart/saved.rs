//! Saves the state of tables and writers in their saved words, and restores it.

use crate::{
    config::StoreConfig,
    mode::Mode,
    partition::Progress,
    restart::OpenError,
    saved::{
        CAS_NEXT, HASH_MASK, INLINE_CLASS_MAX, ITEMS, KEPT, NOT_KEPT, SCANNED, SWEEP, Saved, VERSIONS,
        inline_class_of,
    },
    store::{Engine, Writing},
};
use minos_base::SizeClass;
use minos_sync::Access;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl Saved {
    /// Writes the table's shape. To be called once the table is complete, before anything is stored.
    pub(crate) fn put_shape<M: Mode, A: Access>(self, engine: &Engine<M, A>, config: &StoreConfig) {
        let region = engine.memory().region();
        let inline_class_max = engine.inline_class_max.index() as u64;
        self.word(region, INLINE_CLASS_MAX).store(inline_class_max, Relaxed);
        self.word(region, HASH_MASK).store(config.hash_mask, Relaxed);
        // Release: a table without this word is not complete.
        self.word(region, VERSIONS).store(if A::IS_SHARED { KEPT } else { NOT_KEPT }, Release);
    }

    /// Checks that `engine` looks for keys and values where they lie.
    pub(crate) fn compare<M: Mode, A: Access>(
        self,
        engine: &Engine<M, A>,
        config: &StoreConfig,
    ) -> Result<(), OpenError> {
        let word = |at| self.word(engine.memory().region(), at).load(Relaxed);
        let inline_bytes_max = inline_class_of(word(INLINE_CLASS_MAX)).map_or(0, SizeClass::bytes_max);
        let pairs = [
            (
                "bytes of the largest value beside its key",
                inline_bytes_max,
                engine.inline_class_max.bytes_max(),
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
    pub(crate) fn save<M: Mode, A: Access>(self, writing: &mut Writing<'_, M, A>) {
        let region = writing.region();
        let put = |at, value| self.word(region, at).store(value, Relaxed);
        put(CAS_NEXT, writing.writer.cas_next);
        put(ITEMS, writing.partition.counts.items());
        let Progress { bucket, pass_generation, clean_generation } = writing.writer.sweep;
        SWEEP
            .into_iter()
            .zip([bucket, pass_generation, clean_generation])
            .for_each(|(at, value)| put(at, value));
        put(SCANNED, M::scanned(&mut writing.writer.room).map_or(0, |bucket| *bucket));
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
        let [bucket, pass_generation, clean_generation] = SWEEP.map(word);
        writing.writer.sweep = Progress { bucket, pass_generation, clean_generation };
        M::scanned(&mut writing.writer.room).into_iter().for_each(|bucket| *bucket = word(SCANNED));
        Ok(())
    }
}
