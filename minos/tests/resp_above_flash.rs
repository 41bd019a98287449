//! Redis' clients above flash: SCAN, KEYS and RANDOMKEY list what is there, and tracking tells of what is lost there.

mod common;
#[path = "resp_differential/wire.rs"]
mod wire;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Over, Server};
use wire::{Connection, Reply, array};

/// Three times what memory holds.
const KEYS: usize = 12_000;
/// Stores of which the replies are not awaited.
const BURST: usize = 100;

fn start(engine: &str, flash: &Path, port_of: Option<SocketAddr>) -> Server {
    let arguments = |port: u16, _: &Path| {
        let port = port_of.map_or(port, |address| address.port());
        let resp = format!("--resp=127.0.0.1:{port}");
        let (engine, flash) = (format!("--engine={engine}"), format!("--flash={}:64m", flash.display()));
        let fixed = ["serve", "--memcached=127.0.0.1:0", "--workers=2", "--pin=off", "--memory=4m"];
        let others = ["--max-item-size=64k", "--stop-timeout=60s", &resp, &engine, &flash];
        fixed.iter().chain(&others).map(|&word| word.to_owned()).collect()
    };
    Server::start(&common::program(), arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// The value of a key. Some are longer than what is read to list their keys.
fn value(number: usize) -> Vec<u8> {
    let bytes = if number.is_multiple_of(500) { 60_000 } else { 900 + number % 200 };
    vec![b'a' + (number % 26) as u8; bytes]
}

/// A key; some are longer than what a page holds.
fn key(number: usize) -> String {
    let long = if number.is_multiple_of(997) { "k".repeat(5000) } else { String::new() };
    format!("key{number}{long}")
}

/// Stores these keys, again those for which flash was too slow.
fn fill(connection: &mut Connection, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<_> = numbers.collect();
    let begun = Instant::now();
    for burst in numbers.chunks(BURST) {
        let mut left = burst.to_vec();
        while !left.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(100), "flash takes nothing");
            let set = |&number: &usize| array(&[b"set".to_vec(), key(number).into(), value(number)]);
            let bytes: Vec<u8> = left.iter().flat_map(set).collect();
            connection.send(&bytes, usize::MAX);
            left.retain(|_| match connection.reply().expect("a reply") {
                Reply::Error(text) => {
                    assert!(text.starts_with("OOM"), "{text}");
                    true
                }
                _ => false,
            });
        }
    }
}

/// Lets a key expire in a millisecond; again if it is on flash, and memory has no room for it yet.
fn expire_soon(connection: &mut Connection, key: &str) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(100) {
        match connection.say(&["pexpire", key, "1"]) {
            Reply::Integer(1) => return,
            Reply::Error(text) if text.starts_with("OOM") => {}
            reply => panic!("{key}: {reply:?}"),
        }
    }
    panic!("memory has no room for {key}");
}

/// The keys of a whole scan.
fn scan(connection: &mut Connection, options: &[&str]) -> BTreeSet<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), BTreeSet::new());
    loop {
        let reply = connection.say(&[&["scan", &cursor], options].concat());
        let Reply::Elements(_, elements) = &reply else { panic!("{reply:?}") };
        let [Reply::Bulk(next), found] = elements.as_slice() else { panic!("{reply:?}") };
        keys.extend(texts(found));
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            return keys;
        }
    }
}

fn texts(reply: &Reply) -> Vec<String> {
    let Reply::Elements(_, elements) = reply else { panic!("{reply:?}") };
    let text = |element: &Reply| match element {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    elements.iter().map(text).collect()
}

/// The keys that are there, one by one.
fn there(connection: &mut Connection) -> BTreeSet<String> {
    let exists = |number: &usize| array(&[b"exists".to_vec(), key(*number).into()]);
    let mut found = BTreeSet::new();
    for burst in (0..KEYS).collect::<Vec<_>>().chunks(BURST) {
        connection.send(&burst.iter().flat_map(exists).collect::<Vec<u8>>(), usize::MAX);
        for number in burst {
            if connection.reply() == Some(Reply::Integer(1)) {
                found.insert(key(*number));
            }
        }
    }
    found
}

fn cold_items(connection: &mut Connection) -> u64 {
    let Reply::Bulk(info) = connection.say(&["info", "keyspace"]) else { panic!("no facts") };
    let info = String::from_utf8_lossy(&info).into_owned();
    info.split("keys=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_store_lists_exactly_its_keys() {
    let folder = tempfile::TempDir::with_prefix("minos-keys-").unwrap();
    let flash = folder.path().join("flash");
    let server = start("store", &flash, None);
    let mut connection = Connection::open(server.address());
    fill(&mut connection, 0..KEYS);
    // Keys that are gone, were stored again, or expire, whether flash or memory has them.
    let mut expected: BTreeSet<_> = (0..KEYS).map(key).collect();
    for number in (0..KEYS).step_by(7) {
        assert_eq!(connection.say(&["del", &key(number)]), Reply::Integer(1));
        expected.remove(&key(number));
    }
    fill(&mut connection, (0..KEYS).filter(|number| number % 7 != 0).step_by(11));
    for number in (1..KEYS).step_by(7 * 13) {
        expire_soon(&mut connection, &key(number));
        expected.remove(&key(number));
    }
    thread::sleep(Duration::from_millis(2));
    assert!(cold_items(&mut connection) >= expected.len() as u64, "the control: all count");
    for options in [&[][..], &["count", "4096"]] {
        let listed = scan(&mut connection, options);
        let others: Vec<_> = listed.symmetric_difference(&expected).collect();
        let lives: Vec<_> = others.iter().map(|key| connection.say(&["pttl", key])).collect();
        assert!(others.is_empty(), "{options:?}: {others:?}, which live for {lives:?} ms");
    }
    let matching: BTreeSet<_> = expected.iter().filter(|key| key.contains("77")).cloned().collect();
    assert_eq!(scan(&mut connection, &["match", "*77*", "count", "100"]), matching);
    let all = texts(&connection.say(&["keys", "*"]));
    // A key may be listed twice while the index grows, for items that come to flash.
    assert!(all.len() < expected.len() + expected.len() / 10, "{}", all.len());
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(there(&mut connection), expected);
    common::stop(server);
    // Memory begins empty.
    let server = start("store", &flash, None);
    let mut connection = Connection::open(server.address());
    let random: BTreeSet<_> = (0..40)
        .map(|_| match connection.say(&["randomkey"]) {
            Reply::Bulk(key) => String::from_utf8(key).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(random.len() > 10 && random.is_subset(&expected), "{random:?}");
    assert_eq!(scan(&mut connection, &["count", "50"]), expected);
    assert_eq!(connection.say(&["flushall"]), Reply::Simple("OK".to_owned()));
    assert_eq!(scan(&mut connection, &[]), BTreeSet::new());
    assert_eq!(connection.say(&["randomkey"]), Reply::Null);
}

#[test]
fn a_cache_lists_what_it_has() {
    let folder = tempfile::TempDir::with_prefix("minos-keys-").unwrap();
    let server = start("cache", &folder.path().join("flash"), None);
    let mut connection = Connection::open(server.address());
    let begun = Instant::now();
    // Where flash is behind, the cache drops keys before they are written.
    while there(&mut connection).len() < KEYS / 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "flash takes nothing");
        for from in (0..KEYS).step_by(300) {
            fill(&mut connection, from..from + 300);
            thread::sleep(Duration::from_millis(5));
        }
    }
    // It loses none while nothing is stored.
    let begun = Instant::now();
    loop {
        let before = there(&mut connection);
        let listed = scan(&mut connection, &["count", "100"]);
        if before == there(&mut connection) {
            assert_eq!(listed, before);
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come to rest");
    }
}

/// Keys that are there from the beginning to the end of a scan are listed, while items come from flash and go there.
#[test]
fn a_scan_misses_no_key_that_moves() {
    let folder = tempfile::TempDir::with_prefix("minos-keys-").unwrap();
    let server = start("store", &folder.path().join("flash"), None);
    let mut connection = Connection::open(server.address());
    fill(&mut connection, 0..KEYS);
    let steady: BTreeSet<_> = (0..KEYS).filter(|number| number % 3 != 0).map(key).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..3_usize {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut connection = Connection::open(server.address());
                for round in 0.. {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    let number = (round * 7919 + client * 31) % KEYS;
                    match number % 3 {
                        0 if round % 2 == 0 => drop(connection.say(&["del", &key(number)])),
                        0 => drop(connection.say(&["set", &key(number), "new"])),
                        1 => drop(connection.say(&["append", &key(number), "x"])),
                        _ => drop(connection.say(&["get", &key(number)])),
                    }
                }
            });
        }
        let _over = Over(&is_over);
        for count in ["10", "300", "2000"] {
            let listed = scan(&mut connection, &["count", count]);
            let missing: Vec<_> = steady.difference(&listed).take(5).collect();
            assert!(missing.is_empty(), "of {} listed, missing {missing:?}", listed.len());
        }
    });
}

/// Sends a command, and returns its reply. Keys that the connection is told of, or `*` for all, go to `told`.
fn say_and_listen(connection: &mut Connection, words: &[&str], told: &mut BTreeSet<String>) -> Reply {
    connection
        .send(&array(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>()), usize::MAX);
    loop {
        match connection.reply().expect("a reply") {
            Reply::Elements(b'>', elements) => match &elements[1] {
                Reply::Null => drop(told.insert("*".to_owned())),
                keys => told.extend(texts(keys)),
            },
            reply => return reply,
        }
    }
}

/// A cache drops items on flash to make room: clients that have read them are told, by name or of all.
#[test]
fn losses_on_flash_are_told_of() {
    let folder = tempfile::TempDir::with_prefix("minos-keys-").unwrap();
    let server = start("cache", &folder.path().join("flash"), None);
    let mut writer = Connection::open(server.address());
    fill(&mut writer, 0..1000);
    let mut readers = [&[][..], &["bcast"]].map(|mode| {
        let (mut connection, mut told) = (Connection::open(server.address()), BTreeSet::new());
        connection.say(&["hello", "3"]);
        connection.say(&[&["client", "tracking", "on"], mode].concat());
        let read = |number: &usize| {
            let reply = say_and_listen(&mut connection, &["get", &key(*number)], &mut told);
            matches!(reply, Reply::Bulk(_))
        };
        let cached: Vec<_> = (0..1000).filter(read).map(key).collect();
        (connection, told, cached)
    });
    // Twice what flash holds.
    fill(&mut writer, 1000..130_000);
    let begun = Instant::now();
    loop {
        let untold = readers.each_mut().map(|(connection, told, cached)| {
            let is_gone = |key: &&String| writer.say(&["exists", key]) == Reply::Integer(0);
            let gone: Vec<_> = cached.iter().filter(is_gone).cloned().collect();
            assert!(gone.len() > 100, "the control: {}", gone.len());
            say_and_listen(connection, &["ping"], told);
            gone.into_iter().filter(|key| !told.contains(key) && !told.contains("*")).collect::<Vec<_>>()
        });
        if untold.iter().all(Vec::is_empty) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{untold:?} are not told of");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(readers[0].1.len() > 100 && readers[1].1.contains("*"), "by name, and of all");
    common::stop(server);
}
