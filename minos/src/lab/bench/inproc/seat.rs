//! One thread's share of a table, in each mode of access (MICA §4.1.2).

use minos_base::{KeyHash, Seconds};
use minos_engine::{Access, Engine, Mode};

/// The time never changes: nothing expires.
pub(super) const NOW: Seconds = 2;

/// A thread beside others, and the table of all. In EREW and CREW it owns some of the partitions.
pub(super) struct Seat<'a, M: Mode, A: Access> {
    pub(super) engine: &'a Engine<M, A>,
    pub(super) number: usize,
    pub(super) seats: usize,
}

impl<M: Mode, A: Access> Seat<'_, M, A> {
    pub(super) fn reads(&self, hash: KeyHash) -> bool {
        A::IS_SHARED || self.owns(hash)
    }

    pub(super) fn writes(&self, hash: KeyHash) -> bool {
        !A::IS_BY_THREAD || self.owns(hash)
    }

    /// True for one seat only, which stores the item at the beginning.
    pub(super) fn loads(&self, hash: KeyHash) -> bool {
        if A::IS_BY_THREAD {
            self.owns(hash)
        } else {
            hash.bucket_bits() as usize % self.seats == self.number
        }
    }

    fn owns(&self, hash: KeyHash) -> bool {
        self.engine.owner_of(hash) == self.number
    }
}
