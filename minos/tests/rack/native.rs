//! Native clients of racks.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use minos_client::{Config, Error, OnceFor, ReadBy, StoreOptions, blocking::Client as Native};
use rustix::process::Signal;

use super::{
    up::{Rack, stat},
    value,
};

const PATIENT: Duration = Duration::from_secs(60);

fn native(rack: &Rack, node: usize, config: Config) -> Native {
    let mut client = Native::connect(&rack.native[node].to_string(), config).unwrap();
    while client.rack().is_none() {
        client.ping().unwrap();
    }
    client
}

fn patient() -> Config {
    Config::new().timeout(PATIENT)
}

/// A client that repeats nothing on a busy machine: what it sends is counted.
fn steady() -> Config {
    patient().retry_between(PATIENT, PATIENT).failover_after(PATIENT)
}

/// A statistic of each node.
fn of_nodes(rack: &Rack, name: &str) -> Vec<u64> {
    (0..rack.nodes.len()).map(|node| stat(&mut rack.client(node), name)).collect()
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|key| format!("k{key}")).collect()
}

#[test]
fn a_native_client_sees_the_store_of_all() {
    let rack = Rack::up(4, &["--unit-size", "2", "--native"]);
    let keys = keys(200);
    let mut one = native(&rack, 0, patient());
    let items = keys.iter().enumerate().map(|(number, key)| (key, value(number)));
    assert!(one.put_many(items, StoreOptions::new()).iter().all(Result::is_ok));
    let mut other = native(&rack, 3, patient());
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(other.get(key).unwrap().unwrap().bytes, value(number));
        let legacy = rack.client(number % 4).get(key).unwrap().unwrap();
        assert_eq!(legacy.value, value(number));
        // What is executed once: at its owner, wherever that is.
        assert_eq!(one.add(key, "x", StoreOptions::new()), Ok(None));
        assert_eq!(other.incr_or_create(format!("{key}n"), 2, 5, StoreOptions::new()), Ok(5));
        assert_eq!(one.incr(format!("{key}n"), 3), Ok(Some(8)));
    }
    let found = one.get_many(&keys);
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(number, it)| it.as_ref().unwrap().as_ref().unwrap().bytes == value(number))
    );
    // Each went to its owner at once.
    assert_eq!(of_nodes(&rack, "native_not_owner"), [0; 4]);
    for bytes in [5_000, 60_000, 1_000_000] {
        for key in &keys[..8] {
            one.put(key, vec![b'x'; bytes]).unwrap();
            assert_eq!(other.get(key).unwrap().unwrap().bytes.len(), bytes);
        }
    }
    one.flush_all(None).unwrap();
    assert!(other.get_many(&keys).into_iter().all(|result| result == Ok(None)));
}

#[test]
fn reads_are_spread_over_the_nodes() {
    let rack = Rack::up(4, &["--native"]);
    for read_by in [ReadBy::Uniform, ReadBy::TwoChoices] {
        let mut client = native(&rack, 1, steady().read_by(read_by));
        client.put("hot", "spot").unwrap();
        let before = of_nodes(&rack, "remote_reads");
        for _ in 0..4000 {
            assert_eq!(client.get("hot").unwrap().unwrap().bytes, b"spot");
        }
        let after = of_nodes(&rack, "remote_reads");
        let grown: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        // The owner reads it in its own memory.
        let even = grown.iter().filter(|&&reads| (800..=1200).contains(&reads)).count();
        assert!(even == 3 && grown.contains(&0), "{grown:?}");
    }
    // Many keys travel in one datagram, and one node of the unit reads them all.
    let mut client = native(&rack, 2, steady());
    let keys = keys(100);
    client.get_many(&keys);
    let (reads, sent) = (of_nodes(&rack, "remote_reads"), client.counters().datagrams_sent);
    for _ in 0..10 {
        client.get_many(&keys);
    }
    let sent = client.counters().datagrams_sent - sent;
    // And a Hello for each of the other three nodes, at its first turn.
    assert!((10..=13).contains(&sent), "{sent}");
    let reads: u64 = of_nodes(&rack, "remote_reads").iter().sum::<u64>() - reads.iter().sum::<u64>();
    assert!((500..=1000).contains(&reads), "{reads}");
}

#[test]
fn reads_go_on_while_the_owner_is_stopped() {
    let rack = Rack::up(3, &["--native"]);
    let key = rack.key_of(1);
    let mut client = native(&rack, 1, patient());
    client.put(&key, "before").unwrap();
    assert!(client.get_many(keys(50)).into_iter().all(|result| result == Ok(None)));
    rack.signal(1, Signal::STOP);
    for _ in 0..1000 {
        assert_eq!(client.get(&key).unwrap().unwrap().bytes, b"before");
    }
    // It does not wait for the stopped node again and again.
    let failovers = client.counters().failovers;
    assert!((1..200).contains(&failovers), "{failovers}");
    client.set_timeout(Some(Duration::from_millis(200)));
    // Once a node has been silent for a second, nothing that is executed once is sent before it is heard again.
    let put = client.put(&key, "after");
    assert!(matches!(put, Err(Error::TimedOut { .. })), "{put:?}");
    // A new client is told the directory by another node, if the first one does not answer.
    let addresses: Vec<String> = [1, 2].iter().map(|&node: &usize| rack.native[node].to_string()).collect();
    let mut late = Native::connect(&addresses.join(","), patient()).unwrap();
    assert_eq!(late.get(&key).unwrap().unwrap().bytes, b"before");
    rack.signal(1, Signal::CONT);
    client.set_timeout(None);
    client.put(&key, "after").unwrap();
    assert_eq!(late.get(&key).unwrap().unwrap().bytes, b"after");
}

#[test]
fn reads_go_on_while_the_owner_is_started_again() {
    let mut rack = Rack::up(3, &["--native"]);
    let key = rack.key_of(1);
    // Its stores may be repeated, at a node that knows nothing of the first copy.
    let mut client = native(&rack, 0, patient().once_for(OnceFor::NotIdempotent));
    let (test_begun, mut reads_max) = (Instant::now(), 0);
    for round in 0.. {
        let is_killed = round % 2 == 0;
        client.put(&key, value(round)).unwrap();
        rack.signal(1, if is_killed { Signal::KILL } else { Signal::TERM });
        // A killed node is started after a longer time.
        let (begun, mut reads) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(250) {
            assert_eq!(client.get(&key).unwrap().unwrap().bytes, value(round));
            reads += 1;
        }
        reads_max = reads_max.max(if is_killed { reads } else { 0 });
        // It waits until the node is back.
        client.put(&key, "again").unwrap();
        rack.wait_for_restart(1);
        rack.wait_until_attached();
        assert_eq!(client.get(&key).unwrap().unwrap().bytes, b"again");
        // A read that waits for its owner is the only one in that time.
        if round >= 3 && reads_max >= 5 {
            break;
        }
        assert!(test_begun.elapsed() < PATIENT, "{reads_max}");
    }
}

#[test]
fn commands_of_native_clients_use_the_whole_rack() {
    let rack = Rack::up(3, &["--native"]);
    let minos = |arguments: &[&str], server: SocketAddr| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(arguments).args(["--timeout", "60s", "--server", &server.to_string()]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for (number, key) in keys(6).iter().enumerate() {
        let server = |step: usize| rack.native[(number + step) % 3];
        assert_eq!(minos(&["set", key, "value"], server(0)).0, Some(0));
        assert_eq!(minos(&["get", key], server(1)), (Some(0), "value\n".to_owned()));
        assert_eq!(minos(&["del", key], server(2)).0, Some(0));
        assert_eq!(minos(&["get", key], server(0)).0, Some(1));
    }
    assert_eq!(minos(&["get", "no", "--reads", "two-choices"], rack.native[1]).0, Some(1));
    assert_eq!(minos(&["get", "no", "--reads", "any"], rack.native[1]).0, Some(2));
    let (_, settings) = minos(&["stats", "rack"], rack.native[2]);
    assert!(settings.lines().any(|line| line.split_whitespace().eq(["node", "2"])), "{settings}");
    assert!(settings.contains("load_busy_us"), "{settings}");
}
