//! Records and the rule by which they cross pages.

use super::{
    Fault, Life, PAGE_BYTES, STAMP_BYTES, Seal,
    bytes::{put, u32_at, u64_at},
};
use minos_base::{KeyHash, RoughLength, Seconds};
use std::ops::Range;

/// Bytes of a record before its key.
pub const RECORD_HEADER_BYTES: usize = 46;
/// Highest sequence of a record whose key has more than 255 bytes.
pub const SEQUENCE_OF_LONG_KEY_MAX: u64 = u64::MAX >> (64 - KEY_LENGTH_SHIFT);
/// Where the length of a long key begins in the word of the sequence.
const KEY_LENGTH_SHIFT: u32 = 48;
/// The kind, on the device, of an item with a long key.
const LONG_ITEM: u8 = 3;
/// Where the check of the header lies in it.
const CHECK: usize = 42;
/// Records begin at multiples of this.
pub(super) const ALIGN: u64 = 8;
/// A page's bytes without its stamp.
const BODY_BYTES: u64 = (PAGE_BYTES - STAMP_BYTES) as u64;
/// A record that fits a page crosses into the next one only if more than this would be lost. With four times as much,
/// records of 1 KiB took 4 % more pages, and reads of them were 2 % shorter.
pub(super) const LOSS_MAX: u64 = PAGE_BYTES as u64 / 32;
/// A larger record crosses anyway; its header does not.
const ROOM_MIN: u64 = (RECORD_HEADER_BYTES as u64).next_multiple_of(ALIGN);

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A key with its value.
    Item = 1,
    /// The key's records up to this sequence are dead, and those of a page whose slots look like its own.
    Tombstone = 2,
}

/// The beginning of a record.
///
/// ```text
/// 0   checksum of the rest with key and value, seeded with life and place
/// 8   key hash        16  sequence: the CAS unique
/// 24  expiry; of a tombstone, page of the record that is dead whatever its hash, 0 = none
/// 28  client flags    32  value bytes
/// 36  life of the segment with the record that this one replaces, 0 = none
/// 40  key bytes       41  kind (2 bits: 0 = no more records in this page), marks (6 bits)
/// 42  checksum of the bytes from 8 to here, its low half, seeded likewise
/// 46  key, value, zeros up to a multiple of 8
/// ```
///
/// A key of more than 255 bytes has kind 3: its length less one stands in the high 16 bits of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The checksum.
    pub checksum: u64,
    /// The key's hash.
    pub hash: KeyHash,
    /// The CAS unique; of a key's records the one with the highest counts.
    pub sequence: u64,
    /// When it expires, on the store's clock; 0 is never. Of a tombstone, a page.
    pub expiry: Seconds,
    /// Client flags.
    pub flags: u32,
    /// Bytes of the value.
    pub value_bytes: u32,
    /// The life in which the record lies that this one replaces.
    pub replaces: Life,
    /// Bytes of the key, at most 65,536; beside more than 255 the sequence must be at most [`SEQUENCE_OF_LONG_KEY_MAX`].
    pub key_bytes: u32,
    /// Its kind.
    pub kind: Kind,
    /// Marks of the item (stale, encoded key), 6 bits.
    pub marks: u8,
}

impl RecordHeader {
    /// Bytes of the record without the rounding.
    #[inline]
    pub fn bytes(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// All but the checksum of the record.
    fn encode(&self, at: u64, (life, seal): (Life, Seal)) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        put(&mut bytes, 8, &self.hash.0.to_le_bytes());
        let (sequence, key_bytes, kind) = match u8::try_from(self.key_bytes) {
            Ok(key_bytes) => (self.sequence, key_bytes, self.kind as u8),
            Err(_) => {
                let length = u64::from(self.key_bytes - 1) << KEY_LENGTH_SHIFT;
                (length | self.sequence & SEQUENCE_OF_LONG_KEY_MAX, 0, LONG_ITEM)
            }
        };
        put(&mut bytes, 16, &sequence.to_le_bytes());
        put(&mut bytes, 24, &self.expiry.to_le_bytes());
        put(&mut bytes, 28, &self.flags.to_le_bytes());
        put(&mut bytes, 32, &self.value_bytes.to_le_bytes());
        put(&mut bytes, 36, &self.replaces.0.to_le_bytes());
        bytes[40] = key_bytes;
        bytes[41] = kind | self.marks << 2;
        let check = seal.sum(life, at, &bytes[8..CHECK]) as u32;
        put(&mut bytes, CHECK, &check.to_le_bytes());
        bytes
    }

    /// Reads the header at byte `at` of the device. `None`: zeros, no more records.
    ///
    /// It is verified by itself, so that a reader can walk over records that it does not verify.
    pub(super) fn decode(bytes: &[u8], at: u64, (life, seal): (Life, Seal)) -> Result<Option<Self>, Fault> {
        let header = bytes
            .get(..RECORD_HEADER_BYTES)
            .ok_or(Fault::Short { len: bytes.len(), needed: RECORD_HEADER_BYTES })?;
        let kind = match header[41] & 3 {
            0 if header.iter().all(|&byte| byte == 0) => return Ok(None),
            0 => return Err(Fault::Kind(0)),
            2 => Kind::Tombstone,
            _ => Kind::Item,
        };
        if seal.sum(life, at, &header[8..CHECK]) as u32 != u32_at(header, CHECK) {
            return Err(Fault::Checksum);
        }
        let sequence = u64_at(header, 16);
        let (sequence, key_bytes) = if header[41] & 3 == LONG_ITEM {
            (sequence & SEQUENCE_OF_LONG_KEY_MAX, (sequence >> KEY_LENGTH_SHIFT) as u32 + 1)
        } else {
            (sequence, header[40].into())
        };
        Ok(Some(Self {
            checksum: u64_at(header, 0),
            hash: KeyHash(u64_at(header, 8)),
            sequence,
            expiry: u32_at(header, 24),
            flags: u32_at(header, 28),
            value_bytes: u32_at(header, 32),
            replaces: Life(u32_at(header, 36)),
            key_bytes,
            kind,
            marks: header[41] >> 2,
        }))
    }

    /// Writes the record into `pages`, of which the first lies at byte `base` of the device, at `offset`.
    ///
    /// `pages` reach to its end. Stamps are left as they are.
    pub fn write(
        &self,
        parts: [&[u8]; 2],
        pages: &mut [u8],
        base: u64,
        offset: usize,
        (life, seal): (Life, Seal),
    ) {
        let at = base + offset as u64;
        let mut header = self.encode(at, (life, seal));
        let [key, value] = parts;
        let end = [&header, key, value].into_iter().fold(offset, |at, part| scatter(pages, at, part));
        let sum = if end <= (offset / PAGE_BYTES + 1) * PAGE_BYTES {
            seal.sum(life, at, &pages[offset + 8..end])
        } else {
            seal.sum_of_pieces(life, at, [&header[8..], key, value].into_iter())
        };
        put(&mut header, 0, &sum.to_le_bytes());
        put(pages, offset, &header[..8]);
    }
}

/// Copies `bytes` to `at` and on, around the stamps. Returns the offset behind them.
fn scatter(pages: &mut [u8], mut at: usize, mut bytes: &[u8]) -> usize {
    while !bytes.is_empty() {
        if at.is_multiple_of(PAGE_BYTES) {
            at += STAMP_BYTES;
        }
        let (now, later) = bytes.split_at(bytes.len().min(PAGE_BYTES - at % PAGE_BYTES));
        put(pages, at, now);
        (at, bytes) = (at + now.len(), later);
    }
    at
}

/// The offset at which a record of `bytes` begins if `next` is the first free one.
pub fn position_of(next: u64, bytes: u64) -> u64 {
    let next = next.next_multiple_of(ALIGN);
    let page = next - next % PAGE_BYTES as u64;
    let next = next.max(page + STAMP_BYTES as u64);
    let room = page + PAGE_BYTES as u64 - next;
    let is_split = bytes > room && if bytes <= BODY_BYTES { room > LOSS_MAX } else { room >= ROOM_MIN };
    if bytes <= room || is_split { next } else { page + (PAGE_BYTES + STAMP_BYTES) as u64 }
}

/// The offset behind a record of `bytes` that begins at `offset`, rounded up.
#[inline]
pub fn end_of(offset: u64, bytes: u64) -> u64 {
    let bytes = bytes.next_multiple_of(ALIGN);
    let room = PAGE_BYTES as u64 - offset % PAGE_BYTES as u64;
    if bytes <= room {
        return offset + bytes;
    }
    let rest = bytes - room;
    offset + bytes + rest.div_ceil(BODY_BYTES) * STAMP_BYTES as u64
}

/// Pages that a record of `bytes` at `offset` reaches into.
pub fn pages_of(offset: u64, bytes: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    (end_of(offset, bytes) - 1) / page - offset / page + 1
}

/// The bytes of its first two pages in which a record lies that would fit one page and reaches into a second one.
///
/// No other record that begins in that page reaches into the next. `None`: a record of this length may lie anywhere in its
/// pages.
pub fn window_of(length: RoughLength) -> Option<Range<usize>> {
    let most = length.bytes_max() as usize;
    let is_crossing = length.pages() == 2 && most <= BODY_BYTES as usize;
    is_crossing.then(|| PAGE_BYTES - most..PAGE_BYTES + STAMP_BYTES + most - LOSS_MAX as usize)
}

/// Bytes of a record as its unverified header says, unless its key is long.
pub(super) fn rough_bytes(header: &[u8]) -> u64 {
    RECORD_HEADER_BYTES as u64 + u64::from(header[40]) + u64::from(u32_at(header, 32))
}

/// A record in pages that were read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Its key.
    pub key: Span<'a>,
    /// Its value.
    pub value: Span<'a>,
    /// Its offset in the pages.
    pub offset: usize,
}

/// Bytes of a record, without the stamps between them.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    pages: &'a [u8],
    begin: usize,
    len: usize,
}

impl<'a> Span<'a> {
    /// The `len` bytes from the `skip`th on of what begins at `offset`.
    pub(super) fn new(pages: &'a [u8], offset: usize, skip: usize, len: usize) -> Self {
        let room = PAGE_BYTES - offset % PAGE_BYTES;
        let begin = match skip.checked_sub(room) {
            None => offset + skip,
            Some(rest) => offset + skip + (rest / BODY_BYTES as usize + 1) * STAMP_BYTES,
        };
        Self { pages, begin, len }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes in one piece, if no stamp is between them.
    pub fn contiguous(&self) -> Option<&'a [u8]> {
        if self.is_empty() {
            return Some(&[]);
        }
        let end = self.begin + self.len;
        (end <= (self.begin / PAGE_BYTES + 1) * PAGE_BYTES).then(|| &self.pages[self.begin..end])
    }

    /// The bytes, a piece a page.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (pages, mut at, mut left) = (self.pages, self.begin, self.len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let len = left.min(PAGE_BYTES - at % PAGE_BYTES);
            let piece = &pages[at..at + len];
            (at, left) = (at + len + STAMP_BYTES, left - len);
            Some(piece)
        })
    }

    /// True if these are the bytes.
    pub fn equals(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let starts = |piece: &[u8]| match rest.strip_prefix(piece) {
            Some(behind) => {
                rest = behind;
                true
            }
            None => false,
        };
        self.len == bytes.len() && self.pieces().all(starts)
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}
