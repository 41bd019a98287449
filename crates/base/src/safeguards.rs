//! Safeguards that a test turns off to see its checks fail.

/// True in a build with debug assertions, as tests have, if the variable `MINOS_LEFT_OUT` names this part of the program:
/// the controls run so. Other builds have none of these branches.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn is_left_out(_part: &str) -> bool {
    false
}

/// True if the variable `MINOS_LEFT_OUT` names this part of the program.
#[cfg(debug_assertions)]
pub fn is_left_out(part: &str) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    // Names as hashes, of which none is 0: ThreadSanitizer would not see how a lock of the standard library hands a text
    // over.
    let hash = |name: &str| xxhash_rust::xxh3::xxh3_64(name.as_bytes()) | 1;
    static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
    if LEFT_OUT.load(Relaxed) == 0 {
        LEFT_OUT.store(hash(&std::env::var("MINOS_LEFT_OUT").unwrap_or_default()), Relaxed);
    }
    LEFT_OUT.load(Relaxed) == hash(part)
}

/// Declares the safeguards of a module: the enum `Safeguard`, `is_on`, and for tests `without`, which runs its
/// argument with one of them off in this thread. A product build has none of these branches.
#[macro_export]
macro_rules! safeguards {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A safeguard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Safeguard { $($(#[$doc])* $name,)* }

        /// True unless a test of this thread turned the safeguard off.
        #[cfg(not(test))]
        #[inline(always)]
        pub(crate) fn is_on(_: Safeguard) -> bool {
            true
        }

        #[cfg(test)]
        thread_local! {
            static OFF: std::cell::Cell<Option<Safeguard>> = const { std::cell::Cell::new(None) };
        }

        #[cfg(test)]
        pub(crate) fn is_on(safeguard: Safeguard) -> bool {
            OFF.get() != Some(safeguard)
        }

        /// Runs `work` with one safeguard off.
        #[cfg(test)]
        pub(crate) fn without<R>(safeguard: Option<Safeguard>, work: impl FnOnce() -> R) -> R {
            let before = OFF.replace(safeguard);
            let result = work();
            OFF.set(before);
            result
        }
    };
}
