//! Sampled observation of requests: latencies by size and stage, hot keys, large keys, slow requests.
//!
//! A worker looks closely at one request in so many, and at each large one. It alone writes what it counts; any
//! thread reads that without making it wait.

mod commands;
mod durations;
mod hot;
mod large;
mod probe;
mod slow;
mod watched;

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arrayvec::ArrayVec;
use minos_base::{Clock, StatsGroup, limits::KEY_BYTES_MAX};
use minos_sched::{EpochCounts, SharedHistogram, SizeHistogram};

use crate::server::config::WatchConfig;
pub use commands::CommandTimes;
pub use durations::Durations;
pub use hot::HotKey;
pub use large::LargeKey;
pub use slow::SlowRequest;
pub use watched::{SIZE_BOUNDS, Series, Size, Stage};

pub(crate) use probe::{Probe, Timed};
pub(crate) use watched::{Keyed, Watched};

/// The threshold of the slow log that nothing reaches, in microseconds.
pub const NEVER_SLOW_US: u64 = u64::MAX;

/// A key as people see it: its first bytes, and its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownKey {
    front: ArrayVec<u8, KEY_BYTES_MAX>,
    key_bytes: u32,
}

impl ShownKey {
    /// Of `key`, at most the first [`KEY_BYTES_MAX`] bytes are kept.
    pub fn of(key: &[u8]) -> Self {
        let mut shown = Self::default();
        shown.set(key);
        shown
    }

    fn set(&mut self, key: &[u8]) {
        let front = &key[..key.len().min(KEY_BYTES_MAX)];
        self.front.clear();
        // It fits.
        let _ = self.front.try_extend_from_slice(front);
        self.key_bytes = u32::try_from(key.len()).unwrap_or(u32::MAX);
    }

    /// The first bytes, as they are.
    pub fn front(&self) -> &[u8] {
        &self.front
    }

    /// Length of the whole key, in bytes.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes as usize
    }
}

/// Visible ASCII as it is but the backslash, which is doubled; `\x0a` for other bytes; `...` if the rest is left out.
impl Display for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in &self.front {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b'!'..=b'~' => fmt::Write::write_char(f, char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        if self.key_bytes() > self.front.len() { f.write_str("...") } else { Ok(()) }
    }
}

/// What the workers of a server have observed. Reading makes no worker wait.
pub struct Watch {
    workers: Vec<Arc<Watched>>,
    /// Requests by size, of each worker.
    histograms: Vec<Arc<SharedHistogram>>,
    config: WatchConfig,
    clock: Clock,
    slow_us: Arc<AtomicU64>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Watch {
    /// Observes the workers with these histograms.
    pub(crate) fn new(config: WatchConfig, histograms: Vec<Arc<SharedHistogram>>, clock: Clock) -> Self {
        let slow_us = Arc::new(AtomicU64::new(config.slow_us));
        let numbers = Arc::new(AtomicU64::new(0));
        let watched = || Arc::new(Watched::new(config, Arc::clone(&slow_us), Arc::clone(&numbers)));
        Self { workers: histograms.iter().map(|_| watched()).collect(), histograms, config, clock, slow_us }
    }

    /// A probe for worker `index`.
    pub(crate) fn probe(&self, index: usize) -> Probe {
        Probe::new(Arc::clone(&self.workers[index]), self.config.sample_one_in, index as u64)
    }

    /// The options of the observation at the start.
    pub fn config(&self) -> WatchConfig {
        self.config
    }

    /// The keys with most requests, most first.
    pub fn hot_keys(&self) -> Vec<HotKey> {
        let now = self.clock.seconds();
        hot::merged(self.workers.iter().filter_map(|worker| Some(worker.lists()?.hot.at(now))), &self.config)
    }

    /// The keys with the largest values, largest first.
    pub fn large_keys(&self) -> Vec<LargeKey> {
        let now = self.clock.seconds();
        large::merged(
            self.workers.iter().filter_map(|worker| Some(worker.lists()?.large.at(now))),
            &self.config,
        )
    }

    /// The latest slow requests, latest first.
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        let lists = self.workers.iter().filter_map(|worker| Some(worker.lists()?.slow.entries()));
        slow::merged(lists, &self.config)
    }

    /// Forgets the slow requests so far.
    pub fn clear_slow(&self) {
        self.workers.iter().filter_map(|worker| worker.lists()).for_each(|mut lists| lists.slow.clear());
    }

    /// The times of each command of any protocol, by its name. A request that was looked at stands for others.
    pub fn commands(&self) -> BTreeMap<&'static str, CommandTimes> {
        commands::merged(self.workers.iter().filter_map(|worker| Some(worker.lists()?.commands.clone())))
    }

    /// Forgets the times of commands so far.
    pub(crate) fn clear_commands(&self) {
        self.workers.iter().filter_map(|worker| worker.lists()).for_each(|mut lists| lists.commands.clear());
    }

    /// Requests that take this long are slow; in microseconds.
    pub fn slow_us(&self) -> u64 {
        self.slow_us.load(Relaxed)
    }

    /// Changes [`slow_us`](Self::slow_us); [`NEVER_SLOW_US`] switches the log off.
    pub fn set_slow_us(&self, slow_us: u64) {
        self.slow_us.store(slow_us, Relaxed);
    }

    /// The latencies of all workers together, one series for each size and stage.
    pub fn latencies(&self) -> Vec<(Series, Durations)> {
        Series::ALL
            .iter()
            .map(|&series| {
                let mut sum = Durations::default();
                self.workers.iter().for_each(|worker| worker.durations(series).add_to(&mut sum));
                (series, sum)
            })
            .collect()
    }

    /// Requests by the size of their value, since the start; none under a design that counts no sizes.
    pub fn sizes(&self) -> SizeHistogram {
        EpochCounts::new().next(self.histograms.iter().map(|histogram| &**histogram))
    }

    /// Gives the options under their names; `sample_one_in` may have changed since the start.
    pub(crate) fn settings(&self, sample_one_in: u64, emit: &mut dyn FnMut(&str, &dyn Display)) {
        emit("watch", &sample_one_in);
        emit("hot_keys", &self.config.hot_keys);
        emit("large_keys", &self.config.large_keys);
        emit("slow_log", &self.config.slow_requests);
        emit("slow_us", &self.slow_us());
    }

    /// Gives every counter of the observation under its name.
    pub fn counters(&self, emit: &mut dyn FnMut(&str, &dyn Display)) {
        let sum = |count: fn(&Watched) -> u64| self.workers.iter().map(|worker| count(worker)).sum::<u64>();
        emit("watch_samples", &sum(|worker| worker.samples.value()));
        emit("watch_missed", &sum(|worker| worker.missed.value()));
        emit("slow_requests", &sum(|worker| worker.slow.value()));
    }

    /// Gives the lines of `stats hotkeys`, `stats largekeys` and `stats slow`.
    pub(crate) fn emit(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        match group {
            StatsGroup::HotKeys => {
                for (n, hot) in self.hot_keys().iter().enumerate() {
                    emit(&format!("{n}:key"), &hot.key);
                    emit(&format!("{n}:requests_s"), &format_args!("{:.1}", hot.requests_s));
                    emit(&format!("{n}:share"), &format_args!("{:.4}", hot.share));
                }
            }
            StatsGroup::LargeKeys => {
                for (n, large) in self.large_keys().iter().enumerate() {
                    emit(&format!("{n}:key"), &large.key);
                    emit(&format!("{n}:bytes"), &large.bytes);
                    emit(&format!("{n}:requests"), &large.requests);
                    emit(&format!("{n}:idle_s"), &large.idle_s);
                }
            }
            StatsGroup::Slow => {
                emit("slow_us", &self.slow_us());
                for slow in self.slow_requests() {
                    let n = slow.number;
                    emit(&format!("{n}:time"), &slow.unix_s);
                    emit(&format!("{n}:us"), &slow.duration_us);
                    emit(&format!("{n}:command"), &slow.command);
                    emit(&format!("{n}:key"), &slow.key);
                    emit(&format!("{n}:bytes"), &slow.bytes);
                    emit(&format!("{n}:client"), &slow.client);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_without_what_could_break_a_line() {
        let cases: [(&[u8], &str); 4] = [
            (b"user:17", "user:17"),
            (b"a b\r\n", "a\\x20b\\x0d\\x0a"),
            (b"\\x20", "\\\\x20"),
            (b"\xe4\0\x7f", "\\xe4\\x00\\x7f"),
        ];
        for (key, shown) in cases {
            assert_eq!(ShownKey::of(key).to_string(), shown);
        }
        let long = ShownKey::of(&[b'k'; 70_000]);
        assert_eq!((long.key_bytes(), long.to_string().len()), (70_000, KEY_BYTES_MAX + 3));
    }
}
