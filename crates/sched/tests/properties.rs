//! Properties of all plans, for any requests.

mod common;

use common::{any_requests, classes, classes_between, epoch_of_mix, histogram, size_aware};
use minos_base::{SizeClass, seeded};
use minos_sched::{
    ControlConfig, Cost, Design, Options, Plan, Policy, Role, SizeHistogram, Threshold, WorkerId,
};
use proptest::prelude::*;

fn any_config() -> impl Strategy<Value = ControlConfig> {
    let cost = prop_oneof![
        Just(Cost::Packets),
        Just(Cost::Bytes),
        (0u32..100_000).prop_map(|fixed| Cost::FixedPlusBytes { fixed })
    ];
    let threshold =
        prop_oneof![3 => Just(Threshold::Auto), 1 => (0u64..=1 << 31).prop_map(Threshold::Static)];
    (1usize..=64, 0.1f64..=100.0, cost, threshold).prop_map(|(workers, percentile, cost, threshold)| {
        ControlConfig { percentile, cost, threshold, ..ControlConfig::new(workers) }
    })
}

/// Returns the fault of a plan, if any. Checks all properties below.
fn fault(plan: &Plan) -> Option<String> {
    let mut next = plan.threshold.index() + 1;
    for range in &plan.ranges {
        if range.first.index() != next || range.last < range.first {
            return Some(format!("gap or overlap at class {next}: {range:?}"));
        }
        if plan.role(range.worker) == Role::Small {
            return Some(format!("a small worker has a range: {range:?}"));
        }
        next = range.last.index() + 1;
    }
    if next != SizeClass::COUNT {
        return Some(format!("no home from class {next} on"));
    }
    for class in classes() {
        let homes: Vec<WorkerId> =
            plan.ranges.iter().filter(|r| r.first <= class && class <= r.last).map(|r| r.worker).collect();
        let home = plan.worker_for(class, WorkerId(0));
        if homes.len() > 1 || home != homes.first().copied() {
            return Some(format!("{class:?} has homes {homes:?}, is sent to {home:?}"));
        }
    }
    None
}

#[test]
fn the_checker_finds_faults() {
    let mut policy = size_aware(ControlConfig::new(8));
    let good = policy.epoch(&histogram(&[(10, 9_950), (100_000, 40), (200_000, 40)])).clone();
    assert_eq!(fault(&good), None);
    assert!(good.ranges.len() > 1);
    let mut gap = good.clone();
    gap.ranges.remove(0);
    let mut overlap = good.clone();
    overlap.ranges[0].last = overlap.ranges[1].first;
    let mut short = good.clone();
    short.ranges.pop();
    let mut wrong_role = good.clone();
    wrong_role.ranges[0].worker = WorkerId(0);
    for plan in [gap, overlap, short, wrong_role] {
        assert!(fault(&plan).is_some(), "{plan:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_size_has_exactly_one_home(config in any_config(), epochs in prop::collection::vec(any_requests(), 0..4)) {
        let mut policy = size_aware(config);
        prop_assert_eq!(fault(policy.plan()), None);
        for requests in &epochs {
            let plan = policy.epoch(requests);
            prop_assert_eq!(fault(plan), None);
            prop_assert_eq!(plan.workers(), config.workers);
        }
    }

    #[test]
    fn roles_follow_the_share_of_the_cost(config in any_config(), requests in any_requests()) {
        let mut policy = size_aware(config);
        policy.epoch(&requests);
        let (plan, decision) = (policy.plan(), policy.decision());
        let wanted = (decision.small_cost_share * config.workers as f64 - 1e-9).ceil().max(1.0);
        prop_assert_eq!(plan.small_workers(), wanted as usize);
        prop_assert_eq!(plan.small_workers() + plan.large_workers(), config.workers);
        // Exactly one standby when there is no large worker, else none.
        let standbys = plan.roles.iter().filter(|&&role| role == Role::Standby).count();
        prop_assert_eq!(standbys, usize::from(plan.large_workers() == 0));
    }

    #[test]
    fn ranges_are_within_one_class_of_equal(config in any_config(), requests in any_requests()) {
        let mut policy = size_aware(config);
        policy.epoch(&requests);
        let (plan, decision) = (policy.plan(), policy.decision());
        let of_class = |class| config.alpha * config.cost.of(class) * requests.count(class) as f64;
        let large = || classes().filter(|&class| class > plan.threshold).map(of_class);
        let (total, heaviest) = (large().sum::<f64>(), large().fold(0.0, f64::max));
        let equal = total / plan.ranges.len().max(1) as f64;
        for range in &decision.ranges {
            let off = (range.cost - equal).abs();
            prop_assert!(off <= heaviest * (1.0 + 1e-9), "{:?} is off by {off}, a class costs {heaviest}", range);
        }
    }

    #[test]
    fn the_threshold_is_the_percentile(percentile in 0.1f64..=100.0, requests in any_requests()) {
        let config = ControlConfig { percentile, ..ControlConfig::new(4) };
        let mut policy = size_aware(config);
        let threshold = policy.epoch(&requests).threshold;
        let up_to = |last: SizeClass| classes().filter(|&c| c <= last).map(|c| requests.count(c)).sum::<u64>() as f64;
        let wanted = percentile / 100.0 * requests.total() as f64;
        prop_assert!(up_to(threshold) >= wanted * (1.0 - 1e-6));
        prop_assert!(up_to(threshold) - (requests.count(threshold) as f64) < wanted * (1.0 + 1e-6));
    }

    #[test]
    fn an_empty_epoch_keeps_the_plan(config in any_config(), requests in any_requests()) {
        let mut policy = size_aware(config);
        let before = policy.plan().clone();
        prop_assert_eq!(policy.epoch(&SizeHistogram::new()), &before);
        let after = policy.epoch(&requests).clone();
        prop_assert_eq!(policy.epoch(&SizeHistogram::new()), &after);
        prop_assert_eq!(policy.decision().requests, 0);
    }
}

#[test]
fn a_steady_threshold_does_not_flap() {
    for (seed, rate) in [(1, 2_000.0), (2, 20_000.0), (3, 40_000.0)] {
        let mut random = seeded(seed);
        let mut policy = size_aware(ControlConfig::new(8));
        let mut moves = 0;
        let mut before = policy.epoch(&epoch_of_mix(&mut random, rate, 1400, rate / 800.0)).threshold;
        for _ in 0..60 {
            let threshold = policy.epoch(&epoch_of_mix(&mut random, rate, 1400, rate / 800.0)).threshold;
            moves += usize::from(threshold != before);
            before = threshold;
        }
        assert!(moves <= 1, "{moves} moves in 60 epochs at {rate}/s");
        assert!(classes_between(before, SizeClass::of(1380)) <= 1, "{before:?}");
    }
}

#[test]
fn a_share_of_large_ones_right_at_the_percentile_does_not_flap() {
    // The percentile falls in the gap between 1 400 bytes and some 100 KB, on a side that noise decides.
    let mut random = seeded(4);
    let mut policy = size_aware(ControlConfig::new(8));
    let mut moves = 0;
    let mut before = policy.epoch(&epoch_of_mix(&mut random, 20_000.0, 1400, 202.0)).threshold;
    for _ in 0..60 {
        let threshold = policy.epoch(&epoch_of_mix(&mut random, 20_000.0, 1400, 202.0)).threshold;
        moves += usize::from(threshold != before);
        before = threshold;
    }
    assert!(moves <= 1, "{moves} moves in 60 epochs");
}

#[test]
fn a_step_is_followed_within_two_epochs() {
    let mut random = seeded(5);
    for (from_max, to_max) in [(1400, 4000), (4000, 1400), (200, 1400), (1400, 200)] {
        let mut policy = size_aware(ControlConfig::new(8));
        for _ in 0..10 {
            policy.epoch(&epoch_of_mix(&mut random, 20_000.0, from_max, 25.0));
        }
        let from = SizeClass::of(from_max * 99 / 100);
        assert!(classes_between(policy.plan().threshold, from) <= 2);
        for _ in 0..2 {
            policy.epoch(&epoch_of_mix(&mut random, 20_000.0, to_max, 25.0));
        }
        let (threshold, to) = (policy.plan().threshold, SizeClass::of(to_max * 99 / 100));
        assert!(classes_between(threshold, to) <= 2, "{from_max} to {to_max}: {}", threshold.bytes_max());
    }
}

#[test]
fn a_static_threshold_stays() {
    let config = ControlConfig { threshold: Threshold::Static(1500), ..ControlConfig::new(4) };
    let mut policy = size_aware(config);
    for requests in [histogram(&[(10, 100)]), histogram(&[(1 << 20, 100)])] {
        assert_eq!(policy.epoch(&requests).threshold, SizeClass::of(1500));
    }
    assert_eq!(policy.plan().roles, [Role::Small, Role::Large, Role::Large, Role::Large]);
}

#[test]
fn before_the_first_request_only_long_values_are_large() {
    let policy = size_aware(ControlConfig::new(2));
    assert_eq!(policy.plan().roles, [Role::Small, Role::Standby]);
    assert_eq!(policy.plan().worker_for(SizeClass::of(1000), WorkerId(0)), None);
    assert_eq!(policy.plan().worker_for(SizeClass::of(10 << 20), WorkerId(0)), Some(WorkerId(1)));
}

#[test]
fn one_worker_is_its_own_standby() {
    let mut policy = size_aware(ControlConfig::new(1));
    let plan = policy.epoch(&histogram(&[(10, 1000), (1 << 20, 5)]));
    assert_eq!(plan.roles, [Role::Standby]);
    assert_eq!(plan.worker_for(SizeClass::of(1 << 20), WorkerId(0)), Some(WorkerId(0)));
}

#[test]
fn key_sharding_serves_everything_where_it_arrives() {
    let mut policy = Policy::new(Design::KeyHash, ControlConfig::new(4), Options::default()).unwrap();
    let plan = policy.epoch(&histogram(&[(10, 1000), (1 << 20, 500)]));
    assert_eq!(fault(plan), None);
    assert!(classes().all(|class| plan.worker_for(class, WorkerId(3)).is_none()));
    assert!(Design::KeyHash.runs_to_completion() && !Design::SizeAware.runs_to_completion());
}

#[test]
fn a_decision_tells_its_numbers() {
    let mut policy = size_aware(ControlConfig::new(4));
    policy.epoch(&histogram(&[(10, 9_950), (100_000, 50)]));
    let mut told = Vec::new();
    policy.decision().emit(&mut |name, value| told.push(format!("{name} {value}")));
    for line in
        ["dispatch size-aware", "epoch 1", "epoch_requests 10000", "threshold_bytes 10", "large_workers 1"]
    {
        assert!(told.iter().any(|had| had == line), "{line} is not among {told:?}");
    }
    assert!(told.iter().any(|line| line.starts_with("range:3:bytes_min 11")), "{told:?}");
    let text = policy.decision().to_string();
    assert!(text.contains("threshold 10 B") && text.contains("worker 3 has"), "{text}");
}
