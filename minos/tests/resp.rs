//! Redis' protocol end to end, where a comparison with Redis tells nothing: large values, both protocols on the same items,
//! expiries within a second, transactions beside each other, bounds, and start-up.

mod common;
#[path = "resp_differential/wire.rs"]
mod wire;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Server};
use wire::{Connection, Reply, array};

/// A server for Redis' clients at its address, and its port for memcached's clients.
fn start(options: &[&str]) -> (Server, Client) {
    let memory = (!options.iter().any(|option| option.starts_with("--memory="))).then_some("--memory=256m");
    let options: Vec<&str> = memory.into_iter().chain(options.iter().copied()).collect();
    let (server, address) = common::start_with_resp(&options);
    (server, Client::connect(address).unwrap())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Sends a SET in two parts, so that its value is received into its place.
fn set_slowly(connection: &mut Connection, key: &str, value: &str, options: &[&str]) -> Reply {
    let bytes = array(&words(&[&["set", key, value], options].concat()));
    let cut = 60 + value.len() / 3;
    connection.send(&bytes[..cut], usize::MAX);
    thread::sleep(Duration::from_millis(20));
    // The options come in small pieces.
    let behind = bytes.len() - 10 * options.len();
    connection.send(&bytes[cut..behind], usize::MAX);
    for byte in &bytes[behind..] {
        connection.send(&[*byte], usize::MAX);
    }
    connection.reply().expect("a reply")
}

/// A page in a browser can send any bytes behind the head of a request.
#[test]
fn a_request_of_http_ends_the_connection() {
    let (server, _) = start(&[]);
    let mut client = Connection::open(server.address());
    let mut is_cut_off = |head: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&[head, b"\r\nSET k new\r\n"].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // A reset says the same.
        stream.read_to_end(&mut Vec::new()).ok();
        client.say(&["set", "k", "old", "get"]) == bulk("old")
    };
    assert!(!is_cut_off(b"PING"), "the control");
    for head in [
        &b"POST / HTTP/1.1\r\nHost: localhost\r\n"[..],
        b"GET / HTTP/1.1\r\nhOST: localhost\r\n",
        b"*1\r\n$4\r\npost",
    ] {
        assert!(is_cut_off(head), "{}", head.escape_ascii());
    }
}

#[test]
fn large_values_are_received_and_sent_with_all_options() {
    for options in [&["--threshold=1000"][..], &["--engine=store"], &["--dispatch=keyhash"]] {
        let (server, _) = start(options);
        let mut client = Connection::open(server.address());
        let large = |letter: &str| letter.repeat(1_000_000);
        assert_eq!(set_slowly(&mut client, "k", &large("a"), &[]), ok());
        assert_eq!(client.say(&["get", "k"]), bulk(&large("a")));
        assert_eq!(set_slowly(&mut client, "k", &large("b"), &["NX"]), Reply::Null);
        assert_eq!(
            set_slowly(&mut client, "k", &large("b"), &["XX", "GET", "EX", "1000"]),
            bulk(&large("a"))
        );
        assert_eq!(set_slowly(&mut client, "k", &large("c"), &["KEEPTTL"]), ok());
        assert!(matches!(client.say(&["ttl", "k"]), Reply::Integer(900..=1000)));
        assert_eq!(
            set_slowly(&mut client, "k", &large("d"), &["BAD"]),
            Reply::Error("ERR syntax error".to_owned())
        );
        assert_eq!(set_slowly(&mut client, "none", &large("d"), &["xx", "get"]), Reply::Null);
        let small = client.say(&["mget", "k", "none", "k"]);
        assert_eq!(small, Reply::Elements(b'*', vec![bulk(&large("c")), Reply::Null, bulk(&large("c"))]));
        assert_eq!(client.say(&["getset", "k", "small"]), bulk(&large("c")));
        assert_eq!(client.say(&["getdel", "k"]), bulk("small"));
        // Commands behind a large value keep their order.
        let all = [
            words(&["set", "k", &large("e")]),
            words(&["strlen", "k"]),
            words(&["get", "k"]),
            words(&["ping"]),
        ];
        client.send(&all.map(|command| array(&command)).concat(), 70_000);
        let replies: Vec<_> = (0..4).map(|_| client.reply().unwrap()).collect();
        assert_eq!(
            replies,
            [ok(), Reply::Integer(1_000_000), bulk(&large("e")), Reply::Simple("PONG".to_owned())]
        );
        common::stop(server);
    }
}

/// Commands through a value of so many bytes, which they make and delete.
fn go_through(client: &mut Connection, bytes: i64) {
    let number = Reply::Integer;
    let (last, middle) = ((bytes * 8 - 1).to_string(), (bytes / 2).to_string());
    assert_eq!(client.say(&["setbit", "k", &last, "1"]), number(0));
    assert_eq!(client.say(&["setbit", "k", &last, "1"]), number(1));
    assert_eq!(client.say(&["setrange", "k", &middle, "ab"]), number(bytes));
    assert_eq!(client.say(&["append", "k", "cd"]), number(bytes + 2));
    assert_eq!(client.say(&["bitcount", "k"]), number(1 + 3 + 3 + 4 + 3));
    let Reply::Bulk(range) = client.say(&["getrange", "k", &middle, "-1"]) else { panic!("no bulk string") };
    assert!(range.len() as i64 == bytes / 2 + 2 && range.starts_with(b"ab") && range.ends_with(b"\x01cd"));
    assert_eq!(client.say(&["getrange", "k", &middle, &middle]), bulk("a"));
    assert_eq!(client.say(&["getbit", "k", &last]), number(1));
    assert_eq!(client.say(&["del", "k"]), number(1));
}

#[test]
fn commands_that_go_through_large_values_are_executed_by_their_worker() {
    let (server, mut memcached) = start(&["--threshold=16k", "--max-item-size=16m"]);
    let mut client = Connection::open(server.address());
    let mut given = || {
        let stats = memcached.stats("minos").unwrap();
        let given = stats.iter().filter(|(name, _)| name.ends_with(":to_owner"));
        given.map(|(_, value)| value.parse::<u64>().unwrap()).sum::<u64>()
    };
    (0..20).for_each(|_| go_through(&mut client, 1000));
    assert_eq!(given(), 0, "the control");
    // That worker may also be the one that has found the command.
    let begun = Instant::now();
    while given() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no command was given to another worker");
        go_through(&mut client, 8 << 20);
    }
    // Behind one that is given away, a pipeline goes on.
    let commands = [
        &["set", "small", "1"][..],
        &["setrange", "k", "1000000", "x"],
        &["incr", "small"],
        &["multi"],
        &["append", "k", "y"],
        &["get", "small"],
        &["exec"],
        &["strlen", "k"],
    ];
    let pipeline: Vec<u8> = commands.iter().flat_map(|command| array(&words(command))).collect();
    client.send(&pipeline, usize::MAX);
    let replies: Vec<_> = commands.iter().map(|_| client.reply().expect("a reply")).collect();
    let (number, queued) = (Reply::Integer, || Reply::Simple("QUEUED".to_owned()));
    let both = Reply::Elements(b'*', vec![number(1_000_002), bulk("2")]);
    let expected = [ok(), number(1_000_001), number(2), ok(), queued(), queued(), both, number(1_000_002)];
    assert_eq!(replies, expected);
    let (before, begun) = (given(), Instant::now());
    while given() == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "no transaction was given to another worker");
        assert_eq!(client.say(&["multi"]), ok());
        assert_eq!(client.say(&["setbit", "k", "0", "1"]), queued());
        assert!(matches!(client.say(&["exec"]), Reply::Elements(b'*', _)));
    }
}

#[test]
fn both_protocols_have_the_same_items() {
    let (server, mut memcached) = start(&[]);
    let mut redis = Connection::open(server.address());
    assert_eq!(memcached.store("set k 7 0 5", b"hello").unwrap(), "STORED");
    assert_eq!(redis.say(&["append", "k", " world"]), Reply::Integer(11));
    let found = memcached.get("k").unwrap().unwrap();
    assert_eq!((found.flags, found.value.as_slice()), (7, b"hello world".as_slice()));
    assert_eq!(redis.say(&["set", "k", "1"]), ok());
    assert_eq!(memcached.ask("incr k 41").unwrap(), "42");
    assert_eq!(redis.say(&["incr", "k"]), Reply::Integer(43));
    common::stop(server);
}

#[test]
fn an_item_is_gone_at_its_millisecond() {
    let (server, _) = start(&[]);
    let mut client = Connection::open(server.address());
    for round in 0..5 {
        let begun = Instant::now();
        client.say(&["set", "k", "v", "px", "300"]);
        assert!(matches!(client.say(&["pttl", "k"]), Reply::Integer(..=300)), "round {round}");
        while client.say(&["get", "k"]) != Reply::Null {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(begun.elapsed() >= Duration::from_millis(299), "it went early");
        for gone in [["exists", "k"], ["strlen", "k"], ["del", "k"]] {
            assert_eq!(client.say(&gone), Reply::Integer(0));
        }
        assert_eq!(client.say(&["set", "k", "v", "nx", "px", "1"]), ok());
        thread::sleep(Duration::from_millis(3));
        assert_eq!(client.say(&["setnx", "k", "w"]), Reply::Integer(1));
    }
    common::stop(server);
}

/// Executes commands in one transaction, and returns their replies.
fn transaction(
    client: &mut Connection,
    front: &[&[&str]],
    between: &[Vec<&str>],
    back: &[&[&str]],
) -> Vec<Reply> {
    let between = between.iter().map(Vec::as_slice);
    let commands = front.iter().copied().chain(between).chain(back.iter().copied());
    let all: Vec<&[&str]> = [&["multi"][..]].into_iter().chain(commands).chain([&["exec"][..]]).collect();
    client.send(&all.iter().flat_map(|command| array(&words(command))).collect::<Vec<u8>>(), usize::MAX);
    let last = all.iter().map(|_| client.reply().unwrap()).last();
    let Some(Reply::Elements(_, replies)) = last else { panic!("{last:?}") };
    replies
}

/// Money moves between accounts in transactions of four clients; the sum, read in transactions too, is always the same.
#[test]
fn transactions_are_made_as_a_whole() {
    const ACCOUNTS: [&str; 4] = ["a", "b", "c", "d"];
    /// Commands between the changes: more than a visit to a connection serves, if they are served one by one.
    const BETWEEN: usize = 150;
    let (server, _) = start(&[]);
    let address = server.address();
    let mut client = Connection::open(address);
    client.say(&["mset", "a", "100", "b", "100", "c", "100", "d", "100"]);
    thread::scope(|scope| {
        for mover in 0..3_usize {
            scope.spawn(move || {
                let mut client = Connection::open(address);
                for round in 0..300 {
                    let (from, to) = (ACCOUNTS[(round + mover) % 4], ACCOUNTS[(round / 4 + 2 * mover) % 4]);
                    let between = vec![vec!["incr", "filler"]; BETWEEN];
                    let replies = transaction(&mut client, &[&["decr", from]], &between, &[&["incr", to]]);
                    assert_eq!(replies.len(), BETWEEN + 2);
                }
            });
        }
        scope.spawn(move || {
            let mut client = Connection::open(address);
            for _ in 0..300 {
                let between = vec![vec!["strlen", "other"]; BETWEEN];
                let accounts = ACCOUNTS.map(|key| ["get", key]);
                let [front, back] =
                    [&accounts[..2], &accounts[2..]].map(|some| some.iter().map(|get| &get[..]));
                let replies =
                    transaction(&mut client, &front.collect::<Vec<_>>(), &between, &back.collect::<Vec<_>>());
                let values = [&replies[..2], &replies[BETWEEN + 2..]].concat();
                let number = |reply: &Reply| match reply {
                    Reply::Bulk(text) => String::from_utf8_lossy(text).parse::<i64>().unwrap(),
                    other => panic!("{other:?}"),
                };
                assert_eq!(values.iter().map(number).sum::<i64>(), 400);
            }
        });
    });
    common::stop(server);
}

#[test]
fn a_reset_connection_has_its_changes_acknowledged_when_they_are_durable() {
    let folder = tempfile::TempDir::with_prefix("minos-reset-").unwrap();
    let flash = format!("--flash={}:64m", folder.path().join("flash").display());
    let options = ["--memory=4m", "--max-item-size=64k", "--engine=store", "--durability=flush", &flash];
    for round in 0..5 {
        let (server, _) = start(&options);
        let mut client = Connection::open(server.address());
        let key = format!("key{round}");
        let bytes = [array(&words(&["set", &key, "v"])), array(&words(&["reset"]))].concat();
        client.send(&bytes, usize::MAX);
        assert_eq!(client.reply(), Some(ok()));
        // A dropped server is killed.
        drop(server);
        let (server, _) = start(&options);
        assert_eq!(Connection::open(server.address()).say(&["get", &key]), bulk("v"), "round {round}");
        drop(server);
    }
}

/// Outside a transaction these are done in steps, between which others are served.
#[test]
fn a_transaction_does_in_one_step_what_takes_several_outside() {
    let (server, _) = start(&[]);
    let mut client = Connection::open(server.address());
    let pairs: Vec<String> = (0..300).flat_map(|number| [format!("key{number}"), "1".to_owned()]).collect();
    let set: Vec<&str> = ["mset"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
    let replies = transaction(&mut client, &[&set], &[vec!["client", "list"]], &[&["get", "key299"]]);
    assert!(
        matches!(&replies[..], [set, Reply::Bulk(_), get] if *set == ok() && *get == bulk("1")),
        "{replies:?}"
    );
    assert_eq!(client.say(&["multi"]), ok());
    assert!(matches!(client.say(&["client", "reply", "skip"]), Reply::Error(_)));
    assert!(matches!(client.say(&["exec"]), Reply::Error(text) if text.starts_with("EXECABORT")));
    common::stop(server);
}

/// The first change of a server has the first CAS unique, and so has the first one in a transaction.
#[test]
fn a_transaction_changes_an_item_whatever_its_unique() {
    let (server, _) = start(&["--partitions=1"]);
    let mut client = Connection::open(server.address());
    assert_eq!(client.say(&["set", "k", "old"]), ok());
    assert_eq!(transaction(&mut client, &[&["set", "k", "new"]], &[], &[]), [ok()]);
    assert_eq!(client.say(&["get", "k"]), bulk("new"));
    common::stop(server);
}

#[test]
fn a_key_that_finds_no_room_under_another_name_stays() {
    let (server, _) = start(&["--memory=64m"]);
    let mut client = Connection::open(server.address());
    assert_eq!(client.say(&["set", "k", "v"]), ok());
    let long = "l".repeat(60_000);
    assert!(matches!(client.say(&["rename", "k", &long]), Reply::Error(text) if text.starts_with("OOM")));
    assert!(
        matches!(client.say(&["mset", "m", "1", &long, "2"]), Reply::Error(text) if text.starts_with("OOM"))
    );
    assert_eq!((client.say(&["get", "k"]), client.say(&["get", "m"])), (bulk("v"), Reply::Null));
    common::stop(server);
}

#[test]
fn what_changes_nothing_is_no_change_to_who_watches() {
    let (server, _) = start(&[]);
    let [mut client, mut other] = [(); 2].map(|()| Connection::open(server.address()));
    for (before, between, is_same) in [
        (&["set", "k", "v", "px", "5"][..], &["ping"][..], true),
        (&["set", "k", "v"], &["getex", "k", "persist"], true),
        (&["setbit", "k", "0", "1"], &["setbit", "k", "0", "1"], true),
        (&["setbit", "k", "0", "1"], &["setbit", "k", "0", "0"], false),
        (&["set", "k", "v", "ex", "100"], &["getex", "k", "persist"], false),
    ] {
        client.say(&["del", "k"]);
        client.say(before);
        // The first one has expired, maybe within a second of the store's clock.
        thread::sleep(Duration::from_millis(10));
        assert_eq!(client.say(&["watch", "k"]), ok());
        other.say(between);
        assert_eq!(client.say(&["multi"]), ok());
        client.say(&["set", "k", "mine"]);
        let expected = if is_same { Reply::Elements(b'*', vec![ok()]) } else { Reply::Null };
        assert_eq!(client.say(&["exec"]), expected, "{before:?} {between:?}");
    }
    common::stop(server);
}

#[test]
fn bounds_are_told_and_the_connection_goes_on() {
    let (server, mut memcached) = start(&["--max-item-size=1m"]);
    let mut client = Connection::open(server.address());
    let long_key = "k".repeat(65_537);
    assert_eq!(
        client.say(&["get", &long_key]),
        Reply::Error("ERR key is longer than 65536 bytes".to_owned())
    );
    assert_eq!(client.say(&["set", "", "v"]), Reply::Error("ERR key is empty".to_owned()));
    let too_long = "v".repeat(500_000);
    for command in
        [&["append", "k", &too_long][..], &["mset", "k", &too_long, "l", "1"], &["set", &long_key, &too_long]]
    {
        client.send(&array(&words(command)), 30_000);
        assert!(matches!(client.reply(), Some(Reply::Error(_))), "{}", command[0]);
        assert_eq!(client.say(&["ping"]), Reply::Simple("PONG".to_owned()));
    }
    let stats = memcached.stats("").unwrap();
    assert!(stats.contains(&("resp_bad_keys".to_owned(), "3".to_owned())), "{stats:?}");
    let beyond = "v".repeat((1 << 20) + 1);
    client.send(&array(&words(&["set", "k", &beyond])), 30_000);
    assert_eq!(client.reply(), Some(Reply::Error("ERR Protocol error: invalid bulk length".to_owned())));
    common::stop(server);
}

#[test]
fn a_small_largest_value_bounds_no_keys_and_no_names() {
    let (server, mut memcached) = start(&[]);
    let mut client = Connection::open(server.address());
    let set_bound = ["config", "set", "proto-max-bulk-len"];
    assert_eq!(client.say(&[&set_bound[..], &["5"]].concat()), ok());
    // What a key has above 250 bytes counts as its value's.
    assert_eq!(client.say(&["get", &"k".repeat(65_536)]), Reply::Null);
    let key = "k".repeat(250);
    assert_eq!(client.say(&["set", &key, "12345"]), ok());
    assert_eq!(client.say(&["get", &key]), bulk("12345"));
    for command in [&["set", &key, "123456"][..], &["mset", &key, "123456"], &["append", &key, "6"]] {
        assert!(matches!(client.say(command), Reply::Error(_)), "{}", command[0]);
        assert_eq!(client.say(&["get", &key]), bulk("12345"));
    }
    assert_eq!(client.say(&[&set_bound[..], &["1mb"]].concat()), ok());
    assert_eq!(client.say(&["set", &key, "123456"]), ok());
    let stats = memcached.stats("").unwrap();
    assert!(stats.contains(&("store_no_memory".to_owned(), "3".to_owned())), "{stats:?}");
}

/// A transaction of so many commands; the replies to them that are errors, and that to EXEC.
fn long_transaction(client: &mut Connection, commands: usize) -> (Vec<Reply>, Reply) {
    assert_eq!(client.say(&["multi"]), ok());
    let mut errors = Vec::new();
    for burst in (0..commands).collect::<Vec<_>>().chunks(1000) {
        let set = |number: &usize| array(&words(&["set", &format!("key{number}"), "value"]));
        client.send(&burst.iter().flat_map(set).collect::<Vec<u8>>(), usize::MAX);
        let replies = burst.iter().map(|_| client.reply().expect("a reply"));
        errors.extend(replies.filter(|reply| *reply != Reply::Simple("QUEUED".to_owned())));
    }
    (errors, client.say(&["exec"]))
}

#[test]
fn a_long_transaction_says_which_bound_to_raise() {
    let (server, _) = start(&[]);
    let mut client = Connection::open(server.address());
    let (errors, reply) = long_transaction(&mut client, 20_000);
    let said = |reply: &Reply| matches!(reply, Reply::Error(text) if text.contains("CONFIG SET max-buffer"));
    assert!(!errors.is_empty() && errors.iter().all(said), "{:?}", errors.first());
    assert!(matches!(reply, Reply::Error(text) if text.starts_with("EXECABORT")));
    assert_eq!(client.say(&["config", "set", "max-buffer", "4m"]), ok());
    let (errors, reply) = long_transaction(&mut client, 20_000);
    assert_eq!(errors, []);
    assert_eq!(reply, Reply::Elements(b'*', vec![ok(); 20_000]));
    common::stop(server);
}

/// Keys that memcached's clients cannot name are like any others, in memory and on flash.
fn long_keys_work(options: &[&str], name: &str) {
    let (server, mut memcached) = start(&[&["--max-item-size=1m"], options].concat());
    let mut client = Connection::open(server.address());
    let keys = [250, 251, 254, 255, 256, 4000, 65_536].map(|bytes| name.repeat(bytes));
    for (key, other) in keys.iter().zip(keys.iter().skip(1)) {
        let bytes = key.len().to_string();
        assert_eq!(client.say(&["set", key, &bytes, "px", "90000"]), ok());
        assert_eq!(client.say(&["get", other]), Reply::Null, "{bytes}");
        assert_eq!(client.say(&["append", key, "0"]), Reply::Integer(bytes.len() as i64 + 1));
        assert_eq!(client.say(&["incr", key]), Reply::Integer(10 * key.len() as i64 + 1));
        assert!(matches!(client.say(&["pttl", key]), Reply::Integer(1..=90_000)));
        assert_eq!(client.say(&["persist", key]), Reply::Integer(1));
        assert_eq!(client.say(&["rename", key, other]), ok());
        assert_eq!(client.say(&["copy", other, key]), Reply::Integer(1));
        assert_eq!(
            client.say(&["mget", key, other]),
            Reply::Elements(b'*', vec![bulk(&(bytes.clone() + "1")); 2])
        );
        assert_eq!(client.say(&["del", other]), Reply::Integer(1));
        let large = bytes.repeat(100_000);
        assert_eq!(set_slowly(&mut client, key, &large, &[]), ok());
        assert_eq!(client.say(&["getrange", key, "0", "9"]), bulk(&large[..10]));
        assert_eq!(client.say(&["set", key, &bytes]), ok());
    }
    let others = ["a", "b"].map(|front| front.to_owned() + &keys[5]);
    assert!(others.iter().all(|other| client.say(&["get", other]) == Reply::Null));
    let dump = memcached.ask("lru_crawler metadump all").unwrap();
    assert!(dump.starts_with("key="), "{dump}");
    common::stop(server);
}

#[test]
fn keys_may_be_long_in_memory() {
    long_keys_work(&[], "k");
    long_keys_work(&["--engine=store"], "k");
}

/// Values that fill memory push the first ones to flash, where a GET finds them.
#[test]
fn keys_may_be_long_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    let flash = format!("--flash={}:256m", folder.path().join("flash").display());
    let options = [&*flash, "--max-item-size=256k", "--memory=64m"];
    let (server, mut memcached) = start(&options);
    let mut client = Connection::open(server.address());
    let key = |number: usize| format!("{number:05}").repeat([60, 51, 1000, 4000][number % 4]);
    let mut fill_and_count = || {
        for number in 0..3000 {
            assert_eq!(client.say(&["set", &key(number), &number.to_string().repeat(10_000)]), ok());
        }
        let mut found = 0;
        for number in 0..3000 {
            match client.say(&["get", &key(number)]) {
                Reply::Bulk(value) => {
                    assert!(value == number.to_string().repeat(10_000).as_bytes(), "{number}");
                    found += 1;
                }
                reply => assert_eq!(reply, Reply::Null),
            }
        }
        let stats = memcached.stats("flash").unwrap();
        let cold =
            stats.iter().find(|(name, _)| name == "read_found").map(|(_, count)| count.parse().unwrap());
        eprintln!("{found} found, {cold:?} of them on flash");
        found > 1000 && cold > Some(1000)
    };
    // A cache evicts what flash does not take in time.
    assert!((0..5).any(|_| fill_and_count()));
    common::stop(server);
}

/// Libraries name a connection by HELLO or by CLIENT SETNAME.
#[test]
fn names_of_connections_are_listed() {
    let (server, _) = start(&[]);
    let mut client = Connection::open(server.address());
    let Reply::Integer(id) = client.say(&["client", "id"]) else { panic!("no number") };
    let is_own = |line: &&str| line.contains(&format!("id={id} addr"));
    let listed = |client: &mut Connection| {
        ["info", "list"].map(|command| match client.say(&["client", command]) {
            Reply::Bulk(text) | Reply::Other(_, text) => {
                let text = String::from_utf8(text).unwrap();
                // Others may be there that are being closed.
                let text = text.lines().find(is_own).unwrap();
                let name = text.split(' ').find_map(|word| word.strip_prefix("name="));
                assert!(text.contains(" user=default"), "{text}");
                name.unwrap().to_owned()
            }
            reply => panic!("{reply:?}"),
        })
    };
    client.say(&["hello", "3", "setname", "first"]);
    assert_eq!(listed(&mut client), ["first"; 2]);
    client.say(&["client", "setname", "second"]);
    assert_eq!(listed(&mut client), ["second"; 2]);
    client.say(&["reset"]);
    assert_eq!(listed(&mut client), [""; 2]);
    common::stop(server);
}

#[test]
fn connections_are_killed() {
    let (server, mut memcached) = start(&[]);
    let open = || Connection::open(server.address());
    let mut killer = open();
    let id = |connection: &mut Connection| match connection.say(&["client", "id"]) {
        Reply::Integer(id) => id.to_string(),
        other => panic!("{other:?}"),
    };
    let own = id(&mut killer);
    let error = |text: &str| Reply::Error(text.to_owned());
    for (words, text) in [
        (&["127.0.0.1:1"][..], "ERR No such client"),
        (&["id", "0"], "ERR client-id should be greater than 0"),
        (&["id", "x"], "ERR client-id should be greater than 0"),
        (&["type", "other"], "ERR Unknown client type 'other'"),
        (&["user", "nobody"], "ERR No such user 'nobody'"),
        (&["skipme", "perhaps"], "ERR syntax error"),
        (&["id", "1", "addr"], "ERR syntax error"),
    ] {
        assert_eq!(killer.say(&[&["client", "kill"], words].concat()), error(text), "{words:?}");
    }
    assert_eq!(killer.say(&["client", "kill", "id", &own]), Reply::Integer(0));
    assert_eq!(killer.say(&["client", "kill", "type", "pubsub"]), Reply::Integer(0));
    let is_closed = |killer: &mut Connection, number: &str| {
        let begun = Instant::now();
        while killer.say(&["client", "kill", "id", number]) != Reply::Integer(0) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{number} is still open");
        }
    };
    // One that waits, one by its address, and one that does not read what it has asked for.
    let mut waiting = open();
    let number = id(&mut waiting);
    assert_eq!(killer.say(&["client", "kill", "id", &number, "user", "default"]), Reply::Integer(1));
    is_closed(&mut killer, &number);
    assert!(waiting.reply().is_none());
    let mut named = open();
    let number = id(&mut named);
    let Reply::Bulk(info) = named.say(&["client", "info"]) else { panic!("no facts") };
    let info = String::from_utf8(info).unwrap();
    let address = info.split(' ').find_map(|word| word.strip_prefix("addr=")).unwrap();
    assert_eq!(killer.say(&["client", "kill", address]), ok());
    is_closed(&mut killer, &number);
    assert!(named.reply().is_none());
    let mut deaf = open();
    assert_eq!(deaf.say(&["set", "large", &"v".repeat(1 << 20)]), ok());
    let number = id(&mut deaf);
    deaf.send(&array(&words(&["get", "large"])).repeat(64), usize::MAX);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(killer.say(&["client", "kill", "id", &number]), Reply::Integer(1));
    is_closed(&mut killer, &number);
    // All, which leaves memcached's clients alone, and the killer itself.
    let mut others: Vec<_> = (0..100).map(|_| open()).collect();
    others.iter_mut().for_each(|other| assert!(matches!(other.say(&["ping"]), Reply::Simple(_))));
    assert_eq!(killer.say(&["client", "kill", "type", "normal"]), Reply::Integer(100));
    assert!(others.iter_mut().all(|other| other.reply().is_none()));
    assert_eq!(memcached.set("a", b"1").unwrap(), "STORED");
    assert_eq!(killer.say(&["client", "kill", "id", &own, "skipme", "no"]), Reply::Integer(1));
    assert!(killer.reply().is_none());
    assert_eq!(memcached.get("a").unwrap().unwrap().value, b"1");
}

#[test]
fn slow_requests_are_logged() {
    let (server, _) = start(&["--watch=1"]);
    let mut client = Client::connect(server.address()).unwrap();
    let mut ask = |line: &str| client.ask(line).unwrap();
    assert_eq!(ask("CONFIG SET slowlog-log-slower-than x").split(' ').next(), Some("-ERR"));
    assert_eq!(ask("CONFIG SET slowlog-log-slower-than -1"), "+OK");
    assert_eq!(ask("SET quick 1"), "+OK");
    assert_eq!(ask("SLOWLOG RESET"), "+OK");
    assert_eq!(ask("SLOWLOG LEN"), ":0", "the control");
    assert_eq!(ask("CONFIG SET slowlog-log-slower-than 0"), "+OK");
    assert_eq!(ask("SET slow 1"), "+OK");
    let begun = Instant::now();
    while ask("SLOWLOG LEN") == ":0" {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    client.send("SLOWLOG GET -1\r\nPING\r\n").unwrap();
    let lines: Vec<_> = std::iter::from_fn(|| client.line().ok().filter(|line| line != "+PONG")).collect();
    assert!(lines.windows(3).any(|lines| lines[0] == "set" && lines[2] == "slow"), "{lines:?}");
}

/// The lines of `INFO commandstats`.
fn command_stats(client: &mut Connection) -> Vec<String> {
    let Reply::Bulk(text) = client.say(&["info", "commandstats"]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    text.lines().filter(|line| line.starts_with("cmdstat_")).map(str::to_owned).collect()
}

/// The line of a command without times: its calls, those rejected, and those that failed.
fn command_stat((name, calls, rejected, failed): (&str, usize, usize, usize)) -> String {
    format!("cmdstat_{name}:calls={calls},rejected_calls={rejected},failed_calls={failed}")
}

#[test]
fn calls_of_commands_are_counted() {
    // None are looked at.
    let (server, mut memcached) = start(&["--watch=0"]);
    let mut client = Connection::open(server.address());
    assert_eq!(client.say(&["set", "k", "1"]), ok());
    (0..3).for_each(|_| drop(client.say(&["GET", "k"])));
    client.say(&["getdel", "k", "too many"]);
    client.say(&["incr", "none", "wrong"]);
    assert_eq!(client.say(&["set", "word", "x"]), ok());
    client.say(&["incr", "word"]);
    client.say(&["config", "get", "save"]);
    for line in [&["multi"][..], &["get", "k"], &["strlen", "k"], &["exec"]] {
        client.say(line);
    }
    memcached.get("k").unwrap();
    let large = "x".repeat(1_000_000);
    assert_eq!(set_slowly(&mut client, "large", &large, &[]), ok());
    assert_eq!(say_keys(&mut client, "exists", 300), Reply::Integer(0));
    let mut lines = command_stats(&mut client);
    lines.sort();
    let expected = [
        ("config|get", 1, 0, 0),
        ("exec", 1, 0, 0),
        ("exists", 1, 0, 0),
        ("get", 4, 0, 0),
        ("getdel", 0, 1, 0),
        ("incr", 1, 1, 1),
        ("multi", 1, 0, 0),
        ("set", 3, 0, 0),
        ("strlen", 1, 0, 0),
    ];
    assert_eq!(lines, expected.map(command_stat));
    let Reply::Bulk(all) = client.say(&["info"]) else { panic!("no text") };
    assert!(!String::from_utf8_lossy(&all).contains("ommandstats"));
    assert_eq!(client.say(&["config", "resetstat"]), ok());
    assert_eq!(command_stats(&mut client), [command_stat(("config|resetstat", 1, 0, 0))]);
    common::stop(server);
    let (server, _) = start(&["--watch=1"]);
    let mut client = Connection::open(server.address());
    // A request is looked at when its reply has left.
    for _ in 0..2 {
        client.say(&["get", "k"]);
    }
    let lines = command_stats(&mut client);
    assert!(lines[0].starts_with("cmdstat_get:calls=2,usec="), "{lines:?}");
    common::stop(server);
}

#[test]
fn commands_that_find_no_memory_count_as_rejected() {
    let (server, _) = start(&["--watch=0", "--memory=4m", "--engine=store"]);
    let mut client = Connection::open(server.address());
    let [value, large] = [2000, 1_000_000].map(|bytes| "x".repeat(bytes));
    let stored = (0..).take_while(|at| client.say(&["set", &format!("k{at}"), &value]) == ok()).count();
    assert!(
        matches!(set_slowly(&mut client, "large", &large, &[]), Reply::Error(text) if text.starts_with("OOM "))
    );
    assert_eq!(command_stats(&mut client), [command_stat(("set", stored, 2, 0))]);
    common::stop(server);
}

/// Says a command with so many keys that there are not; it pauses in between.
fn say_keys(client: &mut Connection, command: &str, keys: usize) -> Reply {
    let keys: Vec<String> = (0..keys).map(|key| format!("none{key}")).collect();
    client.say(&[&[command][..], &keys.iter().map(String::as_str).collect::<Vec<_>>()].concat())
}

#[test]
fn times_of_commands_are_told() {
    let (server, mut memcached) = start(&["--watch=1"]);
    let mut client = Connection::open(server.address());
    assert_eq!(client.say(&["latency", "histogram"]), Reply::Elements(b'*', Vec::new()));
    (0..10).for_each(|_| drop(client.say(&["set", "k", "1"])));
    (0..5).for_each(|_| drop(memcached.get("k").unwrap()));
    let calls = |told: &[Reply], at: usize| {
        let Reply::Elements(_, facts) = &told[at] else { panic!("{told:?}") };
        let [name, Reply::Integer(calls), steps, Reply::Elements(_, pairs)] = facts.as_slice() else {
            panic!("{facts:?}")
        };
        assert_eq!([name, steps], [&bulk("calls"), &bulk("histogram_usec")]);
        // Each step has more than the one before; the last one has all.
        let sums: Vec<_> = pairs.chunks(2).map(|pair| pair[1].clone()).collect();
        assert_eq!(sums.last(), Some(&Reply::Integer(*calls)));
        *calls
    };
    // A request is counted when its reply has left.
    let begun = Instant::now();
    loop {
        let Reply::Elements(_, told) = client.say(&["latency", "histogram", "SET", "get", "none"]) else {
            panic!("no map")
        };
        if let [get, _, set, _] = told.as_slice()
            && [get, set] == [&bulk("get"), &bulk("set")]
            && (calls(&told, 1), calls(&told, 3)) == (5, 10)
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{told:?}");
    }
    assert_eq!(client.say(&["config", "resetstat"]), ok());
    assert_eq!(client.say(&["latency", "histogram", "set"]), Reply::Elements(b'*', Vec::new()));
    assert_eq!(client.say(&["latency", "reset"]), Reply::Integer(0));
    common::stop(server);
}
