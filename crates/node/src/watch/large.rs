//! Large keys: those with the largest values that requests have named.

use std::collections::HashMap;

use minos_base::{KeyHash, Seconds};

use super::ShownKey;
use crate::server::config::WatchConfig;

/// Seconds after which a key that nobody names gives way to any other.
const FORGOTTEN_AFTER_S: Seconds = 600;

/// A key with a large value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeKey {
    /// The key.
    pub key: ShownKey,
    /// Length of its value when it was last seen, in bytes.
    pub bytes: u64,
    /// Requests for it since it was noted, about.
    pub requests: u64,
    /// Seconds since it was last seen.
    pub idle_s: Seconds,
}

/// The largest keys that one worker has seen. Takes no more memory than at the start.
pub(crate) struct LargeKeys {
    entries: Vec<Entry>,
    entries_max: usize,
}

#[derive(Clone)]
pub(super) struct Entry {
    hash: KeyHash,
    key: ShownKey,
    bytes: u64,
    requests: u64,
    seen: Seconds,
}

impl LargeKeys {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: Vec::with_capacity(entries_max), entries_max }
    }

    /// Notes that `requests` named a key whose value has `bytes`.
    pub(super) fn note(
        &mut self,
        (hash, key): (KeyHash, &ShownKey),
        bytes: u64,
        requests: u64,
        seen: Seconds,
    ) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.hash == hash) {
            (entry.bytes, entry.seen) = (bytes, seen);
            entry.requests += requests;
        } else if self.entries.len() < self.entries_max {
            self.entries.push(Entry { hash, key: key.clone(), bytes, requests, seen });
        } else {
            let value = |entry: &Entry| if is_forgotten(entry, seen) { 0 } else { entry.bytes };
            let Some(least) = self.entries.iter_mut().min_by_key(|entry| value(entry)) else { return };
            if bytes > value(least) {
                least.key.clone_from(key);
                (least.hash, least.bytes, least.requests, least.seen) = (hash, bytes, requests, seen);
            }
        }
    }

    /// The keys seen lately, and the time.
    pub(super) fn at(&self, now: Seconds) -> (Vec<Entry>, Seconds) {
        (self.entries.iter().filter(|entry| !is_forgotten(entry, now)).cloned().collect(), now)
    }
}

fn is_forgotten(entry: &Entry, now: Seconds) -> bool {
    now.saturating_sub(entry.seen) > FORGOTTEN_AFTER_S
}

/// The largest keys of all workers; the one that saw a key last knows its size.
pub(super) fn merged(
    workers: impl Iterator<Item = (Vec<Entry>, Seconds)>,
    config: &WatchConfig,
) -> Vec<LargeKey> {
    let (mut by_hash, mut now) = (HashMap::<KeyHash, Entry>::new(), 0);
    for (entries, at) in workers {
        now = at;
        for entry in entries {
            let known = by_hash.entry(entry.hash).or_insert_with(|| Entry { requests: 0, ..entry.clone() });
            known.requests += entry.requests;
            if entry.seen > known.seen {
                (known.bytes, known.seen) = (entry.bytes, entry.seen);
            }
        }
    }
    let large = |Entry { key, bytes, requests, seen, .. }: Entry| LargeKey {
        key,
        bytes,
        requests,
        idle_s: now.saturating_sub(seen),
    };
    let mut keys: Vec<_> = by_hash.into_values().map(large).collect();
    keys.sort_by(|one, other| {
        other.bytes.cmp(&one.bytes).then_with(|| one.key.front().cmp(other.key.front()))
    });
    keys.truncate(config.large_keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(large: &mut LargeKeys, number: u64, bytes: u64, now: Seconds) {
        large.note((KeyHash(number), &ShownKey::of(number.to_string().as_bytes())), bytes, 1, now);
    }

    fn shown(workers: &[&LargeKeys], now: Seconds) -> Vec<(String, u64, u64)> {
        let config = WatchConfig { large_keys: 3, ..WatchConfig::default() };
        let keys = merged(workers.iter().map(|large| large.at(now)), &config);
        keys.into_iter().map(|large| (large.key.to_string(), large.bytes, large.requests)).collect()
    }

    #[test]
    fn the_largest_stay_and_the_last_size_counts() {
        let (mut one, mut other) = (LargeKeys::new(3), LargeKeys::new(3));
        (0..1000).for_each(|number| note(&mut one, number, number * 10, 5));
        assert_eq!(shown(&[&one], 5)[0], ("999".to_owned(), 9990, 1));
        // Another worker saw a smaller value later.
        note(&mut other, 999, 7, 6);
        let keys = shown(&[&one, &other], 6);
        assert_eq!(keys[0].0, "998");
        assert_eq!(keys[2], ("999".to_owned(), 7, 2));
    }

    #[test]
    fn what_nobody_names_gives_way() {
        let mut large = LargeKeys::new(3);
        (1..4).for_each(|number| note(&mut large, number, 1_000_000, 5));
        note(&mut large, 4, 10, 6);
        assert_eq!(shown(&[&large], 6).len(), 3);
        let later = 6 + FORGOTTEN_AFTER_S;
        note(&mut large, 4, 10, later);
        assert_eq!(shown(&[&large], later), [("4".to_owned(), 10, 1)]);
    }
}
