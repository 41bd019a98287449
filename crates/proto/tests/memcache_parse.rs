//! The memcached parser, command by command and error by error.

use minos_base::{Exptime, StatsGroup, StoreKind};
use minos_proto::memcache::{
    Arithmetic, Command, Delete, Get, Key, KeyBuffer, Limits, Malformed, Parsed, Reply, Request, Resume,
    ShutdownMode, Store, Touch, Value, Vivify, compose, parse, parse_resumed, text,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { value_bytes_max: 1000, line_bytes_max: 8192 };

#[track_caller]
fn command<'a>(input: &'a [u8]) -> (Command<'a>, usize) {
    match parse(input, &LIMITS) {
        Parsed::Request { command, consumed } => (command, consumed),
        other => panic!("{:?} is {other:?}", String::from_utf8_lossy(input)),
    }
}

#[track_caller]
fn request<'a>(input: &'a [u8]) -> Request<'a> {
    command(input).0.request
}

#[track_caller]
fn malformed(input: &[u8]) -> Malformed {
    match parse(input, &LIMITS) {
        Parsed::Malformed(malformed) => malformed,
        other => panic!("{:?} is {other:?}", String::from_utf8_lossy(input)),
    }
}

fn keys<'a>(request: Request<'a>) -> Vec<&'a [u8]> {
    match request {
        Request::GetMany(many) => many.keys.collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_key_is_a_get_and_several_are_many() {
    let plain = Get::plain(Key::Plain(b"a"));
    assert_eq!(request(b"get a\r\n"), Request::Get(plain));
    assert_eq!(request(b"  get   a  \n"), Request::Get(plain));
    assert_eq!(request(b"gat 60 a\r\n"), Request::Get(Get { touch: Some(Exptime(60)), ..plain }));
    assert_eq!(keys(request(b"get a bb  c\r\n")), [&b"a"[..], b"bb", b"c"]);
    assert_eq!(command(b"gets a\r\n").0.reply, Reply::Classic { quiet: false, with_cas: true });
    assert_eq!(command(b"gats 1 a b\r\n").0.reply, Reply::Classic { quiet: false, with_cas: true });
}

#[test]
fn keys_before_one_that_is_too_long_are_read() {
    let long = "x".repeat(251);
    let end = format!("get a b {long} c\r\n");
    match request(end.as_bytes()) {
        Request::GetMany(many) => {
            assert!(many.ends_badly);
            assert_eq!(many.keys.collect::<Vec<_>>(), [b"a", b"b"]);
        }
        other => panic!("{other:?}"),
    }
    let longest = "y".repeat(250);
    for spaces in [1, 2, 249, 250, 251, 252, 600] {
        let space = " ".repeat(spaces);
        let line = format!("get a{space}{longest}{space}{longest}{space}b{space}{long}\r\n");
        let Request::GetMany(many) = request(line.as_bytes()) else { panic!("{line}") };
        assert!(many.ends_badly);
        assert_eq!(many.keys.count(), 4, "{spaces}");
        let line = format!("get {space}{longest}{space}{longest}{space}\r\n");
        let Request::GetMany(many) = request(line.as_bytes()) else { panic!("{line}") };
        assert!(!many.ends_badly && many.keys.count() == 2, "{spaces}");
    }
    for line in [format!("get {long}\r\n"), format!("gat 0 {long} a\r\n")] {
        match request(line.as_bytes()) {
            Request::GetMany(mut many) => assert!(many.ends_badly && many.keys.next().is_none()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_line_of_keys_goes_on_where_it_stopped() {
    let input = b"gats 7 a bb c\r\nget z\r\n";
    let (first, consumed) = command(input);
    assert_eq!(consumed, 15);
    let Request::GetMany(mut many) = first.request else { panic!() };
    many.keys.next();
    let resume = Resume {
        touch: many.touch,
        with_cas: true,
        ends_badly: many.ends_badly,
        keys_bytes: many.keys.rest().len(),
        line_end_bytes: first.line_end_bytes,
    };
    let unread = resume.unread_bytes();
    match parse_resumed(resume, &input[consumed - unread..]) {
        Parsed::Request { command, consumed } => {
            assert_eq!(consumed, unread);
            assert_eq!(command.reply, first.reply);
            assert_eq!(keys(command.request), [&b"bb"[..], b"c"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_carries_its_value_or_waits_for_it() {
    let store = |kind, unique, value| {
        let key = Key::Plain(b"k");
        Request::Store(Store { kind, key, flags: 5, exptime: Exptime(-1), unique, invalidate: false, value })
    };
    for (word, kind) in [
        ("set", StoreKind::Set),
        ("add", StoreKind::Add),
        ("replace", StoreKind::Replace),
        ("append", StoreKind::Append),
        ("prepend", StoreKind::Prepend),
    ] {
        let input = format!("{word} k 5 -1 3\r\na\nc\r\nget");
        let (got, consumed) = command(input.as_bytes());
        assert_eq!(got.request, store(kind, 0, Value::Whole(b"a\nc")), "{word}");
        assert_eq!(consumed, input.len() - 3);
    }
    let head = b"cas k 5 -1 3 77\r\n";
    assert_eq!(command(head), command(b"cas k 5 -1 3 77\r\nabc\r"));
    assert_eq!(command(head).0.request, store(StoreKind::Compare, 77, Value::Pending { bytes: 3 }));
    assert_eq!(command(head).1, head.len());
    let large = b"set k 5 -1 1001\r\n";
    assert_eq!(command(large).0.request, store(StoreKind::Set, 0, Value::TooLarge { bytes: 1001 }));
    assert_eq!(request(b"set k 5 -1 0\r\n\r\n"), store(StoreKind::Set, 0, Value::Whole(b"")));
}

#[test]
fn noreply_is_the_last_word_whatever_it_stands_for() {
    let quiet = |input: &'static [u8]| command(input).0.reply.is_silent();
    assert!(quiet(b"set k 0 0 1 noreply\r\na\r\n"));
    assert!(!quiet(b"set k 0 0 1 nonsense\r\na\r\n"));
    assert!(quiet(b"delete k noreply\r\n") && quiet(b"delete k 0 noreply\r\n"));
    assert!(quiet(b"delete noreply\r\n"));
    assert!(quiet(b"incr k 1 noreply\r\n") && quiet(b"touch k 1 noreply\r\n"));
    assert!(quiet(b"flush_all noreply\r\n") && quiet(b"flush_all 5 noreply\r\n"));
    assert!(quiet(b"verbosity 1 noreply\r\n"));
    assert_eq!(malformed(b"set k x 0 1 noreply\r\n").reply, text::NOTHING);
    assert_eq!(malformed(b"set k 0 0 1 noreply\r\nabc\r\n").reply, text::NOTHING);
    assert_eq!(malformed(b"delete k 5 noreply\r\n").reply, text::NOTHING);
    assert_eq!(malformed(b"incr k noreply\r\n").reply, text::NOTHING);
    assert_eq!(malformed(b"nonsense noreply\r\n").reply, text::NOTHING);
    assert_eq!(malformed(b"noreply\r\n").reply, text::NOTHING);
    assert_eq!(malformed(b"mx k noreply\r\n").reply, text::NOTHING);
}

#[test]
fn the_other_commands_say_what_they_mean() {
    let key = Key::Plain(b"k");
    let count = |decrement, delta| {
        Request::Arithmetic(Arithmetic { key, decrement, delta, unique: 0, vivify: None, touch: None })
    };
    for (input, expected) in [
        ("incr k 18446744073709551615", count(false, u64::MAX)),
        ("decr k 1", count(true, 1)),
        ("touch k -5", Request::Touch(Touch { key, exptime: Exptime(-5) })),
        ("delete k", Request::Delete(Delete { key, unique: None, invalidate: false, touch: None })),
        ("flush_all", Request::FlushAll { delay: Exptime(0) }),
        ("flush_all 10", Request::FlushAll { delay: Exptime(10) }),
        ("stats", Request::Stats(StatsGroup::General)),
        ("stats minos", Request::Stats(StatsGroup::Minos)),
        ("version", Request::Version),
        ("verbosity 7", Request::Verbosity { level: 7 }),
        ("cache_memlimit 64", Request::MemoryLimit { mebibytes: 64 }),
        ("quit now", Request::Quit),
        ("shutdown graceful", Request::Shutdown(ShutdownMode::Graceful)),
        ("shutdown", Request::Shutdown(ShutdownMode::Now)),
        ("shutdown abruptly", Request::Shutdown(ShutdownMode::Unknown)),
        ("mn", Request::NoOp),
        ("me k", Request::Debug { key }),
        ("me Zm9v b", Request::Debug { key: Key::Base64(b"Zm9v") }),
    ] {
        assert_eq!(request(format!("{input}\r\n").as_bytes()), expected, "{input}");
    }
}

#[test]
fn meta_flags_reach_the_request() {
    let key = Key::Base64(b"Zm9v");
    assert_eq!(
        request(b"mg Zm9v s v b N30 T-1 R10 u q k Oabc\r\n"),
        Request::Get(Get {
            key,
            touch: Some(Exptime(-1)),
            vivify: Some(Exptime(30)),
            recache: Some(Exptime(10)),
            unseen: true,
        })
    );
    let (store, consumed) = command(b"ms Zm9v 2 b C9 F7 I T5 q\r\nhi\r\n");
    assert_eq!(consumed, 30);
    assert!(matches!(store.reply, Reply::Meta { quiet: true, .. }) && !store.reply.is_silent());
    let expected = Store {
        kind: StoreKind::Compare,
        key,
        flags: 7,
        exptime: Exptime(5),
        unique: 9,
        invalidate: true,
        value: Value::Whole(b"hi"),
    };
    assert_eq!(store.request, Request::Store(expected));
    let plain = Key::Plain(b"k");
    assert_eq!(
        request(b"md k C5 I T9\r\n"),
        Request::Delete(Delete { key: plain, unique: Some(5), invalidate: true, touch: Some(Exptime(9)) })
    );
    assert_eq!(
        request(b"ma k MD D5 N9 J13 C8 T1\r\n"),
        Request::Arithmetic(Arithmetic {
            key: plain,
            decrement: true,
            delta: 5,
            unique: 8,
            vivify: Some(Vivify { initial: 13, exptime: Exptime(9) }),
            touch: Some(Exptime(1)),
        })
    );
}

#[test]
fn meta_store_modes_yield_to_a_comparison() {
    for (flags, kind) in [
        ("", StoreKind::Set),
        ("MS", StoreKind::Set),
        ("ME", StoreKind::Add),
        ("MA", StoreKind::Append),
        ("MP", StoreKind::Prepend),
        ("MR", StoreKind::Replace),
        ("C1", StoreKind::Compare),
        ("MR C1", StoreKind::Compare),
        ("ME C1", StoreKind::Add),
        ("MA C1", StoreKind::Append),
    ] {
        match request(format!("ms k 1 {flags}\r\na\r\n").as_bytes()) {
            Request::Store(store) => assert_eq!(store.kind, kind, "{flags}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Faulty lines and their answers: those of the newest memcached, with the
/// exceptions that `docs/memcached.md` lists.
const FAULTS: &[(&str, &[u8])] = &[
    ("", text::BAD_FORMAT),
    ("\r", text::BAD_FORMAT),
    ("x", text::BAD_FORMAT),
    ("  ", text::ERROR),
    ("x k", text::ERROR),
    ("get", text::BAD_FORMAT),
    ("gets ", text::BAD_FORMAT),
    ("gat", text::BAD_FORMAT),
    ("gat 0", text::BAD_FORMAT),
    ("gat x", text::BAD_FORMAT),
    ("gat x k", text::INVALID_EXPTIME),
    ("gat +5 k", text::INVALID_EXPTIME),
    ("gat 4294967296 k", text::INVALID_EXPTIME),
    ("gat - k", text::INVALID_EXPTIME),
    ("getx a", text::ERROR),
    ("bget a", text::ERROR),
    ("set", text::BAD_FORMAT),
    ("set k 0 0", text::BAD_FORMAT),
    ("set k 0 0 noreply", text::BAD_FORMAT),
    ("set k 0 0 x", text::BAD_FORMAT),
    ("set k 0 0 x noreply", text::BAD_FORMAT),
    ("set k 0 0 -1", text::BAD_FORMAT),
    ("set k 0 0 -", text::BAD_FORMAT),
    ("set k 0 0 +1", text::BAD_FORMAT),
    ("set k 0 0 1\t", text::BAD_FORMAT),
    ("set k 0 0 2147483646", text::BAD_FORMAT),
    ("set k 0 0 4294967297", text::BAD_FORMAT),
    ("set k 0 0 000000000001", text::BAD_FORMAT),
    ("delete", text::BAD_FORMAT),
    ("delete k 5", text::BAD_DELETE),
    ("delete k 0 x", text::BAD_DELETE),
    ("delete k 0 noreply x", text::ERROR),
    ("incr k", text::BAD_FORMAT),
    ("incr k x", text::INVALID_DELTA),
    ("incr k -1", text::INVALID_DELTA),
    ("incr k +1", text::INVALID_DELTA),
    ("incr k 1\t", text::INVALID_DELTA),
    ("decr k -18446744073709551615", text::INVALID_DELTA),
    ("touch k", text::BAD_FORMAT),
    ("touch k x", text::INVALID_EXPTIME),
    ("touch k +5", text::INVALID_EXPTIME),
    ("flush_all x", text::INVALID_EXPTIME),
    ("flush_all +5", text::INVALID_EXPTIME),
    ("verbosity", text::BAD_FORMAT),
    ("verbosity x y z", text::BAD_FORMAT),
    ("verbosity +1", text::BAD_FORMAT),
    ("cache_memlimit", text::ERROR),
    ("cache_memlimit +64", text::ERROR),
    ("stats nothing", text::ERROR),
    ("stats detail", text::STATS_DETAIL_USAGE),
    ("stats cachedump +1 1", text::BAD_FORMAT),
    ("GET k", text::ERROR),
    ("HTTP/1.1", text::ERROR),
    ("mx k", text::ERROR),
    ("mgx k", text::ERROR),
    ("mg", text::BAD_FORMAT),
    ("md", text::BAD_FORMAT),
    ("ma", text::BAD_FORMAT),
    ("me", text::BAD_FORMAT),
    ("me !!!! b", text::BAD_FORMAT),
    ("ms", text::BAD_FORMAT),
    ("ms k", text::BAD_FORMAT),
    ("ms k x", text::BAD_FORMAT),
    ("ms k -1", text::BAD_FORMAT),
    ("ms k +1", text::BAD_FORMAT),
    ("mg k s s", text::META_DUPLICATE_FLAG),
    ("mg k !", text::BAD_FORMAT),
    ("mg k \u{7f}", text::BAD_FORMAT),
    ("mg k z", text::META_INVALID_FLAG),
    ("mg k T", text::META_BAD_TOKEN),
    ("mg k T+5", text::META_BAD_TOKEN),
    ("mg k T4294967297", text::META_BAD_TOKEN),
    ("mg k Nx", text::META_BAD_TOKEN),
    ("mg k b", text::META_BAD_KEY),
    ("mg k b Tx", text::META_BAD_TOKEN),
    ("mg k Fx", text::BAD_FORMAT),
    ("md k z", text::META_INVALID_FLAG),
    ("md k I I", text::META_DUPLICATE_FLAG),
    ("md k Cx", text::META_BAD_TOKEN),
    ("md k O12345678901234567890123456789012", text::META_OPAQUE_TOO_LONG),
    ("ma k Dx", text::META_INVALID_OR_DUPLICATE_FLAG),
    ("ma k D+1", text::META_INVALID_OR_DUPLICATE_FLAG),
    ("ma k MX", text::META_ARITHMETIC_BAD_MODE),
    ("ma k Mincr", text::META_ARITHMETIC_BAD_MODE),
    ("ma k M", text::META_ARITHMETIC_BAD_MODE),
];

#[test]
fn errors_are_memcacheds() {
    for &(input, reply) in FAULTS {
        let Malformed { reply: got, consumed, swallow, close } = malformed(format!("{input}\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(got), String::from_utf8_lossy(reply), "{input}");
        assert_eq!((consumed, swallow, close), (input.len() + 2, 0, false), "{input}");
    }
}

#[test]
fn keys_and_flags_that_are_too_many_are_refused() {
    let long = "x".repeat(251);
    let many = "v ".repeat(18);
    for (word, rest, reply, swallow) in [
        ("set", " 0 0 1", text::BAD_FORMAT, 3),
        ("delete", "", text::BAD_FORMAT, 0),
        ("incr", " 1", text::BAD_FORMAT, 0),
        ("touch", " 1", text::BAD_FORMAT, 0),
        ("mg", "", text::BAD_FORMAT, 0),
        ("ms", " 1", text::BAD_FORMAT, 3),
        ("md", "", text::BAD_FORMAT, 0),
        ("ma", "", text::META_INVALID_OR_DUPLICATE_FLAG, 0),
        ("me", "", text::BAD_FORMAT, 0),
    ] {
        let got = malformed(format!("{word} {long}{rest}\n").as_bytes());
        assert_eq!((got.reply, got.swallow), (reply, swallow), "{word}");
    }
    for (line, reply, swallow) in [
        ("mg k v", text::META_TOO_MANY_FLAGS, 0),
        ("md k v", text::META_TOO_MANY_FLAGS, 0),
        ("ms k 1", text::META_TOO_MANY_FLAGS, 3),
        ("ma k v", text::META_INVALID_OR_DUPLICATE_FLAG, 0),
    ] {
        let got = malformed(format!("{line} {many}\n").as_bytes());
        assert_eq!((got.reply, got.swallow), (reply, swallow), "{line}");
    }
}

#[test]
fn words_too_many_are_passed_over() {
    let key = Key::Plain(b"k");
    for (input, expected) in [
        ("delete k 0", "delete k"),
        ("incr k 1 2 3", "incr k 1"),
        ("touch k 1 2 3", "touch k 1"),
        ("flush_all 1 2 3", "flush_all 1"),
        ("verbosity 1 2 3", "verbosity 1"),
        ("cache_memlimit 64 1 2", "cache_memlimit 64"),
        ("ma k MIncr", "ma k MI"),
    ] {
        let (long, short) = (format!("{input}\r\n"), format!("{expected}\r\n"));
        assert_eq!(request(long.as_bytes()), request(short.as_bytes()), "{input}");
    }
    for line in ["set k 0 0 1 2 3", "set k 0 0 1 noreply x", "cas k 0 0 1 5 6 7", "ms k 1 MSet"] {
        match command(format!("{line}\r\nv\r\n").as_bytes()) {
            (Command { request: Request::Store(store), reply, .. }, consumed) => {
                assert_eq!((store.key, store.value), (key, Value::Whole(b"v")), "{line}");
                assert_eq!((consumed, reply.is_silent()), (line.len() + 5, false), "{line}");
            }
            other => panic!("{line} is {other:?}"),
        }
    }
}

#[test]
fn an_error_in_a_classic_store_swallows_its_value() {
    for (input, reply) in [
        ("set k x 0 10", text::BAD_FORMAT),
        ("set k -1 0 10", text::BAD_FORMAT),
        ("set k 0 x 10", text::BAD_FORMAT),
        ("set k 0 99999999999999999999 10", text::BAD_FORMAT),
        ("set k x 0 10 noreply", text::NOTHING),
        ("cas k 0 0 10", text::BAD_FORMAT),
        ("cas k 0 0 10 x", text::BAD_FORMAT),
        ("cas k 0 0 10 -1", text::BAD_FORMAT),
        ("cas k 0 0 10 +1", text::BAD_FORMAT),
        ("cas k 0 0 10 noreply", text::NOTHING),
    ] {
        let got = malformed(format!("{input}\r\nab").as_bytes());
        assert_eq!((got.reply, got.consumed, got.swallow), (reply, input.len() + 2, 12), "{input}");
    }
}

#[test]
fn a_line_of_two_bytes_and_a_line_feed_is_too_short() {
    assert_eq!(malformed(b"mn\n").reply, text::BAD_FORMAT);
    assert_eq!(request(b"mn\r\n"), Request::NoOp);
}

#[test]
fn an_error_in_a_meta_store_swallows_its_value() {
    for (input, reply) in [
        ("ms k 10 s s", text::META_DUPLICATE_FLAG),
        ("ms k 10 MQ", text::META_STORE_BAD_MODE),
        ("ms k 10 Mset", text::META_STORE_BAD_MODE),
        ("ms k 10 M", text::META_STORE_BAD_MODE),
        ("ms k 10 F+1", text::BAD_FORMAT),
        ("ms k 10 !", text::BAD_FORMAT),
        ("ms k 10 Cx", text::META_BAD_TOKEN),
        ("ms k 10 O12345678901234567890123456789012", text::META_OPAQUE_TOO_LONG),
    ] {
        let got = malformed(format!("{input}\r\nab").as_bytes());
        assert_eq!((got.reply, got.consumed, got.swallow), (reply, input.len() + 2, 12), "{input}");
    }
}

#[test]
fn a_value_without_its_line_end_is_dropped() {
    let got = malformed(b"set k 0 0 1\r\nabc\r\n");
    assert_eq!((got.reply, got.consumed), (text::BAD_CHUNK, 16));
    let got = malformed(b"ms k 1 q\r\nabc\r\n");
    assert_eq!((got.reply, got.consumed), (text::BAD_CHUNK, 13));
}

#[test]
fn flags_and_expiry_of_a_store_are_cut_as_memcached_cuts_them() {
    for line in ["set k 4294967297 4294967298 1", "set k +1 +2 1", "set k \t1 2\t 1"] {
        match request(format!("{line}\r\na\r\n").as_bytes()) {
            Request::Store(store) => {
                assert_eq!((store.flags, store.exptime, store.value), (1, Exptime(2), Value::Whole(b"a")));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_zero_byte_ends_the_words_of_a_line() {
    let (got, consumed) = command(b"get a\0 b\r\n");
    assert_eq!((got.request, consumed), (Request::Get(Get::plain(Key::Plain(b"a"))), 10));
    assert_eq!(got.line_end_bytes, 5);
}

#[test]
fn http_is_hung_up_on() {
    for input in [&b"POST / HTTP/1.1\r\n"[..], b"OPTIONS * HTTP/1.0\n", b"delete_ / HTTP/1.1\r\n"] {
        let got = malformed(input);
        assert_eq!((got.reply, got.close), (text::NOTHING, true));
    }
    assert!(!malformed(b"HTTP/1.1\r\n").close);
}

#[test]
fn endless_lines_are_bounded() {
    assert_eq!(parse(&[b'x'; 2048], &LIMITS), Parsed::NeedMore);
    let got = malformed(&[b'x'; 2049]);
    assert_eq!((got.reply, got.close), (text::NOTHING, true));
    let mut keys = b"gets ".to_vec();
    keys.resize(LIMITS.line_bytes_max, b'x');
    assert_eq!(parse(&keys, &LIMITS), Parsed::NeedMore);
    keys.push(b'x');
    let got = malformed(&keys);
    assert_eq!((got.reply, got.close), (text::LINE_TOO_LONG, true));
    let mut spaces = vec![b' '; 101];
    spaces.extend(b"get ");
    spaces.resize(2049, b'x');
    assert!(malformed(&spaces).close);
}

#[test]
fn a_setting_cannot_end_its_line() {
    let mut tx = Vec::new();
    compose::stat(&mut tx, "name", &"a\r\nEND\r\n");
    assert_eq!(tx, b"STAT name a  END  \r\n");
}

const WORDS: &str = "get gets gat set add cas append delete incr decr touch flush_all stats version verbosity quit \
    mg ms md ma me mn noreply 0 1 -1 3 99999999999 k key2 s v b T30 N0 O1 C1 MS F1 q \r\n \n abc \0";

fn near_commands() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(WORDS.split(' ').collect::<Vec<_>>()), 0..40)
        .prop_map(|words| words.join(" ").replace(" \r\n ", "\r\n").into_bytes())
}

/// Walks over `input` and checks that every step makes progress within bounds.
fn walk(input: &[u8]) {
    let limits = Limits { value_bytes_max: 1000, line_bytes_max: 4096 };
    let mut rest = input;
    loop {
        let (consumed, close) = match parse(rest, &limits) {
            Parsed::NeedMore => {
                assert!(rest.len() <= limits.line_bytes_max && !rest.contains(&b'\n'));
                return;
            }
            Parsed::Malformed(malformed) => (malformed.consumed, malformed.close),
            Parsed::Request { command, consumed } => {
                let mut buffer = KeyBuffer::default();
                if let Some(key) = command.request.key() {
                    assert!((1..=250).contains(&key.bytes(&mut buffer).len()));
                }
                (consumed, false)
            }
        };
        assert!((1..=rest.len()).contains(&consumed));
        if close {
            return;
        }
        rest = &rest[consumed..];
    }
}

proptest! {
    #[test]
    fn random_bytes_make_progress_and_never_panic(input in prop::collection::vec(any::<u8>(), 0..6000)) {
        walk(&input);
    }

    #[test]
    fn what_is_nearly_a_command_makes_progress_too(input in near_commands()) {
        walk(&input);
    }

    #[test]
    fn what_was_read_does_not_depend_on_what_follows(input in near_commands(), more in near_commands()) {
        let longer = [&input[..], &more[..]].concat();
        if let Parsed::Malformed(first) = parse(&input, &LIMITS) {
            prop_assert_eq!(parse(&longer, &LIMITS), Parsed::Malformed(first));
        }
        if let Parsed::Request { command, consumed } = parse(&input, &LIMITS)
            && !matches!(command.request, Request::Store(Store { value: Value::Pending { .. }, .. }))
        {
            prop_assert_eq!(parse(&longer, &LIMITS), Parsed::Request { command, consumed });
        }
    }
}
