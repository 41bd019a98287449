//! The content of one client's own keys, which every reply must show.

use std::collections::BTreeMap;

use rand::{RngExt, rngs::StdRng};

use crate::value::{Piece, length_of};

/// Keys that have mostly small values, and those that have mostly large ones.
const SMALL_KEYS: usize = 8;
const LARGE_KEYS: usize = 4;
/// All keys of a client.
pub(crate) const KEYS: usize = SMALL_KEYS + LARGE_KEYS;
/// The longest value stored.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 20;
/// Shortest large value: longer than values that are copied into replies.
const LARGE_BYTES_MIN: usize = 64 << 10;

/// The sizes that a client draws for a while. The sizes of all clients determine the roles in the next plan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    Small,
    Mixed,
    Large,
}

impl Sizes {
    /// Most clients draw the sizes of the tide.
    pub(crate) fn draw(random: &mut StdRng, tide: Self) -> Self {
        if random.random_ratio(2, 3) {
            tide
        } else {
            [Self::Small, Self::Mixed, Self::Large][random.random_range(0..3)]
        }
    }

    /// Most requests of one burst: fewer for larger values, so that bursts differ less in bytes.
    pub(crate) fn requests_max(self) -> usize {
        match self {
            Self::Small => 60,
            Self::Mixed => 20,
            Self::Large => 6,
        }
    }
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The last write that changed it.
    pub(crate) version: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// The content of one client's keys. No other client writes them.
pub(crate) struct Items {
    client: u32,
    items: BTreeMap<usize, Item>,
    writes: u64,
    pub(crate) sizes: Sizes,
}

impl Items {
    pub(crate) fn new(client: u32) -> Self {
        Self { client, items: BTreeMap::new(), writes: 0, sizes: Sizes::Mixed }
    }

    /// A number for a write that no other write has.
    pub(crate) fn next_write(&mut self) -> u64 {
        self.writes += 1;
        (u64::from(self.client) + 1) * 1_000_000 + self.writes
    }

    pub(crate) fn key(&self, random: &mut StdRng) -> usize {
        match self.sizes {
            Sizes::Small => random.random_range(0..SMALL_KEYS),
            Sizes::Mixed => random.random_range(0..KEYS),
            Sizes::Large => random.random_range(SMALL_KEYS - 1..KEYS),
        }
    }

    /// A value to write, of the present sizes.
    pub(crate) fn piece(&mut self, random: &mut StdRng) -> Piece {
        let bytes = match (self.sizes, random.random_range(0..8)) {
            (Sizes::Large, 1..) | (Sizes::Mixed, 0) => large_bytes(random),
            (Sizes::Mixed, 1..4) => random.random_range(300..LARGE_BYTES_MIN),
            _ => random.random_range(1..300),
        };
        Piece { write: self.next_write(), bytes }
    }

    pub(crate) fn get(&self, key: usize) -> Option<&Item> {
        self.items.get(&key)
    }

    pub(crate) fn put(&mut self, key: usize, piece: Piece) {
        self.items.insert(key, Item { version: piece.write, pieces: vec![piece] });
    }

    /// Appends or prepends to a value.
    pub(crate) fn join(&mut self, key: usize, piece: Piece, append: bool) {
        let Some(item) = self.items.get_mut(&key) else { return };
        item.version = piece.write;
        item.pieces.insert(if append { item.pieces.len() } else { 0 }, piece);
    }

    pub(crate) fn delete(&mut self, key: usize) {
        self.items.remove(&key);
    }

    /// True if the value of `key` can grow by `bytes`.
    pub(crate) fn has_room(&self, key: usize, bytes: usize) -> bool {
        self.get(key).is_none_or(|item| length_of(&item.pieces) + bytes <= VALUE_BYTES_MAX)
    }
}

/// From [`LARGE_BYTES_MIN`] to [`VALUE_BYTES_MAX`], smaller ones more often.
fn large_bytes(random: &mut StdRng) -> usize {
    let most = [128 << 10, 256 << 10, 512 << 10, VALUE_BYTES_MAX][random.random_range(0..4)];
    random.random_range(LARGE_BYTES_MIN..=most)
}
