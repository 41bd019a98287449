//! One partition: an index, the space of its items, and a writer.

use crate::{counts::Counts, index::Index, observer::Observer, places::State, saved::Saved, slot::Slot};
use minos_base::Seconds;
use minos_sync::{Access, PinTable, SpinLock};
use std::sync::{Arc, atomic::AtomicU64};

/// CAS uniques of each partition that are left out where items may have had them that are gone.
const CAS_SKIPPED: u64 = 1 << 32;

/// There is no memory, or no room in the index, for another item. The old value is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

/// A partition's state shared by readers and writers. It fills cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Partition<M: State, A: Access> {
    pub(crate) number: usize,
    pub(crate) index: Index,
    pub(crate) space: M::Space,
    pub(crate) saved: Saved,
    /// Reads that were repeated because of a writer.
    pub(crate) retries: AtomicU64,
    /// Reads that waited for the writer in the end.
    pub(crate) fallbacks: AtomicU64,
    /// Reads that were given up because a writer did not end.
    pub(crate) abandoned: AtomicU64,
    /// The readers of large values; outside the writer's cell, so that readers need not wait for writers.
    pub(crate) pins: SpinLock<PinTable>,
    pub(crate) counts: Counts,
    pub(crate) writer: A::Cell<Writer<M>>,
}

/// The state of a partition that only its writer uses.
#[derive(Debug)]
pub(crate) struct Writer<M: State> {
    pub(crate) room: M::Room,
    pub(crate) sweep: Progress,
    /// The next CAS unique; every partition counts in steps of their number.
    pub(crate) cas_next: u64,
    pub(crate) cas_step: u64,
    pub(crate) growth_pause: u32,
    /// Slots of the chain that is being split.
    pub(crate) splitting: Vec<(Slot, bool)>,
    /// A value that is about to be joined with another.
    pub(crate) scratch: Vec<u8>,
    /// The time of the last lookup.
    pub(crate) now: Seconds,
    /// Is told of changes.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl<M: State> Writer<M> {
    pub(crate) fn new(room: M::Room, partition: usize, partitions: usize) -> Self {
        Self {
            room,
            sweep: Progress::default(),
            // Never zero, which means "no CAS" in the protocol.
            cas_next: (partitions + partition) as u64,
            cas_step: partitions as u64,
            growth_pause: 0,
            splitting: Vec::new(),
            scratch: Vec::new(),
            now: 0,
            observer: None,
        }
    }

    /// A CAS unique that no other item of the store has had.
    pub(crate) fn next_cas(&mut self) -> u64 {
        let cas = self.cas_next;
        self.cas_next += self.cas_step;
        cas
    }

    /// As [`Writer::raise_cas`] in a table that may have given higher ones, to items that are gone.
    pub(crate) fn skip_cas(&mut self, floor: u64) {
        self.raise_cas(floor);
        self.cas_next += CAS_SKIPPED * self.cas_step;
    }

    /// Gives later items higher CAS uniques than `floor`.
    pub(crate) fn raise_cas(&mut self, floor: u64) {
        self.cas_next +=
            floor.saturating_add(1).saturating_sub(self.cas_next).next_multiple_of(self.cas_step);
    }
}

/// Where the sweep of a partition is. Under the partition's lock.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The next bucket.
    pub(crate) bucket: u64,
    /// Number of the flush generation when the pass began.
    pub(crate) pass_generation: u64,
    /// Items of older generations than the one with this number are all gone.
    pub(crate) clean_generation: u64,
}
