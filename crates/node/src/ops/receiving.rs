//! A bound on the store's memory for values that are still arriving over streams.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Default part of the memory for large values that are still arriving: what a cache keeps for large values
/// alone, so that half-sent values evict no small items.
pub(crate) const MEMORY_PART: u64 = 8;

/// A bound on the memory of values that are still arriving. The numbers order nothing.
#[derive(Debug)]
pub(crate) struct Receiving {
    bytes_max: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
}

/// Memory for a value that is still arriving, released when dropped.
#[derive(Debug)]
pub(crate) struct ReceivePermit {
    receiving: Arc<Receiving>,
    bytes: u64,
}

impl Receiving {
    /// At most `bytes_max` bytes in total, but always room for one value.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max: AtomicU64::new(bytes_max), bytes: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Takes memory for a value of `bytes`; `None` if too much is in use.
    pub(crate) fn admit(self: &Arc<Self>, bytes: u64) -> Option<ReceivePermit> {
        let add = |taken: u64| {
            let sum = taken.saturating_add(bytes);
            (taken == 0 || sum <= self.bytes_max()).then_some(sum)
        };
        if self.bytes.fetch_update(Relaxed, Relaxed, add).is_err() {
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        Some(ReceivePermit { receiving: Arc::clone(self), bytes })
    }

    /// The bound on the total bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }

    /// Changes the bound for values that begin to arrive from now on.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Emits the bytes still arriving and the number of values refused.
    pub(crate) fn emit(&self, emit: &mut dyn FnMut(&str, &dyn Display)) {
        emit("receiving_bytes", &self.bytes.load(Relaxed));
        emit("receiving_refused", &self.refused.load(Relaxed));
    }
}

impl Drop for ReceivePermit {
    fn drop(&mut self) {
        self.receiving.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_but_one_value_always_fits() {
        let receiving = Arc::new(Receiving::new(100));
        let large = receiving.admit(5000).unwrap();
        assert!(receiving.admit(1).is_none());
        drop(large);
        let _half = receiving.admit(60).unwrap();
        assert!(receiving.admit(41).is_none());
        let rest = receiving.admit(40).unwrap();
        assert!(receiving.admit(1).is_none());
        drop(rest);
        assert!(receiving.admit(40).is_some());
        assert_eq!(receiving.refused.load(Relaxed), 3);
    }
}
