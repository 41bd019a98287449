//! Ways to run a batch of operations on the same table.

use super::NOW;
use crate::{
    contestant::{Setup, Tally, Worker},
    workload::{Op, first_word, value},
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, limits::BURST_MAX};
use minos_engine::{Access, Engine, Get, ItemMeta, ItemView, Mode, Put};
use std::{hint::black_box, sync::Arc};

/// One element for each operation of a batch.
type Burst<T> = ArrayVec<T, BURST_MAX>;

/// The way in which the operations of a batch are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `get_many` with all reads, then `put_many` with all writes.
    Many,
    /// In order; buckets and items are prefetched, as in the server.
    Staged,
    /// In order, one by one.
    Plain,
}

impl Way {
    /// Its name in reports.
    pub(super) fn text(self, batch: usize) -> String {
        match self {
            Self::Many => format!("get_many and put_many of {batch}"),
            Self::Staged => format!("in order, staged by {batch}"),
            Self::Plain => "one by one".to_owned(),
        }
    }
}

/// Runs operations in one way. It shares its partitions with the other ways, which run at other times and in other
/// threads.
pub(super) struct EngineWorker<M: Mode, A: Access, const VALUE: usize> {
    table: Arc<Engine<M, A>>,
    owner: usize,
    way: Way,
    batch: usize,
    hashes_inline: bool,
    buffers: Buffers,
}

struct Buffers {
    hashes: Vec<KeyHash>,
    /// First words of the values read, in order.
    words: Vec<Option<u64>>,
    out: Vec<u8>,
}

impl<M: Mode, A: Access, const VALUE: usize> EngineWorker<M, A, VALUE> {
    pub(super) fn boxed<const KEY: usize>(
        table: &Arc<Engine<M, A>>,
        owner: usize,
        way: Way,
        setup: &Setup,
    ) -> Box<dyn Worker<KEY>> {
        let buffers = Buffers {
            hashes: Vec::with_capacity(setup.batch),
            words: Vec::with_capacity(setup.batch),
            out: Vec::with_capacity(VALUE + 8),
        };
        let (table, batch, hashes_inline) = (Arc::clone(table), setup.batch, setup.hashes_inline);
        Box::new(Self { table, owner, way, batch, hashes_inline, buffers })
    }
}

impl<M: Mode, A: Access, const KEY: usize, const VALUE: usize> Worker<KEY> for EngineWorker<M, A, VALUE> {
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally {
        let table = &*self.table;
        // Few instructions beside those of all operations.
        table.take_up(self.owner);
        let (buffers, mut tally) = (&mut self.buffers, Tally::default());
        let run = match self.way {
            Way::Many => many::<M, A, KEY, VALUE>,
            Way::Staged => staged::<M, A, KEY, VALUE>,
            Way::Plain => plain::<M, A, KEY, VALUE>,
        };
        for batch in ops.chunks(self.batch) {
            buffers.hashes.clear();
            if self.hashes_inline {
                buffers.hashes.extend(batch.iter().map(|op| table.hash(&op.key)));
            } else {
                buffers.hashes.extend(batch.iter().map(|op| op.hash));
            }
            run(table, batch, buffers, &mut tally);
        }
        table.give_up(self.owner);
        tally
    }
}

fn many<M: Mode, A: Access, const KEY: usize, const VALUE: usize>(
    table: &Engine<M, A>,
    batch: &[Op<KEY>],
    Buffers { hashes, words, out }: &mut Buffers,
    tally: &mut Tally,
) {
    let of = |is_put| batch.iter().zip(&*hashes).filter(move |(op, _)| op.is_put == is_put);
    let gets: Burst<Get<'_>> = of(false).map(|(op, &hash)| Get { hash, key: &op.key }).collect();
    words.clear();
    words.resize(gets.len(), None);
    table.get_many(&gets, NOW, |at, item| words[at] = item.map(|item| copied::<VALUE>(item, out)));
    words.iter().for_each(|&word| count(word, tally));
    let values: Burst<[u8; VALUE]> = of(true).map(|(op, _)| value(&op.key)).collect();
    let puts = of(true).zip(&values);
    let puts: Burst<Put<'_>> = puts.map(|((op, &hash), value)| put(hash, &op.key, value)).collect();
    table.put_many(&puts, NOW, |_, _| ());
}

fn staged<M: Mode, A: Access, const KEY: usize, const VALUE: usize>(
    table: &Engine<M, A>,
    batch: &[Op<KEY>],
    Buffers { hashes, out, .. }: &mut Buffers,
    tally: &mut Tally,
) {
    hashes.iter().for_each(|&hash| table.prefetch_bucket(hash));
    let stages: Burst<_> = hashes.iter().map(|&hash| table.stage(hash)).collect();
    for ((op, &hash), stage) in batch.iter().zip(&*hashes).zip(&stages) {
        if op.is_put {
            // If memory is short, the old value stays; it is the same.
            let _ = table.put_staged(stage, &put(hash, &op.key, &value::<KEY, VALUE>(&op.key)), NOW);
        } else {
            let get = Get { hash, key: &op.key };
            count(table.read_staged(stage, &get, NOW, |item| copied::<VALUE>(item, out)), tally);
        }
    }
}

fn plain<M: Mode, A: Access, const KEY: usize, const VALUE: usize>(
    table: &Engine<M, A>,
    batch: &[Op<KEY>],
    Buffers { hashes, out, .. }: &mut Buffers,
    tally: &mut Tally,
) {
    for (op, &hash) in batch.iter().zip(&*hashes) {
        if op.is_put {
            store::<M, A, KEY, VALUE>(table, hash, &op.key);
        } else {
            count(table.read(hash, &op.key, NOW, |item| copied::<VALUE>(item, out)), tally);
        }
    }
}

#[inline]
fn store<M: Mode, A: Access, const KEY: usize, const VALUE: usize>(
    table: &Engine<M, A>,
    hash: KeyHash,
    key: &[u8; KEY],
) {
    // As above.
    let _ = table.entry(hash, key, NOW).insert(&[&value::<KEY, VALUE>(key)], ItemMeta::default());
}

fn put<'a>(hash: KeyHash, key: &'a [u8], value: &'a [u8]) -> Put<'a> {
    Put { hash, key, value, meta: ItemMeta::default() }
}

/// Copies a value to the caller's buffer; returns its first word.
#[inline]
fn copied<const VALUE: usize>(item: &ItemView<'_>, out: &mut Vec<u8>) -> u64 {
    if VALUE == 8 {
        return item.value_u64().unwrap_or(0);
    }
    out.clear();
    item.copy_value_to(out);
    first_word(black_box(out))
}

#[inline]
fn count(word: Option<u64>, tally: &mut Tally) {
    match word {
        Some(word) => tally.found_word(word),
        None => tally.missed(),
    }
}
