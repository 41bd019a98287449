//! The options of the observation of requests.

use super::{InvalidOption, bound};

/// What is observed of requests. Bounds are of a worker and of a list shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// One request in so many is timed, and its key noted; 0: none, and no large one either.
    pub sample_one_in: u32,
    /// Most hot keys shown.
    pub hot_keys: usize,
    /// Most large keys shown.
    pub large_keys: usize,
    /// Most slow requests kept.
    pub slow_requests: usize,
    /// The shortest time of a slow request, in microseconds, at the start.
    pub slow_us: u64,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self { sample_one_in: 128, hot_keys: 16, large_keys: 16, slow_requests: 64, slow_us: 10_000 }
    }
}

impl WatchConfig {
    pub(super) fn check(&self) -> Result<(), InvalidOption> {
        bound("--watch", self.sample_one_in.into(), 0, 1 << 24)?;
        bound("--hot-keys", self.hot_keys as u64, 0, 128)?;
        bound("--large-keys", self.large_keys as u64, 0, 128)?;
        bound("--slow-log", self.slow_requests as u64, 0, 1024)
    }
}
