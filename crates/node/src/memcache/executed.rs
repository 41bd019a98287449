//! The result of executing a command.

use minos_engine::Mode;

use crate::ops::Next;

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

    /// The command has used all of its input.
    pub(super) fn then(next: Next<M>) -> Self {
        Self { next, unread: Unread::Nothing }
    }
}
