//! Reads of a rack's native clients follow what its nodes have executed (RackOut §5): four servers in this process,
//! a coordinator that gets their loads, and a client that hears of the weights from them.

use std::{net::SocketAddr, process, sync::Arc, thread, time::Duration};

use minos_client::{Config, ReadBy, blocking::Client};
use minos_engine::{Backing, Engine, StoreConfig, StoreMode};
use minos_net::Address;
use minos_node::{
    Operator, Server, ServerConfig, StatsGroup,
    config::{NativeConfig, RackConfig, RackFabric, RackNode},
};
use minos_rack::{MicroShards, ServerId, UnitId};
use minos_unit::{
    Balancing, Coordinator, Directory, Load, Loss, Node, PARTS, Policy, ReadPolicy, Report, Standing, Terms,
    control,
};
use tempfile::TempDir;

const NODES: usize = 4;
const MICRO_SHARDS: u32 = 64;
const INTERVAL_US: u64 = 10_000_000;
/// Requests of a phase.
const REQUESTS: usize = 4000;
const PATIENCE: Duration = Duration::from_secs(20);

struct Rack {
    servers: Vec<Server>,
    addresses: Vec<SocketAddr>,
    _folder: TempDir,
}

/// An address of this process alone, so that the port is free.
fn address(node: usize, rack: u8) -> SocketAddr {
    let [.., high, low] = process::id().to_be_bytes();
    SocketAddr::from(([127, 64 + (high & 63), low, rack * NODES as u8 + node as u8 + 1], 17_311))
}

impl Rack {
    fn start(number: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addresses: Vec<_> = (0..NODES).map(|node| address(node, number)).collect();
        let path = |node: usize| folder.path().join(node.to_string());
        let peer =
            |node| RackNode { unit: 0, address: Address::Unix(path(node)), native: Some(addresses[node]) };
        let start = |node: usize| {
            let mut config = ServerConfig::new(1);
            config.pin = false;
            config.memcached = vec![Address::Unix(folder.path().join(format!("{node}.memcached")))];
            config.native = Some(NativeConfig { single_port: true, ..NativeConfig::new(addresses[node]) });
            config.rack = Some(RackConfig {
                name: "reads".to_owned(),
                node,
                nodes: (0..NODES).map(peer).collect(),
                micro_shards: MICRO_SHARDS,
                timeout: PATIENCE,
                waiting_max: 64,
                managed: None,
                secrets: Vec::new(),
                fabric: RackFabric::Mapped,
            });
            let store = StoreConfig {
                backing: Backing::Memfd,
                hash_seed: 7,
                micro_shards: MICRO_SHARDS,
                ..StoreConfig::new(16 << 20)
            };
            Server::start(config, Arc::new(Engine::<StoreMode>::create(&store).unwrap())).unwrap()
        };
        let rack = Self { servers: (0..NODES).map(start).collect(), addresses, _folder: folder };
        while rack.stats().iter().flatten().any(|(name, state)| name.ends_with(":memory") && is_apart(state))
        {
            thread::sleep(Duration::from_millis(5));
        }
        rack
    }

    fn operators(&self) -> Vec<Operator> {
        self.servers.iter().map(Server::operator).collect()
    }

    /// `stats rack` of each node.
    fn stats(&self) -> Vec<Vec<(String, String)>> {
        let of = |operator: Operator| {
            let mut lines = Vec::new();
            operator.stats(StatsGroup::Rack, &mut |name, value| {
                lines.push((name.to_owned(), value.to_string()));
            });
            lines
        };
        self.operators().into_iter().map(of).collect()
    }

    fn loads(&self) -> Vec<Load> {
        self.operators().iter().map(Operator::load).collect()
    }

    fn client(&self) -> Client {
        // Nothing is lost; a machine that is busy must not make the client repeat what counts.
        let config =
            Config::new().timeout(PATIENCE).retry_between(PATIENCE, PATIENCE).failover_after(PATIENCE);
        let config = config.read_by(ReadBy::Weighted);
        let mut client = Client::connect(&self.addresses[2].to_string(), config).unwrap();
        while client.rack().is_none() {
            client.ping().unwrap();
        }
        client
    }

    /// Eight keys, which these nodes own, as the loads tell.
    fn hot_keys(&self, client: &mut Client, owners: &[usize]) -> Vec<String> {
        let mut keys = Vec::new();
        for key in (0..).map(|number| format!("key{number}")) {
            let owner = owners[keys.len() % owners.len()];
            let before = self.loads()[owner].writes;
            client.put(&key, "value").unwrap();
            // An operation is counted before its reply leaves.
            keys.extend((self.loads()[owner].writes > before).then_some(key));
            if keys.len() == 8 {
                break;
            }
        }
        keys
    }
}

fn is_apart(state: &str) -> bool {
    !matches!(state, "attached" | "self")
}

fn coordinator(policy: ReadPolicy) -> Coordinator {
    let node =
        |id| Node { id: ServerId(id), unit: UnitId(0), standing: Standing::Member, address: String::new() };
    let directory =
        Directory::new(MicroShards::new(MICRO_SHARDS).unwrap(), 1, (0..NODES as u32).map(node).collect());
    let terms = Terms::new(3 * INTERVAL_US, 500, 100_000).unwrap();
    let limits = Policy { loss: Loss::Never, moves_max: 1, move_us_max: INTERVAL_US, copies: 1 };
    let balancing = Balancing { policy, interval_us: INTERVAL_US };
    Coordinator::new(directory.unwrap(), terms, limits, 0).with_balancing(balancing, 0)
}

/// Tells the coordinator what the nodes have executed until now.
fn report(coordinator: &mut Coordinator, now_us: u64, loads: &[Load]) {
    for (id, load) in (0..).zip(loads) {
        let report = Report {
            node: ServerId(id),
            incarnation: 1,
            sent_us: now_us,
            epoch: 1,
            kept: 0,
            withdrawn: Vec::new(),
            lacking: Vec::new(),
            moves: Vec::new(),
            load: Some(*load),
            weights: 0,
            heat: Vec::new(),
            sampled: 0,
        };
        coordinator.handle(now_us, control::Input::Report(report), &mut Vec::new());
    }
}

/// Each node's share of the reads of hot keys, so many of whose requests write, out of five.
fn shares(rack: &Rack, client: &mut Client, keys: &[String], writes: usize) -> Vec<f64> {
    let before = rack.loads();
    for number in 0..REQUESTS {
        let key = &keys[number % keys.len()];
        if number % 5 < writes {
            client.put(key, "value").unwrap();
        } else {
            assert!(client.get(key).unwrap().is_some());
        }
    }
    let reads: Vec<u64> =
        rack.loads().iter().zip(&before).map(|(after, before)| after.reads - before.reads).collect();
    let all: u64 = reads.iter().sum();
    assert_eq!(all as usize, REQUESTS / 5 * (5 - writes));
    reads.iter().map(|reads| *reads as f64 / all as f64).collect()
}

fn are_near(shares: &[f64], expected: f64) -> bool {
    shares.iter().all(|share| (share - expected).abs() < 0.06)
}

/// Hot keys are written at the first nodes, and read. `left` is the part of the reads that each of these should get.
fn balance(number: u8, policy: ReadPolicy, (owners, writes): (usize, usize), left: f64) {
    let rack = Rack::start(number);
    let mut client = rack.client();
    let keys = rack.hot_keys(&mut client, &[0, 1][..owners]);
    let mut coordinator = coordinator(policy);
    report(&mut coordinator, 1, &rack.loads());
    let before = shares(&rack, &mut client, &keys, writes);
    assert!(are_near(&before, 0.25), "{before:?}");
    report(&mut coordinator, INTERVAL_US - 1, &rack.loads());
    coordinator.handle(INTERVAL_US, control::Input::Tick, &mut Vec::new());
    let weights = coordinator.weights().unwrap();
    assert!(are_near(&[f64::from(weights.of(ServerId(0))) / f64::from(PARTS)], left), "{weights:?}");
    // A node tells it to the client with any answer.
    rack.operators().iter().for_each(|operator| operator.weigh(Arc::clone(weights)));
    while client.weights() != weights.version() {
        client.ping().unwrap();
    }
    let after = shares(&rack, &mut client, &keys, writes);
    let others = (1.0 - left * owners as f64) / (NODES - owners) as f64;
    assert!(are_near(&after[..owners], left) && are_near(&after[owners..], others), "{after:?}");
    let told = ("node:0:weight".to_owned(), weights.of(ServerId(0)).to_string());
    assert!(rack.stats().iter().all(|lines| lines.contains(&told)), "{:?}", rack.stats());
}

/// A fifth of all requests write at node 0, of which it can have a quarter: 5 % of 80 % are left.
#[test]
fn the_owner_of_hot_keys_gets_fewer_reads() {
    balance(0, ReadPolicy::Writes, (1, 1), 0.0625);
}

/// Two nodes have 30 % of all requests as writes, more than a quarter.
#[test]
fn two_owners_of_hot_keys_get_no_reads() {
    balance(1, ReadPolicy::Writes, (2, 3), 0.0);
}

#[test]
fn control_under_the_static_policy_the_owner_gets_as_many_reads_as_the_others() {
    balance(2, ReadPolicy::Static, (1, 1), 0.25);
}

#[test]
fn a_node_counts_what_it_executes() {
    let rack = Rack::start(3);
    let mut client = rack.client();
    let keys = rack.hot_keys(&mut client, &[0]);
    let before = rack.loads();
    for key in &keys {
        client.get(key).unwrap();
        client.put(key, "1").unwrap();
        client.incr(key, 1).unwrap();
        client.delete(key).unwrap();
        client.get_many(["x", "y"]);
    }
    let after = rack.loads();
    let grown = |of: fn(&Load) -> u64| -> Vec<u64> {
        after.iter().zip(&before).map(|(after, before)| of(after) - of(before)).collect()
    };
    let (reads, writes) = (grown(|load| load.reads), grown(|load| load.writes));
    assert_eq!(reads.iter().sum::<u64>(), 3 * keys.len() as u64);
    // All are executed by their owner.
    assert_eq!(writes, [3 * keys.len() as u64, 0, 0, 0]);
    assert!(after.iter().all(|load| load.busy_us > 0), "{after:?}");
}
