//! What several of the tests need.

use minos_engine::{Access, Engine, Mode};

/// Keys of different lengths, some a prefix of others.
pub(crate) fn key_bytes(key: u16) -> Vec<u8> {
    vec![b'k'; usize::from(key) * 5 % 400].into_iter().chain(key.to_be_bytes()).collect()
}

/// Bytes that no other `seed` has.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 8 * 8)) as u8 ^ at as u8).collect()
}

/// The value of a key.
pub(crate) fn value<M: Mode, A: Access>(engine: &Engine<M, A>, key: &[u8], now: u32) -> Option<Vec<u8>> {
    engine.read(engine.hash(key), key, now, |item| {
        let mut value = Vec::new();
        item.copy_value_to(&mut value);
        value
    })
}

/// Sweeps all partitions twice: the first pass may have begun before a flush.
pub(crate) fn sweep_all<M: Mode, A: Access>(engine: &Engine<M, A>, now: u32) {
    for partition in 0..engine.partitions() {
        for _ in 0..2 {
            while !engine.sweep(partition, 100, now).pass_ended {}
        }
    }
}
