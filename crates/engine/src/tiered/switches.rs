//! Safeguards that a test turns off to see its checks fail. A product build has none of these branches.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safeguard {
    /// A written copy counts only if its item is unchanged.
    Written,
    /// A record comes back only if the index still names it, and nothing newer.
    Promotion,
    /// An item in memory hides records on flash.
    Memory,
    /// Deleted and replaced records stay dead after a power loss.
    Tombstones,
}

/// True unless a test of this thread turned the safeguard off.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn is_on(_: Safeguard) -> bool {
    true
}

#[cfg(test)]
thread_local! {
    static OFF: std::cell::Cell<Option<Safeguard>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn is_on(safeguard: Safeguard) -> bool {
    OFF.get() != Some(safeguard)
}

/// Runs `work` with one safeguard off.
#[cfg(test)]
pub(super) fn without<R>(safeguard: Option<Safeguard>, work: impl FnOnce() -> R) -> R {
    let before = OFF.replace(safeguard);
    let result = work();
    OFF.set(before);
    result
}
