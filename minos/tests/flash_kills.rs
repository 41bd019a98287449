//! `minos serve --flash` killed under load, often: nothing is wrong, comes back, or is lost that was promised.
//! `MINOS_KILLS` says how often, of all promises together.

mod common;

use common::kills::{Promise, Region, kill_and_check};
use minos_testkit::number_from;

/// Kills if nobody says how many.
const KILLS: u64 = 40;

const PROMISES: [Promise; 4] = [
    Promise { durability: "flush", region: Region::None },
    Promise { durability: "flush", region: Region::File },
    Promise { durability: "none", region: Region::File },
    Promise { durability: "interval", region: Region::File },
];

#[test]
fn what_was_acknowledged_survives_kills() {
    let kills = number_from("MINOS_KILLS", KILLS);
    for (seed, promise) in PROMISES.into_iter().enumerate() {
        kill_and_check(promise, kills.div_ceil(PROMISES.len() as u64), seed as u64);
    }
}

#[test]
#[should_panic(expected = "instead of")]
fn control_without_a_promise_acknowledged_changes_are_lost() {
    kill_and_check(Promise { durability: "none", region: Region::None }, 50, 0);
}
