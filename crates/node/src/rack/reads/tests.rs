//! Reads over memory that is mapped, as if it were not, by a fabric that holds back what it brings.

use std::time::Duration;

use minos_engine::{
    Backing, Engine, ItemMeta, OwnerState, Ownership, StoreConfig, StoreMode,
    remote::{Mapped, Range},
};
use minos_region::Image;

use super::*;
use crate::{
    rack::{Owner, RackCounters, routes::Right},
    resp,
};

const OWNER: Owner = Owner { node: 1, micro_shard: 1 };
const MICRO_SHARDS: u32 = 4;
const LATE: Duration = Duration::from_millis(250);

/// Brings nothing while it is held.
struct Held {
    inner: Mapped,
    is_held: bool,
}

impl Fabric for Held {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        self.inner.read(peer, ranges, token);
    }

    fn poll(&mut self, done: impl FnMut(Completion<'_>)) {
        if !self.is_held {
            self.inner.poll(done);
        }
    }
}

/// The reads of a node, and the table of another one.
struct Rig {
    reads: Reads<Held>,
    store: Engine<StoreMode>,
    counters: RackCounters,
    right: Right,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        Self::of_tables_with(7)
    }

    /// Tables hash keys with seed 7, but for that of the other node.
    fn of_tables_with(seed: u64) -> Self {
        let config = |hash_seed| StoreConfig {
            backing: Backing::Memfd,
            micro_shards: MICRO_SHARDS,
            hash_seed,
            ..StoreConfig::new(8 << 20)
        };
        let [own, store] = [7, seed].map(|seed| Engine::<StoreMode>::create(&config(seed)).unwrap());
        let clock = Clock::new();
        store.set_clock_base(clock.zero_unix_s());
        store.set_ownership(OWNER.micro_shard, Ownership { epoch: 1, state: OwnerState::Owned });
        let expected = Expected {
            nodes: 2,
            micro_shards: MICRO_SHARDS,
            hash: own.hash(b"minos"),
            zero_unix_s: clock.zero_unix_s(),
        };
        let mut inner = Mapped::default();
        let number = inner.add(Image::from_descriptor(store.descriptor_to_read().unwrap()).unwrap());
        let mut reads = Reads::new(Held { inner, is_held: false }, clock, expected, LATE);
        reads.meet(usize::from(OWNER.node), number);
        let routes = crate::rack::routes::Routes::new(MICRO_SHARDS, 1);
        routes.hold_for_ever();
        let now = Instant::now();
        let right = routes.right(now).unwrap();
        let mut rig = Self { reads, store, counters: RackCounters::default(), right, now };
        rig.advance();
        rig
    }

    fn set(&self, key: &str, value: &[u8]) {
        let hash = self.store.hash(key.as_bytes());
        let mut entry = self.store.entry(hash, key.as_bytes(), 10);
        entry.insert(&[value], ItemMeta { flags: 7, ..ItemMeta::default() }).unwrap();
    }

    /// Begins to read the key of a command, whose number is `part`; false if it is to be sent.
    fn begin(&mut self, part: usize, command: &[u8]) -> bool {
        let forward = Forward { bytes: command.to_vec(), is_read: true, ..Forward::to(OWNER) };
        let part = PartId { batch: 0, part };
        self.reads.begin(part, forward, (self.right, self.now, &self.counters)).is_none()
    }

    /// Goes on until nothing moves.
    fn advance(&mut self) {
        while !self.reads.fabric.is_held && !self.reads.is_idle() {
            self.reads.advance(self.now, &self.counters);
        }
    }

    /// The replies to the commands that have ended, by their numbers.
    fn replies(&mut self) -> Vec<(usize, Option<String>)> {
        let text = |(reply, _)| String::from_utf8(reply).unwrap();
        let mut replies = Vec::new();
        while let Some(Ended { asked, reply }) = self.reads.take_ended() {
            assert_eq!(asked.right, self.right);
            replies.push((asked.part.part, reply.map(text)));
        }
        replies.sort();
        replies
    }
}

/// The frame of a GET of a client that speaks RESP3.
fn frame(key: &str) -> Vec<u8> {
    let body = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
    [&[resp::MARK, 1, 0], &(body.len() as u32).to_le_bytes()[..], body.as_bytes()].concat()
}

#[test]
fn keys_are_read_at_once_and_their_replies_are_those_of_the_owner() {
    let mut rig = Rig::new();
    rig.set("a", b"one");
    rig.set("b", b"two");
    for (part, command) in
        [&b"get a\r\n"[..], b"gets none\r\n", b"mg b v\r\n", &frame("a"), &frame("none")].iter().enumerate()
    {
        assert!(rig.begin(part, command));
    }
    rig.advance();
    let expected = ["VALUE a 7 3\r\none\r\nEND\r\n", "END\r\n", "VA 3\r\ntwo\r\n"];
    let expected = expected.into_iter().chain(["VA 9\r\n$3\r\none\r\n\r\n", "VA 3\r\n_\r\n\r\n"]);
    assert!(rig.replies().into_iter().eq(expected.map(|text| Some(text.to_owned())).enumerate()));
    assert_eq!(rig.counters.fabric_reads.value(), 5);
    let mut told = Vec::new();
    assert!(rig.reads.has_notes());
    rig.reads.take_notes(|node, frame| told.push((node, frame.len())));
    // Three reads of items that nobody had read before.
    assert_eq!(told, [(1, 2 + 3 * 16)]);
}

#[test]
fn only_reads_of_one_key_begin_and_only_so_many() {
    let mut rig = Rig::new();
    for command in [&b"get a b\r\n"[..], b"set a 0 0 1\r\nx\r\n", b"touch a 1\r\n", &[resp::MARK]] {
        assert!(!rig.begin(0, command));
    }
    rig.reads.fabric.is_held = true;
    let begun = (0..2 * READS_MAX).filter(|part| rig.begin(*part, b"get a\r\n")).count();
    assert_eq!(begun, READS_MAX);
    rig.reads.fabric.is_held = false;
    rig.advance();
    assert_eq!(rig.replies().len(), READS_MAX);
    assert!(rig.begin(0, b"get a\r\n"));
}

#[test]
fn the_owner_is_asked_where_reads_are_late_and_read_again_once_they_have_ended() {
    let mut rig = Rig::new();
    rig.set("a", b"one");
    rig.reads.fabric.is_held = true;
    assert!(rig.begin(0, b"get a\r\n"));
    rig.now += LATE / 2;
    assert!(rig.begin(1, b"get a\r\n"));
    rig.reads.give_up_late(rig.now);
    assert!(rig.replies().is_empty());
    rig.now += LATE / 2;
    rig.reads.give_up_late(rig.now);
    assert_eq!(rig.replies(), [(0, None)]);
    assert!(!rig.begin(2, b"get a\r\n"), "its first read has not ended");
    rig.reads.fabric.is_held = false;
    rig.advance();
    assert_eq!(rig.replies(), [(1, Some("VALUE a 7 3\r\none\r\nEND\r\n".to_owned()))]);
    assert!(rig.begin(2, b"get a\r\n"));
}

#[test]
fn the_owner_is_asked_for_what_it_writes_or_does_not_own_and_for_large_values() {
    let mut rig = Rig::new();
    rig.set("large", &[b'x'; 5000]);
    assert!(rig.begin(0, b"get large\r\n"));
    rig.advance();
    assert_eq!(rig.replies(), [(0, None)]);
    rig.store.set_ownership(OWNER.micro_shard, Ownership { epoch: 2, state: OwnerState::None });
    assert!(rig.begin(0, b"get a\r\n"));
    rig.advance();
    assert_eq!(rig.replies(), [(0, None)]);
}

#[test]
fn the_reads_of_a_node_that_is_left_are_its_owners() {
    let mut rig = Rig::new();
    rig.reads.fabric.is_held = true;
    assert!(rig.begin(0, b"get a\r\n"));
    assert_eq!(rig.reads.leave(1), Some(0));
    assert_eq!(rig.replies(), [(0, None)]);
    assert!(!rig.begin(1, b"get a\r\n") && rig.reads.leave(1).is_none());
    // Another process of it, while reads of the one before are to end.
    rig.reads.meet(1, 0);
    rig.reads.fabric.is_held = false;
    rig.advance();
    assert!(rig.begin(2, b"get a\r\n"));
    rig.advance();
    assert_eq!(rig.replies(), [(2, Some("END\r\n".to_owned()))]);
}

#[test]
fn reads_are_given_up_whose_micro_shard_changes_hands() {
    let mut rig = Rig::new();
    rig.reads.fabric.is_held = true;
    assert!(rig.begin(0, b"get a\r\n"));
    rig.reads.give_up_unless(|owner| owner == OWNER);
    assert!(rig.replies().is_empty());
    rig.reads.give_up_unless(|owner| owner.micro_shard != OWNER.micro_shard);
    assert_eq!(rig.replies(), [(0, None)]);
    // What it brings all the same is nobody's.
    rig.reads.fabric.is_held = false;
    rig.advance();
    assert!(rig.begin(1, b"get a\r\n"));
    rig.advance();
    assert_eq!(rig.replies(), [(1, Some("END\r\n".to_owned()))]);
}

#[test]
fn a_table_that_hashes_keys_otherwise_is_not_read() {
    assert!(!Rig::of_tables_with(8).begin(0, b"get a\r\n"));
}
