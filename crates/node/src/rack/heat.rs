//! Which micro-shards are hot: workers count some of their requests, and old counts fade.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use minos_rack::MicroShard;
use minos_unit::Heat;

/// Hottest micro-shards that are told of.
const TOLD: usize = 16;

/// Sampled requests of all micro-shards.
pub(crate) struct Heats {
    counts: Box<[Count]>,
}

#[derive(Default)]
struct Count {
    reads: AtomicU32,
    changes: AtomicU32,
}

impl Heats {
    /// Counts of so many micro-shards.
    pub(crate) fn new(micro_shards: u32) -> Self {
        Self { counts: (0..micro_shards).map(|_| Count::default()).collect() }
    }

    /// Counts a request.
    pub(crate) fn count(&self, micro_shard: u32, is_read: bool) {
        let Count { reads, changes } = &self.counts[micro_shard as usize];
        let count = if is_read { reads } else { changes };
        count.fetch_add(1, Relaxed);
    }

    /// The hottest micro-shards, and all counts together; then half of every count is forgotten.
    pub(crate) fn fade(&self) -> (Vec<Heat>, u32) {
        let (mut heats, mut sampled) = (Vec::new(), 0u32);
        for (micro_shard, Count { reads, changes }) in (0..).map(MicroShard).zip(&self.counts) {
            let [reads, changes] = [reads, changes].map(|count| {
                let counted = count.load(Relaxed);
                // What is counted meanwhile stays.
                if counted > 0 {
                    count.fetch_sub(counted.div_ceil(2), Relaxed);
                }
                counted
            });
            sampled = sampled.saturating_add(reads).saturating_add(changes);
            if reads + changes > 0 {
                heats.push(Heat { micro_shard, reads, changes });
            }
        }
        heats.sort_unstable_by_key(|heat| std::cmp::Reverse(heat.reads + heat.changes));
        heats.truncate(TOLD);
        (heats, sampled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_are_told_and_fade() {
        let heats = Heats::new(40);
        (0..40).for_each(|micro_shard| (0..=micro_shard).for_each(|turn| heats.count(micro_shard, turn > 0)));
        let (told, sampled) = heats.fade();
        assert_eq!((told.len(), sampled), (TOLD, 820));
        assert_eq!(told[0], Heat { micro_shard: MicroShard(39), reads: 39, changes: 1 });
        assert_eq!(told[15], Heat { micro_shard: MicroShard(24), reads: 24, changes: 1 });
        let (told, _) = heats.fade();
        assert_eq!(told[0], Heat { micro_shard: MicroShard(39), reads: 19, changes: 0 });
        (0..10).for_each(|_| drop(heats.fade()));
        assert_eq!(heats.fade(), (vec![], 0));
    }
}
