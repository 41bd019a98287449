//! How much of the store's memory values that are still arriving may take, and how many of whom.

use std::{net::IpAddr, sync::Arc};

use minos_sync::SpinLock;

/// Bounds on the large stores of all workers.
///
/// The lock is taken twice a transfer, and for moments.
#[derive(Debug)]
pub(crate) struct TransferBounds {
    bytes_max: u64,
    per_source_max: usize,
    taken: SpinLock<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    /// A list, because few sources store large values at a time.
    sources: Vec<(IpAddr, usize)>,
}

/// A place among the large stores, and its memory. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    bounds: Arc<TransferBounds>,
    source: IpAddr,
    bytes: u64,
}

impl TransferBounds {
    /// At most `bytes_max` in all, but always room for one value, and `per_source_max` transfers of an address.
    pub(crate) fn new(bytes_max: u64, per_source_max: usize) -> Self {
        Self { bytes_max, per_source_max, taken: SpinLock::new(Taken::default()) }
    }

    /// Takes a place for a value of `bytes` from `source`; `None` if a bound is met.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr, bytes: u64) -> Option<Permit> {
        let mut taken = self.taken.lock();
        let is_too_much = taken.bytes > 0 && taken.bytes.saturating_add(bytes) > self.bytes_max;
        if is_too_much || !taken.add(source, self.per_source_max) {
            return None;
        }
        taken.bytes += bytes;
        Some(Permit { bounds: Arc::clone(self), source, bytes })
    }

    /// The bound on bytes in all.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes of values that are still arriving.
    pub(crate) fn bytes(&self) -> u64 {
        self.taken.lock().bytes
    }
}

impl Taken {
    /// Counts one more transfer of `source`, unless it has `max` already.
    fn add(&mut self, source: IpAddr, max: usize) -> bool {
        match self.sources.iter_mut().find(|(other, _)| *other == source) {
            Some((_, count)) if *count >= max => return false,
            Some((_, count)) => *count += 1,
            None => self.sources.push((source, 1)),
        }
        true
    }

    fn remove(&mut self, source: IpAddr) {
        let Some(at) = self.sources.iter().position(|(other, _)| *other == source) else { return };
        self.sources[at].1 -= 1;
        if self.sources[at].1 == 0 {
            self.sources.swap_remove(at);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.bounds.taken.lock();
        taken.bytes -= self.bytes;
        taken.remove(self.source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn a_source_has_its_share_and_no_more() {
        let bounds = Arc::new(TransferBounds::new(1000, 2));
        let first = bounds.admit(source(1), 1).unwrap();
        let _second = bounds.admit(source(1), 1).unwrap();
        assert!(bounds.admit(source(1), 1).is_none());
        assert!(bounds.admit(source(2), 1).is_some());
        drop(first);
        assert!(bounds.admit(source(1), 1).is_some());
    }

    #[test]
    fn memory_is_bounded_but_one_value_always_fits() {
        let bounds = Arc::new(TransferBounds::new(100, 8));
        let large = bounds.admit(source(1), 5000).unwrap();
        assert!(bounds.admit(source(2), 1).is_none());
        drop(large);
        let _half = bounds.admit(source(1), 60).unwrap();
        assert!(bounds.admit(source(2), 41).is_none());
        assert!(bounds.admit(source(2), 40).is_some());
        assert_eq!(bounds.bytes(), 60);
    }
}
