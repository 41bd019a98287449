//! The states that may be found after a round.

use std::collections::HashMap;

use crate::script::{Action, Script, Step, THREADS, apply, first_record, record};

/// The known contents of the store before a round.
pub(crate) type Baseline = HashMap<u64, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Steps that were completed.
    pub(crate) done: u64,
    /// True if the next step was begun.
    pub(crate) is_in_step: bool,
}

/// The steps of a round, by key.
pub(crate) struct History<'a> {
    round: u64,
    baseline: &'a Baseline,
    completed: HashMap<u64, Vec<Step>>,
    /// The step of each key that was unfinished when the child was killed.
    begun: HashMap<u64, Step>,
}

impl<'a> History<'a> {
    pub(crate) fn new(round: u64, baseline: &'a Baseline, progress: &[Progress]) -> Self {
        let (mut completed, mut begun) = (HashMap::<_, Vec<_>>::new(), HashMap::new());
        for (thread, progress) in (0..THREADS).zip(progress) {
            let script = Script { round, thread };
            for number in 0..progress.done {
                let step = script.step(number);
                completed.entry(step.key).or_default().push(step);
            }
            let next = progress.is_in_step.then(|| script.step(progress.done));
            begun.extend(next.map(|step| (step.key, step)));
        }
        Self { round, baseline, completed, begun }
    }

    /// The value of `key` if nothing was lost or interrupted.
    pub(crate) fn last(&self, key: u64) -> Option<Vec<u8>> {
        self.replay(key, self.baseline.get(&key).cloned(), 0)
    }

    /// True if the unfinished step of `key` deletes it.
    pub(crate) fn may_be_deleted(&self, key: u64) -> bool {
        self.begun.get(&key).is_some_and(|step| step.action == Action::Delete)
    }

    /// Checks that `value` is the value last written for `key` when the child ended, or the one that it was
    /// writing then.
    pub(crate) fn check(&self, key: u64, value: &[u8]) -> Result<(), String> {
        let Some((round, number, len)) = first_record(value) else {
            return Err(format!("key {key} has {} bytes that nobody wrote", value.len()));
        };
        if round != self.round {
            let then = self.replay(key, self.baseline.get(&key).cloned(), 0);
            return self.compare(key, then, value);
        }
        let begun = self.begun.get(&key).filter(|step| step.number == number);
        let step = self.completed.get(&key).into_iter().flatten().find(|step| step.number == number);
        let writes = |step: &&Step| match step.action {
            Action::Set { len: wrote } | Action::SetReserved { len: wrote } => wrote == len,
            Action::Overwrite => true,
            Action::Append { .. } | Action::Delete => false,
        };
        let Some(step) = step.or(begun).filter(writes).filter(|_| len <= value.len()) else {
            return Err(format!("key {key} has a value of step {number}, which wrote none"));
        };
        let written = record(round, step, len);
        if begun.is_some() {
            return if written == value { Ok(()) } else { Err(self.differs(key, value)) };
        }
        self.compare(key, self.replay(key, Some(written), number + 1), value)
    }

    /// The steps from `from` on.
    fn replay(&self, key: u64, value: Option<Vec<u8>>, from: u64) -> Option<Vec<u8>> {
        let steps = self.completed.get(&key).into_iter().flatten().filter(|step| step.number >= from);
        steps.fold(value, |value, step| apply(self.round, step, value))
    }

    fn compare(&self, key: u64, then: Option<Vec<u8>>, value: &[u8]) -> Result<(), String> {
        let next = self.begun.get(&key).and_then(|step| apply(self.round, step, then.clone()));
        if then.as_deref() == Some(value) || next.as_deref() == Some(value) {
            return Ok(());
        }
        Err(self.differs(key, value))
    }

    fn differs(&self, key: u64, value: &[u8]) -> String {
        let last = self.last(key).map(|value| value.len());
        format!("key {key} has {} bytes that are not the last ones written ({last:?} bytes)", value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: u64 = 3000;

    fn progress(is_in_step: bool) -> [Progress; THREADS as usize] {
        [Progress { done: DONE, is_in_step }; THREADS as usize]
    }

    /// A key whose last steps are these.
    fn key_with(history: &History<'_>, is_wanted: impl Fn(&[Step]) -> bool) -> u64 {
        let wanted = history.completed.iter().find(|(_, steps)| is_wanted(steps));
        *wanted.expect("3000 steps hold every short sequence").0
    }

    fn is_set(step: &Step) -> bool {
        matches!(step.action, Action::Set { .. })
    }

    #[test]
    fn the_last_value_is_right_and_older_ones_are_not() {
        let baseline = Baseline::new();
        let history = History::new(1, &baseline, &progress(false));
        let key = key_with(&history, |steps| steps.len() > 2 && steps[steps.len() - 2..].iter().all(is_set));
        let mut value = history.last(key).unwrap();
        history.check(key, &value).unwrap();
        let steps = &history.completed[&key];
        let older = apply(1, &steps[steps.len() - 2], None).unwrap();
        assert!(history.check(key, &older).is_err(), "an older value");
        assert!(history.check(key + THREADS, &value).is_err(), "another key's value");
        assert!(history.check(key, &value[..value.len() - 1]).is_err(), "a value cut short");
        *value.last_mut().unwrap() ^= 1;
        assert!(history.check(key, &value).is_err(), "a bit flipped");
        assert!(history.check(key, b"short").is_err(), "no record");
    }

    #[test]
    fn a_deleted_value_does_not_come_back() {
        let baseline = Baseline::new();
        let history = History::new(2, &baseline, &progress(false));
        let is_deleted =
            |steps: &[Step]| matches!(steps, [.., set, Step { action: Action::Delete, .. }] if is_set(set));
        let key = key_with(&history, is_deleted);
        assert_eq!(history.last(key), None);
        let steps = &history.completed[&key];
        let deleted = apply(2, &steps[steps.len() - 2], None).unwrap();
        assert!(history.check(key, &deleted).is_err());
    }

    #[test]
    fn appends_need_what_they_were_appended_to() {
        let baseline = Baseline::new();
        let history = History::new(3, &baseline, &progress(false));
        let is_appended = |steps: &[Step]| matches!(steps, [.., set, Step { action: Action::Append { .. }, .. }] if is_set(set));
        let key = key_with(&history, is_appended);
        let value = history.last(key).unwrap();
        history.check(key, &value).unwrap();
        let (_, _, len) = first_record(&value).unwrap();
        assert!(len < value.len() && history.check(key, &value[..len]).is_err(), "the append is missing");
        assert!(history.check(key, &value[len..]).is_err(), "only the append is there");
    }

    #[test]
    fn what_was_begun_may_be_done_or_not() {
        let baseline = Baseline::new();
        for round in 0..200 {
            let history = History::new(round, &baseline, &progress(true));
            let step = history.begun[&(Script { round, thread: 0 }.step(DONE).key)];
            let (before, after) = (history.last(step.key), apply(round, &step, history.last(step.key)));
            for value in [before, after].into_iter().flatten() {
                history.check(step.key, &value).unwrap();
            }
        }
    }

    #[test]
    fn what_was_there_before_counts() {
        let step = Script { round: 0, thread: 0 }.step(0);
        let old = record(0, &step, 100);
        let baseline = Baseline::from([(step.key, old.clone())]);
        let idle = [Progress { done: 0, is_in_step: false }; THREADS as usize];
        let history = History::new(5, &baseline, &idle);
        history.check(step.key, &old).unwrap();
        assert!(History::new(5, &Baseline::new(), &idle).check(step.key, &old).is_err());
    }
}
