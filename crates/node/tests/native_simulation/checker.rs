//! Checks whether some order of a key's operations explains the answers that its clients got.
//!
//! The search is that of Wing and Gong with Lowe's memory of visited places, as in `minos_testkit::history`,
//! with two additions. An operation with an unknown outcome may or may not have happened, at any time after
//! its call. An operation that is not executed exactly once may have happened again, as long as a copy of it
//! may be in flight.

use std::collections::{HashMap, HashSet};

use crate::{
    model::{Action, Answer, State},
    value::Value,
};

/// Most operations on a key that can be checked.
pub(crate) const EVENTS_MAX: usize = u128::BITS as usize;

/// Most places visited before the check is given up as failed.
const PLACES_MAX: usize = 1_000_000;

/// An operation and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) action: Action,
    /// The answer; `None` if it is unknown whether the operation happened.
    pub(crate) answer: Option<Answer>,
    /// Time of the call, in nanoseconds.
    pub(crate) called_ns: u64,
    /// Time of the answer, or [`u64::MAX`].
    pub(crate) returned_ns: u64,
    /// Time until which a copy of it may be executed again; `None` if it is executed exactly once.
    pub(crate) repeats_until_ns: Option<u64>,
}

/// Checks the events of one key, which was empty at first; the error is the part that cannot be explained.
pub(crate) fn check(events: &[Event]) -> Result<(), String> {
    let events = &without_unseen(events);
    assert!(events.len() <= EVENTS_MAX, "too many operations for one key");
    let search = Search { events, certain: certain(events) };
    let start = Place { done: 0, state: None };
    let mut furthest = start.clone();
    let mut seen = Seen::default();
    seen.is_news(search.certain, &start);
    let mut open = vec![start];
    while let Some(place) = open.pop() {
        if search.is_complete(&place) {
            return Ok(());
        }
        if seen.places > PLACES_MAX {
            return Err(format!("inconclusive after {PLACES_MAX} places: {}", search.around(&furthest)));
        }
        if place.done.count_ones() > furthest.done.count_ones() {
            furthest = place.clone();
        }
        search.each_successor(&place, |next| {
            if seen.is_news(search.certain, &next) {
                open.push(next);
            }
        });
    }
    Err(search.around(&furthest))
}

/// Drops joins of unknown outcome whose token no client saw: they allow no further explanations.
fn without_unseen(events: &[Event]) -> Vec<Event> {
    let mut seen = HashSet::new();
    for event in events {
        if let Some(Answer::Found(Value::Tokens(tokens))) = &event.answer {
            seen.extend(tokens.iter().map(|token| token.id));
        }
    }
    let matters = |event: &&Event| match &event.action {
        Action::Append(token) | Action::Prepend(token) => event.answer.is_some() || seen.contains(&token.id),
        _ => true,
    };
    events.iter().filter(matters).cloned().collect()
}

/// The certain events, one bit each.
fn certain(events: &[Event]) -> u128 {
    let bits = events.iter().enumerate().map(|(index, event)| u128::from(event.answer.is_some()) << index);
    bits.fold(0, |all, bit| all | bit)
}

/// The places visited: for the certain events that happened and the key's state, the sets of other events
/// that happened.
#[derive(Default)]
struct Seen {
    others: HashMap<(u128, State), Vec<u128>>,
    places: usize,
}

impl Seen {
    /// True if some place can be reached from `place` that could not be reached from visited ones. None can
    /// if a visited place has the same certain events and state, and a subset of the other events: the rest
    /// can still happen there.
    fn is_news(&mut self, certain: u128, place: &Place) -> bool {
        let others = self.others.entry((place.done & certain, place.state.clone())).or_default();
        let other = place.done & !certain;
        if others.iter().any(|seen| seen & other == *seen) {
            return false;
        }
        others.push(other);
        self.places += 1;
        true
    }
}

/// The events that have happened, and the state of the key.
#[derive(Clone, Debug)]
struct Place {
    done: u128,
    state: State,
}

struct Search<'a> {
    events: &'a [Event],
    certain: u128,
}

impl Search<'_> {
    fn pending(&self, done: u128) -> impl Iterator<Item = (usize, &Event)> {
        self.events.iter().enumerate().filter(move |(index, _)| done & 1 << index == 0)
    }

    /// True if every certain event has happened.
    fn is_complete(&self, place: &Place) -> bool {
        place.done & self.certain == self.certain
    }

    /// The places one operation further. The search continues with the last ones: certain events come after
    /// uncertain ones.
    fn each_successor(&self, place: &Place, mut visit: impl FnMut(Place)) {
        let first_return_ns = self.pending(place.done).map(|(_, event)| event.returned_ns).min();
        let first_return_ns = first_return_ns.unwrap_or(u64::MAX);
        let last_call_ns = self.last_call_ns(place.done);
        for event in self.events.iter().filter(|event| event.called_ns <= first_return_ns) {
            if event.repeats_until_ns.is_some_and(|until_ns| until_ns >= last_call_ns) {
                visit(Place { done: place.done, state: event.action.step(&place.state).0 });
            }
        }
        for is_certain in [false, true] {
            let is_next =
                |event: &Event| event.called_ns <= first_return_ns && event.answer.is_some() == is_certain;
            for (index, event) in self.pending(place.done).filter(|(_, event)| is_next(event)) {
                if let Some(state) = self.state_after(event, &place.state) {
                    visit(Place { done: place.done | 1 << index, state });
                }
            }
        }
    }

    /// The latest call among the events that have happened: the present is no earlier.
    fn last_call_ns(&self, done: u128) -> u64 {
        let happened = self.events.iter().enumerate().filter(|(index, _)| done & 1 << index != 0);
        happened.map(|(_, event)| event.called_ns).max().unwrap_or(0)
    }

    /// The state of the key after `event` happens in `state`; `None` if the client's answer would have
    /// differed.
    fn state_after(&self, event: &Event, state: &State) -> Option<State> {
        let (after, told) = event.action.step(state);
        if event.answer.as_ref().is_none_or(|answer| *answer == told) {
            return Some(after);
        }
        // A copy of a write gives its item a CAS unique of its own.
        let is_other =
            event.answer == Some(Answer::Exists) && told == Answer::Done && event.action.compares();
        (is_other && self.may_be_rewritten(state)).then(|| state.clone())
    }

    /// True if the present value may have been written twice.
    fn may_be_rewritten(&self, state: &State) -> bool {
        let same =
            |event: &Event| event.repeats_until_ns.is_some() && event.action.written() == state.as_ref();
        state.is_some() && self.events.iter().any(same)
    }

    /// Describes the events that happened before `place` and those still pending.
    fn around(&self, place: &Place) -> String {
        let mut events: Vec<_> = self.events.iter().enumerate().collect();
        events.sort_by_key(|(_, event)| event.called_ns);
        let mut text = format!("with {:?} there, no order explains:\n", place.state);
        for (index, event) in events {
            let mark = if place.done & 1 << index == 0 { '?' } else { ' ' };
            text.push_str(&format!(
                "{mark} {:>12} .. {:>12} {:?} -> {:?}\n",
                event.called_ns,
                i128::from(event.returned_ns),
                event.action,
                event.answer,
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Token;

    fn token(id: u32) -> Token {
        Token { id, pattern_bytes: 4 }
    }

    fn tokens(ids: &[u32]) -> Value {
        Value::Tokens(ids.iter().map(|&id| token(id)).collect())
    }

    fn event(called_ns: u64, returned_ns: u64, action: Action, answer: Answer) -> Event {
        let repeats_until_ns = (!action.is_once() && action.is_write()).then_some(returned_ns + 100);
        Event { action, answer: Some(answer), called_ns, returned_ns, repeats_until_ns }
    }

    fn unknown(called_ns: u64, action: Action) -> Event {
        let repeats_until_ns = (!action.is_once() && action.is_write()).then_some(u64::MAX);
        Event { action, answer: None, called_ns, returned_ns: u64::MAX, repeats_until_ns }
    }

    fn incr(called_ns: u64, answer: u64) -> Event {
        event(called_ns, called_ns + 5, Action::Incr { delta: 1, initial: Some(0) }, Answer::Number(answer))
    }

    fn get(at_ns: u64, value: Value) -> Event {
        event(at_ns, at_ns + 1, Action::Get, Answer::Found(value))
    }

    #[test]
    fn counts_are_exact() {
        assert_eq!(check(&[incr(0, 0), incr(10, 1), incr(20, 2), get(100, Value::Number(2))]), Ok(()));
        // An increment that was executed twice, and one that was not.
        assert!(check(&[incr(0, 0), incr(10, 1), incr(20, 3)]).is_err());
        assert!(check(&[incr(0, 0), incr(10, 1), get(100, Value::Number(2))]).is_err());
        assert!(check(&[incr(0, 0), incr(10, 1), incr(20, 1)]).is_err());
    }

    #[test]
    fn what_nobody_knows_happened_at_most_once() {
        let lost = unknown(5, Action::Incr { delta: 1, initial: None });
        for (number, is_explained) in [(0, true), (1, true), (2, false)] {
            let events = [incr(0, 0), lost.clone(), get(100, Value::Number(number))];
            assert_eq!(check(&events).is_ok(), is_explained, "{number}");
        }
        let late = unknown(50, Action::Incr { delta: 1, initial: None });
        assert!(check(&[incr(0, 0), late, get(10, Value::Number(1))]).is_err(), "before it was asked for");
    }

    #[test]
    fn tokens_stand_once_and_in_order() {
        let put = event(0, 1, Action::Put(tokens(&[1])), Answer::Done);
        let append = |id, at_ns| event(at_ns, at_ns + 1, Action::Append(token(id)), Answer::Done);
        let check = |ids: &[u32]| check(&[put.clone(), append(2, 10), append(3, 20), get(500, tokens(ids))]);
        assert_eq!(check(&[1, 2, 3]), Ok(()));
        for wrong in [&[1, 3, 2][..], &[1, 2, 2, 3], &[1, 2], &[2, 1, 3]] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn copies_of_a_write_may_come_late_but_not_too_late() {
        let put = |id, at_ns| event(at_ns, at_ns + 1, Action::Put(tokens(&[id])), Answer::Done);
        let events = |at_ns| [put(1, 0), put(2, 10), get(20, tokens(&[2])), get(at_ns, tokens(&[1]))];
        assert_eq!(check(&events(90)), Ok(()));
        let written_again_late = [put(1, 0), put(2, 500), get(600, tokens(&[1]))];
        assert!(check(&written_again_late).is_err());
    }

    #[test]
    fn a_comparison_sees_who_came_between() {
        let put = |id, at_ns| event(at_ns, at_ns + 1, Action::Put(tokens(&[id])), Answer::Done);
        let compare = |at_ns, answer| {
            let action = Action::Compare { expected: tokens(&[1]), new: tokens(&[3]) };
            event(at_ns, at_ns + 1, action, answer)
        };
        assert_eq!(check(&[put(1, 0), compare(10, Answer::Done), get(500, tokens(&[3]))]), Ok(()));
        assert_eq!(check(&[put(1, 0), put(2, 500), compare(700, Answer::Exists)]), Ok(()));
        assert!(check(&[put(1, 0), put(2, 500), compare(700, Answer::Done)]).is_err());
        assert_eq!(check(&[put(1, 0), compare(500, Answer::Exists), get(600, tokens(&[1]))]), Ok(()));
        let once = Event { repeats_until_ns: None, ..put(1, 0) };
        assert!(check(&[once, compare(10, Answer::Done), compare(500, Answer::Done)]).is_err());
        assert!(check(&[compare(10, Answer::Exists)]).is_err());
    }

    #[test]
    fn a_restart_wipes() {
        let wipe = event(50, 50, Action::Wipe, Answer::Done);
        assert_eq!(check(&[incr(0, 0), wipe.clone(), incr(60, 0)]), Ok(()));
        assert!(check(&[incr(0, 0), wipe, incr(60, 1)]).is_err());
    }
}
