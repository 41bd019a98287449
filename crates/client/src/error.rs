//! Errors, as far as a caller can act on them.

use std::io;

/// Why an operation, or a client, failed.
///
/// A missing key or a failed condition is no error: calls return it as a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer came within the time-out. Try again later, or check that the server runs.
    #[error("no answer in time{}", unsaid(.was_sent))]
    TimedOut {
        /// True if it was sent at least once, so that the server may have executed it, or still may.
        was_sent: bool,
    },
    /// The server forgot the session after the operation was sent, for example by a restart, or its flash failed before
    /// the change was durable: it was executed
    /// once or not at all. Read the item to find out.
    #[error("the server forgot the session or could not keep the change: it was executed once or not at all")]
    OutcomeUnknown,
    /// The key is empty, or longer than the server takes.
    #[error("a key has 1 to {bytes_max} bytes, this one has {bytes}")]
    Key {
        /// Bytes of the key.
        bytes: usize,
        /// Most bytes that a key may have.
        bytes_max: usize,
    },
    /// The value is larger than this client takes, or than the server does.
    #[error("the value is larger than the bound of {bytes_max} bytes")]
    TooLarge {
        /// The limit that was exceeded: the client's or the server's.
        bytes_max: u64,
    },
    /// The server has no memory for the value.
    #[error("the server has no memory for the value")]
    NoMemory,
    /// The counter's value is not a number.
    #[error("the value is no number")]
    NotANumber,
    /// The server was at a limit on transfers or sessions until the time-out.
    #[error("the server is busy")]
    Busy,
    /// Another node of a rack owns the key. The server was in no rack when this client began.
    #[error("another node of the rack owns the key; a new client will ask it")]
    NotOwner,
    /// The value was replaced repeatedly while it was fetched.
    #[error("the value changes faster than it can be fetched")]
    Unstable,
    /// The server supports no protocol version of this client.
    #[error(
        "the server speaks version {server} of the protocol at most, this client {}",
        minos_proto::native::VERSION
    )]
    Version {
        /// The highest version that the server supports.
        server: u8,
    },
    /// The server asks for a shared secret, or has another one.
    #[error("the shared secret is missing or is not the server's")]
    Secret,
    /// The server does not know the operation: it is older than this client.
    #[error("the server does not know this operation")]
    Unsupported,
    /// The server rejected the operation as malformed.
    #[error("the server could not make sense of the operation")]
    BadRequest,
    /// The server's answer violates the protocol.
    #[error("the server answered against the protocol: {0}")]
    Protocol(&'static str),
    /// An option has an invalid value.
    #[error("{0}")]
    Option(&'static str),
    /// The address cannot be read, or names no host.
    #[error("cannot use the address {address}: {reason}")]
    Address {
        /// The address as it was given.
        address: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The socket failed.
    #[error("the socket failed: {text}")]
    Io {
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The system's message.
        text: String,
    },
    /// The client has ended: its runtime was shut down, or its socket failed.
    #[error("the client has ended")]
    Closed,
}

/// The part of the message that tells whether the operation was sent.
fn unsaid(was_sent: &bool) -> &'static str {
    if *was_sent { "; it may have been executed" } else { "" }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io { kind: error.kind(), text: error.to_string() }
    }
}
