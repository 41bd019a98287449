//! Role changes under load. The roles of the workers, and the design itself, change every few milliseconds;
//! no request is lost or answered twice, and each connection keeps its order.
//!
//! Each seed is a server and its clients. Every byte of every reply is known before: the content of a
//! client's own keys depends on no other client. So a reply that is missing, comes twice or comes too early
//! is found where it stands. Some order of the clients' calls must explain the replies about shared keys. In
//! the end nothing may be held. All that is so, too, for a server whose memory holds a part of the items that
//! clients read and change, and flash the others.
//!
//! `MINOS_ROLE_CHANGES_SEEDS` sets the number of seeds, `MINOS_ROLE_CHANGES_SEED` the first one.
//!
//! In the control `hand-back` workers do not send lent connections home: it must fail. Another one is a client with somebody
//! else's keys.

#[path = "../common/mod.rs"]
mod common;
mod dialogue;
#[path = "../flash_rig/mod.rs"]
mod flash_rig;
mod flips;
mod ground;
mod items;
mod owned;
mod progress;
mod script;
mod value;
mod vectors;

use std::{net::SocketAddr, panic::resume_unwind, thread, time::Duration};

use common::TestServer;
use dialogue::Setting;
use flips::Flips;
use ground::Ground;
use minos_base::seeded_stream;
use minos_client::QueueBy;
use minos_net::Address;
use minos_testkit::{
    history::{Event, Ticks, Verdict, check},
    number_from,
};
use progress::Progress;

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
const SEEDS_DEFAULT: u64 = 2;
/// States of the search for an order of the calls on shared keys.
const STATES_MAX: usize = 2_000_000;
/// Least changes of a worker's role, and of the design, in a seed; with fewer it shows less than it claims.
const ROLES_MIN: u64 = 30;
const SWITCHES_MIN: u64 = 10;
/// Streams of random numbers. Clients use the streams of their names.
const SERVER_STREAM: u64 = 1 << 32;
const FLIPS_STREAM: u64 = 2 << 32;

fn seeds(ground: Ground) -> std::ops::Range<u64> {
    let first = number_from("MINOS_ROLE_CHANGES_SEED", 1);
    let default = if ground == Ground::Flash { SEEDS_DEFAULT / 2 } else { SEEDS_DEFAULT };
    first..first + number_from("MINOS_ROLE_CHANGES_SEEDS", default)
}

fn address(server: &TestServer) -> SocketAddr {
    let Address::Tcp(address) = server.server.addresses()[0] else { panic!("no TCP address") };
    address
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

/// Memcached clients on such a server, with each seed.
fn answer_requests(ground: Ground) {
    for seed in seeds(ground) {
        eprintln!("MINOS_ROLE_CHANGES_SEED={seed}");
        let (server, tier) = ground.start(&mut seeded_stream(seed, SERVER_STREAM));
        let (ticks, progress) = (Ticks::default(), Progress::default());
        let shape = ground.shape();
        let setting = Setting { server: address(&server), seed, shape, ticks: &ticks, progress: &progress };
        let (history, flips) =
            Flips::during(&server, seeded_stream(seed, FLIPS_STREAM), || hold_all(setting));
        eprintln!("{flips:?}, {} calls on shared keys", history.len());
        assert!(flips.roles >= ROLES_MIN && flips.switches >= SWITCHES_MIN, "hardly anything changed");
        assert_eq!(check(&history, STATES_MAX), Verdict::Linearizable);
        ground::assert_cold(tier.as_deref());
        flips::assert_nothing_is_held(&server);
    }
}

#[test]
fn every_request_is_answered_once_and_in_order() {
    answer_requests(Ground::Memory);
}

#[test]
fn every_request_is_answered_once_and_in_order_above_flash() {
    answer_requests(Ground::Flash);
}

/// Native clients on such a server, with each seed.
fn execute_calls(ground: Ground) {
    for seed in seeds(ground) {
        eprintln!("MINOS_ROLE_CHANGES_SEED={seed}");
        let (server, tier) = ground.start(&mut seeded_stream(seed, SERVER_STREAM));
        let native = server.server.native_address().unwrap();
        let (ticks, progress) = (Ticks::default(), Progress::default());
        let shape = ground.shape();
        let setting = Setting { server: address(&server), seed, shape, ticks: &ticks, progress: &progress };
        let (mut tickets, flips) =
            Flips::during(&server, seeded_stream(seed, FLIPS_STREAM), || call_all(setting, native));
        eprintln!("{flips:?}");
        assert!(flips.roles >= ROLES_MIN && flips.switches >= SWITCHES_MIN, "hardly anything changed");
        tickets.sort_unstable();
        // A transfer that its client gave up would hold memory until it times out.
        assert_eq!(flips::statistic(&server, "native_stores_timed_out"), 0);
        // Each number once, and none left out: no increment was lost or executed twice.
        assert!(tickets.iter().copied().eq(0..(NATIVE.len() * VECTORS) as u64), "{tickets:?}");
        ground::assert_cold(tier.as_deref());
        flips::assert_nothing_is_held(&server);
    }
}

#[test]
fn every_native_call_is_executed_once() {
    execute_calls(Ground::Memory);
}

#[test]
fn every_native_call_is_executed_once_above_flash() {
    execute_calls(Ground::Flash);
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

#[test]
fn a_change_by_somebody_else_is_noticed() {
    let ground = Ground::Flash;
    let (server, _) = ground.start(&mut seeded_stream(1, SERVER_STREAM));
    let native = server.server.native_address().unwrap();
    let (ticks, progress, shape) = (Ticks::default(), Progress::default(), ground.shape());
    let setting = Setting { server: address(&server), seed: 1, shape, ticks: &ticks, progress: &progress };
    // Both believe that the keys are theirs alone.
    let twins_fail = |run: &(dyn Fn() -> usize + Sync)| {
        thread::scope(|scope| [scope.spawn(run), scope.spawn(run)].map(|twin| twin.join().is_err()))
    };
    let requests = twins_fail(&|| dialogue::hold(setting, 0, BURSTS, false).len());
    let calls = twins_fail(&|| vectors::call_all(setting, native, 1, QueueBy::Access, VECTORS).len());
    assert!(requests.contains(&true) && calls.contains(&true), "{requests:?} {calls:?}");
}
