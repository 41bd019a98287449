//! Micro-shards that move between the nodes of a rack while they are used: three servers and their coordinator in this
//! process, over memcached's protocol.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use minos_engine::{Backing, CacheMode, Engine, Mode, StoreConfig, StoreMode};
use minos_net::Address;
use minos_node::{
    Server, ServerConfig, StatsGroup,
    config::{Acknowledge, Managed, RackConfig, RackFabric, RackNode},
    coordinator::{self, CoordinatorConfig, Keep, Loss, ReadPolicy},
};
use minos_testkit::{Client, Over};
use tempfile::TempDir;

const NODES: usize = 3;
const MICRO_SHARDS: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that loses it, on a busy machine, ends connections. A node that was removed comes back after a lease.
const LEASE: Duration = Duration::from_secs(8);

struct Rack {
    servers: Vec<Server>,
    coordinator: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    folder: TempDir,
}

impl Rack {
    fn start<M: Mode>(memory_bytes: u64) -> Self {
        // On tmpfs: each change waits for the disk.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let at = Address::Unix(folder.path().join("coordinator"));
        let config = coordinates(&folder, &at);
        let over = Arc::clone(&is_over);
        let coordinator =
            thread::spawn(move || coordinator::run(config, || (), || over.load(Relaxed)).unwrap());
        let managed = Managed {
            coordinators: vec![at.clone()],
            lease: LEASE,
            acknowledge: Acknowledge::Owner,
            read_copies: None,
        };
        let peers: Vec<PathBuf> = (0..NODES).map(|node| folder.path().join(node.to_string())).collect();
        let start = |node: usize| {
            let mut config = ServerConfig::new(2);
            config.pin = false;
            config.memcached = vec![Address::Tcp(([127, 0, 0, 1], 0).into())];
            let peer =
                |path: &PathBuf| RackNode { unit: 0, address: Address::Unix(path.clone()), native: None };
            config.rack = Some(RackConfig {
                name: "moves".to_owned(),
                node,
                nodes: peers.iter().map(peer).collect(),
                micro_shards: MICRO_SHARDS,
                timeout: PATIENCE,
                waiting_max: 64,
                managed: Some(managed.clone()),
                secrets: Vec::new(),
                fabric: RackFabric::Mapped,
            });
            let store = StoreConfig {
                backing: Backing::Memfd,
                hash_seed: 7,
                micro_shards: MICRO_SHARDS,
                ..StoreConfig::new(memory_bytes)
            };
            let store = Engine::<M>::create(&store).unwrap();
            store.set_clock_base(config.clock.zero_unix_s());
            Server::start(config, Arc::new(store)).unwrap()
        };
        let rack = Self {
            servers: (0..NODES).map(start).collect(),
            coordinator: Some(coordinator),
            is_over,
            folder,
        };
        rack.wait(|rack| (0..NODES).all(|node| rack.owned(node).iter().sum::<u32>() == MICRO_SHARDS));
        rack
    }

    fn client(&self, node: usize) -> Client {
        let Address::Tcp(address) = self.servers[node].addresses()[0] else { panic!("it has a port") };
        Client::connect(address).unwrap()
    }

    fn ask(&self, line: &str) -> String {
        coordinator::ask(&Address::Unix(self.folder.path().join("coordinator")), None, line).unwrap()
    }

    fn say(&self, line: &str) {
        assert_eq!(self.ask(line), "ok\n", "{line}");
    }

    fn wait(&self, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "{:?} {}", self.owned(0), self.ask("status"));
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// How many micro-shards each node has, as this one knows.
    fn owned(&self, node: usize) -> Vec<u32> {
        let mut owned = Vec::new();
        self.servers[node].operator().stats(StatsGroup::Rack, &mut |name, value| {
            owned.extend(name.ends_with(":micro_shards").then(|| value.to_string().parse::<u32>().unwrap()));
        });
        owned
    }

    /// Moves everything away from a node.
    fn drain(&self, node: usize) {
        self.say(&format!("drain {node}"));
        self.wait(|rack| {
            let state = rack.ask("status");
            let mut lines = state.lines().filter(|line| line.starts_with(&format!("node {node} ")));
            lines.any(|line| line.contains(" micro-shards 0 "))
        });
    }

    /// Lets a node be one of the rack again, with its part.
    fn add(&self, node: usize) {
        self.say(&format!("remove {node}"));
        // It goes with the next directory.
        self.wait(|rack| !rack.ask("status").contains(&format!("node {node} ")));
        // Once it has reported again.
        self.wait(|rack| rack.ask(&format!("add {node} 0")) == "ok\n");
        self.wait(|rack| (0..NODES).all(|other| rack.owned(other)[node] > 0));
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.servers.iter().for_each(|server| server.stop().request());
        self.servers.drain(..).for_each(|server| server.join().unwrap());
        self.is_over.store(true, Relaxed);
        self.coordinator.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// The coordinator of such a rack.
fn coordinates(folder: &TempDir, at: &Address) -> CoordinatorConfig {
    CoordinatorConfig {
        rack: "moves".to_owned(),
        listen: at.clone(),
        secrets: Vec::new(),
        keep: Keep::File(folder.path().join("directory")),
        nodes: vec![(0, String::new()); NODES],
        micro_shards: MICRO_SHARDS,
        lease: LEASE,
        loss: Loss::Never,
        moves_max: 16,
        copies: 1,
        relieve: None,
        move_time_max: PATIENCE,
        reads: ReadPolicy::default(),
        reads_interval: PATIENCE,
    }
}

/// A value of any size, which its key and the writer's turn determine.
fn value(key: usize, turn: usize) -> Vec<u8> {
    let bytes = [0, 1, 7, 8, 100, 1000, 3000, 5000, 70_000, 400_000][key % 10];
    (0..bytes).map(|at| (key * 31 + turn * 7 + at) as u8).collect()
}

/// Items keep value, flags, expiry and unique wherever they go.
fn items_move_as_they_are<M: Mode>() {
    const KEYS: usize = 300;
    let rack = Rack::start::<M>(64 << 20);
    let mut clients: Vec<Client> = (0..NODES).map(|node| rack.client(node)).collect();
    for key in 0..KEYS {
        let (value, ttl) = (value(key, 0), if key % 3 == 0 { 0 } else { 1000 + key });
        let said = clients[key % NODES].store(&format!("set key{key} {key} {ttl} {}", value.len()), &value);
        assert_eq!(said.unwrap(), "STORED");
    }
    let facts = |client: &mut Client, key: usize| client.ask(&format!("mg key{key} s f t c")).unwrap();
    let without_time = |facts: &str| {
        let words = facts.split(' ').filter(|word| !word.starts_with('t') || *word == "t-1");
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let before: Vec<_> = (0..KEYS).map(|key| facts(&mut clients[0], key)).collect();
    for node in [0, 2] {
        rack.drain(node);
        for (key, before) in before.iter().enumerate() {
            for client in &mut clients {
                let now = facts(client, key);
                assert_eq!(without_time(&now), without_time(before), "{now} {before}");
                assert_eq!(client.get(&format!("key{key}")).unwrap().unwrap().value, value(key, 0));
            }
        }
        rack.add(node);
    }
    // A unique of before a move is not given again after it.
    let unique = before[1].split(" c").nth(1).unwrap().to_owned();
    assert_eq!(clients[1].ask("delete key1").unwrap(), "DELETED");
    rack.drain(1);
    assert_eq!(clients[1].set("key1", b"another").unwrap(), "STORED");
    assert_eq!(clients[2].store(&format!("cas key1 0 0 1 {unique}"), b"x").unwrap(), "EXISTS");
    assert_eq!(clients[0].ask("flush_all").unwrap(), "OK");
    let is_there = |key: &usize| clients[key % NODES].get(&format!("key{key}")).unwrap().is_some();
    assert_eq!((0..KEYS).filter(is_there).collect::<Vec<_>>(), [0; 0]);
}

#[test]
fn items_of_a_store_move_as_they_are() {
    items_move_as_they_are::<StoreMode>();
}

#[test]
fn items_of_a_cache_move_as_they_are() {
    items_move_as_they_are::<CacheMode>();
}

/// Each writer reads what it has written, at any node, while everything moves: nothing fails, and nothing is lost.
#[test]
fn what_is_written_during_a_move_is_there_after_it() {
    const WRITERS: usize = 3;
    const KEYS: usize = 40;
    let rack = Rack::start::<StoreMode>(64 << 20);
    let (is_over, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let write = |writer: usize| {
        let mut clients: Vec<Client> = (0..NODES).map(|node| rack.client(node)).collect();
        let mut last = [None; KEYS];
        for turn in 1.. {
            if is_over.load(Relaxed) {
                break;
            }
            let key = turn % KEYS;
            let name = format!("w{writer}-{key}");
            if turn % 5 == 0 && last[key].is_some() {
                assert_eq!(clients[turn % NODES].ask(&format!("delete {name}")).unwrap(), "DELETED");
                last[key] = None;
            } else {
                assert_eq!(clients[turn % NODES].set(&name, &value(key, turn)).unwrap(), "STORED", "{name}");
                last[key] = Some(turn);
            }
            let found = clients[(turn + 1) % NODES].get(&name).unwrap().map(|item| item.value);
            assert!(found == last[key].map(|turn| value(key, turn)), "{name} in turn {turn}");
            is_ready.fetch_or(turn > KEYS, Relaxed);
        }
        for (key, turn) in last.iter().enumerate() {
            let found = clients[key % NODES].get(&format!("w{writer}-{key}")).unwrap().map(|item| item.value);
            assert!(found == turn.map(|turn| value(key, turn)), "w{writer}-{key} at the end");
        }
    };
    thread::scope(|scope| {
        let write = &write;
        let _over = Over(&is_over);
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        while !is_ready.load(Relaxed) && !writers.iter().any(|writer| writer.is_finished()) {
            thread::sleep(Duration::from_millis(1));
        }
        for node in [0, 1, 2, 0] {
            rack.drain(node);
            rack.add(node);
        }
    });
}
