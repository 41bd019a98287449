//! Counts of operations by key prefix, the part before a colon.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use parking_lot::Mutex;

/// Ends the prefix of a key, as in memcached.
pub(crate) const DELIMITER: u8 = b':';

/// Operations on the keys of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixCounts {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    pub(crate) deletes: u64,
}

/// Counts by prefix. They share one lock, so they are off unless switched on.
#[derive(Debug)]
pub(crate) struct Prefixes {
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, PrefixCounts>>,
    prefixes_max: AtomicUsize,
    dropped: AtomicU64,
}

impl Prefixes {
    /// Counts at most `prefixes_max` prefixes; later ones are not counted.
    pub(crate) fn new(prefixes_max: usize) -> Self {
        let (is_on, dropped) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { is_on, counts: Mutex::default(), prefixes_max: AtomicUsize::new(prefixes_max), dropped }
    }

    /// These counts, if they are on.
    #[inline]
    pub(crate) fn enabled(&self) -> Option<&Self> {
        // Relaxed: commands in progress may be counted or not.
        self.is_on.load(Ordering::Relaxed).then_some(self)
    }

    /// Commands that were not counted because there were too many prefixes.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.counts.lock().clear();
    }

    /// Changes how many prefixes are counted; those beyond a lower number stay.
    pub(crate) fn set_max(&self, prefixes_max: usize) {
        self.prefixes_max.store(prefixes_max, Ordering::Relaxed);
    }

    /// Switches counting on or off.
    pub(crate) fn turn(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Calls `emit` with each prefix and its counts, in the order of the prefixes.
    pub(crate) fn tell(&self, mut emit: impl FnMut(&[u8], PrefixCounts)) {
        self.counts.lock().iter().for_each(|(prefix, counts)| emit(prefix, *counts));
    }

    /// Counts a key that was looked up.
    pub(crate) fn count_get(&self, key: &[u8], is_hit: bool) {
        self.count(key, |counts| {
            counts.gets += 1;
            counts.hits += u64::from(is_hit);
        });
    }

    /// Counts an operation on a key. Keys without a delimiter have no prefix, as in memcached.
    pub(crate) fn count(&self, key: &[u8], change: impl FnOnce(&mut PrefixCounts)) {
        let Some(end) = key.iter().position(|&byte| byte == DELIMITER) else { return };
        let (prefix, mut counts) = (&key[..end], self.counts.lock());
        if let Some(known) = counts.get_mut(prefix) {
            change(known);
        } else if counts.len() < self.prefixes_max.load(Ordering::Relaxed) {
            change(counts.entry(prefix.into()).or_default());
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_bounded() {
        let prefixes = Prefixes::new(2);
        for key in [&b"a:1"[..], b"b:1", b"c:1", b"a:2", b"none"] {
            prefixes.count_get(key, true);
        }
        let mut told = Vec::new();
        prefixes.tell(|prefix, counts| told.push((prefix.to_vec(), counts.gets, counts.hits)));
        assert_eq!(told, [(b"a".to_vec(), 2, 2), (b"b".to_vec(), 1, 1)]);
        assert_eq!(prefixes.dropped(), 1);
    }
}
