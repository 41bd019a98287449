//! Stores that wait in the line of their address until a bound lets them begin.
//!
//! A client that asks is told to ask again, and its store waits: it holds its key, but no memory for its value, and its client
//! has shown that it receives at its address. When its turn has come it is granted unasked. So the clients behind one address
//! share what that may have without resting while something is free.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use minos_proto::native::Operation;
use minos_sched::WorkerId;

use crate::datagram::native::{AnswerTo, job::HandedOperation, waiting::identity_of};

/// Stores that may wait in one line, and in all.
pub(super) const LINE_MAX: usize = 128;
pub(super) const WAITING_MAX: usize = 1024;

/// Time for which a client keeps its place without asking again: what nobody sends would hold up the others.
const PATIENCE: Duration = Duration::from_millis(250);

/// A store that waits. Nothing of it was begun.
#[derive(Debug)]
pub(in crate::datagram::native) struct Waiter {
    /// The worker at which it will begin.
    pub(in crate::datagram::native) worker: WorkerId,
    pub(in crate::datagram::native) handed: HandedOperation,
    pub(super) since: Instant,
    asked_at: Instant,
}

impl Waiter {
    pub(super) fn new(worker: WorkerId, to: &AnswerTo, operation: &Operation<'_>, now: Instant) -> Self {
        Self { worker, handed: HandedOperation::of(to, operation), since: now, asked_at: now }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.handed.to.peer.ip()
    }

    /// Bytes of its value.
    pub(super) fn bytes(&self) -> u64 {
        self.handed.operation().detail.value_bytes.into()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let identity = |waiter: &Self| identity_of(&waiter.handed.to, &waiter.handed.operation());
        identity(self) == identity(other)
    }

    /// Notes that its client has asked again.
    pub(super) fn renew(&mut self, again: Self) {
        *self = Self { since: self.since, ..again };
    }

    /// True if its client has not asked for so long that it may have gone.
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked_at) > PATIENCE
    }
}
