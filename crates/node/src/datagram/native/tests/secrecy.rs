//! Answers reveal neither where keys lie in the table nor how transfers are named.

use std::collections::BTreeSet;

use minos_proto::native::{Detail, Flags, Grant, OpFlags, Opcode, Operation, Status};

use super::site::{Client, HASH_SEED, Site, Train};

/// Bits of a bucket's number in a table of 1,024 buckets.
const BUCKET_MASK: u32 = 0x3ff;

const KEYS: [&[u8]; 3] = [b"small", b"large", b"granted"];

/// Answers of every kind: welcomes, values, grants, statistics, refusals.
fn everything_sent(site: &mut Site, client: &mut Client) -> Vec<Train> {
    let hello = client.hello(Flags::OPEN);
    let mut trains = site.deliver(0, &[client.message(hello)]);
    let value = vec![7; 40_000];
    let mut operations = vec![client.put(KEYS[0], b"value"), client.put(KEYS[1], &value)];
    operations.extend([client.get(KEYS[0]), client.get(KEYS[1]), deferred(client, 3)]);
    let groups: [&[u8]; 7] = [b"", b"settings", b"items", b"slabs", b"conns", b"minos", b"none"];
    operations.extend(groups.map(|group| client.operation(Opcode::Stats, group, b"")));
    for operation in operations {
        trains.extend(client.send(site, 0, &[operation]));
    }
    client.header.cookie = 0;
    trains.extend(client.send(site, 0, &[client.get(KEYS[0])]));
    trains
}

/// A store whose value comes in fragments.
fn deferred(client: &Client, request: u32) -> Operation<'static> {
    let store = client.operation(Opcode::Put, KEYS[2], b"");
    let detail = Detail { value_bytes: 50_000, ..store.detail };
    Operation { request, flags: OpFlags::DEFERRED, detail, ..store }
}

#[test]
fn the_tables_seed_and_hashes_are_in_nothing_that_is_sent() {
    let (mut site, mut client) = Site::with_client(2);
    let trains = everything_sent(&mut site, &mut client);
    assert!(trains.len() > 12);
    let hashes = KEYS.map(|key| site.store.hash(key).0);
    for secret in hashes.into_iter().chain([HASH_SEED]) {
        let text = [format!("{secret}"), format!("{secret:x}")].map(String::into_bytes);
        let bytes = [secret.to_le_bytes().to_vec(), secret.to_be_bytes().to_vec()];
        for form in text.iter().chain(&bytes) {
            let shown = trains.iter().any(|train| train.bytes.windows(form.len()).any(|part| part == form));
            assert!(!shown, "{secret:#x} is sent");
        }
    }
}

#[test]
fn keys_of_one_bucket_under_the_welcomes_seed_lie_in_many() {
    let (site, client) = Site::with_client(1);
    let chosen: Vec<[u8; 8]> = (0..1 << 17)
        .map(u64::to_le_bytes)
        .filter(|key| client.hash(key).bucket_bits() & BUCKET_MASK == 0)
        .collect();
    assert!(chosen.len() > 100, "{}", chosen.len());
    let buckets: BTreeSet<u32> =
        chosen.iter().map(|key| site.store.hash(key).bucket_bits() & BUCKET_MASK).collect();
    assert!(buckets.len() * 10 > chosen.len() * 8, "{} of {}", buckets.len(), chosen.len());
}

#[test]
fn a_client_sends_any_direction_and_is_served() {
    let (mut site, mut client) = Site::with_client(1);
    let mut put = client.put(b"k", b"v");
    put.hash.0 ^= 1 << 40;
    assert_eq!(client.ask_one(&mut site, put).status, Status::Ok);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).value, b"v");
}

/// Inverts the middle of XXH3 for 8 bytes, up to the linear mixing of the input.
fn undone(hash: u64) -> u64 {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    let inverse =
        (0..6).fold(FACTOR, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(guess))));
    let hash = (hash ^ hash >> 28 ^ hash >> 56).wrapping_mul(inverse);
    (hash ^ ((hash >> 35) + 8)).wrapping_mul(inverse)
}

/// The number of a transfer, as XXH3 mixes it in.
fn mixed(number: u64) -> u64 {
    let input = number.rotate_right(32);
    input ^ input.rotate_left(49) ^ input.rotate_left(24)
}

/// Under XXH3 one name would reveal all others, because its hash of 8 bytes can be inverted.
#[test]
fn a_transfers_name_does_not_tell_the_next_one() {
    let seen = minos_base::hash_key(&1_u64.to_le_bytes(), 99).0;
    let next = minos_base::hash_key(&2_u64.to_le_bytes(), 99).0;
    assert_eq!(undone(seen) ^ undone(next), mixed(1) ^ mixed(2), "the attack works on XXH3");

    let (mut site, mut client) = Site::with_client(1);
    let names = [1, 2].map(|request| {
        let answer = client.ask_one(&mut site, deferred(&client, request));
        Grant::parse(&answer.value).expect("a grant").transfer >> 8
    });
    // The highest byte of the hash is not in the name.
    let candidates = |name: u64| (0..256).map(move |high: u64| undone(name | high << 56));
    let predicted: BTreeSet<u64> = candidates(names[0]).map(|state| state ^ mixed(1) ^ mixed(2)).collect();
    assert!(candidates(names[1]).all(|state| !predicted.contains(&state)));
}
