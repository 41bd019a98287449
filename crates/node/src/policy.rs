//! The discipline in force, whatever its type: the control thread's side of it.

use minos_sched::{
    Answers, Decision, Fractional, HandOff, Help, Helping, KeySharded, Plan, Reserved, Role, SizeAware,
    SizeHistogram, Stealing, WorkConserving,
};

use crate::config::{Dispatch, DispatchChoice, InvalidOption, ServerConfig};

/// A discipline as the control thread sees it: once an epoch it makes a plan.
pub(crate) trait Policy: Send {
    /// The plan in force.
    fn plan(&self) -> &Plan;

    /// The numbers behind it.
    fn decision(&self) -> &Decision;

    /// What the discipline answers the workers under that plan. With `steal`, workers that have nothing to do take
    /// small requests: large ones from their own RX queues, small ones from those of others who are slow to.
    fn answers(&self, steal: bool) -> Answers;

    /// Ends an epoch in which `requests` were seen.
    fn epoch(&mut self, requests: &SizeHistogram);
}

impl<D: minos_sched::Dispatch> Policy for D {
    fn plan(&self) -> &Plan {
        minos_sched::Discipline::plan(self)
    }

    fn decision(&self) -> &Decision {
        minos_sched::Discipline::decision(self)
    }

    fn answers(&self, steal: bool) -> Answers {
        let steals = steal && !D::RUNS_TO_COMPLETION;
        Answers::with_help::<D>(Policy::plan(self), |plan, worker| match D::help(plan, worker) {
            Help::No if steals && plan.role(worker) == Role::Large => Help::Own,
            Help::No if steals => Help::Any,
            help => help,
        })
    }

    fn epoch(&mut self, requests: &SizeHistogram) {
        minos_sched::Discipline::epoch(self, requests);
    }
}

/// The discipline that was chosen, with nothing seen yet.
pub(crate) fn policy(
    choice: DispatchChoice,
    config: &ServerConfig,
) -> Result<Box<dyn Policy>, InvalidOption> {
    let control = config.control;
    let made: Result<Box<dyn Policy>, _> = match choice.dispatch {
        Dispatch::SizeAware => SizeAware::new(control).map(boxed),
        Dispatch::KeyHash => KeySharded::new(control.workers).map(boxed),
        Dispatch::HandOff => HandOff::new(control.workers, choice.handoff_workers).map(boxed),
        Dispatch::Stealing => Stealing::new(control.workers).map(boxed),
        Dispatch::Helping => Helping::new(control).map(boxed),
        Dispatch::Fractional => Fractional::new(control).map(boxed),
        Dispatch::WorkConserving => WorkConserving::new(control).map(boxed),
        Dispatch::Reserved => Reserved::new(control).map(boxed),
    };
    made.map_err(InvalidOption::Control)
}

fn boxed<D: minos_sched::Dispatch>(discipline: D) -> Box<dyn Policy> {
    Box::new(discipline)
}
