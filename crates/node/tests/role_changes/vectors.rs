//! A native client: vectors of calls, and the expected outcome of each.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use minos_base::seeded_stream;
use minos_client::{Config, Error, OnceFor, Outcome, QueueBy, Request, Verb, blocking::Client};
use rand::{RngExt, rngs::StdRng};

use crate::{
    PATIENCE,
    dialogue::Setting,
    items::{Items, Sizes},
    value::bytes_of,
};

/// A counter that all clients share.
const COUNTER: &str = "counter";
/// Most calls in a vector, and in one of large values.
const CALLS_MAX: usize = 12;
const LARGE_CALLS_MAX: usize = 3;

/// Time after which an unanswered request is sent again. A dropped request, as by a full ring, must not cost
/// seconds.
const RETRY_MIN: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_millis(50);

/// The expected outcome of a call.
enum Expected {
    Value(Vec<u8>),
    /// This write is stored.
    Stored {
        key: usize,
        version: u64,
    },
    Done,
    Missing,
    Exists,
    NotStored,
    Number(u64),
    /// A number that no other client gets.
    Ticket,
}

/// One client, with keys of its own.
struct Caller {
    name: u32,
    random: StdRng,
    items: Items,
    /// CAS uniques by key, with the write they belong to.
    uniques: HashMap<usize, (u64, u64)>,
    number: Option<u64>,
    tickets: Vec<u64>,
}

/// Calls `vectors` vectors at the native port `server`; returns the numbers that the shared counter gave.
///
/// # Panics
/// A call has an unexpected outcome.
pub(crate) fn call_all(
    setting: Setting<'_>,
    server: SocketAddr,
    name: u32,
    queue_by: QueueBy,
    vectors: usize,
) -> Vec<u64> {
    let config = Config::new()
        .timeout(PATIENCE)
        .queue_by(queue_by)
        .once_for(OnceFor::AllWrites)
        .retry_between(RETRY_MIN, RETRY_MAX);
    let mut client = Client::connect(&server.to_string(), config).unwrap();
    let random = seeded_stream(setting.seed, u64::from(name));
    let (uniques, tickets) = (HashMap::new(), Vec::new());
    let mut caller =
        Caller { name, random, items: Items::new(name, setting.shape), uniques, number: None, tickets };
    let mut filling = setting.shape.filled();
    let mut number = 0;
    while number < vectors {
        let vector = match filling.next() {
            Some(keys) => keys.map(|key| caller.fill(key)).collect(),
            None => {
                number += 1;
                caller.items.sizes = Sizes::draw(&mut caller.random, setting.progress.tide());
                caller.vector()
            }
        };
        let (requests, expected): (Vec<_>, Vec<_>) = vector.into_iter().unzip();
        let results = client.call_many(requests.clone());
        for ((request, expected), result) in requests.iter().zip(expected).zip(results) {
            setting.progress.step();
            if let Err(wrong) = caller.judge(expected, result) {
                let key = String::from_utf8_lossy(&request.key);
                panic!("client {name} ({queue_by:?}), vector {number}, {:?} {key}: {wrong}", request.verb);
            }
        }
    }
    caller.tickets
}

impl Caller {
    /// Calls on different keys, because the order of their execution is not specified.
    fn vector(&mut self) -> Vec<(Request, Expected)> {
        let calls_max = if matches!(self.items.sizes, Sizes::Large) { LARGE_CALLS_MAX } else { CALLS_MAX };
        let (first, all) = (self.items.key(&mut self.random), self.items.shape.keys());
        let keys = (0..self.random.random_range(1..=calls_max)).map(|key| (first + key) % all);
        let mut vector: Vec<_> = keys.map(|key| self.call(key)).collect();
        let count = |key: String, initial| Request {
            initial: Some(initial),
            ..Request::new(Verb::Incr, key).operand(1)
        };
        vector.push((count(COUNTER.into(), 0), Expected::Ticket));
        let number = self.number.map_or(7, |number| number + 1);
        self.number = Some(number);
        vector.push((count(format!("number-{}", self.name), 7), Expected::Number(number)));
        vector
    }

    fn fill(&mut self, key: usize) -> (Request, Expected) {
        let piece = self.items.first_piece(key, &mut self.random);
        self.items.put(key, piece);
        let stored = Expected::Stored { key, version: piece.write };
        (self.request(Verb::Put, key).value(piece.to_bytes()), stored)
    }

    fn call(&mut self, key: usize) -> (Request, Expected) {
        match self.random.random_range(0..13) {
            0..4 => self.get(key),
            4..7 => self.store(key, Verb::Put),
            7 => self.store(key, Verb::Add),
            8 => self.store(key, Verb::Replace),
            9 => self.join(key),
            10 => self.compare(key),
            11 => self.touch(key),
            _ => self.delete(key),
        }
    }

    fn request(&self, verb: Verb, key: usize) -> Request {
        Request::new(verb, format!("native-{}-{key}", self.name))
    }

    fn found(&self, key: usize) -> Expected {
        if self.items.get(key).is_some() { Expected::Done } else { Expected::Missing }
    }

    fn get(&mut self, key: usize) -> (Request, Expected) {
        let verb = [Verb::Get, Verb::GetTouch][self.random.random_range(0..2)];
        let value = self.items.get(key).map(|item| Expected::Value(bytes_of(&item.pieces)));
        (self.request(verb, key), value.unwrap_or(Expected::Missing))
    }

    fn store(&mut self, key: usize, verb: Verb) -> (Request, Expected) {
        let piece = self.items.piece(&mut self.random);
        let is_there = self.items.get(key).is_some();
        let is_refused = (verb == Verb::Add && is_there) || (verb == Verb::Replace && !is_there);
        let expected = if is_refused {
            Expected::NotStored
        } else {
            self.items.put(key, piece);
            Expected::Stored { key, version: piece.write }
        };
        (self.request(verb, key).value(piece.to_bytes()), expected)
    }

    fn join(&mut self, key: usize) -> (Request, Expected) {
        let piece = self.items.piece(&mut self.random);
        if !self.items.has_room(key, piece.bytes) {
            return self.get(key);
        }
        let append = self.random.random_ratio(1, 2);
        let expected = match self.items.get(key) {
            Some(_) => Expected::Stored { key, version: piece.write },
            None => Expected::NotStored,
        };
        self.items.join(key, piece, append);
        let verb = if append { Verb::Append } else { Verb::Prepend };
        (self.request(verb, key).value(piece.to_bytes()), expected)
    }

    /// A CAS store with the unique of an earlier store.
    fn compare(&mut self, key: usize) -> (Request, Expected) {
        let Some(&(seen, unique)) = self.uniques.get(&key) else { return self.get(key) };
        let piece = self.items.piece(&mut self.random);
        let expected = match self.items.get(key) {
            None => Expected::Missing,
            Some(item) if item.version == seen => Expected::Stored { key, version: piece.write },
            Some(_) => Expected::Exists,
        };
        if matches!(expected, Expected::Stored { .. }) {
            self.items.put(key, piece);
        }
        (self.request(Verb::Compare, key).value(piece.to_bytes()).operand(unique), expected)
    }

    fn touch(&mut self, key: usize) -> (Request, Expected) {
        (self.request(Verb::Touch, key), self.found(key))
    }

    fn delete(&mut self, key: usize) -> (Request, Expected) {
        let expected = self.found(key);
        self.items.delete(key);
        (self.request(Verb::Delete, key), expected)
    }

    fn judge(&mut self, expected: Expected, result: Result<Outcome, Error>) -> Result<(), String> {
        let outcome = result.map_err(|error| error.to_string())?;
        let is_right = match (&expected, &outcome) {
            (Expected::Value(bytes), Outcome::Value(value)) => *bytes == value.bytes,
            (&Expected::Stored { key, version }, &Outcome::Done { cas }) => {
                // A unique that is not kept leaves an older one to compare with.
                if self.random.random_ratio(3, 4) {
                    self.uniques.insert(key, (version, cas));
                }
                true
            }
            (Expected::Done, Outcome::Done { .. })
            | (Expected::Missing, Outcome::Missing)
            | (Expected::Exists, Outcome::Exists)
            | (Expected::NotStored, Outcome::NotStored) => true,
            (Expected::Number(expected), Outcome::Number { number, .. }) => expected == number,
            (Expected::Ticket, &Outcome::Number { number, .. }) => {
                self.tickets.push(number);
                true
            }
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("it came to {}", shown(&outcome))) }
    }
}

/// An outcome without the bytes of its value.
fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Value(value) => format!("another value, of {} bytes", value.bytes.len()),
        other => format!("{other:?}"),
    }
}
