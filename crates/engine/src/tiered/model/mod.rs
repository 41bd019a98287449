//! Random operations on a table above a fake flash, beside a map; with controls that must fail.

mod flash;
mod flights;
mod recovery;
mod world;

use super::switches::{Safeguard, without};
use crate::config::{StoreConfig, TierConfig};
use world::World;

/// Bits of the hash that the index never uses in a table this small, so that keys whose slots are equal have
/// different hashes.
const UNUSED: u64 = 0xffff_ffc0_0000_0000;

fn config(is_lossless: bool) -> StoreConfig {
    StoreConfig {
        partitions: Some(1),
        value_bytes_max: 64 << 10,
        tier: TierConfig { is_lossless, tickets_max: 64, ..TierConfig::default() },
        ..StoreConfig::new(768 << 10)
    }
}

/// As [`config`], where few slots differ. A table that may lose nothing has room for eight records of one hash.
fn colliding(is_lossless: bool) -> StoreConfig {
    let used = if is_lossless { 0x3_00ff } else { 0x3_000f };
    StoreConfig { hash_mask: UNUSED | used, ..config(is_lossless) }
}

/// The first seed at which a world contradicts its model, and how.
fn first_fault(config: &StoreConfig, seeds: u64, steps: usize) -> Option<String> {
    let fault = |seed| {
        let mut world = World::new(config.clone(), seed);
        world.run(steps).err().map(|fault| format!("seed {seed}: {fault}"))
    };
    (0..seeds).find_map(fault)
}

#[test]
fn a_cache_above_flash_never_answers_anything_wrong() {
    assert_eq!(first_fault(&config(false), 60, 400), None);
}

#[test]
fn a_cache_whose_slots_collide_never_answers_anything_wrong() {
    assert_eq!(first_fault(&colliding(false), 60, 400), None);
}

#[test]
fn a_table_that_may_lose_nothing_loses_nothing() {
    assert_eq!(first_fault(&config(true), 60, 400), None);
}

#[test]
fn a_table_that_may_lose_nothing_loses_nothing_where_slots_collide() {
    assert_eq!(first_fault(&colliding(true), 60, 400), None);
}

#[test]
fn without_a_safeguard_something_wrong_is_answered() {
    for safeguard in [Safeguard::Written, Safeguard::Promotion, Safeguard::Memory, Safeguard::Tombstones] {
        let found = |config: &StoreConfig| without(Some(safeguard), || first_fault(config, 100, 400));
        let fault =
            found(&config(false)).or_else(|| found(&colliding(false))).or_else(|| found(&config(true)));
        assert!(fault.is_some(), "{safeguard:?} is not needed");
        println!("{safeguard:?} off: {}", fault.unwrap_or_default());
    }
}
