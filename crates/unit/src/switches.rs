//! Safeguards that a test turns off to see its checks fail. A product build has none of these branches.

/// A safeguard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safeguard {
    /// A reader looks at the ownership word again after its read.
    #[cfg_attr(not(test), expect(dead_code, reason = "the simulation's reader is the only one here"))]
    SecondLook,
    /// A reader compares the bucket's version.
    #[cfg_attr(not(test), expect(dead_code, reason = "the simulation's reader is the only one here"))]
    Version,
    /// An answer leaves only under a lease.
    Lease,
    /// Writers past their check finish before changes are taken for the last time.
    PassOfLocks,
    /// Changes during a copy are noted.
    #[cfg_attr(not(test), expect(dead_code, reason = "the simulation's writer notes them"))]
    Log,
    /// A restarted node owns under a higher epoch only.
    HigherEpoch,
    /// A restarted node's words are withdrawn before its memory is repaired.
    #[cfg_attr(not(test), expect(dead_code, reason = "the simulation restarts nodes"))]
    NoneFirst,
    /// Items of an earlier ownership are removed before the next.
    Emptying,
    /// A dead node's micro-shards wait for its readers.
    Fence,
}

/// True unless a test of this thread turned the safeguard off.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn is_on(_: Safeguard) -> bool {
    true
}

#[cfg(test)]
pub(crate) use tests::{is_on, without};

#[cfg(test)]
mod tests {
    use super::Safeguard;
    use std::cell::Cell;

    thread_local! {
        static OFF: Cell<Option<Safeguard>> = const { Cell::new(None) };
    }

    pub(crate) fn is_on(safeguard: Safeguard) -> bool {
        OFF.get() != Some(safeguard)
    }

    /// Runs `work` with one safeguard off.
    pub(crate) fn without<R>(safeguard: Option<Safeguard>, work: impl FnOnce() -> R) -> R {
        let before = OFF.replace(safeguard);
        let result = work();
        OFF.set(before);
        result
    }
}
