//! The client's operations, each with its result checked.

use std::time::Duration;

use minos_client::{Config, StoreOptions, blocking::Client};

/// Printed at the end, if every check passed.
pub(crate) const DONE: &str = "all of the client's work is done";

const SMALL_ITEMS: usize = 200;
const MANY: usize = 500;
const LARGE_BYTES: usize = 500_000;
const LARGE_ROUNDS: usize = 3;
const COUNTS: u64 = 100;

/// Runs all operations against `server`, in datagrams of at most `datagram_bytes`. Panics at the first error.
pub(crate) fn all(server: &str, datagram_bytes: usize, timeout: Duration) {
    let config = Config::new().datagram_bytes_max(datagram_bytes).timeout(timeout);
    let mut client = Client::connect(server, config).unwrap_or_else(|error| panic!("{error}"));
    small_values(&mut client);
    many_at_once(&mut client);
    large_values(&mut client);
    what_must_happen_once(&mut client);
    println!("{:?}", client.counters());
    println!("{DONE}");
}

fn small_values(client: &mut Client) {
    for item in 0..SMALL_ITEMS {
        client.put(key(item), value(item, item)).unwrap();
    }
    for item in 0..SMALL_ITEMS {
        let found = client.get(key(item)).unwrap().expect("a value that was stored");
        assert!(found.bytes == value(item, item), "item {item} holds other bytes");
    }
    assert_eq!(client.get("missing").unwrap(), None);
    assert!(client.delete(key(0)).unwrap());
    assert!(!client.delete(key(0)).unwrap());
}

/// Vectors of many datagrams, with values below and above the capacity of a datagram of 576 bytes.
fn many_at_once(client: &mut Client) {
    let bytes = |item: usize| item % 20 * 100;
    let items = (0..MANY).map(|item| (key(item), value(item + 1, bytes(item))));
    for result in client.put_many(items, StoreOptions::default()) {
        result.unwrap();
    }
    let found = client.get_many((0..=MANY).map(key));
    assert_eq!(found.len(), MANY + 1);
    for (item, result) in found.into_iter().enumerate() {
        let found = result.unwrap();
        let expected = (item < MANY).then(|| value(item + 1, bytes(item)));
        assert!(found.map(|value| value.bytes) == expected, "item {item} holds other bytes");
    }
}

fn large_values(client: &mut Client) {
    for round in 0..LARGE_ROUNDS {
        let stored = value(round, LARGE_BYTES + round);
        client.put("large", stored.clone()).unwrap();
        let found = client.get("large").unwrap().expect("a value that was stored");
        assert!(found.bytes == stored, "round {round}: other bytes than were stored");
    }
}

/// Operations that must be executed exactly once, whatever is lost.
fn what_must_happen_once(client: &mut Client) {
    client.put("count", "0").unwrap();
    client.put("list", "").unwrap();
    let mut expected = Vec::new();
    for count in 1..=COUNTS {
        assert_eq!(client.incr("count", 1).unwrap(), Some(count));
        let end = format!("{count},");
        assert!(client.append("list", end.clone()).unwrap().is_some());
        expected.extend_from_slice(end.as_bytes());
    }
    assert_eq!(client.get("list").unwrap().expect("a value that was stored").bytes, expected);
}

fn key(item: usize) -> String {
    format!("item-{item}")
}

/// Bytes that identify their value and their position in it.
fn value(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed * 131 + at * 7 + at / 251) as u8).collect()
}
