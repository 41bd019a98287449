//! How long records are, as far as their footers tell: these have rough lengths, and where records begin.

use crate::format::{Footer, PAGE_BYTES, RoughLength, STAMP_BYTES};

/// A number of records, and their bytes.
type Sum = (u64, u64);

/// Records with the same rough length.
#[derive(Clone, Copy, Debug, Default)]
struct Alike {
    records: u64,
    /// Those that another one follows in the page in which they end.
    followed: Sum,
    /// Those that end a page, with its lost end, which may be as long as they are.
    last: Sum,
}

impl Alike {
    fn bytes(&self) -> u64 {
        let (known, bytes) = if self.followed.0 > 0 { self.followed } else { self.last };
        (u128::from(bytes) * u128::from(self.records) / u128::from(known.max(1))) as u64
    }
}

/// What recovery learns of lengths.
#[derive(Clone, Debug)]
pub(super) struct Lengths([Alike; RoughLength::COUNT]);

impl Default for Lengths {
    fn default() -> Self {
        Self([Alike::default(); RoughLength::COUNT])
    }
}

impl Lengths {
    /// Learns of the record before `next`, in the order of their places.
    pub(super) fn learn(&mut self, before: Option<Footer>, next: &Footer) {
        let Some((Footer { offset, .. }, length)) = before.and_then(|it| Some((it, it.length?))) else {
            return;
        };
        let page = |offset: u32| u64::from(offset) / PAGE_BYTES as u64;
        let stamps = (page(next.offset) - page(offset)) * STAMP_BYTES as u64;
        // A page between the two may not have verified.
        let bytes = (u64::from(next.offset - offset) - stamps).min(length.bytes_max());
        let alike = &mut self.0[usize::from(length.code())];
        let is_first = next.offset as usize % PAGE_BYTES == STAMP_BYTES;
        let sum = if is_first { &mut alike.last } else { &mut alike.followed };
        (sum.0, sum.1) = (sum.0 + 1, sum.1 + bytes);
        alike.records += 1;
    }

    /// Bytes of records, and the same by their rough lengths.
    pub(super) fn sums(&self) -> (u64, u64) {
        let typical = (0..).map_while(RoughLength::from_code).map(RoughLength::bytes_typical);
        self.0.iter().zip(typical).fold((0, 0), |(exact, rough), (alike, typical)| {
            (exact + alike.bytes(), rough + alike.records * typical)
        })
    }
}
