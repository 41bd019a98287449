//! A store over the machines and a disk that loses power, against a model.
//!
//! No wrong value is read, no deleted or overwritten one comes back, and nothing durable is lost. Each
//! safeguard has a control: without it a run must fail.

mod amplification;
mod clients;
mod copies;
mod crashes;
mod disk;
mod index;
mod model;
mod scrub;
mod world;

use crate::{
    log::Policy,
    switches::{Safeguard, without},
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Plan, World};

const CACHE: Policy = Policy::Cache { reinsert_percent: 20 };
const STORE: Policy = Policy::Store { utilisation_percent_max: 85 };

/// The seeds of a test; more of them by MINOS_FLASH_SEEDS, from MINOS_FLASH_SEED on.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MINOS_FLASH_SEED").unwrap_or(0);
    first..first + number("MINOS_FLASH_SEEDS").unwrap_or(usual)
}

/// Runs one seed; a violation is its text.
fn run(seed: u64, plan: Plan, off: Option<Safeguard>) -> Result<world::Tally, String> {
    without(off, || World::new(seed, plan).run())
}

fn all_pass(plan: Plan, usual: u64) -> world::Tally {
    let mut sum = world::Tally::default();
    for seed in seeds(usual) {
        let result = catch_unwind(AssertUnwindSafe(|| run(seed, plan, None)));
        match result {
            Ok(Ok(tally)) => sum.add(&tally),
            Ok(Err(violation)) => {
                panic!("MINOS_FLASH_SEED={seed} MINOS_FLASH_SEEDS=1, {plan:?}: {violation}")
            }
            Err(_) => panic!("MINOS_FLASH_SEED={seed} MINOS_FLASH_SEEDS=1, {plan:?}: a panic"),
        }
    }
    eprintln!("{plan:?}: {sum:?}");
    sum
}

/// A test with its usual seeds must have met what it is about; a repeated seed need not.
fn has_met(is_met: bool) -> bool {
    is_met || std::env::var_os("MINOS_FLASH_SEEDS").is_some()
}

/// A control: without the safeguard, one of these seeds fails.
fn must_fail(plan: Plan, off: Safeguard) {
    const SEEDS: u64 = 2000;
    let violation = (0..SEEDS).find_map(|seed| {
        run(seed, plan, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        run(seed, plan, Some(off)).err()
    });
    let violation = violation.unwrap_or_else(|| panic!("{off:?} is off, and nothing was noticed"));
    eprintln!("without {off:?}: {violation}");
}

#[test]
fn a_store_survives_power_losses_and_kills() {
    let tally = all_pass(Plan::of(STORE), 150);
    assert!(has_met(tally.crashes > 100 && tally.compacted > 100 && tally.reads > 1000), "{tally:?}");
}

#[test]
fn a_cache_survives_power_losses_and_kills() {
    let tally = all_pass(Plan::of(CACHE), 150);
    let has_dropped = tally.compacted > 100 && tally.dropped > 100 && tally.twins > 100;
    assert!(has_met(tally.crashes > 100 && has_dropped), "{tally:?}");
}

#[test]
fn failed_writes_lose_nothing() {
    let tally = all_pass(Plan { failed_writes: 5, ..Plan::of(STORE) }, 100);
    assert!(has_met(tally.failed_writes > 20 && tally.bad_segments > 5), "{tally:?}");
    all_pass(Plan { failed_writes: 5, ..Plan::of(CACHE) }, 50);
}

#[test]
fn a_burst_of_failed_writes_passes_and_loses_nothing() {
    for policy in [STORE, CACHE] {
        let tally = all_pass(Plan { bursts: 2, ..Plan::of(policy) }, 100);
        assert!(has_met(tally.bursts > 100 && tally.failed_writes > 100), "{tally:?}");
        assert_eq!(tally.bad_segments, 0, "{tally:?}");
    }
}

#[test]
fn a_failed_flush_ends_writing_and_loses_nothing() {
    let tally = all_pass(Plan { failed_flushes: 10, ..Plan::of(STORE) }, 60);
    assert!(has_met(tally.read_only > 20), "{tally:?}");
}

#[test]
fn failed_reads_lose_records_by_name_only() {
    let mut tally = all_pass(Plan { failed_reads: 30, ..Plan::of(STORE) }, 60);
    tally.add(&all_pass(Plan { failed_reads: 30, ..Plan::of(CACHE) }, 60));
    assert!(has_met(tally.lost > 3 && tally.bad_segments > 10), "{tally:?}");
}

#[test]
fn rot_and_lies_of_the_device_are_misses_and_never_wrong_values() {
    for policy in [STORE, CACHE] {
        let tally = all_pass(Plan { lies: 10, ..Plan::of(policy) }, 60);
        assert!(has_met(tally.refused_reads > 10), "{tally:?}");
    }
}

#[test]
fn control_without_the_checksum_seed_a_stale_value_is_read() {
    must_fail(Plan { lies: 100, ..Plan::of(CACHE) }, Safeguard::Seed);
}

#[test]
fn control_without_flushes_durable_values_are_lost() {
    must_fail(Plan::of(STORE), Safeguard::Flush);
}

#[test]
fn control_without_epochs_readers_lose_values() {
    must_fail(Plan { slow_reads: true, ..Plan::of(STORE) }, Safeguard::Epoch);
}

#[test]
fn control_without_tombstones_deleted_values_come_back() {
    must_fail(Plan::of(STORE), Safeguard::Tombstones);
}

#[test]
fn control_without_places_what_was_forgotten_with_another_key_comes_back() {
    must_fail(Plan::of(CACHE), Safeguard::Places);
}

#[test]
fn a_copy_is_what_a_power_loss_would_have_left_at_its_moment() {
    let mut tally = all_pass(Plan { images: true, ..Plan::of(STORE) }, 150);
    tally.add(&all_pass(Plan { images: true, ..Plan::of(CACHE) }, 150));
    assert!(has_met(tally.images > 100 && tally.held_back > 100), "{tally:?}");
    tally = all_pass(Plan { images: true, failed_writes: 5, ..Plan::of(STORE) }, 60);
    assert!(has_met(tally.images > 20 && tally.failed_writes > 10), "{tally:?}");
}

#[test]
fn control_without_holding_segments_a_copy_is_torn() {
    must_fail(Plan { images: true, ..Plan::of(STORE) }, Safeguard::Held);
}
