//! Redis' clients of a rack: one store from any node, and exact counts while micro-shards move.

#[path = "../resp_differential/wire.rs"]
mod wire;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use wire::{Connection, Reply, array};

use crate::up::{Rack, free_ports};

const COUNTERS: usize = 6;
/// Moves of every counter's micro-shard.
const ROUNDS: usize = 30;

/// A rack, and the addresses of its nodes for Redis' clients.
fn rack(nodes: usize, options: &[&str]) -> (Rack, Vec<SocketAddr>) {
    let first = free_ports(nodes);
    let rack = Rack::up(nodes, &[&["--resp", &first.to_string()], options].concat());
    (rack, (0..nodes as u16).map(|node| SocketAddr::from(([127, 0, 0, 1], first + node))).collect())
}

fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(text.as_ref().to_vec())
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn list(of: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{of}{number}")).collect()
}

/// Says a command with more words.
fn say_with(client: &mut Connection, command: &str, words: &[String]) -> Reply {
    let words: Vec<&str> = [command].into_iter().chain(words.iter().map(String::as_str)).collect();
    client.say(&words)
}

/// The keys of a whole scan, each once.
fn scanned(client: &mut Connection) -> Vec<Vec<u8>> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Elements(_, parts) = client.say(&["scan", &cursor, "count", "7"]) else {
            panic!("no keys")
        };
        let [Reply::Bulk(next), Reply::Elements(_, found)] = parts.as_slice() else { panic!("{parts:?}") };
        keys.extend(
            found.iter().map(|key| if let Reply::Bulk(key) = key { key.clone() } else { panic!("{key:?}") }),
        );
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
    }
}

#[test]
fn redis_clients_of_any_node_see_one_store() {
    const KEYS: usize = 60;
    for options in [&[][..], &["--unit-size", "1"]] {
        let (_rack, nodes) = rack(3, options);
        let mut clients: Vec<_> = nodes.iter().map(|node| Connection::open(*node)).collect();
        let keys = list("k", KEYS);
        for (number, key) in keys.iter().enumerate() {
            let value = format!("value {number}");
            assert_eq!(clients[number % 3].say(&["set", key, &value]), ok());
            clients.iter_mut().for_each(|client| assert_eq!(client.say(&["get", key]), bulk(&value)));
        }
        for client in &mut clients {
            let values = (0..KEYS).map(|number| bulk(format!("value {number}"))).collect();
            assert_eq!(say_with(client, "mget", &keys), Reply::Elements(b'*', values));
            assert_eq!(client.say(&["dbsize"]), Reply::Integer(KEYS as i64));
            assert_eq!(say_with(client, "exists", &list("k", KEYS + 5)), Reply::Integer(KEYS as i64));
            let mut expected: Vec<_> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            expected.sort();
            assert_eq!(scanned(client), expected);
            let pairs: Vec<String> =
                (0..KEYS).flat_map(|number| [format!("m{number}"), number.to_string()]).collect();
            assert_eq!(say_with(client, "mset", &pairs), ok());
            assert_eq!(say_with(client, "del", &list("m", KEYS + 5)), Reply::Integer(KEYS as i64));
            for key in list("n", 12) {
                assert_eq!(client.say(&["append", &key, "12"]), Reply::Integer(2));
                assert_eq!(client.say(&["incrbyfloat", &key, "0.5"]), bulk("12.5"));
                assert_eq!(client.say(&["set", &key, "x", "px", "100000", "get"]), bulk("12.5"));
                assert!(matches!(client.say(&["pttl", &key]), Reply::Integer(50_000..=100_000)));
                assert_eq!(client.say(&["getdel", &key]), bulk("x"));
            }
            let large = "0123456789".repeat(100_000);
            for key in list("large", 6) {
                assert_eq!(client.say(&["set", &key, &large]), ok());
                assert_eq!(client.say(&["get", &key]), bulk(&large));
                assert_eq!(client.say(&["getrange", &key, "999990", "-1"]), bulk("0123456789"));
                assert_eq!(client.say(&["unlink", &key]), Reply::Integer(1));
            }
        }
        let tracking = clients[0].say(&["client", "tracking", "on"]);
        assert!(matches!(tracking, Reply::Error(text) if text.contains("rack")));
        assert_eq!(clients[0].say(&["flushall"]), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.say(&["dbsize"]), Reply::Integer(0)));
    }
}

#[test]
fn pipelined_commands_for_a_key_keep_their_order() {
    let (_rack, nodes) = rack(2, &["--unit-size", "1"]);
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let mut client = Connection::open(nodes[0]);
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for number in 0..300 {
        let (key, value) = (format!("p{}", number % 5), number.to_string());
        for (command, reply) in [
            (words(&["set", &key, &value]), ok()),
            (words(&["get", &key]), bulk(&value)),
            (words(&["mget", &key, &key]), Reply::Elements(b'*', vec![bulk(&value), bulk(&value)])),
            (words(&["append", &key, "!"]), Reply::Integer(value.len() as i64 + 1)),
            (words(&["getset", &key, "x"]), bulk(format!("{value}!"))),
            (words(&["del", &key, "p5", "p6"]), Reply::Integer(1)),
        ] {
            bytes.extend(array(&command));
            expected.push(reply);
        }
    }
    client.send(&bytes, 1000);
    let replies: Vec<_> = expected.iter().map(|_| client.reply().unwrap()).collect();
    assert_eq!(replies, expected);
}

#[test]
fn transactions_are_executed_at_the_owner_of_their_keys() {
    let (_rack, nodes) = rack(3, &["--unit-size", "1"]);
    let mut clients: Vec<_> = nodes.iter().map(|node| Connection::open(*node)).collect();
    let say = |client: &mut Connection, line: &str| client.say(&line.split(' ').collect::<Vec<_>>());
    let mut divided = 0;
    for (number, key) in list("t", 20).iter().enumerate() {
        let [client, other] = clients.get_disjoint_mut([number % 3, (number + 1) % 3]).unwrap();
        for line in [format!("watch {key}"), "multi".to_owned(), format!("incr {key}"), format!("get {key}")]
        {
            say(client, &line);
        }
        assert_eq!(say(client, "exec"), Reply::Elements(b'*', vec![Reply::Integer(1), bulk("1")]));
        say(client, &format!("watch {key} {key}"));
        assert_eq!(say(other, &format!("set {key} 7")), ok());
        say(client, "multi");
        say(client, &format!("incr {key}"));
        assert_eq!(say(client, "exec"), Reply::Null);
        say(client, "multi");
        say(client, &format!("incr {key}"));
        say(client, &format!("incr u{number}"));
        match say(client, "exec") {
            Reply::Error(text) if text.starts_with("CROSSSLOT") => divided += 1,
            reply => assert_eq!(reply, Reply::Elements(b'*', vec![Reply::Integer(8), Reply::Integer(1)])),
        }
    }
    assert!((1..20).contains(&divided), "{divided}");
    say(&mut clients[0], "multi");
    say(&mut clients[0], "flushall");
    assert!(matches!(say(&mut clients[0], "exec"), Reply::Error(_)));
}

/// Counts up, one by one, in a pipeline, and by transactions, until it is over. A count that may be done is one too many at most.
fn count(node: SocketAddr, way: usize, done: &[AtomicU64], doubtful: &AtomicU64, is_over: &AtomicBool) {
    let mut client = Connection::open(node);
    let note = |counter: usize, reply: Option<Reply>| match reply {
        Some(Reply::Integer(_) | Reply::Elements(..)) => drop(done[counter].fetch_add(1, Relaxed)),
        Some(Reply::Null) => {}
        _ => drop(doubtful.fetch_add(1, Relaxed)),
    };
    for turn in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        let counter = (turn * 5 + way) % COUNTERS;
        let key = format!("c{counter}");
        let incr = array(&[b"incr".to_vec(), key.clone().into_bytes()]);
        if way == 0 {
            client.send(&incr.repeat(8), usize::MAX);
            (0..8).for_each(|_| note(counter, client.reply()));
            continue;
        }
        client.say(&["watch", &key]);
        let old = match client.say(&["get", &key]) {
            Reply::Bulk(old) => String::from_utf8(old).unwrap().parse::<u64>().unwrap(),
            _ => 0,
        };
        client.say(&["multi"]);
        client.say(&["set", &key, &(old + 1).to_string()]);
        note(counter, Some(client.say(&["exec"])));
    }
}

#[test]
fn counts_are_exact_while_micro_shards_move() {
    for options in [&[][..], &["--unit-size", "1"]] {
        let (rack, nodes) = rack(2, options);
        let done: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        let (doubtful, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for (node, way) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let (node, done, doubtful, is_over) = (nodes[node], &done, &doubtful, &is_over);
                scope.spawn(move || count(node, way, done, doubtful, is_over));
            }
            for round in 0..ROUNDS {
                for key in list("c", COUNTERS) {
                    rack.operate(&format!("move {} {}", rack.micro_shard(&key), (round + 1) % 2));
                }
                while !rack.operate("status").contains("moves 0\nwaiting 0\n") {
                    thread::yield_now();
                }
            }
            is_over.store(true, Relaxed);
        });
        let mut client = Connection::open(nodes[0]);
        for (counter, done) in done.iter().enumerate() {
            let Reply::Bulk(value) = client.say(&["get", &format!("c{counter}")]) else {
                panic!("it is gone")
            };
            let value: u64 = String::from_utf8(value).unwrap().parse().unwrap();
            let (done, doubtful) = (done.load(Relaxed), doubtful.load(Relaxed));
            assert!(
                (done..=done + doubtful).contains(&value),
                "{counter}: {value} of {done}, {doubtful} in doubt"
            );
        }
    }
}
