//! The ways of operations: to a node, to another one, and to their end.

use std::time::Duration;

use super::{Learning, Router, choose::Choice, failover::Watch};
use crate::{
    Error, Outcome, Request, Verb,
    core::{Completion, OpId, Stray},
};

/// Tags of the client's own operations. Others' are the names of slots, which have 32 bits.
pub(super) const DIRECTORY: u64 = u64::MAX;
pub(super) const PROBE: u64 = u64::MAX - 1;

/// Times that a node may name another owner, and the operation goes there without a wait.
const STRAYS_AT_ONCE: u32 = 2;
/// What each further wait is longer than the one before, and the longest.
const STRAY_WAIT_NS: u64 = 5_000_000;
const STRAY_WAIT_MAX_NS: u64 = 50_000_000;
/// The wait for a key that changes hands, twice as long each time.
const SETTLE_WAIT_NS: u64 = 250_000;
/// Longest time until an operation is tried again whose owner is not known.
pub(super) const UNKNOWN_WAIT_NS: u64 = 20_000_000;

/// An operation that is at no node.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) id: OpId,
    request: Request,
    pub(super) due_ns: u64,
}

impl Router {
    /// Sends an operation to the node that is to execute it.
    pub(super) fn route(&mut self, id: OpId, request: Request, now_ns: u64) {
        if request.verb == Verb::Flush && !matches!(self.learning, Learning::Alone) {
            return self.begin_flush(id, request, now_ns);
        }
        match self.choose(&request, now_ns) {
            Some(choice) => self.send(id, choice, request, now_ns),
            None => self.park(id, request, UNKNOWN_WAIT_NS, now_ns),
        }
    }

    pub(super) fn send(&mut self, id: OpId, choice: Choice, request: Request, now_ns: u64) {
        let Choice { seat, is_movable, is_copy } = choice;
        let Some(slot) = self.slots.get_mut(id) else { return };
        let left = Duration::from_nanos(slot.deadline_ns.saturating_sub(now_ns));
        // The core names a time-out that was zero from the beginning.
        if slot.at.is_some() && left.is_zero() {
            let was_sent = slot.was_sent;
            return self.end(id, request.key, Err(Error::TimedOut { was_sent }));
        }
        (slot.is_movable, slot.is_copy) = (is_movable, is_copy);
        let request = Request { tag: id.0.into(), timeout: Some(left), ..request };
        match self.seats[seat].core.submit(request, now_ns) {
            Ok(inner) => {
                slot.at = Some((seat, inner));
                if !self.config.open_loop {
                    self.watches.push_back(Watch::new(id, (seat, inner), now_ns, self.failover_ns));
                }
                // It may have ended already.
                self.collect(seat, now_ns);
            }
            Err(full) => {
                let error = slot.unless_sent(Error::Busy);
                self.end(id, full.0.key, Err(error));
            }
        }
    }

    pub(super) fn park(&mut self, id: OpId, request: Request, wait_ns: u64, now_ns: u64) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let due_ns = now_ns.saturating_add(wait_ns).min(slot.deadline_ns);
        self.parked.push(Parked { id, request, due_ns });
    }

    /// Sends the parked operations that are due.
    pub(super) fn unpark(&mut self, now_ns: u64) {
        if !self.parked.iter().any(|parked| parked.due_ns <= now_ns) {
            return;
        }
        for parked in std::mem::take(&mut self.parked) {
            let Parked { id, request, due_ns } = parked;
            let Some(slot) = self.slots.get_mut(id) else { continue };
            if slot.deadline_ns <= now_ns {
                let was_sent = slot.was_sent;
                self.end(id, request.key, Err(Error::TimedOut { was_sent }));
            } else if due_ns <= now_ns {
                self.route(id, request, now_ns);
            } else {
                self.parked.push(Parked { id, request, due_ns });
            }
        }
    }

    /// Takes over the end of an operation at a seat.
    pub(super) fn on_completion(&mut self, at: usize, completion: Completion, now_ns: u64) {
        let Completion { tag, key, result, .. } = completion;
        match tag {
            DIRECTORY => return self.on_directory(result, now_ns),
            PROBE => {
                self.seats[at].is_probed = false;
                self.seats[at].is_silent |= matches!(result, Err(Error::TimedOut { .. }));
                return;
            }
            _ => {}
        }
        let id = OpId(tag as u32);
        let Some(slot) = self.slots.get_mut(id) else { return };
        if slot.is_copy && result.is_ok() {
            self.seats[at].refused_copies = 0;
        }
        slot.left -= 1;
        if slot.left > 0 {
            slot.error = slot.error.take().or(result.err());
            return;
        }
        let result = match slot.error.take().map_or(result, Err) {
            Err(error @ (Error::Busy | Error::TimedOut { .. })) => Err(slot.unless_sent(error)),
            result => result,
        };
        if result.is_err() || !self.continue_flush(id, now_ns) {
            self.end(id, key, result);
        }
    }

    /// Ends an operation.
    pub(super) fn end(&mut self, id: OpId, key: Vec<u8>, result: Result<Outcome, Error>) {
        if let Some(slot) = self.slots.remove(id) {
            self.completions.push_back(Completion { id, tag: slot.tag, key, result });
        }
    }

    /// Sends an operation to the owner that a node has named.
    pub(super) fn on_stray(&mut self, at: usize, stray: Stray, now_ns: u64) {
        let Stray { request, owner, epoch, .. } = stray;
        let id = OpId(request.tag as u32);
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.was_sent = true;
        if slot.is_copy {
            self.seats[at].refuse_copy(now_ns);
        }
        if self.map.as_ref().is_some_and(|map| u64::from(map.epoch()) < epoch) {
            self.want_directory(now_ns);
        }
        let seat = self.map.as_ref().and_then(|map| map.seat_of(owner));
        let Some(slot) = self.slots.get_mut(id) else { return };
        let Some(seat) = seat else {
            // The key changes hands, which mostly is over in a moment; or the directory to come knows the node.
            slot.waits += 1;
            let wait_ns = (SETTLE_WAIT_NS << slot.waits.min(8)).min(UNKNOWN_WAIT_NS);
            return self.park(id, request, wait_ns, now_ns);
        };
        slot.strays += 1;
        if slot.strays <= STRAYS_AT_ONCE {
            return self.send(id, Choice::fixed(seat), request, now_ns);
        }
        // Nodes name each other until the later one has the directory, or the key.
        let wait_ns = (STRAY_WAIT_NS * u64::from(slot.strays)).min(STRAY_WAIT_MAX_NS);
        self.park(id, request, wait_ns, now_ns);
    }
}
