//! Handling of refusals, restarts and lost sessions.

use minos_proto::native::{Header, Reason, version_of};

use super::{
    Core, OpId,
    operation::{Operation, Phase},
};
use crate::Error;

/// Permanent refusals after which the client gives up. One alone proves nothing: a datagram damaged in
/// transit is refused in the same way.
const STRIKES_MAX: u32 = 8;

impl Core {
    /// Handles the refusal of a datagram, of which the server has executed nothing.
    #[cold]
    pub(super) fn on_refusal(&mut self, header: &Header, datagram: &[u8], now_ns: u64) {
        self.counters.refused += 1;
        let reason = Reason::from_count(header.count);
        match reason {
            Reason::Version | Reason::Seal => {
                self.link.strikes += 1;
                if self.link.strikes >= STRIKES_MAX {
                    let server = version_of(datagram).unwrap_or(0);
                    let is_seal = reason == Reason::Seal;
                    let error = if is_seal { Error::Secret } else { Error::Version { server } };
                    for id in self.operations.ids(|_| true) {
                        self.finish(id, Err(error.clone()), now_ns);
                    }
                    return;
                }
                self.link.ask_again(header.sequence, now_ns);
            }
            Reason::Cookie => self.link.cookie_refused(header.sequence),
            // The first copy gets the answer; if that is lost, a timer sends the operations again.
            Reason::Replayed => return,
            Reason::Session | Reason::Malformed | Reason::Busy | Reason::Unknown(_) => {}
        }
        let ids = self.flight.remove(header.sequence).unwrap_or_default();
        if reason == Reason::Session {
            for &id in &ids {
                if self.operations.get(id).is_some_and(|it| it.expects(header.sequence)) {
                    self.take_back(id);
                }
            }
            self.on_session_lost(header.session, now_ns);
        }
        for id in ids {
            self.on_refused(id, reason, header.sequence, now_ns);
        }
    }

    /// Handles an operation of a refused request, which is no longer in flight.
    fn on_refused(&mut self, id: OpId, reason: Reason, sequence: u64, now_ns: u64) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        if !matches!(operation.phase, Phase::Sent { sequence: last, .. } if last == sequence) {
            return;
        }
        match reason {
            Reason::Busy => operation.note_busy(sequence),
            Reason::Malformed => operation.strikes += 1,
            _ => operation.note_refused(),
        }
        match reason {
            Reason::Malformed if operation.strikes >= STRIKES_MAX => {
                self.finish(id, Err(Error::BadRequest), now_ns);
            }
            Reason::Busy if self.config.open_loop => self.finish(id, Err(Error::Busy), now_ns),
            Reason::Busy | Reason::Unknown(_) => self.rest(id, u64::MAX, now_ns),
            _ => self.assign(id, now_ns, 0),
        }
    }

    /// Handles a session that the server does not know. Operations of which several copies were sent with a once number end
    /// with [`Error::OutcomeUnknown`]; the others, and those that the server has refused for this, go on in a new session.
    /// Of those whose only copy is on its way the answer tells.
    pub(super) fn on_session_lost(&mut self, session: u64, now_ns: u64) {
        if self.link.session.as_ref().is_none_or(|known| known.id() != session) {
            return;
        }
        self.link.session = None;
        self.link.session_wanted = true;
        self.counters.sessions_lost += 1;
        self.forget_numbers(Operation::is_one_on_its_way, now_ns);
        let is_store =
            |it: &Operation| matches!(&it.phase, Phase::Storing(store) if store.session == session);
        for id in self.operations.ids(is_store) {
            self.begin_again(id, now_ns);
        }
        self.reassign(now_ns);
    }

    /// Makes all operations ready again after a restart or a change of the server, which has none of this
    /// client's work. Operations that were sent with a once number end with [`Error::OutcomeUnknown`].
    ///
    /// CAS uniques may repeat for other values, so that even fragments already received are dropped.
    pub(super) fn begin_anew(&mut self, now_ns: u64) {
        self.forget_numbers(|_| false, now_ns);
        for id in self.operations.ids(|_| true) {
            self.leave(id, now_ns);
            if let Some(operation) = self.operations.get_mut(id) {
                operation.forget_copies();
                operation.attempts = 0;
            }
        }
    }

    /// Takes the numbers from all operations, and ends those that were sent with one, but for some.
    fn forget_numbers(&mut self, may_wait: impl Fn(&Operation) -> bool, now_ns: u64) {
        for id in self.operations.ids(|operation| operation.once.is_some()) {
            let Some(operation) = self.operations.get_mut(id) else { continue };
            operation.once = None;
            if operation.is_ungranted() {
                operation.forget_sent();
            } else if operation.was_sent && !may_wait(operation) {
                self.finish(id, Err(Error::OutcomeUnknown), now_ns);
            }
        }
    }
}
