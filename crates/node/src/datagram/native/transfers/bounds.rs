//! Bounds on the memory for values that are still arriving, and on their number by address.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use minos_sync::SpinLock;

use super::line::{LINE_MAX, WAITING_MAX, Waiter};

/// Bounds on the large stores of all workers.
///
/// A transfer takes the lock twice, for moments.
#[derive(Debug)]
pub(crate) struct TransferBounds {
    limits: TransferLimits,
    taken: SpinLock<Taken>,
    /// True if a store that waits may have come to its turn since the last look.
    may_begin: AtomicBool,
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
    /// Stores that wait, of all sources.
    waiting: usize,
    /// A list, because few sources store large values at a time.
    sources: Vec<Source>,
}

#[derive(Debug)]
struct Source {
    address: IpAddr,
    count: usize,
    bytes: u64,
    /// Stores that wait, the first one first.
    line: VecDeque<Waiter>,
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
        Self { limits, taken: SpinLock::new(Taken::default()), may_begin: AtomicBool::new(false) }
    }

    /// Takes a permit for a value of `bytes` from `source`; `None` if a bound is reached, or others of the source wait.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr, bytes: u64) -> Option<Permit> {
        self.take(source, bytes, false)
    }

    /// The same, whoever waits.
    pub(super) fn admit_before_all(self: &Arc<Self>, source: IpAddr, bytes: u64) -> Option<Permit> {
        self.take(source, bytes, true)
    }

    fn take(self: &Arc<Self>, source: IpAddr, bytes: u64, passes: bool) -> Option<Permit> {
        let mut taken = self.taken.lock();
        if exceeds(taken.bytes, bytes, self.limits.bytes_max)
            || !taken.add(source, bytes, &self.limits, passes)
        {
            return None;
        }
        taken.bytes += bytes;
        Some(self.permit(source, bytes))
    }

    fn permit(self: &Arc<Self>, source: IpAddr, bytes: u64) -> Permit {
        Permit { bounds: Arc::clone(self), source, bytes }
    }

    /// Lets a store wait in the line of its address, or notes that its client has asked again. Returns its place, which is
    /// 1 for the first one; 0 if too many wait.
    pub(super) fn wait(&self, waiter: Waiter) -> u64 {
        let place = self.taken.lock().queue(waiter);
        // Those before it may wait for more than it needs.
        self.may_begin.store(true, Ordering::Relaxed);
        place as u64
    }

    /// Admits one of the stores that wait, if there is room for one.
    pub(in crate::datagram::native) fn admit_next(
        self: &Arc<Self>,
        now: Instant,
    ) -> Option<(Waiter, Permit)> {
        // Relaxed: what is missed here is seen after the next burst.
        if !self.may_begin.load(Ordering::Relaxed) {
            return None;
        }
        let mut taken = self.taken.lock();
        taken.drop_gone(now);
        let Some(waiter) = taken.next(&self.limits) else {
            self.may_begin.store(false, Ordering::Relaxed);
            return None;
        };
        let permit = self.permit(waiter.address(), waiter.bytes());
        Some((waiter, permit))
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
    /// Counts one more transfer of an address, unless the address has reached a bound, or others of it wait and it does not
    /// pass them.
    fn add(&mut self, address: IpAddr, bytes: u64, limits: &TransferLimits, passes: bool) -> bool {
        let known = self.sources.iter_mut().find(|source| source.address == address);
        let Some(source) = known else {
            self.sources.push(Source { address, count: 1, bytes, line: VecDeque::new() });
            return true;
        };
        if !(passes || source.line.is_empty()) || !source.has_room(bytes, limits) {
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
        if source.is_idle() {
            self.sources.swap_remove(at);
        }
    }

    /// Puts a store into the line of its address, unless it is there; its place, or 0.
    fn queue(&mut self, waiter: Waiter) -> usize {
        let address = waiter.address();
        let known = self.sources.iter_mut().find(|source| source.address == address);
        let mut own = VecDeque::new();
        let line = known.map_or(&mut own, |source| &mut source.line);
        if let Some(at) = line.iter().position(|other| other.is_same(&waiter)) {
            line[at].renew(waiter);
            return at + 1;
        }
        if line.len() >= LINE_MAX || self.waiting >= WAITING_MAX {
            return 0;
        }
        self.waiting += 1;
        line.push_back(waiter);
        let place = line.len();
        if !own.is_empty() {
            self.sources.push(Source { address, count: 0, bytes: 0, line: own });
        }
        place
    }

    /// Forgets those whose clients have not asked for long.
    fn drop_gone(&mut self, now: Instant) {
        for source in &mut self.sources {
            source.line.retain(|waiter| !waiter.is_gone(now));
        }
        self.sources.retain(|source| !source.is_idle());
        self.waiting = self.sources.iter().map(|source| source.line.len()).sum();
    }

    /// Takes out, and counts, the store that has waited longest of those whose turn has come. In a line one that awaits the
    /// memory of all lets others pass, since that may take any time.
    fn next(&mut self, limits: &TransferLimits) -> Option<Waiter> {
        let fits_all = |waiter: &Waiter| !exceeds(self.bytes, waiter.bytes(), limits.bytes_max);
        let fronts = self.sources.iter().enumerate().filter_map(|(source, it)| {
            let at = it.line.iter().position(fits_all)?;
            let waiter = &it.line[at];
            it.has_room(waiter.bytes(), limits).then_some((waiter.since, source, at))
        });
        let (_, source, at) = fronts.min()?;
        let source = &mut self.sources[source];
        let waiter = source.line.remove(at)?;
        source.count += 1;
        source.bytes += waiter.bytes();
        self.bytes += waiter.bytes();
        self.waiting -= 1;
        Some(waiter)
    }
}

impl Source {
    fn has_room(&self, bytes: u64, limits: &TransferLimits) -> bool {
        self.count < limits.source_max && !exceeds(self.bytes, bytes, limits.source_bytes_max)
    }

    fn is_idle(&self) -> bool {
        self.count == 0 && self.line.is_empty()
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
        if taken.waiting > 0 {
            self.bounds.may_begin.store(true, Ordering::Relaxed);
        }
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
