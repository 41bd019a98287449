//! Each worker's duties under a plan, as plain data: the queues and rings that it takes from, the workers
//! that it helps, and the workers that are woken for each queue and ring.

use minos_base::{
    SizeClass,
    limits::{BURST_MAX, PACKET_BYTES},
};

use crate::{Design, Options, Plan, Role, Standby, WorkerId, WorkerSet};

/// Value bytes of a large request that an otherwise idle worker serves between two polls of its RX queues:
/// eight packets, which a small request may have to wait for.
const RELIEF_SLICE_BYTES: u64 = 8 * PACKET_BYTES;

/// The duties of all workers under one design and plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The duty of each worker.
    pub duties: Vec<Duty>,
    /// For each RX queue, the workers that poll it.
    pub polled_by: Vec<WorkerSet>,
    /// For each RX queue, the workers that help with it.
    pub helped_by: Vec<WorkerSet>,
    /// For each ring, the workers that take from it.
    pub drained_by: Vec<WorkerSet>,
    /// For each worker, the workers that take its dequeued requests before it serves them.
    pub borrowed_by: Vec<WorkerSet>,
    /// The worker that turns large with the first large request in its ring:
    /// [`Policy::promote_standby`](crate::Policy::promote_standby).
    pub promotes: Option<WorkerId>,
}

/// The duty of one worker under one design and plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duty {
    /// The worker.
    pub worker: WorkerId,
    /// When it polls RX queues.
    pub intake: Intake,
    /// The RX queues that it polls in each turn.
    pub polls: Vec<Share>,
    /// The placing of a request that it has dequeued.
    pub placing: Placing,
    /// The rings that it takes one request at a time from.
    pub drains: Drains,
    /// True if others take from its ring too.
    pub shares_ring: bool,
    /// True if it serves large requests in slices, and polls its queues and rings between two slices.
    pub in_slices: bool,
    /// The help that it gives to others when it is idle.
    pub help: Option<Help>,
    /// The workers whose dequeued requests it takes while it helps.
    pub borrows_from: WorkerSet,
    /// The rings that it takes large requests from when no worker needs its help.
    pub relieves: WorkerSet,
}

/// When a worker polls RX queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// In every turn.
    Always,
    /// When its own ring is empty: dequeued requests go there, where others can take them.
    WhenEmpty,
}

/// A worker's share of an RX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The queue.
    pub queue: WorkerId,
    /// Requests that it takes at most in a turn.
    pub most: usize,
}

/// The placing of a dequeued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// The worker serves it at once.
    Here,
    /// It goes to the worker's own ring, from which several workers take.
    OwnRing,
    /// Small requests are served at once, large ones go to the ring of the worker that owns their size.
    BySize,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The worker serves it at once.
    Here,
    /// It goes to the ring of a worker.
    Ring(WorkerId),
}

/// The rings that a worker takes one request at a time from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drains {
    /// These come first, in turn.
    pub first: WorkerSet,
    /// These if the first are empty, in turn.
    pub then: WorkerSet,
}

/// The requests that an idle worker takes from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Help {
    /// The RX queues that it takes from, in turn. Its own is among them if others poll that.
    pub queues: WorkerSet,
    /// How much it takes at a time.
    pub portion: Portion,
}

/// How much a helper takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// One request.
    Request,
    /// The requests that one connection has sent. Where there are no connections, one request.
    Connection,
    /// A burst.
    Burst,
}

impl Assignment {
    /// The assignment of `design` under `plan`.
    pub fn of(design: Design, plan: &Plan, options: Options) -> Self {
        let mut duties: Vec<_> =
            plan.ids().map(|worker| Duty::of(&Context::new(design, plan, options, worker), worker)).collect();
        let drained_by = by_object(&duties, Duty::drains_ring);
        for duty in &mut duties {
            let drainers = drained_by[duty.worker.index()];
            duty.shares_ring = !drainers.without(duty.worker).is_empty();
            if drainers.is_empty() {
                // Another design may have left something there.
                duty.drains.then = duty.drains.then.with(duty.worker);
            }
        }
        Self {
            promotes: plan.standby().filter(|_| options.standby == Standby::TurnsLarge),
            polled_by: by_object(&duties, |duty, queue| duty.most_of(queue) > 0),
            helped_by: by_object(&duties, |duty, queue| {
                // A helper also takes from the queues that it polls.
                duty.help.is_some_and(|help| help.queues.contains(queue) || duty.most_of(queue) > 0)
            }),
            drained_by: by_object(&duties, Duty::drains_ring),
            borrowed_by: by_object(&duties, |duty, lender| duty.borrows_from.contains(lender)),
            duties,
        }
    }

    /// The duty of `worker`.
    pub fn duty(&self, worker: WorkerId) -> &Duty {
        &self.duties[worker.index()]
    }
}

/// For each worker, queue or ring the workers that do something with it.
fn by_object(duties: &[Duty], does: impl Fn(&Duty, WorkerId) -> bool) -> Vec<WorkerSet> {
    let those = |object| duties.iter().filter(|duty| does(duty, object)).map(|duty| duty.worker).collect();
    duties.iter().map(|duty| those(duty.worker)).collect()
}

impl Duty {
    fn of(context: &Context<'_>, worker: WorkerId) -> Self {
        let (design, plan) = (context.design, context.plan);
        let polls: Vec<_> = plan
            .ids()
            .map(|queue| Share { queue, most: context.share(worker, queue) })
            .filter(|share| share.most > 0)
            .collect();
        let polled: WorkerSet = polls.iter().map(|share| share.queue).collect();
        let help = context.help(worker, polled);
        let helped = help.map_or(WorkerSet::EMPTY, |help| help.queues);
        Self {
            worker,
            intake: if design == Design::Stealing { Intake::WhenEmpty } else { Intake::Always },
            polls,
            placing: context.placing(),
            drains: context.drains(worker),
            shares_ring: false,
            in_slices: !design.runs_to_completion(),
            help,
            // Helpers can take requests directly from the rings.
            borrows_from: if design.moves_connections() { WorkerSet::EMPTY } else { helped.without(worker) },
            relieves: context.relieves(worker),
        }
    }

    /// Where a request of `class` goes that this worker has dequeued.
    pub fn place(&self, plan: &Plan, class: SizeClass) -> Place {
        match self.placing {
            Placing::Here => Place::Here,
            Placing::OwnRing => Place::Ring(self.worker),
            // The worker's own large requests go through its ring too: small ones come first.
            Placing::BySize => plan.worker_for(class, self.worker).map_or(Place::Here, Place::Ring),
        }
    }

    /// Where an item of `class` or more is fetched from flash for a request that this worker has dequeued, all but the largest
    /// dealt by `number`.
    pub fn place_fetch(&self, plan: &Plan, class: SizeClass, number: u64) -> Place {
        match self.placing {
            Placing::BySize => plan.fetcher_for(class, number, self.worker).map_or(Place::Here, Place::Ring),
            _ => self.place(plan, class.max(plan.large_min())),
        }
    }

    /// Value bytes of a large request that this worker serves between two
    /// polls of its RX queues, at most `most`.
    #[inline]
    pub fn slice_bytes(&self, most: u64) -> u64 {
        if self.relieves.is_empty() { most } else { most.min(RELIEF_SLICE_BYTES) }
    }

    /// True if large requests are handed to this worker alone, which takes them in at once.
    pub fn collects(&self) -> bool {
        self.in_slices && !self.shares_ring
    }

    /// Requests that it takes at most from RX queue `queue` in a turn.
    pub fn most_of(&self, queue: WorkerId) -> usize {
        self.polls.iter().find(|share| share.queue == queue).map_or(0, |share| share.most)
    }

    /// The RX queues that it polls.
    pub fn polled(&self) -> WorkerSet {
        self.polls.iter().map(|share| share.queue).collect()
    }

    fn drains_ring(&self, ring: WorkerId) -> bool {
        self.drains.first.or(self.drains.then).or(self.relieves).contains(ring)
    }
}

/// The inputs that determine a duty.
struct Context<'a> {
    design: Design,
    plan: &'a Plan,
    options: Options,
    /// The workers of its domain.
    domain: WorkerSet,
    /// The first of them.
    first: WorkerId,
}

impl<'a> Context<'a> {
    fn new(design: Design, plan: &'a Plan, options: Options, worker: WorkerId) -> Self {
        let domain = plan.domain_of(worker);
        let (first, domain) =
            (domain.start, WorkerSet::first(domain.end).minus(WorkerSet::first(domain.start)));
        Self { design, plan, options, domain, first: WorkerId(first as u16) }
    }

    /// How many requests `worker` takes at most from RX queue `queue` in a turn.
    fn share(&self, worker: WorkerId, queue: WorkerId) -> usize {
        let plan = self.plan;
        if !self.domain.contains(queue) {
            return 0;
        }
        let takes_burst = match self.design {
            Design::KeyHash | Design::Stealing => worker == queue,
            Design::HandOff => {
                let place = |worker: WorkerId| worker.index() - self.first.index();
                place(queue) % self.small_workers() == place(worker)
            }
            _ if plan.role(worker) == Role::Large => false,
            _ if worker != queue && plan.role(queue) == Role::Large => {
                // B/n_s from the queues of the large workers (Minos §3.1).
                return BURST_MAX.div_ceil(self.small_workers());
            }
            _ => worker == queue,
        };
        if takes_burst { BURST_MAX } else { 0 }
    }

    fn placing(&self) -> Placing {
        match self.design {
            Design::KeyHash => Placing::Here,
            Design::HandOff | Design::Stealing => Placing::OwnRing,
            _ => Placing::BySize,
        }
    }

    fn drains(&self, worker: WorkerId) -> Drains {
        let (plan, own, none) = (self.plan, WorkerSet::one(worker), WorkerSet::EMPTY);
        let is_large = plan.role(worker) == Role::Large;
        match self.design {
            Design::KeyHash => Drains::default(),
            Design::HandOff if is_large => Drains { first: self.workers_in(Role::Small), then: none },
            Design::HandOff => Drains::default(),
            Design::Stealing => Drains { first: own, then: self.domain.without(worker) },
            Design::WorkConserving if is_large => {
                Drains { first: own, then: self.workers_in(Role::Large).without(worker) }
            }
            _ => Drains { first: own, then: none },
        }
    }

    fn help(&self, worker: WorkerId, polled: WorkerSet) -> Option<Help> {
        let is_large = self.plan.role(worker) == Role::Large;
        let others = self.domain.minus(polled);
        let portion = if is_large { Portion::Request } else { Portion::Connection };
        let (queues, portion) = match self.design {
            Design::KeyHash | Design::HandOff => return None,
            Design::Stealing => (others, Portion::Burst),
            Design::WorkConserving => (others, portion),
            Design::Helping if is_large => (others, portion),
            _ if !self.options.steal => return None,
            _ if is_large => (WorkerSet::one(worker), portion),
            _ => (others, portion),
        };
        (!queues.is_empty()).then_some(Help { queues, portion })
    }

    fn relieves(&self, worker: WorkerId) -> WorkerSet {
        let is_small = self.plan.role(worker) == Role::Small;
        if self.design == Design::WorkConserving && is_small {
            self.workers_in(Role::Large)
        } else {
            WorkerSet::EMPTY
        }
    }

    /// Number of workers of the domain that poll RX queues, at least one.
    fn small_workers(&self) -> usize {
        self.domain.minus(self.plan.workers_in(Role::Large)).len().max(1)
    }

    /// Workers of the domain in `role`.
    fn workers_in(&self, role: Role) -> WorkerSet {
        self.plan.workers_in(role).and(self.domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_large_of_three() -> Plan {
        let mut plan = Plan::all_small(3);
        plan.roles[2] = Role::Large;
        plan
    }

    #[test]
    fn small_workers_borrow_of_each_other_and_a_large_one_is_left_alone() {
        let stealing = Options { steal: true, ..Options::default() };
        let assignment = Assignment::of(Design::SizeAware, &one_large_of_three(), stealing);
        let [first, second] = [0, 1].map(WorkerId);
        let each_other = [WorkerSet::one(second), WorkerSet::one(first), WorkerSet::EMPTY];
        assert_eq!(assignment.borrowed_by, each_other);
        let borrows: Vec<_> = assignment.duties.iter().map(|duty| duty.borrows_from).collect();
        assert_eq!(borrows, each_other);
        // The large worker helps with its own RX queue, which the small ones poll.
        assert!(assignment.helped_by[2].contains(WorkerId(2)));

        let nobody = vec![WorkerSet::EMPTY; 3];
        let alone = Assignment::of(Design::SizeAware, &one_large_of_three(), Options::default());
        assert_eq!(alone.borrowed_by, nobody, "nobody helps");
        let rings = Assignment::of(Design::Stealing, &Plan::all_small(3), Options::default());
        assert_eq!(rings.borrowed_by, nobody, "requests wait in rings");
    }

    #[test]
    fn a_ring_that_nobody_drains_is_its_owners() {
        let options = Options::default();
        let assignment = Assignment::of(Design::KeyHash, &Plan::all_small(2), options);
        for duty in &assignment.duties {
            assert_eq!(duty.drains.then, WorkerSet::one(duty.worker));
            assert!(!duty.shares_ring);
        }
    }
}
