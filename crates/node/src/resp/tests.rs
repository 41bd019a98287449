//! The same bytes give the same replies however they are split and whatever is large.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::limits::SLICE_BYTES;
use minos_engine::{CacheMode, Engine, Mode, StoreConfig, StoreMode};
use minos_proto::resp::Limits;
use minos_sched::WorkerId;

use super::{RespSession, serve::CHECKED};
use crate::{
    memcache::harness::{Session, UpTo},
    ops::{Context, Next},
    rack::{
        Rack, RackView,
        config::{RackConfig, RackFabric, RackNode},
    },
    server::pause::{Pause, Paused},
};

const MICRO_SHARDS: u32 = 64;

/// Calls `f` as a worker of one of the two nodes of a rack does, with a key of this node and one of the other.
pub(super) fn in_rack_of_two(
    f: impl FnOnce(&mut Context<'_, StoreMode, UpTo>, &RackView<StoreMode>, [&str; 2]),
) {
    let node = |number: u32| RackNode {
        unit: number,
        address: minos_net::Address::Unix(format!("/{number}").into()),
        native: None,
    };
    let config = RackConfig {
        name: "test".to_owned(),
        node: 0,
        nodes: vec![node(0), node(1)],
        micro_shards: MICRO_SHARDS,
        timeout: Duration::from_secs(1),
        waiting_max: 8,
        managed: None,
        secrets: Vec::new(),
        fabric: RackFabric::Mapped,
    };
    let store = StoreConfig { micro_shards: MICRO_SHARDS, ..StoreConfig::new(8 << 20) };
    let rack = Arc::new(Rack::new(config, 1));
    rack.settle(&Engine::<StoreMode>::create(&store).unwrap()).unwrap();
    let mut session = Session::<StoreMode>::new(1000);
    let view = RackView::new(Arc::clone(&rack), &session.clock, Arc::default());
    let key_of =
        |node| (0..).map(|number| format!("key{number}")).find(|key| rack.reader(key.as_bytes()) == node);
    let keys = [0, 1].map(|node| key_of(node).unwrap());
    session.in_rack(&view, |cx| f(cx, &view, keys.each_ref().map(String::as_str)));
}

fn session<M: Mode>(here_bytes_max: u64) -> Session<M> {
    let limits = Limits { bulk_bytes_max: 1000, command_bytes_max: 2000 };
    let mut session = Session::new(here_bytes_max);
    session.resp = Some(RespSession::new(limits, SLICE_BYTES, 7, None));
    session
}

/// Commands as arrays of their words.
fn arrays(commands: &[&str]) -> Vec<u8> {
    let array = |command: &&str| {
        let words: Vec<&str> = command.split(' ').collect();
        let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), bulks.collect::<String>())
    };
    commands.iter().flat_map(|command| array(command).into_bytes()).collect()
}

/// Small and large values, options behind values, errors, refused values, transactions, and lines of words.
fn script() -> Vec<u8> {
    let large = "0123456789".repeat(30);
    let too_long = "x".repeat(1900);
    let mut script = arrays(&[
        "set a 1",
        &format!("set big {large}"),
        "mget a big none big a",
        &format!("set big {large}! xx get keepttl"),
        &format!("set none {large} XX GET"),
        &format!("set none {large} nx xx"),
        &format!("setnx big {large}"),
        &format!("getset big {large}?"),
        &format!("setex big 0 {large}"),
        &format!("setex big 1000 {large}"),
        "append big more",
        "strlen big",
        "getrange big 290 -1",
        "incrby a 41",
        "getdel big",
        "bogus",
        "client reply skip",
        &format!("set a {large}"),
        "get a",
        "multi",
        "incr n",
        &format!("set big {large}"),
        "get big",
        "get",
        "exec",
        "multi",
        "incr n",
        "mset x 1 y 2",
        &format!("append x {large}"),
        "mget n x y",
        "exec",
    ]);
    // Refused with what follows it.
    script.extend(b"*4\r\n$3\r\nset\r\n$0\r\n\r\n$300\r\n");
    script.extend(format!("{large}\r\n$2\r\nNX\r\n").as_bytes());
    // Redis does not look at the bytes in the place of the line end.
    script.extend(format!("*3\r\n$3\r\nset\r\n$1\r\na\r\n$300\r\n{large}??").as_bytes());
    script.extend(b"*0\r\n\r\n  get  n \r\nset q \"a b\\x41\" EX 100\r\nget q\n");
    script.extend(arrays(&["hello 3", "get none", "client getname", "reset", "get none", "quit", &too_long]));
    script
}

fn replies<M: Mode>(mut session: Session<M>, pieces: &[&[u8]]) -> String {
    let replies: Vec<u8> = pieces.iter().flat_map(|piece| session.send(piece)).collect();
    assert_eq!(session.store.check(), Ok(()));
    assert!(session.is_closed);
    String::from_utf8(replies).unwrap()
}

#[test]
fn splits_change_nothing() {
    let script = script();
    for here_bytes_max in [100, 2000] {
        let expected = replies(session::<StoreMode>(here_bytes_max), &[&script]);
        assert!(expected.contains("*4\r\n:1\r\n+OK\r\n:301\r\n*3\r\n"), "{expected}");
        for at in 0..script.len() {
            let (first, second) = script.split_at(at);
            assert_eq!(
                replies(session::<StoreMode>(here_bytes_max), &[first, second]),
                expected,
                "split at {at}"
            );
        }
        let bytes: Vec<&[u8]> = script.chunks(1).collect();
        assert_eq!(replies(session::<CacheMode>(here_bytes_max), &bytes), expected, "byte by byte");
    }
}

#[test]
fn placement_changes_nothing() {
    let script = script();
    let expected = replies(session::<StoreMode>(2000), &[&script]);
    for here_bytes_max in [0, 3, 299, 300] {
        for home in [None, Some(WorkerId(1))] {
            let mut session = session::<StoreMode>(here_bytes_max);
            session.placement.home = home;
            assert_eq!(replies(session, &[&script]), expected, "{here_bytes_max} {home:?}");
        }
    }
}

#[test]
fn commands_that_go_through_large_values_are_given_away_once() {
    let mut session = session::<StoreMode>(1000);
    session.placement.home = Some(WorkerId(1));
    let mut given = |command: &str| {
        let before = session.given;
        let said = session.send(arrays(&command.split("; ").collect::<Vec<_>>()));
        (String::from_utf8(said).unwrap(), session.given - before)
    };
    for (command, reply, times) in [
        ("setrange k 10 x", ":11\r\n", 0),
        ("setrange k 5000 x", ":5001\r\n", 1),
        ("setbit k 3 1", ":0\r\n", 1),
        ("setbit k 3 1; append k yz; bitcount k; getrange k -2 -1", ":1\r\n:5003\r\n:19\r\n$2\r\nyz\r\n", 4),
        ("getrange k 0 9; getbit k 3; strlen k", "$10\r\n\x10\0\0\0\0\0\0\0\0\0\r\n:1\r\n:5003\r\n", 0),
        ("copy k l; rename l m; strlen m", ":1\r\n+OK\r\n:5003\r\n", 2),
        // A transaction goes there as a whole, also for a value that it makes, or only watches.
        ("multi; setbit k 3 0; getbit k 3; exec", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:0\r\n", 1),
        ("multi; setrange n 3000 x; exec", "+OK\r\n+QUEUED\r\n*1\r\n:3001\r\n", 1),
        ("watch k; multi; incr i; exec", "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:1\r\n", 1),
        ("multi; setbit k 0 1; discard", "+OK\r\n+QUEUED\r\n+OK\r\n", 0),
        ("multi; incr i; setrange s 5 x; exec", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n:6\r\n", 0),
        ("exec", "-ERR EXEC without MULTI\r\n", 0),
    ] {
        assert_eq!(given(command), (reply.to_owned(), times), "{command}");
    }
}

#[test]
fn a_command_that_is_given_away_has_not_begun() {
    in_rack_of_two(|cx, _, [own, other]| {
        cx.placement.home = Some(WorkerId(1));
        let mut session = RespSession::new(CHECKED, SLICE_BYTES, 7, None);
        let mut tx = Vec::new();
        let mut serve = |session: &mut RespSession, key: &str| {
            let input = arrays(&[&format!("setrange {key} 5000 x")]);
            let (used, next) = super::serve(cx, session, &input, &mut 64, &mut tx);
            (used == input.len(), next, std::mem::take(&mut tx))
        };
        assert!(matches!(serve(&mut session, own), (false, Next::Owner(WorkerId(1)), _)));
        // It waits if a pause has begun meanwhile: who asked for that was told that nothing changes any more.
        session.set_pause(Some(Pause { paused: Paused::Writes, until: Instant::now() }));
        assert!(matches!(serve(&mut session, own), (false, Next::Unpaused, _)));
        session.set_pause(None);
        let (_, next, said) = serve(&mut session, own);
        assert!(matches!(next, Next::Continue) && said == b":5001\r\n");
        // It follows its key to another node.
        assert!(matches!(serve(&mut session, own), (false, Next::Owner(_), _)));
        let (_, next, said) = serve(&mut session, other);
        assert!(matches!(next, Next::Forward(_)), "{}", String::from_utf8_lossy(&said));
    });
}

#[test]
fn a_visit_goes_through_a_bounded_number_of_bytes() {
    let mut session = session::<StoreMode>(1000);
    for (bytes, pauses) in [(5000, 0), (60_000, 7), (1_000_000, 63)] {
        session.send(arrays(&[&format!("setrange k {} x", bytes - 1)]));
        session.pauses = 0;
        assert_eq!(session.send(arrays(&["setbit k 0 0"; 64])), b":0\r\n".repeat(64), "{bytes}");
        assert_eq!(session.pauses, pauses, "{bytes}");
    }
}

#[test]
fn descriptions_are_not_composed_without_bound() {
    let mut session = session::<StoreMode>(2000);
    for words in ["command info", "command docs"] {
        assert!(session.send(arrays(&[&format!("{words} get")])).starts_with(b"*"), "{words}");
        let said = session.send(arrays(&[&format!("{words}{}", " client".repeat(20))]));
        assert_eq!(said, b"-ERR the reply would be longer than --max-buffer\r\n", "{words}");
    }
    assert!(session.send(arrays(&["command docs"])).len() > 2000, "what is not repeated has its bound");
}

#[test]
fn long_replies_of_transactions_take_memory_until_they_are_sent() {
    let mut session = session::<StoreMode>(2000);
    session.resp.as_mut().unwrap().limits.command_bytes_max = 1 << 20;
    session.send(arrays(&[&format!("set big {}", "v".repeat(900))]));
    let transaction = |reads: usize| {
        let mut commands = vec!["multi", "incr n"];
        commands.extend(vec!["get big"; reads]);
        arrays(&[&commands[..], &["exec"]].concat())
    };
    let long = transaction(SLICE_BYTES / 900 + 1);
    assert!(session.send(&long).len() > SLICE_BYTES);
    let taken = session.take_receiving();
    assert!(taken.is_some());
    let refused = session.send(&long);
    assert!(refused.ends_with(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"));
    // Short ones do not, and what was refused changed nothing.
    assert!(session.send(transaction(0)).ends_with(b"*1\r\n:2\r\n"));
    drop(taken);
    assert!(session.send(&long).len() > SLICE_BYTES);
    // The last ones are sent.
    assert!(session.send(&long).len() > SLICE_BYTES);
}

#[test]
fn many_keys_pause_and_go_on() {
    let mut session = session::<StoreMode>(2000);
    session.resp.as_mut().unwrap().limits.command_bytes_max = 1 << 20;
    session.keys_max = 10;
    let set: Vec<String> = (0..95).map(|number| format!("key{number} {number}")).collect();
    assert_eq!(session.send(arrays(&[&format!("mset {}", set.join(" "))])), b"+OK\r\n");
    let keys: Vec<String> = (0..95).map(|number| format!("key{number}")).collect();
    let got = String::from_utf8(session.send(arrays(&[&format!("mget {}", keys.join(" "))]))).unwrap();
    let values: String =
        (0..95).map(|number| format!("${}\r\n{number}\r\n", number.to_string().len())).collect();
    assert_eq!(got, format!("*95\r\n{values}"));
    assert!(session.pauses >= 9, "{}", session.pauses);
    for command in ["exists", "touch", "del"] {
        let said = session.send(arrays(&[&format!("{command} {} none", keys.join(" "))]));
        assert_eq!(said, b":95\r\n", "{command}");
    }
}

/// Slow enough in between for the item to expire, which others see at its millisecond.
#[test]
fn no_item_expires_within_a_transaction() {
    let mut session = session::<StoreMode>(1 << 20);
    session.resp.as_mut().unwrap().limits.command_bytes_max = 1 << 20;
    assert_eq!(session.send(arrays(&["setrange big 999999 x", "bitcount big"])), b":1000000\r\n:4\r\n");
    let slow = ["bitcount big"; 200];
    let ends = ["get lease", "get made", "pttl made"];
    let commands = [&["multi", "set made v px 2"], &ends[..], &slow, &ends, &["exec"]].concat();
    for px in 1..=10 {
        session.now = session.clock.seconds();
        session.send(arrays(&[&format!("set lease v px {px}")]));
        let begun = Instant::now();
        let said = String::from_utf8(session.send(arrays(&commands))).unwrap();
        assert!(begun.elapsed() > Duration::from_millis(2), "the control");
        let replies = said.split_once("*207\r\n+OK\r\n").unwrap().1;
        let (front, back) = replies.split_once(&":4\r\n".repeat(slow.len())).unwrap();
        assert_eq!(front, back, "{px}");
        assert!(front.ends_with("$1\r\nv\r\n:2\r\n"), "{px}: {front}");
        session.now = session.clock.seconds();
        assert_eq!(session.send(arrays(&["get made"])), b"$-1\r\n", "{px}");
    }
}

#[test]
fn a_random_key_is_found_if_there_is_one() {
    let mut session = session::<StoreMode>(1000);
    session.resp.as_mut().unwrap().limits.command_bytes_max = 1 << 20;
    let keys: Vec<String> = (0..40_000).map(|number| format!("key{number}")).collect();
    for some in keys.chunks(1000) {
        let items: String = some.iter().map(|key| format!(" {key} v")).collect();
        assert_eq!(session.send(arrays(&[&format!("mset{items}")])), b"+OK\r\n");
    }
    for some in keys[1..].chunks(1000) {
        session.send(arrays(&[&format!("del {}", some.join(" "))]));
    }
    session.pauses = 0;
    for _ in 0..50 {
        assert_eq!(session.send(arrays(&["randomkey"])), b"$4\r\nkey0\r\n");
    }
    assert!(session.pauses >= 50, "others are served meanwhile: {}", session.pauses);
    let transaction = session.send(arrays(&["multi", "randomkey", "exec"]));
    assert!(transaction.ends_with(b"*1\r\n$4\r\nkey0\r\n"));
    // One that has expired is none.
    session.send(arrays(&["pexpire key0 1"]));
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(session.send(arrays(&["randomkey"])), b"$-1\r\n");
    session.send(arrays(&["del key0"]));
    assert_eq!(session.send(arrays(&["randomkey"])), b"$-1\r\n");
}
