//! Role changes under load. The roles of the workers, and the design itself, change every few milliseconds;
//! no request is lost or answered twice, and each connection keeps its order.
//!
//! Each seed is a server and its clients. Every byte of every reply is known before: the content of a
//! client's own keys depends on no other client. So a reply that is missing, comes twice or comes too early
//! is found where it stands. Some order of the clients' calls must explain the replies about shared keys. In
//! the end nothing may be held.
//!
//! `MINOS_ROLE_CHANGES_SEEDS` sets the number of seeds, `MINOS_ROLE_CHANGES_SEED` the first one.
//!
//! The control is a build in which workers do not send lent connections home: it must fail.

#[path = "../common/mod.rs"]
mod common;
mod dialogue;
mod flips;
mod items;
mod progress;
mod script;
mod value;
mod vectors;

use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    panic::resume_unwind,
    thread,
    time::Duration,
};

use common::TestServer;
use dialogue::Setting;
use flips::Flips;
use minos_base::seeded_stream;
use minos_client::QueueBy;
use minos_engine::StoreMode;
use minos_net::Address;
use minos_node::{
    ServerConfig,
    config::{LargeOrder, NativeConfig, PollMode},
};
use minos_testkit::history::{Event, Ticks, Verdict, check};
use progress::Progress;
use rand::{RngExt, rngs::StdRng};

/// Time after which a reply counts as lost. Long, because tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(20);
const WORKERS: usize = 4;
/// Connections, each with keys of its own; every third reads late.
const CONNECTIONS: u32 = 6;
const BURSTS: usize = 100;
/// Native clients, with the queues they send to.
const NATIVE: [QueueBy; 4] = [QueueBy::Access, QueueBy::Random, QueueBy::Wrong, QueueBy::Key];
const VECTORS: usize = 100;
/// Connections that break off.
const BREAKERS: u32 = 30;
const SEEDS_DEFAULT: u64 = 6;
/// States of the search for an order of the calls on shared keys.
const STATES_MAX: usize = 2_000_000;
/// Least changes of a worker's role, and of the design, in a seed; with fewer it shows less than it claims.
const ROLES_MIN: u64 = 30;
const SWITCHES_MIN: u64 = 10;
/// Streams of random numbers. Clients use the streams of their names.
const SERVER_STREAM: u64 = 1 << 32;
const FLIPS_STREAM: u64 = 2 << 32;
/// More than all keys of all clients hold together.
const MEMORY_BYTES: u64 = 512 << 20;

/// A server that makes a plan every few milliseconds; its other options are random.
fn start(random: &mut StdRng) -> TestServer {
    let mut config = ServerConfig::new(WORKERS);
    config.value_bytes_max = items::VALUE_BYTES_MAX as u64;
    config.epoch = Duration::from_millis(random.random_range(1..=3));
    config.control.alpha = 1.0;
    config.control.percentile = [50.0, 70.0, 90.0][random.random_range(0..3)];
    config.poll = [PollMode::Adaptive, PollMode::Sleep][random.random_range(0..2)];
    config.large_order = [LargeOrder::Shortest, LargeOrder::Fifo][random.random_range(0..2)];
    config.steal = random.random_ratio(1, 2);
    config.ring_capacity = [2, 4, 1024][random.random_range(0..3)];
    config.slice_bytes = [4 << 10, 64 << 10][random.random_range(0..2)];
    config.native = Some(NativeConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    // A failure must be reported at once.
    config.stop_timeout = Duration::from_secs(1);
    eprintln!(
        "epochs of {:?}, percentile {}, {}, {:?}, steal {}, ring {}, slices of {}",
        config.epoch,
        config.control.percentile,
        config.poll,
        config.large_order,
        config.steal,
        config.ring_capacity,
        config.slice_bytes
    );
    TestServer::with_memory::<StoreMode>(MEMORY_BYTES, config)
}

fn address(server: &TestServer) -> SocketAddr {
    let Address::Tcp(address) = server.server.addresses()[0] else { panic!("no TCP address") };
    address
}

fn number_from(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// The seeds of this run.
fn seeds() -> std::ops::Range<u64> {
    let first = number_from("MINOS_ROLE_CHANGES_SEED", 1);
    first..first + number_from("MINOS_ROLE_CHANGES_SEEDS", SEEDS_DEFAULT)
}

/// Runs all dialogues at once, beside connections that break off; returns the events of the shared keys.
fn hold_all(setting: Setting<'_>) -> Vec<Event> {
    thread::scope(|scope| {
        let dialogues: Vec<_> = (0..CONNECTIONS)
            .map(|name| scope.spawn(move || dialogue::hold(setting, name, BURSTS, name % 3 == 2)))
            .collect();
        scope.spawn(move || {
            (CONNECTIONS..CONNECTIONS + BREAKERS).for_each(|name| dialogue::break_off(setting, name));
        });
        let results: Vec<_> = dialogues.into_iter().map(|dialogue| dialogue.join()).collect();
        results.into_iter().flat_map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[test]
fn every_request_is_answered_once_and_in_order() {
    for seed in seeds() {
        eprintln!("MINOS_ROLE_CHANGES_SEED={seed}");
        let server = start(&mut seeded_stream(seed, SERVER_STREAM));
        let (ticks, progress) = (Ticks::default(), Progress::default());
        let setting = Setting { server: address(&server), seed, ticks: &ticks, progress: &progress };
        let (history, flips) =
            Flips::during(&server, seeded_stream(seed, FLIPS_STREAM), || hold_all(setting));
        eprintln!("{flips:?}, {} calls on shared keys", history.len());
        assert!(flips.roles >= ROLES_MIN && flips.switches >= SWITCHES_MIN, "hardly anything changed");
        assert_eq!(check(&history, STATES_MAX), Verdict::Linearizable);
        flips::assert_nothing_is_held(&server);
    }
}

#[test]
fn every_native_call_is_executed_once() {
    for seed in seeds() {
        eprintln!("MINOS_ROLE_CHANGES_SEED={seed}");
        let server = start(&mut seeded_stream(seed, SERVER_STREAM));
        let native = server.server.native_address().unwrap();
        let (ticks, progress) = (Ticks::default(), Progress::default());
        let setting = Setting { server: address(&server), seed, ticks: &ticks, progress: &progress };
        let (mut tickets, flips) =
            Flips::during(&server, seeded_stream(seed, FLIPS_STREAM), || call_all(setting, native));
        eprintln!("{flips:?}");
        assert!(flips.roles >= ROLES_MIN && flips.switches >= SWITCHES_MIN, "hardly anything changed");
        tickets.sort_unstable();
        // A transfer that its client gave up would hold memory until it times out.
        assert_eq!(flips::statistic(&server, "native_stores_timed_out"), 0);
        // Each number once, and none left out: no increment was lost or executed twice.
        assert!(tickets.iter().copied().eq(0..(NATIVE.len() * VECTORS) as u64), "{tickets:?}");
        flips::assert_nothing_is_held(&server);
    }
}

/// Runs all native clients at once; returns the numbers that the shared counter gave them.
fn call_all(setting: Setting<'_>, native: SocketAddr) -> Vec<u64> {
    thread::scope(|scope| {
        let call = |(name, &queue_by)| vectors::call_all(setting, native, name, queue_by, VECTORS);
        let clients: Vec<_> = (0..).zip(&NATIVE).map(|client| scope.spawn(move || call(client))).collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        results.into_iter().flat_map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}
