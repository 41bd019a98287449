//! A disk in memory that loses power, fails, and rots.

use crate::{
    format::Superblock,
    log::{Log, Options},
    recovery::{Found, Newest, Recovery, Step, Winners},
    work::{DeviceFailed, Outcome, Work, WorkId},
};
use rand::{RngExt, rngs::StdRng, seq::SliceRandom};

const SECTOR_BYTES: usize = 512;
const BAD_PAGES_MAX: usize = 3;

/// Faults of a disk, each in 1000.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) failed_writes: u32,
    /// Reads that return another place's bytes, or in which a bit is flipped.
    pub(super) wrong_reads: u32,
    pub(super) failed_reads: u32,
    pub(super) failed_flushes: u32,
}

/// An outcome that owns its bytes.
pub(super) type Answer = Result<Vec<u8>, DeviceFailed>;

pub(super) fn lent(answer: &Answer) -> Outcome<'_> {
    answer.as_deref().map_err(|&failed| failed)
}

/// A write that a power loss may undo.
#[derive(Debug)]
struct Write {
    number: u64,
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Disk {
    /// Survives a power loss.
    durable: Vec<u8>,
    /// Seen by reads.
    current: Vec<u8>,
    unflushed: Vec<Write>,
    queue: Vec<(WorkId, Work, u64)>,
    writes: u64,
    /// Pages that cannot be read any more.
    bad_pages: Vec<usize>,
    pub(super) faults: Faults,
    /// Writes from this byte on fail.
    pub(super) full_from: Option<usize>,
    pub(super) random: StdRng,
}

impl Disk {
    pub(super) fn new(bytes: u64, random: StdRng) -> Self {
        let empty = vec![0xa5; bytes as usize];
        Self {
            durable: empty.clone(),
            current: empty,
            unflushed: Vec::new(),
            queue: Vec::new(),
            writes: 0,
            bad_pages: Vec::new(),
            faults: Faults::default(),
            full_from: None,
            random,
        }
    }

    /// A disk with these bytes.
    pub(super) fn holding(bytes: Vec<u8>, seed: u64) -> Self {
        Self { durable: bytes.clone(), current: bytes, ..Self::new(0, minos_base::seeded(seed)) }
    }

    pub(super) fn submit(&mut self, jobs: &mut Vec<(WorkId, Work)>) {
        for (id, work) in jobs.drain(..) {
            self.queue.push((id, work, self.writes));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Completes a piece of work, any of those in the queue.
    pub(super) fn complete_one(&mut self) -> Option<(WorkId, Answer)> {
        if self.queue.is_empty() {
            return None;
        }
        let (id, work, writes) = self.queue.swap_remove(self.random.random_range(0..self.queue.len()));
        let outcome = match work {
            Work::Write { at, bytes } => self.write(at as usize, bytes),
            Work::Read { at, len } => self.read(at as usize, len),
            Work::Flush if self.chance(self.faults.failed_flushes) => Err(DeviceFailed::Broken),
            Work::Flush => {
                self.flush(writes);
                Ok(Vec::new())
            }
        };
        Some((id, outcome))
    }

    fn write(&mut self, at: usize, bytes: Vec<u8>) -> Answer {
        assert!(at.is_multiple_of(4096) && bytes.len().is_multiple_of(4096), "{at} {}", bytes.len());
        let is_full = self.full_from.is_some_and(|from| at >= from);
        let fails = is_full || self.chance(self.faults.failed_writes);
        self.writes += 1;
        let end = if fails { self.random.random_range(0..=bytes.len()) } else { bytes.len() };
        self.current[at..at + end].copy_from_slice(&bytes[..end]);
        self.unflushed.push(Write { number: self.writes, at, bytes: bytes[..end].to_vec() });
        let failed = if is_full { DeviceFailed::NoSpace } else { DeviceFailed::Broken };
        if fails { Err(failed) } else { Ok(Vec::new()) }
    }

    /// What a reader gets; not through the queue.
    pub(super) fn read(&mut self, at: usize, len: usize) -> Answer {
        if self.bad_pages.len() < BAD_PAGES_MAX && self.chance(self.faults.failed_reads) {
            self.bad_pages.push(at / 4096);
        }
        if self.bad_pages.iter().any(|page| (at..at + len).contains(&(page * 4096))) {
            return Err(DeviceFailed::Broken);
        }
        let mut at = at;
        let is_wrong = self.chance(self.faults.wrong_reads);
        if is_wrong && self.random.random_bool(0.5) {
            at = self.random.random_range(0..=(self.current.len() - len) / 4096) * 4096;
        }
        let mut bytes = self.current[at..at + len].to_vec();
        if is_wrong {
            let flipped = self.random.random_range(0..len);
            bytes[flipped] ^= 1 << self.random.random_range(0..8);
        }
        Ok(bytes)
    }

    fn flush(&mut self, writes: u64) {
        let Self { unflushed, durable, .. } = self;
        for write in unflushed.iter().filter(|write| write.number <= writes) {
            durable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        unflushed.retain(|write| write.number > writes);
    }

    /// The device can no longer read this page.
    pub(super) fn break_page(&mut self, page: usize) {
        self.bad_pages.push(page);
    }

    /// A bit of the byte rots.
    pub(super) fn rot(&mut self, at: u64) {
        self.current[at as usize] ^= 4;
        self.durable[at as usize] ^= 4;
    }

    /// The process dies: writes in flight happen or not.
    pub(super) fn kill(&mut self) {
        for (_, work, _) in std::mem::take(&mut self.queue) {
            if let Work::Write { at, bytes } = work
                && self.random.random_bool(0.5)
            {
                let before = std::mem::take(&mut self.faults);
                let _ = self.write(at as usize, bytes);
                self.faults = before;
            }
        }
    }

    /// The power is lost: any sectors of what was not flushed are there, in any order.
    pub(super) fn lose_power(&mut self) {
        self.kill();
        let mut writes = std::mem::take(&mut self.unflushed);
        if self.random.random_bool(0.5) {
            writes.shuffle(&mut self.random);
        }
        let kept = [0.0, 0.1, 0.5, 0.9, 1.0][self.random.random_range(0..5)];
        let sector = if self.random.random_bool(0.5) { SECTOR_BYTES } else { 4096 };
        for write in writes {
            let is_whole = self.random.random_bool(kept);
            for (number, bytes) in write.bytes.chunks(sector).enumerate() {
                if is_whole || self.random.random_bool(kept) {
                    let at = write.at + number * sector;
                    self.durable[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        self.current.copy_from_slice(&self.durable);
    }

    fn chance(&mut self, in_1000: u32) -> bool {
        in_1000 > 0 && self.random.random_range(0..1000) < in_1000
    }
}

/// Recovers the table on the disk.
pub(super) fn recover(disk: &mut Disk, superblock: &Superblock, options: Options) -> (Log, Winners) {
    let (mut recovery, mut newest, mut jobs) = (Recovery::new(), Newest::default(), Vec::new());
    loop {
        recovery.poll(&mut jobs);
        disk.submit(&mut jobs);
        let (id, outcome) = disk.complete_one().expect("recovery waits for nothing");
        match recovery.done(id, lent(&outcome), &mut |found: &Found| newest.add(found)) {
            Step::Working => {}
            Step::Done(done) => {
                assert_eq!(done.0, *superblock);
                assert_eq!(done.1.damage, None, "a crash alone damages nothing that is complete");
                return (Log::resume(superblock, options, done.1), newest.decide());
            }
            Step::Failed(reason) => panic!("{reason}"),
        }
    }
}
