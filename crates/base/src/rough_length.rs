//! How much to read for a record.

/// Bytes of a page on flash.
pub const FLASH_PAGE_BYTES: usize = 4096;

/// Steps of 256 bytes, for records no longer than a page.
const STEPS: u64 = 16;
const STEP_BYTES: u64 = FLASH_PAGE_BYTES as u64 / STEPS;
/// The first code of longer records.
const LONG: u64 = 2 * STEPS;
/// Longer records that reach into more pages than this have a rounded number.
const EXACT_PAGES: u64 = 64;
/// The first code of those.
const ROUNDED: u64 = LONG + EXACT_PAGES - 1;

/// A record's rough length, from which the number of pages to read follows.
///
/// ```text
/// 0..16     within one page, in steps of 256 bytes
/// 16..32    as long, but reaching into a second page
/// 32..95    longer than a page: 2 to 64 pages
/// 95..191   more, by eighths of powers of two, rounded up
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoughLength(u8);

impl RoughLength {
    /// Number of codes.
    pub const COUNT: usize = 191;

    /// For a record of `bytes` that reaches into `pages` pages.
    pub fn of(bytes: u64, pages: u64) -> Self {
        let step = bytes.div_ceil(STEP_BYTES).clamp(1, STEPS) - 1;
        let code = match pages {
            0 | 1 => step,
            2 if bytes <= FLASH_PAGE_BYTES as u64 => STEPS + step,
            2..=EXACT_PAGES => LONG + pages - 2,
            _ => {
                let doublings = u64::from(((pages - 1) / EXACT_PAGES).ilog2());
                let eighth = (pages - 1 - (EXACT_PAGES << doublings)) >> (doublings + 3);
                ROUNDED + doublings * 8 + eighth
            }
        };
        Self(code.min(Self::COUNT as u64 - 1) as u8)
    }

    /// The length with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        (usize::from(code) < Self::COUNT).then_some(Self(code))
    }

    /// Its number among all lengths.
    pub fn code(self) -> u8 {
        self.0
    }

    /// Pages to read.
    pub fn pages(self) -> u64 {
        match u64::from(self.0) {
            code if code < STEPS => 1,
            code if code < LONG => 2,
            code if code < ROUNDED => code - LONG + 2,
            code => {
                let (doublings, eighth) = ((code - ROUNDED) / 8, (code - ROUNDED) % 8);
                (EXACT_PAGES + (eighth + 1) * (EXACT_PAGES / 8)) << doublings
            }
        }
    }

    /// No record of this length has more bytes.
    pub fn bytes_max(self) -> u64 {
        let code = u64::from(self.0);
        if code < LONG { (code % STEPS + 1) * STEP_BYTES } else { self.pages() * FLASH_PAGE_BYTES as u64 }
    }

    /// Bytes of a record of this length, about.
    pub fn bytes_typical(self) -> u64 {
        let code = u64::from(self.0);
        if code < LONG {
            self.bytes_max() - STEP_BYTES / 2
        } else {
            (self.pages() - 1) * FLASH_PAGE_BYTES as u64
        }
    }
}
