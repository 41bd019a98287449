//! What readers in other processes need of a table: a way in, and who owns its micro-shards.

use crate::{places::State, store::Engine};
use minos_region::Ownership;
use minos_sync::Access;
use std::{io, os::fd::OwnedFd};

#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
impl<M: State, A: Access> Engine<M, A> {
    /// A descriptor of the table's memory, to be passed to a process that reads it by
    /// [`crate::ReadOnly::from_descriptor`]. It cannot be written through.
    ///
    /// # Errors
    /// The memory is neither a file nor a memfd, or the operating system refuses.
    pub fn descriptor_to_read(&self) -> io::Result<OwnedFd> {
        self.memory().region().descriptor_to_read()
    }

    /// Who owns a micro-shard. A new table owns none, and a reopened one has given all of them up: its owner
    /// goes on with a later epoch.
    ///
    /// # Panics
    /// If it is not below [`crate::StoreConfig::micro_shards`].
    pub fn ownership(&self, micro_shard: u32) -> Ownership {
        self.memory().ownership(micro_shard)
    }

    /// Sets who owns a micro-shard. Readers that see it also see everything that was written before.
    ///
    /// An epoch must not be given twice, once it has ended.
    ///
    /// # Panics
    /// As [`Engine::ownership`].
    pub fn set_ownership(&self, micro_shard: u32, ownership: Ownership) {
        self.memory().set_ownership(micro_shard, ownership);
    }
}

#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
impl<M: State, A: Access> Engine<M, A> {
    /// Gives items stored from now on CAS uniques above `floor`: tables whose items move to each other must not give
    /// the same.
    pub fn raise_cas(&self, floor: u64) {
        (0..self.partitions()).for_each(|partition| self.writing_at(partition).writer.raise_cas(floor));
    }
}
