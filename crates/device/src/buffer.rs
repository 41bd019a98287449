//! Pools of block-aligned buffers.
//!
//! A pool is one mapping, so that a ring registers it with the kernel once. A [`Buffer`] is a run of its blocks and
//! their only owner: requests carry it to the device and completions bring it back.

use std::{
    alloc::{Layout, handle_alloc_error},
    ops::{Deref, DerefMut, Range},
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use rustix::mm::{self, MapFlags, ProtFlags};

/// No run of free blocks is long enough for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no buffer of {bytes} bytes is free in a pool of {pool_bytes}")]
pub struct Exhausted {
    /// Bytes asked for.
    pub bytes: usize,
    /// Bytes of the pool.
    pub pool_bytes: usize,
}

/// Blocks of memory, and a bit for each that is free.
#[derive(Debug)]
pub(crate) struct Pool {
    memory: NonNull<u8>,
    bytes: usize,
    /// The mapping that it lies in.
    mapped: (NonNull<u8>, usize),
    block_bytes: usize,
    /// Set bits are free blocks. One thread takes, any thread gives back.
    free: Box<[AtomicU64]>,
}

// SAFETY: the memory is reached through buffers only, each of which owns its blocks alone; `free` is atomic.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// At least one block, at least `bytes` bytes, all zero.
    pub(crate) fn new(bytes: usize, block_bytes: u32) -> Arc<Self> {
        let block_bytes = block_bytes as usize;
        let blocks = bytes.div_ceil(block_bytes).max(1);
        let bytes = blocks * block_bytes;
        let mapped = map(bytes + block_bytes, block_bytes);
        let padding = mapped.0.align_offset(block_bytes);
        // SAFETY: the mapping has a block more than the pool.
        let memory = unsafe { mapped.0.add(padding) };
        let word = |at: usize| match blocks - 64 * at {
            1..64 => AtomicU64::new(u64::MAX >> (64 - (blocks - 64 * at))),
            _ => AtomicU64::new(u64::MAX),
        };
        let free = (0..blocks.div_ceil(64)).map(word).collect();
        Arc::new(Self { memory, bytes, mapped, block_bytes, free })
    }

    /// The whole memory.
    pub(crate) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.memory, self.bytes)
    }

    /// Takes a buffer of at least one byte. Its bytes are what the last owner left.
    ///
    /// One thread at a time may call this: two could take the same blocks. [`crate::Lane`] is that thread.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Buffer, Exhausted> {
        let blocks = bytes.div_ceil(self.block_bytes).max(1);
        let exhausted = Exhausted { bytes, pool_bytes: self.bytes };
        let first = self.find(blocks).ok_or(exhausted)?;
        self.for_each_word(first, blocks, |word, mask| {
            // Acquire: after the last owner's accesses.
            let before = word.fetch_and(!mask, AcqRel);
            debug_assert_eq!(before & mask, mask, "two threads take from one pool");
        });
        let len = bytes.next_multiple_of(self.block_bytes).max(self.block_bytes);
        Ok(Buffer { pool: Arc::clone(self), first, blocks, skip: 0, len })
    }

    /// The first of `blocks` free blocks in a row.
    fn find(&self, blocks: usize) -> Option<usize> {
        let (mut first, mut found) = (0, 0);
        for (at, word) in self.free.iter().enumerate() {
            let mut word = word.load(Acquire);
            let mut bits = 0;
            while bits < 64 {
                let ones = (word.trailing_ones() as usize).min(64 - bits);
                found += ones;
                if found >= blocks {
                    return Some(first);
                }
                bits += ones;
                if bits < 64 {
                    word = word.checked_shr(ones as u32).unwrap_or(0);
                    let zeros = (word.trailing_zeros() as usize).min(64 - bits);
                    word = word.checked_shr(zeros as u32).unwrap_or(0);
                    bits += zeros;
                    (first, found) = (64 * at + bits, 0);
                }
            }
        }
        None
    }

    /// Gives the blocks back.
    fn give_back(&self, first: usize, blocks: usize) {
        self.for_each_word(first, blocks, |word, mask| {
            // Release: before the next owner's accesses.
            word.fetch_or(mask, Release);
        });
    }

    fn for_each_word(&self, first: usize, blocks: usize, f: impl Fn(&AtomicU64, u64)) {
        let end = first + blocks;
        let mut block = first;
        while block < end {
            let until = end.min((block / 64 + 1) * 64);
            f(&self.free[block / 64], (u64::MAX >> (64 - (until - block))) << (block % 64));
            block = until;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; every buffer holds the pool, so that none is left.
        let unmapped = unsafe { mm::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// New memory of `bytes` bytes, all zero. The allocator would fill aligned memory with zeros, page after page.
fn map(bytes: usize, block_bytes: usize) -> (NonNull<u8>, usize) {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping, of at least one block.
    let memory = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) };
    let memory = memory.ok().and_then(|memory| NonNull::new(memory.cast()));
    let memory = memory.unwrap_or_else(|| {
        let layout = Layout::from_size_align(bytes, block_bytes);
        handle_alloc_error(layout.expect("a block is a power of two, and the size is bounded by LaneOptions"))
    });
    (memory, bytes)
}

/// A run of blocks of a lane's pool. Goes back to the pool when dropped, by any thread.
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    first: usize,
    blocks: usize,
    /// The bytes that are seen and transferred.
    skip: usize,
    len: usize,
}

impl Buffer {
    /// Shows these bytes of its blocks only; requests transfer only those. Until the next call, which may show others again.
    ///
    /// # Panics
    /// It has fewer bytes.
    pub fn show(&mut self, bytes: Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= self.blocks * self.pool.block_bytes, "{bytes:?}");
        (self.skip, self.len) = (bytes.start, bytes.len());
    }

    /// Shortens the buffer to `bytes` bytes, rounded up to whole blocks; requests transfer only those.
    pub fn truncate(&mut self, bytes: usize) {
        let block_bytes = self.pool.block_bytes;
        self.len = self.len.min(bytes.next_multiple_of(block_bytes).max(block_bytes));
    }

    /// Its address, which stays until it is dropped.
    pub(crate) fn address(&self) -> *mut u8 {
        // SAFETY: `first` is a block of the pool, and `skip` at most the size of the buffer's blocks.
        unsafe { self.pool.memory.as_ptr().add(self.first * self.pool.block_bytes + self.skip) }
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> std::sync::Weak<Pool> {
        Arc::downgrade(&self.pool)
    }

    /// True if it is of this pool.
    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the blocks are initialized and this buffer's own; `skip` and `len` are at most their size together.
        unsafe { std::slice::from_raw_parts(self.address(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(self.first, self.blocks);
    }
}

#[cfg(test)]
mod tests {
    use minos_base::seeded;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pool_is_bounded_and_takes_back() {
        let pool = Pool::new(130 * 512, 512);
        let mut buffers: Vec<_> = (0..130).map(|_| pool.take(512).unwrap()).collect();
        let exhausted = Exhausted { bytes: 512, pool_bytes: 130 * 512 };
        assert_eq!(pool.take(512).unwrap_err(), exhausted);
        // Two blocks that are neighbours across two words of the bitmap.
        buffers.drain(63..65);
        assert_eq!(pool.take(3 * 512).unwrap_err().bytes, 3 * 512);
        let buffer = pool.take(1000).unwrap();
        assert_eq!((buffer.len(), buffer.address() as usize % 512), (1024, 0));
        assert!(pool.take(1).is_err());
    }

    #[test]
    fn buffers_are_aligned_to_blocks_of_any_size() {
        for block_bytes in [512, 4096, 1 << 16] {
            let pool = Pool::new(3 * block_bytes, block_bytes as u32);
            let mut buffers: Vec<_> = (0..3).map(|_| pool.take(1).unwrap()).collect();
            for buffer in &mut buffers {
                assert_eq!((buffer.len(), buffer.address() as usize % block_bytes), (block_bytes, 0));
                assert!(buffer.iter().all(|&byte| byte == 0));
                buffer.fill(7);
            }
        }
    }

    #[test]
    fn a_truncated_buffer_gives_all_blocks_back() {
        let pool = Pool::new(4 * 4096, 4096);
        let mut buffer = pool.take(4 * 4096).unwrap();
        buffer.truncate(5000);
        assert_eq!(buffer.len(), 8192);
        buffer.truncate(0);
        assert_eq!(buffer.len(), 4096);
        drop(buffer);
        assert_eq!(pool.take(4 * 4096).unwrap().len(), 4 * 4096);
    }

    #[test]
    fn a_buffer_shows_a_part_and_all_of_it_again() {
        let pool = Pool::new(4 * 4096, 4096);
        let mut buffer = pool.take(8192).unwrap();
        buffer.fill(1);
        buffer.show(2560..5120);
        buffer.fill(2);
        buffer.show(0..8192);
        let twos = buffer.iter().enumerate().filter(|(_, byte)| **byte == 2);
        assert!(twos.map(|(at, _)| at).eq(2560..5120));
        drop(buffer);
        assert_eq!(pool.take(4 * 4096).unwrap().len(), 4 * 4096);
    }

    #[test]
    fn a_buffer_may_be_dropped_by_another_thread_and_outlives_its_pool() {
        let pool = Pool::new(4096, 4096);
        let mut buffer = pool.take(1).unwrap();
        drop(pool);
        std::thread::spawn(move || buffer.fill(7)).join().unwrap();
    }

    proptest! {
        #[test]
        fn buffers_never_overlap(seed: u64, blocks in 1usize..300) {
            let (pool, mut rng) = (Pool::new(blocks * 512, 512), seeded(seed));
            let mut held: Vec<(u8, Buffer)> = Vec::new();
            for round in 0..200u32 {
                if rng.random_bool(0.4) && !held.is_empty() {
                    let (mark, buffer) = held.swap_remove(rng.random_range(0..held.len()));
                    prop_assert!(buffer.iter().all(|&byte| byte == mark));
                } else if let Ok(mut buffer) = pool.take(rng.random_range(1..20 * 512)) {
                    buffer.fill(round as u8);
                    held.push((round as u8, buffer));
                }
                let held_blocks: usize = held.iter().map(|(_, buffer)| buffer.blocks).sum();
                let free: u32 = pool.free.iter().map(|word| word.load(Acquire).count_ones()).sum();
                prop_assert_eq!(held_blocks + free as usize, blocks);
            }
        }
    }
}
