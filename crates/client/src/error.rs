//! What can go wrong, as far as a caller can do something about it.

use std::io;

/// Why an operation, or a client, failed.
///
/// That a key is not there, or that a condition does not hold, is no error: calls say it in what they return.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer came within the time-out. Try again later, or see whether the server runs.
    #[error("no answer in time{}", unsaid(.was_sent))]
    TimedOut {
        /// Whether it was sent at least once, so that the server may have executed it, or still may.
        was_sent: bool,
    },
    /// The server forgot the session, as by a restart, after the operation was sent: it was executed once or not
    /// at all, and nobody knows. Read the item to find out.
    #[error("the server forgot the session: the operation was executed once or not at all")]
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
        /// The bound that was met: the client's own, or the server's.
        bytes_max: u64,
    },
    /// The server has no memory for the value.
    #[error("the server has no memory for the value")]
    NoMemory,
    /// The item to count with holds something that is no number.
    #[error("the value is no number")]
    NotANumber,
    /// The server met a bound on transfers or sessions all the time until the time-out.
    #[error("the server is busy")]
    Busy,
    /// The value was replaced again and again while it was fetched.
    #[error("the value changes faster than it can be fetched")]
    Unstable,
    /// The server speaks no version of the protocol that this client does.
    #[error(
        "the server speaks version {server} of the protocol at most, this client {}",
        minos_proto::native::VERSION
    )]
    Version {
        /// The highest version that the server speaks.
        server: u8,
    },
    /// The server asks for a shared secret, or has another one.
    #[error("the shared secret is missing or is not the server's")]
    Secret,
    /// The server does not know the operation: it is older than this client.
    #[error("the server does not know this operation")]
    Unsupported,
    /// The server could not make sense of the operation.
    #[error("the server could not make sense of the operation")]
    BadRequest,
    /// The server answered what the protocol does not allow.
    #[error("the server answered against the protocol: {0}")]
    Protocol(&'static str),
    /// An option has a value that cannot be.
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
        /// What the system says.
        text: String,
    },
    /// The client has ended: its runtime was shut down, or its socket failed.
    #[error("the client has ended")]
    Closed,
}

/// What is not said by there being no answer.
fn unsaid(was_sent: &bool) -> &'static str {
    if *was_sent { "; it may have been executed" } else { "" }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io { kind: error.kind(), text: error.to_string() }
    }
}
