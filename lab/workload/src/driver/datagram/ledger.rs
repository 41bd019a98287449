//! Outstanding requests of a socket, with their time-outs and results.

use std::{collections::VecDeque, time::Duration};

use super::{
    super::recorder::{ErrorKind, Recorder},
    Moment,
};
use crate::{Class, Op, OpKind, model::Dataset};

/// Rules of a ledger: checks of values, time-outs and retries.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Terms {
    /// Maximum operations of a request.
    pub(in crate::driver) width: u32,
    /// True if every byte of a value is compared.
    pub(in crate::driver) contents: bool,
    /// Time after which an unanswered request is repeated or lost.
    pub(in crate::driver) timeout: Duration,
    /// Times a request is repeated before it is lost.
    pub(in crate::driver) repeats: u32,
}

/// Slot and index of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) index: u32,
}

impl Place {
    /// The place as one number.
    pub(super) fn tag(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.index)
    }

    /// The place with this number.
    pub(super) fn of(tag: u64) -> Self {
        Self { slot: (tag >> 32) as u32, index: tag as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The key was not found.
    Missed,
    Failed(ErrorKind),
    /// There was no answer in time.
    Lost,
}

#[derive(Debug)]
struct Request {
    /// Distinguishes it from earlier requests in its slot; 0 while the slot is free.
    serial: u64,
    intended_ns: u64,
    /// Time of its last send or partial answer.
    active_ns: u64,
    repeats_left: u32,
    class: Class,
    operations: Vec<Op>,
    open: u32,
    missed: u32,
    failure: Option<ErrorKind>,
    is_lost: bool,
}

/// Time at which to check a request for a time-out.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    at_ns: u64,
    slot: u32,
    serial: u64,
}

/// The outstanding requests of one socket.
pub(in crate::driver) struct Ledger<'a> {
    pub(super) dataset: &'a Dataset,
    terms: Terms,
    timeout_ns: u64,
    requests: Vec<Request>,
    free: Vec<u32>,
    /// In order of sending; deadlines of answered requests are skipped.
    deadlines: VecDeque<Deadline>,
    serials: u64,
    open: usize,
    pub(super) inserts_answered: Vec<u64>,
}

impl<'a> Ledger<'a> {
    pub(in crate::driver) fn new(dataset: &'a Dataset, terms: Terms) -> Self {
        Self {
            dataset,
            terms,
            timeout_ns: u64::try_from(terms.timeout.as_nanos()).unwrap_or(u64::MAX / 4),
            requests: Vec::new(),
            free: Vec::new(),
            deadlines: VecDeque::new(),
            serials: 0,
            open: 0,
            inserts_answered: Vec::new(),
        }
    }

    /// The number of outstanding requests.
    pub(in crate::driver) fn len(&self) -> usize {
        self.open
    }

    /// The intended send times of the outstanding requests.
    pub(in crate::driver) fn intended_ns(&self) -> impl Iterator<Item = u64> {
        self.requests.iter().filter(|request| request.serial != 0).map(|request| request.intended_ns)
    }

    /// Opens a request of `operations`, one to [`Terms::width`] of them. Returns its slot.
    pub(super) fn open(&mut self, operations: &[Op], at: Moment) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::unused(self.terms.width as usize));
            self.requests.len() as u32 - 1
        });
        self.serials += 1;
        self.open += 1;
        let is_large = operations.iter().any(|operation| self.dataset.class_of(operation) == Class::Large);
        let request = &mut self.requests[slot as usize];
        request.serial = self.serials;
        (request.intended_ns, request.active_ns) = (at.intended_ns, at.now_ns);
        request.repeats_left = self.terms.repeats;
        request.class = if is_large { Class::Large } else { Class::Small };
        request.operations.clear();
        request.operations.extend_from_slice(operations);
        (request.open, request.missed) = (operations.len() as u32, 0);
        (request.failure, request.is_lost) = (None, false);
        slot
    }

    /// Notes that the request in `slot` was sent; [`Self::next_overdue`] returns it if no answer comes in time.
    pub(super) fn await_answer(&mut self, slot: u32, now_ns: u64) {
        let serial = self.requests[slot as usize].serial;
        self.deadlines.push_back(Deadline { at_ns: now_ns + self.timeout_ns, slot, serial });
    }

    /// The serial of the request in `slot`; earlier requests there had others.
    pub(super) fn serial(&self, slot: u32) -> u64 {
        self.requests[slot as usize].serial
    }

    /// The number of operations of the request in `slot`, answered ones included.
    pub(super) fn operation_count(&self, slot: u32) -> u32 {
        self.requests[slot as usize].operations.len() as u32
    }

    pub(super) fn asked(&self, place: Place) -> Op {
        self.requests[place.slot as usize].operations[place.index as usize]
    }

    /// The value to store for an operation, in one piece.
    pub(super) fn value(&self, asked: &Op) -> std::io::Result<Vec<u8>> {
        let body = self.dataset.body_of(asked)?;
        let mut value = Vec::with_capacity(body.value_bytes() as usize);
        body.append_to(&mut value);
        Ok(value)
    }

    /// Bytes of the value to store for an operation.
    pub(super) fn body_bytes(&self, asked: &Op) -> u64 {
        asked.value_bytes.unwrap_or_else(|| self.dataset.value_bytes(asked.item))
    }

    /// The outcome of a GET that found `value`.
    pub(super) fn judge(&self, item: u64, value: &[u8]) -> Outcome {
        let mut check = self.dataset.check(item, self.terms.contents);
        if !check.is_length(value.len() as u64) {
            return Outcome::Failed(ErrorKind::Mismatch);
        }
        check.update(value);
        if check.is_right() { Outcome::Done } else { Outcome::Failed(ErrorKind::Mismatch) }
    }

    /// The outcome of a GET that found a value of this length, whose bytes are not checked.
    pub(super) fn judge_length(&self, item: u64, value_bytes: u64) -> Outcome {
        if self.dataset.is_length(item, value_bytes) {
            Outcome::Done
        } else {
            Outcome::Failed(ErrorKind::Mismatch)
        }
    }

    /// Restarts the time-out of a request after a partial answer.
    pub(super) fn hear(&mut self, slot: u32, now_ns: u64) {
        self.requests[slot as usize].active_ns = now_ns;
    }

    /// Turns a read-modify-write into a SET, after its read.
    pub(super) fn turn_to_set(&mut self, place: Place) {
        self.requests[place.slot as usize].operations[place.index as usize].kind = OpKind::Set;
    }

    /// Records the outcome of an operation, and of its request with the last operation.
    pub(super) fn settle(
        &mut self,
        place: Place,
        outcome: Outcome,
        arrived_ns: u64,
        recorder: &mut Recorder,
    ) {
        let request = &mut self.requests[place.slot as usize];
        let operation = &mut request.operations[place.index as usize];
        if operation.kind == OpKind::Insert {
            self.inserts_answered.push(operation.item);
        }
        match outcome {
            Outcome::Done => {}
            Outcome::Missed => request.missed += 1,
            Outcome::Failed(kind) => request.failure = request.failure.or(Some(kind)),
            Outcome::Lost => request.is_lost = true,
        }
        request.open -= 1;
        if request.open == 0 {
            request.close(arrived_ns, recorder);
            self.give_back(place.slot);
        }
    }

    fn give_back(&mut self, slot: u32) {
        self.requests[slot as usize].serial = 0;
        self.free.push(slot);
        self.open -= 1;
    }

    /// Returns the next overdue request to repeat. Counts overdue requests without retries left as lost.
    pub(super) fn next_overdue(&mut self, now_ns: u64, recorder: &mut Recorder) -> Option<u32> {
        while let Some(&Deadline { at_ns, slot, serial }) = self.deadlines.front() {
            let is_answered = self.requests[slot as usize].serial != serial;
            if !is_answered && at_ns > now_ns {
                break;
            }
            self.deadlines.pop_front();
            if is_answered {
                continue;
            }
            let request = &mut self.requests[slot as usize];
            let is_repeated = request.repeats_left > 0;
            let due_ns = request.active_ns + self.timeout_ns;
            if due_ns > now_ns {
                self.deadlines.push_back(Deadline { at_ns: due_ns, slot, serial });
            } else if is_repeated {
                (request.repeats_left, request.active_ns) = (request.repeats_left - 1, now_ns);
                self.deadlines.push_back(Deadline { at_ns: now_ns + self.timeout_ns, slot, serial });
                return Some(slot);
            } else {
                recorder.lost(request.intended_ns);
                // Newer items are read all the same.
                let inserts = request.operations.iter().filter(|operation| operation.kind == OpKind::Insert);
                self.inserts_answered.extend(inserts.map(|operation| operation.item));
                self.give_back(slot);
            }
        }
        None
    }
}

impl Request {
    fn unused(width: usize) -> Self {
        Self {
            serial: 0,
            intended_ns: 0,
            active_ns: 0,
            repeats_left: 0,
            class: Class::Small,
            operations: Vec::with_capacity(width),
            open: 0,
            missed: 0,
            failure: None,
            is_lost: false,
        }
    }

    /// Records the result of a request whose operations have all ended.
    fn close(&self, arrived_ns: u64, recorder: &mut Recorder) {
        if self.is_lost {
            return recorder.lost(self.intended_ns);
        }
        if recorder.is_measured(self.intended_ns) {
            recorder.unstamped += 1;
        }
        match self.failure {
            Some(kind) => recorder.failed(kind, self.intended_ns),
            None => {
                recorder.missed(u64::from(self.missed), self.intended_ns);
                let operations = self.operations.len() as u32;
                recorder.completed(self.class, operations, self.intended_ns, arrived_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests;
