//! The cache's policies evict in their order, and with the hit ratios of exact simulations.

mod contest;

use contest::{Contest, segment_bytes};
use minos_engine::Eviction;
use minos_testkit::eviction::{Log, Lru, Reinsert};

const CONTEST: Contest = Contest { keys: 20_000, requests: 300_000, seed: 9 };

/// Memory in percent of the memory of all items, index included.
const MEMORY_PERCENTS: [u64; 2] = [22, 66];

/// The largest difference between the engine and its simulation, as a share of all requests. The engine
/// evicts whole segments of its log and loses some items to full buckets; the simulator does neither.
const TOLERANCE: f64 = 0.015;

fn memory_bytes(percent: u64) -> u64 {
    CONTEST.bytes() * percent / 100
}

fn is_close(run: f64, simulated: f64) -> bool {
    (run - simulated).abs() < TOLERANCE
}

#[test]
fn hit_ratios_are_those_of_exact_simulations() {
    for memory_bytes in MEMORY_PERCENTS.map(memory_bytes) {
        for (eviction, reinsert) in [
            (Eviction::Fifo, Reinsert::Never),
            (Eviction::ApproxLru, Reinsert::CloserToHead),
            (Eviction::Lru, Reinsert::OutsideTailSegment { segment_bytes: segment_bytes(memory_bytes) }),
        ] {
            let run = CONTEST.run(eviction, memory_bytes);
            let simulated = CONTEST.simulate(Log::new(run.log_bytes, reinsert));
            assert!(is_close(run.hit_ratio, simulated), "{eviction:?}: {run:?}, simulated {simulated}");
        }
    }
}

#[test]
fn control_another_policy_is_not_close() {
    let run = CONTEST.run(Eviction::Fifo, memory_bytes(MEMORY_PERCENTS[0]));
    let simulated = CONTEST.simulate(Lru::new(run.log_bytes));
    assert!(!is_close(run.hit_ratio, simulated), "{run:?}, simulated {simulated}");
}
