//! Minos with what the paper leaves for later: large workers that are not idle while small requests wait.

use minos_base::SizeClass;

use crate::{
    ConfigError, ControlConfig, Decision, Discipline, Dispatch, Help, Intake, Place, Plan, Pulls, Role,
    SizeAware, SizeHistogram, WorkerId, control::Split, dispatch,
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

/// Large workers help, small ones have enough to do.
fn help(plan: &Plan, worker: WorkerId) -> Help {
    if plan.role(worker) == Role::Large { Help::Any } else { Help::No }
}

macro_rules! size_aware {
    ($discipline:ty, $name:literal, $help:expr) => {
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

            fn pulls(_: &Plan, worker: WorkerId) -> Pulls {
                dispatch::own_ring(worker)
            }

            fn help(plan: &Plan, worker: WorkerId) -> Help {
                $help(plan, worker)
            }
        }
    };
}

size_aware!(Helping, "helping", help);
size_aware!(Fractional, "fractional", |plan: &Plan, worker| match plan.shared {
    Some(shared) if shared.worker == worker => Help::Share { small_permille: shared.small_permille },
    _ => help(plan, worker),
});
