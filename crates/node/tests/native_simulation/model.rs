//! A model of one key under a sequence of operations.

use crate::value::{Token, Value};

/// An operation on a key. Times to live are either infinite or so short that the item has already expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    /// Read, and set an expiry beyond the run.
    GetTouch,
    /// Set an expiry beyond the run.
    Touch,
    /// Set an expiry in the past.
    TouchDead,
    Put(Value),
    /// Write an item that has already expired.
    PutDead,
    /// Write if there is no item.
    Add(Value),
    /// Write if there is an item.
    Replace(Value),
    /// Write if the item, identified by its CAS unique, is this one.
    Compare {
        expected: Value,
        new: Value,
    },
    Append(Token),
    Prepend(Token),
    Delete,
    /// Remove if the item, identified by its CAS unique, is this one.
    DeleteIf {
        expected: Value,
    },
    /// Add to a number; if there is none, set it to `initial`, if that is given.
    Incr {
        delta: u64,
        initial: Option<u64>,
    },
    /// Subtract, at most down to zero.
    Decr {
        delta: u64,
        initial: Option<u64>,
    },
    /// Check that the server answers, without a key.
    Ping,
    /// Request statistics, without a key.
    Stats,
    /// The server restarts empty.
    Wipe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Found(Value),
    Number(u64),
    /// There is no item.
    NotFound,
    /// The item is another one.
    Exists,
    /// The condition did not hold.
    NotStored,
    NotANumber,
}

/// The content of a key.
pub(crate) type State = Option<Value>;

impl Action {
    /// The content of the key afterwards, and the answer to the client.
    pub(crate) fn step(&self, state: &State) -> (State, Answer) {
        let is_there = state.is_some();
        match self {
            Self::Get | Self::GetTouch => {
                (state.clone(), state.clone().map_or(Answer::NotFound, Answer::Found))
            }
            Self::Touch => (state.clone(), done_or(is_there, Answer::NotFound)),
            Self::TouchDead | Self::Delete => (None, done_or(is_there, Answer::NotFound)),
            Self::Put(value) => (Some(value.clone()), Answer::Done),
            Self::PutDead | Self::Wipe => (None, Answer::Done),
            Self::Add(value) => store_if(!is_there, state, value, Answer::NotStored),
            Self::Replace(value) => store_if(is_there, state, value, Answer::NotStored),
            Self::Compare { expected, new } => match state {
                None => (None, Answer::NotFound),
                Some(value) => store_if(value == expected, state, new, Answer::Exists),
            },
            Self::DeleteIf { expected } => match state {
                None => (None, Answer::NotFound),
                Some(value) if value == expected => (None, Answer::Done),
                Some(_) => (state.clone(), Answer::Exists),
            },
            Self::Ping | Self::Stats => (state.clone(), Answer::Done),
            Self::Append(token) => concat(state, |tokens| tokens.push(*token)),
            Self::Prepend(token) => concat(state, |tokens| tokens.insert(0, *token)),
            Self::Incr { delta, initial } => count(state, *initial, |number| number.wrapping_add(*delta)),
            Self::Decr { delta, initial } => count(state, *initial, |number| number.saturating_sub(*delta)),
        }
    }

    /// True if the client numbers it, so that the server executes it once.
    pub(crate) fn is_once(&self) -> bool {
        matches!(
            self,
            Self::Add(_)
                | Self::Compare { .. }
                | Self::Append(_)
                | Self::Prepend(_)
                | Self::Delete
                | Self::DeleteIf { .. }
                | Self::Incr { .. }
                | Self::Decr { .. }
                | Self::Wipe
        )
    }

    /// The value that it writes, independent of the old one.
    pub(crate) fn written(&self) -> Option<&Value> {
        match self {
            Self::Put(value) | Self::Replace(value) => Some(value),
            _ => None,
        }
    }

    /// The same action without its condition on a CAS unique.
    pub(crate) fn without_condition(self) -> Self {
        match self {
            Self::Compare { new, .. } => Self::Put(new),
            Self::DeleteIf { .. } => Self::Delete,
            other => other,
        }
    }

    /// True if it makes a value longer.
    pub(crate) fn joins(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Prepend(_))
    }

    /// True if it depends on a CAS unique.
    pub(crate) fn compares(&self) -> bool {
        matches!(self, Self::Compare { .. } | Self::DeleteIf { .. })
    }

    /// True if it may change the value.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self, Self::Get | Self::GetTouch | Self::Touch | Self::Ping | Self::Stats)
    }
}

fn done_or(is_done: bool, otherwise: Answer) -> Answer {
    if is_done { Answer::Done } else { otherwise }
}

fn store_if(holds: bool, state: &State, value: &Value, otherwise: Answer) -> (State, Answer) {
    if holds { (Some(value.clone()), Answer::Done) } else { (state.clone(), otherwise) }
}

fn concat(state: &State, join: impl FnOnce(&mut Vec<Token>)) -> (State, Answer) {
    match state {
        Some(Value::Tokens(tokens)) => {
            let mut tokens = tokens.clone();
            join(&mut tokens);
            (Some(Value::Tokens(tokens)), Answer::Done)
        }
        _ => (state.clone(), Answer::NotStored),
    }
}

fn count(state: &State, initial: Option<u64>, change: impl FnOnce(u64) -> u64) -> (State, Answer) {
    let number = match state {
        Some(Value::Number(number)) => change(*number),
        Some(Value::Tokens(_)) => return (state.clone(), Answer::NotANumber),
        None => match initial {
            Some(initial) => initial,
            None => return (None, Answer::NotFound),
        },
    };
    (Some(Value::Number(number)), Answer::Number(number))
}
