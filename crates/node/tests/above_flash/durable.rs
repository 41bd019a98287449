//! Replies that wait until changes are durable.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use minos_device::faulty::{Faults, Twin};
use minos_tier::{Durability, Options};

use super::{Client, KEYS, MEMORY, Rig, config, connect, flash_rig, value};

const CLIENTS: usize = 4;
/// More than are made before the power fails: a server that acknowledges without the device ends here.
const CHANGES_MAX: usize = 20_000;

fn twin() -> Twin {
    let twin = Twin::over(flash_rig::device(MEMORY.1), Faults::none(), 7);
    flash_rig::format(&twin.device(), MEMORY.1);
    twin
}

/// A durable server above this device.
fn above(twin: &Twin, workers: usize, is_store: bool) -> Rig {
    let options = if is_store { Options::store(Durability::Flush) } else { Options::cache() };
    let options = Options { durability: Durability::Flush, ..options };
    Rig::on(&twin.device(), MEMORY.0, &options, config(workers))
}

/// Stores and deletes keys of its own, until a reply is an error. The newest version of each key that was acknowledged,
/// `None` if it was deleted, and the key whose change was not.
type Acknowledged = (BTreeMap<String, Option<usize>>, Option<String>);

fn change(mut client: Client, of: usize, acknowledged: &AtomicU64) -> Acknowledged {
    let mut versions = BTreeMap::new();
    for number in 0..CHANGES_MAX {
        let key = format!("key{of}-{}", number % 40);
        let is_deletion = number % 7 == 6;
        let reply = if is_deletion {
            client.ask(format!("delete {key}\r\n").as_bytes())
        } else {
            let value = value(number);
            client.ask(&[format!("set {key} 7 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat())
        };
        match reply.as_deref() {
            Some("STORED") => versions.insert(key, Some(number)),
            Some("DELETED" | "NOT_FOUND") => versions.insert(key, None),
            _ => return (versions, Some(key)),
        };
        acknowledged.fetch_add(1, Relaxed);
    }
    (versions, None)
}

/// The power fails while clients change items. What was acknowledged is there afterwards.
fn survives(is_store: bool) {
    let twin = twin();
    let rig = above(&twin, 2, is_store);
    let acknowledged = AtomicU64::new(0);
    let results: Vec<Acknowledged> = thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|of| {
            let (client, acknowledged) = (connect(&rig), &acknowledged);
            scope.spawn(move || change(client, of, acknowledged))
        });
        let clients: Vec<_> = clients.collect();
        while acknowledged.load(Relaxed) < 400 && !clients.iter().any(|client| client.is_finished()) {
            thread::sleep(Duration::from_millis(1));
        }
        twin.cut_power();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    drop(rig);
    assert!(acknowledged.load(Relaxed) >= 400, "an error before the power failed");
    let rig = above(&twin, 2, is_store);
    let mut client = connect(&rig);
    for (versions, unknown) in results {
        for (key, version) in versions.into_iter().filter(|(key, _)| Some(key) != unknown.as_ref()) {
            assert_eq!(client.get(&key), version.map(value), "{key}");
        }
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
fn replies_that_wait_keep_their_order() {
    for workers in [1, 2] {
        let rig = above(&twin(), workers, true);
        let mut client = connect(&rig);
        let large = "L".repeat(20 << 10);
        let pipeline = format!(
            "set a 7 0 1\r\n1\r\nget a\r\nset b 0 0 1 noreply\r\n2\r\nmn\r\nincr a 41\r\nget none\r\ntouch b 0\r\n\
             set c 7 0 {length}\r\n{large}\r\nappend c 0 0 3\r\nend\r\ngat 0 a\r\nflush_all\r\nget a\r\n\
             delete b\r\nms d 2 F7\r\nhi\r\nmg d v\r\n",
            length = large.len()
        );
        client.ask_nothing(pipeline.as_bytes());
        let expected = "STORED VALUE a 7 1|1|END|MN|42|END|TOUCHED|STORED|STORED|VALUE a 7 2|42|END|OK|END|NOT_FOUND|HD|VA 2|hi";
        let expected = expected.replacen(' ', "|", 1);
        let lines: Vec<String> = expected.split('|').map(|_| client.line()).collect();
        assert_eq!(lines.join("|"), expected);
        let held = client.stat("minos", "replies_held");
        assert!(held > 0, "no reply waited");
        let syncs = rig.tier.stats().keeper.syncs;
        assert_eq!(client.get("d"), Some(b"hi".to_vec()), "a read after all that waits for nothing");
        assert_eq!(rig.tier.stats().keeper.syncs, syncs);
    }
}

#[test]
fn a_device_that_fails_is_an_error_and_no_acknowledgement() {
    let twin = twin();
    let rig = above(&twin, 2, true);
    let mut client = connect(&rig);
    client.set("before", b"x");
    twin.set_faults(Faults { flush_eio: 1.0, ..Faults::none() });
    for _ in 0..2 {
        let reply = client.ask(b"set a 7 0 1\r\n1\r\nget a\r\n");
        assert_eq!(reply.as_deref(), Some("SERVER_ERROR flash failed: the change is not durable"));
        assert_eq!(client.line_or_end(), None, "nothing behind it");
        client = connect(&rig);
    }
    assert_eq!(client.get("before"), Some(b"x".to_vec()));
}

#[test]
fn a_stop_answers_those_who_wait() {
    let twin = twin();
    let rig = above(&twin, 2, true);
    let mut clients: Vec<Client> = (0..8).map(|_| connect(&rig)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask_nothing(format!("set key{number} 7 0 1\r\n1\r\n").as_bytes());
    }
    // Those who are not answered were not heard.
    rig.server.stop().request();
    rig.server.join().unwrap();
    let stored: Vec<bool> = clients.iter_mut().map(|client| client.line_or_end().is_some()).collect();
    let rig = above(&twin, 2, true);
    let mut client = connect(&rig);
    for (number, is_stored) in stored.into_iter().enumerate() {
        assert!(!is_stored || client.get(&format!("key{number}")).is_some(), "{number}");
    }
}

/// Before the fix, the item was there again once its record could be read.
#[test]
fn what_a_change_finds_lost_is_gone() {
    let device = flash_rig::device(MEMORY.1);
    let twin = Twin::over(device, Faults::none(), 1);
    flash_rig::format(&twin.device(), MEMORY.1);
    // A scrubber would find the faults too, and lose what is there.
    let options = Options { scrub_bytes_s: Some(0), ..Options::cache() };
    let rig = Rig::on(&twin.device(), MEMORY.0, &options, config(2));
    let mut client = connect(&rig);
    (0..KEYS).for_each(|number| client.set(&format!("key{number}"), &value(number)));
    let engine = rig.tier.engine();
    let is_cold = |key: &String| {
        let hash = engine.hash(key.as_bytes());
        matches!(engine.find_cold(hash, key.as_bytes(), 1), minos_engine::Lookup::Cold(_))
    };
    let cold: Vec<String> = (0..KEYS).map(|number| format!("key{number}")).filter(is_cold).take(40).collect();
    assert_eq!(cold.len(), 40);
    twin.set_faults(Faults { eio: 1.0, ..Faults::none() });
    let (deleted, read) = cold.split_at(20);
    for key in deleted {
        assert_eq!(client.say(&format!("delete {key}\r\n")), "NOT_FOUND");
    }
    for key in read {
        assert_eq!(client.get(key), None);
    }
    twin.set_faults(Faults::none());
    assert!(deleted.iter().all(|key| client.get(key).is_none()));
    assert!(read.iter().all(|key| client.get(key).is_some()), "a read loses nothing");
}

/// Before the fix, nothing could be deleted to make room, and a second read was an error after a second of waiting.
#[test]
fn a_full_store_still_reads_and_deletes() {
    const READ: usize = 20;
    let rig = Rig::start(MEMORY, &Options::store(Durability::None), config(2));
    let mut client = connect(&rig);
    let mut stored = 0;
    loop {
        let request = [format!("set key{stored} 7 0 1000\r\n").as_bytes(), &value(stored), b"\r\n"].concat();
        match client.ask(&request).as_deref() {
            Some("STORED") => stored += 1,
            Some("SERVER_ERROR out of memory storing object") => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(stored > 4 * KEYS / 2, "{stored}");
    let reads = rig.tier.stats().reads.read_records;
    for number in (0..READ).chain(0..READ) {
        assert_eq!(client.get(&format!("key{number}")), Some(value(number)));
    }
    assert!(rig.tier.stats().reads.read_records - reads <= 2 * READ as u64 + 5, "it reads again and again");
    // By the CAS unique, too.
    client.ask_nothing(b"mg key0 c\r\n");
    let unique = client.line().strip_prefix("HD c").map(str::to_owned).unwrap();
    assert_eq!(client.say("md key0 C999999999999\r\n"), "EX");
    assert_eq!(client.say(&format!("md key0 C{unique}\r\n")), "HD");
    for number in 1..stored / 2 {
        assert_eq!(client.say(&format!("delete key{number}\r\n")), "DELETED");
    }
    assert_eq!(client.say("delete key1\r\ndelete none\r\n"), "NOT_FOUND");
    assert_eq!(client.line(), "NOT_FOUND");
    assert_eq!((client.get("key0"), client.get("key7")), (None, None));
    client.set("key1", b"again");
    assert_eq!(client.say("delete key1\r\nset key1 7 0 3\r\nnew\r\ndelete key1\r\n"), "DELETED");
    assert_eq!([client.line(), client.line()], ["STORED", "DELETED"]);
    assert_eq!(client.get(&format!("key{}", stored - 1)), Some(value(stored - 1)));
}
