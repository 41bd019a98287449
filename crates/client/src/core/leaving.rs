//! Selects one of several servers, and leaves a server that is stopping.
//!
//! Operations already sent to a stopping server end there; the others wait. The client then moves to the next
//! server, or asks its only one again until the successor answers.

use std::net::SocketAddr;

use rand::RngExt;

use super::{Core, OpId, link::Asked, link::Link};

/// Unanswered Hellos after which the client asks the next server.
const HELLOS_MAX: u32 = 3;

/// Servers of the same items; the client uses one at a time.
#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<SocketAddr>,
    at: usize,
    /// Set if the current server is stopping: the deadline of operations that it has begun.
    leave_by_ns: Option<u64>,
    /// Servers left since the last answer from one that is not stopping.
    left: u32,
}

impl Servers {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { all: vec![server], at: 0, leave_by_ns: None, left: 0 }
    }

    /// True if the current server is stopping and gets nothing new.
    pub(super) fn is_leaving(&self) -> bool {
        self.leave_by_ns.is_some()
    }

    /// True if there are other servers to move to.
    pub(super) fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// The time at which a stopping server is left, even with operations under way.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.leave_by_ns
    }

    fn next(&mut self) -> SocketAddr {
        self.at = (self.at + 1) % self.all.len();
        self.leave_by_ns = None;
        self.left = self.left.saturating_add(1);
        self.all[self.at]
    }
}

impl Core {
    /// Adds servers of the same items, or caches that stand in for each other. The client moves to the next
    /// one, in this order, when its server is stopping or does not answer.
    pub fn add_servers(&mut self, others: impl IntoIterator<Item = SocketAddr>) {
        self.servers.all.extend(others);
    }

    /// True if the server has said that it is stopping, and nothing else since.
    pub(crate) fn is_draining(&self) -> bool {
        self.servers.is_leaving() || self.servers.left > 0
    }

    /// From now on uses no server but the current one.
    pub(crate) fn stay(&mut self) {
        self.servers.all = vec![self.link.server()];
        self.servers.at = 0;
    }

    /// The current server.
    pub fn server(&self) -> SocketAddr {
        self.link.server()
    }

    /// Records if an answer says that the server is stopping.
    pub(super) fn note_draining(&mut self, is_draining: bool, now_ns: u64) {
        if !is_draining {
            self.servers.left = 0;
        } else if !self.servers.is_leaving() && self.link.directory().is_some() {
            self.counters.drains += u64::from(self.servers.left == 0);
            let leave_by_ns = now_ns.saturating_add(self.timeout_ns / 2);
            self.servers.leave_by_ns = Some(leave_by_ns);
            self.wake_at(leave_by_ns);
            self.reassign(now_ns);
        }
    }

    /// Leaves a stopping server once nothing is under way there, or at its deadline.
    pub(super) fn leave_if_done(&mut self, now_ns: u64) {
        let Some(leave_by_ns) = self.servers.leave_by_ns else { return };
        if now_ns >= leave_by_ns || !self.operations.iter().any(|(_, it)| it.is_under_way()) {
            self.go_to_next_server(now_ns);
        }
    }

    /// Moves to the next server, if there is one, when the current one does not answer.
    pub(super) fn leave_if_silent(&mut self, now_ns: u64) {
        let is_silent = self.link.directory().is_none() || self.link.is_quiet(now_ns);
        let asked_in_vain = self.link.asked.is_some_and(|asked| asked.attempts >= HELLOS_MAX);
        if self.servers.has_others() && asked_in_vain && is_silent && self.link.is_hello_due(now_ns) {
            self.go_to_next_server(now_ns);
        }
    }

    /// Keeps an operation for the next server if the stopping one refused to begin it and has begun no other copy.
    pub(super) fn take_over(&mut self, id: OpId, now_ns: u64) {
        if self.servers.is_leaving() && self.take_back(id) {
            self.assign(id, now_ns, 0);
        }
    }

    /// Forgets that an operation was sent, which the server has not begun; true if it has begun no other copy.
    pub(super) fn take_back(&mut self, id: OpId) -> bool {
        let Some(operation) = self.operations.get_mut(id) else { return false };
        let is_unbegun = operation.is_one_copy() || operation.is_ungranted();
        if is_unbegun {
            operation.forget_sent();
            if let (Some(number), Some(session)) = (operation.once.take(), &mut self.link.session) {
                session.give_back(number);
            }
        }
        is_unbegun
    }

    fn go_to_next_server(&mut self, now_ns: u64) {
        let server = self.servers.next();
        self.counters.failovers += u64::from(self.servers.has_others());
        self.link = Link::new(server, self.is_sealed());
        let has_tried_all = self.servers.left as usize >= self.servers.all.len();
        if has_tried_all {
            let attempts = self.servers.left;
            let again_at_ns = now_ns.saturating_add(self.round_trip.wait_ns(attempts, &mut self.dice));
            let (nonce, sequences) = (self.random.random(), (self.sequence_next, self.sequence_next));
            self.link.asked = Some(Asked { nonce, opens: false, attempts: 0, again_at_ns, sequences });
        }
        self.begin_anew(now_ns);
        self.reassign(now_ns);
        self.wake_at(self.link.next_ns(now_ns));
    }
}
