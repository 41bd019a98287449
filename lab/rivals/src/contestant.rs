//! Contestants: tables that run operations, with one worker for each thread.

use crate::workload::{Op, Routing, first_word, load_order, value};
use std::{hint::black_box, sync::Arc};

/// A table, or one way to use it, with a worker for each thread.
pub(crate) struct Contestant<const KEY: usize> {
    /// Its name in reports.
    pub(crate) name: String,
    /// The operations that it allows each thread.
    pub(crate) routing: Routing,
    /// True if it may lose items.
    pub(crate) is_lossy: bool,
    pub(crate) workers: Vec<Box<dyn Worker<KEY>>>,
}

/// The interface with which a thread runs operations.
pub(crate) trait Worker<const KEY: usize>: Send {
    /// Runs all operations in order, and returns what the reads found.
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally;
}

/// The results of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Reads.
    pub(crate) gets: u64,
    /// Reads that found a value.
    pub(crate) hits: u64,
    /// Sum of the first words of all values read.
    pub(crate) sum: u64,
}

impl Tally {
    /// The results of `ops` if no item is ever lost.
    pub(crate) fn expected<const KEY: usize>(ops: &[Op<KEY>]) -> Self {
        let mut tally = Self::default();
        for op in ops.iter().filter(|op| !op.is_put) {
            tally.found(&value::<KEY, 8>(&op.key));
        }
        tally
    }

    /// Counts a read that found `value`, which was copied to the caller's buffer.
    #[inline]
    pub(crate) fn found(&mut self, value: &[u8]) {
        self.found_word(first_word(black_box(value)));
    }

    /// As [`Tally::found`], given the first word.
    #[inline]
    pub(crate) fn found_word(&mut self, word: u64) {
        self.gets += 1;
        self.hits += 1;
        self.sum = self.sum.wrapping_add(word);
    }

    /// Counts a read that found nothing.
    #[inline]
    pub(crate) fn missed(&mut self) {
        self.gets += 1;
    }

    /// Adds the results of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A table that is shared by all threads and runs one operation after another.
pub(crate) trait Shared<const KEY: usize, const VALUE: usize>: Send + Sync + Sized + 'static {
    /// Its name in reports.
    const NAME: &'static str;
    /// True if it may lose items.
    const IS_LOSSY: bool = false;

    /// Creates a table for so many items.
    fn with_capacity(items: usize) -> Self;

    /// Stores an item, or replaces it.
    fn put(&self, key: [u8; KEY], value: [u8; VALUE]);

    /// Runs a short batch of operations; values are copied to `out`.
    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally);
}

/// Loads a shared table, and makes it a contestant for all threads.
pub(crate) fn shared<T: Shared<KEY, VALUE>, const KEY: usize, const VALUE: usize>(
    setup: &Setup,
) -> Contestant<KEY> {
    let table = Arc::new(T::with_capacity(setup.items as usize));
    for key in load_order(setup.items) {
        table.put(key, value(&key));
    }
    let worker = |_| SharedWorker { table: Arc::clone(&table), out: [0; VALUE], batch: setup.batch };
    Contestant {
        name: T::NAME.to_owned(),
        routing: Routing::Any,
        is_lossy: T::IS_LOSSY,
        workers: (0..setup.threads).map(|thread| Box::new(worker(thread)) as Box<dyn Worker<KEY>>).collect(),
    }
}

/// The parameters for loading contestants.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Items to load.
    pub(crate) items: u64,
    /// Threads that run at once.
    pub(crate) threads: usize,
    /// Operations of a batch.
    pub(crate) batch: usize,
    /// True if Minos hashes keys within the measured time.
    pub(crate) hashes_inline: bool,
    /// The source of the memory of Minos and of the limit's probe.
    pub(crate) backing: minos_engine::Backing,
}

struct SharedWorker<T, const VALUE: usize> {
    table: Arc<T>,
    out: [u8; VALUE],
    batch: usize,
}

impl<T: Shared<KEY, VALUE>, const KEY: usize, const VALUE: usize> Worker<KEY> for SharedWorker<T, VALUE> {
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally {
        let mut tally = Tally::default();
        for batch in ops.chunks(self.batch) {
            self.table.run(batch, &mut self.out, &mut tally);
        }
        tally
    }
}
