//! CLIENT TRACKING: every reply and notice compared with those of Redis, and caches of clients that are never stale.

mod common;
#[path = "resp_differential/wire.rs"]
mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use common::redis;
use minos_base::seeded;
use minos_testkit::{Client, Over, Server};
use rand::RngExt as _;
use wire::{Connection, Reply, array};

fn minos(options: &[&str]) -> (Server, SocketAddr) {
    common::start_with_resp(&[&["--memory=64m"], options].concat())
}

/// Some connections to one server, and the numbers that it has given them.
struct Side {
    connections: Vec<Connection>,
    numbers: Vec<i64>,
    /// Those within MULTI.
    is_open: Vec<bool>,
    /// What came to each beside its replies.
    noticed: Vec<Vec<String>>,
}

impl Side {
    fn new(address: SocketAddr, versions: &str) -> Self {
        let count = versions.len();
        let (is_open, noticed) = (vec![false; count], vec![Vec::new(); count]);
        let mut side = Self { connections: Vec::new(), numbers: Vec::new(), is_open, noticed };
        for version in versions.chars() {
            let mut connection = Connection::open(address);
            connection.say(&["hello", &version.to_string()]);
            let Reply::Integer(number) = connection.say(&["client", "id"]) else { panic!("no number") };
            side.connections.push(connection);
            side.numbers.push(number);
        }
        side.connections[0].say(&["flushall"]);
        side
    }

    /// Sends a command, and returns all that comes to any connection, with the connections' numbers made alike.
    fn exchange(&mut self, at: usize, command: &str) -> Vec<String> {
        let words = command.split_whitespace().map(|word| match word.strip_prefix('#') {
            Some(at) => self.numbers[at.parse::<usize>().unwrap()].to_string().into_bytes(),
            None => word.replace("''", "").into_bytes(),
        });
        let words: Vec<_> = words.collect();
        self.connections[at].send(&array(&words), usize::MAX);
        let reply = self.read(at, command, |_| true);
        self.is_open[at] = match command {
            "multi" => true,
            "exec" | "discard" | "reset" => false,
            _ => self.is_open[at],
        };
        let mut told = vec![format!("{at}: {reply}")];
        for number in 0..self.connections.len() {
            // A transaction would have the mark.
            if !self.is_open[number] {
                self.connections[number].send(&array(&[b"ping".to_vec(), b"mark".to_vec()]), usize::MAX);
                let mark = self.read(number, command, |text| text.contains("mark"));
                assert!(mark.contains("mark"), "{command}: {mark}");
                // Redis tells of a key once for each prefix.
                self.noticed[number].sort();
                self.noticed[number].dedup();
                // One that tells of all stands for the others.
                if self.noticed[number].iter().any(|text| text.contains("Null")) {
                    self.noticed[number].retain(|text| !text.contains("> "));
                }
                let noticed = std::mem::take(&mut self.noticed[number]);
                told.extend(noticed.into_iter().map(|text| format!("{number}: {text}")));
            }
        }
        told
    }

    /// The next reply that `ends`; the notices and other replies before it are kept.
    fn read(&mut self, number: usize, command: &str, ends: fn(&str) -> bool) -> String {
        loop {
            let reply = self.connections[number].reply();
            let reply = reply.unwrap_or_else(|| panic!("{command}: no reply on {number}"));
            let text = self.shown(&reply);
            let is_notice =
                [">[invalidate", ">[tracking", "*[message"].iter().any(|start| text.starts_with(start));
            if !is_notice && ends(&text) {
                return text;
            }
            match &reply {
                // Redis gathers keys of one prefix.
                Reply::Elements(kind, elements) => match elements.last() {
                    Some(Reply::Elements(_, keys)) if is_notice => {
                        let keys: Vec<_> =
                            keys.iter().map(|key| format!("{} {}", *kind as char, self.shown(key))).collect();
                        self.noticed[number].extend(keys);
                    }
                    _ => self.noticed[number].push(text),
                },
                _ => self.noticed[number].push(text),
            }
        }
    }

    fn shown(&self, reply: &Reply) -> String {
        match reply {
            Reply::Integer(number) => {
                match self.numbers.iter().position(|known| known == number && *known > 200) {
                    Some(at) => format!("#{at}"),
                    // A time to live: the commands reach the servers at different times.
                    None if (500..1000).contains(number) => "1000".to_owned(),
                    None => number.to_string(),
                }
            }
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Elements(kind, elements) => {
                let all: Vec<_> = elements.iter().map(|element| self.shown(element)).collect();
                format!("{}[{}]", *kind as char, all.join(", "))
            }
            other => format!("{other:?}"),
        }
    }
}

/// Takes numbers that look like others in a reply.
fn burn_numbers(address: SocketAddr) {
    (0..200).for_each(|_| drop(Connection::open(address).say(&["ping"])));
}

/// Sends the same commands to both; the first difference. `alter` changes what Minos says.
fn compare(
    addresses: [SocketAddr; 2],
    versions: &str,
    commands: &[(usize, String)],
    alter: fn(&mut Vec<String>),
) -> Result<usize, String> {
    let mut sides = addresses.map(|address| Side::new(address, versions));
    let mut notices = 0;
    for (step, (at, command)) in commands.iter().enumerate() {
        let [left, mut right] = sides.each_mut().map(|side| side.exchange(*at, command));
        alter(&mut right);
        // Redis may send a notice within the reply to EXEC. Minos tells of a key that one transaction changes and then
        // reads, and not of one that it makes and deletes.
        let differs_in_keys = || {
            let is_within = |few: &[String], all: &[String]| few.iter().all(|text| all.contains(text));
            left[0] == right[0] && (is_within(&left, &right) || is_within(&right, &left))
        };
        if command == "exec" && left != right && (left[0].contains(">[") || differs_in_keys()) {
            return Ok(notices);
        }
        if left != right {
            let before: Vec<_> = commands[..step].iter().map(|(at, said)| format!("{at}: {said}")).collect();
            return Err(format!(
                "{}\n{at}: {command}\n  Redis {left:?}\n  Minos {right:?}",
                before.join("\n")
            ));
        }
        notices += left.len() - 1;
    }
    Ok(notices)
}

const SCRIPT: &str = "
0 client trackinginfo
0 client getredir
0 client caching yes
0 client tracking
0 client tracking maybe
0 client tracking on bad
0 client tracking on redirect
0 client tracking on redirect x
0 client tracking on redirect 999999
0 client tracking on redirect #1 redirect #2
0 client tracking on prefix a
0 client tracking on optin optout
0 client tracking on bcast optin
0 client tracking on bcast prefix ab prefix a
0 client tracking off
0 client tracking on
0 client trackinginfo
0 client getredir
0 client tracking on bcast
0 client caching yes
0 get a
0 mget a b c
0 strlen d
1 set a 1
1 set a 2
1 mset b 1 c 2 d 3
0 get a
0 set a 5
0 get a
0 del a
0 del a
0 exists a b
1 expire b 100
1 setnx b 1
1 incr n
0 get n
1 incr n
1 append n 5
0 client tracking on noloop
0 client trackinginfo
0 get n
0 incr n
0 get n
1 incr n
0 multi
0 get n
0 exec
1 incr n
0 get n
1 multi
1 incr n
1 incr n
1 exec
0 get x
1 rename n x
0 get x
1 flushall
0 client tracking on optin
0 get x
1 set x 1
0 client caching yes
0 client trackinginfo
0 get x
0 client trackinginfo
1 set x 2
0 client caching yes
0 multi
0 get x
0 get y
0 exec
1 mset x 1 y 2
0 client caching no
0 client caching maybe
0 client tracking on optout
0 client tracking off
0 client tracking on optout
0 get x
1 set x 3
0 client caching no
0 client trackinginfo
0 get x
1 set x 4
0 client tracking off
1 set x 5
0 client tracking on bcast prefix user: prefix item:
0 client trackinginfo
0 client tracking on bcast prefix user:1
0 client tracking on bcast prefix item: prefix z
0 client tracking on
1 set user:1 a
1 mset user:2 a item:1 b other c
1 del user:1 user:9
0 set item:7 x
0 client tracking on bcast noloop prefix other
0 set item:7 y
1 flushdb
0 reset
0 hello 3
0 client trackinginfo
0 client tracking on bcast
0 client trackinginfo
1 set any 1
0 client tracking off
0 client tracking on redirect #2
0 client getredir
0 client trackinginfo
0 get k
1 set k 1
2 subscribe __redis__:invalidate
2 get k
2 ping
0 get k
1 set k 2
0 get k
1 flushall
2 unsubscribe
0 get k
1 set k 2
2 subscribe __redis__:invalidate
2 unsubscribe __redis__:invalidate other
2 unsubscribe
2 subscribe __redis__:invalidate
0 get k
1 set k 2
2 reset
0 get k
1 set k 2
0 client tracking on redirect #1
0 get k
0 set k 2
0 get gone
1 set gone 1 px 1
0 client tracking off
0 multi
0 client tracking on
0 get late
0 exec
1 set late 1
";

fn script() -> Vec<(usize, String)> {
    let step = |line: &str| {
        let (at, command) = line.split_once(' ').unwrap();
        (at.parse().unwrap(), command.to_owned())
    };
    SCRIPT.lines().filter(|line| !line.is_empty()).map(step).collect()
}

/// A random command of a client that tracks, caches, reads or writes.
fn random_command(mut pick: impl FnMut(&[&str]) -> String) -> String {
    let (key, other) = (pick(&["a", "ab", "b", "ba", "c"]), pick(&["a", "ab", "b"]));
    match pick(&["track", "state", "multi", "read", "read", "read", "write", "write", "write"]).as_str() {
        "track" => {
            let mode = pick(&[
                "",
                "optin",
                "optout",
                "bcast",
                "bcast prefix a",
                "bcast prefix b",
                "bcast prefix ab",
            ]);
            let (switch, more) =
                (pick(&["on", "on", "off"]), pick(&["", "noloop", "redirect #2", "redirect #0"]));
            format!("client tracking {switch} {mode} {more}")
        }
        "state" => {
            let of_client = ["caching yes", "caching no", "trackinginfo", "getredir", ""];
            let said = pick(&of_client);
            if said.is_empty() { "reset".to_owned() } else { format!("client {said}") }
        }
        "multi" => pick(&["multi", "exec", "discard", "exec"]),
        "read" => match pick(&["get", "mget", "strlen", "exists", "ttl", "getrange"]).as_str() {
            "mget" => format!("mget {key} {other}"),
            "getrange" => format!("getrange {key} 0 -1"),
            name => format!("{name} {key}"),
        },
        _ => {
            let names =
                ["set", "set", "del", "incr", "mset", "flushall", "persist", "expire", "getdel", "copy"];
            match pick(&names).as_str() {
                "set" => format!("set {key} 1"),
                "mset" => format!("mset {key} 1 c 2"),
                "flushall" => "flushall".to_owned(),
                "expire" => format!("expire {key} 1000"),
                "copy" => format!("copy {key} {other} replace"),
                name => format!("{name} {key}"),
            }
        }
    }
}

/// Random commands of two clients beside a third one, which has subscribed in RESP2.
fn random_commands(seed: u64) -> Vec<(usize, String)> {
    let mut random = seeded(seed);
    let mut pick = |words: &[&str]| words[random.random_range(0..words.len())].to_owned();
    let mut commands = vec![(2, "subscribe __redis__:invalidate".to_owned())];
    let mut is_open = [false; 2];
    for _ in 0..150 {
        let at: usize = pick(&["0", "1"]).parse().unwrap();
        let command = random_command(&mut pick);
        // Redis sends notices of such commands within the reply to EXEC.
        if is_open[at] && (command.starts_with("client") || command == "flushall") {
            continue;
        }
        is_open[at] = match command.as_str() {
            "multi" => true,
            "exec" | "discard" | "reset" => false,
            _ => is_open[at],
        };
        // Redis still tells of what was read before.
        let forgets = command == "reset" || command.starts_with("client tracking off");
        commands.push((at, command));
        if forgets {
            commands.push((at, "flushall".to_owned()));
        }
    }
    commands
}

#[test]
fn replies_and_notices_are_those_of_redis() {
    let (rival, (subject, _)) = (redis(), minos(&[]));
    let addresses = [rival.address(), subject.address()];
    addresses.into_iter().for_each(burn_numbers);
    let notices =
        compare(addresses, "332", &script(), |_| {}).unwrap_or_else(|difference| panic!("{difference}"));
    assert!(notices > 20, "{notices}");
    common::stop(subject);
}

#[test]
fn random_commands_are_told_of_as_by_redis() {
    let (rival, (subject, _)) = (redis(), minos(&[]));
    let addresses = [rival.address(), subject.address()];
    addresses.into_iter().for_each(burn_numbers);
    let differences: Vec<_> = (1..=40)
        .filter_map(|seed| {
            let difference = compare(addresses, "332", &random_commands(seed), |_| {}).err()?;
            Some(format!("seed {seed}\n{difference}"))
        })
        .collect();
    assert!(differences.is_empty(), "{} of 40:\n{}", differences.len(), differences.join("\n"));
    common::stop(subject);
}

#[test]
fn altered_notices_are_found() {
    let rivals = [redis(), redis()];
    let addresses = rivals.each_ref().map(|rival| rival.address());
    addresses.into_iter().for_each(burn_numbers);
    compare(addresses, "332", &script(), |_| {}).unwrap();
    let lost = |told: &mut Vec<String>| told.retain(|text| !text.contains("> x"));
    assert!(compare(addresses, "332", &script(), lost).is_err());
}

/// A key's version, which its value begins with.
fn version(value: &str) -> u64 {
    value.parse().unwrap_or(0)
}

/// A client that caches what it reads, and drops what it is told of.
fn cache(
    address: SocketAddr,
    (seed, mode): (u64, &[&str]),
    stops: &AtomicBool,
    listens: bool,
) -> BTreeMap<String, u64> {
    let mut connection = Connection::open(address);
    connection.say(&["hello", "3"]);
    assert_eq!(
        connection.say(&[&["client", "tracking", "on"], mode].concat()),
        Reply::Simple("OK".to_owned())
    );
    let mut random = seeded(seed);
    let mut cached = HashMap::new();
    let take = |connection: &mut Connection, cached: &mut HashMap<String, u64>, words: &[&str]| {
        connection
            .send(&array(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>()), usize::MAX);
        loop {
            match connection.reply().expect("a reply") {
                Reply::Elements(b'>', elements) => match elements.as_slice() {
                    [_, Reply::Elements(_, keys)] if listens => keys.iter().for_each(|key| {
                        if let Reply::Bulk(key) = key {
                            cached.remove(&*String::from_utf8_lossy(key));
                        }
                    }),
                    [_, Reply::Null] if listens => cached.clear(),
                    _ => {}
                },
                reply => return reply,
            }
        }
    };
    // Once the writers have ended, what is not cached is read; what is, stays.
    let mut left = 4 * KEYS;
    while left > 0 {
        let key = format!("key{}", random.random_range(0..KEYS));
        if cached.contains_key(&key) {
            take(&mut connection, &mut cached, &["ping"]);
        } else {
            let value = match take(&mut connection, &mut cached, &["get", &key]) {
                Reply::Bulk(bytes) => version(&String::from_utf8_lossy(&bytes)),
                _ => 0,
            };
            cached.insert(key, value);
        }
        left -= u64::from(stops.load(Relaxed));
    }
    take(&mut connection, &mut cached, &["ping"]);
    cached.into_iter().collect()
}

const KEYS: u64 = 40;

/// Writes of one client through one of the protocols.
fn write_redis(address: SocketAddr, seed: u64, writes: u64) {
    let mut connection = Connection::open(address);
    let mut random = seeded(seed);
    for number in 1..=writes {
        let key = format!("key{}", random.random_range(0..KEYS));
        let value = (seed * 1_000_000 + number).to_string();
        match random.random_range(0..8) {
            0 => drop(connection.say(&["del", &key])),
            1 => drop(connection.say(&["mset", &key, &value, "key1", &value])),
            2 => drop(connection.say(&["getdel", &key])),
            3 => drop(connection.say(&["set", &key, &format!("{value:0>5000}")])),
            4 => ["multi", "exec"].iter().for_each(|word| {
                drop(connection.say(&[word]));
                if *word == "multi" {
                    drop(connection.say(&["set", &key, &value]));
                    drop(connection.say(&["incr", "key2"]));
                }
            }),
            5 if number % 50 == 0 => drop(connection.say(&["flushall"])),
            _ => drop(connection.say(&["set", &key, &value])),
        }
    }
}

fn write_memcached(address: SocketAddr, seed: u64, writes: u64) {
    let mut client = Client::connect(address).unwrap();
    let mut random = seeded(seed);
    for number in 1..=writes {
        let key = format!("key{}", random.random_range(0..KEYS));
        let value = (seed * 1_000_000 + number).to_string();
        let store = |command: &str| format!("{command} {key} 0 0 {}", value.len());
        match random.random_range(0..6) {
            0 => drop(client.ask(&format!("delete {key}")).unwrap()),
            1 => drop(client.ask(&format!("incr {key} 1")).unwrap()),
            2 => drop(client.store(&format!("ms {key} {}", value.len()), value.as_bytes()).unwrap()),
            3 => drop(client.store(&store("replace"), value.as_bytes()).unwrap()),
            _ => drop(client.store(&store("set"), value.as_bytes()).unwrap()),
        }
    }
}

/// Runs clients that cache beside clients that write. Returns the values in their caches that are old at the end.
fn stale(options: &[&str], mode: &[&str], listens: bool) -> (usize, usize) {
    let (server, memcached) = minos(options);
    let (address, stops) = (server.address(), AtomicBool::new(false));
    let caches = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (stops, caches) = (&stops, &caches);
            scope.spawn(move || {
                let cached = cache(address, (seed, mode), stops, listens);
                caches.lock().unwrap().push(cached);
            });
        }
        let writers = [
            scope.spawn(move || write_redis(address, 1, 6000)),
            scope.spawn(move || write_redis(address, 2, 6000)),
            scope.spawn(move || write_memcached(memcached, 3, 6000)),
            scope.spawn(move || write_memcached(memcached, 4, 6000)),
        ];
        let _over = Over(&stops);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    let mut probe = Connection::open(address);
    let mut found = (0, 0);
    for (key, cached) in caches.lock().unwrap().iter().flatten() {
        let now = match probe.say(&["get", key]) {
            Reply::Bulk(bytes) => version(&String::from_utf8_lossy(&bytes)),
            _ => 0,
        };
        found.0 += 1;
        found.1 += usize::from(now != *cached);
    }
    common::stop(server);
    found
}

#[test]
fn no_cached_value_is_stale_in_the_end() {
    for (options, mode) in [
        (&["--threshold=1000"][..], &[][..]),
        (&["--engine=store"], &["bcast", "prefix", "key"]),
        (&["--tracking-table-max-keys=20"], &[]),
        (&["--dispatch=keyhash"], &["optout"]),
    ] {
        let (cached, stale) = stale(options, mode, true);
        assert!(stale == 0, "{options:?} {mode:?}: {stale} of {cached}");
        assert!(cached > 10, "{options:?} {mode:?}: {cached}");
    }
}

/// The control: a client that does not listen has old values.
#[test]
fn a_client_that_does_not_listen_has_stale_values() {
    let (cached, stale) = stale(&[], &[], false);
    assert!(stale > 0, "{stale} of {cached}");
}

/// However its value arrives, a client that wants none of its own changes is told of none.
#[test]
fn own_changes_are_not_told_with_noloop() {
    let (server, _) = minos(&["--threshold=1000"]);
    let (mut own, mut other) = (Connection::open(server.address()), Connection::open(server.address()));
    own.say(&["hello", "3"]);
    own.say(&["client", "tracking", "on", "noloop"]);
    for bytes in [10, 5000, 40_000, 3 << 20] {
        let value = "v".repeat(bytes);
        for options in [&[][..], &["px", "1000000"]] {
            own.say(&["get", "key"]);
            let set = [&["set", "key", &value], options].concat();
            assert_eq!(own.say(&set), Reply::Simple("OK".to_owned()), "{bytes}");
            assert_eq!(own.say(&["ping", "mark"]), Reply::Bulk(b"mark".to_vec()), "{bytes}");
            own.say(&["strlen", "key"]);
            other.say(&set);
            assert!(matches!(own.reply(), Some(Reply::Elements(b'>', _))), "the control: {bytes}");
        }
    }
    common::stop(server);
}

/// As by Redis; and with NOLOOP, too, to the client whose own values push a key out: it has not changed that one.
#[test]
fn evicted_keys_are_told_of() {
    let (rival, (subject, _)) = (redis(), common::start_with_resp(&["--memory=4m"]));
    let mut limit = Connection::open(rival.address());
    for (name, value) in [("maxmemory", "4mb"), ("maxmemory-policy", "allkeys-lru")] {
        assert_eq!(limit.say(&["config", "set", name, value]), Reply::Simple("OK".to_owned()));
    }
    let value = "v".repeat(4000);
    for (server, is_rival) in [(&rival, true), (&subject, false)] {
        let modes =
            [&[][..], &["bcast", "prefix", "old"], &["noloop"], &["bcast", "prefix", "old", "noloop"]];
        for mode in modes.into_iter().take(if is_rival { 2 } else { 4 }) {
            let mut client = Connection::open(server.address());
            client.say(&["hello", "3"]);
            client.say(&["set", "old", "1"]);
            client.say(&[&["client", "tracking", "on"], mode].concat());
            client.say(&["get", "old"]);
            let new = (0..20_000).map(|number| format!("new{number}"));
            let told = new.map(|key| client.say(&["set", &key, &value]));
            let told =
                told.filter(|said| matches!(said, Reply::Elements(..))).map(|told| format!("{told:?}"));
            let told = told.take(1).collect::<String>();
            let old = format!("{:?}", Reply::Bulk(b"old".to_vec()));
            assert!(told.contains(&old), "Redis: {is_rival}, {mode:?}: {told}");
        }
    }
    common::stop(subject);
}

#[test]
fn expired_keys_are_told_of() {
    let (server, _) = minos(&[]);
    // On a busy machine the key may expire before it is read.
    assert!((0..10).any(|_| is_told_of_expiry(&server)));
    common::stop(server);
}

/// Lets a key expire; false if that was before it was read.
fn is_told_of_expiry(server: &Server) -> bool {
    let (mut reader, mut all) = (Connection::open(server.address()), Connection::open(server.address()));
    for (connection, mode) in [(&mut reader, &[][..]), (&mut all, &["bcast"])] {
        connection.say(&["hello", "3"]);
        connection.say(&[&["client", "tracking", "on"], mode].concat());
    }
    let mut writer = Connection::open(server.address());
    writer.say(&["set", "short", "1", "px", "1200"]);
    let told = Reply::Elements(
        b'>',
        vec![
            Reply::Bulk(b"invalidate".to_vec()),
            Reply::Elements(b'*', vec![Reply::Bulk(b"short".to_vec())]),
        ],
    );
    assert_eq!(all.reply(), Some(told.clone()), "the store");
    match reader.say(&["get", "short"]) {
        Reply::Null => return false,
        found => assert_eq!(found, Reply::Bulk(b"1".to_vec())),
    }
    assert_eq!([reader.reply(), all.reply()], [Some(told.clone()), Some(told)], "the expiry");
    true
}
