//! The client of a rack against nodes that are played, without faults of the network.

use std::{collections::BTreeMap, net::SocketAddr};

use minos_proto::native::{
    Access, Composer, DIRECTORY_WEIGHTS, Flags, Header, Hello, Kind, Opcode, Operation, ReplyRecord, Status,
    WELCOME_BYTES, Welcome, WelcomeFlags, operations,
};
use minos_rack::{Alias, MicroShard, MicroShards, ServerId, UnitId};
use minos_unit::{Change, Directory, Follower, Node, Place, Shown, Standing, Weights};
use proptest::prelude::*;

use super::{COPIES_REST_NS, REFUSED_COPIES_MAX, Router, choose::draw, map::Unit};
use crate::{Config, Error, OnceFor, Outcome, ReadBy, Request, Verb};

const SEED: u64 = 5;
/// Bytes of a page of the directory: few, so that there are many pages.
const PAGE_BYTES: usize = 50;
/// Between two calls.
const PAUSE_NS: u64 = 100_000;
const STEPS_MAX: usize = 10_000;

/// A node, which executes nothing and says who should.
struct Played {
    address: SocketAddr,
    /// The bytes of its directory, and its epoch.
    directory: (Vec<u8>, u32),
    /// Its weights.
    weights: Option<Weights>,
    /// The version of the weights that its answers tell.
    told: u32,
    /// The owner that it names for every key; it has those for which there is none.
    names: Option<u32>,
    /// It answers nothing.
    is_dead: bool,
    /// Bytes of a datagram that the client takes, as it last said.
    takes_bytes: u16,
    executed: Vec<Opcode>,
}

impl Played {
    fn answer(&mut self, datagram: &[u8]) -> Vec<u8> {
        let header = Header::parse(datagram).expect("a client sends what can be read");
        let mut out = Vec::new();
        let kind = if header.kind == Kind::Hello { Kind::Welcome } else { Kind::Reply };
        let cookie = u64::from(self.told) << 32 | u64::from(self.directory.1);
        let answer = Header { cookie, ..header.answer(kind, 1) };
        let mut composer = Composer::begin(&mut out, answer, 1448);
        if header.kind == Kind::Hello {
            let hello = Hello::parse(header.body(datagram)).unwrap();
            let mut body = [0; WELCOME_BYTES];
            self.takes_bytes = hello.datagram_bytes_max;
            let session = u64::from(header.flags.contains(Flags::OPEN));
            Welcome { session, ..self.welcome(hello.nonce) }.write(&mut body);
            assert!(composer.push_bytes(&body));
        }
        for operation in operations(datagram, &header) {
            let operation = operation.expect("a client sends what can be read");
            self.executed.push(operation.opcode);
            let is_directory = operation.opcode == Opcode::Directory;
            let bytes = if is_directory { self.shown(&operation) } else { Vec::new() };
            assert!(composer.push_reply(&self.execute(&operation, &bytes)));
        }
        composer.finish();
        out
    }

    fn welcome(&self, nonce: u64) -> Welcome {
        Welcome {
            nonce,
            boot: 1,
            cookie: 77,
            direction_seed: SEED,
            session: 0,
            cookie_seconds: 60,
            geometry: 1,
            queues: 1,
            partition_bits: 4,
            access: Access::Crew,
            base_port: self.address.port(),
            flags: WelcomeFlags::RACK,
            datagram_bytes_max: 1448,
            key_bytes_max: 250,
            window: 8,
            once_window: 128,
            value_bytes_max: 1 << 20,
            transfers_per_client: 8,
            in_flight: 64,
        }
    }

    /// The bytes of the directory, and of the weights if they are asked for.
    fn shown(&self, operation: &Operation<'_>) -> Vec<u8> {
        let weights = self.weights.iter().filter(|_| operation.detail.item_flags == DIRECTORY_WEIGHTS);
        [self.directory.0.clone(), weights.flat_map(Weights::encode).collect()].concat()
    }

    fn execute<'a>(&self, operation: &Operation<'_>, bytes: &'a [u8]) -> ReplyRecord<'a> {
        let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
        let (_, epoch) = &self.directory;
        if operation.opcode == Opcode::Directory {
            let first = (operation.detail.operand as usize).min(bytes.len());
            let next = (first + PAGE_BYTES).min(bytes.len());
            let cas = u64::from(*epoch) << 32 | bytes.len() as u64;
            return ReplyRecord {
                item_flags: next as u32,
                cas,
                value: &bytes[first..next],
                ..bare(Status::Ok)
            };
        }
        match self.names {
            Some(owner) if operation.opcode.names_item() => {
                ReplyRecord { item_flags: owner, cas: u64::from(*epoch), ..bare(Status::NotOwner) }
            }
            _ => bare(Status::Ok),
        }
    }
}

/// A client and the nodes.
struct World {
    router: Router,
    nodes: Vec<Played>,
    now_ns: u64,
    /// No node answers once the client has the next directory.
    ends_after_directory: bool,
    /// From then on no node names another owner.
    agrees_at_ns: u64,
}

fn address(node: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000 + 100 * node))
}

/// Two nodes of one unit with one micro-shard, which node 0 owns.
fn directory() -> Directory {
    let node = |id| Node {
        id: ServerId(id),
        unit: UnitId(0),
        standing: Standing::Member,
        address: address(id as u16).to_string(),
    };
    let first = Directory::new(MicroShards::new(1).unwrap(), 1, vec![node(0), node(1)]).unwrap();
    moved(&first, 0)
}

/// The next directory, in which a node owns everything.
fn moved(directory: &Directory, node: u32) -> Directory {
    let place = Place { node: ServerId(node), epoch: 0, since: 0, is_serving: true };
    directory
        .changed(Change { places: BTreeMap::from([(MicroShard(0), place)]), ..Change::default() })
        .unwrap()
}

impl World {
    /// Nodes that tell this directory.
    fn new(config: Config, bytes: &[u8], epoch: u32) -> Self {
        let config = config.timeout(std::time::Duration::from_secs(1));
        let node = |number| Played {
            address: address(number),
            directory: (bytes.to_vec(), epoch),
            weights: None,
            told: 0,
            names: None,
            is_dead: false,
            takes_bytes: 0,
            executed: Vec::new(),
        };
        let router = Router::new(config, address(0), 3, 1000).unwrap();
        Self {
            router,
            nodes: vec![node(0), node(1)],
            now_ns: 1000,
            ends_after_directory: false,
            agrees_at_ns: u64::MAX,
        }
    }

    fn of(directory: &Directory) -> Self {
        Self::with(Config::new(), directory)
    }

    fn with(config: Config, directory: &Directory) -> Self {
        Self::new(config, &directory.encode(), directory.epoch())
    }

    fn call(&mut self, verb: Verb) -> Result<Outcome, Error> {
        self.now_ns += PAUSE_NS;
        let id = self.router.submit(Request::new(verb, "key"), self.now_ns).unwrap();
        for _ in 0..STEPS_MAX {
            self.router.on_timer(self.now_ns);
            while self.exchange() {}
            if let Some(completion) = self.router.poll_completion() {
                assert_eq!(completion.id, id);
                return completion.result;
            }
            self.now_ns = self.router.next_timer().unwrap_or(0).max(self.now_ns + 1);
        }
        panic!("it goes on for ever");
    }

    /// Brings all that the client sends to its nodes, and their answers back.
    fn exchange(&mut self) -> bool {
        let mut sent = Vec::new();
        while let Some(train) = self.router.poll_transmit(self.now_ns) {
            let datagrams = train.bytes.chunks(train.segment_bytes);
            sent.extend(datagrams.map(|datagram| (train.to, datagram.to_vec())));
        }
        if self.now_ns >= self.agrees_at_ns {
            self.nodes.iter_mut().for_each(|node| node.names = None);
        }
        for (to, datagram) in &sent {
            let is_end = self.ends_after_directory && self.router.rack().is_some_and(|(epoch, _)| epoch > 2);
            self.nodes.iter_mut().for_each(|node| node.is_dead |= is_end);
            if let Some(node) = self.nodes.iter_mut().find(|node| node.address == *to && !node.is_dead) {
                let answer = node.answer(datagram);
                self.router.receive(*to, &answer, answer.len(), self.now_ns);
            }
        }
        !sent.is_empty()
    }

    /// The owner falls silent, and the other node replaces it.
    fn replace_owner(&mut self, directory: &Directory) {
        let next = moved(directory, 1);
        self.nodes[0].is_dead = true;
        self.nodes[1].directory = (next.encode(), next.epoch());
    }

    fn writes(&self) -> Vec<usize> {
        self.executed(Opcode::Put)
    }

    /// How many of these each node has executed.
    fn executed(&self, opcode: Opcode) -> Vec<usize> {
        let of = |node: &Played| node.executed.iter().filter(|&&other| other == opcode).count();
        self.nodes.iter().map(of).collect()
    }

    /// Nodes have these weights, of which only the first ones tell.
    fn weigh(&mut self, version: u32, parts: [u32; 2], tellers: usize) {
        let parts = BTreeMap::from([(ServerId(0), parts[0]), (ServerId(1), parts[1])]);
        let weights = Weights::new(version, parts).unwrap();
        self.nodes.iter_mut().for_each(|node| node.weights = Some(weights.clone()));
        self.nodes.iter_mut().take(tellers).for_each(|node| node.told = version);
    }

    /// The part of so many reads that node 0 executes.
    fn part_of_first(&mut self, reads: usize) -> f64 {
        self.nodes.iter_mut().for_each(|node| node.executed.clear());
        (0..reads).for_each(|_| drop(self.call(Verb::Get)));
        let executed = self.executed(Opcode::Get);
        assert_eq!(executed.iter().sum::<usize>(), reads);
        executed[0] as f64 / reads as f64
    }
}

#[test]
fn a_newer_directory_is_learned_from_who_is_asked_in_vain() {
    let first = directory();
    let mut world = World::of(&first);
    assert_eq!(world.call(Verb::Put), Ok(Outcome::Done { cas: 0 }));
    assert_eq!((world.router.rack(), world.router.owner(b"key")), (Some((2, 2)), Some(0)));
    // Only the old owner has heard of the change.
    let second = moved(&first, 1);
    world.nodes[0].directory = (second.encode(), second.epoch());
    world.nodes[0].names = Some(1);
    world.call(Verb::Put).unwrap();
    assert_eq!(world.writes(), [2, 1]);
    while world.router.rack() == Some((2, 2)) {
        world.call(Verb::Ping).unwrap();
        // It may have been asked of the other node.
        world.nodes[1].directory = (second.encode(), second.epoch());
        world.call(Verb::Put).unwrap();
    }
    let before = world.writes();
    world.call(Verb::Put).unwrap();
    assert_eq!(world.writes(), [before[0], before[1] + 1]);
    assert_eq!(world.router.owner(b"key"), Some(1));
    // An older one is not taken back.
    world.nodes.iter_mut().for_each(|node| node.directory = (first.encode(), first.epoch()));
    world.call(Verb::Put).unwrap();
    assert_eq!(world.router.rack(), Some((3, 2)));
}

/// Before the fix, its time began anew when it was sent.
#[test]
fn what_has_waited_for_the_directory_has_no_longer_than_others() {
    let mut world = World::of(&moved(&directory(), 1));
    world.ends_after_directory = true;
    world.nodes.iter_mut().for_each(|node| node.is_dead = true);
    let begun_ns = world.now_ns;
    let id = world.router.submit(Request::new(Verb::Flush, ""), begun_ns).unwrap();
    let completion = loop {
        world.router.on_timer(world.now_ns);
        while world.exchange() {}
        if let Some(completion) = world.router.poll_completion() {
            break completion;
        }
        let is_begin = world.now_ns < begun_ns + 500_000_000;
        world.now_ns = world.router.next_timer().unwrap().max(world.now_ns + 1);
        if is_begin && world.now_ns >= begun_ns + 500_000_000 {
            world.nodes.iter_mut().for_each(|node| node.is_dead = false);
        }
    };
    assert!(
        completion.id == id && matches!(completion.result, Err(Error::TimedOut { .. })),
        "{completion:?}"
    );
    assert!(world.router.rack().is_some() && world.now_ns - begun_ns < 1_100_000_000);
}

#[test]
fn nodes_that_name_each_other_are_asked_until_the_time_out_and_seldom() {
    let mut world = World::of(&directory());
    world.call(Verb::Put).unwrap();
    (world.nodes[0].names, world.nodes[1].names) = (Some(1), Some(0));
    for verb in [Verb::Put, Verb::Get] {
        world.nodes.iter_mut().for_each(|node| node.executed.clear());
        let begun_ns = world.now_ns;
        assert_eq!(world.call(verb), Err(Error::TimedOut { was_sent: true }));
        assert!(world.now_ns - begun_ns >= 1_000_000_000);
        let asked: usize = world.nodes.iter().map(|node| node.executed.len()).sum();
        assert!((20..=30).contains(&asked), "{asked}");
    }
    // Nobody knows this one: the key may be about to get there.
    world.nodes.iter_mut().for_each(|node| node.names = Some(7));
    assert_eq!(world.call(Verb::Put), Err(Error::TimedOut { was_sent: true }));
}

#[test]
fn nodes_that_name_each_other_for_a_while_cost_time_alone() {
    for verb in [Verb::Put, Verb::Get] {
        let mut world = World::of(&directory());
        world.call(Verb::Put).unwrap();
        (world.nodes[0].names, world.nodes[1].names) = (Some(1), Some(0));
        world.agrees_at_ns = world.now_ns + 600_000_000;
        assert!(world.call(verb).is_ok(), "{verb:?}");
        assert!(world.now_ns >= world.agrees_at_ns, "{verb:?}");
    }
}

#[test]
fn a_flush_meets_all_nodes_twice() {
    let mut world = World::of(&two_units(1));
    for times in [2, 4] {
        assert_eq!(world.call(Verb::Flush), Ok(Outcome::Done { cas: 0 }));
        assert_eq!(world.executed(Opcode::Flush), [times; 2]);
    }
    world.nodes[1].is_dead = true;
    assert_eq!(world.call(Verb::Flush), Err(Error::TimedOut { was_sent: true }));
}

#[test]
fn a_flush_meets_nodes_that_have_joined() {
    let both = two_units(1);
    let nodes = Some(vec![both.nodes()[0].clone()]);
    let one = both.changed(Change { nodes, ..Change::default() }).unwrap();
    let nodes = Some(both.nodes().to_vec());
    let joined = one.changed(Change { nodes, ..Change::default() }).unwrap();
    let mut world = World::of(&one);
    world.call(Verb::Put).unwrap();
    assert_eq!(world.router.rack(), Some((one.epoch(), 1)));
    // The client has heard nothing since.
    world.nodes.iter_mut().for_each(|node| node.directory = (joined.encode(), joined.epoch()));
    assert_eq!(world.call(Verb::Flush), Ok(Outcome::Done { cas: 0 }));
    assert_eq!((world.router.rack(), world.executed(Opcode::Flush)), (Some((joined.epoch(), 2)), vec![3, 2]));
}

#[test]
fn a_flush_ends_in_time_without_the_directory_that_it_waits_for() {
    let mut world = World::of(&directory());
    world.call(Verb::Put).unwrap();
    world.nodes.iter_mut().for_each(|node| node.directory.1 = 1 << 30);
    assert_eq!(world.call(Verb::Flush), Err(Error::TimedOut { was_sent: true }));
    assert_eq!(world.executed(Opcode::Flush), [1, 1]);
}

#[test]
fn what_a_silent_owner_need_not_end_goes_to_its_successor() {
    for verb in [Verb::Put, Verb::Touch, Verb::Add, Verb::Delete, Verb::Get] {
        let directory = two_units(1);
        let mut world = World::with(Config::new().once_for(OnceFor::NotIdempotent), &directory);
        world.call(Verb::Put).unwrap();
        world.replace_owner(&directory);
        let begun_ns = world.now_ns;
        // Nothing was sent without a session, which the owner does not open any more; the others may be repeated.
        assert!(world.call(verb).is_ok(), "{verb:?}");
        assert!(world.now_ns - begun_ns < 200_000_000, "{verb:?}");
        assert_eq!((world.router.rack(), world.executed(verb.opcode())[1]), (Some((3, 2)), 1), "{verb:?}");
    }
}

#[test]
fn what_a_silent_owner_may_have_executed_is_not_repeated() {
    let directory = two_units(1);
    for config in [Config::new(), Config::new().once_for(OnceFor::NotIdempotent)] {
        let verb = if config.once_for == OnceFor::AllWrites { Verb::Put } else { Verb::Delete };
        let mut world = World::with(config, &directory);
        world.call(verb).unwrap();
        world.replace_owner(&directory);
        assert_eq!(world.call(verb), Err(Error::TimedOut { was_sent: true }));
        assert_eq!(world.executed(verb.opcode()), [1, 0]);
        assert_eq!(world.call(verb), Ok(Outcome::Done { cas: 0 }), "the next one knows better");
    }
}

#[test]
fn a_successor_that_is_silent_too_does_not_hide_that_something_was_sent() {
    for (verb, was_sent) in [(Verb::Put, true), (Verb::Delete, false)] {
        let directory = two_units(1);
        let mut world = World::with(Config::new().once_for(OnceFor::NotIdempotent), &directory);
        world.call(Verb::Put).unwrap();
        world.replace_owner(&directory);
        world.ends_after_directory = true;
        assert_eq!(world.call(verb), Err(Error::TimedOut { was_sent }));
        assert_eq!(world.executed(verb.opcode())[1], 0);
    }
}

#[test]
fn a_first_server_that_has_left_the_rack_is_asked_no_more() {
    let directory = two_units(1);
    let mut world = World::of(&directory);
    world.call(Verb::Put).unwrap();
    let nodes = Some(vec![directory.nodes()[1].clone()]);
    let next = moved(&directory, 1).changed(Change { nodes, ..Change::default() }).unwrap();
    world.nodes.iter_mut().for_each(|node| node.directory = (next.encode(), next.epoch()));
    while world.router.rack() != Some((next.epoch(), 1)) {
        world.call(Verb::Put).unwrap();
    }
    world.nodes[0].is_dead = true;
    for verb in [Verb::Ping, Verb::Stats] {
        assert!(world.call(verb).is_ok(), "{verb:?}");
    }
}

#[test]
fn a_first_server_that_is_silent_is_asked_once() {
    let mut world = World::of(&directory());
    world.call(Verb::Ping).unwrap();
    world.nodes[0].is_dead = true;
    assert_eq!(world.call(Verb::Ping), Err(Error::TimedOut { was_sent: true }));
    assert!(world.call(Verb::Ping).is_ok());
}

#[test]
fn each_node_gets_datagrams_that_its_path_carries() {
    let mut world = World::of(&directory());
    world.router.know_paths(|to| (to == address(1)).then_some(600));
    let takes = |world: &mut World| {
        world.part_of_first(100);
        [world.nodes[0].takes_bytes, world.nodes[1].takes_bytes]
    };
    world.call(Verb::Put).unwrap();
    assert_eq!(takes(&mut world), [8192, 600]);
    world.router.know_paths(|to| (to == address(0)).then_some(1200));
    world.router.limit_to_paths();
    assert_eq!(takes(&mut world), [1200, 600]);
}

#[test]
fn reads_follow_the_weights() {
    let mut world = World::of(&directory());
    world.call(Verb::Put).unwrap();
    assert!(world.router.weights() == 0 && (0.4..0.6).contains(&world.part_of_first(1000)));
    world.weigh(1, [100_000, 900_000], 2);
    // The first answer tells, and nothing waits.
    world.call(Verb::Get).unwrap();
    world.call(Verb::Get).unwrap();
    assert_eq!(world.router.weights(), 1);
    assert!((0.06..0.14).contains(&world.part_of_first(1000)));
    // One node in two tells it.
    world.weigh(2, [1_000_000, 0], 1);
    while world.router.weights() < 2 {
        world.call(Verb::Get).unwrap();
    }
    assert_eq!(world.part_of_first(100), 1.0);
    // Older ones change nothing, nor does another directory.
    world.weigh(1, [0, 1_000_000], 2);
    let second = moved(&directory(), 1);
    world.nodes.iter_mut().for_each(|node| node.directory = (second.encode(), second.epoch()));
    while world.router.rack() != Some((3, 2)) {
        world.call(Verb::Get).unwrap();
    }
    assert_eq!((world.router.weights(), world.part_of_first(100)), (2, 1.0));
    // Without any weight for the unit, all are alike.
    world.weigh(3, [0, 0], 2);
    while world.router.weights() < 3 {
        world.call(Verb::Get).unwrap();
    }
    assert!((0.4..0.6).contains(&world.part_of_first(1000)));
}

#[test]
fn other_choices_ignore_the_weights() {
    for read_by in [ReadBy::Uniform, ReadBy::TwoChoices] {
        let mut world = World::with(Config::new().read_by(read_by), &directory());
        world.weigh(1, [0, 1_000_000], 2);
        world.call(Verb::Put).unwrap();
        assert!((0.4..0.6).contains(&world.part_of_first(1000)), "{read_by:?}");
        assert_eq!(world.router.weights(), 1);
    }
}

/// Two nodes, each a unit, with one micro-shard that node 0 owns.
fn two_units(copies: u32) -> Directory {
    let mut nodes = directory().nodes().to_vec();
    nodes[1].unit = UnitId(1);
    moved(&Directory::new(MicroShards::new(1).unwrap(), copies, nodes).unwrap(), 0)
}

#[test]
fn copies_are_read_if_that_is_wanted_and_as_long_as_they_answer() {
    let copies = || Config::new().read_by(ReadBy::Copies);
    let mut world = World::with(copies(), &two_units(2));
    world.call(Verb::Put).unwrap();
    assert!((0.4..0.6).contains(&world.part_of_first(1000)));
    // Whoever refuses many of them is left alone for a while.
    world.nodes[1].names = Some(0);
    world.nodes.iter_mut().for_each(|node| node.executed.clear());
    let begun_ns = world.now_ns;
    (0..2000).for_each(|_| drop(world.call(Verb::Get).unwrap()));
    let (executed, rests) = (world.executed(Opcode::Get), (world.now_ns - begun_ns) / COPIES_REST_NS);
    let refused_max = REFUSED_COPIES_MAX as usize + rests as usize;
    assert!(executed[0] == 2000 && (1..=refused_max).contains(&executed[1]), "{executed:?} {rests}");
    // It is asked again once it answers.
    world.nodes[1].names = None;
    world.now_ns += COPIES_REST_NS;
    assert!((0.4..0.6).contains(&world.part_of_first(1000)));
    world.call(Verb::Put).unwrap();
    assert_eq!(world.writes()[1], 0);
    let mut world = World::of(&two_units(2));
    world.call(Verb::Put).unwrap();
    assert_eq!(world.part_of_first(100), 1.0);
}

#[test]
fn copies_of_hot_micro_shards_are_told() {
    let directory = two_units(1);
    let follower = Follower { node: ServerId(1), number: 1, is_safe: false };
    let followers = BTreeMap::from([(MicroShard(0), vec![follower])]);
    let directory = directory.changed(Change { followers, ..Change::default() }).unwrap();
    let shown = [directory.encode_places(), Shown::NO_WEIGHTS.to_vec(), directory.encode_copies()].concat();
    let mut world = World::new(Config::new().read_by(ReadBy::Copies), &shown, directory.epoch());
    world.call(Verb::Put).unwrap();
    assert!((0.4..0.6).contains(&world.part_of_first(1000)));
}

#[test]
fn a_node_that_tells_what_it_cannot_show_is_asked_seldom() {
    let mut world = World::of(&directory());
    world.call(Verb::Put).unwrap();
    world.weigh(1, [500_000, 500_000], 2);
    world.nodes.iter_mut().for_each(|node| (node.told, node.directory.1) = (7, 1 << 30));
    let begun_ns = world.now_ns;
    world.nodes.iter_mut().for_each(|node| node.executed.clear());
    for _ in 0..2000 {
        world.call(Verb::Get).unwrap();
    }
    // Each time brings two pages or three.
    let (asked, took_ms) = (world.executed(Opcode::Directory), (world.now_ns - begun_ns) / 1_000_000);
    let asked: usize = asked.iter().sum();
    assert!(
        took_ms >= 100 && asked >= 6 && asked as u64 <= 4 * (2 + took_ms / 20),
        "{asked} in {took_ms} ms"
    );
}

#[test]
fn reads_of_a_node_that_is_away_follow_the_weights_of_the_others() {
    let unit = |weights: &[u32]| {
        let shares: Vec<f64> = weights.iter().copied().map(f64::from).collect();
        Unit {
            seats: (0..weights.len()).collect(),
            weights: weights.to_vec(),
            alias: Alias::new(&shares).ok(),
            ..Unit::default()
        }
    };
    let mut router = World::of(&directory()).router;
    for port in 1..4 {
        let seat = router.seat_at(address(port), 0).unwrap();
        router.seats.push(seat);
    }
    router.seats[1].is_silent = true;
    let mut drawn = |weights: &[u32]| {
        let mut counts = [0u32; 4];
        for _ in 0..4000 {
            let seat = draw(&unit(weights), &router.seats, ReadBy::Weighted, &mut router.dice).unwrap();
            counts[seat] += 1;
        }
        counts
    };
    let counts = drawn(&[100_000, 600_000, 300_000, 0]);
    assert!(counts[0].abs_diff(1000) < 150 && counts[2].abs_diff(3000) < 150, "{counts:?}");
    assert!(counts[1] == 0 && counts[3] == 0);
    // The one with all the weight is away.
    let counts = drawn(&[0, 1_000_000, 0, 0]);
    assert!(counts[1] == 0 && [0, 2, 3].iter().all(|&seat| counts[seat].abs_diff(1333) < 200), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a server says of its rack, operations end.
    #[test]
    fn any_directory_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
    ) {
        let parts = BTreeMap::from([(ServerId(0), 1), (ServerId(1), 2)]);
        let directory = two_units(2);
        let weights = Weights::new(1, parts).unwrap().encode();
        let mut bytes = [directory.encode_places(), weights, directory.encode_copies()].concat();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let mut world = World::new(Config::new().read_by(ReadBy::Copies), &noise.unwrap_or(bytes), 2);
        for verb in [Verb::Get, Verb::Put, Verb::Get] {
            // Its owner may be where no node is.
            let result = world.call(verb);
            prop_assert!(
                matches!(result, Ok(_) | Err(Error::TimedOut { .. })),
                "{:?}", result
            );
        }
    }
}
