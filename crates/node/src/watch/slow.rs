//! The slow log: the latest requests that took longer than the threshold.

use std::collections::VecDeque;

use super::ShownKey;
use crate::server::config::WatchConfig;

/// A request that was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// Rises with each entry of the server.
    pub number: u64,
    /// When it ended, in seconds since 1970.
    pub unix_s: u64,
    /// From the poll that found it until its reply was sent, in microseconds.
    pub duration_us: u64,
    /// Its command.
    pub command: &'static str,
    /// Its key, or the first of several.
    pub key: ShownKey,
    /// Length of the value, in bytes.
    pub bytes: u64,
    /// The client's address; empty if it has none.
    pub client: String,
}

/// The latest slow requests of one worker.
pub(crate) struct SlowLog {
    entries: VecDeque<SlowRequest>,
    entries_max: usize,
}

impl SlowLog {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: VecDeque::new(), entries_max }
    }

    /// Adds an entry, and drops the oldest if there are too many.
    pub(super) fn push(&mut self, entry: SlowRequest) {
        if self.entries.len() >= self.entries_max {
            self.entries.pop_front();
        }
        if self.entries_max > 0 {
            self.entries.push_back(entry);
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(super) fn entries(&self) -> Vec<SlowRequest> {
        self.entries.iter().cloned().collect()
    }
}

/// The latest of all workers, latest first.
pub(super) fn merged(
    workers: impl Iterator<Item = Vec<SlowRequest>>,
    config: &WatchConfig,
) -> Vec<SlowRequest> {
    let mut all: Vec<_> = workers.flatten().collect();
    all.sort_by_key(|entry| std::cmp::Reverse(entry.number));
    all.truncate(config.slow_requests);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let entry = |number| SlowRequest {
            number,
            unix_s: 1,
            duration_us: 2,
            command: "get",
            key: ShownKey::of(b"k"),
            bytes: 3,
            client: String::new(),
        };
        let config = WatchConfig { slow_requests: 3, ..WatchConfig::default() };
        let mut logs = [SlowLog::new(3), SlowLog::new(3)];
        (0..10).for_each(|number| logs[number as usize % 2].push(entry(number)));
        assert_eq!(logs[0].entries().len(), 3);
        let numbers = |logs: &[SlowLog]| {
            let all = merged(logs.iter().map(SlowLog::entries), &config);
            all.iter().map(|entry| entry.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&logs), [9, 8, 7]);
        logs[1].clear();
        assert_eq!(numbers(&logs), [8, 6, 4]);
        let mut none = SlowLog::new(0);
        none.push(entry(1));
        assert!(none.entries().is_empty());
    }
}
