//! Memory for a region that somebody else maps.

use rustix::io::Errno;
use std::{fmt, ptr::NonNull, sync::Arc};

/// Who maps memory for one region, and keeps it mapped while it lives.
///
/// # Safety
/// Memory that is returned begins at a multiple of 4 KiB, and stays until the lender is dropped. It is returned once, and
/// nothing else in this process refers to it.
pub unsafe trait Lender: fmt::Debug + Send + Sync {
    /// Memory for a new region: zeroed, can be read and written, and no other process writes it. `None` if there is none,
    /// or it was lent before.
    fn lend(&self) -> Option<NonNull<[u8]>> {
        None
    }

    /// Memory of another process, which writes it: it can be read. `None` as above.
    fn lend_to_read(&self) -> Option<NonNull<[u8]>> {
        None
    }
}

/// A lender, kept as long as a region has its memory.
#[derive(Clone, Debug)]
pub struct Lent(Arc<dyn Lender>);

impl Lent {
    /// Memory of this lender.
    pub fn by(lender: Arc<dyn Lender>) -> Self {
        Self(lender)
    }

    /// At least `bytes` of memory.
    pub(crate) fn take(&self, bytes: usize) -> Result<NonNull<[u8]>, Errno> {
        let memory = self.0.lend().ok_or(Errno::BUSY)?;
        if memory.len() < bytes { Err(Errno::NOMEM) } else { Ok(memory) }
    }

    /// The memory, to be read.
    pub(crate) fn take_to_read(&self) -> Result<NonNull<[u8]>, Errno> {
        self.0.lend_to_read().ok_or(Errno::BUSY)
    }
}

impl PartialEq for Lent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Lent {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backing, Offset, Region};
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    };

    const BYTES: usize = 1 << 20;

    /// Memory of the heap, which must outlive the region.
    #[derive(Debug)]
    struct Heap {
        pages: Mutex<Vec<Page>>,
        is_lent: AtomicBool,
    }

    #[derive(Clone, Debug)]
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    impl Heap {
        fn new() -> Arc<Self> {
            let pages = Mutex::new(vec![Page([0; 4096]); BYTES / 4096]);
            Arc::new(Self { pages, is_lent: AtomicBool::new(false) })
        }
    }

    // SAFETY: the pages are zeroed, lent once, touched by nobody else, and live as long as this value.
    unsafe impl Lender for Heap {
        fn lend(&self) -> Option<NonNull<[u8]>> {
            let first = NonNull::new(self.pages.lock().unwrap().as_mut_ptr())?;
            let is_lent = self.is_lent.swap(true, Relaxed);
            (!is_lent).then(|| NonNull::slice_from_raw_parts(first.cast(), BYTES))
        }
    }

    #[test]
    fn a_region_lives_in_lent_memory() {
        let heap = Heap::new();
        let backing = Backing::Lent(Lent::by(heap.clone()));
        let region = Region::map(BYTES as u64, &backing).unwrap();
        region.word(Offset::from_words(3)).store(7, Relaxed);
        assert!(Region::map(BYTES as u64, &backing).is_err(), "lent twice");
        drop(region);
        assert_eq!(heap.pages.lock().unwrap()[0].0[24], 7);
        assert_eq!(Arc::strong_count(&heap), 2, "the region keeps its lender no longer");
    }

    #[test]
    fn memory_to_write_is_not_lent_to_readers_nor_twice() {
        let lent = Lent::by(Heap::new());
        assert_eq!(lent.take_to_read(), Err(Errno::BUSY));
        assert!(lent.take(BYTES).is_ok() && lent.take(BYTES).is_err());
    }

    #[test]
    fn too_little_lent_memory_is_refused() {
        let backing = Backing::Lent(Lent::by(Heap::new()));
        let error = Region::map(2 * BYTES as u64, &backing).unwrap_err();
        assert!(error.to_string().contains("lent"), "{error}");
    }
}
