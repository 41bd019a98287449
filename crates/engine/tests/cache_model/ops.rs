//! The operations on a cache.

use proptest::{collection::vec, prelude::*};

/// Keys of the operations on one key; those of [`Op::Fill`] lie above.
pub(crate) const KEYS: u16 = 40;
/// All keys lie below.
pub(crate) const KEYS_END: u16 = 4000;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Get { key: u16 },
    Set { key: u16, len: usize, ttl: u32 },
    SetReserved { key: u16, len: usize },
    Delete { key: u16 },
    Touch { key: u16, ttl: u32 },
    Overwrite { key: u16, at: usize, len: usize },
    Append { key: u16, len: usize },
    Pin { key: u16 },
    Unpin { at: usize },
    // Sets many keys in turn, so that the log wraps around.
    Fill { from: u16, count: u16, len: usize },
    Sweep { buckets: usize },
    Flush,
    Pass { seconds: u32 },
}

/// Random operations under which a cache of 1 MiB loses many items.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..KEYS;
    // Small, about the largest in the log, and in extents.
    let len =
        prop_oneof![6 => 0usize..300, 2 => 3900usize..4300, 1 => 5000usize..20_000, 1 => 20_000usize..90_000];
    let ttl = prop_oneof![3 => Just(0u32), 1 => 1u32..20];
    let op = prop_oneof![
        10 => key.clone().prop_map(|key| Op::Get { key }),
        10 => (key.clone(), len.clone(), ttl.clone()).prop_map(|(key, len, ttl)| Op::Set { key, len, ttl }),
        3 => (key.clone(), len).prop_map(|(key, len)| Op::SetReserved { key, len }),
        3 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key.clone(), ttl).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        2 => (key.clone(), 0usize..100, 0usize..30).prop_map(|(key, at, len)| Op::Overwrite { key, at, len }),
        2 => (key.clone(), 0usize..3000).prop_map(|(key, len)| Op::Append { key, len }),
        2 => key.prop_map(|key| Op::Pin { key }),
        2 => any::<usize>().prop_map(|at| Op::Unpin { at }),
        4 => fill(),
        2 => (1usize..80).prop_map(|buckets| Op::Sweep { buckets }),
        1 => (0u8..4).prop_map(|die| if die == 0 { Op::Flush } else { Op::Pass { seconds: 1 } }),
        2 => (1u32..5).prop_map(|seconds| Op::Pass { seconds }),
    ];
    vec(op, 1..160)
}

fn fill() -> impl Strategy<Value = Op> {
    (KEYS..KEYS_END, 1u16..2000, 0usize..400).prop_map(|(from, count, len)| Op::Fill { from, count, len })
}

/// Keys of different lengths, some a prefix of others.
pub(crate) fn key_bytes(key: u16) -> Vec<u8> {
    vec![b'k'; usize::from(key) * 5 % 300].into_iter().chain(key.to_be_bytes()).collect()
}

/// Bytes that no other `seed` has.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len).map(|at| (mixed >> (at % 8 * 8)) as u8 ^ at as u8).collect()
}
