//! The cost of a datagram by the way it is sent. Prints figures and checks none:
//! `cargo test --release -p minos-net --test udp_rate -- --ignored --nocapture`.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use minos_net::udp::{BURST_MESSAGES, ReceiveBurst, TransmitBurst, UdpOptions, UdpPort};
use rustix::time::{ClockId, clock_gettime};

const SECONDS: f64 = 0.5;
const DATAGRAM_BYTES: usize = 128;

/// A way for datagrams to travel.
struct Way {
    name: &'static str,
    /// Trains that one call sends, and datagrams in each.
    trains: usize,
    segments: usize,
    has_offload: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "one by one", trains: 1, segments: 1, has_offload: false },
    Way { name: "32 a call", trains: BURST_MESSAGES, segments: 1, has_offload: false },
    Way { name: "trains of 16", trains: BURST_MESSAGES, segments: 16, has_offload: true },
    Way { name: "trains of 64", trains: BURST_MESSAGES, segments: 64, has_offload: true },
    Way { name: "trains of 64, in segments", trains: BURST_MESSAGES, segments: 64, has_offload: false },
];

#[test]
#[ignore = "a measurement"]
fn datagrams_a_second() {
    for way in &WAYS {
        let options = UdpOptions { gso: way.has_offload, gro: way.has_offload, ..UdpOptions::default() };
        let [near, far] = [(); 2].map(|()| UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap());
        let is_over = AtomicBool::new(false);
        let ((sent, sender_ns), (received, receiver_ns)) = thread::scope(|scope| {
            let sender = scope.spawn(|| send(way, &near, far.address()));
            let receiver = scope.spawn(|| receive(&far, &is_over));
            let sent = sender.join().unwrap();
            is_over.store(true, Ordering::Relaxed);
            (sent, receiver.join().unwrap())
        });
        println!(
            "{:26} {:6.2} M/s sent for {:5.0} ns each, {:6.2} M/s received for {:5.0} ns each",
            way.name,
            sent as f64 / SECONDS / 1e6,
            sender_ns / sent as f64,
            received as f64 / SECONDS / 1e6,
            receiver_ns / received as f64,
        );
    }
}

fn send(way: &Way, port: &UdpPort, peer: SocketAddr) -> (u64, f64) {
    // One byte less than full segments, so that no train extends the one before.
    let bytes = vec![7; DATAGRAM_BYTES * way.segments - 1];
    let (mut burst, mut sent) = (TransmitBurst::new(), 0);
    let (begin, begin_ns) = (Instant::now(), processor_ns());
    while begin.elapsed() < Duration::from_secs_f64(SECONDS) {
        for _ in 0..way.trains {
            assert!(burst.push(peer, &bytes, DATAGRAM_BYTES));
        }
        sent += burst.send(port).trains * way.segments as u64;
    }
    (sent, processor_ns() - begin_ns)
}

fn receive(port: &UdpPort, is_over: &AtomicBool) -> (u64, f64) {
    let (mut burst, mut received, begin_ns) = (ReceiveBurst::new(), 0, processor_ns());
    while !is_over.load(Ordering::Relaxed) {
        if port.receive(&mut burst).unwrap() == 0 {
            thread::yield_now();
        }
        received += burst.messages().map(|message| message.segments().len() as u64).sum::<u64>();
    }
    (received.max(1), processor_ns() - begin_ns)
}

/// Processor time of this thread.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
