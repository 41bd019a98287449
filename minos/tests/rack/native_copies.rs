//! Native clients that read copies: what they see is as new as was promised, whatever happens to nodes.

use minos_testkit::{Over, number_from};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use minos_base::seeded;
use minos_client::{Config, ReadBy, StoreOptions, blocking::Client as Native};
use rand::{RngExt as _, rngs::StdRng};
use rustix::process::Signal;

use crate::{
    counts::{Counters, KEYS, name},
    up::{Rack, SHORT_LEASE, stat},
};

const NODES: usize = 4;
/// How old copies may be.
const OLD: Duration = Duration::from_millis(300);
const OLD_TEXT: &str = "300ms";
/// Kills and stops; more of them by MINOS_RACK_COPIES.
const ROUNDS: u64 = 6;
/// Stops of followers; more of them by MINOS_RACK_STOPS.
const STOPS: u64 = 6;
const READERS: usize = 3;
/// Clients that ask a stopped node, among others.
const CROWD: usize = 24;
const PAUSE: Duration = Duration::from_micros(500);
const PATIENT: Duration = Duration::from_secs(60);

fn rack(acknowledge: &str) -> Rack {
    let copies =
        ["--unit-size", "2", "--copies", "2", SHORT_LEASE, "--native", "--", "--read-copies", OLD_TEXT];
    let rack =
        Rack::up(NODES, &[&copies[..], &["--acknowledge", acknowledge, "--rack-timeout", "1s"]].concat());
    rack.wait_until_copied();
    rack
}

fn client(rack: &Rack, first: usize, config: Config) -> Native {
    let addresses: Vec<_> = (0..NODES).map(|turn| rack.native[(first + turn) % NODES].to_string()).collect();
    Native::connect(&addresses.join(","), config).unwrap()
}

fn count(counters: &Counters, client: &mut Native, key: usize) {
    counters.count(key, |_| client.incr_or_create(name(key), 1, 1, StoreOptions::new()).ok());
}

fn read(counters: &Counters, client: &mut Native, key: usize) {
    counters.read(key, || Some(client.get(name(key)).ok()?.map(|value| value.bytes)));
}

fn make_trouble(rack: &mut Rack, random: &mut StdRng) {
    let node = random.random_range(0..NODES);
    match random.random_range(0..4) {
        0 => {
            rack.signal(node, Signal::KILL);
            rack.wait_for_restart(node);
        }
        1 => rack.lose(node, true),
        kind => {
            rack.signal(node, Signal::STOP);
            let pause_ms = if kind == 2 { 1..150 } else { 400..800 };
            thread::sleep(Duration::from_millis(random.random_range(pause_ms)));
            rack.signal(node, Signal::CONT);
        }
    }
}

#[test]
fn native_clients_read_copies_that_are_new_enough_whatever_happens_to_nodes() {
    let rounds = number_from("MINOS_RACK_COPIES", ROUNDS);
    let mut rack = rack("copies");
    let (counters, is_over, mut random) = (Counters::default(), AtomicBool::new(false), seeded(7));
    let config = Config::new().timeout(Duration::from_millis(500)).read_by(ReadBy::Copies);
    let mut clients: Vec<Native> = (0..=READERS).map(|it| client(&rack, it, config.clone())).collect();
    thread::scope(|scope| {
        let over = Over(&is_over);
        for (number, mut client) in clients.drain(..).enumerate() {
            let (counters, is_over) = (&counters, &is_over);
            scope.spawn(move || {
                for key in (0..KEYS).cycle().take_while(|_| !is_over.load(Relaxed)) {
                    if number == 0 {
                        count(counters, &mut client, key)
                    } else {
                        read(counters, &mut client, key)
                    }
                    thread::sleep(PAUSE);
                }
            });
        }
        for _ in 0..rounds {
            make_trouble(&mut rack, &mut random);
            rack.wait_until_copied();
            thread::sleep(OLD);
        }
        drop(over);
    });
    let copied: u64 = (0..NODES).map(|node| stat(&mut rack.client(node), "copy_reads")).sum();
    eprintln!("{} reads, at least {copied} of them at copies", counters.check(OLD));
    assert!(copied > 0, "{}", rack.operate("status"));
}

/// A follower that was stopped has missed changes. It must not show what it has, once it goes on, before it has caught up.
#[test]
fn a_follower_that_was_stopped_reads_nothing_old() {
    let rack = rack("owner");
    let counters = Counters::default();
    let mut writer = client(&rack, 0, Config::new().timeout(PATIENT));
    // Nobody leaves the stopped node.
    let config = Config::new().timeout(PATIENT).failover_after(PATIENT).read_by(ReadBy::Copies);
    let mut clients: Vec<Native> = (0..CROWD).map(|it| client(&rack, it, config.clone())).collect();
    // A key that a node of the first unit owns, so that one of the second has the copy.
    let is_ours = |key: &usize| {
        let place = rack.operate(&format!("where {}", name(*key)));
        place.ends_with("node 0\n") || place.ends_with("node 1\n")
    };
    let key = (0..KEYS).find(is_ours).expect("each unit owns some");
    count(&counters, &mut writer, key);
    for client in &mut clients {
        (0..20).for_each(|_| read(&counters, client, key));
    }
    for _ in 0..number_from("MINOS_RACK_STOPS", STOPS) {
        [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::STOP));
        (0..20).for_each(|_| count(&counters, &mut writer, key));
        thread::sleep(2 * OLD);
        thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(|| read(&counters, client, key));
            }
            thread::sleep(Duration::from_millis(50));
            [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::CONT));
        });
        rack.wait_until_copied();
    }
    let copied: u64 = [2, 3].into_iter().map(|node| stat(&mut rack.client(node), "copy_reads")).sum();
    eprintln!("{} reads, at least {copied} of them at copies", counters.check(OLD));
    assert!(copied > 0, "{}", rack.operate("status"));
}
