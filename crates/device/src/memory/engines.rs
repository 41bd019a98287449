//! A model of service times.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The time that a modelled device takes.
///
/// It has several engines, and a lane uses one of them whatever its depth, as a thread does in the paper (SoCC'12
/// §4.1). An engine begins a block every `engines / blocks_per_second` and each block ends `latency` after it began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceTime {
    /// Engines of the device.
    pub engines: u32,
    /// From the begin of a block to its end.
    pub latency: Duration,
    /// Blocks a second, of all engines together.
    pub blocks_per_second: f64,
    /// A vector ends as a whole, with its last request, as if it made one interrupt.
    pub whole_vectors: bool,
}

impl ServiceTime {
    /// The non-volatile memory of the paper: 10 us, 1.8 million blocks a second, four engines, one interrupt a vector.
    pub const fn of_the_paper() -> Self {
        let latency = Duration::from_micros(10);
        Self { engines: 4, latency, blocks_per_second: 1.8e6, whole_vectors: true }
    }
}

/// The engines of a device: until when each begins blocks, in nanoseconds of the caller's clock.
#[derive(Debug)]
pub(super) struct Engines {
    pub(super) time: ServiceTime,
    block_ns: f64,
    // Relaxed: a time, which publishes nothing.
    busy_until_ns: Box<[AtomicU64]>,
}

impl Engines {
    pub(super) fn new(time: ServiceTime) -> Self {
        let engines = time.engines.max(1);
        Self {
            time,
            block_ns: f64::from(engines) * 1e9 / time.blocks_per_second,
            busy_until_ns: (0..engines).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// When a request of `blocks` blocks ends that lane `lane` submits now.
    pub(super) fn end_ns(&self, lane: usize, blocks: u64, now_ns: u64) -> u64 {
        let busy = (blocks as f64 * self.block_ns) as u64;
        let engine = &self.busy_until_ns[lane % self.busy_until_ns.len()];
        let begun = |until: u64| until.max(now_ns) + busy;
        let before = engine.fetch_update(Relaxed, Relaxed, |until| Some(begun(until))).unwrap_or(0);
        // The last block begins one block's time before the engine is free.
        let last_begins = begun(before) - (busy / blocks.max(1)).min(busy);
        last_begins + self.time.latency.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: ServiceTime = ServiceTime::of_the_paper();

    #[test]
    fn one_request_takes_the_latency() {
        assert_eq!(Engines::new(PAPER).end_ns(0, 1, 500), 10_500);
    }

    #[test]
    fn an_engine_serves_a_fourth_of_the_rate_and_four_serve_all() {
        let engines = Engines::new(PAPER);
        let last = (0..450_000).fold(0, |_, _| engines.end_ns(0, 1, 0));
        assert!((last as f64 / 1e9 - 1.0).abs() < 0.001, "{last}");
        // Other lanes have engines of their own; the fifth shares the first.
        assert_eq!(engines.end_ns(1, 1, 0), 10_000);
        assert!(engines.end_ns(4, 1, 0) >= last);
    }

    #[test]
    fn longer_requests_take_longer() {
        let engines = Engines::new(PAPER);
        assert_eq!(engines.end_ns(0, 4, 0), 10_000 + 3 * 2222);
        assert_eq!(engines.end_ns(0, 1, 0), 10_000 + 8888);
    }
}
