//! The machine's limit: random cache lines in groups, without a table.
//!
//! A lookup needs a bucket and an item, and the bucket gives the place of the item. So no table of this kind
//! can be faster than two dependent lines a lookup, read in prefetched groups. The lines are chosen by the
//! hashes of the keys, so that a skewed workload is skewed here too.

use crate::{
    contestant::{Contestant, Setup, Tally, Worker},
    workload::{Op, Routing},
};
use minos_base::KeyHash;
use minos_engine::Backing;
use minos_region::{Offset, Region};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// Words of a cache line.
const LINE_WORDS: u64 = 8;

/// Lines prefetched together.
const GROUP: usize = 32;

/// Memory of an item in a store beside key and value, in bytes (header, heap, index): it makes the probe's
/// region as large as a store.
const ITEM_OVERHEAD_BYTES: u64 = 56;

/// The share of the region that stands for the index: one line in this many.
const INDEX_SHARE: u64 = 4;

/// The lines that a lookup touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    One,
    TwoIndependent,
    TwoDependent,
}

/// The name of the probe that everything else is compared with.
pub(crate) const LIMIT_NAME: &str = "limit: two dependent lines, 2 MiB pages";

/// Probes with huge pages and with pages of 4 KiB.
pub(crate) fn contestants<const KEY: usize, const VALUE: usize>(
    setup: &Setup,
) -> anyhow::Result<Vec<Contestant<KEY>>> {
    let bytes = setup.items * ((KEY + VALUE) as u64 + ITEM_OVERHEAD_BYTES);
    let mut contestants = Vec::new();
    for (pages, backing) in [("2 MiB", &setup.backing), ("4 KiB", &Backing::Memfd)] {
        let field = Arc::new(Field::new(bytes.max(Region::BYTES_MIN), backing)?);
        eprintln!("limit: {}, {bytes} bytes", field.region.backing_text());
        for (text, lines) in [
            ("one line", Lines::One),
            ("two independent lines", Lines::TwoIndependent),
            ("two dependent lines", Lines::TwoDependent),
        ] {
            let worker = |_| Box::new(Probe { field: Arc::clone(&field), lines }) as Box<dyn Worker<KEY>>;
            contestants.push(Contestant {
                name: format!("limit: {text}, {pages} pages"),
                routing: Routing::Any,
                is_lossy: true,
                workers: (0..setup.threads).map(worker).collect(),
            });
        }
    }
    Ok(contestants)
}

/// Lines of two parts. Each word of a line in the first part points to a line of the second, so that a line
/// leads to eight.
struct Field {
    region: Region,
    lines: u64,
    index_lines: u64,
}

impl Field {
    fn new(bytes: u64, backing: &Backing) -> anyhow::Result<Self> {
        let region = Region::map(bytes, backing)?;
        let lines = region.len_words() / LINE_WORDS;
        let field = Self { region, lines, index_lines: lines / INDEX_SHARE };
        for word in 0..lines * LINE_WORDS {
            let line = field.second(KeyHash(word.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            field.region.word(Offset::from_words(word)).store(line.words(), Relaxed);
        }
        Ok(field)
    }

    /// Any line.
    #[inline]
    fn any(&self, hash: KeyHash) -> Offset {
        Offset::from_words(scaled(hash.0, self.lines) * LINE_WORDS)
    }

    /// A line of the first part.
    #[inline]
    fn first(&self, hash: KeyHash) -> Offset {
        Offset::from_words(scaled(hash.0, self.index_lines) * LINE_WORDS)
    }

    /// A line of the second part, which is chosen by other bits than that of the first.
    #[inline]
    fn second(&self, hash: KeyHash) -> Offset {
        let line = self.index_lines + scaled(hash.0.rotate_left(32), self.lines - self.index_lines);
        Offset::from_words(line * LINE_WORDS)
    }

    #[inline]
    fn read(&self, line: Offset) -> u64 {
        self.region.word(line).load(Relaxed)
    }
}

/// A number below `count`, in proportion to `hash`.
#[inline]
fn scaled(hash: u64, count: u64) -> u64 {
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}

struct Probe {
    field: Arc<Field>,
    lines: Lines,
}

impl<const KEY: usize> Worker<KEY> for Probe {
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally {
        let sum: fn(&Field, &[Op<KEY>]) -> u64 = match self.lines {
            Lines::One => one,
            Lines::TwoIndependent => two_independent,
            Lines::TwoDependent => two_dependent,
        };
        let sum = ops.chunks(GROUP).fold(0, |total: u64, group| total.wrapping_add(sum(&self.field, group)));
        Tally { gets: ops.len() as u64, hits: ops.len() as u64, sum }
    }
}

#[inline]
fn one<const KEY: usize>(field: &Field, group: &[Op<KEY>]) -> u64 {
    group.iter().for_each(|op| field.region.prefetch(field.any(op.hash)));
    group.iter().fold(0, |sum: u64, op| sum.wrapping_add(field.read(field.any(op.hash))))
}

#[inline]
fn two_independent<const KEY: usize>(field: &Field, group: &[Op<KEY>]) -> u64 {
    for op in group {
        field.region.prefetch(field.first(op.hash));
        field.region.prefetch(field.second(op.hash));
    }
    let both = |op: &Op<KEY>| field.read(field.first(op.hash)) ^ field.read(field.second(op.hash));
    group.iter().fold(0, |sum: u64, op| sum.wrapping_add(both(op)))
}

#[inline]
fn two_dependent<const KEY: usize>(field: &Field, group: &[Op<KEY>]) -> u64 {
    group.iter().for_each(|op| field.region.prefetch(field.first(op.hash)));
    let mut seconds = [Offset::from_words(0); GROUP];
    for (second, op) in seconds.iter_mut().zip(group) {
        // As in a bucket, the hash selects the word of the line.
        let word = field.first(op.hash).plus(op.hash.0 % LINE_WORDS);
        *second = Offset::from_words(field.read(word));
        field.region.prefetch(*second);
    }
    seconds[..group.len()].iter().fold(0, |sum: u64, &second| sum.wrapping_add(field.read(second)))
}
