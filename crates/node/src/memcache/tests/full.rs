//! A full memory, the one case in which store and cache differ by design.

use minos_engine::{CacheMode, StoreMode};

use crate::memcache::harness::Session;

#[test]
fn a_full_store_refuses_and_keeps_what_it_has() {
    let mut session = Session::<StoreMode>::new(4096);
    session.say("set old 0 0 3\r\nold\r\n");
    let value = "x".repeat(4000);
    let full = (0..4000).find(|index| {
        let reply = session.say(&format!("set key{index} 0 0 4000\r\n{value}\r\n"));
        assert!(reply == "STORED\r\n" || reply == "SERVER_ERROR out of memory storing object\r\n");
        reply != "STORED\r\n"
    });
    let full = full.expect("8 MiB hold less than 16 MB");
    assert_eq!(session.say(&format!("set key{full} 0 0 4000 noreply\r\n{value}\r\n")), "");
    assert_eq!(
        session.say(&format!("set old 0 0 4000\r\n{value}\r\n")),
        "SERVER_ERROR out of memory storing object\r\n"
    );
    assert_eq!(session.say(&format!("append old 0 0 4000\r\n{value}\r\n")), "NOT_STORED\r\n");
    assert_eq!(session.say("get old\r\n"), "VALUE old 0 3\r\nold\r\nEND\r\n");
    let large = "x".repeat(1 << 20);
    let refused = session.say(&format!("set old 0 0 {}\r\n{large}\r\nget old\r\n", large.len()));
    assert_eq!(refused, "SERVER_ERROR out of memory storing object\r\nVALUE old 0 3\r\nold\r\nEND\r\n");
    assert!(session.totals().store_no_memory >= 4);
}

/// More values of 4000 bytes than the memory holds.
const MANY: usize = 4000;

#[test]
fn a_full_cache_evicts_the_oldest_and_refuses_nothing() {
    let mut session = Session::<CacheMode>::new(4096);
    let value = |index: usize| format!("{index:04000}");
    for index in 0..MANY {
        assert_eq!(session.say(&format!("set key{index} 0 0 4000\r\n{}\r\n", value(index))), "STORED\r\n");
    }
    let mut found = 0;
    for index in 0..MANY {
        let reply = session.say(&format!("get key{index}\r\n"));
        if reply != "END\r\n" {
            assert_eq!(reply, format!("VALUE key{index} 0 4000\r\n{}\r\nEND\r\n", value(index)));
            found += 1;
        }
    }
    assert!((MANY / 8..MANY).contains(&found), "{found} found");
    assert_eq!(session.say("get key0\r\n"), "END\r\n");
    assert!(session.say(&format!("get key{}\r\n", MANY - 1)).starts_with("VALUE"));
    assert_eq!(session.totals().store_no_memory, 0);
    assert_eq!(session.store.check(), Ok(()));
    let stats = session.say("stats\r\n");
    assert!(stats.contains(&format!("STAT evictions {}\r\n", MANY - found)), "{stats}");
    assert!(stats.contains(&format!("STAT curr_items {found}\r\n")), "{stats}");
}

#[test]
fn large_values_push_out_large_ones() {
    let mut session = Session::<CacheMode>::new(4096);
    session.say("set small 0 0 5\r\nhello\r\n");
    let large = "x".repeat(1 << 20);
    for index in 0..40 {
        let reply = session.say(&format!("set large{index} 0 0 {}\r\n{large}\r\n", large.len()));
        assert_eq!(reply, "STORED\r\n");
    }
    assert_eq!(session.say("get small\r\n"), "VALUE small 0 5\r\nhello\r\nEND\r\n");
    assert_eq!(session.say("get large0\r\n"), "END\r\n");
    // A command that would write into an evicted value finds no item.
    assert_eq!(session.say("gat 0 large1\r\n"), "END\r\n");
    assert_eq!(session.say("mg large2 T30 v\r\n"), "EN\r\n");
    assert_eq!(session.say("append large3 0 0 1\r\na\r\n"), "NOT_STORED\r\n");
    assert_eq!(session.say("incr large4 1\r\n"), "NOT_FOUND\r\n");
    assert!(session.say("get large39\r\n").starts_with("VALUE large39 0 1048576\r\n"));
    assert_eq!(session.store.check(), Ok(()));
}

#[test]
fn a_store_refuses_more_computed_keys_than_a_chain_may_hold() {
    const SLOTS: usize = minos_engine::CHAIN_BUCKETS_MAX * 7;
    let mut session = Session::<StoreMode>::new(4096);
    let store = std::sync::Arc::clone(&session.store);
    // Hashes share so many bits that the index never grows far enough to tell these keys apart.
    let is_computed = |key: &String| {
        let hash = store.hash(key.as_bytes());
        store.partition_of(hash) == 0 && hash.bucket_bits().trailing_zeros() >= 12
    };
    let keys: Vec<_> =
        (0..).map(|number| format!("key{number}")).filter(is_computed).take(SLOTS + 10).collect();
    for (at, key) in keys.iter().enumerate() {
        let reply = session.say(&format!("set {key} 0 0 5\r\nvalue\r\n"));
        let refused = "SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(reply, if at < SLOTS { "STORED\r\n" } else { refused });
    }
    assert_eq!(session.say(&format!("get {}\r\n", keys[SLOTS])), "END\r\n");
    assert!(session.say(&format!("get {}\r\n", keys[SLOTS - 1])).starts_with("VALUE"));
    assert_eq!(session.say("set other 0 0 5\r\nvalue\r\n"), "STORED\r\n");
    assert!(session.say("stats minos\r\n").contains("STAT store_chain_refusals 10\r\n"));
}
