//! Work that one worker hands to another through its ring.

use minos_base::KeyHash;
use minos_proto::native::{Detail, OpFlags, Opcode, Operation};
use minos_sched::WorkerId;

use super::{AnswerTo, sessions::Ticket, transfers::Permit};

/// Work for another worker. Cookie and tag were checked.
#[derive(Debug)]
pub struct Job(pub(super) Box<Work>);

/// Hands a job to another worker, or returns it if that worker cannot take it.
pub trait HandOff: FnMut(WorkerId, Job) -> Result<(), Job> {}

impl<F: FnMut(WorkerId, Job) -> Result<(), Job>> HandOff for F {}

#[derive(Debug)]
pub(super) enum Work {
    /// A datagram that arrived at another queue than it names (MICA §4.2, table 1: direction by software).
    Datagram(HandedDatagram),
    /// An operation on a value that is large under the plan (Minos §3.1), or on a key of that worker's partition.
    Operation(HandedOperation),
    /// A large store that has waited for its permit.
    Store(HandedOperation, Option<Permit>),
    /// A flush, its ticket, and the owners of partitions that have executed it.
    Flush(HandedOperation, Option<Ticket>, usize),
}

/// A datagram that arrived at another queue.
#[derive(Debug)]
pub(super) struct HandedDatagram {
    pub(super) to: AnswerTo,
    pub(super) bytes: Box<[u8]>,
}

/// An operation that does not borrow from its datagram.
#[derive(Debug)]
pub(super) struct HandedOperation {
    pub(super) to: AnswerTo,
    opcode: Opcode,
    flags: OpFlags,
    request: u32,
    /// The table's hash of the key, which never leaves the server.
    hash: KeyHash,
    detail: Detail,
    key_bytes: usize,
    /// Key and value.
    bytes: Box<[u8]>,
}

impl Job {
    pub(super) fn datagram(to: &AnswerTo, datagram: &[u8]) -> Self {
        Self(Box::new(Work::Datagram(HandedDatagram { to: *to, bytes: datagram.into() })))
    }

    pub(super) fn operation(to: &AnswerTo, operation: &Operation<'_>) -> Self {
        Self(Box::new(Work::Operation(HandedOperation::of(to, operation))))
    }

    pub(super) fn store(handed: HandedOperation, permit: Permit) -> Self {
        Self(Box::new(Work::Store(handed, Some(permit))))
    }

    pub(super) fn flush(
        to: &AnswerTo,
        operation: &Operation<'_>,
        (ticket, flushed): (Option<Ticket>, usize),
    ) -> Self {
        Self(Box::new(Work::Flush(HandedOperation::of(to, operation), ticket, flushed)))
    }
}

impl HandedOperation {
    pub(super) fn of(to: &AnswerTo, operation: &Operation<'_>) -> Self {
        let Operation { opcode, flags, request, hash, key, detail, value } = *operation;
        let (key_bytes, bytes) = (key.len(), [key, value].concat().into());
        Self { to: *to, opcode, flags, request, hash, detail, key_bytes, bytes }
    }

    pub(super) fn operation(&self) -> Operation<'_> {
        let (key, value) = self.bytes.split_at(self.key_bytes);
        let Self { opcode, flags, request, hash, detail, .. } = *self;
        Operation { opcode, flags, request, hash, key, detail, value }
    }
}
