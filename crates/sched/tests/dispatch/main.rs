//! Properties of the assignments of all designs, for any plan.

mod domains;

use minos_base::{SizeClass, limits::WORKERS_MAX};
use minos_sched::{
    Assignment, ControlConfig, Design, Intake, Options, Place, Plan, Policy, Portion, Role, SizeHistogram,
    Standby, Threshold, WorkerId, WorkerSet,
};
use proptest::prelude::*;

fn some_classes() -> impl Iterator<Item = SizeClass> {
    (0..SizeClass::COUNT).step_by(7).filter_map(SizeClass::from_index)
}

/// A policy as in the paper.
fn policy(design: Design, workers: usize) -> Policy {
    Policy::new(design, ControlConfig::new(workers), Options::default()).unwrap()
}

/// Returns the fault that would let a request wait for ever, if any. Workers that take from a queue or a ring
/// only when idle do not count, as they may never be idle.
fn fault(assignment: &Assignment, plan: &Plan) -> Option<String> {
    let all = WorkerSet::first(plan.workers());
    let sum = |sets: &mut dyn Iterator<Item = WorkerSet>| sets.fold(WorkerSet::EMPTY, WorkerSet::or);
    let polled = sum(&mut assignment.duties.iter().map(|duty| duty.polled()));
    if polled != all {
        return Some(format!("of {all:?} only {polled:?} are polled"));
    }
    let drained = sum(&mut assignment.duties.iter().map(|duty| duty.drains.first.or(duty.drains.then)));
    let polling = assignment.duties.iter().filter(|duty| !duty.polls.is_empty());
    let mut places = polling.flat_map(|duty| {
        let fetches = some_classes().map(|class| duty.place_fetch(plan, class, class.index() as u64));
        some_classes().map(|class| duty.place(plan, class)).chain(fetches)
    });
    let lost = places.find(|place| matches!(place, Place::Ring(ring) if !drained.contains(*ring)));
    lost.map(|lost| format!("nobody takes from the ring of {lost:?}"))
}

fn any_requests() -> impl Strategy<Value = SizeHistogram> {
    let size = (0u32..=30, 0u64..1 << 30).prop_map(|(bits, bytes)| bytes >> bits);
    prop::collection::vec((size, 1u64..1_000_000), 1..60).prop_map(|sizes| {
        let mut histogram = SizeHistogram::new();
        sizes.iter().for_each(|&(bytes, requests)| histogram.record(SizeClass::of(bytes), requests));
        histogram
    })
}

/// Checks a policy before its first epoch and after each of `epochs`.
fn check(mut policy: Policy, epochs: &[SizeHistogram]) -> Result<(), TestCaseError> {
    prop_assert_eq!(fault(&policy.assignment(), policy.plan()), None, "{}", policy.design());
    for (number, requests) in epochs.iter().enumerate() {
        // All items are on flash, or none.
        let fetched = if number % 2 == 1 { requests } else { &SizeHistogram::new() };
        policy.epoch_above_flash(requests, fetched);
        let (assignment, plan) = (policy.assignment(), policy.plan());
        prop_assert_eq!(fault(&assignment, plan), None, "{}: {:?}", policy.design(), plan);
    }
    Ok(())
}

#[test]
fn the_checker_finds_faults() {
    let options = Options { handoff_workers: 2, ..Options::default() };
    let policy = Policy::new(Design::HandOff, ControlConfig::new(4), options).unwrap();
    let plan = policy.plan();
    assert_eq!(fault(&policy.assignment(), plan), None);
    let mut unpolled = policy.assignment();
    unpolled.duties[1].polls.clear();
    assert!(fault(&unpolled, plan).unwrap().contains("polled"));
    let mut undrained = policy.assignment();
    for duty in &mut undrained.duties {
        duty.drains.first = duty.drains.first.without(WorkerId(1));
    }
    assert!(fault(&undrained, plan).unwrap().contains("ring"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_somebodys(
        workers in 1usize..=40,
        handoff in 1usize..=3,
        percentile in 50.0f64..=100.0,
        epochs in prop::collection::vec(any_requests(), 0..3),
    ) {
        let config = ControlConfig { percentile, ..ControlConfig::new(workers) };
        for (design, steal) in Design::ALL.into_iter().flat_map(|design| [(design, false), (design, true)]) {
            // A design refuses too few workers.
            if let Ok(policy) = Policy::new(design, config, Options { handoff_workers: handoff, steal, ..Options::default() }) {
                check(policy, &epochs)?;
            }
        }
    }

    #[test]
    fn no_small_request_waits_behind_a_large_one(
        workers in 2usize..=40,
        requests in any_requests(),
    ) {
        // A worker that polls RX queues in bursts executes no large request, unless it is the standby.
        let mut policy = policy(Design::SizeAware, workers);
        policy.epoch(&requests);
        let (assignment, plan) = (policy.assignment(), policy.plan());
        for worker in plan.ids().filter(|&worker| plan.role(worker) == Role::Small) {
            for class in some_classes().filter(|&class| class > plan.threshold) {
                let place = assignment.duty(worker).place(plan, class);
                prop_assert!(matches!(place, Place::Ring(home) if plan.role(home) != Role::Small), "{:?}", place);
            }
        }
    }

}

/// An epoch of 99 000 small requests and `requests` large ones.
fn with_large(requests: u64) -> SizeHistogram {
    let mut histogram = SizeHistogram::new();
    histogram.record(SizeClass::of(100), 99_000);
    histogram.record(SizeClass::of(200_000), requests);
    histogram
}

#[test]
fn large_queues_are_drained_as_fast_as_the_others() {
    // B/n_s from each of n_s small workers (Minos §3.1).
    let mut policy = policy(Design::SizeAware, 8);
    policy.epoch(&with_large(700));
    let (assignment, plan) = (policy.assignment(), policy.plan());
    assert!(plan.large_workers() > 1, "{plan:?}");
    for queue in plan.ids() {
        let taken: usize = assignment.duties.iter().map(|duty| duty.most_of(queue)).sum();
        assert!((32..32 + plan.small_workers()).contains(&taken), "{queue:?}: {taken}");
    }
}

#[test]
fn a_standby_becomes_large() {
    let standby = WorkerId(3);
    let mut policy = policy(Design::SizeAware, 4);
    assert_eq!(policy.plan().role(standby), Role::Standby);
    assert_eq!(policy.assignment().promotes, Some(standby));
    policy.promote_standby();
    let plan = policy.plan().clone();
    assert_eq!((plan.small_workers(), plan.role(standby)), (3, Role::Large));
    assert_eq!((policy.decision().small_workers, policy.decision().has_standby), (3, false));
    let assignment = policy.assignment();
    assert_eq!(fault(&assignment, &plan), None);
    assert_eq!((assignment.promotes, assignment.duty(standby).polls.len()), (None, 0));
    policy.promote_standby();
    assert_eq!(*policy.plan(), plan);
    // The next epoch makes a new plan.
    assert_eq!(policy.epoch(&with_large(0)).role(standby), Role::Standby);
}

#[test]
fn a_standby_that_serves_slices_stays_what_it_is() {
    let options = Options { standby: Standby::Slices, ..Options::default() };
    let policy = Policy::new(Design::SizeAware, ControlConfig::new(4), options).unwrap();
    let assignment = policy.assignment();
    assert_eq!(assignment.promotes, None);
    let duty = assignment.duty(WorkerId(3));
    assert!(duty.in_slices && duty.most_of(WorkerId(3)) > 0 && duty.drains.first.contains(WorkerId(3)));
}

#[test]
fn a_lone_worker_is_not_promoted() {
    let mut lone = policy(Design::SizeAware, 1);
    assert_eq!(lone.assignment().promotes, None);
    lone.promote_standby();
    assert_eq!(lone.plan().role(WorkerId(0)), Role::Standby);
}

#[test]
fn the_designs_are_those_of_the_paper() {
    let stealing = policy(Design::Stealing, 4).assignment();
    let keyhash = policy(Design::KeyHash, 4).assignment();
    assert_eq!((stealing.duties[2].intake, keyhash.duties[2].intake), (Intake::WhenEmpty, Intake::Always));
    assert_eq!(stealing.duties[2].help.unwrap().portion, Portion::Burst);
    let drains = stealing.duties[2].drains;
    assert_eq!((drains.first.len(), drains.then.len()), (1, 3), "its own ring first, then the others'");
    let hand_off = |workers, handoff_workers| {
        let options = Options { handoff_workers, ..Options::default() };
        Policy::new(Design::HandOff, ControlConfig::new(workers), options)
    };
    let handoff = hand_off(8, 3).unwrap();
    assert_eq!(handoff.plan().small_workers(), 3);
    let assignment = handoff.assignment();
    let drains = |worker: usize| assignment.duties[worker].drains;
    assert!(drains(2).first.or(drains(2).then).is_empty(), "who hands off does not serve");
    assert_eq!(drains(7).first, WorkerSet::first(3));
    for (workers, handoff) in [(8, 0), (8, 4), (2, 2), (1, 1), (WORKERS_MAX + 1, 1)] {
        assert!(hand_off(workers, handoff).is_err(), "{handoff} of {workers}");
    }
}

#[test]
fn who_conserves_work_leaves_nothing_lying() {
    let mut policy = policy(Design::WorkConserving, 8);
    policy.epoch(&with_large(300));
    let (assignment, plan) = (policy.assignment(), policy.plan());
    assert!(plan.large_workers() > 1, "{plan:?}");
    let large = plan.workers_in(Role::Large);
    for duty in &assignment.duties {
        // An idle worker takes every waiting request, from any RX queue or ring.
        let reached = duty.help.unwrap().queues.or(duty.polled());
        assert_eq!(reached, WorkerSet::first(8), "{duty:?}");
        let drained = duty.drains.first.or(duty.drains.then).or(duty.relieves);
        assert_eq!(drained.and(large), large, "{duty:?}");
        // A large worker completes a request that it has begun; a small one yields after each slice.
        assert_eq!(duty.relieves.is_empty(), plan.role(duty.worker) == Role::Large);
    }
}

#[test]
fn stealing_is_a_switch_of_size_aware_designs() {
    for design in Design::ALL {
        let with = |steal| {
            let options = Options { steal, ..Options::default() };
            let mut policy = Policy::new(design, ControlConfig::new(8), options).unwrap();
            policy.epoch(&with_large(700));
            policy.assignment()
        };
        let helps = |assignment: &Assignment| assignment.duties.iter().all(|duty| duty.help.is_some());
        assert_eq!(with(true) != with(false), design.counts_sizes() && !helps(&with(false)));
    }
    let options = Options { steal: true, ..Options::default() };
    let mut policy = Policy::new(Design::SizeAware, ControlConfig::new(8), options).unwrap();
    policy.epoch(&with_large(700));
    let assignment = policy.assignment();
    let large = policy.plan().workers_in(Role::Large);
    for duty in &assignment.duties {
        let queues = duty.help.unwrap().queues;
        if large.contains(duty.worker) {
            assert_eq!(queues, WorkerSet::one(duty.worker), "a large worker helps at its own queue");
        } else {
            assert_eq!(queues, WorkerSet::first(8).minus(large).without(duty.worker), "{duty:?}");
        }
    }
}

/// Cold reads are large work, whatever their sizes: they get workers of their own, as many as they need.
#[test]
fn items_from_flash_are_fetched_by_large_workers_and_dealt_among_them() {
    let (small, huge) = (SizeClass::of(1000), SizeClass::of(1 << 20));
    let mut policy = policy(Design::SizeAware, 8);
    let mut requests = SizeHistogram::new();
    requests.record(small, 100_000);
    requests.record(huge, 10);
    let none = policy.epoch_above_flash(&requests, &SizeHistogram::new()).clone();
    assert_eq!((none.large_workers(), &none.fetchers[..]), (0, &[1][..]));
    let mut fetched = SizeHistogram::new();
    fetched.record(small, 50_000);
    // A fetch costs two small requests, and its request one.
    for _ in 0..20 {
        policy.epoch_above_flash(&requests, &fetched);
    }
    let plan = policy.plan().clone();
    assert_eq!((plan.large_workers(), &plan.fetchers[..]), (6, &[6][..]), "{}", policy.decision());
    let assignment = policy.assignment();
    let place = |class, number| assignment.duty(WorkerId(0)).place_fetch(&plan, class, number);
    let dealt: Vec<_> = (0..7).map(|number| place(small, number)).collect();
    let workers = [2, 3, 4, 5, 6, 7, 2];
    assert_eq!(dealt, workers.map(|worker| Place::Ring(WorkerId(worker))));
    // So are those that are hardly large; the largest go where they are served.
    assert_eq!(place(SizeClass::of(16 << 10), 1), Place::Ring(WorkerId(3)));
    let home = plan.worker_for(huge, WorkerId(0)).unwrap();
    assert!((0..7).all(|number| place(huge, number) == Place::Ring(home)));
    // If nothing is large, no worker waits for large requests.
    let everything = ControlConfig { threshold: Threshold::Static(1 << 30), ..ControlConfig::new(8) };
    policy.reconfigure(everything, Options::default()).unwrap();
    assert_eq!((policy.plan().threshold, policy.plan().large_workers()), (SizeClass::MAX, 0));
    // Other designs fetch where they serve.
    let hashed = self::policy(Design::KeyHash, 8);
    let place = hashed.assignment().duty(WorkerId(3)).place_fetch(hashed.plan(), small, 5);
    assert_eq!(place, Place::Here);
}
