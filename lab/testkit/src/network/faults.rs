//! Faults of a link.

use std::ops::RangeInclusive;

use rand::{RngExt as _, rngs::StdRng};

/// Bits that are flipped in a spoiled datagram, at most.
const FLIPS_MAX: u32 = 4;

/// The faults of a link. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Share of datagrams that are lost.
    pub loss: f64,
    /// Share of datagrams that arrive twice.
    pub duplication: f64,
    /// Share of datagrams that are held back for up to `held_back_ns_max`, so that later ones overtake them.
    pub reordering: f64,
    /// Longest time for which a datagram is held back, in nanoseconds.
    pub held_back_ns_max: u64,
    /// Time from one end to the other, in nanoseconds: anything in this range. A wide range reorders, too.
    pub delay_ns: RangeInclusive<u64>,
    /// Share of datagrams in which a few bits are flipped.
    pub corruption: f64,
    /// Share of datagrams that lose their end.
    pub truncation: f64,
    /// Share of the spoiled datagrams that no checksum catches; the others are not delivered. With a checksum
    /// of 16 bits as UDP's, that is a few in a hundred thousand.
    pub unnoticed: f64,
    /// Largest datagram that the link carries, in bytes.
    pub datagram_bytes_max: usize,
}

impl Faults {
    /// A link without faults that takes 20 microseconds.
    pub fn none() -> Self {
        Self {
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            held_back_ns_max: 0,
            delay_ns: 20_000..=20_000,
            corruption: 0.0,
            truncation: 0.0,
            unnoticed: 0.0,
            datagram_bytes_max: 65_507,
        }
    }

    /// Flips bits in `bytes` or cuts off their end, or neither. Bytes of a caught datagram are not changed.
    pub(super) fn spoil(&self, bytes: &mut Vec<u8>, rng: &mut StdRng) -> Spoiled {
        let is_flipped = happens(self.corruption, rng) && !bytes.is_empty();
        let is_cut = happens(self.truncation, rng) && !bytes.is_empty();
        if !is_flipped && !is_cut {
            return Spoiled::No;
        }
        if !happens(self.unnoticed, rng) {
            return Spoiled::Caught;
        }
        if is_flipped {
            for _ in 0..rng.random_range(1..=FLIPS_MAX) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
        }
        if is_cut {
            bytes.truncate(rng.random_range(0..bytes.len()));
        }
        Spoiled::Unnoticed
    }
}

/// The fate of a datagram's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoiled {
    /// They were not changed.
    No,
    /// They were spoiled, and a checksum caught it.
    Caught,
    /// They were spoiled, and the datagram is delivered.
    Unnoticed,
}

/// Draws true with probability `share`.
pub(crate) fn happens(share: f64, rng: &mut StdRng) -> bool {
    share > 0.0 && rng.random_bool(share.min(1.0))
}
