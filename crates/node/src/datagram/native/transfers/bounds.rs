//! Bounds on the memory for values that are still arriving, and on their number by address.

use std::{net::IpAddr, sync::Arc};

use minos_sync::SpinLock;

/// Bounds on the large stores of all workers.
///
/// A transfer takes the lock twice, for moments.
#[derive(Debug)]
pub(crate) struct TransferBounds {
    limits: TransferLimits,
    taken: SpinLock<Taken>,
}

/// The bounds. There is always room for one value, of an address and in total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferLimits {
    /// Bytes in total.
    pub(crate) bytes_max: u64,
    /// Bytes of an address.
    pub(crate) source_bytes_max: u64,
    /// Stores of an address.
    pub(crate) source_max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    /// A list, because few sources store large values at a time.
    sources: Vec<Source>,
}

#[derive(Debug)]
struct Source {
    address: IpAddr,
    count: usize,
    bytes: u64,
}

/// A permit for a large store and its memory, released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    bounds: Arc<TransferBounds>,
    source: IpAddr,
    bytes: u64,
}

impl TransferBounds {
    /// Nothing is taken yet.
    pub(crate) fn new(limits: TransferLimits) -> Self {
        Self { limits, taken: SpinLock::new(Taken::default()) }
    }

    /// Takes a permit for a value of `bytes` from `source`; `None` if a bound is reached.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr, bytes: u64) -> Option<Permit> {
        let mut taken = self.taken.lock();
        if exceeds(taken.bytes, bytes, self.limits.bytes_max) || !taken.add(source, bytes, &self.limits) {
            return None;
        }
        taken.bytes += bytes;
        Some(Permit { bounds: Arc::clone(self), source, bytes })
    }

    /// The bound on the total bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.limits.bytes_max
    }

    /// Bytes of values that are still arriving.
    pub(crate) fn bytes(&self) -> u64 {
        self.taken.lock().bytes
    }
}

impl Taken {
    /// Counts one more transfer of an address, unless the address has reached a bound.
    fn add(&mut self, address: IpAddr, bytes: u64, limits: &TransferLimits) -> bool {
        let known = self.sources.iter_mut().find(|source| source.address == address);
        let Some(source) = known else {
            self.sources.push(Source { address, count: 1, bytes });
            return true;
        };
        if source.count >= limits.source_max || exceeds(source.bytes, bytes, limits.source_bytes_max) {
            return false;
        }
        source.count += 1;
        source.bytes += bytes;
        true
    }

    fn remove(&mut self, address: IpAddr, bytes: u64) {
        let Some(at) = self.sources.iter().position(|source| source.address == address) else { return };
        let source = &mut self.sources[at];
        source.count -= 1;
        source.bytes -= bytes;
        if source.count == 0 {
            self.sources.swap_remove(at);
        }
    }
}

/// True if `bytes` more than `taken` exceed `max`. One value always fits.
fn exceeds(taken: u64, bytes: u64, max: u64) -> bool {
    taken > 0 && taken.saturating_add(bytes) > max
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.bounds.taken.lock();
        taken.bytes -= self.bytes;
        taken.remove(self.source, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn bounds(bytes_max: u64, source_bytes_max: u64, source_max: usize) -> Arc<TransferBounds> {
        Arc::new(TransferBounds::new(TransferLimits { bytes_max, source_bytes_max, source_max }))
    }

    #[test]
    fn a_source_leaves_memory_to_others() {
        let bounds = bounds(1000, 250, 8);
        let _half = bounds.admit(source(1), 125).unwrap();
        let other_half = bounds.admit(source(1), 125).unwrap();
        assert!(bounds.admit(source(1), 1).is_none());
        let _large = bounds.admit(source(2), 600).expect("one value always fits");
        assert!(bounds.admit(source(2), 1).is_none());
        assert!(bounds.admit(source(3), 150).is_some());
        drop(other_half);
        assert!(bounds.admit(source(1), 125).is_some());
    }

    #[test]
    fn a_source_has_its_share_and_no_more() {
        let bounds = bounds(1000, 1000, 2);
        let first = bounds.admit(source(1), 1).unwrap();
        let _second = bounds.admit(source(1), 1).unwrap();
        assert!(bounds.admit(source(1), 1).is_none());
        assert!(bounds.admit(source(2), 1).is_some());
        drop(first);
        assert!(bounds.admit(source(1), 1).is_some());
    }

    #[test]
    fn memory_is_bounded_but_one_value_always_fits() {
        let bounds = bounds(100, 100, 8);
        let large = bounds.admit(source(1), 5000).unwrap();
        assert!(bounds.admit(source(2), 1).is_none());
        drop(large);
        let _half = bounds.admit(source(1), 60).unwrap();
        assert!(bounds.admit(source(2), 41).is_none());
        assert!(bounds.admit(source(2), 40).is_some());
        assert_eq!(bounds.bytes(), 60);
    }
}
