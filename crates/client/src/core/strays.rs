//! Operations that leave one server for another of its rack.

use minos_proto::native::ReplyRecord;

use super::{Core, OpId, operation::Phase};
use crate::{Error, Request, Verb};

/// An operation that this server has not executed and will not: another node of the rack owns its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The operation, which has ended here.
    pub id: OpId,
    /// Its request, as it was submitted.
    pub request: Request,
    /// The number of the owner.
    pub owner: u32,
    /// The epoch of the directory that says so.
    pub epoch: u64,
}

impl Core {
    /// From now on operations for other nodes leave by [`Core::poll_stray`], instead of with [`Error::NotOwner`].
    #[must_use]
    pub fn in_rack(self) -> Self {
        Self { hands_over: true, ..self }
    }

    /// From now on they do so no longer.
    pub(crate) fn keep_strays(&mut self) {
        self.hands_over = false;
    }

    /// Takes the next operation that another node is to execute.
    pub fn poll_stray(&mut self) -> Option<Stray> {
        self.strays.pop_front()
    }

    /// Ends an operation without an outcome; answers to it are ignored. Returns its request, or `None` if it has ended
    /// or its large value is on its way. One that writes may have been executed.
    pub fn withdraw(&mut self, id: OpId, now_ns: u64) -> Option<Request> {
        let operation = self.operations.get_mut(id)?;
        if matches!(operation.phase, Phase::Fetching(_) | Phase::Storing(_)) {
            return None;
        }
        let request = std::mem::replace(&mut operation.request, Request::new(Verb::Ping, Vec::new()));
        self.end(id, now_ns);
        Some(request)
    }

    /// The request of an operation that another server may execute instead: it was never sent, or, if the server is
    /// silent, it may be executed twice.
    pub(crate) fn leavable(&self, id: OpId, is_silent: bool) -> Option<&Request> {
        let operation = self.operations.get(id)?;
        let is_repeatable = !operation.request.verb.wants_once(self.config.once_for);
        let may_leave = !operation.was_sent || (is_silent && is_repeatable);
        may_leave.then_some(&operation.request)
    }

    /// True if an operation was sent, and so may have been executed.
    pub(crate) fn was_sent(&self, id: OpId) -> bool {
        self.operations.get(id).is_some_and(|operation| operation.was_sent)
    }

    /// True if the server may send from this address.
    pub(crate) fn is_server(&self, from: std::net::SocketAddr) -> bool {
        self.link.is_server(from)
    }

    /// The time of the server's last answer; 0 without one.
    pub(crate) fn heard_ns(&self) -> u64 {
        self.link.heard_ns()
    }

    /// What the server last told of its rack: the epoch of the directory and the version of the weights.
    pub(crate) fn news(&self) -> (u32, u32) {
        self.link.news()
    }

    /// Handles the answer that another node owns the key. Its once number has an outcome now, at this server: no copy is
    /// executed later.
    #[cold]
    pub(super) fn on_not_owner(&mut self, id: OpId, record: &ReplyRecord<'_>, now_ns: u64) {
        if !self.hands_over {
            return self.finish(id, Err(Error::NotOwner), now_ns);
        }
        if let Some(request) = self.withdraw(id, now_ns) {
            self.strays.push_back(Stray { id, request, owner: record.item_flags, epoch: record.cas });
        }
    }
}
