//! Shared words, with and without the right to store, and asking for their cache lines.

use crate::facade::{AtomicU64, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// A shared word that can be loaded. It is one atomic word of eight bytes and nothing else.
pub trait Word: sealed::Sealed {
    /// The word's present value.
    fn load(&self, ordering: Ordering) -> u64;
}

/// A shared word that can only be loaded, because its memory may be mapped to be read only.
#[derive(Debug)]
#[repr(transparent)]
pub struct ReadWord(AtomicU64);

impl sealed::Sealed for AtomicU64 {}
impl sealed::Sealed for ReadWord {}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, ordering: Ordering) -> u64 {
        Self::load(self, ordering)
    }
}

impl Word for ReadWord {
    #[inline(always)]
    fn load(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }
}

impl ReadWord {
    /// The word's present value.
    #[inline(always)]
    pub fn load(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }
}

/// Asks the processor to bring the cache line of `target` near. Changes nothing else.
#[inline(always)]
pub fn prefetch<T>(target: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint and touches no memory in the sense of the language; SSE is
        // part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(target).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = target;
}
