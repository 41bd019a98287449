//! Minos with what the paper leaves for later: large workers that are not idle while small requests wait.

use minos_base::SizeClass;

use crate::{
    ConfigError, ControlConfig, Decision, Discipline, Dispatch, Help, Intake, Place, Plan, Pulls, Role,
    SizeAware, SizeHistogram, WorkerId, WorkerSet, control::Split, dispatch,
};

/// One more large worker than Minos would have, and large workers with nothing to do take small requests
/// one at a time, so that none ever waits behind a large one (Minos §6.1).
#[derive(Debug)]
pub struct Helping(SizeAware);

/// A number of small workers that is not whole: one large worker gives the small requests the part of its
/// time that is theirs by cost, one at a time, and gets a smaller range of the large ones. Large workers
/// with nothing to do help as in [`Helping`].
#[derive(Debug)]
pub struct Fractional(SizeAware);

/// [`Helping`], and nobody is idle while anything waits: large workers also serve each other's ranges, and a worker
/// with nothing to do takes a small request from any RX queue, else a slice of a large one.
///
/// The paper's large requests wait longer than with HKH+WS because few workers serve them (up to twice as long, Minos
/// §6.1). Here as many do as are free, and small requests wait for a slice at most.
#[derive(Debug)]
pub struct WorkConserving(SizeAware);

impl Helping {
    /// A policy that has seen nothing yet.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        SizeAware::with_split(config, Self::NAME, Split::OneMoreLarge).map(Self)
    }
}

impl Fractional {
    /// A policy that has seen nothing yet.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        SizeAware::with_split(config, Self::NAME, Split::Fractional).map(Self)
    }
}

impl WorkConserving {
    /// A policy that has seen nothing yet.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        SizeAware::with_split(config, Self::NAME, Split::OneMoreLarge).map(Self)
    }
}

/// Large workers help, small ones have enough to do.
fn help(plan: &Plan, worker: WorkerId) -> Help {
    if plan.role(worker) == Role::Large { Help::Any } else { Help::No }
}

/// The same, but that a worker whose time is split goes by that.
fn help_or_share(plan: &Plan, worker: WorkerId) -> Help {
    match plan.shared {
        Some(shared) if shared.worker == worker => Help::Share { small_permille: shared.small_permille },
        _ => help(plan, worker),
    }
}

fn no_rings(_: &Plan, _: WorkerId) -> WorkerSet {
    WorkerSet::EMPTY
}

/// For a large worker the rings of the other ones.
fn pooled_rings(plan: &Plan, worker: WorkerId) -> WorkerSet {
    if plan.role(worker) == Role::Large {
        plan.workers_in(Role::Large).without(worker)
    } else {
        WorkerSet::EMPTY
    }
}

/// For a small worker the rings of all large ones.
fn relieved_rings(plan: &Plan, worker: WorkerId) -> WorkerSet {
    if plan.role(worker) == Role::Small { plan.workers_in(Role::Large) } else { WorkerSet::EMPTY }
}

macro_rules! size_aware {
    ($discipline:ty, $name:literal, $help:expr, $then:expr, $relieves:expr) => {
        impl Discipline for $discipline {
            const NAME: &'static str = $name;
            const RUNS_TO_COMPLETION: bool = false;
            const PROFILES_SIZES: bool = true;

            fn plan(&self) -> &Plan {
                self.0.plan()
            }

            fn decision(&self) -> &Decision {
                self.0.decision()
            }

            fn epoch(&mut self, requests: &SizeHistogram) -> &Plan {
                self.0.epoch(requests)
            }
        }

        impl Dispatch for $discipline {
            const INTAKE: Intake = Intake::Always;
            // A helper serves small requests between large ones, and its replies must not wait for those.
            const SEPARATES_REPLIES: bool = true;

            fn share(plan: &Plan, worker: WorkerId, queue: WorkerId) -> usize {
                dispatch::small_workers_share(plan, worker, queue)
            }

            fn place(plan: &Plan, _: WorkerId, class: SizeClass) -> Place {
                dispatch::by_size(plan, class)
            }

            fn pulls(plan: &Plan, worker: WorkerId) -> Pulls {
                Pulls { then: $then(plan, worker), ..dispatch::own_ring(worker) }
            }

            fn help(plan: &Plan, worker: WorkerId) -> Help {
                $help(plan, worker)
            }

            fn relieves(plan: &Plan, worker: WorkerId) -> WorkerSet {
                $relieves(plan, worker)
            }
        }
    };
}

size_aware!(Helping, "helping", help, no_rings, no_rings);
size_aware!(Fractional, "fractional", help_or_share, no_rings, no_rings);
size_aware!(WorkConserving, "work-conserving", |_: &Plan, _| Help::Any, pooled_rings, relieved_rings);
