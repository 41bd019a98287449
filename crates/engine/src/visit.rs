//! Looking at all items, a bounded slice at a time.

use crate::{chain, item::ItemState, partition::key_of, store::Store};
use minos_base::Seconds;

impl Store {
    /// Shows the live items in up to `buckets_max` chains of a partition to `f`, from `cursor` on, which is
    /// 0 at first. Returns the cursor to go on with, `None` after the last chain.
    ///
    /// Items that are there all the time are shown at least once; the index may grow meanwhile, which
    /// shows some twice. The partition's lock is held during one call: `f` is to be quick, and must not
    /// use the store.
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
        let writer = self.partition_list()[partition].writer.lock();
        let region = self.memory().region();
        let (buckets, generation) = (writer.index.buckets(region), writer.index.generation(region));
        let end = buckets.min(cursor.saturating_add(buckets_max as u64));
        for number in cursor..end {
            for place in chain::places(region, writer.index.bucket(region, number)) {
                let item = place.slot(region).item();
                let state = ItemState::load(region, item, now);
                if state.is_live(generation) {
                    f(key_of(self.memory(), item), &state);
                }
            }
        }
        (end < buckets).then_some(end)
    }
}
