//! Random command sequences, sent to memcached and to Minos: every byte of the replies must agree.
//!
//! The reference is memcached 1.6.18, while Minos follows a newer version: each accepted difference between
//! the two is in the list of `accepted.rs`, and is tested there. Values that cannot be equal are compared by
//! meaning: CAS uniques by the order in which they appear, remaining times to within a second, the version
//! not at all. A failing sequence is shrunk before it is printed. `MINOS_DIFFERENTIAL_SEQUENCES` is the
//! number of sequences, `MINOS_DIFFERENTIAL_SEED` the first seed.

mod accepted;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod excuses;
mod packets;
mod pair;
mod replies;

use common::Wanted;
use minos_testkit::{Packet, PacketClient, Server, number_from};

use crate::{
    packets::Packets,
    pair::{Alteration, Pair, unaltered},
};

const SEQUENCES: u64 = 150;

/// memcached without its background threads: they hold references to items for a while, and `incr` treats a
/// referenced item differently.
fn memcached() -> Server {
    Server::memcached(&["-o", "no_modern", "-I", "1m", "-m", "256"]).unwrap_or_else(|error| panic!("{error}"))
}

/// Tries `count` sequences; panics with a short sequence on which the servers differ, if there is one.
fn compare<C: Clone + std::fmt::Display>(
    count: u64,
    sequence: fn(u64) -> Vec<C>,
    mut run: impl FnMut(u64, &[C]) -> Result<(), String>,
) {
    let first = number_from("MINOS_DIFFERENTIAL_SEED", 1);
    for seed in first..first + count {
        let commands = sequence(seed);
        if let Err(difference) = run(seed, &commands) {
            let (short, difference) = shrink(|commands| run(seed, commands), commands, difference);
            let lines: Vec<String> = short.iter().map(C::to_string).collect();
            panic!("seed {seed}: {difference}\nafter:\n{}", lines.join("\n"));
        }
    }
}

/// Removes everything that the difference does not need, in ever smaller pieces.
fn shrink<C: Clone>(
    mut run: impl FnMut(&[C]) -> Result<(), String>,
    mut sequence: Vec<C>,
    mut difference: String,
) -> (Vec<C>, String) {
    let mut piece = sequence.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < sequence.len() {
            let end = (at + piece).min(sequence.len());
            let without = [&sequence[..at], &sequence[end..]].concat();
            match run(&without) {
                Err(still) => (sequence, difference) = (without, still),
                Ok(()) => at = end,
            }
        }
        if piece <= 1 {
            return (sequence, difference);
        }
        piece = piece.div_ceil(2);
    }
}

fn sequences() -> u64 {
    number_from("MINOS_DIFFERENTIAL_SEQUENCES", SEQUENCES)
}

#[test]
fn minos_answers_like_memcached() {
    for minos_only in common::ENGINES {
        // A new one, without what the other engine's sequences have left under the same keys.
        let rival = memcached();
        let subject = common::start(Wanted { max_item_size: Some("1m"), minos_only, ..Wanted::default() });
        let mut pair = Pair::new(&rival, &subject, unaltered);
        compare(sequences(), commands::sequence, |seed, commands| pair.run(seed, commands));
    }
}

#[test]
fn minos_answers_packets_like_memcached() {
    for minos_only in common::ENGINES {
        // A new one, without what the other engine's sequences have left under the same keys.
        let rival = memcached();
        let subject = common::start(Wanted { max_item_size: Some("1m"), minos_only, ..Wanted::default() });
        let mut packets = Packets::new(&rival, &subject, |_| {});
        compare(sequences(), packets::sequence, |seed, sequence| packets.run(seed, sequence));
    }
}

#[test]
fn accepted_differences_are_these() {
    let (rival, subject) = (memcached(), common::start_plain());
    for (request, of_rival, of_subject) in accepted::DIFFERENCES {
        for (server, expected) in [(&rival, of_rival), (&subject, of_subject)] {
            let got = pair::answer(server, format!("{request}\r\n").as_bytes());
            let got = String::from_utf8_lossy(&got).replace("\r\n", "|");
            assert_eq!(got.trim_end_matches("MN|"), expected, "{request:?}");
        }
    }
}

#[test]
fn behind_an_unknown_packet_memcached_skips_too_much() {
    let (rival, subject) = (memcached(), common::start_plain());
    let unknown = Packet { extras: vec![0; 4], ..Packet::new(0x1b) };
    // memcached skips the extras once more: the bytes that Minos, which does not, must not be sent.
    for (server, skipped) in [(&rival, &[0; 4][..]), (&subject, &[])] {
        let mut client = PacketClient::connect(server.address()).unwrap();
        client.send([&unknown.bytes(), skipped, &Packet::new(0x0a).bytes()].concat()).unwrap();
        let said = [client.answer(), client.answer()].map(|answer| answer.unwrap().unwrap().status);
        assert_eq!(said, [0x81, 0]);
    }
}

#[test]
fn memcached_answers_like_itself() {
    let (left, right) = (memcached(), memcached());
    let mut pair = Pair::new(&left, &right, unaltered);
    compare(40, commands::sequence, |seed, commands| pair.run(seed, commands));
    let mut packets = Packets::new(&left, &right, |_| {});
    compare(40, packets::sequence, |seed, sequence| packets.run(seed, sequence));
}

#[test]
fn altered_packets_are_found() {
    let alterations: [(&str, packets::Alteration); 4] = [
        ("another status", |answer| answer.status *= 2),
        ("a byte of a text", |answer| answer.value.iter_mut().take(1).for_each(|byte| *byte ^= 1)),
        ("no unique", |answer| answer.cas = 0),
        ("no key", |answer| answer.key.clear()),
    ];
    let (left, right) = (memcached(), memcached());
    for (what, alter) in alterations {
        let mut packets = Packets::new(&left, &right, alter);
        let is_found = (1..40).any(|seed| packets.run(seed, &packets::sequence(seed)).is_err());
        assert!(is_found, "not found: {what}");
    }
}

#[test]
fn altered_replies_are_found() {
    let alterations: [(&str, Alteration); 4] = [
        ("a word in other letters", |replies| replace(replies, b"STORED", b"Stored")),
        ("an answer left out", |replies| replace(replies, b"NOT_FOUND\r\n", b"")),
        ("a byte of a value", |replies| replace(replies, b"abcd", b"abce")),
        ("a word too many", |replies| replace(replies, b"HD\r\n", b"HD \r\n")),
    ];
    let (left, right) = (memcached(), memcached());
    for (what, alter) in alterations {
        let mut pair = Pair::new(&left, &right, alter);
        let is_found = (1..40).any(|seed| pair.run(seed, &commands::sequence(seed)).is_err());
        assert!(is_found, "not found: {what}");
    }
}

fn replace(bytes: &mut Vec<u8>, from: &[u8], to: &[u8]) {
    let mut result = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(from) {
            result.extend_from_slice(to);
            rest = behind;
        } else {
            result.push(rest[0]);
            rest = &rest[1..];
        }
    }
    *bytes = result;
}
