//! Replies, and the parts of them that the lines of either protocol tell.

/// A finished reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer to a GET or a multi-get.
    Values {
        /// How many of the keys were found.
        found: u32,
    },
    /// The answer to a SET that was done.
    Stored,
    /// The server refused the request.
    Refused(Refusal),
}

/// How a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The value was not stored although nothing was wrong with the request.
    NotStored,
    /// The server did not understand the request.
    Client,
    /// The server could not do it: out of memory, too large an object.
    Server,
}

/// The server's bytes are no reply in its protocol. The connection can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent what is no reply in its protocol")]
pub struct ReplyError;

/// A receiver of values as they arrive.
pub trait ReplySink {
    /// A value of `value_bytes` begins. memcached names its key; in RESP values come in the order of
    /// the keys that were asked for, and `position` counts them, the missing ones included.
    fn value(&mut self, key: Option<&[u8]>, position: u32, value_bytes: u64);

    /// The next bytes of the value.
    fn bytes(&mut self, part: &[u8]);
}

/// A sink that ignores all values.
#[derive(Clone, Copy, Debug)]
pub struct NoSink;

impl ReplySink for NoSink {
    fn value(&mut self, _key: Option<&[u8]>, _position: u32, _value_bytes: u64) {}
    fn bytes(&mut self, _part: &[u8]) {}
}

/// The part of a reply that has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Values that began so far.
    pub(super) found: u32,
    /// RESP: elements seen so far, the missing ones included.
    pub(super) position: u32,
    /// RESP: elements still to come.
    pub(super) elements_left: u64,
}

pub(super) enum Meaning {
    /// A value of this many bytes follows.
    Value(u64),
    /// More lines follow.
    More,
    Done(Reply),
}
