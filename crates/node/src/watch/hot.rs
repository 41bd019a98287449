//! Hot keys: the most frequent of the sampled ones, by Space-Saving (Metwally et al., 2005), with old counts fading.

use std::collections::HashMap;

use minos_base::{KeyHash, Seconds};

use super::ShownKey;
use crate::server::config::WatchConfig;

/// Seconds after which a count is halved.
const HALF_LIFE_S: Seconds = 30;
/// Keys counted by a worker for each that is shown: more make the counts more certain.
const COUNTED_FOR_SHOWN: usize = 4;

/// A key that many requests name.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The key.
    pub key: ShownKey,
    /// Requests a second, at least.
    pub requests_s: f64,
    /// Part of all requests with a key, at least.
    pub share: f64,
}

/// The counts of one worker. Takes no more memory than at the start.
pub(crate) struct HotKeys {
    counts: Vec<Count>,
    counted_max: usize,
    /// Requests with any key.
    total: u64,
    /// Time in which they came; halved with the counts.
    window_s: Seconds,
    /// When the window was last halved, or began.
    since: Option<Seconds>,
}

#[derive(Clone)]
struct Count {
    hash: KeyHash,
    key: ShownKey,
    requests: u64,
    /// Those that may be of keys whose place it took.
    uncertain: u64,
}

/// What a worker has counted, at one moment.
pub(super) struct HotCounts {
    counts: Vec<Count>,
    total: u64,
    window_s: f64,
}

impl HotKeys {
    pub(super) fn new(shown_max: usize) -> Self {
        let counted_max = shown_max * COUNTED_FOR_SHOWN;
        Self { counts: Vec::with_capacity(counted_max), counted_max, total: 0, window_s: 0, since: None }
    }

    /// Counts `requests` for a key.
    pub(super) fn note(&mut self, (hash, key): (KeyHash, &ShownKey), requests: u64, now: Seconds) {
        if self.counted_max == 0 {
            return;
        }
        self.fade(now);
        self.total += requests;
        if let Some(count) = self.counts.iter_mut().find(|count| count.hash == hash) {
            count.requests += requests;
        } else if self.counts.len() < self.counted_max {
            self.counts.push(Count { hash, key: key.clone(), requests, uncertain: 0 });
        } else if let Some(least) = self.counts.iter_mut().min_by_key(|count| count.requests) {
            (least.hash, least.uncertain) = (hash, least.requests);
            least.key.clone_from(key);
            least.requests += requests;
        }
    }

    /// Halves all counts for each half-life that has passed.
    fn fade(&mut self, now: Seconds) {
        let since = *self.since.get_or_insert(now);
        let halvings = (now.saturating_sub(since) / HALF_LIFE_S).min(63);
        if halvings == 0 {
            return;
        }
        for _ in 0..halvings {
            self.window_s = (self.window_s + HALF_LIFE_S) / 2;
        }
        self.since = Some(now - (now - since) % HALF_LIFE_S);
        self.total >>= halvings;
        for count in &mut self.counts {
            count.requests >>= halvings;
            count.uncertain >>= halvings;
        }
        self.counts.retain(|count| count.requests > 0);
    }

    /// What has been counted by `now`.
    pub(super) fn at(&mut self, now: Seconds) -> HotCounts {
        self.fade(now);
        let latest_s = now.saturating_sub(self.since.unwrap_or(now));
        // A second that has only begun counts as one.
        let window_s = f64::from(self.window_s + latest_s).max(1.0);
        HotCounts { counts: self.counts.clone(), total: self.total, window_s }
    }
}

/// The hottest keys of all workers.
pub(super) fn merged(workers: impl Iterator<Item = HotCounts>, config: &WatchConfig) -> Vec<HotKey> {
    let (mut by_hash, mut total) = (HashMap::<KeyHash, (ShownKey, u64, f64)>::new(), 0);
    for HotCounts { counts, total: of_worker, window_s } in workers {
        total += of_worker;
        for Count { hash, key, requests, uncertain } in counts {
            let certain = requests - uncertain;
            let (_, sum, rate) = by_hash.entry(hash).or_insert((key, 0, 0.0));
            *sum += certain;
            *rate += certain as f64 / window_s;
        }
    }
    let mut keys: Vec<_> = by_hash.into_values().collect();
    keys.sort_by(|(key, requests, _), (other, others, _)| {
        others.cmp(requests).then_with(|| key.front().cmp(other.front()))
    });
    keys.truncate(config.hot_keys);
    let hot = |(key, requests, requests_s)| HotKey {
        key,
        requests_s,
        share: requests as f64 / total.max(1) as f64,
    };
    keys.into_iter().map(hot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(hot: &mut HotKeys, number: u64, requests: u64, now: Seconds) {
        hot.note((KeyHash(number), &ShownKey::of(number.to_string().as_bytes())), requests, now);
    }

    fn shown(hot: &mut HotKeys, now: Seconds) -> Vec<HotKey> {
        merged([hot.at(now)].into_iter(), &WatchConfig { hot_keys: 2, ..WatchConfig::default() })
    }

    #[test]
    fn the_hottest_stand_out_of_many_keys() {
        let mut hot = HotKeys::new(2);
        for round in 0..10_000 {
            note(&mut hot, 100 + round, 1, 5);
            if round % 2 == 0 {
                note(&mut hot, 1, 1, 5);
            }
            if round % 4 == 0 {
                note(&mut hot, 2, 1, 5);
            }
        }
        let keys = shown(&mut hot, 5);
        assert_eq!(keys.iter().map(|hot| hot.key.to_string()).collect::<Vec<_>>(), ["1", "2"]);
        // 5000 and 2500 of 17500; never too many.
        assert!((0.2..0.2858).contains(&keys[0].share) && keys[1].share < 0.1429, "{keys:?}");
        assert!(keys[0].requests_s <= 5000.0);
        assert_eq!(hot.counts.len(), 2 * COUNTED_FOR_SHOWN);
    }

    #[test]
    fn what_is_no_longer_asked_for_fades() {
        let mut hot = HotKeys::new(2);
        (0..60).for_each(|now| note(&mut hot, 1, 10, now));
        assert!((shown(&mut hot, 60)[0].requests_s - 10.0).abs() < 1.0);
        note(&mut hot, 2, 1000, 60);
        let then = shown(&mut hot, 60 + 4 * HALF_LIFE_S);
        assert_eq!(then[0].key.to_string(), "2");
        assert!(then[1].requests_s < 1.0, "{then:?}");
        assert!(shown(&mut hot, 10_000).is_empty());
    }

    #[test]
    fn none_are_counted_where_none_are_wanted() {
        let mut hot = HotKeys::new(0);
        note(&mut hot, 1, 1, 5);
        assert!(shown(&mut hot, 5).is_empty());
    }
}
