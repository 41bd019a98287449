//! A rack in virtual time: nodes whose memory others read while it changes, a coordinator, clients with old
//! directories, and a network that loses, repeats and delays.
//!
//! The clients' results must be linearizable for each key. In a cache an item may vanish, but not come back; in
//! a store none does. Each safeguard has a control: without it a run must fail.

mod clients;
mod faults;
mod host;
mod memory;
mod nodes;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    Loss,
    switches::{Safeguard, without},
};
use world::{Moment, Plan, Tally, World};

/// The seeds of a test; more of them by MINOS_UNIT_SEEDS, from MINOS_UNIT_SEED on.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MINOS_UNIT_SEED").unwrap_or(0);
    first..first + number("MINOS_UNIT_SEEDS").unwrap_or(usual)
}

/// Runs one seed; a violation is its text.
fn run(seed: u64, plan: Plan, off: Option<Safeguard>) -> Result<Tally, String> {
    let run = || without(off, || World::new(seed, plan).run());
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("a panic".to_owned()))
}

/// Runs every seed under one of the plans in turn.
fn all_pass(loss: Loss) {
    const USUAL: u64 = 200;
    let plans = [Plan::of, moving, taking, restarting, torn, crashing];
    let mut sum = Tally::default();
    for seed in seeds(USUAL) {
        match run(seed, plans[seed as usize % plans.len()](loss), None) {
            Ok(tally) => sum.add(&tally),
            Err(violation) => panic!("MINOS_UNIT_SEED={seed} MINOS_UNIT_SEEDS=1, {loss:?}: {violation}"),
        }
    }
    eprintln!("{loss:?}: {sum:?}");
    // The usual seeds must have met what this is about; a repeated seed need not.
    let is_usual = std::env::var_os("MINOS_UNIT_SEEDS").is_none();
    let missed = STEPS.iter().chain(&EVENTS).find(|what| is_usual && sum.of(what) == 0);
    assert_eq!(missed, None, "{sum:?}");
}

/// The steps at which someone must have been killed.
const STEPS: [&str; 14] = [
    "kill: ask",
    "kill: copy",
    "kill: empty",
    "kill: note",
    "kill: own or freeze",
    "kill: pass of locks",
    "kill: persist",
    "kill: persisted",
    "kill: send changes",
    "kill: send that all is copied",
    "kill: stop noting",
    "kill: take changes",
    "kill: void",
    "kill: withdraw or complete",
];

/// What else must have happened.
const EVENTS: [&str; 7] =
    ["adopted", "given back", "moved", "moved at once", "remote reads", "unanswered", "weights"];

/// A control: without the safeguard, one of these seeds gives a wrong answer.
fn must_fail(plan: Plan, off: Safeguard) {
    must_fail_from(0, plan, off);
}

/// The same, from a seed on.
fn must_fail_from(first: u64, plan: Plan, off: Safeguard) {
    must_end_with("Violation", first, plan, off);
}

/// The same, for a violation whose text begins so.
fn must_end_with(text: &str, first: u64, plan: Plan, off: Safeguard) {
    const SEEDS: u64 = 2000;
    let violation = |seed| run(seed, plan, Some(off)).err().filter(|found| found.starts_with(text));
    let found = (first..first + SEEDS).find_map(|seed| Some((seed, violation(seed)?)));
    let (seed, violation) = found.unwrap_or_else(|| panic!("{off:?} is off, and nothing was noticed"));
    run(seed, plan, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    eprintln!("without {off:?}, seed {seed}: {violation}");
}

/// Many moves, each of which meets slow readers and writers.
fn moving(loss: Loss) -> Plan {
    Plan { moves: 30, fault_us: 3000, slow_steps: 100, ..Plan::of(loss) }
}

/// Processes that are soon back, under slow readers.
fn restarting(loss: Loss) -> Plan {
    Plan { kills: 30, moves: 3, fault_us: 3000, slow_steps: 300, ..Plan::of(loss) }
}

/// Nodes that do not hear the coordinator.
fn torn(loss: Loss) -> Plan {
    Plan { kills: 6, pauses: 9, cuts: 20, moves: 3, fault_us: 5000, losses: 150, ..Plan::of(loss) }
}

/// Owners that seldom hear that they may give a micro-shard away: it is taken from them.
fn taking(loss: Loss) -> Plan {
    Plan { completes_lost: 900, ..moving(loss) }
}

/// Processes that die at the steps of a move.
fn crashing(loss: Loss) -> Plan {
    Plan { kills: 0, pauses: 1, cuts: 1, moves: 20, fault_us: 4000, step_kills: 15, ..Plan::of(loss) }
}

/// Owners that die, with followers in other units.
fn followed(loss: Loss) -> Plan {
    Plan { copies: 2, kills: 12, memory_losses: 6, moves: 3, fault_us: 12_000, ..Plan::of(loss) }
}

/// The same, while nodes are also late and hear nothing for a while.
fn followed_afar(loss: Loss) -> Plan {
    Plan { pauses: 25, cuts: 15, fault_us: 6000, ..followed(loss) }
}

/// The same, while micro-shards move, also to those that follow them.
fn followed_on_the_move(loss: Loss) -> Plan {
    Plan { copies: 3, moves: 40, kills: 0, memory_losses: 0, ..followed_afar(loss) }
}

#[test]
fn followers_lose_no_acknowledged_change() {
    let plans = [followed, followed_afar, followed_on_the_move, followed_afar];
    let mut sum = Tally::default();
    for seed in seeds(200) {
        let loss = if seed / 4 % 4 == 0 { Loss::Allowed } else { Loss::Never };
        match run(seed, plans[seed as usize % plans.len()](loss), None) {
            Ok(tally) => sum.add(&tally),
            Err(violation) => panic!("MINOS_UNIT_SEED={seed} MINOS_UNIT_SEEDS=1, {loss:?}: {violation}"),
        }
    }
    eprintln!("{sum:?}");
    assert!(["inherited", "copies read"].iter().all(|what| sum.of(what) > 0), "{sum:?}");
}

/// Nothing goes wrong but the loss of one memory at this moment.
fn losing(loss_at: Moment) -> Plan {
    let base = Plan { kills: 0, pauses: 0, cuts: 0, coordinator_kills: 0, joins: 0, ..Plan::of(Loss::Never) };
    Plan { copies: 2, step_kills: 0, fault_us: 6000, loss_at: Some(loss_at), ..base }
}

/// Micro-shards that move, also to those that follow them, and an owner that loses its memory meanwhile.
fn losing_an_owner() -> Plan {
    Plan { moves: 1, ..losing(Moment::MoveToFollower) }
}

/// The same without a loss: what is acknowledged at once must come along.
fn moving_to_followers() -> Plan {
    Plan { is_eager: true, fault_us: 3000, slow_steps: 100, loss_at: None, ..losing_an_owner() }
}

/// Owners that are dead for a while, and an heir that loses its memory.
fn losing_an_heir() -> Plan {
    Plan { moves: 0, kills: 1, fault_us: 15_000, ..losing(Moment::Inheritance) }
}

/// A node that loses its memory, and whose process is back before its lease has run out, or later.
fn losing_one() -> Plan {
    Plan { moves: 1, fault_us: 50_000, ..losing(Moment::Any) }
}

/// Whatever is lost, all is read in the end.
fn one_loss_costs_nothing(plan: Plan) {
    let mut sum = Tally::default();
    for seed in seeds(200).step_by(2) {
        match run(seed, plan, None) {
            Ok(tally) => sum.add(&tally),
            Err(violation) => panic!("MINOS_UNIT_SEED={seed} MINOS_UNIT_SEEDS=1: {violation}"),
        }
    }
    eprintln!("{sum:?}");
    let is_usual = std::env::var_os("MINOS_UNIT_SEEDS").is_none();
    assert!(!is_usual || sum.of("memory losses") > 0, "{sum:?}");
}

#[test]
fn a_move_to_a_follower_takes_along_what_it_has_yet_to_take_in() {
    // They take ten times as long as others.
    for seed in seeds(200).step_by(4) {
        let ended = run(seed, moving_to_followers(), None);
        ended.unwrap_or_else(|violation| panic!("MINOS_UNIT_SEED={seed} MINOS_UNIT_SEEDS=1: {violation}"));
    }
}

#[test]
fn an_owner_that_dies_during_a_move_to_its_follower_leaves_the_copy() {
    one_loss_costs_nothing(losing_an_owner());
}

#[test]
fn an_heir_that_has_lost_its_memory_leaves_the_other_copy() {
    one_loss_costs_nothing(losing_an_heir());
}

#[test]
fn a_node_that_is_soon_back_without_its_memory_leaves_the_copies() {
    one_loss_costs_nothing(losing_one());
}

#[test]
fn control_without_freshness_an_old_copy_is_read() {
    must_fail_from(100, followed_afar(Loss::Never), Safeguard::Freshness);
}

#[test]
fn control_without_its_name_in_the_directory_a_copy_is_read_that_is_told_of_no_changes() {
    let plan =
        Plan { kills: 0, memory_losses: 0, moves: 0, cuts: 60, losses: 200, ..followed_afar(Loss::Never) };
    // It is rare: the seeds before find nothing, and take a minute.
    must_fail_from(5800, plan, Safeguard::Listing);
}

#[test]
fn control_without_its_lease_an_old_owner_feeds_copies() {
    let base = Plan { copies: 3, kills: 0, memory_losses: 0, moves: 0, ..followed_afar(Loss::Never) };
    // It is rare: the seeds before find nothing.
    must_fail_from(9000, Plan { pauses: 0, cuts: 60, fault_us: 2000, ..base }, Safeguard::FeedLease);
}

#[test]
fn control_without_waiting_an_acknowledged_change_is_lost() {
    must_fail(followed(Loss::Never), Safeguard::Wait);
}

#[test]
fn control_without_safety_a_follower_becomes_the_owner_too_early() {
    must_fail(followed(Loss::Never), Safeguard::Safe);
}

#[test]
fn control_without_draining_a_follower_takes_over_what_it_lacks() {
    must_fail(moving_to_followers(), Safeguard::Drain);
}

#[test]
fn control_without_keeping_the_other_copies_a_lost_heir_was_the_last() {
    must_end_with("only", 0, losing_an_heir(), Safeguard::Keeping);
}

/// A follower fails because its owner has lost its memory, and says so before that does.
#[test]
fn control_without_doubt_the_last_copy_is_dropped_before_its_owner_says_what_it_has_lost() {
    // One of a hundred thousand.
    must_end_with("only", 16_294, losing_one(), Safeguard::Doubt);
}

#[test]
fn a_store_gives_no_wrong_answer() {
    all_pass(Loss::Never);
}

#[test]
fn a_cache_gives_no_wrong_answer() {
    all_pass(Loss::Allowed);
}

#[test]
fn a_store_without_its_memory_gives_no_answer() {
    for seed in seeds(160).step_by(4) {
        let plan = Plan { memory_losses: 2, ..Plan::of(Loss::Never) };
        run(seed, plan, None).unwrap_or_else(|violation| panic!("MINOS_UNIT_SEED={seed}: {violation}"));
    }
}

#[test]
fn control_without_the_second_look_a_moved_value_is_read() {
    must_fail(restarting(Loss::Never), Safeguard::SecondLook);
}

#[test]
fn control_without_the_version_torn_values_are_read() {
    must_fail(moving(Loss::Allowed), Safeguard::Version);
}

#[test]
fn control_without_the_lease_two_nodes_answer() {
    must_fail(torn(Loss::Allowed), Safeguard::Lease);
}

#[test]
fn control_without_the_pass_of_locks_a_late_write_is_lost() {
    must_fail(moving(Loss::Never), Safeguard::PassOfLocks);
}

#[test]
fn control_without_the_withdrawal_a_micro_shard_is_read_that_was_given_away() {
    must_fail(moving(Loss::Never), Safeguard::Withdrawal);
}

#[test]
fn control_without_noting_changes_a_move_loses_writes() {
    must_fail(moving(Loss::Never), Safeguard::Log);
}

#[test]
fn control_without_a_higher_epoch_a_restart_goes_unnoticed() {
    must_fail(restarting(Loss::Never), Safeguard::HigherEpoch);
}

#[test]
fn control_without_withdrawing_first_a_repair_is_read() {
    must_fail(restarting(Loss::Never), Safeguard::NoneFirst);
}

#[test]
fn control_without_emptying_old_values_come_back() {
    must_fail(moving(Loss::Allowed), Safeguard::Emptying);
}

#[test]
fn control_without_the_fence_a_dead_nodes_memory_is_read() {
    must_fail(taking(Loss::Allowed), Safeguard::Fence);
}

#[test]
fn control_without_the_fence_a_memory_is_read_that_its_owner_has_lost() {
    let base = followed_afar(Loss::Never);
    let plan = Plan { kills: 0, memory_losses: 12, moves: 6, coordinator_kills: 0, ..base };
    // It is rare: the seeds before find nothing.
    must_fail_from(7700, plan, Safeguard::Fence);
}

#[test]
fn control_without_leaving_a_lost_memory_it_is_read_beside_the_new_one() {
    must_fail(Plan { memory_losses: 12, ..torn(Loss::Allowed) }, Safeguard::Since);
}
