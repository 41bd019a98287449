//! Assigns operations to lanes.

use minos_proto::native::{
    Detail, HEADER_BYTES, OpFlags, Opcode, Operation as Record, TAG_BYTES, Welcome, padded,
};

use super::{
    Core, OpId,
    link::Link,
    operation::{Operation, Phase},
};
use crate::{Error, ReadBy, Request};

/// The reason why an operation is in no lane.
enum Obstacle {
    /// The server or the session is not known, or the server is stopping.
    Unknown,
    /// All once numbers are in use.
    NoNumber,
    /// Other large values are being sent.
    NoTurn,
    /// It can never be sent, as [`fault_of`] says.
    Fault,
    /// It was sent in a session that the server forgot, and no other number may be sent for it.
    Forgotten,
}

impl Core {
    /// Puts an operation into its lane, where it may wait `delay_ns` for others, or into the waiting list of
    /// its obstacle.
    pub(super) fn assign(&mut self, id: OpId, now_ns: u64, delay_ns: u64) {
        match self.prepare(id, now_ns) {
            Ok((queue, record_bytes)) => {
                let due_ns = if delay_ns == 0 { 0 } else { now_ns.saturating_add(delay_ns) };
                self.lanes.push(queue, id, record_bytes, due_ns);
                if delay_ns == 0 {
                    self.ready_ns = self.ready_ns.min(now_ns);
                } else {
                    self.wake_at(due_ns);
                }
            }
            Err(obstacle) => self.postpone(id, &obstacle, now_ns),
        }
    }

    /// Puts an operation into the waiting list of its obstacle, or ends it.
    #[inline(never)]
    fn postpone(&mut self, id: OpId, obstacle: &Obstacle, now_ns: u64) {
        match obstacle {
            Obstacle::Unknown => self.lanes.parked.push_back(id),
            Obstacle::NoNumber => self.lanes.without_number.push_back(id),
            Obstacle::NoTurn => {
                // Turns are always given back, so an operation that waits for one has no deadline.
                if let Some(operation) = self.operations.get_mut(id) {
                    operation.deadline_ns = u64::MAX;
                }
                self.stores.waiting.push_back(id);
            }
            Obstacle::Forgotten => self.finish(id, Err(Error::OutcomeUnknown), now_ns),
            Obstacle::Fault => {
                let operation = self.operations.get(id).zip(self.link.directory());
                if let Some(error) =
                    operation.and_then(|(operation, directory)| fault_of(operation, directory))
                {
                    self.finish(id, Err(error), now_ns);
                }
            }
        }
    }

    /// Meets all conditions for sending an operation. Returns its queue, if it has one, and the bytes of its
    /// record.
    fn prepare(&mut self, id: OpId, now_ns: u64) -> Result<(Option<u16>, usize), Obstacle> {
        let (is_sealed, is_leaving) = (self.is_sealed(), self.servers.is_leaving());
        let Some(operation) = self.operations.get_mut(id) else { return Err(Obstacle::Unknown) };
        operation.phase = Phase::Ready;
        let needs_number =
            operation.once.is_none() && operation.request.verb.wants_once(self.config.once_for);
        if needs_number && operation.was_sent {
            return Err(Obstacle::Forgotten);
        }
        if is_leaving && !operation.is_under_way() {
            return Err(Obstacle::Unknown);
        }
        let directory = self.link.usable(is_sealed).ok_or(Obstacle::Unknown)?;
        if let Some(fault) = fault_of(operation, directory) {
            if matches!(fault, Error::TooLarge { .. }) && self.link.is_old(now_ns) {
                self.link.doubt();
                return Err(Obstacle::Unknown);
            }
            return Err(Obstacle::Fault);
        }
        operation.hash = directory.direction(&operation.request.key);
        let verb = operation.request.verb;
        let limit_bytes = limit_bytes(directory, self.config.datagram_bytes_max);
        let is_deferred = is_deferred(operation, limit_bytes, is_sealed);
        let needs_turn = is_deferred && !operation.has_turn;
        // Before the number: those that wait for a turn would hold all numbers.
        if needs_turn && !self.stores.take() {
            return Err(Obstacle::NoTurn);
        }
        operation.has_turn |= needs_turn;
        if needs_number {
            let number = take_number(&mut self.link, now_ns);
            if number.is_err() && needs_turn {
                operation.has_turn = false;
                self.stores.give_back();
            }
            operation.once = Some(number?);
        }
        let queue = self.link.queue_for(verb, operation.hash, self.config.queue_by);
        Ok((queue, padded(record_bytes(&operation.request, is_deferred))))
    }

    /// Assigns every operation that is not in flight again, after a change of the server or its geometry.
    pub(super) fn reassign(&mut self, now_ns: u64) {
        self.lanes.clear();
        self.stores.waiting.clear();
        if let Some(directory) = self.link.directory() {
            self.lanes.set_queues(directory.queues);
            let granted = usize::try_from(directory.transfers_per_client).unwrap_or(usize::MAX);
            self.stores.active_max = self.config.transfers_max.min(granted).max(1);
        }
        for id in self.operations.ids(|it| matches!(it.phase, Phase::Ready | Phase::Resting { .. })) {
            self.revive(id, now_ns);
            self.assign(id, now_ns, 0);
        }
    }

    /// Starts the deadline of an operation that waited for a turn.
    pub(super) fn revive(&mut self, id: OpId, now_ns: u64) {
        if let Some(operation) = self.operations.get_mut(id)
            && operation.deadline_ns == u64::MAX
        {
            let deadline_ns = now_ns.saturating_add(operation.timeout_ns);
            operation.deadline_ns = deadline_ns;
            self.wake_at(deadline_ns);
        }
    }

    /// Assigns operations that can now get a turn or a once number.
    pub(super) fn admit(&mut self, now_ns: u64) {
        while let Some(id) = self.stores.next() {
            self.revive(id, now_ns);
            if self.operations.get(id).is_some() {
                self.assign(id, now_ns, 0);
            }
        }
        let mut waiting = self.lanes.without_number.len();
        while waiting > 0
            && let Some(id) = self.lanes.without_number.pop_front()
        {
            waiting -= 1;
            if self.operations.get(id).is_none() {
                continue;
            }
            let before = self.lanes.without_number.len();
            self.assign(id, now_ns, 0);
            if self.lanes.without_number.len() > before {
                // No number is free: the operation keeps its place.
                self.lanes.without_number.rotate_right(1);
                return;
            }
        }
    }
}

#[inline(never)]
fn take_number(link: &mut Link, now_ns: u64) -> Result<u32, Obstacle> {
    if link.is_quiet(now_ns) {
        link.doubt();
        return Err(Obstacle::Unknown);
    }
    let Some(session) = &mut link.session else {
        link.session_wanted = true;
        return Err(Obstacle::Unknown);
    };
    session.take().ok_or(Obstacle::NoNumber)
}

/// The limit of the server that an operation exceeds.
#[inline]
fn fault_of(operation: &Operation, directory: &Welcome) -> Option<Error> {
    let (key_bytes, value_bytes) = (operation.request.key.len(), operation.request.value.len() as u64);
    let bytes_max = usize::from(directory.key_bytes_max);
    if key_bytes > bytes_max {
        return Some(Error::Key { bytes: key_bytes, bytes_max });
    }
    let bytes_max = directory.value_bytes_max;
    (value_bytes > bytes_max).then_some(Error::TooLarge { bytes_max })
}

/// The maximum bytes of a datagram.
pub(super) fn limit_bytes(directory: &Welcome, own_max: usize) -> usize {
    usize::from(directory.datagram_bytes_max).min(own_max)
}

/// True if an operation stores a value that is too large for a datagram.
pub(super) fn is_deferred(operation: &Operation, limit_bytes: usize, is_sealed: bool) -> bool {
    let Operation { request, .. } = operation;
    let tag_bytes = if is_sealed { TAG_BYTES } else { 0 };
    let fits = || HEADER_BYTES + padded(record_bytes(request, false)) + tag_bytes <= limit_bytes;
    request.verb.opcode().is_store() && !fits()
}

/// Bytes of a request's record before padding.
fn record_bytes(request: &Request, is_deferred: bool) -> usize {
    let value_bytes = if is_deferred { 0 } else { request.value.len() };
    request.verb.opcode().head_bytes() + request.key.len() + value_bytes
}

pub(super) fn record(id: OpId, operation: &Operation, is_deferred: bool, read_by: ReadBy) -> Record<'_> {
    let Operation { request, .. } = operation;
    let creates = if request.initial.is_some() { OpFlags::CREATE } else { OpFlags::NONE };
    let once = if operation.once.is_some() { OpFlags::ONCE } else { OpFlags::NONE };
    let deferred = if is_deferred { OpFlags::DEFERRED } else { OpFlags::NONE };
    let reads_copies = read_by == ReadBy::Copies && request.verb.opcode() == Opcode::Get;
    let copies = if reads_copies { OpFlags::COPIES } else { OpFlags::NONE };
    Record {
        opcode: request.verb.opcode(),
        flags: creates | once | deferred | copies,
        request: id.0,
        hash: operation.hash,
        key: &request.key,
        detail: Detail {
            value_bytes: request.value.len() as u32,
            ttl: request.ttl,
            item_flags: request.flags,
            once: operation.once.unwrap_or(0),
            operand: request.operand,
        },
        value: &request.value,
    }
}
