//! Ways to run a batch of operations on the same table.

use super::{
    NOW,
    handle::{Handle, Writer},
};
use crate::{
    contestant::{Setup, Tally, Worker},
    workload::{Op, first_word, value},
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, limits::BURST_MAX};
use minos_engine::{Get, ItemMeta, ItemView, Put};
use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
};

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

/// Runs operations in one way. It shares the handle with the other ways, which run at other times.
pub(super) struct EngineWorker<H, const VALUE: usize> {
    handle: Arc<Mutex<H>>,
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

impl<H, const VALUE: usize> EngineWorker<H, VALUE> {
    pub(super) fn new(handle: Arc<Mutex<H>>, way: Way, setup: &Setup) -> Self {
        let buffers = Buffers {
            hashes: Vec::with_capacity(setup.batch),
            words: Vec::with_capacity(setup.batch),
            out: Vec::with_capacity(VALUE + 8),
        };
        Self { handle, way, batch: setup.batch, hashes_inline: setup.hashes_inline, buffers }
    }
}

impl<H: Handle, const KEY: usize, const VALUE: usize> Worker<KEY> for EngineWorker<H, VALUE> {
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let (buffers, mut tally) = (&mut self.buffers, Tally::default());
        let run = match self.way {
            Way::Many => many::<H, KEY, VALUE>,
            Way::Staged => staged::<H, KEY, VALUE>,
            Way::Plain => plain::<H, KEY, VALUE>,
        };
        for batch in ops.chunks(self.batch) {
            buffers.hashes.clear();
            if self.hashes_inline {
                let (engine, _) = handle.split();
                buffers.hashes.extend(batch.iter().map(|op| engine.hash(&op.key)));
            } else {
                buffers.hashes.extend(batch.iter().map(|op| op.hash));
            }
            run(&mut handle, batch, buffers, &mut tally);
        }
        tally
    }
}

fn many<H: Handle, const KEY: usize, const VALUE: usize>(
    handle: &mut H,
    batch: &[Op<KEY>],
    Buffers { hashes, words, out }: &mut Buffers,
    tally: &mut Tally,
) {
    let (engine, mut writer) = handle.split();
    let of = |is_put| batch.iter().zip(&*hashes).filter(move |(op, _)| op.is_put == is_put);
    let gets: Burst<Get<'_>> = of(false).map(|(op, &hash)| Get { hash, key: &op.key }).collect();
    words.clear();
    words.resize(gets.len(), None);
    engine.get_many(&gets, NOW, |at, item| words[at] = item.map(|item| copied::<VALUE>(item, out)));
    words.iter().for_each(|&word| count(word, tally));
    let values: Burst<[u8; VALUE]> = of(true).map(|(op, _)| value(&op.key)).collect();
    let puts = of(true).zip(&values);
    let puts: Burst<Put<'_>> = puts.map(|((op, &hash), value)| put(hash, &op.key, value)).collect();
    writer.put_many(&puts);
}

fn staged<H: Handle, const KEY: usize, const VALUE: usize>(
    handle: &mut H,
    batch: &[Op<KEY>],
    Buffers { hashes, out, .. }: &mut Buffers,
    tally: &mut Tally,
) {
    let (engine, mut writer) = handle.split();
    hashes.iter().for_each(|&hash| engine.prefetch_bucket(hash));
    let stages: Burst<_> = hashes.iter().map(|&hash| engine.stage(hash)).collect();
    for ((op, &hash), stage) in batch.iter().zip(&*hashes).zip(&stages) {
        if op.is_put {
            writer.put_staged(stage, &put(hash, &op.key, &value::<KEY, VALUE>(&op.key)));
        } else {
            let get = Get { hash, key: &op.key };
            count(engine.read_staged(stage, &get, NOW, |item| copied::<VALUE>(item, out)), tally);
        }
    }
}

fn plain<H: Handle, const KEY: usize, const VALUE: usize>(
    handle: &mut H,
    batch: &[Op<KEY>],
    Buffers { hashes, out, .. }: &mut Buffers,
    tally: &mut Tally,
) {
    let (engine, mut writer) = handle.split();
    for (op, &hash) in batch.iter().zip(&*hashes) {
        if op.is_put {
            store::<_, KEY, VALUE>(&mut writer, hash, &op.key);
        } else {
            count(engine.read(hash, &op.key, NOW, |item| copied::<VALUE>(item, out)), tally);
        }
    }
}

#[inline]
fn store<W: Writer, const KEY: usize, const VALUE: usize>(writer: &mut W, hash: KeyHash, key: &[u8; KEY]) {
    // If memory is short, the old value stays; it is the same.
    let _ = writer.entry(hash, key).insert(&[&value::<KEY, VALUE>(key)], ItemMeta::default());
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
