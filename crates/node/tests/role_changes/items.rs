//! The content of one client's own keys, which every reply must show.

use std::collections::BTreeMap;

use rand::{RngExt, rngs::StdRng};

use crate::value::{Piece, length_of};

/// Keys that a client fills at once.
const FILLED_AT_ONCE: usize = 3;

/// The keys of a client, and the sizes of their values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Keys that have mostly small values, and those that have mostly large ones.
    pub(crate) small_keys: usize,
    pub(crate) large_keys: usize,
    /// The shortest large value: longer than values that are copied into replies.
    pub(crate) large_bytes_min: usize,
    /// The longest value stored.
    pub(crate) value_bytes_max: usize,
    /// True if each client begins with a store of each key.
    pub(crate) fills: bool,
}

impl Shape {
    pub(crate) const IN_MEMORY: Self = Self {
        small_keys: 8,
        large_keys: 4,
        large_bytes_min: 64 << 10,
        value_bytes_max: 1 << 20,
        fills: false,
    };
    /// Many more bytes than the memory above flash holds.
    pub(crate) const ON_FLASH: Self = Self {
        small_keys: 32,
        large_keys: 96,
        large_bytes_min: 16 << 10,
        value_bytes_max: 128 << 10,
        fills: true,
    };

    pub(crate) fn keys(self) -> usize {
        self.small_keys + self.large_keys
    }

    /// The keys that a client stores at first, some at a time.
    pub(crate) fn filled(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let keys = if self.fills { self.keys() } else { 0 };
        (0..keys).step_by(FILLED_AT_ONCE).map(move |first| first..keys.min(first + FILLED_AT_ONCE))
    }
}

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
    pub(crate) shape: Shape,
    items: BTreeMap<usize, Item>,
    writes: u64,
    pub(crate) sizes: Sizes,
}

impl Items {
    pub(crate) fn new(client: u32, shape: Shape) -> Self {
        Self { client, shape, items: BTreeMap::new(), writes: 0, sizes: Sizes::Mixed }
    }

    /// A number for a write that no other write has.
    pub(crate) fn next_write(&mut self) -> u64 {
        self.writes += 1;
        (u64::from(self.client) + 1) * 1_000_000 + self.writes
    }

    pub(crate) fn key(&self, random: &mut StdRng) -> usize {
        let (small_keys, keys) = (self.shape.small_keys, self.shape.keys());
        match self.sizes {
            Sizes::Small => random.random_range(0..small_keys),
            Sizes::Mixed => random.random_range(0..keys),
            Sizes::Large => random.random_range(small_keys - 1..keys),
        }
    }

    /// A value to write, of the present sizes.
    pub(crate) fn piece(&mut self, random: &mut StdRng) -> Piece {
        let bytes = match (self.sizes, random.random_range(0..8)) {
            (Sizes::Large, 1..) | (Sizes::Mixed, 0) => self.large_bytes(random),
            (Sizes::Mixed, 1..4) => random.random_range(300..self.shape.large_bytes_min),
            _ => random.random_range(1..300),
        };
        Piece { write: self.next_write(), bytes }
    }

    pub(crate) fn first_piece(&mut self, key: usize, random: &mut StdRng) -> Piece {
        self.sizes = if key < self.shape.small_keys { Sizes::Small } else { Sizes::Large };
        self.piece(random)
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
        self.get(key).is_none_or(|item| length_of(&item.pieces) + bytes <= self.shape.value_bytes_max)
    }

    /// A large size, smaller ones more often.
    fn large_bytes(&self, random: &mut StdRng) -> usize {
        let Shape { large_bytes_min, value_bytes_max, .. } = self.shape;
        let most = value_bytes_max >> random.random_range(0..4);
        random.random_range(large_bytes_min..=most)
    }
}
