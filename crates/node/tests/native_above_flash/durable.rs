//! Answers that wait until changes are durable.

use minos_testkit::Over;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_device::faulty::{Faults, Twin};
use minos_node::ServerConfig;
use minos_proto::native::{OpFlags, Opcode, Operation, Status};
use minos_tier::{Durability, Options};

use super::{
    MEMORY, RawClient, Reply, Rig, call, config, found, large, names, native, put, records, store, value,
};
use crate::flash_rig;

const CLIENTS: usize = 4;
/// Operations of a client in one datagram.
const WIDTH: usize = 8;
const LARGE_BYTES: usize = 20 << 10;
/// More than are made before the power fails: a server that acknowledges without the device ends here.
const ROUNDS_MAX: usize = 3000;
/// Acknowledged changes before the power fails.
const CHANGES: u64 = 600;
/// Time for answers that are on their way when the power fails.
const LATE: Duration = Duration::from_millis(300);

fn twin() -> Twin {
    let twin = Twin::over(flash_rig::device(MEMORY.1), Faults::none(), 7);
    flash_rig::format(&twin.device(), MEMORY.1);
    twin
}

fn start(twin: &Twin, is_store: bool, change: impl FnOnce(&mut ServerConfig)) -> (Rig, RawClient) {
    let options = if is_store {
        Options::store(Durability::Flush)
    } else {
        Options { durability: Durability::Flush, ..Options::cache() }
    };
    let mut config = ServerConfig { native: Some(native()), ..config(2) };
    change(&mut config);
    let rig = Rig::on(&twin.device(), MEMORY.0, &options, config);
    let client = connect(&rig);
    (rig, client)
}

fn connect(rig: &Rig) -> RawClient {
    RawClient::connect(rig.server.native_address().unwrap(), None)
}

/// Whether the power is on, and how many changes were acknowledged.
#[derive(Default)]
struct Course {
    is_cut: AtomicBool,
    acknowledged: AtomicU64,
}

/// The newest version of each key that was acknowledged; `None` if it was deleted.
type Versions = BTreeMap<String, Option<Vec<u8>>>;

/// The answers to these operations, as far as they come.
fn ask(client: &mut RawClient, operations: &[Operation<'_>], course: &Course) -> Vec<Option<Reply>> {
    client.send_operations(0, 0, operations);
    let mut replies: Vec<Option<Reply>> = operations.iter().map(|_| None).collect();
    let mut cut_at = None;
    while replies.iter().any(Option::is_none) {
        if course.is_cut.load(Relaxed) && cut_at.get_or_insert_with(Instant::now).elapsed() > LATE {
            break;
        }
        let Some(datagram) = client.receive_within(Duration::from_millis(20)) else { continue };
        for reply in records(&datagram) {
            let at = operations.iter().position(|operation| operation.request == reply.request).unwrap();
            replies[at] = Some(reply);
        }
    }
    replies
}

/// Changes keys of its own until an answer is an error or does not come.
fn change(mut client: RawClient, of: usize, course: &Course) -> Versions {
    let mut versions = Versions::new();
    for round in 0..ROUNDS_MAX {
        let keys: Vec<_> = (0..WIDTH).map(|at| format!("key{of}-{}", round % 5 * WIDTH + at)).collect();
        let values: Vec<_> = (0..WIDTH).map(|at| value(round * WIDTH + at)).collect();
        let operations = keys.iter().zip(&values).enumerate();
        let operations: Vec<_> = operations
            .map(|(at, (key, value))| {
                let is_deletion = (round + at) % 7 == 6;
                let (opcode, value) =
                    if is_deletion { (Opcode::Delete, &b""[..]) } else { (Opcode::Put, &value[..100]) };
                client.operation(opcode, key.as_bytes(), value)
            })
            .collect();
        let replies = ask(&mut client, &operations, course);
        let mut is_over = false;
        for ((key, operation), reply) in keys.iter().zip(&operations).zip(replies) {
            match reply.map(|reply| reply.status) {
                Some(Status::Ok | Status::NotFound) => {
                    let is_put = operation.opcode == Opcode::Put;
                    versions.insert(key.clone(), is_put.then(|| operation.value.to_vec()));
                    course.acknowledged.fetch_add(1, Relaxed);
                }
                _ => {
                    versions.remove(key);
                    is_over = true;
                }
            }
        }
        if is_over {
            break;
        }
    }
    versions
}

/// The power fails while clients change items. What was acknowledged is there afterwards.
fn survives(is_store: bool) {
    let twin = twin();
    let (rig, _) = start(&twin, is_store, |_| {});
    let course = Course::default();
    let results: Vec<Versions> = thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|of| {
            let (client, course) = (connect(&rig), &course);
            scope.spawn(move || change(client, of, course))
        });
        let clients: Vec<_> = clients.collect();
        let over = Over(&course.is_cut);
        let acknowledged = || course.acknowledged.load(Relaxed);
        while acknowledged() < CHANGES && !clients.iter().any(|client| client.is_finished()) {
            thread::sleep(Duration::from_millis(1));
        }
        let (part, mut client) = (large(1, LARGE_BYTES), connect(&rig));
        for opcode in [Opcode::Put, Opcode::Append] {
            assert_eq!(client.store(opcode, b"large", &part).status, Status::Ok);
        }
        twin.cut_power();
        drop(over);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    drop(rig);
    assert!(course.acknowledged.load(Relaxed) >= CHANGES, "an error before the power failed");
    let (_rig, mut client) = start(&twin, is_store, |_| {});
    assert!(found(&mut client, "large").unwrap() == large(1, LARGE_BYTES).repeat(2));
    for (key, expected) in results.into_iter().flatten() {
        assert!(found(&mut client, &key) == expected, "{key}");
    }
}

#[test]
fn acknowledged_changes_of_a_store_survive_a_power_loss() {
    survives(true);
}

#[test]
fn acknowledged_changes_of_a_cache_survive_a_power_loss() {
    survives(false);
}

#[test]
fn every_change_waits_and_no_read_does() {
    let (rig, mut client) = start(&twin(), true, |_| {});
    put(&mut client, "a", b"1");
    let count = call(&mut client, Opcode::Incr, "a", |o| o.detail.operand = 41);
    assert_eq!(count.value, 42u64.to_le_bytes());
    assert_eq!(store(&mut client, Opcode::Add, "a", b"x"), Status::NotStored);
    assert_eq!(store(&mut client, Opcode::Append, "a", b"0"), Status::Ok);
    assert_eq!(call(&mut client, Opcode::Touch, "a", |o| o.detail.ttl = 100).status, Status::Ok);
    assert_eq!(call(&mut client, Opcode::GetTouch, "a", |_| {}).value, b"420");
    assert_eq!(call(&mut client, Opcode::GetTouch, "none", |_| {}).status, Status::NotFound);
    assert_eq!(call(&mut client, Opcode::Delete, "none", |_| {}).status, Status::NotFound);
    // Read with the expiry that ends it.
    assert_eq!(call(&mut client, Opcode::GetTouch, "a", |o| o.detail.ttl = -1).value, b"420");
    assert_eq!(call(&mut client, Opcode::Flush, "", |_| {}).status, Status::Ok);
    put(&mut client, "b", b"2");
    let too_large = client.begin(Opcode::Put, b"b", &large(1, 65 << 10));
    assert_eq!((too_large.status, found(&mut client, "b")), (Status::TooLarge, None));
    assert_eq!(client.store(Opcode::Put, b"large", &large(1, LARGE_BYTES)).status, Status::Ok);
    let touched = call(&mut client, Opcode::GetTouch, "large", |o| o.detail.ttl = 100);
    assert_eq!(touched.status, Status::Large);
    // Copied in slices, without a transfer that the client knows.
    assert_eq!(store(&mut client, Opcode::Append, "large", b"end"), Status::Ok);
    assert_eq!(client.statistic("minos", "worker:0:replies_held") + held_by_other(&mut client), 15);
    let syncs = rig.tier.stats().keeper.syncs;
    assert!(found(&mut client, "large").unwrap() == [&large(1, LARGE_BYTES)[..], b"end"].concat());
    assert_eq!(rig.tier.stats().keeper.syncs, syncs);
    assert_eq!(client.statistic("minos", "native_waits_bytes"), 0);
}

fn held_by_other(client: &mut RawClient) -> u64 {
    client.statistic("minos", "worker:1:replies_held")
}

#[test]
fn a_copy_of_a_change_whose_answer_waits_is_not_executed() {
    let (_rig, mut client) = start(&twin(), true, |_| {});
    put(&mut client, "a", b"x");
    let append = client.operation(Opcode::Append, b"a", b"end");
    let once = |copy: u32| Operation { flags: OpFlags::ONCE, request: append.request + copy, ..append };
    // Both in one datagram: the answer to the first waits when the second comes.
    let replies = client.call_at(0, 0, &[once(0), once(1)]);
    assert_eq!([replies[0].status, replies[1].status], [Status::Ok, Status::InProgress]);
    let again = client.call_at(0, 0, &[once(2)]).remove(0);
    assert_eq!((again.status, again.cas), (Status::Ok, replies[0].cas));
    assert_eq!(found(&mut client, "a").unwrap(), b"xend");
    // Without a session, it is dropped.
    let append = Operation { request: append.request + 3, ..append };
    client.send_operations(0, 0, &[append, append]);
    assert_eq!(records(&client.receive().unwrap()).len(), 1);
    assert_eq!(found(&mut client, "a").unwrap(), b"xendend");
    assert_eq!(client.statistic("minos", "native_waits_repeated"), 1);
}

#[test]
fn answers_that_wait_are_bounded() {
    let (_rig, mut client) = start(&twin(), true, |config| {
        config.native.as_mut().unwrap().waiting_memory_bytes = Some(4096);
    });
    let keys = names(0..2 * WIDTH);
    let puts: Vec<_> = keys.iter().map(|key| client.operation(Opcode::Put, key.as_bytes(), b"x")).collect();
    let replies = client.call_at(0, 0, &puts);
    let refused = replies.iter().filter(|reply| reply.status == Status::Busy).count();
    // An address may have half of the memory, which is room for three.
    assert_eq!(refused, 2 * WIDTH - 3);
    assert_eq!(client.statistic("minos", "native_waits_refused"), refused as u64);
    assert_eq!(client.statistic("minos", "native_waits_bytes"), 0);
    for (key, reply) in keys.iter().zip(replies) {
        assert_eq!(
            found(&mut client, key).is_some(),
            reply.status == Status::Ok,
            "what is refused is not done"
        );
    }
}

#[test]
fn a_device_that_fails_is_an_error_and_no_acknowledgement() {
    let twin = twin();
    let (_rig, mut client) = start(&twin, true, |_| {});
    put(&mut client, "before", b"1");
    twin.set_faults(Faults { flush_eio: 1.0, ..Faults::none() });
    let count = client.operation(Opcode::Incr, b"before", b"");
    let count = |copy: u32| Operation { flags: OpFlags::ONCE, request: count.request + copy, ..count };
    for copy in 0..2 {
        let reply = client.call_at(0, 0, &[count(copy)]).remove(0);
        assert_eq!((reply.status, reply.value.len()), (Status::NotDurable, 0));
    }
    assert_eq!(client.store(Opcode::Put, b"large", &large(1, LARGE_BYTES)).status, Status::NotDurable);
    assert_eq!(store(&mut client, Opcode::Put, "other", b"x"), Status::NotDurable);
    assert_eq!(found(&mut client, "before").unwrap().len(), 1);
}

#[test]
fn a_stop_answers_those_who_wait() {
    let twin = twin();
    let (rig, _) = start(&twin, true, |_| {});
    let mut clients: Vec<_> = (0..WIDTH).map(|_| connect(&rig)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let key = format!("key{number}");
        let put = client.operation(Opcode::Put, key.as_bytes(), b"x");
        client.send_operations(0, 0, &[put]);
    }
    // Those who are not answered were not heard.
    rig.server.stop().request();
    rig.server.join().unwrap();
    let stored: Vec<_> =
        clients.iter_mut().map(|client| client.receive_within(Duration::from_millis(1)).is_some()).collect();
    let (_rig, mut client) = start(&twin, true, |_| {});
    for (number, is_stored) in stored.into_iter().enumerate() {
        assert!(!is_stored || found(&mut client, &format!("key{number}")).is_some(), "{number}");
    }
}
