//! CLIENT TRACKING in a rack: clients of any node are told of changes at every one.

use minos_testkit::Over;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_base::seeded;
use rand::RngExt as _;
use rustix::process::Signal;

use super::{
    Connection, Reply, array, bulk, change_cold, cold, cold_reads, list, ok, rack, rack_above_flash,
};
use crate::{
    machines::SECRET,
    up::{Rack, SHORT_LEASE, insist, stat},
};

/// Time for a notice, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// What stands for all keys in what a client is told.
const ALL: &str = "*";

/// A client that tracks keys.
struct Tracker {
    connection: Connection,
    told: Vec<String>,
}

impl Tracker {
    /// A client of a node that has heard every other one by then.
    fn new(rack: &Rack, nodes: &[SocketAddr], node: usize, mode: &[&str]) -> Self {
        let mut tracker = Self { connection: Connection::open(nodes[node]), told: Vec::new() };
        tracker.say(&["hello", "3"]);
        assert_eq!(tracker.say(&[&["client", "tracking", "on"], mode].concat()), ok());
        for other in (0..nodes.len()).filter(|other| *other != node) {
            let count = || Ok(tracking_stat(rack, other, "tracking_nodes"));
            insist(count, |count| *count > 0);
        }
        // That it is heard is told as a change of all.
        insist(|| Ok(tracking_stat(rack, node, "tracking_gaps")), |gaps| *gaps + 1 >= nodes.len() as u64);
        tracker.say(&["ping"]);
        tracker.told.clear();
        tracker
    }

    /// The reply to a command; notes what comes before it.
    fn say(&mut self, words: &[&str]) -> Reply {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.connection.send(&array(&words), usize::MAX);
        loop {
            match self.connection.reply().expect("a reply") {
                Reply::Elements(b'>', notice) => self.note(&notice),
                reply => return reply,
            }
        }
    }

    fn note(&mut self, notice: &[Reply]) {
        match notice {
            [_, Reply::Elements(_, keys)] => {
                let keys = keys.iter().map(|key| match key {
                    Reply::Bulk(key) => String::from_utf8(key.clone()).unwrap(),
                    other => panic!("{other:?}"),
                });
                self.told.extend(keys);
            }
            [_, Reply::Null] => self.told.push(ALL.to_owned()),
            _ => panic!("{notice:?}"),
        }
    }

    /// What it was told since the last call, once it has been told of this key.
    fn told_of(&mut self, key: &str) -> Vec<String> {
        self.listen(key, |told| told.iter().any(|told| told == key))
    }

    /// Waits until what it was told will do.
    fn listen(&mut self, key: &str, will_do: impl Fn(&[String]) -> bool) -> Vec<String> {
        let begun = Instant::now();
        while !will_do(&self.told) {
            assert!(begun.elapsed() < PATIENCE, "not told of {key}: {:?}", self.told);
            self.say(&["ping"]);
            thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut self.told)
    }

    /// Waits until a change of a key is told by its name, and so long as that all may have changed only.
    fn hears(&mut self, key: &str, writer: &mut Connection) {
        let begun = Instant::now();
        let mut told = Vec::new();
        while !told.iter().any(|told| told == key) {
            assert!(begun.elapsed() < PATIENCE, "not told of {key}: {told:?}");
            self.read(&[key]);
            self.told.clear();
            writer.say(&["set", key, "heard"]);
            told = self.listen(key, |told| !told.is_empty());
        }
    }

    /// Asserts that it is not told of a key which has changed before another one that it is told of.
    fn is_not_told_of(&mut self, key: &str, later: &str) {
        let told = self.told_of(later);
        assert!(!told.iter().any(|other| other == key || other == ALL), "{key}: {told:?}");
    }

    /// Waits until the owner of this key has told what it had to tell: it tells of own changes too.
    fn hears_out(&mut self, key: &str, writer: &mut Connection) {
        self.read(&[key]);
        writer.say(&["set", key, "1"]);
        self.told_of(key);
    }

    /// Reads keys, which it may cache then.
    fn read(&mut self, keys: &[&str]) {
        for key in keys {
            self.say(&["get", key]);
        }
    }
}

fn tracking_stat(rack: &Rack, node: usize, name: &str) -> u64 {
    let stats = rack.client(node).stats("minos").unwrap();
    stats.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| value.parse().unwrap())
}

/// Two keys of each node.
fn keys_of(rack: &Rack) -> [[String; 2]; 2] {
    [0, 1].map(|node| {
        // Copies would be read at both nodes.
        let is_there = |key: &String| {
            let place = rack.operate(&format!("where {key}"));
            place.trim_end().ends_with(&format!(" {node}"))
        };
        let mut keys = (0..10_000).map(|number| format!("key{number}")).filter(is_there);
        [keys.next().unwrap(), keys.next().unwrap()]
    })
}

#[test]
fn clients_are_told_of_changes_at_every_node() {
    for options in [&[][..], &["--unit-size", "1"]] {
        let (rack, nodes) = rack(2, options);
        let keys = keys_of(&rack);
        let mut trackers = [0, 1].map(|node| Tracker::new(&rack, &nodes, node, &[]));
        let mut writers = [0, 1].map(|node| Connection::open(nodes[node]));
        let large = "x".repeat(100_000);
        let of_all =
            |tracker: &mut Tracker| tracker.read(&keys.concat().iter().map(|key| &**key).collect::<Vec<_>>());
        for key in keys.as_flattened() {
            for command in [
                &["set", key, "1"][..],
                &["append", key, "1"],
                &["set", key, &large],
                &["mset", &keys[0][0], "1", &keys[1][0], "1", key, "2"],
                &["pexpire", key, "100000"],
                &["del", key, &keys[0][1], &keys[1][1]],
            ] {
                for at in [0, 1] {
                    trackers.iter_mut().for_each(of_all);
                    assert!(!matches!(writers[at].say(command), Reply::Error(_)), "{command:?}");
                    for tracker in &mut trackers {
                        let told = tracker.told_of(key);
                        assert!(!told.contains(&ALL.to_owned()), "{command:?}: {told:?}");
                    }
                    writers[at].say(&["set", key, "0"]);
                }
            }
            trackers.iter_mut().for_each(of_all);
            assert_eq!(rack.client(0).set(key, b"memcached").unwrap(), "STORED");
            trackers.iter_mut().for_each(|tracker| drop(tracker.told_of(key)));
            // Of what was not read again nobody is told.
            trackers[0].read(&[&keys[0][1]]);
            for key in [key, &keys[0][1]] {
                writers[0].say(&["set", key, "1"]);
            }
            if *key != keys[0][1] {
                trackers[0].is_not_told_of(key, &keys[0][1]);
            }
        }
        if options.is_empty() {
            assert!(stat(&mut rack.client(0), "remote_hits") > 0, "the control: reads of memory elsewhere");
        }
    }
}

#[test]
fn modes_are_those_of_one_server() {
    for options in [&[][..], &["--unit-size", "1"]] {
        let (rack, nodes) = rack(2, options);
        let keys = keys_of(&rack);
        let mut writer = Connection::open(nodes[0]);
        // As long as it is there, the other node is heard.
        let _stays = Tracker::new(&rack, &nodes, 0, &[]);
        for [one, other] in &keys {
            let mut tracker = Tracker::new(&rack, &nodes, 0, &["optin"]);
            tracker.read(&[one]);
            tracker.say(&["client", "caching", "yes"]);
            tracker.read(&[other]);
            for key in [one, other] {
                writer.say(&["set", key, "1"]);
            }
            tracker.is_not_told_of(one, other);
            let mut tracker = Tracker::new(&rack, &nodes, 0, &["optout"]);
            tracker.say(&["client", "caching", "no"]);
            tracker.read(&[one, other]);
            for key in [one, other] {
                writer.say(&["set", key, "1"]);
            }
            tracker.is_not_told_of(one, other);
            let mut tracker = Tracker::new(&rack, &nodes, 0, &["bcast", "prefix", other]);
            for key in [one, other] {
                writer.say(&["set", key, "1"]);
            }
            tracker.is_not_told_of(one, other);
            // Another connection, at the same node, gets the notices.
            let mut tracker = Tracker::new(&rack, &nodes, 0, &["optin"]);
            let mut redirected = Connection::open(nodes[0]);
            redirected.say(&["hello", "3"]);
            let Reply::Integer(id) = tracker.say(&["client", "id"]) else { panic!("no number") };
            redirected.say(&["client", "tracking", "on", "redirect", &id.to_string()]);
            redirected.say(&["get", one]);
            writer.say(&["set", one, "1"]);
            assert_eq!(tracker.told_of(one), [one.as_str()]);
        }
    }
}

#[test]
fn own_changes_are_told_behind_their_reply_or_not_at_all() {
    let (rack, nodes) = rack(2, &["--unit-size", "1"]);
    let keys = keys_of(&rack);
    let large = "x".repeat(100_000);
    let mut writer = Connection::open(nodes[1]);
    let _stays = Tracker::new(&rack, &nodes, 0, &[]);
    for [one, other] in &keys {
        let changes = [
            &["set", one, "1"][..],
            &["set", one, &large],
            &["append", one, "1"],
            &["mset", &keys[0][0], "1", &keys[1][0], "1"],
            &["del", one, "none"],
        ];
        let mut own = Tracker::new(&rack, &nodes, 0, &[]);
        for command in changes {
            own.read(&[one]);
            own.say(command);
            own.say(&["ping"]);
            assert!(own.told.contains(one), "{command:?}");
            own.hears_out(other, &mut writer);
        }
        for line in [&["multi"][..], &["set", one, "1"], &["exec"], &["ping"]] {
            if line == ["multi"] {
                own.read(&[one]);
            }
            own.say(line);
        }
        assert!(own.told.contains(one));
        own.hears_out(other, &mut writer);
        let mut own = Tracker::new(&rack, &nodes, 0, &["noloop"]);
        for command in changes {
            own.read(&[one, other]);
            own.say(command);
            writer.say(&["set", other, "1"]);
            own.is_not_told_of(one, other);
        }
        own.read(&[one]);
        writer.say(&["set", one, "1"]);
        own.told_of(one);
    }
}

#[test]
fn flushes_expiries_and_losses_are_told() {
    let (rack, nodes) = rack(2, &["--unit-size", "1", "--", "--max-buffer=32k"]);
    let [_, [key, other]] = keys_of(&rack);
    let mut writer = Connection::open(nodes[1]);
    let mut tracker = Tracker::new(&rack, &nodes, 0, &[]);
    tracker.read(&[&key]);
    writer.say(&["flushall"]);
    tracker.told_of(ALL);
    writer.say(&["set", &key, "1", "px", "1500"]);
    // The store is told too.
    while tracker.say(&["get", &key]) != Reply::Null {
        tracker.told_of(&key);
    }
    // A node that does not take what it is told is told of all.
    tracker.read(&[&key]);
    rack.signal(0, Signal::STOP);
    writer.say(&["set", &key, "2"]);
    let set = |key: &String| array(&[b"set".to_vec(), key.clone().into_bytes(), b"3".to_vec()]);
    let burst: Vec<u8> = (0..1000).flat_map(|_| [set(&key), set(&other)].concat()).collect();
    let begun = Instant::now();
    while tracking_stat(&rack, 1, "tracking_collapsed") == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing has collapsed");
        writer.send(&burst, usize::MAX);
        (0..2000).for_each(|_| drop(writer.reply()));
    }
    rack.signal(0, Signal::CONT);
    tracker.told_of(ALL);
}

/// Over sealed links too.
#[test]
fn a_node_that_is_silent_is_taken_for_one_that_changes_everything() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), SECRET).unwrap();
    let options = ["--", "--rack-timeout=2s", "--rack-secret", secret.path().to_str().unwrap()];
    for (options, links) in [(&options[..2], "not sealed"), (&options[..], "sealed")] {
        let (rack, nodes) = rack(2, options);
        let stats = rack.client(0).stats("rack").unwrap();
        assert!(stats.contains(&("links".to_owned(), links.to_owned())), "the control");
        let [_, [key, _]] = keys_of(&rack);
        let mut writer = Connection::open(nodes[1]);
        let mut tracker = Tracker::new(&rack, &nodes, 0, &[]);
        for _ in 0..2 {
            tracker.hears(&key, &mut writer);
            tracker.read(&[&key]);
            rack.signal(1, Signal::STOP);
            // At first, and as long as it is silent.
            tracker.told_of(ALL);
            tracker.told_of(ALL);
            rack.signal(1, Signal::CONT);
        }
        tracker.hears(&key, &mut writer);
    }
}

/// An item that is evicted is nobody's change: a client with NOLOOP whose own values push it out is told too.
#[test]
fn evictions_and_expiries_at_another_node_are_told() {
    for unit_size in ["1", "2"] {
        let (rack, nodes) = rack(2, &["--unit-size", unit_size, "--memory", "4m"]);
        let [_, [key, short]] = keys_of(&rack);
        let (mut writer, value) = (Connection::open(nodes[1]), "v".repeat(4000));
        for mode in [&[][..], &["noloop"], &["bcast", "prefix", &key, "noloop"]] {
            let mut tracker = Tracker::new(&rack, &nodes, 0, mode);
            tracker.hears(&key, &mut writer);
            assert_eq!(tracker.say(&["get", &key]), bulk("heard"));
            let new = (0..20_000).map(|number| format!("new{number}"));
            let pushed = new.take_while(|new| {
                tracker.say(&["set", new, &value]);
                tracker.told.is_empty()
            });
            assert!(pushed.count() < 20_000, "{mode:?}: told of nothing");
            assert_eq!(tracker.told_of(&key), [key.as_str()], "{mode:?}");
            assert_eq!(tracker.say(&["get", &key]), Reply::Null);
        }
        for mode in [&[][..], &["bcast", "prefix", &short]] {
            let mut tracker = Tracker::new(&rack, &nodes, 0, mode);
            writer.say(&["set", &short, "1", "px", "1500"]);
            // The store is told too.
            while tracker.say(&["get", &short]) != Reply::Null {
                // Of both at once, on a busy machine.
                assert!(tracker.told_of(&short).iter().all(|key| *key == short), "{mode:?}");
            }
        }
    }
}

#[test]
fn changes_of_cold_keys_are_told() {
    for unit_size in ["1", "2"] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (rack, nodes) = rack_above_flash(&folder, unit_size);
        let [_, [key, other]] = keys_of(&rack);
        let mut writers = [0, 1].map(|node| Connection::open(nodes[node]));
        let mut tracker = Tracker::new(&rack, &nodes, 0, &[]);
        for (writer, change) in writers.iter_mut().zip(["set", "append"]) {
            change_cold(writer, &["set", &key, "old"]);
            change_cold(writer, &["set", &other, "old"]);
            tracker.hears(&other, writer);
            assert_eq!(tracker.say(&["get", &key]), bulk("old"));
            cold::fill(writer);
            tracker.say(&["ping"]);
            assert_eq!(tracker.told, [""; 0], "that it is cold is no change");
            let before = cold_reads(&rack);
            change_cold(writer, &["append", &other, "1"]);
            assert!(cold_reads(&rack) > before, "the control");
            change_cold(writer, &[change, &key, "new"]);
            tracker.told_of(&key);
        }
    }
}

#[test]
fn what_a_lost_node_has_changed_is_told() {
    let (mut rack, nodes) = rack(2, &[]);
    let [_, [key, _]] = keys_of(&rack);
    let mut tracker = Tracker::new(&rack, &nodes, 0, &[]);
    for round in 0..3 {
        insist(|| Ok(tracker.say(&["set", &key, "1"])), |said| *said == ok());
        tracker.read(&[&key]);
        tracker.say(&["ping"]);
        thread::sleep(Duration::from_millis(5));
        tracker.say(&["ping"]);
        tracker.told.clear();
        let gaps = |rack: &Rack| tracking_stat(rack, 0, "tracking_gaps");
        let before = gaps(&rack);
        rack.signal(1, Signal::KILL);
        tracker.told_of(ALL);
        rack.wait_for_restart(1);
        // Once it is heard again, what has changed before is told too.
        insist(|| Ok(gaps(&rack)), |gaps| *gaps >= before + 2);
        tracker.say(&["ping"]);
        let mut writer = rack.client(1);
        insist(|| writer.set(&key, format!("{round}").as_bytes()), |said| said == "STORED");
        tracker.read(&[&key]);
        insist(|| writer.set(&key, b"2"), |said| said == "STORED");
        tracker.told_of(&key);
    }
}

#[test]
fn keys_of_a_micro_shard_that_moves_are_told() {
    for options in [&[][..], &["--unit-size", "1"]] {
        let (rack, nodes) = rack(2, options);
        let keys = keys_of(&rack);
        let mut trackers = [0, 1].map(|node| Tracker::new(&rack, &nodes, node, &[]));
        let mut of_prefixes =
            [0, 1].map(|node| Tracker::new(&rack, &nodes, node, &["bcast", "prefix", "none"]));
        let mut writers = [0, 1].map(|node| Connection::open(nodes[node]));
        for (node, key) in [(0, &keys[0][0]), (1, &keys[1][0]), (1, &keys[0][0])] {
            writers[node].say(&["set", key, "1"]);
            trackers.iter_mut().for_each(|tracker| tracker.read(&[key]));
            trackers.iter_mut().for_each(|tracker| tracker.told.clear());
            rack.operate(&format!("move {} {}", rack.micro_shard(key), 1 - rack.owner(key)));
            for tracker in &mut trackers {
                tracker.told_of(key);
                tracker.read(&[key]);
            }
            of_prefixes.iter_mut().for_each(|tracker| drop(tracker.told_of(ALL)));
            writers[node].say(&["set", key, "2"]);
            trackers.iter_mut().for_each(|tracker| drop(tracker.told_of(key)));
        }
        assert_eq!([0, 1].map(|node| tracking_stat(&rack, node, "tracking_losses")), [0; 2]);
    }
}

#[test]
fn a_client_that_tracks_reads_no_copies() {
    let options = ["--unit-size=1", "--copies=2", "--", "--read-copies=500ms"];
    let (rack, nodes) = rack(2, &options);
    rack.wait_until_copied();
    let [_, [key, _]] = keys_of(&rack);
    let mut writer = Connection::open(nodes[1]);
    writer.say(&["set", &key, "1"]);
    let mut plain = Connection::open(nodes[0]);
    let copy_reads = || stat(&mut rack.client(0), "copy_reads");
    insist(|| Ok((plain.say(&["get", &key]), copy_reads())), |(_, reads)| *reads > 0);
    let mut tracker = Tracker::new(&rack, &nodes, 0, &[]);
    // Others' copies would be old now and then.
    for number in 0..50 {
        let value = number.to_string();
        writer.say(&["set", &key, &value]);
        for command in [&["get", &key][..], &["mget", &key], &["getrange", &key, "0", "-1"]] {
            let found = match tracker.say(command) {
                Reply::Elements(_, mut found) => found.remove(0),
                found => found,
            };
            assert_eq!(found, Reply::Bulk(value.clone().into_bytes()), "{command:?}");
        }
    }
}

const CACHED: u64 = 40;

/// A client that caches what it reads, and drops what it is told of if it listens.
struct Cache {
    tracker: Tracker,
    cached: BTreeMap<String, Reply>,
    listens: bool,
}

impl Cache {
    /// Reads until it is over, and a little longer.
    fn run(mut self, seed: u64, stops: &AtomicBool) -> Self {
        let (mut random, mut left) = (seeded(seed), 4 * CACHED);
        while left > 0 {
            let key = format!("c{}", random.random_range(0..CACHED));
            if self.cached.contains_key(&key) {
                self.tracker.say(&["ping"]);
            } else {
                let value = self.tracker.say(&["get", &key]);
                if !matches!(value, Reply::Error(_)) {
                    // What is told before the reply is older than the value.
                    self.forget();
                    self.cached.insert(key, value);
                }
            }
            self.forget();
            left -= u64::from(stops.load(Relaxed));
        }
        self
    }

    fn forget(&mut self) {
        for key in self.tracker.told.drain(..).filter(|_| self.listens) {
            if key == ALL { self.cached.clear() } else { drop(self.cached.remove(&key)) }
        }
    }

    /// What is cached and not so any more, once the client has heard what was told by now.
    fn old(&mut self, client: &mut Connection) -> Option<String> {
        self.tracker.say(&["ping"]);
        self.forget();
        self.cached.iter().find_map(|(key, value)| {
            let now = client.say(&["get", key]);
            (now != *value).then(|| format!("{key}: {value:?} is cached, and {now:?} is there"))
        })
    }
}

/// Changes keys at a node until it is over.
fn change(node: SocketAddr, seed: u64, is_over: &AtomicBool) {
    let (mut client, mut random) = (Connection::open(node), seeded(seed));
    for number in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        let key = format!("c{}", random.random_range(0..CACHED));
        let value = format!("{seed} {number}");
        match random.random_range(0..6) {
            0 => client.say(&["del", &key, "c1"]),
            1 => client.say(&["mset", &key, &value, "c2", &value]),
            2 => client.say(&["set", &key, &format!("{value:0>5000}")]),
            3 => client.say(&["set", &key, &value, "px", "20"]),
            _ => client.say(&["set", &key, &value]),
        };
        thread::sleep(Duration::from_micros(200));
    }
}

/// Caches of clients while keys change and `disturb` moves and kills what it wants: those that listen are right in the end.
fn caches_are_right(
    options: &[&str],
    (listens, clients): (bool, &[usize]),
    disturb: impl FnOnce(&mut Rack),
) -> bool {
    let (mut rack, nodes) = rack(2, options);
    let (is_over, stops) = (AtomicBool::new(false), AtomicBool::new(false));
    let new = |node: &usize| {
        let tracker = Tracker::new(&rack, &nodes, *node, &[]);
        Cache { tracker, cached: BTreeMap::new(), listens }
    };
    let caches: Vec<_> = clients.iter().map(new).collect();
    let mut caches: Vec<_> = thread::scope(|scope| {
        let (stops, is_over) = (&stops, &is_over);
        let readers: Vec<_> = caches
            .into_iter()
            .zip(1..)
            .map(|(cache, seed)| scope.spawn(move || cache.run(seed, stops)))
            .collect();
        let writers: Vec<_> = clients
            .iter()
            .zip(100..)
            .map(|(node, seed)| (nodes[*node], seed))
            .map(|(node, seed)| scope.spawn(move || change(node, seed, is_over)))
            .collect();
        let (stops, over) = (Over(stops), Over(is_over));
        disturb(&mut rack);
        drop(over);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(stops);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let (mut client, begun) = (Connection::open(nodes[0]), Instant::now());
    // What was changed at the end, or is over since, is told in time.
    while let Some(old) = caches.iter_mut().find_map(|cache| cache.old(&mut client)) {
        if !listens {
            return false;
        }
        assert!(begun.elapsed() < PATIENCE, "{old}");
        thread::sleep(Duration::from_millis(10));
    }
    true
}

fn move_all(rack: &mut Rack) {
    for round in 0..6 {
        for key in list("c", CACHED as usize) {
            rack.operate(&format!("move {} {}", rack.micro_shard(&key), (round + 1) % 2));
        }
        rack.wait_until_at_rest();
    }
}

#[test]
fn caches_are_right_while_micro_shards_move() {
    for options in [&[][..], &["--unit-size", "1"]] {
        assert!(caches_are_right(options, (true, &[0, 1, 0, 1]), move_all));
    }
}

#[test]
fn caches_of_clients_that_do_not_listen_are_old() {
    assert!(!caches_are_right(&[], (false, &[0, 1]), move_all));
}

#[test]
fn caches_are_right_after_a_node_was_lost() {
    let lose = |rack: &mut Rack| {
        rack.wait_until_copied();
        rack.lose(1, false);
        rack.wait_until_copied();
    };
    let options = ["--unit-size=1", "--copies=2", SHORT_LEASE, "--", "--rack-timeout=5s"];
    assert!(caches_are_right(&options, (true, &[0, 0]), lose));
}
