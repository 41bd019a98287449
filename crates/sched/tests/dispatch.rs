//! What must hold of every discipline's answers to its workers, whatever the plan.

use minos_base::{SizeClass, limits::WORKERS_MAX};
use minos_sched::{
    ControlConfig, Discipline, Dispatch, Fractional, HandOff, Help, Helping, Intake, KeySharded, Place, Plan,
    Pulls, Reserved, Role, SizeAware, SizeHistogram, Stealing, WorkConserving, WorkerId, WorkerSet,
};
use proptest::prelude::*;

fn ids(plan: &Plan) -> impl Iterator<Item = WorkerId> + Clone {
    (0..plan.workers()).map(|index| WorkerId(index as u16))
}

fn some_classes() -> impl Iterator<Item = SizeClass> {
    (0..SizeClass::COUNT).step_by(7).filter_map(SizeClass::from_index)
}

/// The answers of one discipline, as data, so that the checker can be shown wrong ones.
struct Answers {
    polls: Vec<WorkerSet>,
    places: Vec<(WorkerId, SizeClass, Place)>,
    pulls: Vec<Pulls>,
}

impl Answers {
    fn of<D: Dispatch>(plan: &Plan) -> Self {
        let polls_of = |worker| {
            // A worker that may take from a queue only to help does not count: it may never be idle.
            ids(plan).filter(|&queue| D::share(plan, worker, queue) > 0).collect()
        };
        let places = ids(plan).flat_map(|worker| {
            some_classes().map(move |class| (worker, class, D::place(plan, worker, class)))
        });
        Self {
            polls: ids(plan).map(polls_of).collect(),
            places: places.collect(),
            pulls: ids(plan).map(|worker| D::pulls(plan, worker)).collect(),
        }
    }

    /// What would leave a request lying for ever, if anything.
    fn fault(&self) -> Option<String> {
        let all = WorkerSet::first(self.pulls.len());
        let polled = self.polls.iter().fold(WorkerSet::EMPTY, |sum, &queues| sum.or(queues));
        if polled != all {
            return Some(format!("of {all:?} only {polled:?} are polled"));
        }
        let pulled =
            self.pulls.iter().fold(WorkerSet::EMPTY, |sum, pulls| sum.or(pulls.first).or(pulls.then));
        let lost = self.places.iter().find(|(worker, _, place)| match place {
            Place::Here => false,
            Place::Ring(ring) => !self.polls[worker.index()].is_empty() && !pulled.contains(*ring),
        });
        lost.map(|lost| format!("nobody takes {lost:?} from its ring"))
    }
}

fn any_requests() -> impl Strategy<Value = SizeHistogram> {
    let size = (0u32..=30, 0u64..1 << 30).prop_map(|(bits, bytes)| bytes >> bits);
    prop::collection::vec((size, 1u64..1_000_000), 1..60).prop_map(|sizes| {
        let mut histogram = SizeHistogram::new();
        sizes.iter().for_each(|&(bytes, requests)| histogram.record(SizeClass::of(bytes), requests));
        histogram
    })
}

/// Checks a discipline before its first epoch and after each of `epochs`.
fn check<D: Dispatch>(mut policy: D, epochs: &[SizeHistogram]) -> Result<(), TestCaseError> {
    prop_assert_eq!(Answers::of::<D>(policy.plan()).fault(), None, "{}", D::NAME);
    for requests in epochs {
        let plan = policy.epoch(requests);
        prop_assert_eq!(Answers::of::<D>(plan).fault(), None, "{}: {:?}", D::NAME, plan);
    }
    Ok(())
}

#[test]
fn the_checker_finds_faults() {
    let policy = HandOff::new(4, 2).unwrap();
    let good = || Answers::of::<HandOff>(policy.plan());
    assert_eq!(good().fault(), None);
    let mut unpolled = good();
    unpolled.polls[1] = WorkerSet::EMPTY;
    assert!(unpolled.fault().unwrap().contains("polled"));
    let mut unpulled = good();
    unpulled.pulls.fill(Pulls { first: WorkerSet::one(WorkerId(0)), then: WorkerSet::EMPTY });
    assert!(unpulled.fault().unwrap().contains("ring"));
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
        check(KeySharded::new(workers).unwrap(), &epochs)?;
        check(Stealing::new(workers).unwrap(), &epochs)?;
        check(SizeAware::new(config).unwrap(), &epochs)?;
        check(Helping::new(config).unwrap(), &epochs)?;
        check(Fractional::new(config).unwrap(), &epochs)?;
        check(WorkConserving::new(config).unwrap(), &epochs)?;
        if handoff < workers {
            check(HandOff::new(workers, handoff).unwrap(), &epochs)?;
        }
        if workers >= 3 {
            check(Reserved::new(config).unwrap(), &epochs)?;
        }
    }

    #[test]
    fn no_small_request_waits_behind_a_large_one(
        workers in 2usize..=40,
        requests in any_requests(),
    ) {
        // Who polls RX queues in bursts executes nothing large, unless he is the standby.
        let mut policy = SizeAware::new(ControlConfig::new(workers)).unwrap();
        let plan = policy.epoch(&requests);
        for worker in ids(plan).filter(|&worker| plan.role(worker) == Role::Small) {
            for class in some_classes().filter(|&class| class > plan.threshold) {
                let place = SizeAware::place(plan, worker, class);
                prop_assert!(matches!(place, Place::Ring(home) if plan.role(home) != Role::Small), "{:?}", place);
            }
        }
    }

    #[test]
    fn a_split_worker_is_split_as_the_cost_is(workers in 2usize..=40, requests in any_requests()) {
        let mut policy = Fractional::new(ControlConfig::new(workers)).unwrap();
        let plan = policy.epoch(&requests).clone();
        let share = policy.decision().small_cost_share;
        let shared = plan.shared.unwrap();
        let small = plan.small_workers() as f64 + f64::from(shared.small_permille) / 1000.0;
        // At least one worker is small, and a split one is small for at most all of its time.
        let wanted = (share * workers as f64).clamp(1.0, workers as f64);
        prop_assert!((small - wanted).abs() <= 0.0011, "{} of {workers}, not {wanted}", small);
        prop_assert_eq!(Fractional::help(&plan, shared.worker), Help::Share { small_permille: shared.small_permille });
    }
}

#[test]
fn large_queues_are_drained_as_fast_as_the_others() {
    // B/n_s from each of n_s small workers (Minos §3.1).
    let mut policy = SizeAware::new(ControlConfig::new(8)).unwrap();
    let mut requests = SizeHistogram::new();
    requests.record(SizeClass::of(100), 99_000);
    requests.record(SizeClass::of(200_000), 700);
    let plan = policy.epoch(&requests);
    assert!(plan.large_workers() > 1, "{plan:?}");
    for queue in ids(plan) {
        let taken: usize = ids(plan).map(|worker| SizeAware::share(plan, worker, queue)).sum();
        assert!((32..32 + plan.small_workers()).contains(&taken), "{queue:?}: {taken}");
    }
}

#[test]
fn a_standby_becomes_large() {
    let policy = SizeAware::new(ControlConfig::new(4)).unwrap();
    assert_eq!(policy.plan().role(WorkerId(3)), Role::Standby);
    let plan = policy.plan().with_standby_large().unwrap();
    assert_eq!((plan.small_workers(), plan.role(WorkerId(3))), (3, Role::Large));
    assert_eq!(Answers::of::<SizeAware>(&plan).fault(), None);
    assert_eq!(plan.with_standby_large(), None);
    assert_eq!(SizeAware::new(ControlConfig::new(1)).unwrap().plan().with_standby_large(), None);
}

#[test]
fn the_designs_are_those_of_the_paper() {
    const {
        assert!(matches!(Stealing::INTAKE, Intake::WhenEmpty) && matches!(KeySharded::INTAKE, Intake::Always))
    };
    let stealing = Stealing::new(4).unwrap();
    let plan = stealing.plan();
    assert_eq!(Stealing::help(plan, WorkerId(2)), Help::Burst);
    let pulls = Stealing::pulls(plan, WorkerId(2));
    assert_eq!((pulls.first.len(), pulls.then.len()), (1, 3), "its own ring first, then the others'");
    let handoff = HandOff::new(8, 3).unwrap();
    let plan = handoff.plan();
    assert_eq!(plan.small_workers(), 3);
    assert!(HandOff::pulls(plan, WorkerId(2)).first.is_empty(), "who hands off does not serve");
    assert_eq!(HandOff::pulls(plan, WorkerId(7)).first, WorkerSet::first(3));
    for (workers, handoff) in [(8, 0), (8, 4), (2, 2), (1, 1), (WORKERS_MAX + 1, 1)] {
        assert!(HandOff::new(workers, handoff).is_err(), "{handoff} of {workers}");
    }
    assert!(Reserved::new(ControlConfig::new(2)).is_err());
}

#[test]
fn who_conserves_work_leaves_nothing_lying() {
    let mut policy = WorkConserving::new(ControlConfig::new(8)).unwrap();
    let mut requests = SizeHistogram::new();
    requests.record(SizeClass::of(100), 99_000);
    requests.record(SizeClass::of(200_000), 300);
    let plan = policy.epoch(&requests).clone();
    assert!(plan.large_workers() > 1, "{plan:?}");
    for worker in ids(&plan) {
        // Whatever waits, in an RX queue or a ring, somebody idle comes for it.
        assert_eq!(WorkConserving::help(&plan, worker), Help::Any);
        let pulls = WorkConserving::pulls(&plan, worker);
        let reached = pulls.first.or(pulls.then).or(WorkConserving::relieves(&plan, worker));
        assert_eq!(reached.and(plan.workers_in(Role::Large)), plan.workers_in(Role::Large), "{worker:?}");
        // A large worker ends what it has begun, a small one gives way after each slice.
        assert_eq!(WorkConserving::relieves(&plan, worker).is_empty(), plan.role(worker) == Role::Large);
    }
}
