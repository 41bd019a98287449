//! Pages of a segment, and the records in them.

use super::{
    Fault, Kind, Life, PAGE_BYTES, RECORD_HEADER_BYTES_MIN, Record, RecordHeader, STAMP_BYTES, Seal, Span,
    bytes::{put, put_uint, u16_at, uint_at},
    record::{ALIGN, LOSS_MAX, RECORD_HEADER_BYTES_MAX, end_of, rough_bytes, rough_hash},
};
use minos_base::KeyHash;
use std::ops::Range;

/// Where the offset of the first record lies in a stamp, behind the checksum.
const FIRST: usize = 6;

/// The beginning of a page.
///
/// ```text
/// 0   checksum of the next 2 bytes, its low 6 bytes, seeded with life and place
/// 6   offset of the first record that begins here, 0 = none
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The offset of the first record that begins in the page; 0 if none does.
    pub first: u16,
}

impl Stamp {
    /// Composes the stamp of the page at byte `at` of the device, in a segment's `life`.
    pub fn encode(&self, (life, seal): (Life, Seal), at: u64, page: &mut [u8]) {
        put(page, FIRST, &self.first.to_le_bytes());
        let sum = seal.sum(life, at, &page[FIRST..STAMP_BYTES]);
        put_uint(page, 0, sum, FIRST);
    }

    /// Reads the stamp of the page at byte `at` of the device, in a segment's `life`.
    pub fn decode(page: &[u8], (life, seal): (Life, Seal), at: u64) -> Result<Self, Fault> {
        let stamp = page.get(..STAMP_BYTES).ok_or(Fault::Short { len: page.len(), needed: STAMP_BYTES })?;
        let sum = seal.sum(life, at, &stamp[FIRST..]);
        if uint_at(&sum.to_le_bytes(), 0, FIRST) != uint_at(stamp, 0, FIRST) {
            return Err(Fault::Checksum);
        }
        let first = u16_at(stamp, FIRST);
        if first != 0 && !(STAMP_BYTES..PAGE_BYTES).contains(&usize::from(first)) {
            return Err(Fault::Length(u64::from(first)));
        }
        Ok(Self { first })
    }
}

/// The offset of the first record that begins in a page, or of the one behind the record at `last`, as unverified bytes
/// say: a hint of what to prefetch. `None`: none is seen.
pub fn next_record_hint(page: &[u8], last: Option<usize>) -> Option<usize> {
    let at = match last {
        None => usize::from(u16_at(page.get(..STAMP_BYTES)?, FIRST)),
        Some(last) => {
            let header = page.get(last..last + RECORD_HEADER_BYTES_MAX)?;
            end_of(last as u64, rough_bytes(header)?) as usize
        }
    };
    (at >= STAMP_BYTES && at + RECORD_HEADER_BYTES_MIN <= PAGE_BYTES).then_some(at)
}

/// Consecutive pages of one segment, read from the device.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    bytes: &'a [u8],
    at: u64,
    life: Life,
    seal: Seal,
}

impl<'a> Pages<'a> {
    /// The pages that were read from byte `at` of the device, in a segment that had this life at that time.
    pub fn new(bytes: &'a [u8], at: u64, life: Life, seal: Seal) -> Self {
        Self { bytes: &bytes[..bytes.len() - bytes.len() % PAGE_BYTES], at, life, seal }
    }

    /// Number of pages.
    pub fn count(&self) -> usize {
        self.bytes.len() / PAGE_BYTES
    }

    /// The stamp of a page.
    pub fn stamp(&self, page: usize) -> Result<Stamp, Fault> {
        let begin = page * PAGE_BYTES;
        let bytes = self.bytes.get(begin..).ok_or(Fault::Length(begin as u64))?;
        Stamp::decode(bytes, (self.life, self.seal), self.at + begin as u64)
    }

    /// The newest record of `key` that begins in the first page, verified. `None`: no record there has the key.
    ///
    /// The pages need to reach to the end of that record only. If they end within the last record of the first
    /// page, and the key was not found before that, the result is [`Fault::Length`]: read on.
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record<'a>>, Fault> {
        let mut newest: Option<Record<'a>> = None;
        let mut at = usize::from(self.stamp(0)?.first);
        while at < PAGE_BYTES {
            let (record, end) = match self.unverified(at) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(Fault::Length(_)) if newest.is_some() => break,
                Err(fault) => return Err(fault),
            };
            // A record of this hash that does not verify hides what it was: an older one is no answer.
            if record.header.hash == hash {
                let is_ours = self.verify(record)?.key.equals(key) || record.header.kind == Kind::Tombstone;
                let is_newest = newest.is_none_or(|it| it.header.sequence <= record.header.sequence);
                newest = if is_ours && is_newest { Some(record) } else { newest };
            }
            at = end;
        }
        Ok(newest.filter(|record| record.header.kind == Kind::Item))
    }

    /// The offset of the item of `key` that begins in the first page and reaches into the second, of which only this
    /// [`window_of`](super::window_of) them was read. Its header is verified, not yet the rest.
    ///
    /// `None`: it is not there; both pages tell why.
    pub fn find_crossing(&self, hash: KeyHash, key: &[u8], window: Range<usize>) -> Option<usize> {
        let begins = window.start.max(STAMP_BYTES)..PAGE_BYTES - LOSS_MAX as usize;
        let is_ours = |at: usize| {
            let Ok(Some((record, end))) = self.unverified(at) else { return false };
            let is_item = record.header.kind == Kind::Item && record.header.hash == hash;
            is_item && (PAGE_BYTES + 1..=window.end).contains(&end) && record.key.equals(key)
        };
        // A value may have the bytes of a hash; a header's check tells it.
        begins.step_by(ALIGN as usize).find(|&at| rough_hash(&self.bytes[at..]) == hash.0 && is_ours(at))
    }

    /// Calls `f` with the header and the key of each record that begins in the first page, the oldest first. Only headers are
    /// verified: the hash of a key says whether it is the one.
    ///
    /// The pages need to reach to the end of the key that is sought: a record whose key they do not hold is left out, as the
    /// last one of a page may be.
    ///
    /// # Errors
    /// A stamp or a header does not verify.
    pub fn heads(&self, mut f: impl FnMut(&RecordHeader, Span<'a>)) -> Result<(), Fault> {
        let mut at = usize::from(self.stamp(0)?.first);
        while at >= STAMP_BYTES && at + RECORD_HEADER_BYTES_MIN <= PAGE_BYTES {
            let sealed = (self.life, self.seal);
            let Some(header) = RecordHeader::decode(&self.bytes[at..], self.at + at as u64, sealed)? else {
                break;
            };
            let before = header.bytes_before_key();
            if end_of(at as u64, before as u64 + u64::from(header.key_bytes)) > self.bytes.len() as u64 {
                break;
            }
            f(&header, Span::new(self.bytes, at, before, header.key_bytes as usize));
            at = end_of(at as u64, header.bytes()) as usize;
        }
        Ok(())
    }

    /// The verified record at `offset`, and the offset behind it. `None`: no more begins in that page.
    pub fn record(&self, offset: usize) -> Result<Option<(Record<'a>, usize)>, Fault> {
        let Some((record, end)) = self.unverified(offset)? else { return Ok(None) };
        Ok(Some((self.verify(record)?, end)))
    }

    /// A record of which the header alone is verified.
    fn unverified(&self, offset: usize) -> Result<Option<(Record<'a>, usize)>, Fault> {
        let (page, within) = (offset / PAGE_BYTES, offset % PAGE_BYTES);
        if within < STAMP_BYTES || PAGE_BYTES - within < RECORD_HEADER_BYTES_MIN || page >= self.count() {
            return Ok(None);
        }
        let (at, sealed) = (self.at + offset as u64, (self.life, self.seal));
        let Some(header) = RecordHeader::decode(&self.bytes[offset..], at, sealed)? else { return Ok(None) };
        let end = end_of(offset as u64, header.bytes());
        if end > self.bytes.len() as u64 {
            return Err(Fault::Length(header.bytes()));
        }
        let span = |skip, len| Span::new(self.bytes, offset, skip, len);
        let before = header.bytes_before_key();
        let key = span(before, header.key_bytes as usize);
        let value = span(before + key.len(), header.value_bytes as usize);
        Ok(Some((Record { header, key, value, offset }, end as usize)))
    }

    fn verify(&self, record: Record<'a>) -> Result<Record<'a>, Fault> {
        let covered = Span::new(self.bytes, record.offset, 8, record.header.bytes() as usize - 8);
        let at = self.at + record.offset as u64;
        let sum = match covered.contiguous() {
            Some(bytes) => self.seal.sum(self.life, at, bytes),
            None => self.seal.sum_of_pieces(self.life, at, covered.pieces()),
        };
        if sum == record.header.checksum { Ok(record) } else { Err(Fault::Checksum) }
    }
}
