//! The result of executing a command.

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::memcache::{Request, text};

use crate::ops::{Cold, Context, Failed, Fetch, Next, Work};

/// The result of a command.
pub(crate) struct Executed<M: Mode> {
    /// How the service of the connection goes on.
    pub(super) next: Next<M>,
    /// The part of the command that stays in the input.
    pub(super) unread: Unread,
}

/// The part of a command that stays in the input.
pub(super) enum Unread {
    /// Nothing.
    Nothing,
    /// These bytes at its end: a value to be received, or the keys that the command resumes with.
    End(usize),
    /// All of it: the command is parsed and executed again.
    All,
}

impl<M: Mode> Executed<M> {
    /// The command is executed, and its reply, if there is one, is in the transmit buffer.
    pub(super) const DONE: Self = Self { next: Next::Continue, unread: Unread::Nothing };

    /// The command has used all of its input; but one whose item is fetched is executed again.
    #[inline]
    pub(super) fn then(next: Next<M>) -> Self {
        let is_fetch = M::HAS_FLASH && matches!(next, Next::Fetch(_));
        Self { next, unread: if is_fetch { Unread::All } else { Unread::Nothing } }
    }

    /// True if the command may have changed something: replies may have to wait for that. A command that goes on later
    /// changes something then.
    pub(super) fn has_changed(&self, request: &Request<'_>) -> bool {
        match self.next {
            Next::Fetch(_) => matches!(request, Request::GetMany(_)) && request.may_change(),
            Next::Away(Work::Receive { .. } | Work::Finish { .. }) => false,
            _ => request.may_change(),
        }
    }

    /// The command waits for room in memory, and is executed again.
    pub(super) fn wait<P>(cx: &Context<'_, M, P>) -> Self {
        Self::then(Next::Fetch(Box::new(Fetch::of_room(cx))))
    }

    /// The command needs an item that may be on flash.
    pub(super) fn cold(cold: Cold, hash: KeyHash, key: &[u8], tx: &mut Vec<u8>) -> Self {
        Self::then(next_of(cold, hash, key, tx))
    }
}

/// How a connection goes on whose command needs an item that may be on flash. A fetch that failed is answered.
pub(super) fn next_of<M: Mode>(cold: Cold, hash: KeyHash, key: &[u8], tx: &mut Vec<u8>) -> Next<M> {
    match cold {
        Cold::Unknown(class, need) => Next::Fetch(Box::new(Fetch::of(hash, key, class, need))),
        Cold::Failed(failed) => {
            tx.extend_from_slice(failed_text(failed));
            Next::Continue
        }
    }
}

/// The reply to a command whose item could not be fetched.
pub(super) fn failed_text(failed: Failed) -> &'static [u8] {
    match failed {
        Failed::Unreadable => text::FLASH_UNREADABLE,
        Failed::NoMemory => text::NO_MEMORY_FETCHING,
    }
}
