//! Asking for a cache line before it is needed.

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
