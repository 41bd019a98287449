//! The client's side of memcache text and RESP: requests are composed, replies are read in any pieces.
//!
//! A [`ReplyReader`] takes all bytes that arrive and never buffers a value: it passes the value's bytes to a
//! [`ReplySink`], or the caller drops them unread. [`ReplyReader::value_bytes_left`] tells the caller how
//! many of them may be discarded in the kernel. Nothing is allocated for an operation.

mod compose;
mod reader;
mod reply;

pub use compose::{compose_get, compose_set_head, compose_set_tail};
pub use reader::{Advance, ReplyReader};
pub use reply::{NoSink, Refusal, Reply, ReplyError, ReplySink};

/// Which language a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached's classic text protocol.
    Memcache,
    /// Redis' serialization protocol, version 2.
    Resp,
}
