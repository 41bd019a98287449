//! Operations that have not ended, wherever they are.

use super::flush::Flushing;
use crate::{Error, core::OpId};

/// An operation that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Its caller's tag.
    pub(super) tag: u64,
    pub(super) deadline_ns: u64,
    /// The seat that has it, and its name there; none while it is parked.
    pub(super) at: Option<(usize, OpId)>,
    /// True if a seat that has it no more has sent it.
    pub(super) was_sent: bool,
    /// True if another node could execute it: it reads, and was not sent to its owner on purpose.
    pub(super) is_movable: bool,
    /// True if it reads a copy there.
    pub(super) is_copy: bool,
    /// Times that a node named another owner.
    pub(super) strays: u32,
    /// Times that it waited for its key to be somewhere.
    pub(super) waits: u32,
    /// Nodes that have not answered, of an operation for all.
    pub(super) left: usize,
    /// The first error of one.
    pub(super) error: Option<Error>,
    /// The flush that it is, once it is sent.
    pub(super) flushing: Option<Box<Flushing>>,
}

impl Slot {
    pub(super) fn new(tag: u64, deadline_ns: u64) -> Self {
        Self {
            tag,
            deadline_ns,
            at: None,
            was_sent: false,
            is_movable: false,
            is_copy: false,
            strays: 0,
            waits: 0,
            left: 1,
            error: None,
            flushing: None,
        }
    }

    /// An error after which the operation was not executed where it ended, as seen with the seats that have sent it before.
    pub(super) fn unless_sent(&self, error: Error) -> Error {
        if self.was_sent { Error::TimedOut { was_sent: true } } else { error }
    }
}

/// Places for operations, whose names are never the same for two that follow each other.
#[derive(Debug, Default)]
pub(super) struct Slots {
    places: Vec<(u16, Option<Slot>)>,
    free: Vec<u16>,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// There are fewer than [`OPERATIONS_MAX`](crate::OPERATIONS_MAX), so that 16 bits hold the index.
    pub(super) fn insert(&mut self, slot: Slot) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u16
        });
        let (generation, place) = &mut self.places[usize::from(index)];
        *generation = generation.wrapping_add(1);
        *place = Some(slot);
        OpId(u32::from(*generation) << 16 | u32::from(index))
    }

    pub(super) fn get_mut(&mut self, id: OpId) -> Option<&mut Slot> {
        let (generation, place) = self.places.get_mut(usize::from(id.0 as u16))?;
        place.as_mut().filter(|_| u32::from(*generation) == id.0 >> 16)
    }

    pub(super) fn remove(&mut self, id: OpId) -> Option<Slot> {
        self.get_mut(id)?;
        self.free.push(id.0 as u16);
        self.places[usize::from(id.0 as u16)].1.take()
    }

    /// The operations at a seat that another node could execute.
    pub(super) fn movable_at(&self, seat: usize) -> Vec<OpId> {
        let is_there = |slot: &Slot| slot.is_movable && slot.at.is_some_and(|(at, _)| at == seat);
        let places = self.places.iter().zip(0u32..);
        let found = places.filter(|((_, slot), _)| slot.as_ref().is_some_and(is_there));
        found.map(|((generation, _), index)| OpId(u32::from(*generation) << 16 | index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_used_again_has_another_name() {
        let mut slots = Slots::default();
        let first = slots.insert(Slot::new(7, 1));
        assert_eq!((slots.len(), slots.get_mut(first).map(|slot| slot.tag)), (1, Some(7)));
        assert!(slots.remove(first).is_some() && slots.remove(first).is_none() && slots.is_empty());
        let second = slots.insert(Slot { at: Some((3, first)), is_movable: true, ..Slot::new(8, 1) });
        assert!(first != second && slots.get_mut(first).is_none());
        assert_eq!((slots.movable_at(3), slots.movable_at(2)), (vec![second], vec![]));
    }
}
