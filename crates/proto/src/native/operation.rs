//! A client's operations.
//!
//! ```text
//!  0 1 opcode          1 1 flags    2 2 key_bytes     4 4 request    8 8 direction
//! and from opcode 0x10 on
//! 16 4 value_bytes    20 4 ttl     24 4 item_flags   28 4 once      32 8 operand
//! ```
//!
//! then the key, the value, and zeros up to the next multiple of 8 bytes.

use minos_base::{KeyHash, limits::KEY_BYTES_MAX};

use super::{
    Header, Kind, LONG_HEAD_BYTES, Malformed, SHORT_HEAD_BYTES,
    bytes::{head, put, u16_at, u32_at, u64_at},
    records::{Record, Records, behind_padding},
};

/// In the `item_flags` of a DIRECTORY: the client reads weights, too.
pub const DIRECTORY_WEIGHTS: u32 = 1;
/// In the `item_flags` of a DIRECTORY: the client reads copies, too, and wants to know of those that the ring does not name.
pub const DIRECTORY_COPIES: u32 = 2;

coded! {
    /// The operation. A record of an unknown one is well formed, and so can be answered.
    Opcode: u8, from_byte, to_byte;
    /// Read a value.
    Get = 1,
    /// Nothing; answered all the same.
    Noop = 2,
    /// Store a value.
    Put = 0x10,
    /// Store a value if there is none.
    Add = 0x11,
    /// Store a value if there is one.
    Replace = 0x12,
    /// Add to the end of a value.
    Append = 0x13,
    /// Add to the beginning of a value.
    Prepend = 0x14,
    /// Store a value if the item's CAS unique is the operand.
    Compare = 0x15,
    /// Delete the item, if its CAS unique is the operand or that is 0.
    Delete = 0x16,
    /// Give the item a new expiry.
    Touch = 0x17,
    /// Read a value and give the item a new expiry.
    GetTouch = 0x18,
    /// Add the operand to a number.
    Incr = 0x19,
    /// Subtract the operand from a number, at most down to 0.
    Decr = 0x1a,
    /// Send ranges of fragments of a value whose CAS unique is the operand.
    Fetch = 0x20,
    /// Lines about the server.
    Stats = 0x21,
    /// Drop all items, now or later.
    Flush = 0x22,
    /// The bytes of a rack's directory, from the operand on.
    Directory = 0x23,
}

impl Opcode {
    /// The lowest opcode whose head is long.
    pub const LONG_MIN: u8 = 0x10;

    /// True if it carries a [`Detail`] and a value.
    #[inline]
    pub const fn is_long(self) -> bool {
        self.to_byte() >= Self::LONG_MIN
    }

    /// Bytes of its head.
    #[inline]
    pub const fn head_bytes(self) -> usize {
        if self.is_long() { LONG_HEAD_BYTES } else { SHORT_HEAD_BYTES }
    }

    /// True if it stores the value that it carries, and so may be [`OpFlags::DEFERRED`].
    #[inline]
    pub const fn is_store(self) -> bool {
        matches!(self, Self::Put | Self::Add | Self::Replace | Self::Append | Self::Prepend | Self::Compare)
    }

    /// True if it names an item, and so has a key of at least one byte.
    #[inline]
    pub const fn names_item(self) -> bool {
        !matches!(self, Self::Noop | Self::Stats | Self::Flush | Self::Directory | Self::Unknown(_))
    }
}

/// Bytes of a [`Detail`].
const DETAIL_BYTES: usize = LONG_HEAD_BYTES - SHORT_HEAD_BYTES;

/// Marks of an operation. Marks that this version does not know are carried along and mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpFlags(pub u8);
marks!(OpFlags);

impl OpFlags {
    /// Executed once, however often it arrives: [`Detail::once`] is its number within the session.
    pub const ONCE: Self = Self(1);
    /// A missing number is created: the value is the 8-byte number that it starts with.
    pub const CREATE: Self = Self(2);
    /// The value is not in the record: it comes in fragments, [`Detail::value_bytes`] in all.
    pub const DEFERRED: Self = Self(4);
    /// A GET that may be answered from a copy in another unit, which may be as old as the rack allows.
    pub const COPIES: Self = Self(8);
}

/// The fields that only opcodes from [`Opcode::LONG_MIN`] on have; all zero for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Bytes of the value. Written from the value itself, unless that is [`OpFlags::DEFERRED`].
    pub value_bytes: u32,
    /// Expiry as memcached's: 0 never; up to 30 days in seconds from now; above, seconds since 1970; negative
    /// at once.
    pub ttl: i32,
    /// The flags that the client stores with the item.
    pub item_flags: u32,
    /// The number of the operation within the session, if it is [`OpFlags::ONCE`].
    pub once: u32,
    /// A CAS unique, a delta, or the first line or byte requested, by opcode.
    pub operand: u64,
}

/// An operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The operation.
    pub opcode: Opcode,
    /// Its marks.
    pub flags: OpFlags,
    /// The client's number of the operation, echoed in the reply.
    pub request: u32,
    /// The key's direction, as sent by the client. A server replaces it by the hash of its own table.
    pub hash: KeyHash,
    /// The key: 1 to [`KEY_BYTES_MAX`] bytes, or none if the opcode needs none.
    pub key: &'a [u8],
    /// The rest of a long head.
    pub detail: Detail,
    /// The value; empty if it is [`OpFlags::DEFERRED`] or the opcode is short.
    pub value: &'a [u8],
}

impl<'a> Operation<'a> {
    /// A GET of `key`.
    pub const fn get(request: u32, hash: KeyHash, key: &'a [u8]) -> Self {
        let detail = Detail { value_bytes: 0, ttl: 0, item_flags: 0, once: 0, operand: 0 };
        Self { opcode: Opcode::Get, flags: OpFlags::NONE, request, hash, key, detail, value: &[] }
    }

    /// Bytes of its record before it is padded.
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.opcode.head_bytes() + self.key.len() + self.value_here().len()
    }

    /// The value as far as it stands in the record.
    #[inline]
    pub(super) const fn value_here(&self) -> &'a [u8] {
        if self.flags.contains(OpFlags::DEFERRED) || !self.opcode.is_long() { &[] } else { self.value }
    }

    /// The head of its record, up to the [`Detail`].
    #[inline]
    pub(super) fn head(&self) -> [u8; SHORT_HEAD_BYTES] {
        let mut out = [0; SHORT_HEAD_BYTES];
        put(&mut out, 0, [self.opcode.to_byte(), self.flags.0]);
        put(&mut out, 2, (self.key.len() as u16).to_le_bytes());
        put(&mut out, 4, self.request.to_le_bytes());
        put(&mut out, 8, self.hash.0.to_le_bytes());
        out
    }

    /// The [`Detail`] in its record.
    #[inline]
    pub(super) fn detail_bytes(&self) -> [u8; DETAIL_BYTES] {
        let mut out = [0; DETAIL_BYTES];
        let is_deferred = self.flags.contains(OpFlags::DEFERRED);
        let value_bytes = if is_deferred { self.detail.value_bytes } else { self.value.len() as u32 };
        put(&mut out, 0, value_bytes.to_le_bytes());
        put(&mut out, 4, self.detail.ttl.to_le_bytes());
        put(&mut out, 8, self.detail.item_flags.to_le_bytes());
        put(&mut out, 12, self.detail.once.to_le_bytes());
        put(&mut out, 16, self.detail.operand.to_le_bytes());
        out
    }
}

impl<'a> Record<'a> for Operation<'a> {
    const KIND: Kind = Kind::Request;

    #[inline(always)]
    fn parse(records: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (short, behind) = head::<SHORT_HEAD_BYTES>(records, Malformed::Record)?;
        let opcode = Opcode::from_byte(short[0]);
        let flags = OpFlags(short[1]);
        let (detail, behind) =
            if opcode.is_long() { read_detail(behind)? } else { (Detail::default(), behind) };
        let key_bytes = usize::from(u16_at(short, 2));
        if key_bytes > KEY_BYTES_MAX || (key_bytes == 0 && opcode.names_item()) {
            return Err(Malformed::Key);
        }
        let is_deferred = flags.contains(OpFlags::DEFERRED);
        let value_bytes = if is_deferred { 0 } else { detail.value_bytes as usize };
        let (key, behind) = behind.split_at_checked(key_bytes).ok_or(Malformed::Record)?;
        let (value, behind) = behind.split_at_checked(value_bytes).ok_or(Malformed::Record)?;
        let (request, hash) = (u32_at(short, 4), KeyHash(u64_at(short, 8)));
        let operation = Self { opcode, flags, request, hash, key, detail, value };
        Ok((operation, behind_padding(behind, operation.bytes())?))
    }
}

#[inline]
fn read_detail(bytes: &[u8]) -> Result<(Detail, &[u8]), Malformed> {
    let (bytes, behind) = head::<DETAIL_BYTES>(bytes, Malformed::Record)?;
    let detail = Detail {
        value_bytes: u32_at(bytes, 0),
        ttl: u32_at(bytes, 4).cast_signed(),
        item_flags: u32_at(bytes, 8),
        once: u32_at(bytes, 12),
        operand: u64_at(bytes, 16),
    };
    Ok((detail, behind))
}

/// The operations of a request.
pub type Operations<'a> = Records<'a, Operation<'a>>;

/// The operations of `datagram`, whose header is `header`: none if that is no request.
#[inline]
pub fn operations<'d>(datagram: &'d [u8], header: &Header) -> Operations<'d> {
    Records::new(datagram, header)
}
