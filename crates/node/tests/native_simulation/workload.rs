//! The clients' operations, and the answers to them.

use std::collections::BTreeMap;

use minos_client::{Error, OnceFor, Outcome, Request, Verb};
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    checker::{EVENTS_MAX, Event},
    model::{Action, Answer},
    scenario::Scenario,
    value::{Token, Value},
};

/// A time to live longer than a run, in seconds.
const TTL_LONG_S: i32 = 3600;

/// Operations drawn for a key: even if the outcomes of all are unknown, there are few enough orders.
const DRAWN_MAX: usize = 24;

/// A key whose values are tokens, or a key that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Tokens(u32),
    Number(u32),
}

impl Key {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Tokens(number) => format!("tokens-{number}").into_bytes(),
            Self::Number(number) => format!("number-{number}").into_bytes(),
        }
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Number(_))
    }
}

/// An operation that was called.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) key: Key,
    pub(crate) action: Action,
    pub(crate) called_ns: u64,
}

/// Draws operations, and records the answers for each key.
pub(crate) struct Workload {
    scenario: Scenario,
    rng: StdRng,
    tokens: u32,
    histories: BTreeMap<Key, Vec<Event>>,
    /// Operations drawn for each key, so that none has more than can be checked.
    drawn: BTreeMap<Key, usize>,
    /// A value of a key that was read since the server started, with its CAS unique.
    known: BTreeMap<Key, (Value, u64)>,
    /// Time of the server's restart.
    restarted_ns: Option<u64>,
    /// Operations that ended with a known outcome, and with an unknown one.
    pub(crate) known_outcomes: u64,
    pub(crate) unknown_outcomes: u64,
    /// The last operation with an unknown outcome, and its result.
    pub(crate) last_unknown: String,
    /// Operations that failed for lack of memory.
    pub(crate) without_memory: u64,
}

impl Workload {
    pub(crate) fn new(scenario: &Scenario, rng: StdRng) -> Self {
        Self {
            scenario: scenario.clone(),
            rng,
            tokens: 0,
            histories: BTreeMap::new(),
            drawn: BTreeMap::new(),
            known: BTreeMap::new(),
            restarted_ns: None,
            known_outcomes: 0,
            unknown_outcomes: 0,
            last_unknown: String::new(),
            without_memory: 0,
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + use<> {
        let tokens = (0..self.scenario.token_keys).map(Key::Tokens);
        tokens.chain((0..self.scenario.number_keys).map(Key::Number))
    }

    pub(crate) fn histories(&self) -> &BTreeMap<Key, Vec<Event>> {
        &self.histories
    }

    /// The next operation of a client.
    pub(crate) fn draw(&mut self, now_ns: u64) -> (Asked, Request) {
        let is_free = |key: &Key| self.drawn.get(key).is_none_or(|&drawn| drawn < DRAWN_MAX);
        let keys: Vec<_> = self.keys().filter(is_free).collect();
        let key =
            if keys.is_empty() { Key::Number(u32::MAX) } else { keys[self.rng.random_range(0..keys.len())] };
        *self.drawn.entry(key).or_default() += 1;
        let action = if keys.is_empty() { Action::Get } else { self.action(key) };
        let request = self.request(key, &action);
        (Asked { key, action, called_ns: now_ns }, request)
    }

    fn action(&mut self, key: Key) -> Action {
        let choice = self.rng.random_range(0..100);
        if key.is_number() { self.number_action(choice) } else { self.token_action(key, choice) }
    }

    fn number_action(&mut self, choice: u32) -> Action {
        let initial = self.rng.random_bool(0.7).then(|| self.rng.random_range(0..1000));
        // Powers of four, so that different sets of few increments have different sums.
        let delta = 1 << (2 * self.rng.random_range(0..16));
        match choice {
            0..60 => Action::Incr { delta, initial },
            60..70 => Action::Decr { delta: delta.min(16), initial },
            70..73 => Action::Delete,
            73..78 => Action::Add(Value::Number(self.rng.random_range(0..1000))),
            _ => Action::Get,
        }
    }

    fn token_action(&mut self, key: Key, choice: u32) -> Action {
        match choice {
            0..18 => Action::Put(self.token().alone()),
            18..38 => Action::Append(self.token()),
            38..45 => Action::Prepend(self.token()),
            45..51 => Action::Add(self.token().alone()),
            51..56 => Action::Replace(self.token().alone()),
            56..64 => match self.known.get(&key) {
                Some((expected, _)) => {
                    Action::Compare { expected: expected.clone(), new: self.token().alone() }
                }
                None => Action::Get,
            },
            64..67 => Action::Delete,
            67..68 => match self.known.get(&key) {
                Some((expected, _)) => Action::DeleteIf { expected: expected.clone() },
                None => Action::Delete,
            },
            68..70 => Action::Touch,
            70..71 => Action::TouchDead,
            71..72 => Action::PutDead,
            72..75 => Action::GetTouch,
            75..77 => Action::Incr { delta: 1, initial: None },
            77..78 => Action::Ping,
            78..79 => Action::Stats,
            _ => Action::Get,
        }
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        let size = self.rng.random_range(0..100);
        let pattern_bytes = match (self.scenario.token_bytes, size) {
            (Some(bytes), _) => bytes,
            (None, 0..60) => self.rng.random_range(0..150),
            (None, 60..80) => self.rng.random_range(150..3000),
            (None, 80..93) => self.rng.random_range(3000..30_000),
            (None, _) => self.rng.random_range(30_000..300_000),
        };
        Token { id: self.tokens, pattern_bytes }
    }

    fn request(&self, key: Key, action: &Action) -> Request {
        let of = |verb| Request::new(verb, key.bytes());
        let ttl = |ttl, request: Request| Request { ttl, ..request };
        match action {
            Action::Get => of(Verb::Get),
            Action::GetTouch => ttl(TTL_LONG_S, of(Verb::GetTouch)),
            Action::Touch => ttl(TTL_LONG_S, of(Verb::Touch)),
            Action::TouchDead => ttl(-1, of(Verb::Touch)),
            Action::Put(value) => store(of(Verb::Put), value),
            Action::PutDead => ttl(-1, of(Verb::Put)),
            Action::Add(value) => store(of(Verb::Add), value),
            Action::Replace(value) => store(of(Verb::Replace), value),
            Action::Compare { new, .. } => store(of(Verb::Compare).operand(self.known_cas(key)), new),
            Action::Append(token) => store(of(Verb::Append), &token.alone()),
            Action::Prepend(token) => store(of(Verb::Prepend), &token.alone()),
            Action::Delete | Action::Wipe => of(Verb::Delete),
            Action::DeleteIf { .. } => of(Verb::Delete).operand(self.known_cas(key)),
            Action::Ping => Request::new(Verb::Ping, ""),
            Action::Stats => Request::new(Verb::Stats, ""),
            Action::Incr { delta, initial } => {
                Request { initial: *initial, ..of(Verb::Incr).operand(*delta) }
            }
            Action::Decr { delta, initial } => {
                Request { initial: *initial, ..of(Verb::Decr).operand(*delta) }
            }
        }
    }

    /// The CAS unique that the last value read of `key` had.
    fn known_cas(&self, key: Key) -> u64 {
        self.known.get(&key).map_or(0, |(_, cas)| *cas)
    }

    /// Records the outcome of an operation.
    ///
    /// # Errors
    /// The run allows no such outcome.
    pub(crate) fn note(
        &mut self,
        mut asked: Asked,
        result: Result<Outcome, Error>,
        now_ns: u64,
    ) -> Result<(), String> {
        if self.scenario.is_noisy() {
            return Ok(());
        }
        let text = format!("{asked:?} until {now_ns}: {result:?}");
        let mut answer = match result {
            Ok(outcome) => Some(self.answer(&asked, outcome)?),
            Err(Error::NotANumber) => Some(Answer::NotANumber),
            Err(Error::TimedOut { was_sent: false }) => return Ok(()),
            Err(
                Error::TimedOut { was_sent: true } | Error::OutcomeUnknown | Error::Busy | Error::Unstable,
            ) => None,
            Err(Error::NoMemory) if self.scenario.is_small() => {
                self.without_memory += 1;
                None
            }
            Err(error) => return Err(format!("{asked:?} failed: {error}")),
        };
        let is_once = match self.scenario.once_for {
            OnceFor::AllWrites => true,
            OnceFor::NotIdempotent => asked.action.is_once(),
        };
        // CAS uniques start anew with the server: the operation may have compared with another value's.
        if self.spans_restart(&asked) && asked.action.compares() {
            (asked.action, answer) = (asked.action.without_condition(), None);
        }
        if answer.is_none() && !asked.action.is_write() {
            return Ok(());
        }
        if self.scenario.is_small() && asked.action.joins() && answer == Some(Answer::NotStored) {
            // As in memcached, a join without room is answered as not stored.
            self.without_memory += 1;
            return Ok(());
        }
        self.known_outcomes += u64::from(answer.is_some());
        if answer.is_none() {
            self.unknown_outcomes += 1;
            self.last_unknown = text;
        }
        let returned_ns = if answer.is_some() { now_ns } else { u64::MAX };
        let repeats = asked.action.is_write() && !is_once;
        let repeats_until_ns = repeats.then(|| returned_ns.saturating_add(self.scenario.late_ns()));
        let Asked { key, action, called_ns } = asked;
        self.push(key, Event { action, answer, called_ns, returned_ns, repeats_until_ns });
        Ok(())
    }

    /// Records that the server lost everything.
    pub(crate) fn note_restart(&mut self, now_ns: u64) {
        self.known.clear();
        self.restarted_ns = Some(now_ns);
        for key in self.keys() {
            self.push_at_once(key, Action::Wipe, Answer::Done, now_ns);
        }
    }

    /// Records the value of a key at the end of the run.
    pub(crate) fn note_end(&mut self, key: Key, bytes: Option<&[u8]>, now_ns: u64) -> Result<(), String> {
        if self.scenario.is_noisy() {
            return Ok(());
        }
        let found = bytes.map(|bytes| Value::parse(bytes, key.is_number()).map(Answer::Found)).transpose()?;
        self.push_at_once(key, Action::Get, found.unwrap_or(Answer::NotFound), now_ns);
        Ok(())
    }

    /// Records what happened in no time.
    fn push_at_once(&mut self, key: Key, action: Action, answer: Answer, now_ns: u64) {
        let (called_ns, returned_ns) = (now_ns, now_ns);
        let event = Event { action, answer: Some(answer), called_ns, returned_ns, repeats_until_ns: None };
        self.push(key, event);
    }

    /// True if the server restarted after this operation was called.
    fn spans_restart(&self, asked: &Asked) -> bool {
        self.restarted_ns.is_some_and(|restarted_ns| asked.called_ns <= restarted_ns)
    }

    fn push(&mut self, key: Key, event: Event) {
        let history = self.histories.entry(key).or_default();
        history.push(event);
        assert!(history.len() <= EVENTS_MAX, "too many operations were drawn for {key:?}");
    }

    fn answer(&mut self, asked: &Asked, outcome: Outcome) -> Result<Answer, String> {
        Ok(match outcome {
            Outcome::Value(found) => {
                let value = Value::parse(&found.bytes, asked.key.is_number())?;
                if let Value::Tokens(tokens) = &value {
                    let is_writer = |token: &Token| token.id == found.flags;
                    if !tokens.iter().any(is_writer) {
                        return Err(format!("flags {} on {value:?}", found.flags));
                    }
                }
                if !self.spans_restart(asked) {
                    self.known.insert(asked.key, (value.clone(), found.cas));
                }
                Answer::Found(value)
            }
            Outcome::Done { .. } => Answer::Done,
            Outcome::Number { number, .. } => Answer::Number(number),
            Outcome::Missing => Answer::NotFound,
            Outcome::Exists => Answer::Exists,
            Outcome::NotStored => Answer::NotStored,
            Outcome::Text(text) => {
                let lines = text.iter().filter(|&&byte| byte == b'\n').count();
                if lines < 10 || !text.ends_with(b"\n") {
                    return Err(format!("statistics: {:?}", String::from_utf8_lossy(&text)));
                }
                Answer::Done
            }
        })
    }
}

/// The request with a value; its flags are the identity of the first token.
fn store(request: Request, value: &Value) -> Request {
    let flags = match value {
        Value::Tokens(tokens) => tokens.first().map_or(0, |token| token.id),
        Value::Number(_) => 0,
    };
    Request { flags, ..request.value(value.bytes()) }
}
