//! The identity of a table.

use super::{
    Fault, Layout, PAGE_BYTES,
    bytes::{put, u32_at, u64_at},
};
use xxhash_rust::xxh3::xxh3_64;

const MARK: u64 = u64::from_le_bytes(*b"MinosFlT");
/// Bytes of the fields; the rest of the page is zeros.
const FIELD_BYTES: usize = 64;
/// Bytes that may rot behind the fields.
const ROTTEN_MAX: usize = 1;

/// The first page of a table, written once when it is made.
///
/// ```text
/// 0   checksum of the rest of the page, not seeded
/// 8   mark "MinosFlT"        16  version, 0            24  table
/// 32  seed of checksums      40  seed of key hashes    48  clock's zero, seconds since 1970
/// 56  segment bytes          60  segments              64  zeros
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// A random number that names the table.
    pub table: u64,
    /// The secret seed of its checksums.
    pub seed: u64,
    /// The secret seed of its key hashes.
    pub hash_seed: u64,
    /// The second since 1970 that expiry times count from.
    pub clock_zero_unix_s: u64,
    /// Its segments.
    pub layout: Layout,
}

impl Superblock {
    /// 2: records cross pages where 128 bytes would be lost, not 512. 3: the length of a long key has bytes of its own.
    /// 4: numbers in headers and footers have no leading zeros, stamps have 8 bytes, segments have no header page.
    pub const VERSION: u32 = 4;

    /// Composes the page.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let fields =
            [MARK, u64::from(Self::VERSION), self.table, self.seed, self.hash_seed, self.clock_zero_unix_s];
        for (number, field) in fields.iter().enumerate() {
            put(&mut page, 8 + 8 * number, &field.to_le_bytes());
        }
        put(&mut page, 56, &self.layout.segment_bytes().to_le_bytes());
        put(&mut page, 60, &self.layout.segments().to_le_bytes());
        let sum = xxh3_64(&page[8..]);
        put(&mut page, 0, &sum.to_le_bytes());
        page
    }

    /// The page of a table that is being made: no superblock yet, but ours.
    pub fn unfinished() -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        put(&mut page, 8, &MARK.to_le_bytes());
        page
    }

    /// Reads both copies' pages: one of them is enough, if nothing else was written into the other. A partition table, a
    /// swap header or a RAID's superblock leaves the other page as it was, and the table's segments are somebody else's.
    ///
    /// # Errors
    /// [`Fault::Foreign`], or what is wrong with the first page that has the mark.
    pub fn of_copies<'a>(pages: impl Iterator<Item = &'a [u8]>) -> Result<Self, Fault> {
        let read: Vec<_> = pages.map(|page| (page, Self::decode(page))).collect();
        // A page of another version may have other fields.
        let is_broken = |decoded: &Result<_, _>| matches!(decoded, Err(Fault::Mark(_) | Fault::Checksum));
        if read.iter().any(|(page, decoded)| is_broken(decoded) && has_more(page)) {
            return Err(Fault::Foreign);
        }
        if let Some(superblock) = read.iter().find_map(|(_, decoded)| decoded.ok()) {
            return Ok(superblock);
        }
        let faults: Vec<_> = read.iter().filter_map(|(_, decoded)| decoded.err()).collect();
        let of_marked = faults.iter().find(|fault| !matches!(fault, Fault::Mark(_)));
        Err(*of_marked.or(faults.first()).unwrap_or(&Fault::Checksum))
    }

    /// Reads the page.
    pub fn decode(page: &[u8]) -> Result<Self, Fault> {
        let page = page.get(..PAGE_BYTES).ok_or(Fault::Short { len: page.len(), needed: PAGE_BYTES })?;
        if u64_at(page, 8) != MARK {
            return Err(Fault::Mark(u64_at(page, 8)));
        }
        if xxh3_64(&page[8..]) != u64_at(page, 0) {
            return Err(Fault::Checksum);
        }
        if u64_at(page, 16) != u64::from(Self::VERSION) {
            return Err(Fault::Version(u32_at(page, 16)));
        }
        let layout = Layout::new(u32_at(page, 56), u32_at(page, 60))?;
        let [table, seed, hash_seed, clock_zero_unix_s] = [24, 32, 40, 48].map(|at| u64_at(page, at));
        Ok(Self { table, seed, hash_seed, clock_zero_unix_s, layout })
    }
}

/// True if more is written behind the fields than what rots.
fn has_more(page: &[u8]) -> bool {
    page.iter().skip(FIELD_BYTES).filter(|byte| **byte != 0).count() > ROTTEN_MAX
}
