//! Counters, by the names that `stats flash` prints.

use crate::snapshot::SnapshotCounts;
use minos_device::LaneCounts;
use minos_engine::TierStats;
use minos_flash::{ScrubState, Usage};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Names a struct's counters once.
macro_rules! counters {
    ($(#[$of:meta])* $visible:vis struct $name:ident, $(#[$shared_of:meta])* $shared:ident {
        $($(#[$doc:meta])* $field:ident,)*
    }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visible struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        $(#[$shared_of])*
        #[derive(Debug, Default)]
        pub(crate) struct $shared {
            $($field: AtomicU64,)*
        }

        impl $shared {
            /// Adds what one thread has counted.
            pub(crate) fn add(&self, counted: &$name) {
                // Relaxed: each is a count by itself.
                $(if counted.$field != 0 { self.$field.fetch_add(counted.$field, Relaxed); })*
            }

            /// The counts now.
            pub(crate) fn values(&self) -> $name {
                $name { $($field: self.$field.load(Relaxed),)* }
            }
        }

        impl $name {
            /// Calls `f` with each name and count.
            pub fn each(&self, mut f: impl FnMut(&'static str, u64)) {
                $(f(stringify!($field), self.$field);)*
            }
        }
    };
}

counters! {
    /// Counts of readers.
    pub struct ReadCounts,
    /// The same, shared by readers.
    SharedReadCounts {
        /// Keys looked for on flash.
        read_keys,
        /// Records that were read for them.
        read_records,
        /// Bytes that were read.
        read_bytes,
        /// Vectors of reads that were submitted.
        read_vectors,
        /// Those of one read.
        read_vectors_of_1,
        /// Those of 8 reads or more.
        read_vectors_of_8,
        /// Those of 32 reads or more.
        read_vectors_of_32,
        /// Keys that were found.
        read_found,
        /// Keys that were not: the records were other keys'.
        read_missed,
        /// Records of other keys with the same hash bits.
        read_others,
        /// Older records of a key.
        read_older,
        /// Records whose pages were read whole because reading a part did not find them.
        read_again,
        /// Records that were flushed or had expired.
        read_dead,
        /// Keys whose answer is not known because the device failed.
        read_failed,
        /// Keys whose answer is not known because a record did not verify.
        read_rotten,
        /// Keys whose answer is not known because their items had to leave a cache's memory before the copies were
        /// written.
        read_unwritten,
        /// Keys whose answer is not known because the device is gone.
        read_gone,
        /// Keys that waited for a buffer.
        read_waited,
    }
}

counters! {
    /// Counts of the keeper.
    pub struct KeeperCounts,
    /// The same, as others see them.
    SharedKeeperCounts {
        /// Items that were not admitted.
        not_admitted,
        /// Items too large for a record.
        too_large,
        /// Turns in which the log had no segment ready.
        log_busy,
        /// Turns in which the device was full.
        log_full,
        /// Appends that were repeated because their write had failed.
        appends_again,
        /// Tombstones that were written.
        tombstones_written,
        /// Segments that were given up because tombstones for them were lost.
        given_up,
        /// Groups of changes that became durable.
        syncs,
        /// Records read to find out whose they are.
        examined,
        /// Records that could not be read and hid behind a dead item, and were dropped.
        unreadable,
        /// Records that the device lost.
        lost,
        /// Pages that had been complete, and did not verify at the start.
        damaged_pages,
        /// Times that everything was flushed.
        flushed_all,
    }
}

/// All counters of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Of the engine.
    pub engine: TierStats,
    /// Of the log.
    pub log: minos_flash::Counters,
    /// Of readers.
    pub reads: ReadCounts,
    /// Of the keeper.
    pub keeper: KeeperCounts,
    /// Of the keeper's lane.
    pub lane: LaneCounts,
    /// State of the log.
    pub state: LogState,
    /// Of snapshots.
    pub snapshots: SnapshotCounts,
}

/// The state of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Bytes of records that the log holds.
    pub capacity_bytes: u64,
    /// Bytes of live records, about.
    pub live_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments that can be opened at once or soon.
    pub available_segments: u64,
    /// Segments by use.
    pub segments: Usage,
    /// What the scrubber does.
    pub scrub: ScrubState,
    /// Bytes a second that compaction moves unless segments run out.
    pub compaction_bytes_s: u64,
    /// Compaction has a segment in hand.
    pub is_compacting: bool,
    /// Segments that would be free if no snapshot held them.
    pub held_segments: u64,
    /// True if a store refuses new items, because flash has no room for more.
    pub is_full: bool,
    /// True if nothing more is written, because a flush or the journal failed.
    pub is_read_only: bool,
}

impl LogState {
    fn each(&self, f: &mut impl FnMut(&'static str, u64)) {
        let Self { segments, scrub, .. } = self;
        let fields = [
            ("flash_segment_bytes", self.segment_bytes),
            ("flash_free_segments", segments.free as u64),
            ("flash_reserved_segments", segments.reserved as u64),
            ("flash_open_segments", segments.open as u64),
            ("flash_closing_segments", segments.closing as u64),
            ("flash_sealed_segments", segments.sealed as u64),
            ("flash_ending_segments", segments.ending as u64),
            ("flash_bad_segments", segments.bad as u64),
            ("flash_scrub_rate", scrub.bytes_s),
            ("flash_scrub_segment", u64::from(scrub.segment)),
            ("flash_scrub_left", scrub.left.unwrap_or(0) as u64),
            ("flash_compaction_rate", self.compaction_bytes_s),
            ("flash_compacting", u64::from(self.is_compacting)),
            ("flash_snapshot_held_segments", self.held_segments),
        ];
        fields.into_iter().for_each(|(name, value)| f(name, value));
    }
}

impl Stats {
    /// Calls `f` with each name and value.
    pub fn each(&self, mut f: impl FnMut(&'static str, u64)) {
        let Self { engine, log, lane, state, snapshots, .. } = self;
        let fields = [
            ("flash_items", engine.cold),
            ("flash_items_in_flight", engine.tickets),
            ("flash_tombstones_waiting", engine.tombstones_waiting),
            ("flash_written", engine.written),
            ("flash_put_back", engine.put_back),
            ("flash_unwritten", engine.unwritten),
            ("flash_superseded", engine.superseded),
            ("flash_promoted", engine.promoted),
            ("flash_dropped", engine.dropped),
            ("flash_tombstones", engine.tombstones),
            ("flash_tombstones_lost", engine.tombstones_lost),
            ("flash_appended_bytes", log.appended_bytes),
            ("flash_appended_record_bytes", log.appended_record_bytes),
            ("flash_moved_bytes", log.moved_bytes),
            ("flash_written_bytes", log.written_bytes),
            ("flash_compaction_read_bytes", log.compaction_read_bytes),
            ("flash_scrub_read_bytes", log.scrub_read_bytes),
            ("flash_flushes", log.flushes),
            ("flash_compacted_segments", log.compacted_segments),
            ("flash_carried_tombstones", log.carried_tombstones),
            ("flash_lost_records", log.lost_records),
            ("flash_evicted", log.dropped_records),
            ("flash_failed_writes", log.failed_writes),
            ("flash_scrubbed_segments", log.scrubbed_segments),
            ("flash_scrub_faults", log.scrub_faults),
            ("flash_scrubs", log.sweeps),
            ("flash_expired", log.expired_records),
            ("flash_capacity_bytes", state.capacity_bytes),
            ("flash_live_bytes", state.live_bytes),
            ("flash_available_segments", state.available_segments),
            ("flash_read_only", u64::from(state.is_read_only)),
            ("flash_full", u64::from(state.is_full)),
            ("flash_snapshots", snapshots.done),
            ("flash_snapshots_failed", snapshots.failed),
            ("flash_snapshots_given_up", snapshots.given_up),
            ("flash_snapshot_bytes", snapshots.copied_bytes),
            ("flash_write_vectors", lane.vectors),
            ("flash_device_refused", lane.refused),
            ("flash_device_failed", lane.failed),
        ];
        fields.into_iter().for_each(|(name, value)| f(name, value));
        state.each(&mut f);
        self.reads.each(&mut f);
        self.keeper.each(&mut f);
    }
}
