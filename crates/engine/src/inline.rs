//! Writes over a small value in its place.

use crate::{
    item::{HEADER_WORDS, ItemMeta, ItemState},
    parts::Parts,
    slot::Slot,
    store::Writing,
    versions::Unfinished,
};
use minos_base::Seconds;
use minos_sync::{Access, words::copy_in};
use std::sync::atomic::AtomicU64;

/// An item's words and the state in its header.
pub(crate) struct Inline<'a> {
    pub(crate) header: &'a [AtomicU64; HEADER_WORDS],
    /// Key and value.
    pub(crate) body: &'a [AtomicU64],
    pub(crate) state: ItemState,
    pub(crate) slot: Slot,
}

impl<M: Parts, A: Access> Writing<'_, M, A> {
    /// Writes a value of the same length over that of a small item, under the version of its chain.
    // A call would cost an overwrite an eighth more instructions.
    #[inline(always)]
    pub(crate) fn write_over(
        &mut self,
        version: &AtomicU64,
        item: &Inline<'_>,
        value: &[u8],
        meta: &ItemMeta,
        now: Seconds,
    ) -> u64 {
        let cas = meta.cas.unwrap_or_else(|| self.writer.next_cas());
        let generation = self.partition.index.generation(self.region());
        let new = item.state.renewed(meta, cas, generation, now);
        if M::IS_TIERED {
            M::changes(self, item.slot);
        }
        let unfinished = Unfinished::begin::<A>(version);
        // First, so that it need not be kept while the value is copied.
        new.store_in(item.header);
        copy_in(item.body, item.state.key_bytes(), value);
        unfinished.end::<A>();
        self.partition.counts.overwrite(item.slot);
        self.engine.note_expiry(meta.expiry);
        cas
    }
}
