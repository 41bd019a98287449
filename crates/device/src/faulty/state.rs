//! The state of a faulty twin: its medium, and the blocks that are not durable yet.

use std::{collections::BTreeMap, mem};

use minos_base::seeded;
use rand::{RngExt as _, rngs::StdRng, seq::SliceRandom as _};
use rustix::io::Errno;

use super::{FaultCounts, Faults};
use crate::{Device, Geometry, backend::Work};

/// The result of a job, as its lane reports it.
type Outcome = Result<usize, Errno>;

/// The state that all lanes of a twin share.
#[derive(Debug)]
pub(crate) struct State {
    inner: Device,
    rng: StdRng,
    pub(super) faults: Faults,
    pub(super) counts: FaultCounts,
    pub(super) blocks_stored: u64,
    /// Of each block written since the last flush, by its number: its durable bytes, and those of each write since.
    /// The last are on the medium.
    volatile: BTreeMap<u64, Vec<Box<[u8]>>>,
    is_on: bool,
    /// Counts the times that the power was turned on.
    epoch: u64,
    blocks_left: Option<u64>,
}

impl State {
    pub(super) fn new(inner: Device, faults: Faults, seed: u64) -> Self {
        Self {
            inner,
            rng: seeded(seed),
            faults,
            counts: FaultCounts::default(),
            blocks_stored: 0,
            volatile: BTreeMap::new(),
            is_on: true,
            epoch: 0,
            blocks_left: None,
        }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn turn_on(&mut self) {
        if !mem::replace(&mut self.is_on, true) {
            self.epoch += 1;
        }
    }

    pub(super) fn cut_after(&mut self, blocks: u64) {
        self.blocks_left = Some(blocks);
    }

    pub(super) fn cut_power(&mut self) {
        for (block, mut states) in mem::take(&mut self.volatile) {
            let kept = self.rng.random_range(0..states.len());
            if kept + 1 < states.len() {
                self.counts.blocks_taken_back += 1;
                self.write_medium(block, &states.swap_remove(kept));
            }
        }
        self.is_on = false;
        self.blocks_left = None;
        self.counts.power_losses += 1;
    }

    pub(super) fn peek(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let block_bytes = u64::from(self.geometry().block_bytes);
        let (first, end) = (offset / block_bytes, (offset + bytes as u64).div_ceil(block_bytes));
        let mut found = vec![0; ((end - first) * block_bytes) as usize];
        self.inner
            .read_now(first * block_bytes, &mut found)
            .expect("the medium of a faulty twin has no faults");
        let skipped = (offset - first * block_bytes) as usize;
        found[skipped..skipped + bytes].to_vec()
    }

    pub(super) fn poke(&mut self, offset: u64, bytes: &[u8]) {
        let block_bytes = u64::from(self.geometry().block_bytes);
        for (at, byte) in (offset..).zip(bytes) {
            let (block, within) = (at / block_bytes, (at % block_bytes) as usize);
            let mut now = self.block(block);
            now[within] = *byte;
            self.write_medium(block, &now);
            let states = self.volatile.get_mut(&block).into_iter().flatten();
            states.for_each(|state| state[within] = *byte);
        }
    }

    /// A number of polls for a new request to wait.
    pub(super) fn delay(&mut self) -> u32 {
        if !self.happens(self.faults.slow) {
            return 0;
        }
        self.counts.slow += 1;
        self.rng.random_range(1..=self.faults.slow_polls_max.max(1))
    }

    /// Moves some of the due jobs, in any order, behind all others; returns how many.
    pub(super) fn choose<T>(&mut self, due: &mut Vec<T>) -> Vec<T> {
        due.shuffle(&mut self.rng);
        let count = self.rng.random_range(0..=due.len());
        due.drain(..count).collect()
    }

    /// Executes a job for a lane of `epoch`.
    pub(super) fn execute(&mut self, epoch: u64, work: &mut Work) -> Outcome {
        if !self.is_on || epoch != self.epoch {
            return Err(Errno::NODEV);
        }
        match work {
            Work::Read(offset, buffer) => self.read(*offset, buffer),
            Work::Write(offset, buffer) => self.write(*offset, buffer),
            Work::Flush => self.flush(),
        }
    }

    fn read(&mut self, mut offset: u64, buffer: &mut [u8]) -> Outcome {
        if self.happens(self.faults.eio) {
            self.counts.eio += 1;
            return Err(Errno::IO);
        }
        if self.happens(self.faults.misread) {
            self.counts.misread += 1;
            offset = self.elsewhere(offset, buffer.len());
        }
        if self.happens(self.faults.rot) {
            self.counts.rot += 1;
            let at = offset + self.rng.random_range(0..buffer.len() as u64);
            let bit = 1 << self.rng.random_range(0..8);
            let byte = self.peek(at, 1)[0];
            self.poke(at, &[byte ^ bit]);
        }
        let bytes = self.transferred(buffer.len());
        buffer[..bytes].copy_from_slice(&self.peek(offset, bytes));
        Ok(bytes)
    }

    fn write(&mut self, mut offset: u64, buffer: &[u8]) -> Outcome {
        let blocks = buffer.len() / self.geometry().block_bytes as usize;
        if self.happens(self.faults.lost) {
            self.counts.lost += 1;
            return Ok(buffer.len());
        }
        if self.happens(self.faults.torn) {
            self.counts.torn += 1;
            self.tear(offset, buffer)?;
            return Ok(buffer.len());
        }
        if self.happens(self.faults.eio) {
            self.counts.eio += 1;
            let stored: Vec<_> = (0..blocks).filter(|_| self.rng.random_bool(0.5)).collect();
            self.store(offset, buffer, stored)?;
            return Err(Errno::IO);
        }
        if self.happens(self.faults.misdirected) {
            self.counts.misdirected += 1;
            offset = self.elsewhere(offset, buffer.len());
        }
        let bytes = self.transferred(buffer.len());
        let mut stored: Vec<_> = (0..blocks * bytes / buffer.len()).collect();
        stored.shuffle(&mut self.rng);
        self.store(offset, buffer, stored)?;
        Ok(bytes)
    }

    fn flush(&mut self) -> Outcome {
        if self.happens(self.faults.flush_eio) {
            self.counts.flush_eio += 1;
            return Err(Errno::IO);
        }
        if self.happens(self.faults.flush_ignored) {
            self.counts.flush_ignored += 1;
        } else {
            self.volatile.clear();
        }
        Ok(0)
    }

    /// Stores some blocks of `buffer`, but not all; of a single block, its front.
    fn tear(&mut self, offset: u64, buffer: &[u8]) -> Result<(), Errno> {
        let block_bytes = self.geometry().block_bytes as usize;
        let blocks = buffer.len() / block_bytes;
        if blocks == 1 {
            let mut block = self.peek(offset, block_bytes);
            let front = self.rng.random_range(1..block_bytes / 512 + 1) * 512 - 256;
            block[..front].copy_from_slice(&buffer[..front]);
            return self.store(offset, &block, vec![0]);
        }
        let missing = self.rng.random_range(0..blocks);
        let stored = (0..blocks).filter(|&block| block != missing && self.rng.random_bool(0.5)).collect();
        self.store(offset, buffer, stored)
    }

    /// Stores these blocks of `buffer` in this order. The power may fail meanwhile.
    fn store(&mut self, offset: u64, buffer: &[u8], blocks: Vec<usize>) -> Result<(), Errno> {
        let block_bytes = self.geometry().block_bytes as usize;
        for at in blocks {
            let number = offset / block_bytes as u64 + at as u64;
            if let Some(left) = &mut self.blocks_left {
                if *left == 0 {
                    self.cut_power();
                    return Err(Errno::NODEV);
                }
                *left -= 1;
            }
            let bytes = &buffer[at * block_bytes..(at + 1) * block_bytes];
            let durable = self.block(number);
            self.volatile.entry(number).or_insert_with(|| vec![durable]).push(bytes.into());
            self.write_medium(number, bytes);
            self.blocks_stored += 1;
        }
        Ok(())
    }

    /// Another place for as many bytes.
    fn elsewhere(&mut self, offset: u64, bytes: usize) -> u64 {
        let block_bytes = u64::from(self.geometry().block_bytes);
        let places = (self.geometry().capacity_bytes - bytes as u64) / block_bytes + 1;
        let by = if places > 1 { self.rng.random_range(1..places) } else { 0 };
        (offset / block_bytes + by) % places * block_bytes
    }

    /// All of `bytes`, or fewer if the transfer is short.
    fn transferred(&mut self, bytes: usize) -> usize {
        if !self.happens(self.faults.short) {
            return bytes;
        }
        self.counts.short += 1;
        self.rng.random_range(0..bytes)
    }

    fn happens(&mut self, share: f64) -> bool {
        // A fault that is off draws nothing, so that others stay where they are.
        share > 0.0 && self.rng.random_bool(share)
    }

    fn block(&self, number: u64) -> Box<[u8]> {
        let block_bytes = self.geometry().block_bytes as usize;
        self.peek(number * block_bytes as u64, block_bytes).into()
    }

    fn write_medium(&self, block: u64, bytes: &[u8]) {
        let offset = block * u64::from(self.geometry().block_bytes);
        self.inner.write_now(offset, bytes).expect("the medium of a faulty twin has no faults");
    }
}
