//! Seeded randomness: every run that names a seed can be repeated.

use rand::{SeedableRng, rngs::StdRng};

/// A generator that depends on `seed` alone.
pub fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// The `stream`th of many independent generators of one `seed`, for threads that run side by side.
pub fn seeded_stream(seed: u64, stream: u64) -> StdRng {
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&stream.to_le_bytes());
    bytes[16] = 1;
    StdRng::from_seed(bytes)
}
