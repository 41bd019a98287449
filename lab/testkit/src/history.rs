//! A check that concurrent clients' results are linearizable.
//!
//! A history of calls on registers (one a key) is linearizable when the calls can be put in an
//! order that agrees with real time and with how a register behaves. The search is that of Wing and
//! Gong with Lowe's memory of states seen: it tries every call that may come next. A client has one
//! call under way at a time, so a state is how far each client has come, plus the register. A call without a reply may
//! take effect at any time after it, or never.

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
        /// pending ones, in order of their calls.
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

/// How far each client has come, and what the register holds.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: Vec<u32>,
    register: Option<ValueId>,
}

struct Search {
    key: u32,
    /// Calls of each client, in order.
    clients: Vec<Vec<Event>>,
    evictions: Evictions,
}

impl Search {
    fn new(key: u32, mut events: Vec<Event>, evictions: Evictions) -> Self {
        events.sort_by_key(|event| event.called);
        let mut clients: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        let (returned, open): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| event.returned != NEVER);
        for event in returned {
            clients.entry(event.client).or_default().push(event);
        }
        // A call without a reply waits for nobody, as if it had a client of its own. It is tried last.
        let open = open.into_iter().map(|event| vec![event]);
        Self { key, clients: open.chain(clients.into_values()).collect(), evictions }
    }

    fn run(&self, states_max: usize) -> Verdict {
        let start = State { done: vec![0; self.clients.len()], register: None };
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
    fn successors<'a>(&'a self, state: &'a State) -> impl Iterator<Item = State> + 'a {
        let first_return = self.pending(state).map(|(_, event)| event.returned).min().unwrap_or(u64::MAX);
        self.pending(state).filter(move |(_, event)| event.called <= first_return).filter_map(
            |(client, event)| {
                let register = self.apply(state.register, event)?;
                let mut done = state.done.clone();
                done[client] += 1;
                Some(State { done, register })
            },
        )
    }

    fn apply(&self, register: Option<ValueId>, event: &Event) -> Option<Option<ValueId>> {
        match event.call {
            call if event.returned == NEVER => Some(apply_unanswered(register, call)),
            // An eviction in between; elsewhere one explains nothing.
            Call::Get(None) | Call::Delete(false) | Call::Cas { outcome: CasOutcome::NotFound, .. }
                if self.evictions == Evictions::AtAnyTime =>
            {
                Some(None)
            }
            call => apply(register, call),
        }
    }

    /// The last call done and the next pending one of each client.
    fn around(&self, state: &State) -> Vec<Event> {
        let near = |(calls, &done): (&Vec<Event>, &u32)| {
            let done = done as usize;
            calls[done.saturating_sub(1)..calls.len().min(done + 1)].to_vec()
        };
        let mut around: Vec<Event> = self.clients.iter().zip(&state.done).flat_map(near).collect();
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

/// The register after a call whose result nobody knows.
fn apply_unanswered(register: Option<ValueId>, call: Call) -> Option<ValueId> {
    match call {
        Call::Get(_) => register,
        Call::Set(value) => Some(value),
        Call::Delete(_) => None,
        Call::Cas { expected, new, .. } => register.map(|value| if value == expected { new } else { value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
