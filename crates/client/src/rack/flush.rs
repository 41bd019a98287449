//! A flush of all nodes of a rack.

use super::{FIRST, Router, choose::Choice, map::Map, route::UNKNOWN_WAIT_NS};
use crate::{Request, core::OpId};

/// Rounds of a flush. Items may be on their way to a node that was emptied before the one that has them: a second round
/// meets those.
const ROUNDS: u32 = 2;

/// A flush that all nodes of a directory execute.
#[derive(Clone, Debug)]
pub(super) struct Flushing {
    request: Request,
    epoch: u32,
    rounds_left: u32,
}

impl Router {
    /// Begins a flush, once all nodes are known.
    pub(super) fn begin_flush(&mut self, id: OpId, request: Request, now_ns: u64) {
        let Some(epoch) = self.map.as_ref().filter(|map| map.seats().next().is_some()).map(Map::epoch) else {
            // Something must be sent for the server to answer.
            self.probe(FIRST, now_ns);
            return self.park(id, request, UNKNOWN_WAIT_NS, now_ns);
        };
        if let Some(teller) = self.teller_of_newer() {
            self.hear(teller, now_ns);
            return self.park(id, request, UNKNOWN_WAIT_NS, now_ns);
        }
        self.flush_round(id, Flushing { request, epoch, rounds_left: ROUNDS }, now_ns);
    }

    /// Lets a flush that all nodes have executed go on; false if it has ended. Nodes may have joined meanwhile, of which
    /// the answers tell.
    pub(super) fn continue_flush(&mut self, id: OpId, now_ns: u64) -> bool {
        let Some(slot) = self.slots.get_mut(id) else { return false };
        let Some(flushing) = slot.flushing.take() else { return false };
        slot.was_sent = true;
        let is_of_map = self.map.as_ref().is_some_and(|map| map.epoch() == flushing.epoch);
        if !is_of_map || self.teller_of_newer().is_some() {
            self.begin_flush(id, flushing.request, now_ns);
        } else if flushing.rounds_left > 0 {
            self.flush_round(id, *flushing, now_ns);
        } else {
            return false;
        }
        true
    }

    fn flush_round(&mut self, id: OpId, mut flushing: Flushing, now_ns: u64) {
        let seats: Vec<usize> = self.map.iter().flat_map(Map::seats).collect();
        let Some(slot) = self.slots.get_mut(id) else { return };
        let request = flushing.request.clone();
        flushing.rounds_left -= 1;
        (slot.left, slot.flushing) = (seats.len(), Some(Box::new(flushing)));
        for seat in seats {
            self.send(id, Choice::fixed(seat), request.clone(), now_ns);
        }
    }

    /// A node that has told of a newer directory than the one at hand.
    fn teller_of_newer(&self) -> Option<usize> {
        let map = self.map.as_ref()?;
        map.seats().find(|&seat| self.seats[seat].core.news().0 > map.epoch())
    }
}
