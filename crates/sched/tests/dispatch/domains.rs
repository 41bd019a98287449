//! Several NUMA domains: each runs like a server of its own (Minos §3).

use super::{any_requests, some_classes, with_large};
use minos_base::SizeClass;
use minos_sched::{
    Assignment, ConfigError, ControlConfig, Design, Domains, Duty, Options, Plan, Policy, Role, Share,
    SizeHistogram, Standby, WorkerId, WorkerSet,
};
use proptest::prelude::*;

/// The options of a server.
fn options(handoff_workers: usize, steal: bool) -> Options {
    Options { handoff_workers, steal, standby: Standby::Slices }
}

fn config(sizes: &[usize]) -> ControlConfig {
    ControlConfig { domains: Domains::of_sizes(sizes), ..ControlConfig::new(sizes.iter().sum()) }
}

/// The plan and the duties after these epochs.
fn after(mut policy: Policy, epochs: &[SizeHistogram]) -> (Plan, Assignment) {
    for requests in epochs {
        policy.epoch_above_flash(requests, requests);
    }
    (policy.plan().clone(), policy.assignment())
}

fn moved(set: WorkerSet, by: usize) -> WorkerSet {
    set.iter().map(|worker| WorkerId(worker.0 + by as u16)).collect()
}

/// A duty as it is if `by` other workers come before.
fn moved_duty(duty: &Duty, by: usize) -> Duty {
    let mut duty = duty.clone();
    duty.worker.0 += by as u16;
    duty.polls.iter_mut().for_each(|Share { queue, .. }| queue.0 += by as u16);
    for set in [&mut duty.drains.first, &mut duty.drains.then, &mut duty.borrows_from, &mut duty.relieves]
        .into_iter()
        .chain(duty.help.as_mut().map(|help| &mut help.queues))
    {
        *set = moved(*set, by);
    }
    duty
}

/// Returns the difference between a domain and a server of its workers alone, if any.
fn difference(
    (plan, assignment): &(Plan, Assignment),
    (alone, duties): &(Plan, Assignment),
    first: usize,
) -> Option<String> {
    for worker in alone.ids() {
        let here = WorkerId(worker.0 + first as u16);
        if plan.role(here) != alone.role(worker) || plan.threshold != alone.threshold {
            return Some(format!("{here:?} is {:?}, {:?} alone", plan.role(here), alone.role(worker)));
        }
        let wanted = moved_duty(duties.duty(worker), first);
        if *assignment.duty(here) != wanted {
            return Some(format!("{:?} instead of {wanted:?}", assignment.duty(here)));
        }
        for class in some_classes() {
            let home = alone.worker_for(class, worker).map(|home| WorkerId(home.0 + first as u16));
            if plan.worker_for(class, here) != home {
                return Some(format!("{class:?} of {here:?} goes to {:?}", plan.worker_for(class, here)));
            }
        }
        for (class, number) in some_classes().zip(0..) {
            let wanted = alone.fetcher_for(class, number, worker).map(|it| WorkerId(it.0 + first as u16));
            let fetcher = plan.fetcher_for(class, number, here);
            if fetcher != wanted {
                return Some(format!("{here:?} has {class:?} fetched by {fetcher:?}"));
            }
        }
        for (all, own) in [
            (&assignment.polled_by, &duties.polled_by),
            (&assignment.helped_by, &duties.helped_by),
            (&assignment.drained_by, &duties.drained_by),
            (&assignment.borrowed_by, &duties.borrowed_by),
        ] {
            if all[here.index()] != moved(own[worker.index()], first) {
                return Some(format!("{:?} serve {here:?}", all[here.index()]));
            }
        }
    }
    None
}

/// More than half of the cost is that of large requests.
fn half_large() -> SizeHistogram {
    with_large(900)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_domain_is_as_a_server_of_its_workers(
        sizes in prop::collection::vec(1usize..=9, 1..=5),
        handoff in 1usize..=3,
        steal in any::<bool>(),
        epochs in prop::collection::vec(any_requests(), 0..3),
    ) {
        for design in Design::SERVED {
            // A server alone does not start with as many hand-off workers as it has workers.
            let all = Policy::new(design, config(&sizes), options(handoff, steal));
            let Ok(all) = all.map(|policy| after(policy, &epochs)) else { continue };
            let mut first = 0;
            for &size in &sizes {
                let handoff = handoff.min(size.saturating_sub(1)).max(1);
                if let Ok(alone) = Policy::new(design, config(&[size]), options(handoff, steal)) {
                    prop_assert_eq!(difference(&all, &after(alone, &epochs), first), None, "{}", design);
                }
                first += size;
            }
        }
    }

    #[test]
    fn a_domain_of_two_has_a_large_worker_if_half_of_the_cost_is_large(
        sizes in prop::collection::vec(1usize..=9, 2..=5),
    ) {
        let policy = Policy::new(Design::SizeAware, config(&sizes), options(1, true)).unwrap();
        let (plan, _) = after(policy, &[half_large()]);
        for domain in plan.domains() {
            let large = plan.workers_in(Role::Large);
            prop_assert_eq!(domain.len() > 1, domain.clone().any(|worker| large.contains(WorkerId(worker as u16))));
        }
    }
}

#[test]
fn the_checker_finds_who_crosses() {
    let policy = |sizes: &[usize]| Policy::new(Design::SizeAware, config(sizes), options(1, true)).unwrap();
    let alone = after(policy(&[4]), &[half_large()]);
    assert_eq!(difference(&after(policy(&[4, 4]), &[half_large()]), &alone, 4), None);
    // The same workers in one domain poll, help and hand over across.
    assert!(difference(&after(policy(&[8]), &[half_large()]), &alone, 4).is_some());
}

#[test]
fn costs_of_ranges_add_up_to_those_of_all() {
    let large = |sizes: &[usize]| {
        let mut policy = Policy::new(Design::SizeAware, config(sizes), options(1, true)).unwrap();
        policy.epoch(&half_large());
        policy.decision().ranges.iter().map(|range| range.cost).sum::<f64>()
    };
    let (one, three) = (large(&[8]), large(&[3, 1, 4]));
    assert!((one - three).abs() < one * 1e-9, "{one} and {three}");
}

#[test]
fn a_worker_alone_in_its_domain_serves_all_it_gets() {
    for design in Design::SERVED {
        let policy = Policy::new(design, config(&[1, 3]), options(1, true)).unwrap();
        let (plan, assignment) = after(policy, &[half_large()]);
        let (own, lone) = (WorkerId(0), assignment.duty(WorkerId(0)));
        assert!(lone.most_of(own) > 0 && lone.drains.first.or(lone.drains.then).contains(own), "{lone:?}");
        let home = plan.worker_for(SizeClass::of(1 << 20), own);
        assert!(home.is_none_or(|home| home == own), "{design}: {home:?}");
    }
}

#[test]
fn domains_that_cannot_be_are_refused() {
    let empty = ControlConfig { domains: Domains::of_sizes(&[2, 2]), ..ControlConfig::new(2) };
    let refused = |design, config, options| {
        matches!(Policy::new(design, config, options), Err(ConfigError::Domains { .. }))
    };
    assert!(refused(Design::SizeAware, empty, options(1, true)));
    assert!(refused(Design::Helping, config(&[2, 2]), options(1, true)));
    // Promotion of a standby is for one domain, as in the simulator.
    assert!(refused(Design::SizeAware, config(&[2, 2]), Options::default()));
    assert!(!refused(Design::SizeAware, config(&[2, 2]), options(1, true)));
}
