//! The binary protocol: packets in, packets out.

use minos_testkit::{Answer, Packet};
use proptest::prelude::*;

use super::Session;

const LARGE: usize = 100_000;

/// The replies to bytes.
fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((answer, length)) = Answer::read(bytes).unwrap() {
        answers.push(answer);
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    answers
}

fn send(session: &mut Session, packets: &[Packet]) -> Vec<Answer> {
    let bytes: Vec<u8> = packets.iter().flat_map(Packet::bytes).collect();
    answers(&session.send(bytes))
}

fn ask(session: &mut Session, packet: Packet) -> Answer {
    send(session, &[packet]).pop().expect("a reply")
}

fn set(key: &str, value: &[u8]) -> Packet {
    Packet::store(0x01, key, value, 7, 0)
}

#[test]
fn an_item_is_stored_read_changed_and_deleted() {
    let mut session = Session::new(1000);
    let stored = ask(&mut session, set("key", b"12"));
    assert_eq!((stored.status, stored.value.len()), (0, 0));
    let got = ask(&mut session, Packet { opaque: 77, ..Packet::of(0x0c, "key") });
    assert_eq!((&got.key[..], &got.value[..], &got.extras[..]), (&b"key"[..], &b"12"[..], &[0, 0, 0, 7][..]));
    assert_eq!((got.cas, got.opaque), (stored.cas, 77));
    let counted = ask(&mut session, Packet::count(0x05, "key", 30, 0, u32::MAX));
    assert_eq!(counted.value, 42_u64.to_be_bytes());
    let other = ask(&mut session, Packet { cas: stored.cas, ..set("key", b"late") });
    assert_eq!((other.status, &other.value[..]), (2, &b"Data exists for key."[..]));
    assert_eq!(ask(&mut session, Packet { cas: counted.cas, ..Packet::of(0x04, "key") }).status, 0);
    assert_eq!(ask(&mut session, Packet::of(0x04, "key")).status, 1);
    let totals = session.totals();
    let counts = [totals.cmd_get, totals.get_hits, totals.cmd_set, totals.incr_hits, totals.cas_badval];
    assert_eq!(counts, [1, 1, 2, 1, 1]);
}

#[test]
fn quiet_commands_answer_only_what_their_client_cannot_expect() {
    let mut session = Session::new(1000);
    let quiet = [
        Packet::store(0x11, "a", "1", 0, 0),
        Packet::of(0x09, "missing"),
        Packet::of(0x0d, "missing"),
        Packet::touch(0x1e, "missing", 5),
        Packet::touch(0x24, "missing", 5),
        Packet { value: b"2".to_vec(), ..Packet::of(0x19, "a") },
        Packet::count(0x15, "a", 1, 0, 0),
        Packet::of(0x14, "a"),
        Packet::new(0x18),
    ];
    assert_eq!(send(&mut session, &quiet), []);
    let failing = [
        Packet::store(0x13, "a", "1", 0, 0),
        Packet::of(0x14, "a"),
        Packet { value: b"2".to_vec(), ..Packet::of(0x19, "a") },
        Packet::count(0x15, "a", 1, 0, u32::MAX),
    ];
    assert_eq!(send(&mut session, &failing).iter().map(|it| it.status).collect::<Vec<_>>(), [1, 1, 5, 1]);
    assert_eq!(send(&mut session, &[Packet::new(0x17)]), []);
    assert!(session.is_closed);
}

#[test]
fn a_count_makes_an_item_that_expires() {
    let mut session = Session::new(1000);
    let made = ask(&mut session, Packet::count(0x06, "n", 5, 99, 20));
    assert_eq!((made.status, &made.value[..]), (0, &99_u64.to_be_bytes()[..]));
    assert_eq!(ask(&mut session, Packet::of(0x00, "n")).value, b"99");
    session.now += 21;
    assert_eq!(ask(&mut session, Packet::of(0x00, "n")).value, b"Not found");
    ask(&mut session, set("text", b"one"));
    let failed = ask(&mut session, Packet::count(0x05, "text", 1, 0, 0));
    assert_eq!((failed.status, &failed.value[..]), (6, &b"Non-numeric server-side value for incr or decr"[..]));
}

#[test]
fn large_values_are_moved_without_a_copy() {
    let mut session = Session::new(1000);
    let value: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
    let stored = send(&mut session, &[set("k", &value), Packet::new(0x0a)]);
    assert_eq!(stored.iter().map(|it| it.status).collect::<Vec<_>>(), [0, 0]);
    let got = send(&mut session, &[Packet::of(0x0c, "k"), Packet::of(0x09, "k"), Packet::new(0x0a)]);
    assert!(got[0].value == value && got[0].key == b"k" && got[1].value == value && got[1].key.is_empty());
    assert_eq!((got.len(), session.sent_large), (3, 2));
    let more = ask(&mut session, Packet { value: vec![b'+'; 3], ..Packet::of(0x0e, "k") });
    assert_eq!(more.status, 0);
    assert!(session.slices > 0);
    assert_eq!(ask(&mut session, Packet::touch(0x1d, "k", 9)).value.len(), LARGE + 3);
}

#[test]
fn a_value_that_is_too_large_is_skipped_and_the_old_one_goes() {
    let mut session = Session::new(1000);
    session.state.limits.value_bytes_max = 1000;
    let large = vec![0x80; 1001];
    ask(&mut session, set("k", b"old"));
    for (opcode, left) in [(0x02, 0), (0x0e, 0), (0x11, 1)] {
        let store = if opcode == 0x0e {
            Packet { value: large.clone(), ..Packet::of(opcode, "k") }
        } else {
            Packet::store(opcode, "k", &large, 0, 0)
        };
        let said = send(&mut session, &[store, Packet::of(0x00, "k")]);
        assert_eq!((said[0].status, &said[0].value[..]), (3, &b"Too large."[..]));
        assert_eq!(said[1].status, left, "{opcode}");
    }
}

#[test]
fn half_sent_values_have_their_bound() {
    let mut session = Session::new(1000);
    ask(&mut session, set("k", b"old"));
    let permit = session.take_receiving();
    let bytes = set("k", &vec![b'v'; LARGE]).bytes();
    let (head, rest) = bytes.split_at(100);
    let said = answers(&session.send(head));
    assert_eq!((said[0].status, &said[0].value[..]), (0x82, &b"Out of memory allocating item"[..]));
    assert_eq!(session.send(rest), b"");
    assert_eq!(ask(&mut session, Packet::of(0x00, "k")).value, b"old");
    drop(permit);
}

#[test]
fn statistics_end_with_an_empty_packet() {
    let mut session = Session::new(1000);
    let stats = send(&mut session, &[Packet::new(0x10)]);
    let (end, stats) = stats.split_last().unwrap();
    assert!(stats.len() > 10 && stats.iter().all(|stat| !stat.key.is_empty() && stat.status == 0));
    assert!(end.key.is_empty() && end.value.is_empty());
    assert_eq!(send(&mut session, &[Packet::of(0x10, "reset")]).len(), 1);
    send(&mut session, &[Packet::of(0x10, "detail on")]);
    send(&mut session, &[set("a:b", b""), set("a\r\nEND:b", b"")]);
    let dump = send(&mut session, &[Packet::of(0x10, "detail dump")]);
    assert_eq!(dump[0].key, b"detailed");
    let lines = "PREFIX a get 0 hit 0 set 1 del 0\r\nPREFIX a  END get 0 hit 0 set 1 del 0\r\nEND\r\n";
    assert_eq!(dump[0].value, lines.as_bytes());
}

/// A dialogue with small and large values, errors, and bytes that are no packet at its end.
fn script() -> Vec<u8> {
    let large = vec![b'0'; 300];
    let packets = [
        Packet::store(0x11, "a", "abc", 1, 0),
        Packet::of(0x0c, "a"),
        Packet::store(0x01, "big", &large, 0, 0),
        Packet::of(0x0d, "big"),
        Packet { value: large.clone(), ..Packet::of(0x0f, "a") },
        Packet::of(0x00, "a"),
        Packet::store(0x01, "a", vec![b'x'; 2000], 0, 0),
        Packet { value: b"\0u\0p".to_vec(), ..Packet::of(0x21, "PLAIN") },
        Packet::count(0x05, "n", 1, 10, 0),
        Packet::touch(0x23, "big", 100),
        Packet::new(0x0b),
        Packet::of(0x04, "big"),
        Packet::of(0x09, "big"),
        Packet { extras: vec![1, 2, 3], ..Packet::of(0x00, "a") },
    ];
    packets.iter().flat_map(Packet::bytes).collect()
}

fn session(here_bytes_max: u64) -> Session {
    let mut session = Session::new(here_bytes_max);
    session.state.limits.value_bytes_max = 1000;
    session
}

#[test]
fn neither_splits_nor_placement_change_anything() {
    let script = script();
    let mut whole = session(100);
    let expected = whole.send(&script);
    assert!(whole.is_closed);
    assert_eq!(answers(&expected).last().unwrap().value, b"Invalid arguments");
    for at in 0..=script.len() {
        let (first, second) = script.split_at(at);
        let mut split = session(100);
        assert!([split.send(first), split.send(second)].concat() == expected, "split at {at}");
    }
    let mut bytes = session(100);
    assert!(script.chunks(1).flat_map(|byte| bytes.send(byte)).collect::<Vec<_>>() == expected);
    for here_bytes_max in [0, 3, 299, 300, 1000] {
        assert!(session(here_bytes_max).send(&script) == expected, "up to {here_bytes_max}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn twisted_packets_do_no_harm(
        twists in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        at in any::<prop::sample::Index>(),
    ) {
        let mut script = script();
        for (place, byte) in twists {
            // The first byte says that this is the binary protocol.
            let place = 1 + place.index(script.len() - 1);
            script[place] = byte;
        }
        let mut whole = session(100);
        let expected = whole.send(&script);
        let (first, second) = script.split_at(at.index(script.len()));
        let mut split = session(100);
        prop_assert_eq!([split.send(first), split.send(second)].concat(), expected);
        prop_assert!(whole.store.check().is_ok() && split.store.check().is_ok());
    }
}
