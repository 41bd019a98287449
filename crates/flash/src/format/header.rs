//! The first page of a segment.

use super::{
    Fault, Life, PAGE_BYTES, Seal, Stream,
    bytes::{put, u32_at, u64_at},
};

const MARK: u64 = u64::from_le_bytes(*b"MinosFlS");

/// Names the segment and its life; written with the first chunk.
///
/// ```text
/// 0   checksum of the rest of the page, seeded with life and place
/// 8   mark "MinosFlS"   16  table   24  segment   28  life   32  stream   33  zeros
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The table.
    pub table: u64,
    /// The segment's number.
    pub segment: u32,
    /// Its life.
    pub life: Life,
    /// The stream that it belongs to.
    pub stream: Stream,
}

impl SegmentHeader {
    /// Composes the page at byte `at` of the device into `page`, which is zero.
    pub fn encode(&self, seal: Seal, at: u64, page: &mut [u8]) {
        put(page, 8, &MARK.to_le_bytes());
        put(page, 16, &self.table.to_le_bytes());
        put(page, 24, &self.segment.to_le_bytes());
        put(page, 28, &self.life.0.to_le_bytes());
        page[32] = self.stream as u8;
        let sum = seal.sum(self.life, at, &page[8..PAGE_BYTES]);
        put(page, 0, &sum.to_le_bytes());
    }

    /// Reads the page that lies at byte `at` of the device.
    pub fn decode(page: &[u8], seal: Seal, at: u64) -> Result<Self, Fault> {
        let page = page.get(..PAGE_BYTES).ok_or(Fault::Short { len: page.len(), needed: PAGE_BYTES })?;
        if u64_at(page, 8) != MARK {
            return Err(Fault::Mark(u64_at(page, 8)));
        }
        let life = Life(u32_at(page, 28));
        if seal.sum(life, at, &page[8..]) != u64_at(page, 0) {
            return Err(Fault::Checksum);
        }
        let stream = Stream::from_byte(page[32])?;
        Ok(Self { table: u64_at(page, 16), segment: u32_at(page, 24), life, stream })
    }
}
