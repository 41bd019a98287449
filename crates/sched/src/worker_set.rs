//! Workers, and sets of them.

use minos_base::limits::WORKERS_MAX;

const _: () = assert!(WORKERS_MAX <= u128::BITS as usize);

/// A worker, counted from zero. Also the number of its RX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// Position among the workers.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some of the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSet(u128);

impl WorkerSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The first `workers`, at most [`WORKERS_MAX`].
    #[inline]
    pub const fn first(workers: usize) -> Self {
        if workers == 0 { Self(0) } else { Self(u128::MAX >> (u128::BITS - workers as u32)) }
    }

    /// Only `worker`.
    #[inline]
    pub const fn one(worker: WorkerId) -> Self {
        Self(1 << worker.0)
    }

    /// With `worker`.
    #[inline]
    #[must_use]
    pub const fn with(self, worker: WorkerId) -> Self {
        Self(self.0 | 1 << worker.0)
    }

    /// Without `worker`.
    #[inline]
    #[must_use]
    pub const fn without(self, worker: WorkerId) -> Self {
        Self(self.0 & !(1 << worker.0))
    }

    /// The intersection of both sets.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The union of both sets.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The workers that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if `worker` is in the set.
    #[inline]
    pub const fn contains(self, worker: WorkerId) -> bool {
        self.0 >> worker.0 & 1 == 1
    }

    /// True if the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many they are.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// All of them, from `start` on and round to the one before it, so that no worker always comes first.
    #[inline]
    pub fn iter_from(self, start: usize) -> impl Iterator<Item = WorkerId> {
        let below = Self::first(start.min(WORKERS_MAX)).0;
        Members(self.0 & !below).chain(Members(self.0 & below))
    }

    /// All of them, the first one first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = WorkerId> {
        Members(self.0)
    }
}

impl FromIterator<WorkerId> for WorkerSet {
    fn from_iter<I: IntoIterator<Item = WorkerId>>(workers: I) -> Self {
        workers.into_iter().fold(Self::EMPTY, Self::with)
    }
}

struct Members(u128);

impl Iterator for Members {
    type Item = WorkerId;

    #[inline]
    fn next(&mut self) -> Option<WorkerId> {
        let index = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (index < u128::BITS).then_some(WorkerId(index as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let set: WorkerSet = [0, 3, 127].into_iter().map(WorkerId).collect();
        let order = |start| set.iter_from(start).map(|worker| worker.0).collect::<Vec<_>>();
        assert_eq!(order(0), [0, 3, 127]);
        assert_eq!(order(2), [3, 127, 0]);
        assert_eq!(order(500), [0, 3, 127]);
        assert!(set.contains(WorkerId(3)) && !set.without(WorkerId(3)).contains(WorkerId(3)));
        assert_eq!((set.len(), WorkerSet::first(128).len(), WorkerSet::first(0).len()), (3, 128, 0));
    }
}
