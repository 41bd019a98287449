//! Whole servers over faulty transports: a poller that reports late, seldom, too much or in another order, and
//! ports that lose, repeat, reorder and cut datagrams. Clients see no difference but time.
//!
//! Each part has a control that must fail: transports that break their contract.

mod native;
mod text;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use minos_engine::{Engine, StoreConfig, StoreMode};
use minos_net::{Address, Io, Kernel};
use minos_node::{
    Server, ServerConfig,
    config::{NativeConfig, PollMode},
};
use minos_proto::native::Secret;
use minos_sched::Threshold;
use minos_testkit::faulty::{FaultyIo, PollerCounts, PollerFaults, PortCounts, PortFaults};

const SEEDS: [u64; 3] = [1, 2, 3];
/// Workers of a server, and how they wait.
const SERVERS: [(usize, PollMode); 3] = [(1, PollMode::Sleep), (2, PollMode::Adaptive), (3, PollMode::Sleep)];
/// Long, because tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(30);
/// Short, because the session of the control is lost.
const IMPATIENCE: Duration = Duration::from_millis(300);
/// Longer values are large.
const SMALL_BYTES_MAX: u64 = 1000;

fn start(io: &impl Io, (workers, poll): (usize, PollMode), secret: Option<&Secret>) -> Server {
    let mut config = ServerConfig::new(workers);
    config.memcached = vec!["127.0.0.1:0".parse().unwrap()];
    config.native = Some(NativeConfig {
        secrets: secret.into_iter().cloned().collect(),
        ..NativeConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    });
    config.poll = poll;
    config.control.threshold = Threshold::Static(SMALL_BYTES_MAX);
    config.epoch = Duration::from_millis(2);
    config.pin = false;
    config.stop_timeout = Duration::from_millis(10);
    let store = Engine::<StoreMode>::create(&StoreConfig::new(64 << 20)).unwrap();
    Server::start_over(io, config, Arc::new(store)).unwrap()
}

fn address(server: &Server) -> SocketAddr {
    let Address::Tcp(address) = server.addresses()[0] else { panic!("no TCP address") };
    address
}

#[test]
fn a_faulty_poller_changes_no_byte_of_a_text_session() {
    let mut counts = PollerCounts::default();
    for seed in SEEDS {
        for kind in SERVERS {
            let expected = text::sessions(address(&start(&Kernel, kind, None)), seed, PATIENCE);
            let io = FaultyIo::new(Kernel, PollerFaults::permitted(), PortFaults::none(), seed);
            let replies = text::sessions(address(&start(&io, kind, None)), seed, PATIENCE);
            assert!(replies == expected && expected.iter().all(Result::is_ok), "seed {seed}, {kind:?}");
            counts += io.poller_counts();
        }
    }
    let PollerCounts { reported, spurious, held_back, reordered, fewer, early_hangups, lost } = counts;
    eprintln!("{counts:?}");
    assert!([reported, spurious, held_back, reordered, fewer, early_hangups].iter().all(|&count| count > 0));
    assert_eq!(lost, 0);
}

#[test]
fn control_a_poller_that_loses_events_is_found() {
    let faults = PollerFaults { lost: 0.2, ..PollerFaults::none() };
    let io = FaultyIo::new(Kernel, faults, PortFaults::none(), 1);
    let replies = text::sessions(address(&start(&io, SERVERS[0], None)), 1, IMPATIENCE);
    assert!(replies.iter().any(Result::is_err) && io.poller_counts().lost > 0);
}

#[test]
fn a_faulty_port_changes_no_answer_of_the_native_client() {
    let mut counts = PortCounts::default();
    for seed in SEEDS {
        for kind in SERVERS {
            let io = FaultyIo::new(Kernel, PollerFaults::permitted(), PortFaults::all(), seed);
            let server = start(&io, kind, None);
            assert_eq!(native::talk(server.native_address().unwrap(), seed, None), Ok(()), "{kind:?}");
            counts += io.port_counts();
        }
    }
    eprintln!("{counts:?}");
    let PortCounts { network, in_part, full, too_long, refused } = counts;
    let arriving = [network.lost, network.duplicated, network.reordered, network.caught];
    assert!(arriving.into_iter().chain([in_part, full, too_long, refused]).all(|count| count > 0));
}

/// Every tenth datagram comes spoiled, and no checksum notices.
fn spoiling() -> PortFaults {
    let mut faults = PortFaults::none();
    (faults.network.corruption, faults.network.truncation, faults.network.unnoticed) = (0.1, 0.1, 1.0);
    faults
}

#[test]
fn a_secret_keeps_answers_right_where_datagrams_come_spoiled() {
    let secret = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210".parse().unwrap();
    for seed in SEEDS {
        let io = FaultyIo::new(Kernel, PollerFaults::none(), spoiling(), seed);
        let server = start(&io, SERVERS[1], Some(&secret));
        assert_eq!(native::talk(server.native_address().unwrap(), seed, Some(&secret)), Ok(()));
        assert!(io.port_counts().network.spoiled > 0);
    }
}

#[test]
fn control_spoiled_datagrams_are_found_without_a_secret() {
    let io = FaultyIo::new(Kernel, PollerFaults::none(), spoiling(), 1);
    let server = start(&io, SERVERS[1], None);
    assert!(native::talk(server.native_address().unwrap(), 1, None).is_err());
}
