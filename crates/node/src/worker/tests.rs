//! What full rings and hand-overs leave as it was.

use std::{
    io::{Read, Write},
    time::Duration,
};

use minos_base::limits::BURST_MAX;
use minos_engine::ItemMeta;

use super::lockstep::{clients, shared, worker};
use crate::{ServerConfig, tcp::patience::Late};

fn config() -> ServerConfig {
    let mut config = ServerConfig::new(2);
    config.dispatch = "keyhash".parse().unwrap();
    config
}

#[test]
fn a_full_ring_delays_no_connection() {
    let shared = shared(config());
    let mut worker = worker(&shared, 0, 0);
    let others = clients(&shared, 1, BURST_MAX);
    others.iter().for_each(|mut client| client.write_all(b"get small\r\n").unwrap());
    let mut state = shared.queues[1].state.try_lock().unwrap();
    state.gather(BURST_MAX).unwrap();
    for event in std::mem::take(&mut state.ready) {
        assert!(worker.mine.lent.push(state.connections.lend(event.token).unwrap()).is_ok());
    }
    drop(state);

    let clients = clients(&shared, 0, 3);
    clients.iter().for_each(|mut client| client.write_all(b"get small\r\n").unwrap());
    worker.turn(|_, _| {});
    for mut client in clients {
        client.set_nonblocking(true).unwrap();
        assert!(client.read(&mut [0; 1000]).is_ok_and(|bytes| bytes > 0));
    }
}

#[test]
fn a_client_owes_its_wait_to_whoever_serves_it() {
    let shared = shared(config());
    let huge = vec![0; 4 << 20];
    let store = &shared.store;
    store.entry(store.hash(b"huge"), b"huge", 1).insert(&[&huge], ItemMeta::default()).unwrap();
    let mut worker = worker(&shared, 0, u64::MAX);
    let mut client = clients(&shared, 0, 1).pop().unwrap();
    client.write_all(b"get huge\r\n").unwrap();
    worker.turn(|_, _| {});

    let large = &mut worker.large;
    let start = worker.now;
    let at = |seconds| start + Duration::from_secs(seconds);
    while large.is_runnable() {
        assert!(large.serve_slice(1 << 20, start).is_none());
    }
    // Makes room in the socket.
    client.set_nonblocking(true).unwrap();
    while client.read(&mut [0; 1 << 16]).is_ok_and(|bytes| bytes > 0) {}
    large.poll(at(50));
    let transfer = large.take_runnable().unwrap();
    large.insert(transfer, at(50));
    while large.is_runnable() {
        assert!(large.serve_slice(1 << 20, at(50)).is_none());
    }
    assert!(large.take_late(at(59)).is_none());
    assert!(matches!(large.take_late(at(61)), Some((_, Late::Slow))));
}
