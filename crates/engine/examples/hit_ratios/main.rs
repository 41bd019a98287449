//! Compares hit ratios of the cache's policies with exact simulations, on a Zipf trace: the data of
//! `docs/results/eviction.svg`.
//!
//! Prints comma-separated values: memory and the log's average share of it, both in percent of all items; the
//! policy, simulated or the engine's; the hit ratio in percent.

use minos_engine::Eviction;
use minos_testkit::eviction::{Clock, Log, Lru, Reinsert};

#[path = "../../tests/quick/eviction/contest.rs"]
mod contest;

use contest::{Contest, segment_bytes};

const CONTEST: Contest = Contest { keys: 100_000, requests: 2_000_000, seed: 1 };
/// Memory of the engine, in percent of the memory of all items.
const MEMORY_PERCENTS: [u64; 7] = [6, 9, 14, 22, 36, 60, 100];

fn main() {
    println!("memory_percent,log_percent,policy,source,hit_percent");
    for percent in MEMORY_PERCENTS {
        let memory_bytes = CONTEST.bytes() * percent / 100;
        let segment_bytes = segment_bytes(memory_bytes);
        let print = |log_bytes: u64, policy: &str, source: &str, hit_ratio: f64| {
            let log_percent = log_bytes as f64 / CONTEST.bytes() as f64 * 100.0;
            println!("{percent},{log_percent:.2},{policy},{source},{:.2}", hit_ratio * 100.0);
        };
        let mut log_bytes = 0;
        for (name, eviction, reinsert) in [
            ("LRU by reinsertion", Eviction::Lru, Reinsert::OutsideTailSegment { segment_bytes }),
            ("approximate LRU", Eviction::ApproxLru, Reinsert::CloserToHead),
            ("FIFO", Eviction::Fifo, Reinsert::Never),
        ] {
            let run = CONTEST.run(eviction, memory_bytes);
            log_bytes = run.log_bytes;
            print(log_bytes, name, "engine", run.hit_ratio);
            print(log_bytes, name, "simulated", CONTEST.simulate(Log::new(log_bytes, reinsert)));
        }
        print(log_bytes, "LRU list", "simulated", CONTEST.simulate(Lru::new(log_bytes)));
        print(log_bytes, "CLOCK", "simulated", CONTEST.simulate(Clock::new(log_bytes)));
    }
}
