//! A turn of a worker's loop: the steps of [`Step::ORDER`] that [`is_due`] admits, in server and simulator alike.

use crate::{Duty, Intake};

/// A step of a turn, in the order of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Take a burst from each RX queue that the worker polls, and serve its requests or pass them on.
    Poll,
    /// Return other workers' large requests to their rings, because small requests have come.
    GiveBack,
    /// Take in the large requests that were handed to this worker alone.
    Collect,
    /// Take one request from the rings that the worker drains.
    Draw,
    /// Serve a slice of a large request.
    Slice,
    /// Take small requests from others.
    Help,
    /// Take a large request from the ring of another worker.
    Relieve,
}

impl Step {
    /// All steps, in the order of a turn.
    pub const ORDER: [Self; 7] =
        [Self::Poll, Self::GiveBack, Self::Collect, Self::Draw, Self::Slice, Self::Help, Self::Relieve];
}

/// The state that a worker sees when it chooses a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The last step of this turn.
    pub last: Option<Step>,
    /// A step of this turn has taken something from an RX queue.
    pub arrived: bool,
    /// A step of this turn has found something to do.
    pub worked: bool,
    /// Nothing waits in the worker's own ring that others could take. Known at the beginning of a turn.
    pub ring_is_empty: bool,
    /// The worker holds a large request that it could serve a slice of.
    pub holds_large: bool,
}

impl Seen {
    /// Notes that `step` was taken; `found` is true if it found work.
    #[inline]
    pub fn note(&mut self, step: Step, found: bool) {
        self.last = Some(step);
        // Giving requests back does not count as work of this worker.
        let found = found && step != Step::GiveBack;
        self.worked |= found;
        self.arrived |= found && step == Step::Poll;
    }
}

/// The next step of a turn; none at its end. For a loop that stops between two steps, as the simulator's does.
#[inline]
pub fn next_step(duty: &Duty, seen: &Seen) -> Option<Step> {
    let begin = seen.last.map_or(0, |last| last as usize + 1);
    Step::ORDER[begin..].iter().copied().find(|&step| is_due(duty, seen, step))
}

/// True if a worker with this duty takes `step` in its place of the turn.
#[inline(always)]
pub fn is_due(duty: &Duty, seen: &Seen, step: Step) -> bool {
    match step {
        Step::Poll => duty.intake == Intake::Always || seen.ring_is_empty,
        Step::GiveBack => seen.arrived && !duty.relieves.is_empty(),
        Step::Collect | Step::Slice => true,
        // A large request leaves a shared ring only when its turn has come, so
        // that others can take it until then.
        Step::Draw => !(seen.holds_large && duty.in_slices && duty.shares_ring),
        Step::Help => !seen.worked && duty.help.is_some(),
        Step::Relieve => !seen.worked && !seen.holds_large && !duty.relieves.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assignment, Design, Options, Plan, Role, WorkerId};

    fn duty(design: Design, worker: u16) -> Duty {
        let mut plan = Plan::all_small(3);
        plan.roles[2] = Role::Large;
        let options = Options { steal: true, ..Options::default() };
        Assignment::of(design, &plan, options).duty(WorkerId(worker)).clone()
    }

    /// The steps of a turn that begins with `seen`, in which the steps in `found` find something.
    fn turn(duty: &Duty, mut seen: Seen, found: &[Step]) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(step) = next_step(duty, &seen) {
            steps.push(step);
            seen.note(step, found.contains(&step));
        }
        steps
    }

    #[test]
    fn an_idle_worker_goes_through_all_that_its_duty_allows() {
        use Step::{Collect, Draw, Help, Poll, Relieve, Slice};
        let seen = Seen { ring_is_empty: true, ..Seen::default() };
        let idle = |design, worker| turn(&duty(design, worker), seen, &[]);
        assert_eq!(idle(Design::KeyHash, 0), [Poll, Collect, Draw, Slice]);
        assert_eq!(idle(Design::SizeAware, 0), [Poll, Collect, Draw, Slice, Help]);
        assert_eq!(idle(Design::WorkConserving, 0), [Poll, Collect, Draw, Slice, Help, Relieve]);
        assert_eq!(idle(Design::WorkConserving, 2), [Poll, Collect, Draw, Slice, Help]);
    }

    #[test]
    fn who_has_worked_helps_nobody() {
        let seen = Seen { ring_is_empty: true, ..Seen::default() };
        let steps = turn(&duty(Design::SizeAware, 0), seen, &[Step::Slice]);
        assert!(!steps.contains(&Step::Help));
    }

    #[test]
    fn bursts_wait_until_the_ring_is_empty() {
        let steps = turn(&duty(Design::Stealing, 0), Seen::default(), &[]);
        assert!(!steps.contains(&Step::Poll));
    }

    #[test]
    fn arrivals_send_others_requests_back() {
        let seen = Seen { holds_large: true, ..Seen::default() };
        let relieving = duty(Design::WorkConserving, 0);
        assert!(turn(&relieving, seen, &[Step::Poll]).contains(&Step::GiveBack));
        assert!(!turn(&relieving, seen, &[]).contains(&Step::GiveBack));
        assert!(!turn(&duty(Design::SizeAware, 0), seen, &[Step::Poll]).contains(&Step::GiveBack));
    }

    #[test]
    fn a_shared_ring_is_left_alone_while_a_large_request_is_held() {
        let seen = Seen { holds_large: true, ..Seen::default() };
        assert!(!turn(&duty(Design::WorkConserving, 2), seen, &[]).contains(&Step::Draw));
        assert!(turn(&duty(Design::SizeAware, 2), seen, &[]).contains(&Step::Draw));
    }
}
