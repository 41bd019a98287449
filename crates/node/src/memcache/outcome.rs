//! The result of executing a command.

use minos_engine::Mode;
use minos_proto::memcache::Resume;

use super::{LargeReply, LargeStore};

/// The result of a command.
pub(crate) struct Executed<M: Mode> {
    /// The work left to the caller.
    pub(crate) outcome: Outcome<M>,
    /// Bytes at the end of the command that were not used and stay in the input: a value for
    /// [`Outcome::ReceiveLarge`], or the keys that a [`LargeReply`] resumes with.
    pub(crate) unread_bytes: usize,
}

/// The work left to the caller after a command was executed.
pub(crate) enum Outcome<M: Mode> {
    /// Nothing. The reply, if there is one, is in the transmit buffer.
    Done,
    /// Send the value of an item behind the bytes in the transmit buffer.
    SendLarge(Box<LargeReply<M>>),
    /// Receive a value into reserved memory.
    ReceiveLarge(Box<LargeStore<M>>),
    /// Finish a store whose bytes have all arrived; it takes long.
    FinishLarge(Box<LargeStore<M>>),
    /// Send the full transmit buffer, then go on with the keys of a line that stayed in the input.
    Paused(Resume),
    /// The value has not arrived completely and is not worth a reservation. Parse and execute the command
    /// again when this many bytes follow its head; nothing was done, and nothing may be consumed.
    NeedMore {
        /// Length in bytes of the value and its line end.
        body_bytes: u64,
    },
    /// Discard these bytes behind the command; the reply is in the transmit buffer.
    Refused {
        /// Their number, arrived or not.
        swallow: u64,
    },
    /// List the connections, in pieces.
    ListConnections,
    /// Close the connection when the transmit buffer is sent.
    Quit,
    /// Stop the server.
    Shutdown {
        /// True to finish transfers in progress.
        graceful: bool,
    },
}

impl<M: Mode> From<Outcome<M>> for Executed<M> {
    fn from(outcome: Outcome<M>) -> Self {
        Self { outcome, unread_bytes: 0 }
    }
}
