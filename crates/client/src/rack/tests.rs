//! The client of a rack against nodes that are played, without faults of the network.

use std::{collections::BTreeMap, net::SocketAddr};

use minos_proto::native::{
    Access, Composer, Header, Hello, Kind, Opcode, Operation, ReplyRecord, Status, WELCOME_BYTES, Welcome,
    WelcomeFlags, operations,
};
use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};
use minos_unit::{Change, Directory, Node, Place, Standing};
use proptest::prelude::*;

use super::Router;
use crate::{Config, Error, Outcome, Request, Verb};

const SEED: u64 = 5;
/// Bytes of a page of the directory: few, so that there are many pages.
const PAGE_BYTES: usize = 50;
const STEPS_MAX: usize = 10_000;

/// A node, which executes nothing and says who should.
struct Played {
    address: SocketAddr,
    /// The bytes of its directory, and its epoch.
    directory: (Vec<u8>, u32),
    /// The owner that it names for every key; it has those for which there is none.
    names: Option<u32>,
    executed: Vec<Opcode>,
}

impl Played {
    fn answer(&mut self, datagram: &[u8]) -> Vec<u8> {
        let header = Header::parse(datagram).expect("a client sends what can be read");
        let mut out = Vec::new();
        let kind = if header.kind == Kind::Hello { Kind::Welcome } else { Kind::Reply };
        let mut composer = Composer::begin(&mut out, header.answer(kind, 1), 1448);
        if header.kind == Kind::Hello {
            let hello = Hello::parse(header.body(datagram)).unwrap();
            let mut body = [0; WELCOME_BYTES];
            self.welcome(hello.nonce).write(&mut body);
            assert!(composer.push_bytes(&body));
        }
        for operation in operations(datagram, &header) {
            let operation = operation.expect("a client sends what can be read");
            self.executed.push(operation.opcode);
            assert!(composer.push_reply(&self.execute(&operation)));
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

    fn execute(&self, operation: &Operation<'_>) -> ReplyRecord<'_> {
        let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
        let (bytes, epoch) = &self.directory;
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
    directory.changed(Change { places: BTreeMap::from([(MicroShard(0), place)]), nodes: None }).unwrap()
}

impl World {
    /// Nodes that tell this directory.
    fn new(bytes: &[u8], epoch: u32) -> Self {
        let config = Config::new().timeout(std::time::Duration::from_secs(1));
        let node = |number| Played {
            address: address(number),
            directory: (bytes.to_vec(), epoch),
            names: None,
            executed: Vec::new(),
        };
        let router = Router::new(config, address(0), 3, 1000).unwrap();
        Self { router, nodes: vec![node(0), node(1)], now_ns: 1000 }
    }

    fn of(directory: &Directory) -> Self {
        Self::new(&directory.encode(), directory.epoch())
    }

    fn call(&mut self, verb: Verb) -> Result<Outcome, Error> {
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
        for (to, datagram) in &sent {
            if let Some(node) = self.nodes.iter_mut().find(|node| node.address == *to) {
                let answer = node.answer(datagram);
                self.router.receive(*to, &answer, answer.len(), self.now_ns);
            }
        }
        !sent.is_empty()
    }

    fn writes(&self) -> Vec<usize> {
        let of = |node: &Played| node.executed.iter().filter(|&&opcode| opcode == Opcode::Put).count();
        self.nodes.iter().map(of).collect()
    }
}

#[test]
fn a_newer_directory_is_learned_from_who_is_asked_in_vain() {
    let first = directory();
    let mut world = World::of(&first);
    assert_eq!(world.call(Verb::Put), Ok(Outcome::Done { cas: 0 }));
    assert_eq!(world.router.rack(), Some((2, 2)));
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
    // An older one is not taken back.
    world.nodes.iter_mut().for_each(|node| node.directory = (first.encode(), first.epoch()));
    world.call(Verb::Put).unwrap();
    assert_eq!(world.router.rack(), Some((3, 2)));
}

#[test]
fn nodes_that_name_each_other_are_asked_so_often_and_no_more() {
    let mut world = World::of(&directory());
    world.call(Verb::Put).unwrap();
    (world.nodes[0].names, world.nodes[1].names) = (Some(1), Some(0));
    for verb in [Verb::Put, Verb::Get] {
        world.nodes.iter_mut().for_each(|node| node.executed.clear());
        assert_eq!(world.call(verb), Err(Error::NotOwner));
        let asked: usize = world.nodes.iter().map(|node| node.executed.len()).sum();
        assert!((9..=12).contains(&asked), "{asked}");
    }
    // Nobody knows this one.
    world.nodes.iter_mut().for_each(|node| node.names = Some(7));
    assert_eq!(world.call(Verb::Put), Err(Error::NotOwner));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a server says of its rack, operations end.
    #[test]
    fn any_directory_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
    ) {
        let mut bytes = directory().encode();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let mut world = World::new(&noise.unwrap_or(bytes), 2);
        for verb in [Verb::Get, Verb::Put, Verb::Get] {
            // Its owner may be where no node is.
            let result = world.call(verb);
            prop_assert!(
                matches!(result, Ok(_) | Err(Error::TimedOut { .. } | Error::NotOwner)),
                "{:?}", result
            );
        }
    }
}
