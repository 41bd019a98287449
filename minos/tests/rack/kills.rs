//! Nodes that are killed and stopped under load: what clients of any node and both protocols saw is linearizable for
//! each key.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_base::seeded_stream;
use minos_client::{Config, Error, OnceFor, StoreOptions, blocking::Client as Native};
use minos_testkit::{
    Client, Over,
    history::{Call, Event, Evictions, NEVER, Ticks, Verdict, check_with, forget_premature},
    number_from,
};
use rand::{RngExt as _, rngs::StdRng};
use rustix::process::Signal;

use crate::up::{Coordinators, PATIENCE, Rack, SHORT_LEASE, insist, is_copied};

pub(crate) const NODES: usize = 3;
const CLIENTS: u32 = 4;
pub(crate) const KEYS: u32 = 8;
/// Kills and stops; more of them by MINOS_RACK_KILLS.
const KILLS: u64 = 12;
/// Rounds with moves, and with losses.
const MOVES: u64 = 6;
const LOSSES: u64 = 4;
pub(crate) const STATES_MAX: usize = 4_000_000;
/// Answered calls of a round that shows something.
const ANSWERED_MIN: usize = 20;
/// Time between two calls of a client, so that a history stays small.
const PAUSE: Duration = Duration::from_micros(500);
const LONG_PAUSE: Duration = Duration::from_millis(100);

/// Whether a command was executed.
enum Fate<T> {
    Done(T),
    Not,
    Unknown,
}

/// The nodes, as clients of both protocols find them.
struct Nodes {
    legacy: Vec<SocketAddr>,
    native: Vec<SocketAddr>,
}

/// A client of a protocol.
enum Connection {
    Legacy(Client),
    Native(Box<Native>),
}

impl Connection {
    /// A client that begins at this node; native clients of a stopped one find another.
    fn open(nodes: &Nodes, node: usize, is_native: bool) -> Option<Self> {
        if !is_native {
            return Client::connect(nodes.legacy[node]).ok().map(Self::Legacy);
        }
        let addresses: Vec<_> =
            (0..NODES).map(|turn| nodes.native[(node + turn) % NODES].to_string()).collect();
        let config = Config::new().timeout(Duration::from_millis(200)).once_for(OnceFor::AllWrites);
        Native::connect(&addresses.join(","), config).ok().map(|client| Self::Native(Box::new(client)))
    }

    fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Legacy(client) => Ok(client.get(key)?.map(|item| item.value)),
            Self::Native(client) => Ok(client.get(key).map_err(io::Error::other)?.map(|item| item.bytes)),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Fate<()> {
        match self {
            Self::Legacy(client) => fate(client.set(key, value.as_bytes()), |_| ()),
            Self::Native(client) => native_fate(client.put_with(key, value, StoreOptions::new()), |_| ()),
        }
    }

    /// True if there was an item.
    fn delete(&mut self, key: &str) -> Fate<bool> {
        match self {
            Self::Legacy(client) => fate(client.ask(&format!("delete {key}")), |said| said == "DELETED"),
            Self::Native(client) => native_fate(client.delete(key), |was_there| was_there),
        }
    }
}

/// One client, which begins at a random node.
struct Caller<'a> {
    nodes: &'a Nodes,
    is_native: bool,
    random: StdRng,
    ticks: &'a Ticks,
    /// Number of the client; another one after each call of which nobody knows whether it will still take effect.
    name: u32,
    names: &'a AtomicU32,
    ids: &'a AtomicU32,
    client: Option<Connection>,
    events: Vec<Event>,
    pause: Duration,
}

impl Caller<'_> {
    fn run(mut self, is_over: &AtomicBool) -> Vec<Event> {
        while !is_over.load(Relaxed) {
            thread::sleep(self.pause);
            if self.client.is_none() || self.random.random_ratio(1, 20) {
                let node = self.random.random_range(0..NODES);
                self.client = Connection::open(self.nodes, node, self.is_native);
            }
            let Some(mut client) = self.client.take() else { continue };
            if self.call(&mut client).is_ok() {
                self.client = Some(client);
            }
        }
        self.events
    }

    fn call(&mut self, client: &mut Connection) -> io::Result<()> {
        let key = self.random.random_range(0..KEYS);
        let name = format!("kill{key}");
        let id = u64::from(self.ids.fetch_add(1, Relaxed));
        let called = self.ticks.next();
        let (call, fate) = match self.random.random_range(0..10) {
            0..6 => {
                // A read without an answer tells nothing.
                let found = client.get(&name)?;
                let id = found.map(|value| String::from_utf8_lossy(&value).trim().parse().unwrap());
                (Call::Get(id), Fate::Done(()))
            }
            6..9 => (Call::Set(id), client.set(&name, &format!("{id:>30}"))),
            _ => {
                let fate = client.delete(&name);
                let was_there = matches!(fate, Fate::Done(true));
                let fate = match fate {
                    Fate::Done(_) => Fate::Done(()),
                    Fate::Not => Fate::Not,
                    Fate::Unknown => Fate::Unknown,
                };
                (Call::Delete(was_there), fate)
            }
        };
        let returned = match fate {
            Fate::Done(_) => self.ticks.next(),
            Fate::Unknown => NEVER,
            Fate::Not => return Ok(()),
        };
        self.events.push(Event { client: self.name, key, called, returned, call });
        if returned == NEVER {
            self.name = self.names.fetch_add(1, Relaxed);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

fn fate<T>(said: io::Result<String>, meaning: impl FnOnce(&str) -> T) -> Fate<T> {
    match said {
        Ok(said) if said.starts_with("SERVER_ERROR") => {
            let is_not_done = said.ends_with("cannot be reached")
                || said.ends_with("the command is not done")
                || said.starts_with("SERVER_ERROR too many");
            if is_not_done { Fate::Not } else { Fate::Unknown }
        }
        Ok(said) => Fate::Done(meaning(&said)),
        Err(_) => Fate::Unknown,
    }
}

fn native_fate<T, U>(said: Result<T, Error>, meaning: impl FnOnce(T) -> U) -> Fate<U> {
    match said {
        Ok(said) => Fate::Done(meaning(said)),
        Err(Error::TimedOut { was_sent: false }) => Fate::Not,
        Err(_) => Fate::Unknown,
    }
}

/// What happens to the rack meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// One node is killed or stopped.
    Nodes,
    /// The keys' micro-shards move from node to node, while a node may be killed or stopped, also for longer than its
    /// lease lasts.
    Moves,
    /// A node is stopped for longer than its lease lasts, or killed while its memory is removed.
    Losses,
}

/// Moves the micro-shards of the keys to random nodes.
fn move_keys(rack: &Rack, random: &mut StdRng) {
    for key in 0..KEYS {
        let micro_shard = rack.micro_shard(&format!("kill{key}"));
        let said = rack.operate(&format!("move {micro_shard} {}", random.random_range(0..NODES)));
        // Its owner, or the node that is to have it, may be lost.
        let is_lost = said.contains(" does not report ") || said.ends_with(" has no owner at the moment\n");
        assert!(said == "ok\n" || said == "error: too many moves wait\n" || is_lost, "{said}");
    }
}

/// What clients see while there is trouble.
fn record(rack: &mut Rack, seed: u64, trouble: Trouble) -> Vec<Event> {
    observe(rack, seed, |rack, random| make_trouble(rack, random, trouble))
}

/// What is done, and the nodes that have been silent for longer than their lease, or begun anew, since all copies were
/// complete.
pub(crate) fn with_mishaps<T>(at: &Coordinators, act: impl FnOnce() -> T) -> (T, BTreeSet<String>) {
    let before = insist(|| at.ask("status"), |state| is_copied(state));
    let done = act();
    let after = insist(|| at.ask("status"), |_| true);
    let nodes = |state: String| state.lines().filter_map(mishaps).collect::<BTreeSet<_>>();
    let news: Vec<_> = nodes(after).difference(&nodes(before)).cloned().collect();
    (done, news.into_iter().map(|(node, _)| node).collect())
}

/// What has gone wrong at a node so far.
fn mishaps(line: &str) -> Option<(String, String)> {
    let (node, state) = line.strip_prefix("node ")?.split_once(' ')?;
    let lease = if state.contains(" silent ") { "silent" } else { "alive" };
    let counts = &state[state.find("lapses ")?..state.find(" failed-copies ")?];
    Some((node.to_owned(), format!("{lease} {counts}")))
}

/// What clients see while this is done.
pub(crate) fn observe(rack: &mut Rack, seed: u64, act: impl FnOnce(&mut Rack, &mut StdRng)) -> Vec<Event> {
    observe_at(rack, (seed, PAUSE), act)
}

/// The same, by clients that pause for so long between two calls.
fn observe_at(
    rack: &mut Rack,
    (seed, pause): (u64, Duration),
    act: impl FnOnce(&mut Rack, &mut StdRng),
) -> Vec<Event> {
    let (ticks, is_over) = (Ticks::default(), AtomicBool::new(false));
    let (names, ids) = (AtomicU32::new(CLIENTS), AtomicU32::new(1));
    let legacy = rack.nodes.iter().map(|(address, _)| *address).collect();
    let nodes = Nodes { legacy, native: rack.native.clone() };
    let mut random = seeded_stream(seed, u64::MAX);
    let mut setup = rack.client(0);
    insist(|| setup.ask("flush_all"), |said| said == "OK");
    thread::scope(|scope| {
        let (nodes, ticks, is_over, names, ids) = (&nodes, &ticks, &is_over, &names, &ids);
        let run = |name| {
            let random = seeded_stream(seed, u64::from(name));
            let (is_native, client, events) = (name % 2 == 1, None, Vec::new());
            Caller { nodes, is_native, random, ticks, name, names, ids, client, events, pause }.run(is_over)
        };
        let callers: Vec<_> = (0..CLIENTS).map(|name| scope.spawn(move || run(name))).collect();
        thread::sleep(Duration::from_millis(random.random_range(5..50)));
        let over = Over(is_over);
        act(rack, &mut random);
        thread::sleep(Duration::from_millis(30));
        drop(over);
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    })
}

/// Stores more than memory holds, so that the clients' keys leave it.
fn crowd(rack: &Rack, random: &mut StdRng) {
    for _ in 0..100 {
        let key = |_| (format!("other{}", random.random_range(0..8000)), [b'o'; 3500]);
        let items: Vec<_> = (0..40).map(key).collect();
        // A node may be away.
        let client = Client::connect(rack.nodes[random.random_range(0..NODES)].0);
        let _ = client.and_then(|mut client| client.set_many(&items));
    }
}

fn make_trouble(rack: &mut Rack, random: &mut StdRng, trouble: Trouble) {
    let node = random.random_range(0..NODES);
    let moves = |rack: &Rack, random: &mut StdRng| {
        if trouble == Trouble::Moves {
            move_keys(rack, random);
            thread::sleep(Duration::from_millis(random.random_range(0..40)));
        }
    };
    moves(rack, random);
    match random.random_range(0..6) {
        _ if trouble == Trouble::Losses => {
            rack.lose(node, random.random_bool(0.5));
            thread::sleep(Duration::from_millis(300));
        }
        0..2 => {
            rack.signal(node, Signal::STOP);
            moves(rack, random);
            let is_long = trouble == Trouble::Moves && random.random_bool(0.5);
            let pause_ms = if is_long { 1000..1500 } else { 1..150 };
            thread::sleep(Duration::from_millis(random.random_range(pause_ms)));
            rack.signal(node, Signal::CONT);
        }
        2 if trouble == Trouble::Moves => {}
        _ => {
            rack.signal(node, Signal::KILL);
            moves(rack, random);
            rack.wait_for_restart(node);
        }
    }
    moves(rack, random);
}

#[test]
fn clients_see_one_order_whatever_happens_to_nodes() {
    let kills = number_from("MINOS_RACK_KILLS", KILLS);
    keep_order(
        &mut Rack::up(NODES, &["--native", SHORT_LEASE, "--", "--rack-timeout", "100ms"]),
        kills,
        Trouble::Nodes,
    );
}

#[test]
fn clients_see_one_order_while_a_keeper_has_the_memory() {
    keep_order(
        &mut Rack::up_kept(NODES, &["--native", SHORT_LEASE, "--", "--rack-timeout", "100ms"]),
        KILLS / 2,
        Trouble::Nodes,
    );
}

/// Their keys leave memory, and come back when they are asked for.
#[test]
fn clients_see_one_order_above_flash() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let flash = format!("--flash={}:128m", folder.path().display());
    let above =
        ["--native", "--memory", "4m", &flash, "--unit-size", "2", SHORT_LEASE, "--", "--rack-timeout", "1s"];
    let mut rack = Rack::up(NODES, &above);
    let mut cold = 0;
    for seed in 0..MOVES {
        rack.wait_until_attached();
        // The keys leave memory between two calls, or now and then.
        let pause = if seed % 2 == 0 { LONG_PAUSE } else { PAUSE };
        let history = observe_at(&mut rack, (seed, pause), |rack, random| {
            crowd(rack, random);
            make_trouble(rack, random, Trouble::Moves);
            crowd(rack, random);
            make_trouble(rack, random, Trouble::Moves);
        });
        eprintln!("seed {seed}: {} calls, epoch {}", history.len(), rack.epoch());
        let verdict = check_with(&history, Evictions::Never, STATES_MAX);
        assert_eq!(verdict, Verdict::Linearizable, "seed {seed}");
        cold += (0..NODES).map(|node| read_from_flash(&rack, node)).sum::<u64>();
    }
    assert!(cold > 0, "nothing was cold");
}

fn read_from_flash(rack: &Rack, node: usize) -> u64 {
    let stats = rack.client(node).stats("flash").unwrap();
    stats.iter().find(|(name, _)| name == "read_found").map_or(0, |(_, count)| count.parse().unwrap())
}

/// Rounds with this trouble, of which as many show something as are wanted: on a busy machine clients may get no processor
/// in one.
fn keep_order(rack: &mut Rack, rounds: u64, trouble: Trouble) {
    let (mut left, mut seeds) = (rounds, 0..10 * rounds);
    while left > 0 {
        let seed = seeds.next().expect("clients get processors");
        rack.wait_until_attached();
        let history = record(rack, seed, trouble);
        let answered = history.iter().filter(|event| event.returned != NEVER).count();
        eprintln!("seed {seed}: {answered} of {} calls answered, epoch {}", history.len(), rack.epoch());
        let verdict = check_with(&history, Evictions::Never, STATES_MAX);
        assert_eq!(verdict, Verdict::Linearizable, "seed {seed}");
        left -= u64::from(answered >= ANSWERED_MIN);
    }
}

/// Moves under load; more of them by MINOS_RACK_MOVES.
#[test]
fn clients_see_one_order_while_keys_move() {
    // In two units: a micro-shard may come from a node whose memory is not read otherwise.
    keep_order_while_keys_move(&mut Rack::up(
        NODES,
        &["--native", "--unit-size", "2", SHORT_LEASE, "--", "--rack-timeout", "1s"],
    ));
}

#[test]
fn clients_see_one_order_while_keys_move_between_machines() {
    keep_order_while_keys_move(&mut Rack::apart_with(NODES, "1s", SHORT_LEASE));
}

/// Losses under load; more of them by MINOS_RACK_LOSSES.
#[test]
fn no_acknowledged_change_is_lost_with_a_node() {
    let rounds = number_from("MINOS_RACK_LOSSES", LOSSES);
    keep_what_was_acknowledged(rounds, || {
        let options = ["--native", "--unit-size", "2", "--copies", "2", SHORT_LEASE, "--"];
        let rack = Rack::up(
            NODES,
            &[&options[..], &["--acknowledge", "copies", "--rack-timeout", "100ms"]].concat(),
        );
        rack.wait_until_copied();
        rack
    });
}

#[test]
fn no_acknowledged_change_is_lost_with_a_node_on_another_machine() {
    keep_what_was_acknowledged(LOSSES / 2, || Rack::apart_with_copies(&[0, 0, 1], "100ms"));
}

/// A node that has lost its memory begins with empty flash.
#[test]
fn no_acknowledged_change_is_lost_with_a_node_above_flash() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    keep_what_was_acknowledged(LOSSES / 2, || {
        let of_rack = tempfile::tempdir_in(folder.path()).unwrap().keep();
        let flash = format!("--flash={}:64m", of_rack.display());
        let options = ["--native", "--unit-size", "2", "--copies", "2", &flash, SHORT_LEASE, "--"];
        let rack = Rack::up(
            NODES,
            &[&options[..], &["--acknowledge", "copies", "--rack-timeout", "100ms"]].concat(),
        );
        rack.wait_until_copied();
        rack
    });
}

fn keep_what_was_acknowledged(rounds: u64, up: impl Fn() -> Rack) {
    let mut left = rounds;
    let mut seeds = 0..10 * rounds;
    while left > 0 {
        let mut rack = up();
        // Once two nodes were lost at the same time, a new one is needed.
        while left > 0 && keeps_what_it_acknowledged(&mut rack, seeds.next().expect("nodes get processors")) {
            left -= 1;
        }
    }
}

/// False if a busy machine has let a second node lose its lease, beside that which is lost on purpose: there is one copy.
fn keeps_what_it_acknowledged(rack: &mut Rack, seed: u64) -> bool {
    let coordinators = rack.coordinators();
    let ((mut history, is_copied), mishaps) = with_mishaps(&coordinators, || {
        let history = record(rack, seed, Trouble::Losses);
        (history, is_copied_again(rack))
    });
    if mishaps.len() > 1 {
        eprintln!("seed {seed}: something went wrong at {mishaps:?}");
        return false;
    }
    assert!(is_copied, "{}", rack.operate("status"));
    let calls = history.len();
    forget_premature(&mut history, false);
    let unknown = history.iter().filter(|event| event.returned == NEVER).count();
    eprintln!("seed {seed}: {} of {calls} calls count, {unknown} without a reply", history.len());
    let verdict = check_with(&history, Evictions::Never, STATES_MAX);
    assert_eq!(verdict, Verdict::Linearizable, "seed {seed}");
    true
}

/// Waits until every micro-shard has a copy again; false if that will never be, as some have been lost.
pub(crate) fn is_copied_again(rack: &Rack) -> bool {
    const LOST_AFTER: Duration = Duration::from_secs(15);
    let begun = Instant::now();
    loop {
        let state = rack.operate("status");
        if is_copied(&state) {
            return true;
        }
        let lacks = state.lines().any(|line| line.starts_with("node ") && !line.contains(" lacking 0 "));
        if begun.elapsed() > if lacks { LOST_AFTER } else { PATIENCE } {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn keep_order_while_keys_move(rack: &mut Rack) {
    let rounds = number_from("MINOS_RACK_MOVES", MOVES);
    let first = rack.epoch();
    keep_order(rack, rounds, Trouble::Moves);
    assert!(rack.epoch() - first > 2 * rounds, "micro-shards have moved");
}

/// Another value than that of the last write before it, which no client deleted, is found out.
#[test]
fn a_value_of_long_ago_is_found_out() {
    let mut rack = Rack::up(NODES, &["--native"]);
    let mut history = record(&mut rack, 1, Trouble::Nodes);
    let end = history.iter().map(|event| event.called).max().unwrap() + 1;
    let ids = [1 << 40, (1 << 40) + 1];
    let calls = [Call::Set(ids[0]), Call::Set(ids[1]), Call::Get(Some(ids[0]))];
    for (at, call) in (end..).step_by(2).zip(calls) {
        history.push(Event { client: u32::MAX, key: KEYS, called: at, returned: at + 1, call });
    }
    let verdict = check_with(&history, Evictions::Never, STATES_MAX);
    assert!(matches!(verdict, Verdict::Violation { key: KEYS, .. }), "{verdict:?}");
}
