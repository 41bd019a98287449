//! Connections against a peer that the test plays itself.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use minos_net::timestamp::enable_arrival_stamps;

use super::{super::clock::monotonic_ns, *};
use crate::{Shape, Workload};

const STALL: Duration = Duration::from_millis(30);

/// A GET is answered, and looked at only after a stall. Returns the time until the answer had been
/// written and the latency that was recorded, or nothing if the kernel dated the arrival although
/// it should not have, or the other way around.
fn stalled(near: OwnedFd, mut far: impl Read + Write, is_stamped: bool) -> Option<(u64, u64)> {
    let shape = Shape { keys: Some(10), ..Shape::default() };
    let workload = Workload::open("mica-tiny", &shape, 1).unwrap();
    let clock = RunClock::starting_at(monotonic_ns() - 1);
    let mut recorder = Recorder::new(0..u64::MAX);
    let mut connection = Connection::new(near, Protocol::Memcache, &workload.dataset, false, 0);
    let intended_ns = clock.now_ns();
    let (awaited, class) = (Awaited::Values, Class::Small);
    connection.compose_get(InFlight { awaited, class, intended_ns, item: 3, keys: 1 }, &[3]);
    connection.flush(&mut recorder);
    far.read_exact(&mut [0; 14]).unwrap();
    far.write_all(b"VALUE 00000003 0 8\r\n01234567\r\nEND\r\n").unwrap();
    let written_ns = clock.now_ns() - intended_ns;
    thread::sleep(STALL);
    let mut room = vec![0; 1024];
    while connection.in_flight().len() > 0 {
        connection.receive(&mut room, &clock, &mut recorder);
    }
    assert_eq!((recorder.small.len(), recorder.errors.len()), (1, 0), "{:?}", recorder.errors);
    (recorder.unstamped == u64::from(!is_stamped)).then(|| (written_ns, recorder.small.max()))
}

/// The sum of what both clocks and a histogram may be wrong by.
const SLACK_NS: u64 = 2_000_000;

#[test]
fn a_stalled_driver_does_not_lengthen_latencies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        enable_arrival_stamps(&near).unwrap();
        let far = listener.accept().unwrap().0;
        // The kernel begins to date arrivals a little after it was asked for the first time, and dates them late on a busy
        // machine.
        if let Some((written_ns, latency_ns)) = stalled(near.into(), far, true) {
            if latency_ns < written_ns + SLACK_NS {
                return;
            }
            eprintln!("{latency_ns} after {written_ns}");
        }
    }
    panic!("the kernel dated no arrival in time");
}

/// The control: Unix sockets know no stamps.
#[test]
fn without_stamps_a_stall_shows() {
    let (near, far) = UnixStream::pair().unwrap();
    let (written_ns, latency_ns) = stalled(near.into(), far, false).unwrap();
    assert!(latency_ns + SLACK_NS > written_ns + STALL.as_nanos() as u64, "{latency_ns}");
}

#[test]
fn a_large_set_leaves_in_order_from_where_it_lies() {
    let workload = Workload::open("noise", &Shape { keys: Some(10), ..Shape::default() }, 1).unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let mut recorder = Recorder::new(0..u64::MAX);
    let mut connection = Connection::new(near.into(), Protocol::Memcache, &workload.dataset, false, 0);
    let flight =
        |item| InFlight { awaited: Awaited::Stored, class: Class::Large, intended_ns: 0, item, keys: 1 };
    let mut expected = Vec::new();
    for item in [11, 0, 12, 1] {
        let body = workload.dataset.body(item).unwrap();
        compose_set_head(Protocol::Memcache, &mut expected, &key(&workload, item), body.value_bytes());
        body.append_to(&mut expected);
        compose_set_tail(&mut expected);
        connection.compose_set(flight(item), body);
    }
    assert_eq!(connection.unsent_bytes(), expected.len() as u64);
    assert!(connection.out.len() < 10_000, "large values are not copied");
    let reader = thread::spawn(move || {
        let mut got = vec![0; expected.len()];
        far.read_exact(&mut got).unwrap();
        assert!(got == expected);
    });
    while connection.unsent_bytes() > 0 {
        connection.flush(&mut recorder);
        thread::yield_now();
    }
    reader.join().unwrap();
}

fn key(workload: &Workload, item: u64) -> Vec<u8> {
    let mut key = Vec::new();
    workload.dataset.write_key(item, &mut key);
    key
}
