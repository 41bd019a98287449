//! Counts of the way between memory and flash, and the table on flash that a kept region belongs to.

use super::tier::{Flash, LogMode};
use crate::{position::PositionBits, saved::FLASH_JOURNAL, store::Engine};
use minos_sync::Access;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Counts of the way between memory and flash, summed over all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Slots that name records on flash.
    pub cold: u64,
    /// Bytes of these records with their headers, by rough lengths.
    pub cold_bytes: u64,
    /// Copies on their way.
    pub tickets: u64,
    /// Tombstones that wait to be written.
    pub tombstones_waiting: u64,
    /// Items whose copies were written, and that had not changed.
    pub written: u64,
    /// Items whose slots were turned back to the records that they came from: nothing was written.
    pub put_back: u64,
    /// Items that were given up unwritten.
    pub unwritten: u64,
    /// Copies whose items had changed when they were written.
    pub superseded: u64,
    /// Records that came back to memory.
    pub promoted: u64,
    /// Slots that were forgotten because their records were dead, or could not be told from dead ones.
    pub dropped: u64,
    /// Insertions that did not grow the index, because slots on flash have too few bits of their hashes.
    pub unsplit: u64,
    /// Records that recovery found and the index had no room for.
    pub unadopted: u64,
    /// Tombstones that became due.
    pub tombstones: u64,
    /// Tombstones for which there was no room.
    pub tombstones_lost: u64,
}

impl<B: PositionBits, A: Access> Engine<LogMode<B, Flash>, A> {
    /// Counts of the way between memory and flash. Takes each partition's lock for a moment.
    pub fn tier_stats(&self) -> TierStats {
        let mut stats = TierStats::default();
        for number in 0..self.partitions() {
            let writing = self.writing_at(number);
            let (counts, room) = (&writing.partition.counts, &writing.writer.room.tier);
            stats.cold += counts.cold.value();
            stats.cold_bytes += counts.cold_bytes.value();
            stats.tickets += room.open_tickets() as u64;
            stats.tombstones_waiting += room.tombstones.len() as u64;
            stats.written += counts.tier.written.value();
            stats.put_back += counts.tier.put_back.value();
            stats.unwritten += counts.tier.unwritten.value();
            stats.superseded += counts.tier.superseded.value();
            stats.promoted += counts.tier.promoted.value();
            stats.dropped += counts.tier.dropped.value();
            stats.unsplit += counts.tier.unsplit.value();
            stats.unadopted += counts.tier.unadopted.value();
            stats.tombstones += counts.tier.tombstones.value();
            stats.tombstones_lost += counts.tier.tombstones_lost.value();
        }
        stats
    }

    /// Items in memory without a copy on flash, and bytes of their keys and values. Some may be dead.
    pub fn without_copy(&self) -> (u64, u64) {
        let stats = self.stats();
        let (mut twins, mut twin_bytes) = (0_u64, 0_u64);
        for partition in &self.partitions {
            let counts = &partition.counts.tier;
            twins = twins.wrapping_add(counts.twins.value());
            twin_bytes = twin_bytes.wrapping_add(counts.twin_bytes.value());
        }
        // Others may have changed it meanwhile.
        let bytes = stats.key_bytes + stats.value_bytes;
        (stats.items.saturating_sub(twins), bytes.saturating_sub(twin_bytes))
    }

    /// The highest number of a journal on flash that this table knows of. It outlives the process with the region: a
    /// table on flash with a higher one was changed without this.
    pub fn journal_known(&self) -> u64 {
        self.saved().word(self.memory().region(), FLASH_JOURNAL).load(Relaxed)
    }

    /// Notes the number of a journal, before that is written.
    pub fn know_journal(&self, number: u64) {
        self.saved().word(self.memory().region(), FLASH_JOURNAL).store(number, Release);
    }
}
