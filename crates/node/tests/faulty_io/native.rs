//! A dialogue of the native client, whose every answer is known before.

use std::{collections::BTreeMap, fmt::Debug, net::SocketAddr, time::Duration};

use minos_base::seeded;
use minos_client::{Config, Error, OnceFor, Secret, StoreOptions, Value, blocking::Client};
use rand::{RngExt as _, rngs::StdRng};

const ROUNDS: usize = 12;
const KEYS: usize = 40;
/// One large value a round.
const LARGE_BYTES_MAX: usize = 60_000;

/// Talks until an answer is wrong or an error; returns that.
pub(crate) fn talk(server: SocketAddr, seed: u64, secret: Option<&Secret>) -> Result<(), String> {
    let mut config = Config::new()
        .timeout(Duration::from_secs(30))
        .retry_between(Duration::from_millis(1), Duration::from_millis(4))
        .once_for(OnceFor::AllWrites);
    if let Some(secret) = secret {
        config = config.secret(secret);
    }
    let mut client = Client::connect(&server.to_string(), config).map_err(|error| format!("{error:?}"))?;
    let (mut random, mut items) = (seeded(seed), BTreeMap::new());
    let mut number = 0;
    for round in 0..ROUNDS {
        put(&mut client, &mut items, &mut random)?;
        read(&mut client, &items)?;
        change(&mut client, &mut items, &mut random)?;
        number += round as u64;
        let counted = client.incr_or_create("number", round as u64, 0, StoreOptions::new());
        same("a count", counted, Ok(number))?;
    }
    read(&mut client, &items)
}

type Items = BTreeMap<String, Vec<u8>>;

/// Stores small values in vectors, and a large one.
fn put(client: &mut Client, items: &mut Items, random: &mut StdRng) -> Result<(), String> {
    let batch: BTreeMap<_, _> = (0..KEYS / 2).map(|_| (key(random), value(random, 600))).collect();
    for result in client.put_many(batch.clone(), StoreOptions::new()) {
        same("a PUT", result.map(|_| ()), Ok(()))?;
    }
    items.extend(batch);
    let large = value(random, LARGE_BYTES_MAX);
    same("a large PUT", client.put("large", large.clone()).map(|_| ()), Ok(()))?;
    items.insert("large".to_owned(), large);
    Ok(())
}

/// Reads all keys, in vectors.
fn read(client: &mut Client, items: &Items) -> Result<(), String> {
    let keys: Vec<_> = (0..KEYS).map(name).chain(["large".to_owned()]).collect();
    for (result, key) in client.get_many(&keys).into_iter().zip(&keys) {
        same(key, bytes(result), Ok(items.get(key).cloned()))?;
    }
    Ok(())
}

/// Appends to one value and deletes another.
fn change(client: &mut Client, items: &mut Items, random: &mut StdRng) -> Result<(), String> {
    let (longer, gone, end) = (key(random), key(random), value(random, 300));
    let appended = client.append(&longer, end.clone()).map(|cas| cas.is_some());
    same("an APPEND", appended, Ok(items.contains_key(&longer)))?;
    items.entry(longer).and_modify(|value| value.extend(end));
    same("a DELETE", client.delete(&gone), Ok(items.remove(&gone).is_some()))
}

fn same<T: PartialEq + Debug>(
    what: &str,
    answer: Result<T, Error>,
    expected: Result<T, Error>,
) -> Result<(), String> {
    if answer == expected { Ok(()) } else { Err(format!("{what}: {answer:?}, not {expected:?}")) }
}

fn bytes(result: Result<Option<Value>, Error>) -> Result<Option<Vec<u8>>, Error> {
    result.map(|found| found.map(|value| value.bytes))
}

fn name(number: usize) -> String {
    format!("key-{number}")
}

fn key(random: &mut StdRng) -> String {
    name(random.random_range(0..KEYS))
}

fn value(random: &mut StdRng, bytes_max: usize) -> Vec<u8> {
    let (bytes, first) = (random.random_range(0..=bytes_max), random.random_range(0..=255));
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ first) as u8).collect()
}
