//! A check that concurrent clients' results are linearizable.
//!
//! A history of calls on registers (one a key) is linearizable when the calls can be put in an
//! order that agrees with real time and with how a register behaves. The search is that of Wing and
//! Gong with Lowe's memory of states seen: it tries every call that may come next. A client has one
//! call under way at a time, so a state is how far each client has come, plus the register.
//!
//! A call without a reply may take effect at any time after it, or never. The search lets it take effect only
//! right before a call whose result needs it: elsewhere it would explain nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// A value, by the number of the write that wrote it. Every write of a history has its own.
pub type ValueId = u64;

/// A call and what it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read that found this value, or nothing.
    Get(Option<ValueId>),
    /// A write that was acknowledged.
    Set(ValueId),
    /// A removal; true if an item was removed.
    Delete(bool),
    /// A write on condition that the register still holds `expected`.
    Cas {
        /// The value that the client's CAS unique belongs to.
        expected: ValueId,
        /// The value to write.
        new: ValueId,
        /// The server's answer.
        outcome: CasOutcome,
    },
}

/// A server's answer to a `cas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasOutcome {
    /// The register held what was expected.
    Stored,
    /// It held something else.
    Exists,
    /// It was empty.
    NotFound,
}

/// A call with the time in which it took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The client that called.
    pub client: u32,
    /// Which register.
    pub key: u32,
    /// A tick of the [`Ticks`] before the request was sent.
    pub called: u64,
    /// A tick after the reply had come, or [`NEVER`]. The result of such a call is ignored.
    pub returned: u64,
    /// The call and its result.
    pub call: Call,
}

/// When a call returned whose reply never came.
pub const NEVER: u64 = u64::MAX;

/// Leaves out what was seen of writes and removals before they were acknowledged. What is left must be linearizable also
/// where such a change may be lost after it was seen, but none that was acknowledged. With `evicts`, misses are left out
/// too: an item that was evicted may be there again.
pub fn forget_premature(history: &mut Vec<Event>, evicts: bool) {
    let all = history.clone();
    // The result of a call without a reply says nothing: it may have changed the register.
    let written = |it: &Event| match it.call {
        Call::Set(value) => Some(value),
        Call::Cas { new, outcome, .. } => {
            (outcome == CasOutcome::Stored || it.returned == NEVER).then_some(new)
        }
        _ => None,
    };
    let may_remove = |it: &Event| match it.call {
        Call::Delete(was_there) => was_there || it.returned == NEVER,
        _ => false,
    };
    let saw = |read: &Event, it: &Event| match read.call {
        Call::Get(Some(value)) => written(it) == Some(value),
        Call::Get(None) | Call::Delete(false) => may_remove(it),
        Call::Cas { outcome: CasOutcome::Exists, .. } => written(it).is_some(),
        Call::Cas { outcome: CasOutcome::NotFound, .. } => may_remove(it),
        _ => false,
    };
    let is_miss = |it: &Event| {
        matches!(
            it.call,
            Call::Get(None) | Call::Delete(false) | Call::Cas { outcome: CasOutcome::NotFound, .. }
        )
    };
    history.retain(|read| {
        let is_open =
            |it: &&Event| it.key == read.key && it.called < read.returned && it.returned > read.returned;
        let is_left_out = evicts && is_miss(read) || all.iter().filter(is_open).any(|it| saw(read, it));
        !is_left_out
    });
}

/// What else may empty a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evictions {
    /// Nothing.
    Never,
    /// The server, at any time.
    AtAnyTime,
}

/// A clock that all clients of a history share. No two ticks are the same.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// The next tick.
    pub fn next(&self) -> u64 {
        // The order of ticks must agree with the order of what the threads do around them.
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// The result of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains everything.
    Linearizable,
    /// No order explains the calls on this key.
    Violation {
        /// The register.
        key: u32,
        /// The calls around the furthest point that some order explains: the last ones done and the next
        /// pending ones, in order of their calls, and all without a reply.
        around: Vec<Event>,
    },
    /// The search was given up. This is not a pass.
    Inconclusive {
        /// The register.
        key: u32,
    },
}

/// Checks each key of `history` by itself, which is enough (linearizability is local), with at most
/// `states_max` states a key. Registers are empty at first.
pub fn check(history: &[Event], states_max: usize) -> Verdict {
    check_with(history, Evictions::Never, states_max)
}

/// The same for registers that may be emptied.
pub fn check_with(history: &[Event], evictions: Evictions, states_max: usize) -> Verdict {
    let mut keys: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    for event in history {
        keys.entry(event.key).or_default().push(*event);
    }
    for (key, events) in keys {
        let verdict = Search::new(key, events, evictions).run(states_max);
        if verdict != Verdict::Linearizable {
            return verdict;
        }
    }
    Verdict::Linearizable
}

/// How far each client has come, which calls without a reply have taken effect, and what the register holds.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: Vec<u32>,
    used: Vec<bool>,
    register: Option<ValueId>,
}

struct Search {
    key: u32,
    /// Calls of each client, in order.
    clients: Vec<Vec<Event>>,
    /// Calls without a reply.
    open: Vec<Event>,
    evictions: Evictions,
}

impl Search {
    fn new(key: u32, mut events: Vec<Event>, evictions: Evictions) -> Self {
        events.sort_by_key(|event| event.called);
        let mut clients: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        let (open, returned): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| event.returned == NEVER);
        for event in returned {
            clients.entry(event.client).or_default().push(event);
        }
        Self { key, clients: clients.into_values().collect(), open, evictions }
    }

    fn run(&self, states_max: usize) -> Verdict {
        let (done, used) = (vec![0; self.clients.len()], vec![false; self.open.len()]);
        let start = State { done, used, register: None };
        let mut furthest = start.clone();
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            if self.clients.iter().zip(&state.done).all(|(calls, &done)| calls.len() == done as usize) {
                return Verdict::Linearizable;
            }
            if seen.len() > states_max {
                return Verdict::Inconclusive { key: self.key };
            }
            if total(&state) > total(&furthest) {
                furthest = state.clone();
            }
            for next in self.successors(&state) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        Verdict::Violation { key: self.key, around: self.around(&furthest) }
    }

    /// The next call of each client that has one left, with the client's position.
    fn pending<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, &'a Event)> + 'a {
        let next = |(client, calls): (usize, &'a Vec<Event>)| {
            calls.get(state.done[client] as usize).map(|event| (client, event))
        };
        self.clients.iter().enumerate().filter_map(next)
    }

    /// States after one more call: any that began before every other pending one returned.
    fn successors(&self, state: &State) -> Vec<State> {
        let first_return = self.pending(state).map(|(_, event)| event.returned).min().unwrap_or(NEVER);
        let eligible = self.pending(state).filter(|(_, event)| event.called <= first_return);
        let mut successors = Vec::new();
        for (client, event) in eligible {
            let direct = self.apply(state.register, event.call).map(|_| state.clone());
            let prepared =
                if direct.is_none() { self.prepared(state, event.call, first_return) } else { vec![] };
            for mut before in direct.into_iter().chain(prepared) {
                let Some(register) = self.apply(before.register, event.call) else { continue };
                before.register = register;
                before.done[client] += 1;
                successors.push(before);
            }
        }
        successors
    }

    /// States after calls without a reply, in which `call` may return what it did.
    fn prepared(&self, state: &State, call: Call, first_return: u64) -> Vec<State> {
        let open = (0..self.open.len()).filter(|&at| !state.used[at] && self.open[at].called <= first_return);
        let with = |at: usize, register| State { register, ..mark(state, at) };
        match call {
            Call::Get(Some(value)) | Call::Cas { expected: value, outcome: CasOutcome::Stored, .. } => {
                self.produced(state, value, first_return).into_iter().collect()
            }
            // Removals are all alike.
            Call::Get(None) | Call::Delete(false) | Call::Cas { outcome: CasOutcome::NotFound, .. } => {
                let mut removals = open.filter(|&at| matches!(self.open[at].call, Call::Delete(_)));
                removals.next().map(|at| with(at, None)).into_iter().collect()
            }
            Call::Delete(true) | Call::Cas { .. } => {
                let written = |at: usize| match self.open[at].call {
                    Call::Set(value) => Some(with(at, Some(value))),
                    Call::Cas { expected, new, .. } if state.register == Some(expected) => {
                        Some(with(at, Some(new)))
                    }
                    _ => None,
                };
                open.filter_map(written).collect()
            }
            Call::Set(_) => Vec::new(),
        }
    }

    /// The state after calls without a reply that leave `value`. Each value has one write.
    fn produced(&self, state: &State, value: ValueId, first_return: u64) -> Option<State> {
        let wrote = |event: &Event| match event.call {
            Call::Set(written) | Call::Cas { new: written, .. } => written == value,
            _ => false,
        };
        let at = self.open.iter().position(wrote)?;
        if state.used[at] || self.open[at].called > first_return {
            return None;
        }
        let mut next = match self.open[at].call {
            Call::Cas { expected, .. } if state.register != Some(expected) => {
                self.produced(&mark(state, at), expected, first_return)?
            }
            _ => mark(state, at),
        };
        next.register = Some(value);
        Some(next)
    }

    /// The register after `call`, or `None` when it could not have returned what it did.
    fn apply(&self, register: Option<ValueId>, call: Call) -> Option<Option<ValueId>> {
        match call {
            // An eviction in between; elsewhere one explains nothing.
            Call::Get(None) | Call::Delete(false) | Call::Cas { outcome: CasOutcome::NotFound, .. }
                if self.evictions == Evictions::AtAnyTime =>
            {
                Some(None)
            }
            call => apply(register, call),
        }
    }

    /// The last call done and the next pending one of each client, and the calls without a reply.
    fn around(&self, state: &State) -> Vec<Event> {
        let near = |(calls, &done): (&Vec<Event>, &u32)| {
            let done = done as usize;
            calls[done.saturating_sub(1)..calls.len().min(done + 1)].to_vec()
        };
        let answered = self.clients.iter().zip(&state.done).flat_map(near);
        let mut around: Vec<Event> = answered.chain(self.open.iter().copied()).collect();
        around.sort_by_key(|event| event.called);
        around
    }
}

fn total(state: &State) -> u64 {
    state.done.iter().map(|&done| u64::from(done)).sum()
}

/// The register after `call`, or `None` when it could not have returned what it did.
fn apply(register: Option<ValueId>, call: Call) -> Option<Option<ValueId>> {
    match call {
        Call::Get(found) => (found == register).then_some(register),
        Call::Set(value) => Some(Some(value)),
        Call::Delete(found) => (found == register.is_some()).then_some(None),
        Call::Cas { expected, new, outcome } => match (outcome, register) {
            (CasOutcome::Stored, Some(value)) if value == expected => Some(Some(new)),
            (CasOutcome::Exists, Some(value)) if value != expected => Some(register),
            (CasOutcome::NotFound, None) => Some(None),
            _ => None,
        },
    }
}

/// The state with one more call without a reply that has taken effect.
fn mark(state: &State, at: usize) -> State {
    let mut next = state.clone();
    next.used[at] = true;
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    const STATES_MAX: usize = 100_000;

    fn event(client: u32, called: u64, returned: u64, call: Call) -> Event {
        Event { client, key: 0, called, returned, call }
    }

    fn is_linearizable(history: &[Event]) -> bool {
        match check(history, STATES_MAX) {
            Verdict::Linearizable => true,
            Verdict::Violation { .. } => false,
            Verdict::Inconclusive { .. } => panic!("too small a bound for a test"),
        }
    }

    #[test]
    fn one_after_another() {
        let history = [
            event(0, 0, 1, Call::Get(None)),
            event(0, 2, 3, Call::Set(1)),
            event(1, 4, 5, Call::Get(Some(1))),
            event(1, 6, 7, Call::Cas { expected: 1, new: 2, outcome: CasOutcome::Stored }),
            event(0, 8, 9, Call::Cas { expected: 1, new: 3, outcome: CasOutcome::Exists }),
            event(0, 10, 11, Call::Delete(true)),
            event(1, 12, 13, Call::Cas { expected: 2, new: 4, outcome: CasOutcome::NotFound }),
            event(1, 14, 15, Call::Delete(false)),
        ];
        assert!(is_linearizable(&history));
    }

    #[test]
    fn reads_beside_a_write_may_see_either() {
        let write = event(0, 0, 10, Call::Set(1));
        assert!(is_linearizable(&[
            write,
            event(1, 1, 2, Call::Get(None)),
            event(1, 3, 4, Call::Get(Some(1)))
        ]));
        // But not the new value and then the old one.
        assert!(!is_linearizable(&[
            write,
            event(1, 1, 2, Call::Get(Some(1))),
            event(1, 3, 4, Call::Get(None))
        ]));
        assert!(!is_linearizable(&[
            write,
            event(1, 1, 2, Call::Get(Some(1))),
            event(2, 3, 4, Call::Get(None))
        ]));
    }

    #[test]
    fn a_stale_read_is_rejected() {
        let history =
            [event(0, 0, 1, Call::Set(1)), event(0, 2, 3, Call::Set(2)), event(1, 4, 5, Call::Get(Some(1)))];
        let Verdict::Violation { around, .. } = check(&history, STATES_MAX) else { panic!("accepted") };
        assert!(around.contains(&history[2]));
    }

    #[test]
    fn a_lost_update_is_rejected() {
        let cas =
            |client, new| event(client, 2, 5, Call::Cas { expected: 1, new, outcome: CasOutcome::Stored });
        assert!(!is_linearizable(&[event(0, 0, 1, Call::Set(1)), cas(0, 2), cas(1, 3)]));
    }

    #[test]
    fn a_value_that_comes_back_is_rejected() {
        let history = [
            event(0, 0, 1, Call::Set(1)),
            event(0, 2, 3, Call::Delete(true)),
            event(1, 4, 5, Call::Get(Some(1))),
        ];
        assert!(!is_linearizable(&history));
    }

    #[test]
    fn a_call_without_a_reply_may_take_effect_late_or_never() {
        let history = |seen: &[Option<ValueId>]| {
            let mut history = vec![event(0, 0, 1, Call::Set(1)), event(0, 2, NEVER, Call::Set(2))];
            let reads = seen.iter().zip(0..);
            history.extend(reads.map(|(seen, at)| event(0, 3 + 2 * at, 4 + 2 * at, Call::Get(*seen))));
            history
        };
        assert!(is_linearizable(&history(&[Some(1), Some(1), Some(2)])));
        assert!(is_linearizable(&history(&[Some(1), Some(1)])));
        assert!(!is_linearizable(&history(&[Some(2), Some(1)])));
        let mut deleted = history(&[Some(1), None]);
        deleted[1].call = Call::Delete(true);
        assert!(is_linearizable(&deleted));
        deleted.push(event(0, 8, 9, Call::Get(Some(1))));
        assert!(!is_linearizable(&deleted));
    }

    /// A removal that was seen, and then lost with its register's owner.
    #[test]
    fn what_was_seen_of_a_removal_counts_once_it_is_acknowledged() {
        let verdict = |removal| {
            let mut history = vec![
                event(0, 0, 1, Call::Set(1)),
                removal,
                event(1, 4, 5, Call::Get(None)),
                event(1, 6, 7, Call::Get(Some(1))),
            ];
            forget_premature(&mut history, false);
            check(&history, STATES_MAX)
        };
        // Nobody knows what one without a reply has found.
        for was_there in [false, true] {
            let verdict = verdict(event(0, 2, NEVER, Call::Delete(was_there)));
            assert_eq!(verdict, Verdict::Linearizable, "{was_there}");
        }
        assert_ne!(verdict(event(0, 2, 3, Call::Delete(true))), Verdict::Linearizable);
        // One that found nothing has removed nothing; nor has another key's.
        assert_ne!(verdict(event(0, 2, 8, Call::Delete(false))), Verdict::Linearizable);
        let other = Event { key: 1, ..event(0, 2, NEVER, Call::Delete(false)) };
        assert_ne!(verdict(other), Verdict::Linearizable);
    }

    #[test]
    fn calls_without_a_reply_may_build_on_each_other() {
        let cas = |called, expected, new| {
            event(0, called, NEVER, Call::Cas { expected, new, outcome: CasOutcome::Stored })
        };
        let history = |seen| {
            let set = event(0, 0, NEVER, Call::Set(1));
            [
                set,
                cas(2, 1, 2),
                cas(4, 2, 3),
                event(1, 6, 7, Call::Get(seen)),
                event(1, 8, 9, Call::Delete(true)),
            ]
        };
        assert!(is_linearizable(&history(Some(3))) && is_linearizable(&history(None)));
        assert!(!is_linearizable(&history(Some(3))[1..]) && !is_linearizable(&history(Some(4))));
        // One that began later explains nothing.
        let mut late = history(Some(3));
        late[1].called = 10;
        assert!(!is_linearizable(&late));
    }

    /// All orders of the calls, with every subset of those without a reply, and evictions anywhere.
    fn has_order(history: &[Event], done: u32, register: Option<ValueId>, evictions: Evictions) -> bool {
        let is_left = |at: &usize| done & 1 << at == 0;
        let left: Vec<usize> = (0..history.len()).filter(is_left).collect();
        let first_return = left.iter().map(|&at| history[at].returned).min().unwrap_or(NEVER);
        let next = |at: usize, register| has_order(history, done | 1 << at, register, evictions);
        let may_be_next = |at: usize| {
            let event = history[at];
            let unanswered = match event.call {
                Call::Set(value) => Some(value),
                Call::Cas { expected, new, .. } if register == Some(expected) => Some(new),
                Call::Delete(_) => None,
                _ => register,
            };
            event.called <= first_return
                && match event.returned {
                    NEVER => next(at, unanswered),
                    _ => apply(register, event.call).is_some_and(|register| next(at, register)),
                }
        };
        first_return == NEVER
            || left.into_iter().any(may_be_next)
            || (evictions == Evictions::AtAnyTime
                && register.is_some()
                && has_order(history, done, None, evictions))
    }

    #[test]
    fn the_search_finds_what_trying_everything_finds() {
        let mut verdicts = [0; 2];
        for seed in 0..4000 {
            let mut random = minos_base::seeded(seed);
            let mut history = Vec::new();
            let mut free_at = [0; 3];
            for value in 1..=random.random_range(3..8) {
                let client = random.random_range(0..3);
                let called = free_at[client] + random.random_range(1..4) * 3 + client as u64;
                let returned = called + random.random_range(1..6) * 3;
                free_at[client] = returned;
                let seen = random.random_range(1..6);
                let call = match random.random_range(0..8) {
                    0..3 => Call::Set(value),
                    3 | 4 => Call::Get((seen < 5).then_some(seen)),
                    5 => Call::Delete(random.random_bool(0.5)),
                    _ => {
                        use CasOutcome::{Exists, NotFound, Stored};
                        let outcome = [Stored, Exists, NotFound][random.random_range(0..3)];
                        Call::Cas { expected: seen, new: value, outcome }
                    }
                };
                let is_open = random.random_bool(0.35);
                history.push(event(client as u32, called, if is_open { NEVER } else { returned }, call));
            }
            for evictions in [Evictions::Never, Evictions::AtAnyTime] {
                let expected = has_order(&history, 0, None, evictions);
                let verdict = check_with(&history, evictions, STATES_MAX);
                assert_eq!(verdict == Verdict::Linearizable, expected, "{seed} {evictions:?} {history:?}");
                verdicts[usize::from(expected)] += 1;
            }
        }
        assert!(verdicts.iter().all(|count| *count > 500), "{verdicts:?}");
    }

    #[test]
    fn many_calls_without_a_reply_cost_little() {
        let unanswered = (0..60).map(|at| event(0, at, NEVER, Call::Set(at)));
        let read = |at| event(1, 100 + 2 * at, 101 + 2 * at, Call::Get(Some(at)));
        let mut history: Vec<Event> = unanswered.chain((0..40).map(read)).collect();
        assert_eq!(check(&history, 100), Verdict::Linearizable);
        history.push(event(1, 300, 301, Call::Get(Some(3))));
        assert!(matches!(check(&history, 100), Verdict::Violation { .. }));
    }

    #[test]
    fn an_evicted_value_does_not_come_back() {
        let history = [
            event(0, 0, 1, Call::Set(1)),
            event(1, 2, 3, Call::Get(None)),
            event(1, 4, 5, Call::Delete(false)),
            event(0, 6, 7, Call::Set(2)),
            event(0, 8, 9, Call::Cas { expected: 2, new: 3, outcome: CasOutcome::NotFound }),
            event(1, 10, 11, Call::Get(Some(2))),
        ];
        let evicting = |history: &[Event]| check_with(history, Evictions::AtAnyTime, STATES_MAX);
        assert_eq!(evicting(&history[..5]), Verdict::Linearizable);
        assert!(!is_linearizable(&history[..2]));
        assert!(matches!(evicting(&history), Verdict::Violation { .. }));
    }

    #[test]
    fn keys_are_checked_apart() {
        let mut other = event(1, 4, 5, Call::Get(None));
        other.key = 7;
        assert!(is_linearizable(&[event(0, 0, 1, Call::Set(1)), other]));
        other.call = Call::Get(Some(1));
        let verdict = check(&[event(0, 0, 1, Call::Set(1)), other], STATES_MAX);
        assert!(matches!(verdict, Verdict::Violation { key: 7, .. }));
    }

    #[test]
    fn a_search_given_up_is_no_pass() {
        let writes: Vec<Event> =
            (0..12).map(|client| event(client, 0, 100, Call::Set(u64::from(client)))).collect();
        let impossible = event(12, 101, 102, Call::Get(None));
        let history: Vec<Event> = writes.into_iter().chain([impossible]).collect();
        assert_eq!(check(&history, 100), Verdict::Inconclusive { key: 0 });
    }
}
