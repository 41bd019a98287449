//! Visits all items in bounded slices, concurrently with writers.

use crate::{item::ItemState, mode::Mode, reader::walk::ChainCopy, store::Engine};
use minos_base::Seconds;
use minos_sync::Access;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Calls `f` for the live items in up to `buckets_max` chains of a partition, from `cursor` on, which is
    /// 0 at first. Returns the next cursor, `None` after the last chain.
    ///
    /// Items that exist throughout are visited at least once; some are visited twice if the index grows
    /// meanwhile. Writers are not blocked, and `f` may use the table: it sees a consistent copy of a chain.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn visit(
        &self,
        partition: usize,
        cursor: u64,
        buckets_max: usize,
        now: Seconds,
        mut f: impl FnMut(&[u8], &ItemState),
    ) -> Option<u64> {
        let partition = &self.partition_list()[partition];
        let reader = self.reader(partition);
        let buckets = reader.index.buckets(reader.region);
        let end = buckets.min(cursor.saturating_add(buckets_max as u64));
        let mut copy = ChainCopy::default();
        for number in cursor..end {
            let head = reader.index.bucket(reader.region, number);
            if partition.undisturbed(|| reader.copy_chain(head, now, &mut copy)).is_none() {
                copy.clear();
            }
            copy.items().for_each(|(key, state)| f(key, state));
        }
        (end < buckets).then_some(end)
    }
}
