//! A partition while its writer is at work.

use crate::{
    partition::{Partition, Writer},
    state::State,
    store::Engine,
};
use minos_base::KeyHash;
use minos_region::Region;
use minos_sync::{Access, AnyWriter};

/// A partition while its writer is at work.
#[derive(Debug)]
pub(crate) struct Writing<'a, M: State, A: Access> {
    pub(crate) engine: &'a Engine<M, A>,
    pub(crate) partition: &'a Partition<M, A>,
    pub(crate) writer: A::Guard<'a, Writer<M>>,
}

impl<'a, M: State, A: Access> Writing<'a, M, A> {
    #[inline]
    pub(crate) fn region(&self) -> &'a Region {
        self.engine.memory().region()
    }
}

#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
impl<M: State, A: AnyWriter> Engine<M, A> {
    /// The writer of the partition of `hash`, when it is the caller's turn.
    #[inline]
    pub(crate) fn writing(&self, hash: KeyHash) -> Writing<'_, M, A> {
        let partition = self.partition(hash);
        Writing { engine: self, partition, writer: A::wait(&partition.writer) }
    }

    /// The writer of a partition by its number.
    ///
    /// # Panics
    /// If there is no such partition.
    pub(crate) fn writing_at(&self, partition: usize) -> Writing<'_, M, A> {
        let partition = &self.partition_list()[partition];
        Writing { engine: self, partition, writer: A::wait(&partition.writer) }
    }
}
