//! Operations leave their phase, begin again, and end.

use super::{Completion, Core, OpId, operation::Phase};
use crate::{Error, Outcome};

/// Times an operation may begin again after a lost transfer.
pub(super) const RESTARTS_MAX: u32 = 8;

impl Core {
    /// Ends an operation with its result. An operation that has ended already is not changed.
    pub(super) fn finish(&mut self, id: OpId, result: Result<Outcome, Error>, now_ns: u64) {
        let Some((operation, key, phase)) = self.operations.remove(id) else { return };
        let tag = operation.request.tag;
        let held = (operation.has_turn, operation.once);
        self.completions.push_back(Completion { id, tag, key, result });
        self.give_up(id, phase, held, now_ns);
    }

    /// Ends an operation without a result.
    pub(super) fn end(&mut self, id: OpId, now_ns: u64) {
        let Some((operation, _, phase)) = self.operations.remove(id) else { return };
        let held = (operation.has_turn, operation.once);
        self.give_up(id, phase, held, now_ns);
    }

    /// Gives back all that an ended operation held: a turn, and a once number.
    fn give_up(&mut self, id: OpId, phase: Phase, (has_turn, once): (bool, Option<u32>), now_ns: u64) {
        self.end_phase(id, phase, now_ns);
        self.counters.completed += 1;
        if has_turn || once.is_some() {
            self.give_back(has_turn, once);
            self.admit(now_ns);
        }
    }

    /// Gives back a turn to send a large value and a once number.
    #[inline(never)]
    fn give_back(&mut self, has_turn: bool, once: Option<u32>) {
        if has_turn {
            self.stores.give_back();
        }
        if let (Some(number), Some(session)) = (once, &mut self.link.session) {
            session.give_back(number);
            if session.is_used_up() {
                self.link.session = None;
            }
        }
    }

    /// Takes an operation out of flight or out of its transfer; it can be assigned then.
    pub(super) fn leave(&mut self, id: OpId, now_ns: u64) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let phase = std::mem::replace(&mut operation.phase, Phase::Ready);
        self.end_phase(id, phase, now_ns);
        self.revive(id, now_ns);
    }

    /// Gives back what an operation held in the phase that it has left.
    #[inline(always)]
    fn end_phase(&mut self, id: OpId, phase: Phase, now_ns: u64) {
        match phase {
            Phase::Sent { sequence, at } => self.flight.answered(at, sequence),
            Phase::Ready | Phase::Resting { .. } => {}
            Phase::Storing(_) | Phase::Fetching(_) => self.end_transfer(id, phase, now_ns),
        }
    }

    #[inline(never)]
    fn end_transfer(&mut self, id: OpId, phase: Phase, now_ns: u64) {
        match phase {
            Phase::Storing(_) => self.storing.retain(|&storing| storing != id),
            Phase::Fetching(fetch) if fetch.is_active => {
                self.fetches.give_back();
                self.begin_next_fetch(now_ns);
            }
            _ => {}
        }
    }

    /// Gives a free turn to the fetch that has waited longest.
    fn begin_next_fetch(&mut self, now_ns: u64) {
        while let Some(id) = self.fetches.next() {
            let Some(operation) = self.operations.get_mut(id) else { continue };
            let Phase::Fetching(fetch) = &mut operation.phase else { continue };
            if fetch.is_active || !self.fetches.take() {
                continue;
            }
            fetch.activate(operation.request.verb.keeps_value());
            // Its first window may still be coming.
            let wants_more = fetch.wants_more();
            self.note_progress(id, now_ns);
            if wants_more {
                self.queue_transfer(id);
            }
        }
    }

    /// Begins an operation again, a limited number of times, after its transfer was lost.
    pub(super) fn begin_again(&mut self, id: OpId, now_ns: u64) {
        self.leave(id, now_ns);
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.restarts += 1;
        let (restarts_max, error) = match operation.request.verb.reads_value() {
            true => (self.config.refetches_max, Error::Unstable),
            false => (RESTARTS_MAX, Error::Busy),
        };
        if operation.restarts > restarts_max {
            return self.finish(id, Err(error), now_ns);
        }
        // Answers to earlier datagrams are about the lost transfer.
        operation.forget_copies();
        operation.attempts = 0;
        self.assign(id, now_ns, 0);
    }

    /// Lets an operation wait before it is sent again, longer each time, up to `longest_ns`.
    pub(super) fn rest(&mut self, id: OpId, longest_ns: u64, now_ns: u64) {
        self.leave(id, now_ns);
        let Some(operation) = self.operations.get_mut(id) else { return };
        let wait_ns = self.round_trip.wait_ns(operation.attempts.max(1), &mut self.dice);
        let until_ns = now_ns.saturating_add(wait_ns.min(longest_ns));
        operation.phase = Phase::Resting { until_ns };
        self.wake_at(until_ns);
    }
}
