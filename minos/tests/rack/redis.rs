//! Redis' clients of a rack: one store from any node, and exact counts while micro-shards move.

mod all;
#[path = "../resp_differential/cold.rs"]
mod cold;
mod keys;
mod tracking;
#[path = "../resp_differential/wire.rs"]
mod wire;

use minos_testkit::Over;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;
use wire::{Connection, Reply, array};

use crate::{
    ports::free_ports,
    up::{PATIENCE, Rack, insist, stat},
};

const COUNTERS: usize = 6;
/// Moves of every counter's micro-shard.
const ROUNDS: usize = 30;
/// The same above flash, which is read once for each.
const COLD_ROUNDS: usize = 10;
/// Keys of one command, of more micro-shards of a node than commands may be under way to it.
const MANY: usize = 5000;
/// Keys that are on flash.
const COLD_KEYS: usize = 120;

/// A rack, and the addresses of its nodes for Redis' clients.
fn rack(nodes: usize, options: &[&str]) -> (Rack, Vec<SocketAddr>) {
    let first = free_ports(nodes);
    let rack = Rack::up(nodes, &[&["--resp", &first.to_string()], options].concat());
    (rack, (0..nodes as u16).map(|node| SocketAddr::from(([127, 0, 0, 1], first + node))).collect())
}

/// Two nodes above flash, in the folder.
fn rack_above_flash(folder: &TempDir, unit_size: &str) -> (Rack, Vec<SocketAddr>) {
    let flash = format!("{}:64m", folder.path().display());
    let options = ["--unit-size", unit_size, "--memory", cold::MEMORY, "--flash", &flash];
    rack(2, &[&options[..], &["--", "--max-item-size=64k"]].concat())
}

/// Items that its nodes have read from flash.
fn cold_reads(rack: &Rack) -> u64 {
    (0..2).map(|node| cold::reads(&mut rack.client(node))).sum()
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

/// A number of a command in `INFO commandstats`, such as how often it was executed.
fn stat_of(client: &mut Connection, name: &str, field: &str) -> u64 {
    let Reply::Bulk(text) = client.say(&["info", "commandstats"]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let mut line = text.lines().filter_map(|line| line.strip_prefix(&format!("cmdstat_{name}:")));
    let mut fields = line.next().into_iter().flat_map(|line| line.split(','));
    let number = fields.find_map(|known| known.strip_prefix(&format!("{field}=")));
    number.map_or(0, |number| number.parse().unwrap())
}

/// Each key, and itself as its value.
fn pairs(keys: &[String]) -> Vec<String> {
    keys.iter().flat_map(|key| [key.clone(), key.clone()]).collect()
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

/// The rights of a user hold when a transaction is executed, also by another node, which does not know the user.
#[test]
fn a_transaction_has_the_rights_of_its_end() {
    let folder = TempDir::with_prefix("minos-users-").unwrap();
    let users = folder.path().join("users");
    let text = ["root", "app", "default"].map(|name| format!("user {name} on nopass ~* +@all\n")).concat();
    std::fs::write(&users, text).unwrap();
    let (_rack, nodes) = rack(2, &["--", &format!("--acl={}", users.display())]);
    let [mut root, mut app] = [(); 2].map(|()| Connection::open(nodes[0]));
    assert_eq!([root.say(&["auth", "root", "x"]), app.say(&["auth", "app", "x"])], [ok(), ok()]);
    let queue = |app: &mut Connection, key: &str| {
        for command in [&["multi"][..], &["get", key], &["set", key, "new"]] {
            assert!(matches!(app.say(command), Reply::Simple(_)));
        }
    };
    for key in list("k", 16) {
        assert_eq!(root.say(&["set", &key, "old"]), ok());
        queue(&mut app, &key);
        assert_eq!(app.say(&["exec"]), Reply::Elements(b'*', vec![bulk("old"), ok()]), "the control");
        assert_eq!(root.say(&["set", &key, "old"]), ok());
        queue(&mut app, &key);
        assert_eq!(root.say(&["acl", "setuser", "app", "resetkeys", "~other"]), ok());
        // On this node each command is refused, for another one all of them together.
        let refusals = match app.say(&["exec"]) {
            Reply::Elements(b'*', replies) => replies,
            reply => vec![reply],
        };
        let is_refused = |reply: &Reply| matches!(reply, Reply::Error(text) if text.contains("NOPERM"));
        assert!(refusals.iter().all(is_refused), "{key}: {refusals:?}");
        assert_eq!(root.say(&["get", &key]), bulk("old"));
        assert_eq!(root.say(&["acl", "setuser", "app", "allkeys"]), ok());
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
                assert!(matches!(client.say(&["incr", &key]), Reply::Error(_)));
                assert_eq!(client.say(&["getdel", &key]), bulk("x"));
            }
            let large = "0123456789".repeat(100_000);
            for key in list("large", 6) {
                assert_eq!(client.say(&["set", &key, &large]), ok());
                assert_eq!(client.say(&["get", &key]), bulk(&large));
                assert_eq!(client.say(&["getrange", &key, "999990", "-1"]), bulk("0123456789"));
                assert_eq!(client.say(&["unlink", &key]), Reply::Integer(1));
            }
            // Each command counts once, where it was asked for.
            let calls = [("del", 1), ("mset", 1), ("mget", 1), ("append", 12), ("get", 66), ("set", 38)];
            assert_eq!(calls.map(|(name, _)| (name, stat_of(client, name, "calls"))), calls);
            assert_eq!(["calls", "failed_calls"].map(|field| stat_of(client, "incr", field)), [12, 12]);
        }
        assert_eq!(clients[0].say(&["flushall"]), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.say(&["dbsize"]), Reply::Integer(0)));
    }
}

#[test]
fn a_command_may_have_many_keys() {
    for options in [&[][..], &["--unit-size", "1"]] {
        let (rack, nodes) = rack(3, options);
        let keys = list("k", MANY);
        let count = Reply::Integer(MANY as i64);
        for (number, node) in nodes.iter().enumerate() {
            let mut client = Connection::open(*node);
            assert_eq!(say_with(&mut client, "mset", &pairs(&keys)), ok());
            let forwarded = || stat(&mut rack.client(number), "forwarded");
            let before = forwarded();
            assert_eq!(say_with(&mut client, "exists", &keys), count);
            // Those of each other node are about a third, in parts of 512.
            assert!((6..=10).contains(&(forwarded() - before)), "{}", forwarded() - before);
            let values = keys.iter().map(bulk).collect();
            assert_eq!(say_with(&mut client, "mget", &keys), Reply::Elements(b'*', values));
            assert_eq!(say_with(&mut client, if number == 0 { "del" } else { "unlink" }, &keys), count);
            assert_eq!(client.say(&["dbsize"]), Reply::Integer(0));
        }
    }
}

/// Sets keys, counts them, and deletes them, until it is over. All counts are exact.
fn set_count_and_delete(node: SocketAddr, keys: &[String], is_over: &AtomicBool) {
    let mut client = Connection::open(node);
    while !is_over.load(Relaxed) {
        assert_eq!(say_with(&mut client, "mset", &pairs(keys)), ok());
        for command in ["exists", "del"] {
            assert_eq!(say_with(&mut client, command, keys), Reply::Integer(keys.len() as i64), "{command}");
        }
    }
}

#[test]
fn commands_with_many_keys_are_exact_while_micro_shards_move() {
    for options in [&[][..], &["--unit-size", "1"]] {
        let (rack, nodes) = rack(3, options);
        let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
        let all = [list("a", MANY / 5), list("b", MANY / 5)];
        let not_owner = || (0..3).map(|node| stat(&mut rack.client(node), "not_owner")).sum::<u64>();
        thread::scope(|scope| {
            for (node, keys) in nodes.iter().zip(&all) {
                let is_over = &is_over;
                scope.spawn(move || set_count_and_delete(*node, keys, is_over));
            }
            let _over = Over(&is_over);
            // So often that parts have met nodes which do not own all their keys any more.
            for round in 0.. {
                if round >= ROUNDS && not_owner() > 0 || begun.elapsed() > PATIENCE {
                    break;
                }
                for (at, key) in all.concat().iter().enumerate().skip(round % 50).step_by(50) {
                    rack.operate(&format!("move {} {}", rack.micro_shard(key), (at + round) % 3));
                }
                rack.wait_until_at_rest();
            }
        });
        assert!(not_owner() > 0, "the control: no part has come to a node without all its keys");
    }
}

#[test]
fn commands_with_many_keys_wait_for_others_under_way() {
    const WAITING_MAX: usize = 4;
    let waiting = format!("--rack-waiting={WAITING_MAX}");
    let (rack, nodes) = rack(2, &["--unit-size=1", "--workers=1", "--", &waiting]);
    let keys = list("k", 100);
    let mut clients: Vec<_> = (0..=2 * WAITING_MAX).map(|_| Connection::open(nodes[0])).collect();
    assert_eq!(say_with(&mut clients[0], "mset", &pairs(&keys)), ok());
    rack.signal(1, Signal::STOP);
    let words = ["exists"].into_iter().chain(keys.iter().map(String::as_str));
    let exists = array(&words.map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
    clients.iter_mut().for_each(|client| client.send(&exists, usize::MAX));
    let (begun, counted) = (Instant::now(), |name| stat(&mut rack.client(0), name));
    // As many are under way, as many wait, and one is refused.
    while counted("forward_refused") == 0 && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(counted("forward_parked") >= WAITING_MAX as u64);
    rack.signal(1, Signal::CONT);
    let replies: Vec<_> = clients.iter_mut().map(|client| client.reply().unwrap()).collect();
    let refused = Reply::Error("ERR too many commands for node 1 of the rack".to_owned());
    assert_eq!(replies.iter().filter(|reply| **reply == refused).count(), 1, "{replies:?}");
    let counts = replies.iter().filter(|reply| **reply == Reply::Integer(keys.len() as i64));
    assert_eq!(counts.count(), 2 * WAITING_MAX, "{replies:?}");
}

/// The value of a key on flash; some are long.
fn cold_value(number: usize) -> String {
    format!("value {number} ").repeat(if number.is_multiple_of(10) { 3000 } else { 20 })
}

/// Sends all commands at once; returns their replies.
fn say_all(client: &mut Connection, commands: impl Iterator<Item = String>) -> Vec<Reply> {
    let words = |line: &String| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let commands: Vec<_> = commands.collect();
    client.send(&commands.iter().flat_map(|line| array(&words(line))).collect::<Vec<_>>(), usize::MAX);
    commands.iter().map(|line| client.reply().unwrap_or_else(|| panic!("no reply to {line}"))).collect()
}

/// True if flash was behind for longer than a command, or one of a transaction, waits: a busy machine.
fn is_behind(said: &Reply) -> bool {
    match said {
        Reply::Error(text) => text.starts_with("OOM"),
        Reply::Elements(_, replies) => replies.iter().any(is_behind),
        _ => false,
    }
}

/// The reply to a command, which is repeated while flash is behind.
fn change_cold(client: &mut Connection, words: &[&str]) -> Reply {
    insist(|| Ok(client.say(words)), |said| !matches!(said, Reply::Error(_)))
}

/// Commands for keys of both nodes, by one client or the other. All their keys are on flash.
type ColdStep = fn(&mut [Connection], &[String]);

const COLD_STEPS: [(&str, ColdStep); 6] = [
    ("get", |clients, keys| {
        let found = say_all(&mut clients[0], keys.iter().map(|key| format!("get {key}")));
        assert!(found.into_iter().enumerate().all(|(at, reply)| reply == bulk(cold_value(at))));
    }),
    ("mget", |clients, keys| {
        let values = (0..keys.len()).map(|at| bulk(cold_value(at))).collect();
        assert_eq!(say_with(&mut clients[1], "mget", keys), Reply::Elements(b'*', values));
    }),
    ("exists", |clients, keys| {
        let (count, keys) = (Reply::Integer(keys.len() as i64), [keys, &list("none", 9)].concat());
        assert_eq!(say_with(&mut clients[0], "exists", &keys), count);
    }),
    ("watch and exec", |clients, keys| {
        for (at, key) in keys.iter().enumerate() {
            let [client, other] = clients else { panic!("two clients") };
            let lines =
                [&format!("watch {key}"), "multi", &format!("strlen {key}"), &format!("append {key} !")];
            let execute = || {
                say_all(client, lines.iter().map(|&line| line.to_owned()));
                Ok(client.say(&["exec"]))
            };
            let bytes = cold_value(at).len() as i64;
            let done = Reply::Elements(b'*', vec![Reply::Integer(bytes), Reply::Integer(bytes + 1)]);
            assert_eq!(insist(execute, |said| !is_behind(said)), done);
            client.say(&["watch", key]);
            change_cold(other, &["append", key, "!"]);
            let lines = ["multi".to_owned(), format!("del {key}"), "exec".to_owned()];
            assert_eq!(say_all(client, lines.into_iter())[2], Reply::Null);
        }
    }),
    ("strlen and append", |clients, keys| {
        let lines = keys.iter().flat_map(|key| [format!("strlen {key}"), format!("append {key} ?")]);
        let replies = say_all(&mut clients[1], lines);
        for (at, (key, two)) in keys.iter().zip(replies.chunks(2)).enumerate() {
            let bytes = cold_value(at).len() as i64 + 2;
            assert_eq!(two[0], Reply::Integer(bytes));
            let appended = if is_behind(&two[1]) {
                &change_cold(&mut clients[1], &["append", key, "?"])
            } else {
                &two[1]
            };
            assert_eq!(*appended, Reply::Integer(bytes + 1));
        }
    }),
    ("del", |clients, keys| {
        let keys = [keys, &list("none", 9)].concat();
        assert_eq!(say_with(&mut clients[1], "del", &keys), Reply::Integer(keys.len() as i64 - 9));
    }),
];

#[test]
fn redis_clients_find_what_is_on_flash_at_every_node() {
    for unit_size in ["1", "2"] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (rack, nodes) = rack_above_flash(&folder, unit_size);
        let mut clients: Vec<_> = nodes.iter().map(|node| Connection::open(*node)).collect();
        let keys = list("k", COLD_KEYS);
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(change_cold(&mut clients[at % 2], &["set", key, &cold_value(at)]), ok());
        }
        for (turn, (what, step)) in COLD_STEPS.into_iter().enumerate() {
            cold::push_out(&mut clients[turn % 2]);
            let before = cold_reads(&rack);
            step(&mut clients, &keys);
            let reads = cold_reads(&rack) - before;
            assert!(reads >= COLD_KEYS as u64, "{what}: the control: {reads} items were read from flash");
            let left = if what == "del" { 0 } else { COLD_KEYS };
            assert_eq!(clients[turn % 2].say(&["dbsize"]), Reply::Integer(left as i64), "{what}");
            let mut expected: Vec<_> = keys[..left].iter().map(|key| key.as_bytes().to_vec()).collect();
            expected.sort();
            assert_eq!(scanned(&mut clients[turn % 2]), expected, "{what}");
        }
        cold::fill(&mut clients[0]);
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
fn pipelined_counts_and_scans_are_of_what_came_before() {
    let (_rack, nodes) = rack(3, &["--unit-size", "1"]);
    let mut client = Connection::open(nodes[0]);
    for _ in 0..100 {
        assert_eq!(client.say(&["flushall"]), ok());
        let sets = |name: &'static str| (0..20).map(move |number| format!("set {name}{number} x"));
        // The cursor of another node.
        let looks = ["dbsize", "scan 1 count 1000"].map(str::to_owned);
        let [count, scan] =
            looks.map(|look| [look].into_iter().chain(sets("k")).chain(["flushall".to_owned()]));
        assert_eq!(say_all(&mut client, count)[0], Reply::Integer(0));
        let Reply::Elements(_, found) = &say_all(&mut client, scan)[0] else { panic!("no array") };
        assert_eq!(found[1], Reply::Elements(b'*', Vec::new()));
    }
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

/// Sets keys, counts them, and deletes them, until it is over. Unless the reply is an error, a count is exact; `exact` is the
/// number of those.
fn set_and_delete(node: SocketAddr, exact: &AtomicU64, is_over: &AtomicBool) {
    let mut client = Connection::open(node);
    let keys = list("d", 20);
    let pairs: Vec<String> = keys.iter().flat_map(|key| [key.clone(), "x".repeat(1000)]).collect();
    while !is_over.load(Relaxed) {
        let is_set = say_with(&mut client, "mset", &pairs) == ok();
        cold::fill(&mut client);
        for command in ["exists", "del"] {
            match say_with(&mut client, command, &keys) {
                Reply::Integer(count) if is_set => {
                    assert_eq!(count, keys.len() as i64, "{command}");
                    exact.fetch_add(1, Relaxed);
                }
                // Some may be gone.
                Reply::Error(_) => break,
                _ => {}
            }
        }
    }
}

/// Counts by four clients while the micro-shards move, until that is enough after so many moves of each; another thread does
/// what `beside` does.
fn count_while_moving(
    (rack, nodes): &(Rack, Vec<SocketAddr>),
    is_enough: impl Fn(usize) -> bool,
    beside: impl Fn(&AtomicBool) + Sync,
) {
    let done: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
    let (doubtful, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| beside(&is_over));
        for (node, way) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let (node, done, doubtful, is_over) = (nodes[node], &done, &doubtful, &is_over);
            scope.spawn(move || count(node, way, done, doubtful, is_over));
        }
        let _over = Over(&is_over);
        for round in 0.. {
            if is_enough(round) {
                break;
            }
            for key in list("c", COUNTERS).iter().chain(&list("d", 20)) {
                rack.operate(&format!("move {} {}", rack.micro_shard(key), (round + 1) % 2));
            }
            rack.wait_until_at_rest();
        }
    });
    let mut client = Connection::open(nodes[0]);
    for (counter, done) in done.iter().enumerate() {
        let Reply::Bulk(value) = client.say(&["get", &format!("c{counter}")]) else { panic!("it is gone") };
        let value: u64 = String::from_utf8(value).unwrap().parse().unwrap();
        let (done, doubtful) = (done.load(Relaxed), doubtful.load(Relaxed));
        assert!(
            (done..=done + doubtful).contains(&value),
            "{counter}: {value} of {done}, {doubtful} in doubt"
        );
    }
}

#[test]
fn counts_are_exact_while_micro_shards_move() {
    for options in [&[][..], &["--unit-size", "1"]] {
        count_while_moving(&rack(2, options), |round| round == ROUNDS, |_| {});
    }
}

#[test]
fn counts_are_exact_while_cold_micro_shards_move() {
    for unit_size in ["1", "2"] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let both = rack_above_flash(&folder, unit_size);
        let (exact, test_begun) = (AtomicU64::new(0), Instant::now());
        // What has moved is in memory: the keys are to be pushed out of it in between.
        let is_enough = |round: usize| {
            let begun = Instant::now();
            while exact.load(Relaxed) < 2 * round as u64 {
                assert!(begun.elapsed() < PATIENCE, "no exact counts, {} cold reads", cold_reads(&both.0));
                thread::sleep(Duration::from_millis(1));
            }
            // They move while they are there, are in memory or on flash, are counted, or are deleted.
            thread::sleep(Duration::from_millis(round as u64 * 37 % 200));
            let cold_reads = cold_reads(&both.0);
            assert!(test_begun.elapsed() < 5 * PATIENCE, "{cold_reads} cold reads in round {round}");
            round >= COLD_ROUNDS && cold_reads >= 100
        };
        count_while_moving(&both, is_enough, |is_over| set_and_delete(both.1[0], &exact, is_over));
    }
}
