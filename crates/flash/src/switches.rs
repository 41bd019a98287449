//! Safeguards that a test turns off to see its checks fail. A product build has none of these branches.

/// A safeguard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safeguard {
    /// Checksums depend on life and place.
    Seed,
    /// Writes are made durable.
    Flush,
    /// A segment is used again only after the lanes have passed.
    Epoch,
    /// Deleted and overwritten records stay dead after a crash.
    Tombstones,
    /// So does a record that was forgotten with another key's.
    Places,
    /// What is being copied is not used again.
    Held,
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
