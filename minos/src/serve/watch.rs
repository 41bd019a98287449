//! The options of `minos serve` for the observation of requests.

use std::time::Duration;

use clap::Args;
use minos_node::{config::WatchConfig, settings::parse_time_or_never};

/// What is observed of requests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Observation")]
pub(crate) struct WatchOptions {
    /// Time one request in N, and note its key; large ones are all timed. 0: none
    #[arg(long, value_name = "N", default_value_t = 128)]
    watch: u32,
    /// Hot keys shown, at most 128; 0: none are counted
    #[arg(long, value_name = "N", default_value_t = 16)]
    hot_keys: usize,
    /// Large keys shown, at most 128; 0: none are noted
    #[arg(long, value_name = "N", default_value_t = 16)]
    large_keys: usize,
    /// Slow requests kept, at most 1024; 0: none
    #[arg(long, value_name = "N", default_value_t = 64)]
    slow_log: usize,
    /// Time from which on a request is slow, or never; `minos ctl slow --threshold` changes it
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_time_or_never)]
    slow_threshold: Duration,
}

impl WatchOptions {
    pub(super) fn config(&self) -> WatchConfig {
        WatchConfig {
            sample_one_in: self.watch,
            hot_keys: self.hot_keys,
            large_keys: self.large_keys,
            slow_requests: self.slow_log,
            slow_us: u64::try_from(self.slow_threshold.as_micros()).unwrap_or(u64::MAX),
        }
    }
}
