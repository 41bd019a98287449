//! What one worker has observed. It writes, and any thread reads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use minos_base::{KeyHash, Seconds};
use minos_sync::{SpinGuard, SpinLock};

use super::{
    ShownKey,
    commands::ByCommand,
    durations::SharedDurations,
    hot::HotKeys,
    large::LargeKeys,
    slow::{SlowLog, SlowRequest},
};
use crate::{ops::counters::Counter, server::config::WatchConfig};

/// Attempts of a reader to get at a worker's lists, which yield its processor: some milliseconds. The worker has them
/// for less than a microsecond, unless it loses its own meanwhile.
const READ_ATTEMPTS: usize = 10_000;

/// Upper ends of the value sizes by which latencies are kept apart, in bytes; the last one is open.
pub const SIZE_BOUNDS: [u64; 6] = [256, 4 << 10, 16 << 10, 256 << 10, 1 << 20, u64::MAX];

/// The side of the plan's threshold that a request is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// At most the threshold.
    Small,
    /// Above it.
    Large,
}

/// A part of a request's time in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the poll that found its connection until it was executed. The time before that poll is the kernel's.
    Rx,
    /// In the ring of the worker for its size.
    Ring,
    /// Its execution; of a large store, also the arrival of its value.
    Service,
    /// Until the socket has taken its reply.
    Tx,
    /// All of these.
    Total,
}

/// Latencies that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// A stage of the requests on one side of the threshold.
    Stage(Size, Stage),
    /// The whole time of requests up to this one of [`SIZE_BOUNDS`], and above the one before.
    Bytes(usize),
}

const STAGES: [Stage; 5] = [Stage::Rx, Stage::Ring, Stage::Service, Stage::Tx, Stage::Total];

impl Size {
    /// Its name in `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

impl Stage {
    /// Its name in `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Ring => "ring",
            Self::Service => "service",
            Self::Tx => "tx",
            Self::Total => "total",
        }
    }
}

impl Series {
    /// Every series, in the order of their place.
    pub const ALL: [Self; 2 * STAGES.len() + SIZE_BOUNDS.len()] = {
        let mut all = [Self::Bytes(0); 2 * STAGES.len() + SIZE_BOUNDS.len()];
        let mut at = 0;
        while at < STAGES.len() {
            all[at] = Self::Stage(Size::Small, STAGES[at]);
            all[STAGES.len() + at] = Self::Stage(Size::Large, STAGES[at]);
            at += 1;
        }
        let mut bound = 0;
        while bound < SIZE_BOUNDS.len() {
            all[2 * STAGES.len() + bound] = Self::Bytes(bound);
            bound += 1;
        }
        all
    };

    fn place(self) -> usize {
        match self {
            Self::Stage(size, stage) => size as usize * STAGES.len() + stage as usize,
            Self::Bytes(bound) => 2 * STAGES.len() + bound,
        }
    }
}

/// A request with a key.
pub(crate) struct Keyed<'a> {
    pub(crate) command: &'static str,
    /// `None` if its keys are noted apart, or it has none.
    pub(crate) hash: Option<KeyHash>,
    pub(crate) key: &'a ShownKey,
    /// Length of its value, in bytes, at least roughly.
    pub(crate) bytes: u64,
    pub(crate) size: Size,
}

/// What one worker has observed.
pub(crate) struct Watched {
    series: [SharedDurations; Series::ALL.len()],
    /// Nobody waits for it: the worker leaves a sample out while it is read.
    lists: SpinLock<Lists>,
    slow_us: Arc<AtomicU64>,
    /// Slow requests of all workers so far.
    slow_number: Arc<AtomicU64>,
    /// Requests that were looked at.
    pub(super) samples: Counter,
    /// Those that are missing in the lists, because these were being read.
    pub(super) missed: Counter,
    pub(super) slow: Counter,
}

/// Keys and requests that stand out.
pub(super) struct Lists {
    pub(super) hot: HotKeys,
    pub(super) large: LargeKeys,
    pub(super) slow: SlowLog,
    pub(super) commands: ByCommand,
}

impl Watched {
    pub(super) fn new(config: WatchConfig, slow_us: Arc<AtomicU64>, slow_number: Arc<AtomicU64>) -> Self {
        let lists = Lists {
            hot: HotKeys::new(config.hot_keys),
            large: LargeKeys::new(config.large_keys),
            slow: SlowLog::new(config.slow_requests),
            commands: ByCommand::new(),
        };
        Self {
            series: [const { SharedDurations::new() }; Series::ALL.len()],
            lists: SpinLock::new(lists),
            slow_us,
            slow_number,
            samples: Counter::default(),
            missed: Counter::default(),
            slow: Counter::default(),
        }
    }

    pub(super) fn durations(&self, series: Series) -> &SharedDurations {
        &self.series[series.place()]
    }

    /// The lists, for a reader; `None` if the worker does not let go of them.
    pub(super) fn lists(&self) -> Option<SpinGuard<'_, Lists>> {
        (0..READ_ATTEMPTS).find_map(|_| {
            let lists = self.lists.try_lock();
            if lists.is_none() {
                std::thread::yield_now();
            }
            lists
        })
    }

    /// Counts the time of a request that stands for `requests` alike. `client` is asked for its address if it was slow.
    pub(super) fn record(
        &self,
        request: &Keyed<'_>,
        times: &[(Stage, Duration)],
        (requests, now): (u64, Seconds),
        client: impl FnOnce() -> String,
    ) {
        self.samples.count();
        for &(stage, time) in times {
            self.durations(Series::Stage(request.size, stage)).record(time, requests);
            if stage == Stage::Total {
                let bound = SIZE_BOUNDS.iter().position(|&bound| request.bytes <= bound);
                self.durations(Series::Bytes(bound.unwrap_or(SIZE_BOUNDS.len() - 1))).record(time, requests);
            }
        }
        let total =
            times.iter().find(|(stage, _)| *stage == Stage::Total).map_or(0, |(_, time)| time.as_micros());
        let duration_us = u64::try_from(total).unwrap_or(u64::MAX);
        let is_slow = duration_us >= self.slow_us.load(Relaxed);
        if is_slow {
            self.slow.count();
        }
        let Some(mut lists) = self.lists.try_lock() else { return self.missed.count() };
        // A large value that is sent has no other stage of service.
        let is_service = |stage: Stage| matches!(stage, Stage::Service | Stage::Tx);
        if let Some((_, time)) = times.iter().find(|(stage, _)| is_service(*stage)) {
            lists.commands.entry(request.command).or_default().record(*time, requests);
        }
        if let Some(hash) = request.hash {
            lists.hot.note((hash, request.key), requests, now);
            lists.large.note((hash, request.key), request.bytes, requests, now);
        }
        if is_slow {
            lists.slow.push(SlowRequest {
                number: self.slow_number.fetch_add(1, Relaxed),
                unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
                duration_us,
                command: request.command,
                key: request.key.clone(),
                bytes: request.bytes,
                client: client(),
            });
        }
    }

    /// Notes a key that stands for `requests` others, and the length of its value.
    pub(super) fn note(&self, (hash, key): (KeyHash, &ShownKey), bytes: u64, requests: u64, now: Seconds) {
        self.samples.count();
        let Some(mut lists) = self.lists.try_lock() else { return self.missed.count() };
        lists.hot.note((hash, key), requests, now);
        lists.large.note((hash, key), bytes, requests, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_place() {
        for (place, series) in Series::ALL.iter().enumerate() {
            assert_eq!(series.place(), place);
        }
    }

    #[test]
    fn a_reader_makes_a_worker_miss_but_not_wait() {
        let config = WatchConfig { slow_us: 10, ..WatchConfig::default() };
        let watched = Watched::new(config, Arc::new(AtomicU64::new(10)), Arc::default());
        let key = ShownKey::of(b"key");
        let keyed =
            Keyed { command: "get", hash: Some(KeyHash(1)), key: &key, bytes: 300, size: Size::Small };
        let record = |us| {
            let times = [(Stage::Total, Duration::from_micros(us))];
            watched.record(&keyed, &times, (128, 5), || "me".to_owned());
        };
        record(9);
        assert!(watched.lists().unwrap().slow.entries().is_empty());
        let lists = watched.lists().unwrap();
        record(11);
        assert!(watched.lists().is_none());
        drop(lists);
        assert_eq!((watched.samples.value(), watched.missed.value(), watched.slow.value()), (2, 1, 1));
        record(12);
        let entries = watched.lists().unwrap().slow.entries();
        assert_eq!((entries.len(), entries[0].duration_us, &*entries[0].client), (1, 12, "me"));
        for (series, requests) in [(Series::Stage(Size::Small, Stage::Total), 384), (Series::Bytes(1), 384)] {
            let mut sum = super::super::Durations::default();
            watched.durations(series).add_to(&mut sum);
            assert_eq!(sum.total(), requests);
        }
    }
}
