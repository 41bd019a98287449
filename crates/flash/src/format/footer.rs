//! The records of a sealed segment in short: the checkpoint that recovery reads.

use super::{
    Fault, Kind, Life, PAGE_BYTES, RoughLength, Seal, Stream,
    bytes::{put, u32_at, u64_at},
};
use minos_base::{KeyHash, Seconds};

/// Bytes of an entry.
pub const FOOTER_BYTES: usize = 28;
/// Bytes of the trailer, the last of a segment.
pub const TRAILER_BYTES: usize = 48;

const MARK: u64 = u64::from_le_bytes(*b"MinosFlF");
/// Where the trailer's checksum lies in it.
const SUM: usize = TRAILER_BYTES - 8;
/// The unit of offsets.
const UNIT: u32 = 8;
const OFFSET_BITS: u32 = 24;
/// In place of a length.
const TOMBSTONE: u8 = 0xff;

/// One record of a segment.
///
/// ```text
/// 0   key hash   8  sequence   16  expiry; of a tombstone, page of the record that is dead whatever its hash
/// 20  life of the record that it replaces
/// 24  offset in the segment in 8 bytes (24 bits), rough length (8 bits; 255: tombstone)
/// ```
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

    /// Appends the entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let code = self.length.map_or(TOMBSTONE, RoughLength::code);
        out.extend_from_slice(&self.hash.0.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.expiry.to_le_bytes());
        out.extend_from_slice(&self.replaces.0.to_le_bytes());
        out.extend_from_slice(&((self.offset / UNIT) | u32::from(code) << OFFSET_BITS).to_le_bytes());
    }

    #[inline]
    fn decode(entry: &[u8; FOOTER_BYTES]) -> Self {
        let place = u32_at(entry, 24);
        Self {
            hash: KeyHash(u64_at(entry, 0)),
            sequence: u64_at(entry, 8),
            expiry: u32_at(entry, 16),
            replaces: Life(u32_at(entry, 20)),
            offset: (place & ((1 << OFFSET_BITS) - 1)) * UNIT,
            length: RoughLength::from_code((place >> OFFSET_BITS) as u8),
        }
    }
}

/// The end of a segment: which, and how many entries lie before it.
///
/// ```text
/// 0   mark "MinosFlF"   8  table   16  segment   20  life   24  entries   28  stream   29  zeros
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
    /// Number of entries.
    pub count: u32,
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
            count: u32_at(bytes, 24),
            stream: Stream::from_byte(bytes[28])?,
        })
    }
}

/// Bytes at the end of a segment that `count` entries take: whole pages.
pub fn footer_block_bytes(count: u32) -> u64 {
    (u64::from(count) * FOOTER_BYTES as u64 + TRAILER_BYTES as u64).next_multiple_of(PAGE_BYTES as u64)
}

/// Composes the end of a segment from its encoded entries; `end` is the byte behind the segment.
pub fn write_footers(mut entries: Vec<u8>, trailer: Trailer, seal: Seal, end: u64) -> Vec<u8> {
    let len = footer_block_bytes(trailer.count) as usize;
    entries.resize(len, 0);
    let begin = len - TRAILER_BYTES;
    put(&mut entries, begin, &MARK.to_le_bytes());
    put(&mut entries, begin + 8, &trailer.table.to_le_bytes());
    put(&mut entries, begin + 16, &trailer.segment.to_le_bytes());
    put(&mut entries, begin + 20, &trailer.life.0.to_le_bytes());
    put(&mut entries, begin + 24, &trailer.count.to_le_bytes());
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
    entries: &'a [[u8; FOOTER_BYTES]],
}

impl<'a> Footers<'a> {
    /// Verifies the end of a segment; `end` is the byte behind it.
    pub fn decode(block: &'a [u8], seal: Seal, end: u64) -> Result<Self, Fault> {
        let trailer = Trailer::decode(block)?;
        let len = footer_block_bytes(trailer.count);
        if len != block.len() as u64 || len > end {
            return Err(Fault::Length(len));
        }
        let covered = block.len() - 8;
        if seal.sum(trailer.life, end - len, &block[..covered]) != u64_at(block, covered) {
            return Err(Fault::Checksum);
        }
        let (entries, _) = block.as_chunks();
        Ok(Self { trailer, entries: &entries[..trailer.count as usize] })
    }

    /// The entries in the order of their offsets.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Footer> + DoubleEndedIterator + use<'a> {
        self.entries.iter().map(Footer::decode)
    }
}
