//! The same above flash, over both protocols. There are more keys than memory holds. All clients go over them together, a
//! few keys at a time, so that most keys are cold when they are used again; and each sends reads and writes of those keys
//! at once.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use minos_base::seeded_stream;
use minos_client::{Config, Error, OnceFor, Outcome, Request, Verb, blocking};
use minos_testkit::{
    Client, Server,
    history::{Call, CasOutcome, Event, Ticks, Verdict, check},
};
use rand::{RngExt, rngs::StdRng};
use tempfile::TempDir;

use crate::{
    STATES_MAX,
    common::{self, Wanted},
    id_of, value_with, with_a_lie,
};

const CLIENTS: u32 = 4;
/// Twice what memory holds, and those in use at a time.
const KEYS: u32 = 240;
const NEAR_KEYS: u32 = 3;
/// Times that a client comes to each key.
const ROUNDS: u32 = 3;
/// Calls that a client sends at once.
const WIDTH: u32 = 6;
/// Longest wait for an answer. Long, because tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(30);
const MEMORY: &str = "4m";
const LARGE_BYTES: usize = 40_000;
/// The least part of all calls that is executed.
const EXECUTED_PERCENT_MIN: usize = 90;
/// Least items that are read from flash: half of the keys in each round but the first. Often a key is stored first.
const COLD_MIN: u32 = KEYS * (ROUNDS - 1) / 2;

/// A call to be made.
#[derive(Clone, Copy)]
enum Ask {
    Get,
    Set { new: u64, bytes: usize },
    Delete,
    Cas { expected: u64, unique: u64, new: u64, bytes: usize },
}

/// The answer to a call: `None` if it was refused for lack of memory, and then not executed. Also the CAS unique that
/// was read.
type Answer = (Option<Call>, Option<u64>);

/// A connection of one protocol.
trait Wire: Sized {
    fn connect(server: &mut Server) -> Self;

    /// Makes these calls on named keys at once; tells `answered` each answer when it has come.
    fn ask(&mut self, asks: &[(String, Ask)], answered: impl FnMut(usize, Answer));

    /// Which of a client's calls follow each other: all, or those that have the same place in their vectors.
    fn lane(at: u32) -> u32;
}

impl Wire for Client {
    fn connect(server: &mut Server) -> Self {
        common::connect(server)
    }

    fn ask(&mut self, asks: &[(String, Ask)], mut answered: impl FnMut(usize, Answer)) {
        let mut requests = Vec::new();
        for (key, ask) in asks {
            let (line, value) = match *ask {
                Ask::Get => (format!("gets {key}"), None),
                Ask::Delete => (format!("delete {key}"), None),
                Ask::Set { new, bytes } => (format!("set {key} 0 0 {bytes}"), Some(value_with(new, bytes))),
                Ask::Cas { unique, new, bytes, .. } => {
                    (format!("cas {key} 0 0 {bytes} {unique}"), Some(value_with(new, bytes)))
                }
            };
            requests.extend([line.as_bytes(), b"\r\n"].concat());
            requests.extend(value.into_iter().flat_map(|value| [&value[..], b"\r\n"].concat()));
        }
        self.send(requests).unwrap();
        for (at, (_, ask)) in asks.iter().enumerate() {
            let answer = match *ask {
                Ask::Get => {
                    let found = self.found().unwrap();
                    let id = found.as_ref().map(|found| id_of(&found.value));
                    (Some(Call::Get(id)), found.map(|found| found.cas))
                }
                _ => (said(ask, &self.line().unwrap()), None),
            };
            answered(at, answer);
        }
    }

    fn lane(_: u32) -> u32 {
        0
    }
}

/// What a line says about a change.
fn said(ask: &Ask, line: &str) -> Option<Call> {
    let outcome = match line {
        "STORED" => CasOutcome::Stored,
        "EXISTS" => CasOutcome::Exists,
        _ => CasOutcome::NotFound,
    };
    Some(match (*ask, line) {
        (_, "SERVER_ERROR out of memory storing object") => return None,
        (Ask::Set { new, .. }, "STORED") => Call::Set(new),
        (Ask::Delete, "DELETED" | "NOT_FOUND") => Call::Delete(line == "DELETED"),
        (Ask::Cas { expected, new, .. }, "STORED" | "EXISTS" | "NOT_FOUND") => {
            Call::Cas { expected, new, outcome }
        }
        _ => panic!("{line}"),
    })
}

impl Wire for blocking::Client {
    fn connect(server: &mut Server) -> Self {
        // A copy of a write must not be executed after another client's.
        let config = Config::new().once_for(OnceFor::AllWrites).timeout(PATIENCE);
        Self::connect(&server.native_address().unwrap().to_string(), config).unwrap()
    }

    fn ask(&mut self, asks: &[(String, Ask)], mut answered: impl FnMut(usize, Answer)) {
        let request = |(key, ask): &(String, Ask)| {
            let request = |verb| Request::new(verb, key.clone());
            match *ask {
                Ask::Get => request(Verb::Get),
                Ask::Delete => request(Verb::Delete),
                Ask::Set { new, bytes } => request(Verb::Put).value(value_with(new, bytes)),
                Ask::Cas { unique, new, bytes, .. } => {
                    request(Verb::Compare).operand(unique).value(value_with(new, bytes))
                }
            }
        };
        let results = self.call_many(asks.iter().map(request));
        for (at, ((_, ask), result)) in asks.iter().zip(results).enumerate() {
            answered(at, done(ask, result));
        }
    }

    fn lane(at: u32) -> u32 {
        at
    }
}

/// What an outcome says about a call.
fn done(ask: &Ask, result: Result<Outcome, Error>) -> Answer {
    let outcome = match result {
        Err(Error::NoMemory) => return (None, None),
        result => result.unwrap(),
    };
    let call = match (*ask, outcome) {
        (Ask::Get, Outcome::Value(found)) => {
            return (Some(Call::Get(Some(id_of(&found.bytes)))), Some(found.cas));
        }
        (Ask::Get, Outcome::Missing) => Call::Get(None),
        (Ask::Set { new, .. }, Outcome::Done { .. }) => Call::Set(new),
        (Ask::Delete, Outcome::Done { .. }) => Call::Delete(true),
        (Ask::Delete, Outcome::Missing) => Call::Delete(false),
        (Ask::Cas { expected, new, .. }, outcome) => {
            let outcome = match outcome {
                Outcome::Done { .. } => CasOutcome::Stored,
                Outcome::Exists => CasOutcome::Exists,
                Outcome::Missing => CasOutcome::NotFound,
                other => panic!("{other:?}"),
            };
            Call::Cas { expected, new, outcome }
        }
        (_, other) => panic!("{other:?}"),
    };
    (Some(call), None)
}

/// What all clients share.
#[derive(Default)]
struct Course {
    ticks: Ticks,
    bursts: AtomicU32,
}

struct Caller<'a, W> {
    wire: W,
    random: StdRng,
    course: &'a Course,
    name: u32,
    writes: u64,
    /// The newest value that was read of each key, and its CAS unique.
    uniques: HashMap<u32, (u64, u64)>,
    events: Vec<Event>,
    refused: usize,
}

impl<W: Wire> Caller<'_, W> {
    /// Makes calls until all clients together have made theirs.
    fn call_all(&mut self) {
        const BURSTS: u32 = CLIENTS * KEYS / NEAR_KEYS * ROUNDS;
        loop {
            let burst = self.course.bursts.fetch_add(1, Relaxed);
            if burst >= BURSTS {
                return;
            }
            let first = burst / CLIENTS % (KEYS / NEAR_KEYS) * NEAR_KEYS;
            self.call(first..first + NEAR_KEYS);
        }
    }

    /// Makes calls on these keys at once.
    fn call(&mut self, keys: std::ops::Range<u32>) {
        let draw = |_| {
            let key = self.random.random_range(keys.clone());
            (key, self.draw(key))
        };
        let asks: Vec<(u32, Ask)> = (0..WIDTH).map(draw).collect();
        let named: Vec<_> = asks.iter().map(|&(key, ask)| (format!("lin{key}"), ask)).collect();
        let called: Vec<u64> = asks.iter().map(|_| self.course.ticks.next()).collect();
        let Self { wire, course, name, uniques, events, refused, .. } = self;
        wire.ask(&named, |at, (call, unique)| {
            let (key, returned) = (asks[at].0, course.ticks.next());
            if let (Some(Call::Get(Some(id))), Some(unique)) = (call, unique) {
                uniques.insert(key, (id, unique));
            }
            let Some(call) = call else { return *refused += 1 };
            let client = *name * WIDTH + W::lane(at as u32);
            events.push(Event { client, key, called: called[at], returned, call });
        });
    }

    fn draw(&mut self, key: u32) -> Ask {
        let bytes = if self.random.random_ratio(3, 4) { LARGE_BYTES } else { 16 };
        self.writes += 1;
        let new = u64::from(self.name) * 1_000_000 + self.writes;
        match (self.random.random_range(0..10), self.uniques.get(&key)) {
            (0..4, _) => Ask::Get,
            (4, _) => Ask::Delete,
            (5..7, Some(&(expected, unique))) => Ask::Cas { expected, unique, new, bytes },
            _ => Ask::Set { new, bytes },
        }
    }
}

/// Runs clients of one protocol, and returns their history.
fn record<W: Wire + Send>(server: &mut Server, seed: u64) -> Vec<Event> {
    let course = Course::default();
    let callers: Vec<_> = (0..CLIENTS)
        .map(|name| Caller {
            wire: W::connect(server),
            random: seeded_stream(seed, name.into()),
            course: &course,
            name,
            writes: 0,
            uniques: HashMap::new(),
            events: Vec::new(),
            refused: 0,
        })
        .collect();
    let run = |mut caller: Caller<'_, W>| {
        caller.call_all();
        (caller.events, caller.refused)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = callers.into_iter().map(|caller| scope.spawn(move || run(caller))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused: usize = results.iter().map(|(_, refused)| refused).sum();
    let history: Vec<Event> = results.into_iter().flat_map(|(events, _)| events).collect();
    let calls = history.len() + refused;
    assert!(history.len() * 100 >= calls * EXECUTED_PERCENT_MIN, "{refused} of {calls} refused");
    history
}

/// Items that were read from flash so far.
fn read_from_flash(server: &Server) -> u32 {
    let stats = common::connect(server).stats("flash").unwrap();
    stats.iter().find(|(name, _)| name == "read_found").unwrap().1.parse().unwrap()
}

fn see_one_order<W: Wire + Send>() {
    if common::is_memcached() {
        return;
    }
    let folder = TempDir::with_prefix("minos-lin-").unwrap();
    let flash = format!("--flash={}:64m", folder.path().join("flash").display());
    // Room for what all clients send at once.
    let room = ["--receive-memory=2m", "--native-transfer-memory=2m", "--native-source-memory=2m"];
    let minos_only = [&["--engine=store", &flash, "--native=127.0.0.1:0"], &room[..]].concat();
    let wanted =
        Wanted { memory: MEMORY, max_item_size: Some("64k"), minos_only: &minos_only, ..Wanted::default() };
    let mut server = common::start(wanted);
    let history = record::<W>(&mut server, 1);
    assert_eq!(check(&history, STATES_MAX), Verdict::Linearizable);
    let cold = read_from_flash(&server);
    eprintln!("{cold} items read from flash for {} calls", history.len());
    assert!(cold >= COLD_MIN, "{cold}");
    assert!(matches!(check(&with_a_lie(history), STATES_MAX), Verdict::Violation { key: 0, .. }));
}

#[test]
fn memcached_clients_see_one_order_of_cold_items() {
    see_one_order::<Client>();
}

#[test]
fn native_clients_see_one_order_of_cold_items() {
    see_one_order::<blocking::Client>();
}
