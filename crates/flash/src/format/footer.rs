//! The records of a sealed segment in short: the checkpoint that recovery reads.

use super::{
    Fault, Kind, Life, PAGE_BYTES, RoughLength, Seal, Stream,
    bytes::{put, put_uint, u16_at, u32_at, u64_at, uint_at, width_of},
};
use minos_base::{KeyHash, Seconds};

/// Bytes of an entry before its numbers.
const FIXED_BYTES: usize = 11;
const LENGTH: usize = 8;
const WIDTHS: usize = 9;
/// Bytes that are read of an entry, whatever its widths say. The trailer is longer.
const ROOM_BYTES: usize = FIXED_BYTES + 3 * WIDTH_MASK + 8;
const _: () = assert!(ROOM_BYTES <= TRAILER_BYTES);
/// Most bytes of an entry.
pub const FOOTER_BYTES_MAX: usize = FIXED_BYTES + 3 + 4 + 4 + 8;
/// Bytes of the trailer, the last of a segment.
pub const TRAILER_BYTES: usize = 48;

const MARK: u64 = u64::from_le_bytes(*b"MinosFlF");
/// Where the trailer's checksum lies in it.
const SUM: usize = TRAILER_BYTES - 8;
/// The unit of offsets.
const UNIT: u32 = 8;
/// In place of a length.
const TOMBSTONE: u8 = 0xff;
/// Numbers of an entry.
const NUMBERS: usize = 4;
const WIDTH_BITS: usize = 3;
const WIDTH_MASK: usize = (1 << WIDTH_BITS) - 1;

/// One record of a segment.
///
/// ```text
/// 0   key hash   8  rough length (255: tombstone)
/// 9   widths of the numbers that follow, in bytes: 3 bits for each of the first three, 4 for the last
/// 11  offset in the segment in 8 bytes, less that of the entry before
///     expiry (of a tombstone, page of the record that is dead whatever its hash), life of the record that it replaces,
///     sequence: their differing bits from those of the entry before
/// ```
///
/// A number has no zeros at its high end, 0 no bytes. Before the first entry all numbers are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The key's hash.
    pub hash: KeyHash,
    /// Its sequence.
    pub sequence: u64,
    /// When it expires; 0 is never. Of a tombstone, the page in [`Footer::buries`].
    pub expiry: Seconds,
    /// The life in which the record lies that this one replaces.
    pub replaces: Life,
    /// Its offset in the segment, in bytes.
    pub offset: u32,
    /// Its length; `None` for a tombstone.
    pub length: Option<RoughLength>,
}

impl Footer {
    /// The record's kind.
    pub fn kind(&self) -> Kind {
        if self.length.is_some() { Kind::Item } else { Kind::Tombstone }
    }

    /// The place of the record that a tombstone buries, whatever its hash: page and life.
    #[inline]
    pub fn buries(&self) -> Option<(u32, Life)> {
        (self.length.is_none() && self.expiry != 0).then_some((self.expiry, self.replaces))
    }

    /// The numbers of its entry behind that of `before`.
    #[inline]
    fn numbers(&self, before: &Self) -> [u64; NUMBERS] {
        let offset = (self.offset - before.offset) / UNIT;
        let [offset, expiry, replaces] =
            [offset, self.expiry ^ before.expiry, self.replaces.0 ^ before.replaces.0].map(u64::from);
        [offset, expiry, replaces, self.sequence ^ before.sequence]
    }

    /// Reads the entry that begins here and follows `before`, and its length. `None`: no entry is like this.
    #[inline]
    fn decode(entry: &[u8; ROOM_BYTES], before: &Self) -> Option<(Self, usize)> {
        let packed = usize::from(u16_at(entry, WIDTHS));
        let (width, last) =
            (|place: usize| packed >> (WIDTH_BITS * place) & WIDTH_MASK, packed >> (WIDTH_BITS * 3));
        if last > 8 {
            return None;
        }
        // The last one begins within what three widths of 7 bytes leave: no index is out of bounds.
        let expiry_at = FIXED_BYTES + width(0);
        let replaces_at = expiry_at + width(1);
        let sequence_at = replaces_at + width(2);
        let offset = uint_at(entry, FIXED_BYTES, width(0)) as u32;
        let footer = Self {
            hash: KeyHash(u64_at(entry, 0)),
            sequence: before.sequence ^ uint_at(entry, sequence_at, last),
            expiry: before.expiry ^ uint_at(entry, expiry_at, width(1)) as Seconds,
            replaces: Life(before.replaces.0 ^ uint_at(entry, replaces_at, width(2)) as u32),
            offset: before.offset.checked_add(offset.checked_mul(UNIT)?)?,
            length: RoughLength::from_code(entry[LENGTH]),
        };
        Some((footer, sequence_at + last))
    }
}

/// Before the first entry.
const START: Footer =
    Footer { hash: KeyHash(0), sequence: 0, expiry: 0, replaces: Life::NONE, offset: 0, length: None };

/// Composes the entries of a segment, in the order of their offsets.
#[derive(Clone, Debug)]
pub struct FooterWriter {
    bytes: Vec<u8>,
    before: Footer,
}

impl Default for FooterWriter {
    fn default() -> Self {
        Self { bytes: Vec::new(), before: START }
    }
}

impl FooterWriter {
    /// Appends an entry, if those of the segment then fit a block of at most `block_bytes`. Returns true if it did.
    pub fn push(&mut self, footer: &Footer, block_bytes: u64) -> bool {
        let mut entry = [0; FOOTER_BYTES_MAX];
        put(&mut entry, 0, &footer.hash.0.to_le_bytes());
        entry[LENGTH] = footer.length.map_or(TOMBSTONE, RoughLength::code);
        let (mut end, mut widths) = (FIXED_BYTES, 0);
        for (place, number) in footer.numbers(&self.before).into_iter().enumerate() {
            let width = width_of(number);
            widths |= (width as u16) << (WIDTH_BITS * place);
            end = put_uint(&mut entry, end, number, width);
        }
        put(&mut entry, WIDTHS, &widths.to_le_bytes());
        let is_room = footer_block_bytes((self.bytes.len() + end) as u32) <= block_bytes;
        if is_room {
            self.bytes.extend_from_slice(&entry[..end]);
            self.before = *footer;
        }
        is_room
    }

    /// The entries.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The end of a segment: which, and how many bytes of entries lie before it.
///
/// ```text
/// 0   mark "MinosFlF"   8  table   16  segment   20  life   24  bytes of entries   28  stream   29  zeros
/// 40  checksum of the pages from the first entry to here, seeded with life and place
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The table.
    pub table: u64,
    /// The segment's number.
    pub segment: u32,
    /// Its life.
    pub life: Life,
    /// Bytes of the entries.
    pub entry_bytes: u32,
    /// The stream that it belongs to.
    pub stream: Stream,
}

impl Trailer {
    /// Reads the last bytes of a segment; [`Footers::decode`] verifies them.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() < TRAILER_BYTES {
            return Err(Fault::Short { len: bytes.len(), needed: TRAILER_BYTES });
        }
        let bytes = &bytes[bytes.len() - TRAILER_BYTES..];
        if u64_at(bytes, 0) != MARK {
            return Err(Fault::Mark(u64_at(bytes, 0)));
        }
        Ok(Self {
            table: u64_at(bytes, 8),
            segment: u32_at(bytes, 16),
            life: Life(u32_at(bytes, 20)),
            entry_bytes: u32_at(bytes, 24),
            stream: Stream::from_byte(bytes[28])?,
        })
    }
}

/// Bytes at the end of a segment that entries of so many bytes take: whole pages.
pub fn footer_block_bytes(entry_bytes: u32) -> u64 {
    (u64::from(entry_bytes) + TRAILER_BYTES as u64).next_multiple_of(PAGE_BYTES as u64)
}

/// Composes the end of a segment from its entries, as many bytes as the trailer says; `end` is the byte behind the segment.
pub fn write_footers(mut entries: Vec<u8>, trailer: Trailer, seal: Seal, end: u64) -> Vec<u8> {
    let len = footer_block_bytes(trailer.entry_bytes) as usize;
    entries.resize(len, 0);
    let begin = len - TRAILER_BYTES;
    put(&mut entries, begin, &MARK.to_le_bytes());
    put(&mut entries, begin + 8, &trailer.table.to_le_bytes());
    put(&mut entries, begin + 16, &trailer.segment.to_le_bytes());
    put(&mut entries, begin + 20, &trailer.life.0.to_le_bytes());
    put(&mut entries, begin + 24, &trailer.entry_bytes.to_le_bytes());
    entries[begin + 28] = trailer.stream as u8;
    let sum = seal.sum(trailer.life, end - len as u64, &entries[..begin + SUM]);
    put(&mut entries, begin + SUM, &sum.to_le_bytes());
    entries
}

/// The entries of a segment, verified.
#[derive(Clone, Copy, Debug)]
pub struct Footers<'a> {
    /// The end of the segment.
    pub trailer: Trailer,
    block: &'a [u8],
}

impl<'a> Footers<'a> {
    /// Verifies the end of a segment; `end` is the byte behind it.
    pub fn decode(block: &'a [u8], seal: Seal, end: u64) -> Result<Self, Fault> {
        let trailer = Trailer::decode(block)?;
        let len = footer_block_bytes(trailer.entry_bytes);
        if len != block.len() as u64 || len > end {
            return Err(Fault::Length(len));
        }
        let covered = block.len() - 8;
        if seal.sum(trailer.life, end - len, &block[..covered]) != u64_at(block, covered) {
            return Err(Fault::Checksum);
        }
        Ok(Self { trailer, block })
    }

    /// The entries in the order of their offsets.
    pub fn iter(&self) -> impl Iterator<Item = Footer> + use<'a> {
        let (block, len, mut at, mut before) = (self.block, self.trailer.entry_bytes as usize, 0, START);
        std::iter::from_fn(move || {
            let (footer, entry_bytes) = Footer::decode(block.get(at..)?.first_chunk()?, &before)?;
            at += entry_bytes;
            if at > len {
                return None;
            }
            before = footer;
            Some(footer)
        })
    }
}
