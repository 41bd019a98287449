//! The parser of the binary protocol, and the packets that answer.

use minos_base::{Exptime, StatsGroup, StoreKind};
use minos_proto::memcache::{
    Arithmetic, Delete, Get, Key, Limits, Malformed, Parsed, Request, StatsDetail, Store, Touch, Value,
    Vivify,
    binary::{HEADER_BYTES, MAGIC, Parsed as ParsedPacket, Reply, Status, compose, parse},
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { value_bytes_max: 1000, line_bytes_max: 8192 };

/// A packet whose lengths fit its parts.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body_bytes = extras.len() + key.len() + value.len();
    let mut bytes = vec![MAGIC, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend((body_bytes as u32).to_be_bytes());
    bytes.extend(*b"name");
    bytes.extend(cas.to_be_bytes());
    [&bytes, extras, key, value].concat()
}

#[track_caller]
fn request(input: &[u8]) -> (Request<'_>, Reply) {
    match parse(input, &LIMITS) {
        Parsed::Request { command, consumed } => {
            assert_eq!(consumed, input.len());
            (command.request, command.reply)
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(input: &[u8]) -> (Option<Status>, u64, bool) {
    match parse(input, &LIMITS) {
        Parsed::Malformed(Malformed { reply, swallow, close, .. }) => {
            (reply.map(|(_, it)| it), swallow, close)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_opcode_is_a_request_and_says_how_to_answer() {
    let key = Key::Plain(b"key");
    let read = Request::Get(Get::plain(key));
    for (opcode, quiet, with_key) in
        [(0x00, false, false), (0x09, true, false), (0x0c, false, true), (0x0d, true, true)]
    {
        let reply = Reply { opcode, opaque: *b"name", quiet, with_key };
        assert_eq!(request(&packet(opcode, b"", b"key", b"", 0)), (read, reply));
    }
    let sixty = [0, 0, 0, 60];
    let touched = Request::Get(Get { touch: Some(Exptime(60)), ..Get::plain(key) });
    for (opcode, quiet, with_key) in
        [(0x1d, false, false), (0x1e, true, false), (0x23, false, true), (0x24, true, true)]
    {
        let reply = Reply { opcode, opaque: *b"name", quiet, with_key };
        assert_eq!(request(&packet(opcode, &sixty, b"key", b"", 0)), (touched, reply));
    }
    assert_eq!(
        request(&packet(0x1c, &sixty, b"key", b"", 0)).0,
        Request::Touch(Touch { key, exptime: Exptime(60) })
    );
    for (opcode, unique) in [(0x04, None), (0x14, Some(9))] {
        let delete = Delete { key, unique, invalidate: false, touch: None };
        assert_eq!(
            request(&packet(opcode, b"", b"key", b"", unique.unwrap_or(0))).0,
            Request::Delete(delete)
        );
    }
    for (opcode, expected) in [
        (0x07, Request::Quit),
        (0x17, Request::Quit),
        (0x0a, Request::NoOp),
        (0x0b, Request::Version),
        (0x08, Request::FlushAll { delay: Exptime(0) }),
    ] {
        assert_eq!(request(&packet(opcode, b"", b"", b"", 0)).0, expected);
    }
    assert_eq!(request(&packet(0x18, &sixty, b"", b"", 0)).0, Request::FlushAll { delay: Exptime(60) });
    for (name, expected) in [
        (&b""[..], Request::Stats(StatsGroup::General)),
        (b"items", Request::Stats(StatsGroup::Items)),
        (b"detail dump", Request::StatsDetail(StatsDetail::Dump)),
    ] {
        assert_eq!(request(&packet(0x10, b"", name, b"", 0)).0, expected);
    }
}

#[test]
fn stores_take_flags_expiry_and_unique() {
    let extras = [0, 0, 1, 2, 0xff, 0xff, 0xff, 0xff];
    let store = |kind, unique| {
        Request::Store(Store {
            kind,
            key: Key::Plain(b"key"),
            flags: 258,
            exptime: Exptime(i32::MAX),
            unique,
            invalidate: false,
            value: Value::Whole(b"value"),
        })
    };
    for (opcode, kind) in [(0x01, StoreKind::Set), (0x12, StoreKind::Add), (0x03, StoreKind::Replace)] {
        assert_eq!(request(&packet(opcode, &extras, b"key", b"value", 0)).0, store(kind, 0));
        assert_eq!(request(&packet(opcode, &extras, b"key", b"value", 5)).0, store(StoreKind::Compare, 5));
    }
    for (opcode, kind) in [(0x0e, StoreKind::Append), (0x1a, StoreKind::Prepend)] {
        let bytes = packet(opcode, b"", b"key", b"value", 5);
        let Request::Store(store) = request(&bytes).0 else { panic!("{bytes:?}") };
        assert_eq!((store.kind, store.unique, store.flags), (kind, 5, 0));
    }
}

#[test]
fn counts_create_an_item_unless_told_not_to() {
    let extras =
        |expiry: u32| [&7_u64.to_be_bytes()[..], &9_u64.to_be_bytes(), &expiry.to_be_bytes()].concat();
    let count = |decrement, vivify| {
        let key = Key::Plain(b"key");
        Request::Arithmetic(Arithmetic { key, decrement, delta: 7, unique: 3, vivify, touch: None })
    };
    let vivify = Some(Vivify { initial: 9, exptime: Exptime(60) });
    assert_eq!(request(&packet(0x05, &extras(60), b"key", b"", 3)).0, count(false, vivify));
    assert_eq!(request(&packet(0x16, &extras(u32::MAX), b"key", b"", 3)).0, count(true, None));
}

#[test]
fn a_value_may_come_later_or_be_too_large() {
    let whole = packet(0x01, &[0; 8], b"key", &[b'v'; 1000], 0);
    let head_bytes = HEADER_BYTES + 8 + 3;
    for cut in 0..head_bytes {
        assert_eq!(parse(&whole[..cut], &LIMITS), Parsed::NeedMore, "{cut}");
    }
    for (bytes, expected) in [
        (&whole[..head_bytes], Value::Pending { bytes: 1000 }),
        (&whole[..whole.len() - 1], Value::Pending { bytes: 1000 }),
        (&packet(0x01, &[0; 8], b"key", &[b'v'; 1001], 0), Value::TooLarge { bytes: 1001 }),
    ] {
        match parse(bytes, &LIMITS) {
            Parsed::Request { command, consumed } => {
                assert_eq!(consumed, head_bytes);
                let Request::Store(store) = command.request else { panic!("{command:?}") };
                assert_eq!(store.value, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_no_request_is_refused_as_by_memcached() {
    // Nothing is said to what is no packet.
    assert_eq!(refused(b"get a\r\n"), (None, 0, true));
    // An unknown command is skipped, a body that cannot be is the end.
    for opcode in [0x1b, 0x1f, 0x30, 0xff] {
        assert_eq!(
            refused(&packet(opcode, b"1234", b"key", b"value", 0)),
            (Some(Status::Unknown), 12, false)
        );
    }
    // memcached without credentials.
    assert_eq!(refused(&packet(0x20, b"", b"", b"", 0)), (Some(Status::Unknown), 0, false));
    assert_eq!(refused(&packet(0x21, b"", b"PLAIN", b"\0u\0p", 0)), (Some(Status::Unknown), 9, false));
    let mut lying = packet(0x01, &[0; 8], b"key", b"", 0);
    lying[11] = 10;
    assert_eq!(refused(&lying), (Some(Status::Unknown), 0, true));
    lying[8] = 0x41;
    assert_eq!(refused(&lying), (Some(Status::Invalid), 0, true));
    for bytes in [
        packet(0x00, b"", b"", b"", 0),
        packet(0x00, b"", b"key", b"value", 0),
        packet(0x00, b"", &[b'k'; 251], b"", 0),
        packet(0x01, &[0; 7], b"key", b"value", 0),
        packet(0x01, &[0; 8], b"", b"value", 0),
        packet(0x05, &[0; 19], b"key", b"", 0),
        packet(0x08, &[0; 3], b"", b"", 0),
        packet(0x0a, b"", b"key", b"", 0),
        packet(0x0e, &[0; 8], b"key", b"value", 0),
        packet(0x10, b"1", b"items", b"", 0),
        packet(0x1d, b"", b"key", b"", 0),
        packet(0x21, b"", b"", b"", 0),
    ] {
        assert_eq!(refused(&bytes), (Some(Status::Invalid), 0, true), "{bytes:?}");
    }
    // The connections are listed in the text protocol alone.
    assert_eq!(refused(&packet(0x10, b"", b"conns", b"", 0)), (Some(Status::NotFound), 5, false));
}

#[test]
fn replies_are_laid_out_as_memcached_does() {
    let reply = Reply { opcode: 0x0c, opaque: *b"name", quiet: false, with_key: true };
    let quiet = Reply { quiet: true, ..reply };
    let composed = |compose: &dyn Fn(&mut Vec<u8>)| {
        let mut tx = Vec::new();
        compose(&mut tx);
        tx
    };
    let head = composed(&|tx| compose::value_head(tx, quiet, b"key", 258, 10, 0x0102));
    assert_eq!(head, b"\x81\x0c\0\x03\x04\0\0\0\0\0\0\x11name\0\0\0\0\0\0\x01\x02\0\0\x01\x02key");
    let miss = composed(&|tx| compose::miss(tx, reply, b"key"));
    assert_eq!(miss, b"\x81\x0c\0\x03\0\0\0\x01\0\0\0\x03name\0\0\0\0\0\0\0\0key");
    assert_eq!(composed(&|tx| compose::miss(tx, quiet, b"key")), b"");
    assert_eq!(composed(&|tx| compose::done(tx, quiet, 7, b"")), b"");
    let error = composed(&|tx| compose::error(tx, quiet, Status::Unknown));
    assert_eq!(error, b"\x81\x0c\0\0\0\0\0\x81\0\0\0\x0fname\0\0\0\0\0\0\0\0Unknown command");
    let stat = composed(&|tx| compose::stat(tx, reply, "pid", &77));
    assert_eq!(stat, b"\x81\x0c\0\x03\0\0\0\0\0\0\0\x05name\0\0\0\0\0\0\0\0pid77");
}

/// Bytes that are often a packet.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let parts = (0..0x40_u8, 0..24_usize, 0..5_usize, 0..1200_usize, any::<u64>());
    let whole = parts.prop_map(|(opcode, extras, key, value, cas)| {
        packet(opcode, &vec![1; extras], &vec![b'k'; key], &vec![b'v'; value], cas)
    });
    prop_oneof![whole, proptest::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    #[test]
    fn any_bytes_make_progress_within_bounds(bytes in packets(), twist in any::<(usize, u8)>()) {
        let mut bytes = bytes;
        let at = twist.0 % 32;
        if twist.1 < 128 && at < bytes.len() {
            bytes[at] = twist.1;
        }
        match parse(&bytes, &LIMITS) {
            Parsed::NeedMore => prop_assert!(bytes.len() < HEADER_BYTES + 255 + 250),
            Parsed::Malformed(malformed) => {
                prop_assert!(malformed.close || malformed.consumed == HEADER_BYTES);
                prop_assert!(malformed.swallow <= 1 << 30);
            }
            Parsed::Request { command, consumed } => {
                prop_assert!((HEADER_BYTES..=bytes.len()).contains(&consumed));
                if let Some(key) = command.request.key() {
                    prop_assert!((1..=250).contains(&key.text().len()));
                }
            }
        }
    }

    #[test]
    fn the_bytes_behind_a_packet_do_not_matter(bytes in packets(), more in proptest::collection::vec(any::<u8>(), 0..40)) {
        let alone: ParsedPacket<'_> = parse(&bytes, &LIMITS);
        let is_whole = !matches!(alone, Parsed::NeedMore)
            && !matches!(alone, Parsed::Request { command, .. }
                if matches!(command.request, Request::Store(Store { value: Value::Pending { .. }, .. })));
        if is_whole {
            let longer = [&bytes[..], &more].concat();
            prop_assert_eq!(parse(&longer, &LIMITS), alone);
        }
    }
}
