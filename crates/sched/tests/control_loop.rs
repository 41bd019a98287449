//! Properties of the control loop of every size-aware design: homes, costs, steps and steadiness. Each
//! checker is given a broken input that it must reject.

mod common;

use common::{any_requests, classes, classes_between, epoch_of_mix, histogram, size_aware};
use minos_base::{SizeClass, seeded};
use minos_sched::{ControlConfig, Design, Options, Place, Plan, Policy, SizeHistogram, Threshold, WorkerId};
use proptest::prelude::*;

/// A policy of each size-aware design.
fn each(config: ControlConfig) -> impl Iterator<Item = Policy> {
    let designs = Design::ALL.into_iter().filter(|design| design.counts_sizes());
    designs.map(move |design| Policy::new(design, config, Options::default()).unwrap())
}

/// The places to which the design of `policy` sends requests, by class and dequeuing worker.
fn place_of(policy: &Policy) -> impl Fn(&Plan, WorkerId, SizeClass) -> Place {
    let assignment = policy.assignment();
    move |plan, taker, class| assignment.duty(taker).place(plan, class)
}

/// The place of a request of a class, dequeued by any worker.
type PlaceOf<'a> = &'a dyn Fn(&Plan, WorkerId, SizeClass) -> Place;

/// The fault of the homes under `plan`, if there is one: each class must have one home, a large worker's
/// classes must be adjacent, and larger classes must not come before smaller ones.
fn fault_of_homes(plan: &Plan, place: PlaceOf<'_>) -> Option<String> {
    let ids = || (0..plan.workers()).map(|index| WorkerId(index as u16));
    let mut last_home = None;
    let mut had = Vec::new();
    for class in classes() {
        let homes: Vec<_> = ids().map(|taker| place(plan, taker, class)).collect();
        let home = homes[0];
        if homes.iter().any(|other| *other != home) {
            return Some(format!("{class:?} has several homes: {homes:?}"));
        }
        if home == Place::Here && class > plan.threshold {
            return Some(format!("{class:?} is large and stays where it is"));
        }
        if last_home != Some(home) {
            if had.contains(&home) {
                return Some(format!("the sizes of {home:?} are not beside each other"));
            }
            had.push(home);
            last_home = Some(home);
        }
    }
    None
}

/// The deviation of the heaviest-loaded large worker from its part, in units of the cost of the heaviest
/// large class; `costs` are the costs of the ranges, in order.
fn cost_off(plan: &Plan, config: &ControlConfig, requests: &SizeHistogram, costs: &[f64]) -> f64 {
    let of_class = |class| config.alpha * config.cost.of(class) * requests.count(class) as f64;
    let heaviest = classes().filter(|&class| class > plan.threshold).map(of_class).fold(0.0, f64::max);
    let cost = costs.iter().sum::<f64>();
    if cost == 0.0 {
        return 0.0;
    }
    let off = costs.iter().map(|had| (had - cost / costs.len() as f64).abs());
    off.fold(0.0, f64::max) / heaviest
}

/// A policy, reduced to its threshold after an epoch.
type ThresholdAfter<'a> = &'a mut dyn FnMut(&SizeHistogram) -> SizeClass;

/// The distance in classes of the threshold from the percentile, two epochs after a change of the small
/// sizes.
fn off_after_step(threshold_after: ThresholdAfter<'_>, seed: u64, from_max: u64, to_max: u64) -> usize {
    let mut random = seeded(seed);
    for _ in 0..5 {
        threshold_after(&epoch_of_mix(&mut random, 20_000.0, from_max, 25.0));
    }
    threshold_after(&epoch_of_mix(&mut random, 20_000.0, to_max, 25.0));
    let threshold = threshold_after(&epoch_of_mix(&mut random, 20_000.0, to_max, 25.0));
    classes_between(threshold, SizeClass::of(to_max * 99 / 100))
}

/// The number of moves of the threshold in thirty equal epochs in which one request in a hundred is large:
/// the percentile lies at the edge of a gap.
fn moves_when_steady(threshold_after: ThresholdAfter<'_>, seed: u64) -> usize {
    let mut random = seeded(seed);
    let mut epoch = || threshold_after(&epoch_of_mix(&mut random, 10_000.0, 1400, 101.0));
    let mut before = epoch();
    let moved = (0..30).filter(|_| {
        let threshold = epoch();
        std::mem::replace(&mut before, threshold) != threshold
    });
    moved.count()
}

/// The percentile of the latest epoch alone.
fn raw_percentile(requests: &SizeHistogram) -> SizeClass {
    let mut sum = 0;
    let reaches = |class: &SizeClass| {
        sum += requests.count(*class);
        sum as f64 >= 0.99 * requests.total() as f64
    };
    classes().find(reaches).unwrap()
}

#[test]
fn broken_homes_are_found() {
    let mut policy = size_aware(ControlConfig::new(8));
    let plan = policy.epoch(&histogram(&[(10, 9_950), (100_000, 40), (200_000, 40)])).clone();
    assert_eq!(fault_of_homes(&plan, &place_of(&policy)), None);
    let by_taker: PlaceOf<'_> = &|_, taker, _| Place::Ring(taker);
    let dealt: PlaceOf<'_> = &|_, _, class| Place::Ring(WorkerId((class.index() % 8) as u16));
    let kept: PlaceOf<'_> = &|_, _, _| Place::Here;
    for (place, expected) in [(by_taker, "several homes"), (dealt, "beside"), (kept, "stays")] {
        assert!(fault_of_homes(&plan, place).unwrap().contains(expected), "{expected}");
    }
}

#[test]
fn unequal_costs_are_found() {
    // Ranges by cost give the many classes of cheaper large requests to one worker; ranges by number do not.
    let config = ControlConfig::new(8);
    let mut policy = size_aware(config);
    let sizes: Vec<(u64, u64)> = (0..40).map(|step| (20_000 + step * 12_000, 20)).collect();
    let requests = histogram(&[&[(10, 90_000)][..], &sizes].concat());
    let plan = policy.epoch(&requests).clone();
    let costs: Vec<f64> = policy.decision().ranges.iter().map(|range| range.cost).collect();
    assert!(costs.len() > 2, "{plan:?}");
    assert!(cost_off(&plan, &config, &requests, &costs) <= 1.0);
    let moved = [&[costs[0] + 0.9 * costs[1], 0.1 * costs[1]][..], &costs[2..]].concat();
    assert!(cost_off(&plan, &config, &requests, &moved) > 1.0, "{costs:?}");
}

#[test]
fn a_loop_that_is_slow_or_nervous_is_found() {
    let slow = ControlConfig { alpha: 0.1, ..ControlConfig::new(8) };
    let mut policy = size_aware(slow);
    assert!(off_after_step(&mut |requests| policy.epoch(requests).threshold, 1, 1400, 200) > 2);
    assert!(moves_when_steady(&mut raw_percentile, 1) > 5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_has_one_home_whoever_takes_it(
        workers in 1usize..=24,
        percentile in 50.0f64..=100.0,
        epochs in prop::collection::vec(any_requests(), 0..3),
    ) {
        for mut policy in each(ControlConfig { percentile, ..ControlConfig::new(workers) }) {
            let fault = fault_of_homes(policy.plan(), &place_of(&policy));
            prop_assert_eq!(fault, None, "{}", policy.design());
            for requests in &epochs {
                policy.epoch(requests);
                let fault = fault_of_homes(policy.plan(), &place_of(&policy));
                prop_assert_eq!(fault, None, "{}: {:?}", policy.design(), policy.plan());
            }
        }
    }

    #[test]
    fn each_large_worker_has_its_part_to_within_a_class(workers in 2usize..=24, requests in any_requests()) {
        let config = ControlConfig::new(workers);
        for mut policy in each(config) {
            policy.epoch(&requests);
            let costs: Vec<f64> = policy.decision().ranges.iter().map(|range| range.cost).collect();
            let off = cost_off(policy.plan(), &config, &requests, &costs);
            prop_assert!(off <= 1.0 + 1e-9, "off by {off} classes: {:?}", policy.decision());
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_step_is_followed_within_two_epochs(
        seed in any::<u64>(),
        step in prop::sample::select(vec![(1400, 4000), (4000, 1400), (200, 1400), (1400, 200)]),
    ) {
        let (from, to) = step;
        for mut policy in each(ControlConfig::new(8)) {
            let off = off_after_step(&mut |requests| policy.epoch(requests).threshold, seed, from, to);
            prop_assert!(off <= 2, "{}: {off} classes off after {from} to {to}", policy.design());
        }
    }

    #[test]
    fn a_steady_workload_moves_nothing(seed in any::<u64>()) {
        for mut policy in each(ControlConfig::new(8)) {
            let moves = moves_when_steady(&mut |requests| policy.epoch(requests).threshold, seed);
            prop_assert!(moves <= 1, "{}: {moves} moves", policy.design());
        }
    }
}

#[test]
fn another_configuration_keeps_what_was_learnt() {
    let config = ControlConfig::new(4);
    let mut requests = SizeHistogram::new();
    requests.record(SizeClass::of(100), 60);
    requests.record(SizeClass::of(10_000), 40);
    for mut policy in each(config) {
        policy.epoch(&requests);
        assert_eq!(policy.plan().threshold, SizeClass::of(10_000));
        let half = ControlConfig { percentile: 50.0, ..config };
        policy.reconfigure(half, Options::default()).unwrap();
        assert_eq!(policy.plan().threshold, SizeClass::of(100), "{}", policy.design());
        let fixed = ControlConfig { threshold: Threshold::Static(5000), ..config };
        policy.reconfigure(fixed, Options::default()).unwrap();
        assert_eq!(policy.plan().threshold, SizeClass::of(5000));
        let bad = ControlConfig { percentile: 0.0, ..config };
        assert!(policy.reconfigure(bad, Options::default()).is_err());
        assert_eq!(policy.config(), (fixed, Options::default()));
    }
}
