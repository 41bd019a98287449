//! Nodes with flash below their memory: cold items are found through every node, move, and never come back old.

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use minos_client::{Config, blocking::Client as Native};
use minos_testkit::{Client, Server};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    apart,
    ports::free_ports,
    up::{PATIENCE, Rack, insist},
};

/// More than the memory of two nodes holds.
const KEYS: u32 = 12_000;
const VALUE_BYTES: usize = 1000;
/// Keys that are changed.
const CHANGED: u32 = 200;
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory";
/// Requests in one write.
const BURST: usize = 60;

fn name(key: u32) -> String {
    format!("key{key}")
}

fn value(key: u32, turn: u32) -> Vec<u8> {
    format!("{key} {turn} ").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

/// Two nodes without a coordinator.
struct Pair {
    nodes: [Server; 2],
    native: String,
    _folder: TempDir,
}

impl Pair {
    fn start(options: &[&str], has_region: bool) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        // Each of two workers takes two ports.
        let first = free_ports(8);
        let native = [first, first + 4].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let path =
            |name: &str, node: usize| folder.path().join(format!("{name}-{node}")).display().to_string();
        let peers: Vec<_> = (0..2).map(|node| format!("{}={}", path("node", node), native[node])).collect();
        let start = |node: usize| {
            let own = [
                format!("--node={node}"),
                format!("--peers={}", peers.join(",")),
                format!("--flash={}:64m", path("flash", node)),
                format!("--native={}", native[node]),
                format!("--region={}", path("region", node)),
            ];
            let own = own[..if has_region { 5 } else { 4 }].iter().map(String::as_str);
            let all = ["--rack=r", "--hash-seed=7", "--memory=4m", "--max-item-size=64k", "--pin=off"];
            let all = all.into_iter().chain(["--workers=2", "--rack-timeout=30s"]);
            let options: Vec<&str> = all.chain(own).chain(options.iter().copied()).collect();
            Server::minos(Path::new(env!("CARGO_BIN_EXE_minos")), &options)
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let nodes = [0, 1].map(start);
        let pair =
            Self { nodes, native: native.map(|address| address.to_string()).join(","), _folder: folder };
        pair.wait_until_attached();
        pair
    }

    fn client(&self, node: usize) -> Client {
        Client::connect(self.nodes[node].address()).unwrap()
    }

    fn stat(&self, node: usize, group: &str, name: &str) -> u64 {
        stat(&mut self.client(node), group, name)
    }

    fn wait_until_attached(&self) {
        let deadline = Instant::now() + PATIENCE;
        let is_attached = |node: usize| {
            let stats = self.client(node).stats("rack").unwrap();
            stats.contains(&(format!("node:{}:memory", 1 - node), "attached".to_owned()))
        };
        while !(is_attached(0) && is_attached(1)) {
            assert!(Instant::now() < deadline, "{}", self.nodes[0].log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn stat(client: &mut Client, group: &str, name: &str) -> u64 {
    let stats = client.stats(group).unwrap();
    stats.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}")).1.parse().unwrap()
}

/// Stores keys through clients in turn.
fn store(clients: &mut [Client], keys: std::ops::Range<u32>, turn: u32) {
    let items: Vec<_> = keys.map(|key| (name(key), value(key, turn))).collect();
    for (number, burst) in items.chunks(BURST).enumerate() {
        let (client, deadline) = (number % clients.len(), Instant::now() + PATIENCE);
        loop {
            let lines = clients[client].set_many(burst).unwrap();
            if lines.iter().all(|line| line == "STORED") {
                break;
            }
            // On a busy machine flash may be behind for longer than a request waits.
            let is_behind = |line: &String| line == "STORED" || line.starts_with(OUT_OF_MEMORY);
            assert!(lines.iter().all(is_behind) && Instant::now() < deadline, "{lines:?}");
        }
    }
}

/// How many keys are found; each has the value of its turn.
fn found(client: &mut Client, keys: std::ops::Range<u32>, turn: impl Fn(u32) -> u32) -> u32 {
    let names: Vec<_> = keys.clone().map(name).collect();
    let found = names.chunks(BURST).flat_map(|burst| insist(|| client.get_many(burst), |_| true));
    let found = found.zip(keys).filter_map(|(found, key)| Some((key, found?)));
    let is_right = |(key, found): (u32, minos_testkit::Found)| {
        let begin = String::from_utf8_lossy(&found.value[..20.min(found.value.len())]).into_owned();
        assert!(found.value == value(key, turn(key)), "{key}: {begin}");
    };
    found.map(is_right).count() as u32
}

#[test]
fn items_on_flash_are_found_through_every_node() {
    for engine in ["--engine=store", "--engine=cache"] {
        let pair = Pair::start(&[engine], false);
        let mut clients = [pair.client(0), pair.client(1)];
        store(&mut clients, 0..KEYS, 1);
        let counts = clients.each_mut().map(|client| found(client, 0..KEYS, |_| 1));
        eprintln!("{engine}: {counts:?} of {KEYS} keys");
        let least = if engine == "--engine=store" { KEYS } else { KEYS / 2 };
        assert!(counts.iter().all(|count| *count >= least), "{engine}: {counts:?}");
        for node in 0..2 {
            assert!(pair.stat(node, "rack", "remote_asked") > 100, "{engine}");
            assert!(pair.stat(node, "flash", "read_found") > 100, "{engine}");
        }
        // What is nowhere is known here.
        let asked = pair.stat(0, "rack", "remote_asked");
        assert_eq!(found(&mut clients[0], 2 * KEYS..3 * KEYS, |_| 1), 0);
        let asked = pair.stat(0, "rack", "remote_asked") - asked;
        assert!(asked < u64::from(KEYS) / 100, "{engine}: {asked}");
        let mut native = Native::connect(&pair.native, Config::new().timeout(PATIENCE)).unwrap();
        let hits = (0..KEYS / 10).filter_map(|key| {
            let found = native.get(name(key)).unwrap()?;
            assert!(found.bytes == value(key, 1), "{engine}: {key}");
            Some(())
        });
        // A cache may have lost the oldest ones, if flash was behind.
        let (hits, all) = (hits.count() as u32, engine == "--engine=store");
        assert!(if all { hits == KEYS / 10 } else { hits > 0 }, "{engine}: {hits}");
        change_cold_keys(&mut clients, engine == "--engine=store");
        assert_eq!(clients[1].ask("flush_all").unwrap(), "OK");
        clients.iter_mut().for_each(|client| assert_eq!(found(client, 0..KEYS, |_| 1), 0, "{engine}"));
    }
}

/// The reply to a command, which is repeated while flash is behind.
fn change(client: &mut Client, command: &str) -> String {
    insist(|| client.ask(command), |said| !said.starts_with(OUT_OF_MEMORY))
}

/// Commands that need the old item, from another node than reads it afterwards.
fn change_cold_keys(clients: &mut [Client; 2], has_all: bool) {
    for key in 0..CHANGED {
        let (name, [one, other]) = (name(key), &mut *clients);
        let said = change(one, &format!("append {name} 0 0 1\r\n!"));
        let now = other.get(&name).unwrap().map(|found| found.value);
        if said == "STORED" {
            assert!(now == Some([&value(key, 1)[..], b"!"].concat()), "{name}");
        } else {
            assert!(said == "NOT_STORED" && now.is_none() && !has_all, "{name}: {said}");
        }
        assert!(["DELETED", "NOT_FOUND"].contains(&&*change(other, &format!("delete {name}"))));
        assert!(one.get(&name).unwrap().is_none(), "{name}");
        clients.swap(0, 1);
    }
}

/// What a node has after it was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Everything,
    /// It begins without items.
    Nothing,
}

#[test]
fn no_old_value_comes_back_with_a_killed_node() {
    for (options, has_region, after) in [
        (&["--engine=store"][..], true, After::Everything),
        (&["--engine=store", "--durability=flush"], false, After::Everything),
        (&["--engine=cache"], false, After::Nothing),
    ] {
        let mut pair = Pair::start(options, has_region);
        let mut clients = [pair.client(0), pair.client(1)];
        store(&mut clients, 0..KEYS, 1);
        let deadline = Instant::now() + PATIENCE;
        while pair.stat(1, "flash", "flash_items") == 0 {
            assert!(Instant::now() < deadline, "nothing comes to flash: {}", pair.nodes[1].log());
        }
        // These are newer in memory than on flash.
        store(&mut clients, 0..CHANGED, 2);
        pair.nodes[1].kill().unwrap();
        pair.nodes[1].start_again().unwrap();
        pair.wait_until_attached();
        let turn = |key| if key < CHANGED { 2 } else { 1 };
        let counts = [0, 1].map(|node| found(&mut pair.client(node), 0..KEYS, turn));
        eprintln!("{options:?}: {counts:?} of {KEYS} keys");
        match after {
            After::Everything => assert_eq!(counts, [KEYS; 2], "{options:?}\n{}", pair.nodes[1].log()),
            After::Nothing => {
                assert!(counts[0] == counts[1] && counts[0] < KEYS, "{options:?}: {counts:?}");
                assert_eq!(pair.stat(1, "flash", "flash_items"), 0, "{options:?}");
            }
        }
    }
}

#[test]
fn flash_of_another_rack_is_left_alone() {
    let folder = TempDir::with_prefix("minos-rack-flash-").unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (flash, peers) = (format!("--flash={}:64m", path("flash")), format!("--peers={}", path("node")));
    let options = |seed| ["--rack=r", "--node=0", &peers, &flash, "--memory=4m", seed];
    let program = Path::new(env!("CARGO_BIN_EXE_minos"));
    drop(Server::minos(program, &options("--hash-seed=7")).unwrap());
    let refused = Server::minos(program, &options("--hash-seed=8")).unwrap_err().to_string();
    assert!(refused.contains("its table hashes keys otherwise"), "{refused}");
}

/// Moves micro-shards of keys to a node, and waits until they are there.
fn move_to(rack: &Rack, keys: &[u32], node: usize) {
    let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
    apart::move_all(rack, &names, node);
}

#[test]
fn cold_items_move_and_do_not_come_back_old() {
    let flash = tempfile::tempdir_in("/dev/shm").unwrap();
    let flash = format!("{}:64m", flash.path().display());
    let mut rack = Rack::up(2, &["--memory", "8m", "--flash", &flash]);
    let mut clients = [rack.client(0), rack.client(1)];
    store(&mut clients, 0..2 * KEYS, 1);
    let moved: Vec<u32> = (0..KEYS).step_by(301).collect();
    move_to(&rack, &moved, 1);
    let turn = |key| 1 + u32::from(moved.contains(&key) && key % 2 == 0);
    clients.iter_mut().for_each(|client| assert_eq!(found(client, 0..2 * KEYS, |_| 1), 2 * KEYS));
    // At the new owner, some get another value and others are deleted.
    let gone: Vec<u32> = moved.iter().copied().filter(|key| key % 2 == 1).collect();
    for key in &moved {
        if gone.contains(key) {
            assert_eq!(change(&mut clients[0], &format!("delete {}", name(*key))), "DELETED");
        } else {
            store(&mut clients[..1], *key..*key + 1, 2);
        }
    }
    move_to(&rack, &moved, 0);
    let left = 2 * KEYS - gone.len() as u32;
    clients.iter_mut().for_each(|client| assert_eq!(found(client, 0..2 * KEYS, turn), left));
    for node in 0..2 {
        rack.signal(node, Signal::KILL);
        rack.wait_for_restart(node);
        rack.wait_until_attached();
    }
    for node in 0..2 {
        assert_eq!(found(&mut rack.client(node), 0..2 * KEYS, turn), left);
    }
    // Everything of one node.
    assert_eq!(rack.operate("drain 1"), "ok\n");
    let deadline = Instant::now() + PATIENCE;
    while rack
        .client(0)
        .stats("rack")
        .unwrap()
        .iter()
        .any(|(name, count)| name == "node:1:micro_shards" && count != "0")
    {
        assert!(Instant::now() < deadline, "{}", rack.operate("status"));
        thread::sleep(Duration::from_millis(50));
    }
    for node in 0..2 {
        assert_eq!(found(&mut rack.client(node), 0..2 * KEYS, turn), left);
    }
}
