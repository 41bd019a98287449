//! Checksums of the chunks: computed when a region is closed, checked when it is opened, stale in between.
//!
//! There is one for each block of 64 KiB, so that several threads can read a large region. A block in the
//! middle of a free chunk has none: it is not read before it is written again.

use crate::{
    heap::{USED, tags},
    offset::Offset,
    region::Region,
};
use minos_sync::words::WORD_BYTES;
use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};
use xxhash_rust::xxh3::Xxh3Default;

pub(crate) const BLOCK_BYTES: u64 = 64 << 10;
const BLOCK_WORDS: u64 = BLOCK_BYTES / WORD_BYTES as u64;

/// Threads that read the memory at most, and blocks that are worth one.
const THREADS_MAX: u64 = 8;
const BLOCKS_PER_THREAD_MIN: u64 = 64;

/// Words that are copied at a time.
const COPIED_WORDS: usize = 512;

/// Words at the beginning of a free chunk that its heap reads: tag and links.
const FREE_HEAD_WORDS: u64 = 3;

/// In place of the checksum of a block that has none.
const NONE: u64 = 0;

/// Where the checksums of a region lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    start: Offset,
    region_words: u64,
}

impl Sums {
    pub(crate) fn new(start: Offset, region_words: u64) -> Self {
        Self { start, region_words }
    }

    pub(crate) fn len_words(self) -> u64 {
        self.region_words.div_ceil(BLOCK_WORDS)
    }

    /// Computes all checksums of chunks, which lie in these zones one after the other. No other thread may use the region.
    ///
    /// # Errors
    /// If the tags of the heaps are broken.
    pub(crate) fn put(self, region: &Region, zones: [Range<Offset>; 2]) -> Result<(), String> {
        let all = region.words(self.start, self.len_words() as usize);
        all.iter().for_each(|sum| sum.store(!NONE, Relaxed));
        let chunks = zones[0].start..zones[1].end;
        for zone in zones {
            if !zone.is_empty() {
                self.leave_out_free(region, zone)?;
            }
        }
        in_parallel(self.len_words(), |blocks| {
            for (block, sum) in self.present(region, blocks) {
                sum.store(checksum(region, &chunks, block), Relaxed);
            }
            Vec::new()
        });
        Ok(())
    }

    /// The blocks that have changed since [`Sums::put`], in order.
    pub(crate) fn wrong(self, region: &Region, chunks: &Range<Offset>) -> Vec<u64> {
        in_parallel(self.len_words(), |blocks| {
            let present = self.present(region, blocks);
            let wrong = present.filter(|(block, sum)| sum.load(Relaxed) != checksum(region, chunks, *block));
            wrong.map(|(block, _)| block).collect()
        })
    }

    /// The blocks that have a checksum, and where it is.
    fn present(self, region: &Region, blocks: Range<u64>) -> impl Iterator<Item = (u64, &AtomicU64)> {
        let sums = blocks.map(move |block| (block, region.word(self.start.plus(block))));
        sums.filter(|(_, sum)| sum.load(Relaxed) != NONE)
    }

    /// Leaves out the blocks that lie within a free chunk and hold none of its heap's words.
    fn leave_out_free(self, region: &Region, zone: Range<Offset>) -> Result<(), String> {
        for step in tags(region, zone) {
            let (chunk, tag, words) = step?;
            if tag & USED == 0 {
                let first = (chunk.words() + FREE_HEAD_WORDS).div_ceil(BLOCK_WORDS);
                // The last word is the size.
                let end = (chunk.words() + words - 1) / BLOCK_WORDS;
                (first..end).for_each(|block| region.word(self.start.plus(block)).store(NONE, Relaxed));
            }
        }
        Ok(())
    }
}

/// The results of `work` for parts of the blocks, in order; several threads read a large region.
fn in_parallel(blocks: u64, work: impl Fn(Range<u64>) -> Vec<u64> + Sync) -> Vec<u64> {
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let threads = processors.min(THREADS_MAX).min(blocks / BLOCKS_PER_THREAD_MIN).max(1);
    let part = |number| blocks * number / threads..blocks * (number + 1) / threads;
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || work(part(number)))).collect();
        let mut found = work(part(0));
        for other in others {
            match other.join() {
                Ok(more) => found.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    })
}

/// The checksum of a block, as far as it holds chunks.
fn checksum(region: &Region, chunks: &Range<Offset>, block: u64) -> u64 {
    let start = (block * BLOCK_WORDS).max(chunks.start.words());
    let end = ((block + 1) * BLOCK_WORDS).min(chunks.end.words());
    let words = region.words(Offset::from_words(start), end.saturating_sub(start) as usize);
    let mut sum = Xxh3Default::new();
    for words in words.chunks(COPIED_WORDS) {
        let mut bytes = [0; COPIED_WORDS * WORD_BYTES];
        for (word, bytes) in words.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        sum.update(&bytes[..size_of_val(words)]);
    }
    sum.digest().max(NONE + 1)
}
