//! Repeatedly kills a process that writes to a region on a file, and checks the values that the next process
//! serves.
//!
//! The child's steps are a function of round, thread and number, and the child records its progress in a
//! file. So the parent knows the last value of every key, and the one being written. Every value served must
//! be one of these, and after a clean close none may be missing.
//!
//! `MINOS_KILL_ROUNDS` sets the number of rounds, `MINOS_KILL_SEED` the places and times of the kills.

mod campaign;
mod child;
mod damage;
mod engine;
mod script;
mod subject;
mod table;
mod verdict;

use campaign::Campaign;
use engine::Kept;
use minos_engine::{CacheMode, StoreMode};
use subject::Files;
use table::Table;

const ROUNDS_DEFAULT: u64 = 20;
/// Bytes that are changed, one after another.
const DAMAGES: u64 = 40;
/// The environment variable with the number of rounds.
const ROUNDS: &str = "MINOS_KILL_ROUNDS";
/// Rounds within which the control must fail.
const CONTROL_ROUNDS_MAX: u64 = 2000;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seed() -> u64 {
    number("MINOS_KILL_SEED", 1)
}

/// Not a test: the child that the tests run and kill.
#[test]
#[ignore = "only with orders"]
fn child() {
    child::obey::<Files<false>>();
    child::obey::<Files<true>>();
    child::obey::<Kept<StoreMode>>();
    child::obey::<Kept<CacheMode>>();
    child::obey::<Table<true>>();
    child::obey::<Table<false>>();
}

#[test]
fn control_what_was_cut_short_is_found_out() {
    let caught = Campaign::<Files<false>>::new(seed()).run(CONTROL_ROUNDS_MAX);
    assert!(caught.is_err(), "served only what was written: {}", caught.unwrap());
}

#[test]
fn control_whole_writes_pass() {
    let tally = Campaign::<Files<true>>::new(seed()).run(number(ROUNDS, ROUNDS_DEFAULT)).unwrap();
    assert!(tally.cut_steps > 0 && tally.served_unclosed > 0 && tally.lost == 0, "{tally}");
}

#[test]
fn a_store_serves_only_what_was_written() {
    let tally = Campaign::<Kept<StoreMode>>::new(seed()).run(number(ROUNDS, ROUNDS_DEFAULT)).unwrap();
    println!("store: {tally}");
    assert!(tally.cut_steps > 0 && tally.served > 0, "{tally}");
}

#[test]
fn a_cache_serves_only_what_was_written() {
    let tally = Campaign::<Kept<CacheMode>>::new(seed()).run(number(ROUNDS, ROUNDS_DEFAULT)).unwrap();
    println!("cache: {tally}");
    assert!(tally.cut_steps > 0 && tally.served > 0, "{tally}");
}

#[test]
fn a_damaged_store_is_refused_or_whole() {
    for bytes_max in [4096, u64::MAX] {
        let outcomes = damage::damage::<Kept<StoreMode>>(seed(), DAMAGES, bytes_max);
        println!("{outcomes:?}");
        assert!(outcomes.refused > 0 && outcomes.emptied == 0 && outcomes.served_wrong == 0, "{outcomes:?}");
    }
}

#[test]
fn a_damaged_cache_serves_nothing_wrong() {
    for bytes_max in [4096, u64::MAX] {
        let outcomes = damage::damage::<Kept<CacheMode>>(seed(), DAMAGES, bytes_max);
        println!("{outcomes:?}");
        assert!(outcomes.emptied > 0 && outcomes.served_wrong == 0, "{outcomes:?}");
    }
}

#[test]
fn a_region_keeps_what_was_written() {
    let tally = Campaign::<Table<true>>::new(seed()).run(number(ROUNDS, ROUNDS_DEFAULT)).unwrap();
    println!("region: {tally}");
    assert!(tally.cut_steps > 0 && tally.served_unclosed > 0 && tally.lost == 0, "{tally}");
}

#[test]
#[ignore = "it takes hundreds of rounds; `cargo xtask kill` runs it"]
fn control_heaps_that_nobody_repairs_are_found_out() {
    let caught = Campaign::<Table<false>>::new(seed()).run(CONTROL_ROUNDS_MAX);
    assert!(caught.is_err(), "served only what was written: {}", caught.unwrap());
}
