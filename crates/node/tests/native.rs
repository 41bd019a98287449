//! The native protocol through a real server: every operation, misdirected datagrams, lost fragments, and the
//! server's end.

mod native_client;

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use minos_engine::{CacheMode, Engine, Mode, StoreConfig, StoreMode};
use minos_node::{
    Server, ServerConfig,
    config::{NativeConfig, PollMode},
};
use minos_proto::native::{Detail, Flags, Grant, Kind, OpFlags, Opcode, Operation, SealKeys, Secret, Status};
use minos_sched::Threshold;
use native_client::{PATIENCE, RawClient};

/// A server of the native protocol and its store.
struct NativeServer {
    server: Server,
    used_bytes: Box<dyn Fn() -> u64>,
}

impl NativeServer {
    fn start<M: Mode>(mut config: ServerConfig, native: NativeConfig) -> Self {
        config.native = Some(native);
        config.pin = false;
        let store = Arc::new(Engine::<M>::create(&StoreConfig::new(128 << 20)).unwrap());
        let server = Server::start(config, Arc::clone(&store)).unwrap();
        Self { server, used_bytes: Box::new(move || store.stats().used_bytes) }
    }

    fn connect(&self) -> RawClient {
        RawClient::connect(self.server.native_address().unwrap(), None)
    }
}

fn native() -> NativeConfig {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    // A client may get no processor for seconds.
    NativeConfig { transfer_timeout: PATIENCE, ..NativeConfig::new(address) }
}

/// Servers with few and many workers, with consecutive ports and a single one, in several poll modes.
fn each_server(mut test: impl FnMut(&str, &NativeServer)) {
    let kinds = [
        (1, false, PollMode::Adaptive),
        (1, true, PollMode::Sleep),
        (3, false, PollMode::Sleep),
        (3, true, PollMode::Adaptive),
    ];
    for (workers, single_port, poll) in kinds {
        let mut config = ServerConfig::new(workers);
        config.poll = poll;
        // Plans change all the time, and so do the roles of the workers.
        config.epoch = Duration::from_millis(2);
        let native = NativeConfig { single_port, ..native() };
        let name = format!("{workers} workers, single port: {single_port}, {poll}");
        test(&format!("cache, {name}"), &NativeServer::start::<CacheMode>(config.clone(), native.clone()));
        test(&format!("store, {name}"), &NativeServer::start::<StoreMode>(config, native));
    }
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed) as u8).collect()
}

#[test]
fn every_operation_is_answered_at_every_queue() {
    each_server(|name, server| {
        eprintln!("{name}");
        let mut client = server.connect();
        for queue in 0..2 * client.queues() {
            let key = format!("key-{queue}");
            let key = key.as_bytes();
            let mut call = |opcode, value: &[u8], change: &dyn Fn(&mut Operation<'_>)| {
                let mut operation = client.operation(opcode, key, value);
                change(&mut operation);
                let reply = client.call_at(queue, queue, &[operation]).remove(0);
                (reply.status, reply.value, reply.cas)
            };
            let same = |_: &mut Operation<'_>| {};
            assert_eq!(call(Opcode::Get, b"", &same).0, Status::NotFound);
            assert_eq!(call(Opcode::Replace, b"x", &same).0, Status::NotStored);
            assert_eq!(call(Opcode::Put, b"middle", &same).0, Status::Ok);
            assert_eq!(call(Opcode::Add, b"x", &same).0, Status::NotStored);
            assert_eq!(call(Opcode::Append, b" end", &same).0, Status::Ok);
            assert_eq!(call(Opcode::Prepend, b"begin ", &same).0, Status::Ok);
            let (status, value, cas) = call(Opcode::Get, b"", &same);
            assert_eq!((status, value.as_slice()), (Status::Ok, &b"begin middle end"[..]));
            assert_eq!(call(Opcode::Compare, b"no", &|o| o.detail.operand = cas + 1).0, Status::Exists);
            assert_eq!(call(Opcode::Compare, b"41", &|o| o.detail.operand = cas).0, Status::Ok);
            let count = |status, number: u64| (status, number.to_le_bytes().to_vec());
            let (status, value, _) = call(Opcode::Incr, b"", &|o| o.detail.operand = 1);
            assert_eq!((status, value), count(Status::Ok, 42));
            let (status, value, _) = call(Opcode::Decr, b"", &|o| o.detail.operand = 50);
            assert_eq!((status, value), count(Status::Ok, 0));
            assert_eq!(call(Opcode::Touch, b"", &|o| o.detail.ttl = 100).0, Status::Ok);
            assert_eq!(call(Opcode::GetTouch, b"", &same).0, Status::Ok);
            assert_eq!(call(Opcode::Delete, b"", &same).0, Status::Ok);
            assert_eq!(call(Opcode::Delete, b"", &same).0, Status::NotFound);
            assert_eq!(call(Opcode::Noop, b"", &same).0, Status::Ok);
        }
    });
}

#[test]
fn vectors_are_answered_operation_by_operation() {
    each_server(|name, server| {
        eprintln!("{name}");
        let mut client = server.connect();
        let keys: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
        let puts: Vec<_> =
            keys.iter().map(|key| client.operation(Opcode::Put, key.as_bytes(), key.as_bytes())).collect();
        assert!(client.call_at(0, 0, &puts).iter().all(|reply| reply.status == Status::Ok));
        let gets: Vec<_> =
            keys.iter().map(|key| client.operation(Opcode::Get, key.as_bytes(), b"")).collect();
        for (reply, key) in client.call_at(0, 0, &gets).iter().zip(&keys) {
            assert_eq!((reply.status, reply.value.as_slice()), (Status::Ok, key.as_bytes()));
        }
        // More than one datagram of replies.
        let value = pattern(900, 3);
        let put = client.operation(Opcode::Put, b"long", &value);
        assert_eq!(client.call(&put).status, Status::Ok);
        let gets: Vec<_> = (0..20).map(|_| client.operation(Opcode::Get, b"long", b"")).collect();
        assert!(client.call_at(0, 0, &gets).iter().all(|reply| reply.value == value));
    });
}

#[test]
fn large_values_survive_lost_fragments() {
    each_server(|name, server| {
        eprintln!("{name}");
        let mut client = server.connect();
        for (loses_one_in, bytes) in [(0, 1_500), (0, 500_000), (7, 20_000), (5, 300_001), (2, 100_000)] {
            client.loses_one_in = loses_one_in;
            let value = pattern(bytes, loses_one_in as usize);
            let stored = client.store(Opcode::Put, b"key", &value);
            assert_eq!(stored.status, Status::Ok, "{name}: {bytes}");
            let (read, cas) = client.get(b"key").unwrap();
            assert!(read == value, "{name}: {bytes}");
            assert_eq!(cas, stored.cas);
        }
        client.loses_one_in = 0;
        let end = pattern(50_000, 9);
        assert_eq!(client.store(Opcode::Append, b"key", &end).status, Status::Ok);
        assert!(client.get(b"key").unwrap().0 == [pattern(100_000, 2), end].concat());
        assert_eq!(client.store(Opcode::Add, b"key", &pattern(9_000, 1)).status, Status::NotStored);
        assert_eq!(client.get(b"none"), None);
    });
}

#[test]
fn a_misdirected_datagram_is_executed_where_it_belongs() {
    // A helper that happens to be the worker named in a datagram would not hand it on.
    let config = ServerConfig { steal: false, ..ServerConfig::new(3) };
    let server = NativeServer::start::<StoreMode>(config, native());
    let mut client = server.connect();
    let mut elsewhere = 0;
    for port_queue in 0..6 {
        for queue in 0..6 {
            let put = client.operation(Opcode::Put, b"key", b"value");
            let reply = client.call_at(port_queue, queue, &[put]).remove(0);
            assert_eq!((reply.status, reply.queue), (Status::Ok, queue));
            elsewhere += u64::from(port_queue % 3 != queue % 3);
        }
    }
    assert_eq!(client.statistic("minos", "native_misdirected"), elsewhere);
    assert_eq!(client.statistic("minos", "native_misdirected_dropped"), 0);
}

#[test]
fn a_single_port_steers_by_the_queue() {
    let native = NativeConfig { single_port: true, ..native() };
    let server = NativeServer::start::<StoreMode>(ServerConfig::new(3), native);
    let mut client = server.connect();
    for queue in [0, 1, 2, 3, 4, 5, 1, 0] {
        let noop = client.operation(Opcode::Noop, b"", b"");
        assert_eq!(client.call_at(0, queue, &[noop]).remove(0).queue, queue);
    }
    // The kernel picked the right socket each time.
    assert_eq!(client.statistic("minos", "native_misdirected"), 0);
}

/// Before the fix, datagrams of equal length for several queues left in one train, which the kernel steers as a whole.
#[test]
fn a_client_keeps_the_queues_of_a_single_port_apart() {
    let native = NativeConfig { single_port: true, ..native() };
    let server = NativeServer::start::<StoreMode>(ServerConfig::new(3), native);
    let address = server.server.native_address().unwrap().to_string();
    let mut client =
        minos_client::blocking::Client::connect(&address, minos_client::Config::new().timeout(PATIENCE))
            .unwrap();
    for round in 0..100 {
        let items = (10..20).map(|item| (format!("{round:02}-{item}"), "value"));
        let stored = client.put_many(items, minos_client::StoreOptions::new());
        assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    }
    assert_eq!(server.connect().statistic("minos", "native_misdirected"), 0);
}

#[test]
fn large_values_are_served_by_large_workers() {
    let mut config = ServerConfig::new(3);
    config.control.threshold = Threshold::Static(1000);
    config.epoch = Duration::from_millis(2);
    let server = NativeServer::start::<StoreMode>(config, native());
    let mut client = server.connect();
    let value = pattern(100_000, 1);
    for round in 0..100 {
        let key = format!("key-{}", round % 7);
        assert_eq!(client.store(Opcode::Put, key.as_bytes(), &value).status, Status::Ok);
        assert!(client.get(key.as_bytes()).unwrap().0 == value);
        let small = client.operation(Opcode::Put, b"small", b"value");
        assert_eq!(client.call_at(round % 3, round % 3, &[small]).remove(0).status, Status::Ok);
    }
    assert!(client.statistic("minos", "large_workers") > 0);
    assert!(client.statistic("minos", "native_large_handed_over") > 100);
    assert_eq!(client.statistic("minos", "native_stores_completed"), 100);
    // No datagram was lost, so no store timed out.
    assert_eq!(client.statistic("minos", "native_stores_timed_out"), 0);
}

#[test]
fn what_is_given_up_gives_its_memory_back() {
    let source_memory_bytes = Some(4 << 20);
    let native = NativeConfig { transfer_timeout: Duration::from_secs(12), source_memory_bytes, ..native() };
    let server = NativeServer::start::<StoreMode>(ServerConfig::new(2), native);
    let mut client = server.connect();
    let before = (server.used_bytes)();
    let value = pattern(1_000_000, 1);
    for key in [b"a", b"b", b"c"] {
        let begun = client.begin(Opcode::Put, key, &value);
        assert_eq!(begun.status, Status::Granted);
        let grant = Grant::parse(&begun.value).unwrap();
        client.send_fragment(&grant, 0, &value, Flags::NONE);
    }
    assert!((server.used_bytes)() >= before + 3_000_000);
    let returned = (0..3000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        (server.used_bytes)() == before
    });
    assert!(returned, "{} of {before} bytes are still in use", (server.used_bytes)());
    assert_eq!(client.statistic("minos", "native_stores_timed_out"), 3);
}

#[test]
fn a_source_may_begin_so_many_stores() {
    let native = NativeConfig { transfers_per_source: 3, ..native() };
    let mut config = ServerConfig::new(2);
    // No client will finish these stores.
    config.stop_timeout = Duration::from_millis(10);
    let server = NativeServer::start::<StoreMode>(config, native);
    let (mut client, mut other) = (server.connect(), server.connect());
    let value = pattern(10_000, 1);
    for key in [b"a", b"b", b"c"] {
        assert_eq!(client.begin(Opcode::Put, key, &value).status, Status::Granted);
    }
    assert_eq!(client.begin(Opcode::Put, b"d", &value).status, Status::Busy);
    assert_eq!(other.begin(Opcode::Put, b"d", &value).status, Status::Busy, "it is the same address");
}

#[test]
fn a_stopping_server_finishes_what_is_under_way() {
    let mut config = ServerConfig::new(2);
    config.stop_timeout = PATIENCE;
    let server = NativeServer::start::<StoreMode>(config, native());
    let mut client = server.connect();
    let value = pattern(200_000, 1);
    let begun = client.begin(Opcode::Put, b"key", &value);
    let grant = Grant::parse(&begun.value).unwrap();
    client.send_fragment(&grant, 0, &value, Flags::NONE);
    server.server.stop().request();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "the client was not told");
        client.send_fragment(&grant, 0, &[], Flags::ACK_WANTED);
        let (header, _) = client.receive().unwrap();
        assert_eq!(header.kind, Kind::Ack);
        if header.flags.contains(Flags::DRAINING) {
            break;
        }
    }
    assert_eq!(client.send_value(&begun, &value).status, Status::Ok);
    server.server.join().unwrap();
}

#[test]
fn a_stopping_server_sends_what_a_client_has_begun_to_read() {
    let server = NativeServer::start::<StoreMode>(ServerConfig::new(2), native());
    let mut client = server.connect();
    let value = pattern(2_000_000, 1);
    assert_eq!(client.store(Opcode::Put, b"key", &value).status, Status::Ok);
    let stop = Arc::clone(server.server.stop());
    let mut windows = 0;
    let read = client.get_with(b"key", || {
        windows += 1;
        if windows == 3 {
            stop.request();
        }
    });
    assert!(read.unwrap().0 == value);
    assert!(windows > 3);
    server.server.join().unwrap();
}

#[test]
fn a_secret_seals_everything() {
    let secret: Secret =
        "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210".parse().unwrap();
    let native = NativeConfig { secrets: vec![secret.clone()], ..native() };
    let server = NativeServer::start::<StoreMode>(ServerConfig::new(2), native);
    let keys = SealKeys::of(&secret);
    let mut client = RawClient::connect(server.server.native_address().unwrap(), Some(keys));
    client.loses_one_in = 6;
    let value = pattern(200_000, 1);
    assert_eq!(client.store(Opcode::Put, b"key", &value).status, Status::Ok);
    assert!(client.get(b"key").unwrap().0 == value);
    let initial = 7u64.to_le_bytes();
    let incr = client.operation(Opcode::Incr, b"count", &initial);
    let once = Operation {
        flags: OpFlags::ONCE | OpFlags::CREATE,
        detail: Detail { once: 1, operand: 1, ..incr.detail },
        ..incr
    };
    let first = client.call(&once);
    assert_eq!(first.status, Status::Ok);
    assert_eq!(client.call(&once), first, "it is answered, not executed again");
}
