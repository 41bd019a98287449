//! What follows the service of a request or of a connection.

use minos_engine::Mode;

use super::{cold::Fetch, work::Work};

/// How the service of a connection goes on.
pub(crate) enum Next<M: Mode> {
    /// At once, with the input that is left or arrives.
    Continue,
    /// When the rest of the input has this many bytes: it ends within a request.
    NeedMore {
        /// Bytes from the end of the consumed input.
        wanted_bytes: usize,
    },
    /// After the queue's other connections.
    Yield,
    /// When the poller reports room to send: the socket takes no more replies.
    Blocked,
    /// Not at all: the connection is closed once its replies are sent.
    Close,
    /// With a large request, at the worker for its size.
    Away(Work<M>),
    /// When items that may be on flash are in memory, or known not to exist.
    Fetch(Box<Fetch<M>>),
    /// As this says, when the changes so far are durable and the replies to them are sent.
    Durable(Box<Next<M>>),
}
