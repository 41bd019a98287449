//! The native datagram protocol: headers, records and bodies, both ways, without I/O.
//!
//! A datagram is a [`Header`], then records ([`Operation`]s in a request, [`ReplyRecord`]s in a reply) or one
//! body ([`Hello`], [`Welcome`], [`DataHead`], [`FragmentHead`], [`AckHead`]), then, where it is sealed, a
//! tag ([`SealKey`]). Everything is little-endian. `docs/native-protocol.md` shows it byte by byte, with the
//! duties of client and server; the vectors of operations in a datagram are those of vector interfaces §3.1,
//! the direction by the client that of MICA §4.2.
//!
//! Reading borrows from the datagram, writing appends to a buffer that the caller has made large enough:
//! nothing here allocates. Bytes from a socket never cause a panic: unreadable ones give [`Malformed`].

mod bytes;
#[macro_use]
mod codes;
mod composer;
mod directory;
mod header;
mod operation;
mod records;
mod reply;
mod seal;
mod transfer;

pub use composer::Composer;
pub use directory::{Access, HELLO_BYTES, Hello, WELCOME_BYTES, Welcome, WelcomeFlags};
pub use header::{Flags, Header, Kind, Reason, refusal_of, version_of};
pub use operation::{
    DIRECTORY_COPIES, DIRECTORY_WEIGHTS, Detail, OpFlags, Opcode, Operation, Operations, operations,
};
pub use records::{Record, Records};
pub use reply::{Replies, ReplyRecord, Status, replies};
pub use seal::{BadSecret, SealKey, SealKeys, Secret};
pub use transfer::{
    ACK_HEAD_BYTES, AckHead, AckState, DATA_HEAD_BYTES, DataHead, FRAGMENT_HEAD_BYTES, FragmentHead,
    FragmentRange, Fragments, GRANT_BYTES, Grant, RANGE_BYTES, RANGES_MAX, Ranges, push_ranges,
};

/// The first two bytes of every datagram.
pub const MAGIC: [u8; 2] = *b"Mn";

/// The version that is spoken here.
pub const VERSION: u8 = 2;

/// Bytes of a [`Header`].
pub const HEADER_BYTES: usize = 48;

/// Where the header names the queue, a `u16`: at a fixed place in all versions, so that a socket filter can
/// steer by it.
pub const QUEUE_OFFSET: usize = 6;

/// Bytes of the tag at the end of a sealed datagram.
pub const TAG_BYTES: usize = 16;

/// Records begin at multiples of this many bytes from the beginning of their datagram.
pub const RECORD_ALIGN: usize = 8;

/// Bytes of an operation's head, if its opcode is below [`Opcode::LONG_MIN`].
pub const SHORT_HEAD_BYTES: usize = 16;

/// Bytes of an operation's head, if its opcode is at least [`Opcode::LONG_MIN`].
pub const LONG_HEAD_BYTES: usize = 40;

/// Bytes of a reply record's head.
pub const REPLY_HEAD_BYTES: usize = 24;

/// Least bytes of a [`Hello`] datagram, with padding and tag: more than its answer has, so that forging
/// a source address amplifies nothing.
pub const HELLO_DATAGRAM_BYTES: usize = 256;

/// Least value of a side's `datagram_bytes_max`: a record with the longest key and a number fits.
pub const DATAGRAM_BYTES_MIN: usize = 512;

/// Largest UDP payload over IPv4, in bytes, and so the largest value of `datagram_bytes_max`.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Default for `datagram_bytes_max`, where the path takes as much: eight of them make a train, and a large
/// value costs no more than over TCP. The client bounds it by the MTU of its path.
pub const DATAGRAM_BYTES_DEFAULT: usize = 8192;

/// `datagram_bytes_max` for an unknown path: fits an Ethernet frame over IPv6 with room for a tunnel's tag.
pub const DATAGRAM_BYTES_ETHERNET: usize = 1448;

/// Once numbers that a server remembers for a session, and most that a client may have unanswered.
pub const ONCE_WINDOW: u16 = 128;

/// Most segments in one train.
pub const TRAIN_SEGMENTS_MAX: usize = 64;

/// Most bytes in one train.
pub const TRAIN_BYTES_MAX: usize = 65_000;

/// Why a datagram, or a part of one, could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than a header has.
    #[error("shorter than a header")]
    Short,
    /// The first two bytes are not [`MAGIC`].
    #[error("not a datagram of this protocol")]
    Magic,
    /// A version that is not spoken here.
    #[error("version {0} is not spoken here")]
    Version(u8),
    /// A kind that this version does not have.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// The length lies beyond the datagram's end, or before the end of its mandatory part.
    #[error("the length does not fit the datagram")]
    Length,
    /// More records than there are bytes for.
    #[error("more records than fit")]
    Count,
    /// A record reaches beyond the datagram's length.
    #[error("a record reaches beyond the end")]
    Record,
    /// A key that is missing, or longer than [`KEY_BYTES_MAX`](minos_base::limits::KEY_BYTES_MAX).
    #[error("the key is missing or too long")]
    Key,
    /// A body that is too short, or with a number that cannot be.
    #[error("the body makes no sense")]
    Body,
}

/// `bytes` rounded up to where the next record begins.
#[inline]
pub const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(RECORD_ALIGN)
}
