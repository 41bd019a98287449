//! Sessions, which execute an operation once even if its datagram comes twice.
//!
//! A client that wants this opens a session and numbers its operations. For each of the last
//! [`ONCE_WINDOW`](minos_proto::native::ONCE_WINDOW) numbers the session knows whether the operation is new, in progress or done, and
//! its outcome: a retry is answered and not executed again. Sealed datagrams also need a session, which
//! remembers their numbers.
//!
//! The table is bounded. A new session replaces an idle one: the least recently used of an address that has
//! its share, or of a few that were not checked for longest. For a session that the table no longer holds,
//! the answer is that nothing was executed now. Any worker may take a retry, so one of [`SHARDS`] locks
//! guards a session, for a few instructions.

mod table;
mod terms;
mod window;

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use minos_sched::WorkerId;

pub use terms::{Outcome, SESSIONS_MAX, SHARDS, SessionTotals, SessionsBusy, SessionsConfig};

use table::Table;
use window::Seen;

/// The right to execute an operation. Dropping it without an outcome means that nothing was executed, so that
/// a retry may be.
///
/// The session stays in the table as long as it has tickets.
#[derive(Debug)]
#[must_use = "dropped, it says that nothing was executed"]
pub struct Ticket {
    table: Arc<Table>,
    session: u64,
    once: u32,
    outcome: Option<Outcome>,
}

impl Ticket {
    /// Records the outcome, with which retries are answered from now on.
    #[inline]
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// The session of the operation.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The operation's number within the session.
    pub fn once(&self) -> u32 {
        self.once
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.session);
        // The session is still there: one with an operation in progress is not evicted.
        if let (Some(found), _) = shard.find(self.session) {
            found.in_progress -= 1;
            found.once.end(self.once, self.outcome);
        }
    }
}

/// The decision on an operation to be executed once.
#[derive(Debug)]
pub enum Begin {
    /// It is new: execute it.
    Execute(Ticket),
    /// It was executed, with this outcome.
    Done(Outcome),
    /// This worker is executing another copy.
    InProgress(WorkerId),
    /// Its number is too far behind the newest one to know if it was executed.
    TooOld,
    /// There is no such session.
    Unknown,
}

/// The decision on an authenticated datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// It is new.
    Fresh,
    /// It was seen before, or is too old to tell.
    Replayed,
    /// There is no such session.
    Unknown,
}

/// All sessions of a server. Workers share one; clones are the same.
#[derive(Clone, Debug)]
pub struct Sessions {
    table: Arc<Table>,
}

impl Sessions {
    /// A table without sessions. `key` must be random and secret: identities are derived from it.
    ///
    /// Bounds outside the possible range are clamped.
    pub fn new(config: SessionsConfig, key: &[u8; 16]) -> Self {
        Self { table: Arc::new(Table::new(config, key)) }
    }

    /// Opens a session for `peer` and returns its identity, which is never zero.
    ///
    /// A `nonce` is the client's name for the session: a repeated request with the same nonce gets the same
    /// session.
    ///
    /// # Errors
    /// The table is full, and every session that could be replaced has an operation in progress.
    pub fn open(&self, peer: SocketAddr, nonce: u64, now: Instant) -> Result<u64, SessionsBusy> {
        self.table.open(peer, nonce, now)
    }

    /// Begins operation `once` of `session` at `worker`.
    #[inline]
    pub fn begin(&self, session: u64, once: u32, worker: WorkerId, now: Instant) -> Begin {
        let mut shard = self.table.shard(session);
        let (found, totals) = shard.find(session);
        let Some(found) = found else {
            totals.unknown += 1;
            return Begin::Unknown;
        };
        found.used = now;
        // Relaxed: it is set before any operation begins.
        let is_forgetful = self.table.is_forgetful.load(Ordering::Relaxed);
        let seen = if is_forgetful { Seen::Fresh } else { found.once.begin(once, worker) };
        match seen {
            Seen::Fresh => {
                found.in_progress += 1;
                let table = Arc::clone(&self.table);
                Begin::Execute(Ticket { table, session, once, outcome: None })
            }
            Seen::Done(outcome) => {
                totals.repeated += 1;
                Begin::Done(outcome)
            }
            Seen::InProgress(worker) => {
                totals.repeated_early += 1;
                Begin::InProgress(worker)
            }
            Seen::TooOld => {
                totals.too_old += 1;
                Begin::TooOld
            }
        }
    }

    /// Records datagram `sequence` of `session`, whose tag must have been verified.
    #[inline]
    pub fn accept(&self, session: u64, sequence: u64, now: Instant) -> Acceptance {
        let mut shard = self.table.shard(session);
        let (found, totals) = shard.find(session);
        let Some(found) = found else {
            totals.unknown += 1;
            return Acceptance::Unknown;
        };
        if !found.replay.accept(sequence) {
            totals.replayed += 1;
            return Acceptance::Replayed;
        }
        found.used = now;
        Acceptance::Fresh
    }

    /// True if the table holds `session`.
    pub fn is_known(&self, session: u64) -> bool {
        self.table.shard(session).find(session).0.is_some()
    }

    /// From now on executes every copy of an operation. A test that does not fail then checks nothing.
    #[doc(hidden)]
    pub fn forget_outcomes(&self) {
        self.table.is_forgetful.store(true, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn totals(&self) -> SessionTotals {
        self.table.totals()
    }
}
