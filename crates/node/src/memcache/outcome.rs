//! What remains to be done after a command was executed.

use minos_engine::Mode;
use minos_proto::memcache::Resume;

use super::{LargeReply, LargeStore};

/// What a command came to.
pub(crate) struct Executed<M: Mode> {
    /// What remains to be done.
    pub(crate) outcome: Outcome<M>,
    /// Bytes at the end of the command that were not used after all and stay in the input: a value
    /// that goes with [`Outcome::ReceiveLarge`], or the keys that [`LargeReply`] is resumed with.
    pub(crate) unread_bytes: usize,
}

/// What remains to be done after a command was executed.
pub(crate) enum Outcome<M: Mode> {
    /// Nothing. The reply, if there is one, is in the transmit buffer.
    Done,
    /// The value of an item has to be sent behind what is in the transmit buffer.
    SendLarge(Box<LargeReply<M>>),
    /// A value has to be received into memory that was set aside for it.
    ReceiveLarge(Box<LargeStore<M>>),
    /// All bytes are there, and what is to be done with them takes long.
    FinishLarge(Box<LargeStore<M>>),
    /// The transmit buffer is full in the middle of a line of keys: send it, then go on with the keys
    /// that stayed in the input.
    Paused(Resume),
    /// The value has not wholly arrived and is not worth a reservation: the command is to be parsed
    /// and executed again when this many bytes follow its head. Nothing has been done yet, and nothing of
    /// it is to be consumed.
    NeedMore {
        /// Length in bytes of the value and its line end.
        body_bytes: u64,
    },
    /// The reply is in the transmit buffer, and these bytes behind the command have to be thrown away.
    Refused {
        /// How many they are, arrived or not.
        swallow: u64,
    },
    /// What connections there are is to be told, in pieces.
    ListConnections,
    /// The connection is to be closed when the transmit buffer is sent.
    Quit,
    /// The server is to end.
    Shutdown {
        /// Whether to finish what is under way.
        graceful: bool,
    },
}

impl<M: Mode> From<Outcome<M>> for Executed<M> {
    fn from(outcome: Outcome<M>) -> Self {
        Self { outcome, unread_bytes: 0 }
    }
}
