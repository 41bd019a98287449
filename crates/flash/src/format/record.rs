//! Records and the rule by which they cross pages.

use super::{
    Fault, Life, PAGE_BYTES, STAMP_BYTES, Seal,
    bytes::{put, put_uint, u16_at, u32_at, u64_at, uint_at, width_of},
};
use minos_base::{KeyHash, RoughLength, Seconds};
use std::ops::Range;

/// Bytes of a record before the numbers in its header.
pub const RECORD_HEADER_BYTES_MIN: usize = 24;
/// Most bytes before its key.
pub(super) const RECORD_HEADER_BYTES_MAX: usize = RECORD_HEADER_BYTES_MIN + 4 * 4 + 8 + 1;
/// Where the header's check lies in it.
const CHECK: usize = 8;
/// The part of the header that the check covers begins here, with the hash.
const HASH: usize = 12;
const KEY_BYTES: usize = 20;
const KIND: usize = 21;
const WIDTHS: usize = 22;
/// The kind, on the device, of an item with a long key.
const LONG_ITEM: u8 = 3;
/// Numbers in a header without their leading zeros: four of 32 bits, one of 64.
const NUMBERS: usize = 5;
const WIDTH_BITS: usize = 3;
const WIDTH_MASK: usize = (1 << WIDTH_BITS) - 1;
/// Records begin at multiples of this.
pub(super) const ALIGN: u64 = 8;
/// A page's bytes without its stamp.
const BODY_BYTES: u64 = (PAGE_BYTES - STAMP_BYTES) as u64;
/// A record that fits a page crosses into the next one only if more than this would be lost. With eight times as much,
/// records of 1 KiB took 4 % more pages, and reads of them were 2 % shorter.
pub(super) const LOSS_MAX: u64 = PAGE_BYTES as u64 / 64;
/// A larger record crosses anyway; its header does not.
const ROOM_MIN: u64 = (RECORD_HEADER_BYTES_MAX as u64).next_multiple_of(ALIGN);
const _: () = assert!(ROOM_MIN <= LOSS_MAX);

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
/// 8   checksum of the header from 12 on, its low half, seeded likewise
/// 12  key hash
/// 20  key bytes       21  kind (2 bits: 0 = no more records in this page), marks (6 bits)
/// 22  widths of the numbers that follow, in bytes: 3 bits for each of the first four, 4 for the last
/// 24  value bytes, client flags, expiry (of a tombstone, page of the record that is dead whatever its hash), life of the
///     segment with the record that this one replaces, sequence (the CAS unique)
///     key, value, zeros up to a multiple of 8
/// ```
///
/// A number has no zeros at its high end, 0 no bytes. With a key of more than 255 bytes the kind is 3, the byte at 20 is the
/// low one of the length less one, and the high one comes before the key.
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
    /// Bytes of the key, at most 65,536.
    pub key_bytes: u32,
    /// Its kind.
    pub kind: Kind,
    /// Marks of the item (stale, encoded key), 6 bits.
    pub marks: u8,
}

impl RecordHeader {
    /// Bytes of the record before its key.
    #[inline]
    pub(super) fn bytes_before_key(&self) -> usize {
        let numbers: usize = self.numbers().into_iter().map(width_of).sum();
        RECORD_HEADER_BYTES_MIN + numbers + usize::from(self.has_long_key())
    }

    /// The numbers of which leading zeros are left out, in their order.
    #[inline]
    fn numbers(&self) -> [u64; NUMBERS] {
        let four = [self.value_bytes, self.flags, self.expiry, self.replaces.0].map(u64::from);
        [four[0], four[1], four[2], four[3], self.sequence]
    }

    #[inline]
    fn has_long_key(&self) -> bool {
        self.key_bytes > u8::MAX.into()
    }

    /// Bytes of the record without the rounding.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes_before_key() as u64 + u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// All but the checksum of the record, and its length.
    fn encode(&self, at: u64, (life, seal): (Life, Seal)) -> ([u8; RECORD_HEADER_BYTES_MAX], usize) {
        let mut bytes = [0; RECORD_HEADER_BYTES_MAX];
        put(&mut bytes, HASH, &self.hash.0.to_le_bytes());
        let (mut end, mut widths) = (RECORD_HEADER_BYTES_MIN, 0);
        for (place, number) in self.numbers().into_iter().enumerate() {
            let width = width_of(number);
            widths |= (width as u16) << (WIDTH_BITS * place);
            end = put_uint(&mut bytes, end, number, width);
        }
        put(&mut bytes, WIDTHS, &widths.to_le_bytes());
        let mut kind = self.kind as u8;
        bytes[KEY_BYTES] = self.key_bytes as u8;
        if self.has_long_key() {
            kind = LONG_ITEM;
            bytes[KEY_BYTES] = (self.key_bytes - 1) as u8;
            end = put_uint(&mut bytes, end, u64::from((self.key_bytes - 1) >> 8), 1);
        }
        bytes[KIND] = kind | self.marks << 2;
        let check = seal.sum(life, at, &bytes[HASH..end]) as u32;
        put(&mut bytes, CHECK, &check.to_le_bytes());
        (bytes, end)
    }

    /// Reads the header at byte `at` of the device. `None`: zeros, no more records.
    ///
    /// It is verified by itself, so that a reader can walk over records that it does not verify.
    pub(super) fn decode(bytes: &[u8], at: u64, (life, seal): (Life, Seal)) -> Result<Option<Self>, Fault> {
        let first = |needed| bytes.get(..needed).ok_or(Fault::Short { len: bytes.len(), needed });
        let header = first(RECORD_HEADER_BYTES_MIN)?;
        let kind = match header[KIND] & 3 {
            0 if header.iter().all(|&byte| byte == 0) => return Ok(None),
            0 => return Err(Fault::Kind(0)),
            2 => Kind::Tombstone,
            _ => Kind::Item,
        };
        let is_long = header[KIND] & 3 == LONG_ITEM;
        let (widths, numbers_end) = widths_of(header)?;
        let header = first(numbers_end + usize::from(is_long))?;
        if seal.sum(life, at, &header[HASH..]) as u32 != u32_at(header, CHECK) {
            return Err(Fault::Checksum);
        }
        let mut end = RECORD_HEADER_BYTES_MIN;
        let numbers = widths.map(|width| {
            end += width;
            // What follows the header may be read, and is masked.
            uint_at(bytes, end - width, width)
        });
        let mut key_bytes = u32::from(header[KEY_BYTES]);
        if is_long {
            key_bytes = (key_bytes | u32::from(header[end]) << 8) + 1;
        }
        let [value_bytes, flags, expiry, replaces, sequence] = numbers;
        Ok(Some(Self {
            checksum: u64_at(header, 0),
            hash: KeyHash(u64_at(header, HASH)),
            sequence,
            expiry: expiry as Seconds,
            flags: flags as u32,
            value_bytes: value_bytes as u32,
            replaces: Life(replaces as u32),
            key_bytes,
            kind,
            marks: header[KIND] >> 2,
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
        let (encoded, before_key) = self.encode(at, (life, seal));
        let header = &encoded[..before_key];
        let [key, value] = parts;
        let end = [header, key, value].into_iter().fold(offset, |at, part| scatter(pages, at, part));
        let sum = if end <= (offset / PAGE_BYTES + 1) * PAGE_BYTES {
            seal.sum(life, at, &pages[offset + 8..end])
        } else {
            seal.sum_of_pieces(life, at, [&header[8..], key, value].into_iter())
        };
        put(pages, offset, &sum.to_le_bytes());
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

/// The widths of a header's numbers, and where they end.
#[inline]
fn widths_of(header: &[u8]) -> Result<([usize; NUMBERS], usize), Fault> {
    let packed = u16_at(header, WIDTHS);
    let width = |place: usize| usize::from(packed >> (WIDTH_BITS * place)) & WIDTH_MASK;
    let widths = [width(0), width(1), width(2), width(3), usize::from(packed >> (WIDTH_BITS * 4))];
    if widths[..4].iter().any(|&width| width > 4) || widths[4] > 8 {
        return Err(Fault::Widths(packed));
    }
    Ok((widths, RECORD_HEADER_BYTES_MIN + widths.iter().sum::<usize>()))
}

/// The hash of the record that begins here, unverified.
#[inline]
pub(super) fn rough_hash(header: &[u8]) -> u64 {
    u64_at(header, HASH)
}

/// Bytes of a record as its unverified header says, unless its key is long.
pub(super) fn rough_bytes(header: &[u8]) -> Option<u64> {
    let (widths, end) = widths_of(header).ok()?;
    let value_bytes = uint_at(header, RECORD_HEADER_BYTES_MIN, widths[0]);
    Some(end as u64 + u64::from(header[KEY_BYTES]) + value_bytes)
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
