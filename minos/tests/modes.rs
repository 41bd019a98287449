//! Cache and store as clients see them when the memory is full, and the options that choose them.

mod common;

use std::{collections::HashMap, net::TcpListener};

use common::{Wanted, connect, refusal, start};
use minos_base::seeded;
use minos_testkit::Client;
use rand::{Rng, RngExt};

/// Small enough to fill soon.
const MEMORY: &str = "8m";
/// Several times as many as fit.
const KEYS: u32 = 40_000;
/// Requests in one write.
const BURST: usize = 50;

/// A value that contains its key and version.
fn value(key: u32, version: u32, bytes: usize) -> Vec<u8> {
    format!("{key} {version} ").into_bytes().into_iter().cycle().take(bytes).collect()
}

fn number(client: &mut Client, group: &str, name: &str) -> u64 {
    let stats: HashMap<_, _> = client.stats(group).unwrap().into_iter().collect();
    stats[name].parse().unwrap()
}

/// Sets random keys, sometimes to a large value, and returns the last value of each.
fn fill(client: &mut Client) -> Vec<(String, Vec<u8>)> {
    let mut random = seeded(29);
    let items = (0..KEYS).map(|version| {
        let key = random.random_range(0..KEYS);
        let bytes = match random.next_u32() % 500 {
            0 => 200_000,
            1..5 => 20_000,
            _ => random.random_range(10..900),
        };
        (format!("key{key}"), value(key, version, bytes))
    });
    let items: Vec<_> = items.collect();
    for burst in items.chunks(BURST) {
        assert!(client.set_many(burst).unwrap().iter().all(|line| line == "STORED"));
    }
    let last: HashMap<_, _> = items.into_iter().collect();
    last.into_iter().collect()
}

#[test]
fn a_full_cache_serves_the_last_value_or_none() {
    for evict in ["approx-lru", "lru", "fifo"] {
        let option = format!("--evict={evict}");
        let options = ["--engine=cache", option.as_str()];
        let server = start(Wanted { memory: MEMORY, minos_only: &options, ..Wanted::default() });
        let mut client = connect(&server);
        let last = fill(&mut client);
        let mut found = 0;
        for burst in last.chunks(BURST) {
            let keys: Vec<_> = burst.iter().map(|(key, _)| key.clone()).collect();
            for ((key, value), item) in burst.iter().zip(client.get_many(&keys).unwrap()) {
                let Some(item) = item else { continue };
                assert!(item.value == *value, "{evict}: {key} has another value");
                found += 1;
            }
        }
        assert!(found > 1000 && found < last.len(), "{evict}: {found} of {} found", last.len());
        if common::is_memcached() {
            return;
        }
        assert!(number(&mut client, "", "evictions") > 1000);
        assert_eq!(number(&mut client, "", "store_no_memory"), 0);
        let settings: HashMap<_, _> = client.stats("settings").unwrap().into_iter().collect();
        for (name, value) in [("evictions", "on"), ("engine", "cache"), ("access", "crcw"), ("evict", evict)]
        {
            assert_eq!(settings[name], value, "{name}");
        }
        assert_eq!(number(&mut client, "minos", "store_reinserted") > 0, evict != "fifo");
    }
}

#[test]
fn what_is_read_again_and_again_stays() {
    let options = ["--engine=cache", "--evict=lru"];
    let server = start(Wanted { memory: MEMORY, minos_only: &options, ..Wanted::default() });
    let mut client = connect(&server);
    let set = |client: &mut Client, key| {
        assert_eq!(client.set(&format!("key{key}"), &value(key, 0, 900)).unwrap(), "STORED");
    };
    // Fills the memory first: reads need to protect the item only from then on.
    (0..KEYS / 4).for_each(|key| set(&mut client, key));
    assert_eq!(client.set("favourite", b"of all").unwrap(), "STORED");
    for key in KEYS / 4..KEYS {
        set(&mut client, key);
        if key % 100 == 0 {
            let found = client.get("favourite").unwrap();
            assert!(found.is_some_and(|item| item.value == b"of all"), "lost before {key}");
        }
    }
    assert_eq!(client.get("key0").unwrap(), None);
}

#[test]
fn a_full_store_refuses_and_loses_nothing() {
    if common::is_memcached() {
        return;
    }
    let server = start(Wanted { memory: MEMORY, minos_only: &["--engine=store"], ..Wanted::default() });
    let mut client = connect(&server);
    let stored = (0..KEYS).find(|&key| {
        let line = client.set(&format!("key{key}"), &value(key, 0, 900)).unwrap();
        assert!(line == "STORED" || line == "SERVER_ERROR out of memory storing object", "{line}");
        line != "STORED"
    });
    let stored = stored.expect("it is full at last");
    for key in 0..stored {
        assert_eq!(client.get(&format!("key{key}")).unwrap().unwrap().value, value(key, 0, 900));
    }
    assert_eq!(number(&mut client, "", "evictions"), 0);
    assert_eq!(number(&mut client, "", "curr_items"), u64::from(stored));
}

#[test]
fn what_cannot_be_is_said() {
    for (options, instead) in [
        (&["--dispatch=size-aware"][..], "--dispatch keyhash"),
        (&["--dispatch=stealing"], "--dispatch keyhash"),
        (&["--resp=127.0.0.1:0"], "--access crcw"),
        (&["--flash=/nowhere:1g"], "--access crcw"),
        (&["--region=/nowhere"], "--access crcw"),
        (&["--partitions=2", "--workers=3"], "--partitions"),
    ] {
        for access in ["--access=erew", "--access=crew"] {
            let text = refusal(&[&["--memory=64m", "--memcached=127.0.0.1:0", access][..], options].concat());
            assert!(text.contains("--access erew and crew") && text.contains(instead), "{options:?}: {text}");
        }
    }
    let text = refusal(&["--engine=store", "--evict=lru"]);
    assert!(text.contains("--evict") && text.contains("--engine cache"), "{text}");
    assert!(refusal(&["--prefetch-depth=33"]).contains("1..=32"));
    assert!(refusal(&["--evict=random"]).contains("approx-lru"));
}

#[test]
fn addresses_that_strangers_reach_are_warned_of() {
    if common::is_memcached() {
        return;
    }
    // The port is taken, so that no server listens there.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let warns = |options: &[&str], address: &str| {
        let text = refusal(&[options, &["--memory=64m", &format!("--memcached={address}:{port}")]].concat());
        assert!(text.contains("cannot listen"), "{text}");
        text.contains("--memcached: whoever can reach it can read and write")
    };
    assert!(warns(&["--allow-public"], "0.0.0.0"));
    assert!(!warns(&[], "127.0.0.1"));
    for option in ["--memcached=0.0.0.0:1", "--memcached=[::]:1", "--native=0.0.0.0:1"] {
        let text = refusal(&["--memory=64m", option]);
        assert!(text.contains("whoever can reach it could") && text.contains("--allow-public"), "{text}");
    }
    // Not even a stranger is served without a login.
    let users = tempfile::NamedTempFile::new().unwrap();
    let acl = format!("--acl={}", users.path().display());
    assert!(!warns(&[&acl], "0.0.0.0"));
    std::fs::write(&users, "user default on nopass +@read ~*").unwrap();
    assert!(refusal(&[&acl, "--memcached=0.0.0.0:1"]).contains("--allow-public"));
    assert!(refusal(&[&acl, "--native=127.0.0.1:0"]).contains("--native-secret-file"));
}

#[test]
fn flushes_and_lists_reach_the_partitions_of_all_workers() {
    if common::is_memcached() {
        return;
    }
    for minos_only in common::OWNED {
        let server = start(Wanted { minos_only, workers: 3, ..Wanted::default() });
        let mut client = connect(&server);
        let fill = |client: &mut minos_testkit::Client| {
            for key in 0..100 {
                assert_eq!(client.set(&format!("key{key}"), b"1").unwrap(), "STORED");
            }
        };
        fill(&mut client);
        client.send("lru_crawler metadump all\r\n").unwrap();
        let listed = std::iter::from_fn(|| client.line().ok().filter(|line| line != "END")).count();
        assert_eq!(listed, 100);
        assert_eq!(client.ask("flush_all").unwrap(), "OK");
        // Other workers see it too.
        let mut other = connect(&server);
        assert!((0..100).all(|key| other.get(&format!("key{key}")).unwrap().is_none()));
        fill(&mut client);
        assert_eq!(client.ask("flush_all 1").unwrap(), "OK");
        let is_gone = |_: &u32| (0..100).all(|key| other.get(&format!("key{key}")).unwrap().is_none());
        assert!((0..10_000).find(is_gone).is_some(), "a delayed flush has forgotten some items");
    }
}
