//! What is compared: something that runs operations, one worker a thread.

use crate::workload::{Op, Routing, first_word, load_order, value};
use std::{hint::black_box, sync::Arc};

/// One table, or one way to use it, with a worker for each thread.
pub(crate) struct Contestant<const KEY: usize> {
    /// How it is called in reports.
    pub(crate) name: String,
    /// Which thread it lets do what.
    pub(crate) routing: Routing,
    /// Whether it may lose items.
    pub(crate) is_lossy: bool,
    /// One for each thread.
    pub(crate) workers: Vec<Box<dyn Worker<KEY>>>,
}

/// What one thread runs operations with.
pub(crate) trait Worker<const KEY: usize>: Send {
    /// Runs all operations in their order, and tells what was read.
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally;
}

/// What reads have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Reads.
    pub(crate) gets: u64,
    /// Reads that found something.
    pub(crate) hits: u64,
    /// Sum of the first words of all values read.
    pub(crate) sum: u64,
}

impl Tally {
    /// What `ops` find if nothing is ever lost.
    pub(crate) fn expected<const KEY: usize>(ops: &[Op<KEY>]) -> Self {
        let mut tally = Self::default();
        for op in ops.iter().filter(|op| !op.is_put) {
            tally.found(&value::<KEY, 8>(&op.key));
        }
        tally
    }

    /// A read that found a value, which was copied to where the caller wants it.
    #[inline]
    pub(crate) fn found(&mut self, value: &[u8]) {
        self.found_word(first_word(black_box(value)));
    }

    /// As [`Tally::found`], for whoever knows the first word already.
    #[inline]
    pub(crate) fn found_word(&mut self, word: u64) {
        self.gets += 1;
        self.hits += 1;
        self.sum = self.sum.wrapping_add(word);
    }

    /// A read that found nothing.
    #[inline]
    pub(crate) fn missed(&mut self) {
        self.gets += 1;
    }

    /// Adds what another thread has read.
    pub(crate) fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A table that is shared by all threads and runs one operation after another.
pub(crate) trait Shared<const KEY: usize, const VALUE: usize>: Send + Sync + Sized + 'static {
    /// How it is called in reports.
    const NAME: &'static str;
    /// Whether it may lose items.
    const IS_LOSSY: bool = false;

    /// A table for so many items.
    fn with_capacity(items: usize) -> Self;

    /// Stores an item, or replaces it.
    fn put(&self, key: [u8; KEY], value: [u8; VALUE]);

    /// Runs a short batch of operations; `out` is where values are copied to.
    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally);
}

/// Loads a shared table, and has all threads use it.
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

/// What contestants are told before they are loaded.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Items to be loaded.
    pub(crate) items: u64,
    /// Threads that will run at once.
    pub(crate) threads: usize,
    /// Operations that are known at once.
    pub(crate) batch: usize,
    /// Whether Minos hashes keys within the time that is measured.
    pub(crate) hashes_inline: bool,
    /// Where the memory of Minos and of the limit's probe comes from.
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
