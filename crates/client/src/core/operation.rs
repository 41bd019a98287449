//! Operations that have not ended yet.

use minos_base::KeyHash;
use rand::{RngExt, rngs::StdRng};

use super::{fetch::Fetch, store::Store};
use crate::{Request, Verb};

/// The id of a submitted operation, valid until its completion is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(crate) u32);

impl OpId {
    /// Its request number in the protocol.
    pub const fn number(self) -> u32 {
        self.0
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    /// It waits to be sent.
    Ready,
    /// It waits before it is sent again: the server was busy, or has not finished it.
    Resting {
        /// The end of the wait.
        until_ns: u64,
    },
    /// It was sent and not answered.
    Sent {
        /// The datagram's number.
        sequence: u64,
        /// Its place in the flight.
        at: u32,
    },
    /// A large value is being received.
    Fetching(Box<Fetch>),
    /// A large value is being sent.
    Storing(Box<Store>),
}

/// An operation that has not ended yet.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) request: Request,
    /// The key's hash under the server's current seed.
    pub(super) hash: KeyHash,
    pub(super) phase: Phase,
    /// The time at which it ends in any case.
    pub(super) deadline_ns: u64,
    /// Its time limit; for a transfer the limit without progress.
    pub(super) timeout_ns: u64,
    /// Numbers of the first and the last datagram that an answer may belong to.
    pub(super) sequences: Option<(u64, u64)>,
    /// Times it was sent since its last progress.
    pub(super) attempts: u32,
    /// Times it began again after a lost transfer.
    pub(super) restarts: u32,
    /// CAS unique of the large value found last, and the number of changes.
    pub(super) found: (u64, u32),
    /// Times its request was refused as malformed.
    pub(super) strikes: u32,
    /// True if it was ever sent, and so may have been executed.
    pub(super) was_sent: bool,
    /// True if `sequences` leave out copies that were sent before, of which one may have been executed.
    pub(super) has_older_copies: bool,
    /// Number of the last datagram for which the server has said that it is busy; 0 if it never has.
    pub(super) busy_sequence: u64,
    /// The place in line that it had last; 0 if it waits in none.
    pub(super) place: u64,
    /// True if it had a place, and was not granted since.
    pub(super) was_in_line: bool,
    /// Datagrams that have carried it, but those that the server has refused: one of them may have been executed.
    pub(super) unanswered: u32,
    /// Its once number within the session.
    pub(super) once: Option<u32>,
    /// True if it has a turn to send a large value.
    pub(super) has_turn: bool,
    /// Lines received so far.
    pub(super) text: Vec<u8>,
}

impl Operation {
    /// An operation that was never submitted.
    fn unused() -> Self {
        Self {
            request: Request::new(Verb::Ping, Vec::new()),
            hash: KeyHash(0),
            phase: Phase::Ready,
            deadline_ns: 0,
            timeout_ns: 0,
            sequences: None,
            attempts: 0,
            restarts: 0,
            found: (0, 0),
            strikes: 0,
            was_sent: false,
            has_older_copies: false,
            busy_sequence: 0,
            place: 0,
            was_in_line: false,
            unanswered: 0,
            once: None,
            has_turn: false,
            text: Vec::new(),
        }
    }

    /// Begins anew with another request. What [`Operation::end`] has reset stays as it is.
    #[inline]
    fn begin(&mut self, request: Request, timeout_ns: u64, now_ns: u64) {
        self.request = request;
        self.deadline_ns = now_ns.saturating_add(timeout_ns);
        self.timeout_ns = timeout_ns;
        self.sequences = None;
        self.attempts = 0;
        self.restarts = 0;
        self.found = (0, 0);
        self.strikes = 0;
        self.was_sent = false;
        self.has_older_copies = false;
        self.busy_sequence = 0;
        self.place = 0;
        self.was_in_line = false;
        self.unanswered = 0;
        self.once = None;
        self.has_turn = false;
    }

    /// Gives up the memory of values; returns the key and the phase.
    #[inline]
    fn end(&mut self) -> (Vec<u8>, Phase) {
        self.request.value = Vec::new();
        self.text = Vec::new();
        (std::mem::take(&mut self.request.key), std::mem::replace(&mut self.phase, Phase::Ready))
    }

    /// True if a page belongs to the same directory as those before, whose size and epoch are `of`; otherwise they are
    /// dropped.
    pub(super) fn pages_of(&mut self, of: u64) -> bool {
        let is_same = self.text.is_empty() || self.found.0 == of;
        self.found.0 = of;
        if !is_same {
            self.text = Vec::new();
            self.request.operand = 0;
        }
        is_same
    }

    /// Records that the datagram with this number carries it, or a part of its transfer.
    pub(super) fn note_sent(&mut self, sequence: u64) {
        let first = self.sequences.map_or(sequence, |(first, _)| first);
        self.sequences = Some((first, sequence));
        self.was_sent = true;
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// From now on ignores the answers to all that was sent so far.
    pub(super) fn forget_copies(&mut self) {
        self.sequences = None;
        self.has_older_copies = self.was_sent;
    }

    /// Records that the server was too busy for the datagram with this number. Of answers out of order only the last counts:
    /// one may have come twice.
    pub(super) fn note_busy(&mut self, sequence: u64) {
        if sequence > self.busy_sequence {
            self.busy_sequence = sequence;
            self.note_refused();
        }
    }

    /// Records that the server has refused one of the datagrams that carried it.
    pub(super) fn note_refused(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Forgets that it was sent, of which nothing has come, nor will.
    pub(super) fn forget_sent(&mut self) {
        (self.sequences, self.was_sent, self.unanswered) = (None, false, 0);
    }

    /// Records its place in line, 0 if it waits in none; true if it has got on.
    pub(super) fn gets_on(&mut self, place: u64) -> bool {
        let before = std::mem::replace(&mut self.place, place);
        self.was_in_line |= place > 0;
        (1..before).contains(&place)
    }

    /// True if it is a large store that was never granted: nothing of its value was sent, so that no copy can be executed.
    pub(super) fn is_ungranted(&self) -> bool {
        self.was_in_line && !self.has_older_copies
    }

    /// True if the server may have begun it.
    pub(super) fn is_under_way(&self) -> bool {
        self.sequences.is_some() || (self.once.is_some() && self.was_sent)
    }

    /// True if one copy of it was sent, ever.
    pub(super) fn is_one_copy(&self) -> bool {
        self.sequences.is_some_and(|(first, last)| first == last) && !self.has_older_copies
    }

    /// True if that copy, or its answer, is on its way.
    pub(super) fn is_one_on_its_way(&self) -> bool {
        matches!(self.phase, Phase::Sent { .. }) && self.is_one_copy()
    }

    /// True if an answer to the datagram with this number may be about this operation.
    pub(super) fn expects(&self, sequence: u64) -> bool {
        self.sequences.is_some_and(|(first, last)| (first..=last).contains(&sequence))
    }
}

/// A place for an operation. Its generation keeps a late answer to an earlier operation from matching a later
/// one.
#[derive(Debug)]
struct Place {
    generation: u16,
    /// False if the operation has ended; it is replaced by the next one.
    is_live: bool,
    operation: Operation,
}

#[derive(Debug, Default)]
pub(super) struct Operations {
    places: Vec<Place>,
    free: Vec<u16>,
    live: usize,
}

impl Operations {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Inserts the operation of a request. There are fewer than [`OPERATIONS_MAX`](crate::OPERATIONS_MAX), so
    /// that 16 bits hold the index.
    #[inline]
    pub(super) fn insert(
        &mut self,
        request: Request,
        timeout_ns: u64,
        now_ns: u64,
        random: &mut StdRng,
    ) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| self.add_place(random));
        let place = &mut self.places[usize::from(index)];
        place.generation = place.generation.wrapping_add(1);
        place.is_live = true;
        place.operation.begin(request, timeout_ns, now_ns);
        self.live += 1;
        id(index, place.generation)
    }

    fn add_place(&mut self, random: &mut StdRng) -> u16 {
        let index = self.places.len() as u16;
        // Random, so that a server does not mistake our transfers for those of an earlier client at this
        // address.
        let generation = random.random();
        self.places.push(Place { generation, is_live: false, operation: Operation::unused() });
        index
    }

    #[inline]
    pub(super) fn get(&self, id: OpId) -> Option<&Operation> {
        let place = self.places.get(index_of(id))?;
        (place.is_live && place.generation == generation_of(id)).then_some(&place.operation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: OpId) -> Option<&mut Operation> {
        let place = self.places.get_mut(index_of(id))?;
        (place.is_live && place.generation == generation_of(id)).then_some(&mut place.operation)
    }

    /// Removes an operation; returns it with its key and the phase in which it was.
    #[inline]
    pub(super) fn remove(&mut self, id: OpId) -> Option<(&Operation, Vec<u8>, Phase)> {
        let place = self.places.get_mut(index_of(id))?;
        if !place.is_live || place.generation != generation_of(id) {
            return None;
        }
        place.is_live = false;
        self.free.push(index_of(id) as u16);
        self.live -= 1;
        let (key, phase) = place.operation.end();
        Some((&place.operation, key, phase))
    }

    /// The ids of those that `is_meant` accepts; the caller may end them one by one.
    pub(super) fn ids(&self, is_meant: impl Fn(&Operation) -> bool) -> Vec<OpId> {
        self.iter().filter(|(_, operation)| is_meant(operation)).map(|(id, _)| id).collect()
    }

    /// All of them, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OpId, &Operation)> {
        let places = self.places.iter().zip(0..=u16::MAX).filter(|(place, _)| place.is_live);
        places.map(|(place, index)| (id(index, place.generation), &place.operation))
    }
}

const fn id(index: u16, generation: u16) -> OpId {
    OpId((generation as u32) << 16 | index as u32)
}

const fn index_of(id: OpId) -> usize {
    (id.0 & 0xffff) as usize
}

const fn generation_of(id: OpId) -> u16 {
    (id.0 >> 16) as u16
}

#[cfg(test)]
mod tests {
    use minos_base::seeded;

    use super::*;

    fn insert(operations: &mut Operations, random: &mut StdRng) -> OpId {
        operations.insert(Request::new(Verb::Get, "key").value("value"), 10, 1, random)
    }

    #[test]
    fn a_place_that_is_used_again_has_another_name() {
        let mut operations = Operations::default();
        let mut random = seeded(1);
        let first = insert(&mut operations, &mut random);
        operations.get_mut(first).unwrap().note_sent(7);
        let (_, key, phase) = operations.remove(first).unwrap();
        assert!(key == b"key" && matches!(phase, Phase::Ready));
        assert!(operations.remove(first).is_none());
        let second = insert(&mut operations, &mut random);
        assert_ne!(first, second);
        assert_eq!(index_of(first), index_of(second));
        assert!(operations.get(first).is_none());
        let again = operations.get_mut(second).unwrap();
        assert!(!again.was_sent && again.sequences.is_none() && again.deadline_ns == 11);
        assert_eq!(operations.ids(|_| true), [second]);
        assert_eq!(operations.len(), 1);
    }

    #[test]
    fn answers_count_from_the_first_datagram_to_the_last() {
        let mut operation = Operation::unused();
        assert!(!operation.expects(5));
        operation.note_sent(5);
        operation.note_sent(9);
        let expected: Vec<u64> = (0..20).filter(|&sequence| operation.expects(sequence)).collect();
        assert_eq!(expected, [5, 6, 7, 8, 9]);
    }
}
