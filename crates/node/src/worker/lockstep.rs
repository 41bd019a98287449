//! The server's workers take the same steps as the simulator's. They run in one thread, over Unix sockets, so
//! that sent bytes arrive at once.

use std::{io::Write, os::unix::net::UnixStream};

use minos_base::SizeClass;
use minos_engine::{Engine, ItemMeta, StoreConfig, StoreMode};
use minos_net::{Accepted, Address, Kernel, Listener};
use minos_sched::{LargeOrder, SizeHistogram, Threshold};
use minos_testkit::turns::{self, Event, Recorded};

use super::*;
use crate::{
    ServerConfig,
    server::{
        settings::{self, Tuning},
        shared::InForce,
        start::share,
    },
    tcp::{
        connection::{Connection, Stream},
        patience::Terms,
        queue::Arrival,
        registry::Entry,
        session::Protocol,
    },
};

/// Bytes and counts of small and large values in the plan. Under the paper's design two of three workers are
/// small.
const SMALL: (u64, u64) = (100, 9_900);
const LARGE: (u64, u64) = (50_000, 200);
const THRESHOLD_BYTES: u64 = 1000;
const SLICE_BYTES: usize = 20_000;
const WORKERS: usize = 3;

fn config(recorded: &Recorded) -> ServerConfig {
    let mut config = ServerConfig::new(WORKERS);
    config.dispatch = recorded.design.parse().unwrap();
    config.steal = recorded.steals;
    config.control.threshold = Threshold::Static(THRESHOLD_BYTES);
    config.slice_bytes = SLICE_BYTES;
    config.large_order = LargeOrder::Fifo;
    config
}

/// The shared state of a server that holds both values.
pub(super) fn shared(config: ServerConfig) -> Arc<Shared<StoreMode, Kernel>> {
    let (choice, tuning) = (config.choice(), Tuning::of(&config, 1 << 20));
    let mut policy = settings::policy(choice, &tuning).unwrap();
    let mut requests = SizeHistogram::new();
    for (bytes, count) in [SMALL, LARGE] {
        requests.record(SizeClass::of(bytes), count);
    }
    policy.epoch(&requests);
    let store = Arc::new(Engine::<StoreMode>::create(&StoreConfig::new(16 << 20)).unwrap());
    for (key, (bytes, _)) in [(&b"small"[..], SMALL), (b"large", LARGE)] {
        let value = vec![b'v'; bytes as usize];
        store.entry(store.hash(key), key, 1).insert(&[&value], ItemMeta::default()).unwrap();
    }
    share(&Kernel, config, (store, None), InForce::of(choice, &policy, tuning)).unwrap()
}

/// Worker `index`. Its clients may wait a minute, and owe `rate_min` bytes a second.
pub(super) fn worker(
    shared: &Shared<StoreMode, Kernel>,
    index: usize,
    rate_min: u64,
) -> Worker<'_, StoreMode, Kernel> {
    let minute = Duration::from_secs(60);
    let terms = Terms { wait_max: minute, rate_min };
    let large = LargeSet::new(Kernel.poller().unwrap(), LargeOrder::Fifo, minute, terms);
    Worker::new(shared, WorkerId(index as u16), large, None, None)
}

/// Gives RX queue `queue` the connection of this stream.
pub(crate) fn take_in<I: Io>(shared: &Shared<StoreMode, I>, stream: Stream, queue: usize) {
    let entry = || Entry::new(stream.number(), queue, String::new(), String::new(), 0);
    let registration = shared.connections.register(usize::MAX, entry).unwrap();
    let tuning = shared.plan.in_force().tuning;
    let session = Protocol::Memcache.session(&shared.config, &tuning, registration.number());
    let connection = Box::new(Connection::new(stream, session, queue, registration));
    shared.queues[queue].state.try_lock().unwrap().take_in(Arrival::New(connection));
}

/// Connects `requests` clients to RX queue `queue`; the server has accepted their connections.
pub(super) fn clients(shared: &Shared<StoreMode, Kernel>, queue: usize, requests: usize) -> Vec<UnixStream> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("minos.sock");
    let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
    let connect = |_| {
        let client = UnixStream::connect(&path).unwrap();
        let Accepted::Connection(socket) = listener.accept().unwrap() else { panic!("nobody came") };
        take_in(shared, Stream::Plain(socket), queue);
        client
    };
    (0..requests).map(connect).collect()
}

#[test]
fn each_step_is_as_recorded() {
    for recorded in turns::recorded() {
        let shared = shared(config(&recorded));
        let mut workers: Vec<_> = (0..WORKERS).map(|index| worker(&shared, index, 0)).collect();
        let arrivals_at = |wanted: usize| {
            let at = |event: &&Event| matches!(event, Event::Arrive { queue, .. } if *queue == wanted);
            recorded.events.iter().filter(at).count()
        };
        let clients: Vec<_> = (0..WORKERS).map(|queue| clients(&shared, queue, arrivals_at(queue))).collect();
        let mut unused: Vec<_> = clients.iter().map(|clients| clients.iter()).collect();
        for (number, event) in recorded.events.iter().enumerate() {
            match event {
                Event::Arrive { queue, is_large } => {
                    let request: &[u8] = if *is_large { b"get large\r\n" } else { b"get small\r\n" };
                    unused[*queue].next().unwrap().write_all(request).unwrap();
                }
                Event::Turn { worker, steps } => {
                    let mut taken = Vec::new();
                    workers[*worker].turn(|step, found| taken.push(turns::step(step, found)));
                    assert_eq!(taken, *steps, "{}, event {number}", recorded.design);
                    // A connection that returns is not a request.
                    for queue in &shared.queues {
                        while queue.arrivals.pop().is_some() {}
                    }
                }
            }
        }
    }
}
