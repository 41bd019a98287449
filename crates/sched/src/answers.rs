//! A discipline's answers under one plan, asked once and turned around: who comes for what.

use crate::{Dispatch, Help, Plan, Pulls, WorkerId, WorkerSet};

/// What a discipline answers under one plan, for all workers.
///
/// Workers go by it until the next plan, and whoever puts something somewhere finds in it whom to wake.
#[derive(Clone, Debug)]
pub struct Answers {
    /// For each worker the RX queues that it polls, and how many requests it takes at most.
    pub shares: Vec<Vec<(WorkerId, usize)>>,
    /// For each worker the rings from which it serves.
    pub pulls: Vec<Pulls>,
    /// For each worker what it does when it has nothing to do.
    pub helps: Vec<Help>,
    /// For each worker the rings of which it serves slices when there is nobody to help.
    pub relieves: Vec<WorkerSet>,
    /// For each RX queue those who poll it.
    pub takers: Vec<WorkerSet>,
    /// For each RX queue those who help out.
    pub helpers: Vec<WorkerSet>,
    /// For each ring those who take from it.
    pub pullers: Vec<WorkerSet>,
    /// For each worker those of whom it takes, with nothing else to do, what they have taken from RX queues and not come
    /// to. Nobody where that lies in rings anyway.
    pub lenders: Vec<WorkerSet>,
    /// For each worker those who do so with what it has taken.
    pub borrowers: Vec<WorkerSet>,
}

impl Answers {
    /// What `D` answers under `plan`.
    pub fn of<D: Dispatch>(plan: &Plan) -> Self {
        Self::with_help::<D>(plan, D::help)
    }

    /// The same, but that `help` answers what a worker does when it has nothing to do.
    pub fn with_help<D: Dispatch>(plan: &Plan, help: impl Fn(&Plan, WorkerId) -> Help) -> Self {
        let ids = || (0..plan.workers()).map(|index| WorkerId(index as u16));
        let pulls: Vec<_> = ids().map(|worker| D::pulls(plan, worker)).collect();
        let helps: Vec<_> = ids().map(|worker| help(plan, worker)).collect();
        let relieves: Vec<_> = ids().map(|worker| D::relieves(plan, worker)).collect();
        let share = |worker, queue| D::share(plan, worker, queue);
        let shares_of = |worker| {
            let shares = ids().map(|queue| (queue, share(worker, queue)));
            shares.filter(|&(_, most)| most > 0).collect()
        };
        let helps_with = |helper: WorkerId, queue: WorkerId| helps[helper.index()].reaches(helper, queue);
        let pulls_from = |worker: WorkerId, ring| {
            let pulls = pulls[worker.index()];
            pulls.first.or(pulls.then).or(relieves[worker.index()]).contains(ring)
        };
        // A large worker, whose RX queue the small ones poll anyway, takes one or two requests at a time if any.
        let borrows = |helper: WorkerId, lender: WorkerId| {
            let help = helps[helper.index()];
            !D::SHARES_RINGS && helper != lender && help.reaches(helper, lender) && share(helper, lender) == 0
        };
        Self {
            lenders: ids().map(|helper| ids().filter(|&lender| borrows(helper, lender)).collect()).collect(),
            borrowers: ids()
                .map(|lender| ids().filter(|&helper| borrows(helper, lender)).collect())
                .collect(),
            shares: ids().map(shares_of).collect(),
            takers: ids().map(|queue| ids().filter(|&worker| share(worker, queue) > 0).collect()).collect(),
            helpers: ids().map(|queue| ids().filter(|&worker| helps_with(worker, queue)).collect()).collect(),
            pullers: ids().map(|ring| ids().filter(|&worker| pulls_from(worker, ring)).collect()).collect(),
            pulls,
            helps,
            relieves,
        }
    }
}

impl Help {
    /// Whether `helper` may take from the RX queue `queue`.
    fn reaches(self, helper: WorkerId, queue: WorkerId) -> bool {
        match self {
            Self::No => false,
            Self::Own => helper == queue,
            Self::Burst | Self::Any | Self::Share { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, SizeAware, Stealing};

    #[test]
    fn small_workers_borrow_of_each_other_and_a_large_one_is_left_alone() {
        let mut plan = Plan::all_small(3);
        plan.roles[2] = Role::Large;
        let help = |plan: &Plan, worker| if plan.role(worker) == Role::Large { Help::Own } else { Help::Any };
        let answers = Answers::with_help::<SizeAware>(&plan, help);
        let [first, second] = [0, 1].map(WorkerId);
        let each_other = [WorkerSet::one(second), WorkerSet::one(first), WorkerSet::EMPTY];
        assert_eq!(answers.borrowers, each_other);
        assert_eq!(answers.lenders, each_other);
        // It helps with its own RX queue, of which the small ones take.
        assert!(answers.helpers[2].contains(WorkerId(2)));

        let nobody = vec![WorkerSet::EMPTY; 3];
        assert_eq!(Answers::of::<SizeAware>(&plan).borrowers, nobody, "nobody helps");
        assert_eq!(Answers::of::<Stealing>(&Plan::all_small(3)).borrowers, nobody, "it lies in rings");
    }
}
