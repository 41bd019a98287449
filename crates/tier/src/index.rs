//! The memory index, as the log's compaction needs it.

use minos_base::{KeyHash, Seconds};
use minos_engine::{Standing as Named, Tiered};
use minos_flash::{Index, Place, Standing};
use std::ops::Range;

/// The index of an engine, at a time of the store's clock.
pub(crate) struct Names<'a> {
    pub(crate) engine: &'a Tiered,
    pub(crate) now: Seconds,
}

impl Index for Names<'_> {
    fn standing(&mut self, hash: KeyHash, _sequence: u64, page: u32) -> Standing {
        match self.engine.standing(hash, page) {
            Named::Dead => Standing::Dead,
            Named::Named => Standing::Live,
            Named::Read => Standing::Read,
        }
    }

    fn relink(&mut self, hash: KeyHash, _sequence: u64, from: u32, to: Place) -> bool {
        self.engine.move_cold(hash, from, to)
    }

    fn now(&self) -> Seconds {
        self.now
    }

    fn may_expire(&mut self, hash: KeyHash, page: u32) -> bool {
        self.engine.uncovers_nothing(hash, page)
    }

    fn forget(&mut self, hash: KeyHash, _sequence: u64, page: u32) {
        self.engine.forget_cold(hash, page);
    }

    fn forget_pages(&mut self, pages: Range<u32>) -> u64 {
        forget_pages(self.engine, |page| pages.contains(&page))
    }
}

/// Makes the index forget the records of pages, some chains at a time: others get the lock of a partition in between.
/// Returns their number.
pub(crate) fn forget_pages(engine: &Tiered, is_gone: impl Fn(u32) -> bool) -> u64 {
    const BUCKETS: usize = 1024;
    let mut records = 0;
    for partition in 0..engine.partitions() {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let (forgotten, next) = engine.forget_pages(partition, at, BUCKETS, &is_gone);
            (records, cursor) = (records + forgotten, next);
        }
    }
    records
}
