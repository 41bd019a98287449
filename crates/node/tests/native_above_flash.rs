//! The native protocol above flash: every operation behaves on a cold item as on a hot one, is executed once, and
//! travels in vectors.

#[path = "native_above_flash/durable.rs"]
mod durable;
mod flash_rig;
mod native_client;

use std::{net::SocketAddr, time::Duration};

use flash_rig::Rig;
use minos_node::{
    ServerConfig,
    config::{Gathering, NativeConfig},
};
use minos_proto::native::{OpFlags, Opcode, Operation, Status, WelcomeFlags};
use minos_sched::Threshold;
use minos_tier::{Durability, Options};
use native_client::{RawClient, Reply, records};

const VALUE_BYTES: usize = 1000;
/// Memory, and a segment of flash.
const MEMORY: (u64, u32) = (2 << 20, 256 << 10);
/// Twice what memory holds.
const KEYS: usize = 3600;
/// Keys that are cold once all were stored.
const COLD_KEYS: usize = 600;
/// Operations in a datagram.
const WIDTH: usize = 32;

/// The options of a server of which a test knows the threshold.
fn config(workers: usize) -> ServerConfig {
    let mut config = ServerConfig::new(workers);
    config.control.threshold = Threshold::Static(4 << 10);
    config.value_bytes_max = 64 << 10;
    config
}

fn native() -> NativeConfig {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    // A client may get no processor for seconds.
    NativeConfig { transfer_timeout: Duration::from_secs(60), ..NativeConfig::new(address) }
}

fn start(options: &Options, change: impl FnOnce(&mut ServerConfig)) -> Rig {
    let mut config = ServerConfig { native: Some(native()), ..config(2) };
    change(&mut config);
    Rig::start(MEMORY, options, config)
}

fn store_options() -> Options {
    Options::store(Durability::None)
}

fn value(key: usize) -> Vec<u8> {
    let mut value = format!("{key:08}").into_bytes();
    value.resize(VALUE_BYTES, b'v');
    value
}

fn large(key: usize, bytes: usize) -> Vec<u8> {
    format!("{key:07} ").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// A server whose first keys are cold, and a client.
fn filled() -> (Rig, RawClient) {
    filled_by(|_| {})
}

fn filled_by(change: impl FnOnce(&mut ServerConfig)) -> (Rig, RawClient) {
    let rig = start(&store_options(), change);
    let mut client = RawClient::connect(rig.server.native_address().unwrap(), None);
    (0..KEYS).for_each(|key| put(&mut client, &format!("key{key}"), &value(key)));
    (rig, client)
}

fn put(client: &mut RawClient, key: &str, value: &[u8]) {
    let operation = client.operation(Opcode::Put, key.as_bytes(), value);
    assert_eq!(client.call(&operation).status, Status::Ok, "{key}");
}

/// Stores others, until none of the first keys can be in memory any more.
fn chill(client: &mut RawClient) {
    (KEYS / 2..KEYS).for_each(|key| put(client, &format!("key{key}"), &value(key)));
}

fn call(client: &mut RawClient, opcode: Opcode, key: &str, change: impl FnOnce(&mut Operation<'_>)) -> Reply {
    let mut operation = client.operation(opcode, key.as_bytes(), b"");
    change(&mut operation);
    client.call(&operation)
}

fn store(client: &mut RawClient, opcode: Opcode, key: &str, value: &[u8]) -> Status {
    let operation = client.operation(opcode, key.as_bytes(), value);
    client.call(&operation).status
}

fn found(client: &mut RawClient, key: &str) -> Option<Vec<u8>> {
    client.get(key.as_bytes()).map(|(value, _)| value)
}

fn names(keys: std::ops::Range<usize>) -> Vec<String> {
    keys.map(|key| format!("key{key}")).collect()
}

fn gets<'k>(client: &mut RawClient, keys: &'k [String]) -> Vec<Operation<'k>> {
    keys.iter().map(|key| client.operation(Opcode::Get, key.as_bytes(), b"")).collect()
}

#[test]
fn every_operation_treats_cold_items_as_hot_ones() {
    let rig = start(&store_options(), |_| {});
    let mut client = RawClient::connect(rig.server.native_address().unwrap(), None);
    put(&mut client, "number", b"41");
    (0..KEYS).for_each(|key| put(&mut client, &format!("key{key}"), &value(key)));
    let before = rig.tier.stats().reads.read_found;
    assert_eq!(found(&mut client, "key0"), Some(value(0)));
    assert_eq!(
        call(&mut client, Opcode::Incr, "number", |o| o.detail.operand = 1).value,
        42u64.to_le_bytes()
    );
    assert_eq!(store(&mut client, Opcode::Add, "key1", b"x"), Status::NotStored);
    assert_eq!(store(&mut client, Opcode::Replace, "key2", b"new"), Status::Ok);
    assert_eq!(found(&mut client, "key2").unwrap(), b"new");
    assert_eq!(store(&mut client, Opcode::Append, "key3", b"end"), Status::Ok);
    assert_eq!(found(&mut client, "key3").unwrap(), [&value(3)[..], b"end"].concat());
    assert_eq!(store(&mut client, Opcode::Prepend, "key4", b"end"), Status::Ok);
    assert_eq!(call(&mut client, Opcode::Delete, "key5", |_| {}).status, Status::Ok);
    assert_eq!(found(&mut client, "key5"), None);
    assert_eq!(call(&mut client, Opcode::Delete, "key5", |_| {}).status, Status::NotFound);
    assert_eq!(call(&mut client, Opcode::Touch, "key6", |o| o.detail.ttl = 100).status, Status::Ok);
    assert_eq!(call(&mut client, Opcode::Compare, "key7", |o| o.detail.operand = 1).status, Status::Exists);
    assert_eq!(call(&mut client, Opcode::GetTouch, "key8", |o| o.detail.ttl = 100).value, value(8));
    let unique = client.get(b"key9").unwrap().1;
    chill(&mut client);
    assert_eq!(call(&mut client, Opcode::Compare, "key9", |o| o.detail.operand = unique).status, Status::Ok);
    assert_eq!(call(&mut client, Opcode::Get, "nobody", |_| {}).status, Status::NotFound);
    assert!(rig.tier.stats().reads.read_found >= before + 10, "they were cold");
    assert_eq!(found(&mut client, "key5"), None);
    assert_eq!(found(&mut client, "number").unwrap(), b"42");
}

#[test]
fn counts_that_need_a_longer_item_wait_for_room() {
    /// More than memory holds of items as short as these.
    const COUNTERS: usize = 40_000;
    const LONGER: u64 = 10_000_000_000_000_000_000;
    let rig = start(&store_options(), |_| {});
    let mut client = RawClient::connect(rig.server.native_address().unwrap(), None);
    for first in (0..COUNTERS).step_by(WIDTH / 2) {
        let keys = names(first..first + WIDTH / 2);
        for (flags, sum) in [(OpFlags::CREATE, 7), (OpFlags::NONE, LONGER + 7)] {
            let count = |key| {
                let mut count = client.operation(Opcode::Incr, key, &[7, 0, 0, 0, 0, 0, 0, 0]);
                count.detail.operand = LONGER;
                Operation { flags, ..count }
            };
            let counts: Vec<_> = keys.iter().map(|key| key.as_bytes()).map(count).collect();
            for reply in client.call_at(0, 0, &counts) {
                assert_eq!((reply.status, &*reply.value), (Status::Ok, &sum.to_le_bytes()[..]));
            }
        }
    }
}

#[test]
fn a_vector_of_cold_keys_is_one_vector_of_reads() {
    let (rig, mut client) = filled();
    let before = rig.tier.stats().reads;
    let vectors = COLD_KEYS / WIDTH;
    for vector in 0..vectors {
        let keys = names(vector * WIDTH..(vector + 1) * WIDTH);
        let gets = gets(&mut client, &keys);
        for (at, reply) in client.call_at(0, 0, &gets).into_iter().enumerate() {
            assert_eq!((reply.status, reply.value), (Status::Ok, value(vector * WIDTH + at)));
        }
    }
    let after = rig.tier.stats().reads;
    // Items that found no room at first are read again, in vectors of their own.
    assert!(after.read_vectors_of_32 - before.read_vectors_of_32 >= vectors as u64, "{after:?}");
}

#[test]
fn options_pin_the_width_of_vectors() {
    for (width, reads) in [("direct", WIDTH / 2), ("1:4", 4)] {
        let gathering = Gathering { width: width.parse().unwrap(), ..Gathering::default() };
        let (rig, mut client) = filled_by(|config| config.gathering = gathering);
        let keys = names(0..COLD_KEYS / WIDTH * WIDTH);
        let requests: Vec<_> = keys.chunks(WIDTH / 2).map(|keys| gets(&mut client, keys)).collect();
        let before = rig.tier.stats().reads;
        // Some datagrams at once: what waits together is a vector only if the options say so.
        for some in requests.chunks(4) {
            some.iter().for_each(|gets| client.send_operations(0, 0, gets));
            let mut left = some.len() * WIDTH / 2;
            while left > 0 {
                let datagram = client.receive().unwrap();
                left -= records(&datagram).iter().filter(|reply| reply.status == Status::Ok).count();
            }
        }
        let after = rig.tier.stats().reads;
        if reads < 8 {
            assert_eq!(after.read_vectors_of_8, before.read_vectors_of_8, "{width}");
        }
        let vectors = (after.read_vectors - before.read_vectors) as usize;
        assert!(vectors >= keys.len() / reads, "{width}: {vectors}");
    }
}

#[test]
fn hot_operations_do_not_wait_for_cold_ones() {
    let (_rig, mut client) = filled();
    let keys: Vec<_> =
        (0..WIDTH).map(|at| format!("key{}", if at % 2 == 0 { at } else { KEYS - 1 - at })).collect();
    let gets = gets(&mut client, &keys);
    client.send_operations(0, 0, &gets);
    let mut order = Vec::new();
    while order.len() < WIDTH {
        let datagram = client.receive().unwrap();
        for reply in records(&datagram) {
            let at = gets.iter().position(|get| get.request == reply.request).unwrap();
            let key: usize = keys[at][3..].parse().unwrap();
            assert_eq!((reply.status, reply.value), (Status::Ok, value(key)));
            order.push(at);
        }
    }
    assert!(order[..WIDTH / 2].iter().all(|at| at % 2 == 1), "{order:?}");
}

#[test]
fn a_copy_of_a_waiting_operation_is_not_executed() {
    let (_rig, mut client) = filled();
    for (at, opcode) in [Opcode::Append, Opcode::Prepend].into_iter().enumerate() {
        let key = format!("key{at}");
        let append = client.operation(opcode, key.as_bytes(), b"end");
        let once = Operation { flags: OpFlags::ONCE, ..append };
        let once = |copy: u32| {
            let mut operation = Operation { request: once.request + copy, ..once };
            operation.detail.once = at as u32;
            operation
        };
        // Both in one datagram: the first still waits when the second comes.
        let replies = client.call_at(0, 0, &[once(0), once(1)]);
        assert_eq!([replies[0].status, replies[1].status], [Status::Ok, Status::InProgress]);
        let again = client.call_at(0, 0, &[once(2)]).remove(0);
        assert_eq!((again.status, again.cas), (Status::Ok, replies[0].cas));
        assert_eq!(found(&mut client, &key).unwrap().len(), VALUE_BYTES + 3, "executed once");
    }
}

#[test]
fn a_copy_without_a_session_is_dropped() {
    let (_rig, mut client) = filled();
    let append = client.operation(Opcode::Append, b"key9", b"end");
    client.send_operations(0, 0, &[append, append]);
    assert_eq!(records(&client.receive().unwrap()).len(), 1);
    assert_eq!(found(&mut client, "key9").unwrap().len(), VALUE_BYTES + 3);
    assert_eq!(client.statistic("minos", "native_waits_repeated"), 1);
}

#[test]
fn waiting_operations_are_bounded() {
    let (_rig, mut client) = filled_by(|config| {
        config.native.as_mut().unwrap().waiting_memory_bytes = Some(4096);
    });
    let keys = names(0..WIDTH);
    let gets = gets(&mut client, &keys);
    let replies = client.call_at(0, 0, &gets);
    let done = replies.iter().filter(|reply| reply.status == Status::Ok).count();
    let busy = replies.iter().filter(|reply| reply.status == Status::Busy).count();
    // An address may have half of the memory, which is room for three.
    assert_eq!((done, busy), (3, WIDTH - 3));
    assert_eq!(client.statistic("minos", "native_waits_refused"), busy as u64);
    // The memory is free again.
    for key in 0..WIDTH {
        assert_eq!(found(&mut client, &format!("key{key}")), Some(value(key)));
    }
    assert_eq!(client.statistic("minos", "native_waits_bytes"), 0);
}

#[test]
fn large_values_come_and_go_as_hot_ones() {
    let (rig, mut client) = filled();
    let bytes = 50_000;
    assert_eq!(client.store(Opcode::Put, b"large", &large(1, bytes)).status, Status::Ok);
    assert_eq!(client.store(Opcode::Add, b"key1", &large(2, bytes)).status, Status::NotStored);
    assert_eq!(client.store(Opcode::Add, b"nobody", &large(2, bytes)).status, Status::Ok);
    assert_eq!(client.store(Opcode::Replace, b"key2", &large(3, bytes)).status, Status::Ok);
    assert_eq!(client.store(Opcode::Append, b"key3", &large(4, bytes)).status, Status::Ok);
    chill(&mut client);
    let found_before = rig.tier.stats().reads.read_found;
    assert!(client.get(b"large").unwrap().0 == large(1, bytes));
    assert!(client.get(b"key2").unwrap().0 == large(3, bytes));
    assert!(client.get(b"key3").unwrap().0 == [value(3), large(4, bytes)].concat());
    assert!(rig.tier.stats().reads.read_found >= found_before + 3, "they were cold");
    assert_eq!(store(&mut client, Opcode::Append, "nobody", b"end"), Status::Ok);
    chill(&mut client);
    assert_eq!(store(&mut client, Opcode::Append, "nobody", b"end"), Status::Ok);
    assert!(client.get(b"nobody").unwrap().0 == [&large(2, bytes)[..], b"endend"].concat());
    // Cold again when its next window is asked for.
    let mut other = RawClient::connect(rig.server.native_address().unwrap(), None);
    client.loses_one_in = 10;
    assert!(client.get_with(b"large", || chill(&mut other)).unwrap().0 == large(1, bytes));
}

#[test]
fn a_flush_takes_what_was_there_and_nothing_later() {
    let (_rig, mut client) = filled();
    let flush = |client: &mut RawClient| call(client, Opcode::Flush, "", |o| o.flags = OpFlags::ONCE).status;
    assert_eq!(flush(&mut client), Status::Ok);
    put(&mut client, "key1", b"new");
    for key in 0..COLD_KEYS {
        let expected = (key == 1).then(|| b"new".to_vec());
        assert_eq!(found(&mut client, &format!("key{key}")), expected, "{key}");
    }
    assert_eq!(flush(&mut client), Status::Ok, "a copy drops nothing");
    assert_eq!(found(&mut client, "key1").unwrap(), b"new");
}

#[test]
fn a_cache_says_that_it_is_one() {
    for (options, is_cache) in [(Options::cache(), true), (Options::store(Durability::None), false)] {
        let rig = start(&options, |_| {});
        let client = RawClient::connect(rig.server.native_address().unwrap(), None);
        assert_eq!(client.queues(), 2);
        assert_eq!(client.welcome.flags.contains(WelcomeFlags::CACHE), is_cache);
    }
}
