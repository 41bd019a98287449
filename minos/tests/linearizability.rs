//! Linearizability: concurrent histories match some sequential order.

#[path = "linearizability/above_flash.rs"]
mod above_flash;
mod common;

use std::thread;

use common::Wanted;
use minos_base::seeded_stream;
use minos_testkit::{
    Client, Server,
    history::{Call, CasOutcome, Event, Ticks, Verdict, check},
};
use rand::{RngExt, rngs::StdRng};

const CLIENTS: u32 = 4;
const KEYS: u32 = 3;
const CALLS_A_CLIENT: usize = 150;
const STATES_MAX: usize = 2_000_000;

/// Longer than the threshold before the first epoch: such values belong to the large worker.
const LARGE_BYTES: usize = 100_000;

/// A value of a random length.
fn value_of(id: u64, random: &mut StdRng) -> Vec<u8> {
    value_with(id, if random.random_ratio(1, 4) { LARGE_BYTES } else { 16 })
}

/// A value that repeats the number of its write, so that a torn one is detected.
fn value_with(id: u64, bytes: usize) -> Vec<u8> {
    format!("{id:08}").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// The write that stored a value.
fn id_of(value: &[u8]) -> u64 {
    let first = &value[..8];
    assert!(value.chunks(8).all(|chunk| first.starts_with(chunk)), "a value of two writes");
    std::str::from_utf8(first).unwrap().parse().unwrap()
}

struct Caller<'a> {
    client: Client,
    random: StdRng,
    ticks: &'a Ticks,
    name: u32,
    writes: u64,
    events: Vec<Event>,
}

impl Caller<'_> {
    fn next_id(&mut self) -> u64 {
        self.writes += 1;
        u64::from(self.name) * 1_000_000 + self.writes
    }

    /// Makes one call between two ticks.
    fn call(&mut self, key: u32, make: impl FnOnce(&mut Self, &str) -> Call) {
        let name = format!("lin{key}");
        let called = self.ticks.next();
        let call = make(self, &name);
        let returned = self.ticks.next();
        self.events.push(Event { client: self.name, key, called, returned, call });
    }

    fn get(&mut self, key: &str) -> Call {
        Call::Get(self.client.get(key).unwrap().map(|found| id_of(&found.value)))
    }

    fn set(&mut self, key: &str) -> Call {
        let id = self.next_id();
        let value = value_of(id, &mut self.random);
        assert_eq!(self.client.set(key, &value).unwrap(), "STORED");
        Call::Set(id)
    }

    fn delete(&mut self, key: &str) -> Call {
        Call::Delete(self.client.ask(&format!("delete {key}")).unwrap() == "DELETED")
    }

    fn cas(&mut self, key: &str, expected: u64, unique: u64) -> Call {
        let new = self.next_id();
        let value = value_of(new, &mut self.random);
        let outcome = match self.client.cas(key, &value, unique).unwrap().as_str() {
            "STORED" => CasOutcome::Stored,
            "EXISTS" => CasOutcome::Exists,
            "NOT_FOUND" => CasOutcome::NotFound,
            other => panic!("cas: {other}"),
        };
        Call::Cas { expected, new, outcome }
    }

    /// A read, and a store on the condition that the item is unchanged since.
    fn read_and_cas(&mut self, key: u32) {
        let mut seen = None;
        self.call(key, |caller, name| {
            seen = caller.client.get(name).unwrap().map(|found| (id_of(&found.value), found.cas));
            Call::Get(seen.map(|(id, _)| id))
        });
        if let Some((id, unique)) = seen {
            self.call(key, |caller, name| caller.cas(name, id, unique));
        }
    }

    fn call_any(&mut self) {
        let key = self.random.random_range(0..KEYS);
        match self.random.random_range(0..10) {
            0..4 => self.call(key, Self::get),
            4..7 => self.call(key, Self::set),
            7 => self.call(key, Self::delete),
            _ => self.read_and_cas(key),
        }
    }
}

/// Runs the clients, and returns their history.
fn record(server: &Server, seed: u64) -> Vec<Event> {
    let ticks = Ticks::default();
    let run = |name| {
        let random = seeded_stream(seed, u64::from(name));
        let (client, ticks) = (common::connect(server), &ticks);
        let mut caller = Caller { client, random, ticks, name, writes: 0, events: Vec::new() };
        while caller.events.len() < CALLS_A_CLIENT {
            caller.call_any();
        }
        caller.events
    };
    let mut setup = common::connect(server);
    assert_eq!(setup.ask("flush_all").unwrap(), "OK");
    thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..CLIENTS).map(|name| scope.spawn(move || run(name))).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn concurrent_clients_see_one_order() {
    for minos_only in common::ENGINES.into_iter().chain(common::OWNED) {
        let server = common::start(Wanted { minos_only, ..Wanted::default() });
        for seed in 0..5 {
            let history = record(&server, seed);
            assert_eq!(check(&history, STATES_MAX), Verdict::Linearizable, "{minos_only:?}, seed {seed}");
        }
    }
}

/// The history, and a read of the first of two values, long after the second was stored.
fn with_a_lie(mut history: Vec<Event>) -> Vec<Event> {
    let end = history.iter().map(|event| event.returned).max().unwrap();
    let tail = [Call::Set(1), Call::Set(2), Call::Get(Some(1))];
    for (at, call) in (end + 1..).step_by(2).zip(tail) {
        history.push(Event { client: u32::MAX, key: 0, called: at, returned: at + 1, call });
    }
    history
}

#[test]
fn a_recorded_history_with_one_lie_is_rejected() {
    let server = common::start_plain();
    let history = with_a_lie(record(&server, 9));
    assert!(matches!(check(&history, STATES_MAX), Verdict::Violation { key: 0, .. }));
}
