//! Safeguards that a test turns off to see its checks fail.

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
