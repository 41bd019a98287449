//! Requests, and the outcomes of operations.

use std::time::Duration;

use minos_proto::native::Opcode;

use crate::config::OnceFor;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read a value.
    Get,
    /// Read a value and return its length only.
    Size,
    /// Check that the server answers.
    Ping,
    /// Store a value.
    Put,
    /// Store a value if there is none.
    Add,
    /// Store a value if there is one.
    Replace,
    /// Add to the end of a value.
    Append,
    /// Add to the beginning of a value.
    Prepend,
    /// Store a value if the item's CAS unique is the operand.
    Compare,
    /// Delete the item, if its CAS unique is the operand or the operand is 0.
    Delete,
    /// Give the item a new expiry.
    Touch,
    /// Read a value and give the item a new expiry.
    GetTouch,
    /// Add the operand to a number.
    Incr,
    /// Subtract the operand from a number, at most down to 0.
    Decr,
    /// Read the server's statistics; the key names a group, and is empty for the general ones.
    Stats,
    /// Drop all items, now or at the time given by the TTL.
    Flush,
    /// Read the bytes of the directory of the server's rack; missing if there is none.
    Directory,
}

impl Verb {
    pub(crate) const fn opcode(self) -> Opcode {
        match self {
            Self::Get | Self::Size => Opcode::Get,
            Self::Ping => Opcode::Noop,
            Self::Put => Opcode::Put,
            Self::Add => Opcode::Add,
            Self::Replace => Opcode::Replace,
            Self::Append => Opcode::Append,
            Self::Prepend => Opcode::Prepend,
            Self::Compare => Opcode::Compare,
            Self::Delete => Opcode::Delete,
            Self::Touch => Opcode::Touch,
            Self::GetTouch => Opcode::GetTouch,
            Self::Incr => Opcode::Incr,
            Self::Decr => Opcode::Decr,
            Self::Stats => Opcode::Stats,
            Self::Flush => Opcode::Flush,
            Self::Directory => Opcode::Directory,
        }
    }

    /// True if it acts on one item, and so has a key.
    pub const fn names_item(self) -> bool {
        !matches!(self, Self::Ping | Self::Stats | Self::Flush | Self::Directory)
    }

    /// True if it may change an item.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::Size | Self::Ping | Self::Stats | Self::Directory)
    }

    /// True if its answer carries a value.
    pub(crate) const fn reads_value(self) -> bool {
        matches!(self, Self::Get | Self::Size | Self::GetTouch)
    }

    /// True if the caller gets the value.
    pub(crate) const fn keeps_value(self) -> bool {
        self.reads_value() && !matches!(self, Self::Size)
    }

    /// True if executing it twice does no harm, unless another write comes between.
    pub const fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Self::Incr
                | Self::Decr
                | Self::Append
                | Self::Prepend
                | Self::Compare
                | Self::Add
                | Self::Delete
                | Self::Flush
        )
    }

    pub(crate) const fn wants_once(self, once_for: OnceFor) -> bool {
        match once_for {
            OnceFor::NotIdempotent => !self.is_idempotent(),
            OnceFor::AllWrites => self.writes(),
        }
    }
}

/// An operation to be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of an operation.
    pub verb: Verb,
    /// The item; empty for a ping.
    pub key: Vec<u8>,
    /// The bytes to store, append or prepend; empty for other verbs.
    pub value: Vec<u8>,
    /// When the item expires, as memcached has it: 0 never; up to 30 days in seconds from now; above, seconds
    /// since 1970; negative at once.
    pub ttl: i32,
    /// Client flags, stored with the item.
    pub flags: u32,
    /// The CAS unique to compare with, or the amount to add or subtract.
    pub operand: u64,
    /// The initial value of a missing counter; `None` leaves it missing.
    pub initial: Option<u64>,
    /// The time limit, retries included; `None` stands for [`Config::timeout`](crate::Config::timeout).
    pub timeout: Option<Duration>,
    /// A number for the caller; the completion returns it.
    pub tag: u64,
}

impl Request {
    /// An operation on `key`; all other fields are empty or 0.
    pub fn new(verb: Verb, key: impl Into<Vec<u8>>) -> Self {
        Self {
            verb,
            key: key.into(),
            value: Vec::new(),
            ttl: 0,
            flags: 0,
            operand: 0,
            initial: None,
            timeout: None,
            tag: 0,
        }
    }

    /// The same with this value.
    #[must_use]
    pub fn value(self, value: impl Into<Vec<u8>>) -> Self {
        Self { value: value.into(), ..self }
    }

    /// The same with this operand.
    #[must_use]
    pub fn operand(self, operand: u64) -> Self {
        Self { operand, ..self }
    }

    /// The same with this time-out.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The same with this tag.
    #[must_use]
    pub fn tag(self, tag: u64) -> Self {
        Self { tag, ..self }
    }

    /// The same, with this time-out if it has none.
    pub(crate) fn timeout_or(self, timeout: Option<Duration>) -> Self {
        Self { timeout: self.timeout.or(timeout), ..self }
    }
}

/// A value with its flags and CAS unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub bytes: Vec<u8>,
    /// The client flags it was stored with.
    pub flags: u32,
    /// Its CAS unique, which changes with each store.
    pub cas: u64,
}

/// The outcome of an operation without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A value was read.
    Value(Value),
    /// The operation was done: stored, deleted, touched, flushed or answered.
    Done {
        /// The item's new CAS unique; 0 if there is none.
        cas: u64,
    },
    /// A number was added or subtracted.
    Number {
        /// The new number, or the bytes of the value.
        number: u64,
        /// The item's new CAS unique.
        cas: u64,
    },
    /// There is no such item.
    Missing,
    /// The item has another CAS unique; nothing was done.
    Exists,
    /// The condition of the store does not hold; nothing was done.
    NotStored,
    /// Lines of the form `name value`, each with its end; or the bytes of a directory.
    Text(Vec<u8>),
}
