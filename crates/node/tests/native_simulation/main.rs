//! Servers and clients of the native protocol on a faulty network in virtual time.
//!
//! Each seed is a run: some clients, a server of several workers, random operations of every kind on few
//! keys, small and large values, and faults: loss, duplicates, delay, reordering, corruption, outages, and a
//! server that restarts empty. At the end every operation must have ended. Some order of the operations, each
//! executed as often as promised, must explain the answers to the clients. None of the server's memory may be
//! held.
//!
//! `MINOS_SIMULATION_SEEDS` sets the number of runs, `MINOS_SIMULATION_SEED` the first seed.

mod checker;
mod model;
mod outbox;
mod plan;
mod scenario;
mod server;
mod value;
mod workload;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use minos_base::seeded_stream;
use minos_testkit::number_from;

use scenario::Scenario;
use world::Report;

/// Runs within the ordinary tests.
const SEEDS_DEFAULT: u64 = 120;

/// Runs in which the control must have failed.
const CONTROL_SEEDS: u64 = 60;

/// Events that must happen in so many runs; otherwise the runs show less than they claim.
const HAPPENS: [&str; 17] = [
    "native_large_gets",
    "native_fetches",
    "native_fetches_gone",
    "native_stores_completed",
    "native_stores_timed_out",
    "native_misdirected",
    "native_to_owner",
    "native_large_handed_over",
    "native_once_repeated",
    "native_refused_cookie",
    "native_refused_replayed",
    "native_refused_session",
    "native_sessions_evicted",
    "client restarts",
    "network spoiled",
    "operations without memory",
    "runs without faults",
];

fn scenario(seed: u64) -> Scenario {
    Scenario::draw(seed, &mut seeded_stream(seed, 0))
}

/// Runs a scenario; the error tells what failed, and a panic is an error too.
fn run(scenario: &Scenario) -> Result<Report, String> {
    catch_unwind(AssertUnwindSafe(|| world::run(scenario))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Runs all seeds on all processors; returns the errors by seed, and the report of the other runs.
fn run_all(first: u64, seeds: u64) -> (Vec<(u64, String)>, Report) {
    let next = AtomicU64::new(first);
    let results = Mutex::new((Vec::new(), Report::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        break;
                    }
                    let result = run(&scenario(seed));
                    let mut results = results.lock().unwrap();
                    match result {
                        Ok(report) => results.1.add(&report),
                        Err(error) => results.0.push((seed, error)),
                    }
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[test]
fn every_operation_ends_as_the_model_allows() {
    let seeds = number_from("MINOS_SIMULATION_SEEDS", SEEDS_DEFAULT);
    let first = number_from("MINOS_SIMULATION_SEED", 1);
    let begin = Instant::now();
    let (mut failures, report) = run_all(first, seeds);
    let per_second = seeds as f64 / begin.elapsed().as_secs_f64();
    println!("{seeds} seeds from {first}, {per_second:.0} a second, {} failed: {report:#?}", failures.len());
    failures.sort();
    for (seed, error) in &failures {
        println!("seed {seed}: {}", error.lines().next().unwrap_or_default());
    }
    if let Some((seed, error)) = failures.first() {
        let all: Vec<_> = failures.iter().map(|(seed, _)| seed).collect();
        let scenario = scenario(*seed);
        panic!("seeds {all:?} failed; cargo xtask simulate --seeds 1 --seed {seed}\n{scenario:?}\n{error}");
    }
    if seeds >= SEEDS_DEFAULT {
        let missing: Vec<_> =
            HAPPENS.iter().filter(|&&name| report.counts.get(name).is_none_or(|&count| count == 0)).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

/// A time-out would show that a side waits for what the other does not send.
#[test]
fn nobody_waits_for_a_time_out_on_a_calm_network() {
    for seed in 1..=number_from("MINOS_SIMULATION_SEEDS", SEEDS_DEFAULT) / 3 {
        let scenario = scenario(seed).calm();
        let report = run(&scenario).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{scenario:?}"));
        assert_eq!(report.counts["client time-outs"], 0, "seed {seed}: {scenario:?}");
    }
}

/// Before, those that a bound hindered asked again after ever longer rests, while others went on: up to 39 ms.
#[test]
fn clients_of_one_host_store_large_values_in_turn() {
    for seed in 1..=number_from("MINOS_SIMULATION_SEEDS", SEEDS_DEFAULT) / 30 {
        let scenario = scenario(seed).crowded();
        let report = run(&scenario).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{scenario:?}"));
        assert!(report.counts["native_stores_refused"] > 0, "seed {seed}: nothing waited");
        let slowest_us = report.counts["slowest operation, us"];
        assert!(slowest_us < 10_000, "seed {seed}: {slowest_us} us\n{scenario:?}");
    }
}

#[test]
fn a_seed_tells_everything() {
    for seed in [1, 2, 3] {
        let reports = [run(&scenario(seed)), run(&scenario(seed))];
        assert_eq!(format!("{:?}", reports[0]), format!("{:?}", reports[1]), "seed {seed}");
    }
}

/// The control: a server that forgets outcomes executes operations twice, and the check must find it.
#[test]
fn a_server_that_forgets_outcomes_is_found_out() {
    let is_found_out = |seed| {
        let mut scenario = Scenario { forgets_outcomes: true, restart: None, ..scenario(seed) };
        scenario.faults.duplication = 0.3;
        scenario.faults.unnoticed = 0.0;
        run(&scenario).is_err()
    };
    let found_out = (1..=CONTROL_SEEDS).filter(|&seed| is_found_out(seed)).count();
    println!("found out in {found_out} of {CONTROL_SEEDS} runs");
    assert!(found_out as u64 > CONTROL_SEEDS / 2, "found out in {found_out} of {CONTROL_SEEDS} runs only");
}
