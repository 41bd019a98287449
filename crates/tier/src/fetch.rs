//! Vectors of reads of the records that may be those of keys.

use crate::{epochs::Seat, heads::Head, stats::ReadCounts, tier::Tier};
use arrayvec::ArrayVec;
use minos_base::{FLASH_PAGE_BYTES, FlashSlot, KeyHash};
use minos_device::{Buffer, Completion, Error, Lane, LaneOptions, Request};
use minos_engine::Candidates;
use minos_flash::format::{
    Fault, Life, Pages, RECORD_HEADER_BYTES_MIN, Record, Seal, next_record_hint, window_of,
};
use minos_sync::prefetch;
use std::{collections::HashSet, io, ops::Range, os::fd::BorrowedFd, sync::Arc, time::Duration};
use thiserror::Error;

/// The reason why it is not known if a record is the key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The device failed.
    #[error("the device failed to read")]
    Device,
    /// The bytes are not those that were written.
    #[error("a record on the device does not verify")]
    Rot,
    /// The device is gone.
    #[error("the device is gone")]
    Gone,
    /// The record does not fit the lane's pool of buffers, beside others that may be the key's.
    #[error("the records that may be the key's do not fit the buffers of their reader")]
    TooLarge,
}

/// No buffer is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// Bits of a request's tag that name the record within its fetch, and those above that name the fetch. The others are the
/// generation.
const RECORD_BITS: u32 = 4;
const FETCH_BITS: u32 = 28;

/// Pages whose headers are fetched into the caches together.
const WALKED_AT_ONCE: usize = 16;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Headers of a page that are: all that a page of records of 1 KiB has.
const PREFETCHED_HEADERS: usize = 4;

/// A record that may be the key's.
#[derive(Debug)]
struct Piece {
    slot: FlashSlot,
    life: Life,
    read: Result<Option<Buffer>, ReadError>,
    part: Part,
}

/// What is read of a record's pages.
#[derive(Clone, Debug)]
enum Part {
    All,
    /// These bytes, in which it must lie if it is the key's.
    Window(Range<usize>),
    /// As much, and the key's record is at this offset.
    Found(usize),
}

/// A key whose records are read, or room for one: its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    pub(crate) tag: u64,
    pub(crate) hash: KeyHash,
    pub(crate) key: Vec<u8>,
    pub(crate) seen: Candidates,
    pieces: ArrayVec<Piece, { 1 << RECORD_BITS }>,
    epoch: u64,
    left: usize,
}

/// The finding about a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict<'a> {
    /// The newest of the key in its page.
    Ours(Record<'a>),
    /// No record there has the key.
    Other,
    Failed(ReadError),
}

impl Fetch {
    /// The findings about all records, in the order of the slots.
    pub(crate) fn verdicts<'a>(&'a self, tier: &'a Tier) -> impl Iterator<Item = (FlashSlot, Verdict<'a>)> {
        self.pieces.iter().map(|piece| (piece.slot, self.verdict(piece, tier)))
    }

    /// The heads of the records that may be those that the slots name, and whether all of them could be read.
    pub(crate) fn heads(&self, tier: &Tier) -> Result<Vec<Head>, ReadError> {
        let mut heads = Vec::new();
        for Piece { slot, life, read, .. } in &self.pieces {
            let buffer = match read {
                Ok(Some(buffer)) => buffer,
                Ok(None) => return Err(ReadError::Device),
                Err(error) => return Err(*error),
            };
            let pages = Pages::new(buffer, offset_of(*slot), *life, tier.seal);
            let found = pages.heads(|header, key| {
                if header.hash.tag() == slot.tag {
                    heads.push(Head::of(header, key));
                }
            });
            found.map_err(|_| ReadError::Rot)?;
        }
        Ok(heads)
    }

    /// Takes a read of a record. Returns the read of all its pages if this one was of a part that does not have it, or that
    /// could not be read: a device may refuse parts only where something was written.
    fn take(&mut self, completion: &mut Completion, seal: Seal) -> Option<Request> {
        let piece = &mut self.pieces[numbers_of(completion.tag).1];
        if let Part::Window(window) = &piece.part
            && let Some(mut buffer) = completion.buffer.take()
        {
            buffer.show(0..2 * FLASH_PAGE_BYTES);
            let at = offset_of(piece.slot);
            let pages = Pages::new(&buffer, at, piece.life, seal);
            let find = |()| pages.find_crossing(self.hash, &self.key, window.clone());
            let Some(offset) = completion.result.ok().and_then(find) else {
                piece.part = Part::All;
                return Some(Request::read(completion.tag, at, buffer));
            };
            piece.part = Part::Found(offset);
            completion.buffer = Some(buffer);
        }
        piece.read = completion.result.map(|()| completion.buffer.take()).map_err(ReadError::from);
        self.left -= 1;
        None
    }

    fn verdict<'a>(&'a self, piece: &'a Piece, tier: &Tier) -> Verdict<'a> {
        let bytes = match &piece.read {
            Ok(Some(buffer)) => buffer,
            Ok(None) => return Verdict::Failed(ReadError::Device),
            Err(error) => return Verdict::Failed(*error),
        };
        let pages = Pages::new(bytes, offset_of(piece.slot), piece.life, tier.seal);
        let found = match piece.part {
            Part::Found(offset) => pages.record(offset).map(|found| found.map(|(record, _)| record)),
            _ => pages.find(self.hash, &self.key),
        };
        match found {
            Ok(Some(record)) => Verdict::Ours(record),
            // The last record of the page is longer than the one that the slot names.
            Ok(None) | Err(Fault::Length(_)) => Verdict::Other,
            Err(_) => Verdict::Failed(ReadError::Rot),
        }
    }
}

/// Reads records through a lane of its own.
#[derive(Debug)]
pub(crate) struct Fetcher {
    tier: Arc<Tier>,
    lane: Lane,
    seat: Seat,
    /// Keys under way, by number, and those that `free` names.
    fetches: Vec<Fetch>,
    free: Vec<usize>,
    staged: Vec<Request>,
    completions: Vec<Completion>,
    /// Keys of which nothing could be read.
    ready: Vec<usize>,
    /// The error that has made the lane unusable, until somebody is told.
    broken: Option<io::Error>,
    /// How often all fetches were given up.
    generation: u32,
    /// Counts since they were last taken.
    pub(crate) counts: ReadCounts,
}

impl Fetcher {
    pub(crate) fn new(tier: Arc<Tier>, options: &LaneOptions) -> io::Result<Self> {
        let lane = tier.device.lane(options)?;
        let seat = tier.epochs.seat();
        Ok(Self {
            tier,
            lane,
            seat,
            fetches: Vec::new(),
            free: Vec::new(),
            staged: Vec::new(),
            completions: Vec::new(),
            ready: Vec::new(),
            broken: None,
            generation: 0,
            counts: ReadCounts::default(),
        })
    }

    pub(crate) fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.lane.descriptor()
    }

    /// Number of keys under way.
    pub(crate) fn under_way(&self) -> usize {
        self.fetches.len() - self.free.len()
    }

    /// Begins a look-up: until it is left or started, what it finds stays.
    pub(crate) fn enter(&mut self) -> u64 {
        self.seat.enter()
    }

    pub(crate) fn leave(&mut self, epoch: u64) {
        self.seat.leave(epoch);
    }

    /// Reads the records that a look-up of this epoch found, so many pages of each at most; the epoch ends with the reads, also
    /// if this fails.
    pub(crate) fn start(
        &mut self,
        (tag, epoch): (u64, u64),
        (hash, key): (KeyHash, &[u8]),
        seen: &Candidates,
        pages_max: u64,
    ) -> Result<(), Busy> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.fetches.push(Fetch::default());
            self.fetches.len() - 1
        });
        let (staged, mut bytes_read) = (self.staged.len(), 0);
        for (at, slot) in seen.iter().enumerate() {
            let bytes = self.bytes_of(*slot, pages_max);
            let mut part = Part::All;
            let read = match self.lane.buffer(bytes) {
                Ok(mut buffer) => {
                    let name = tag_of(self.generation, number, at);
                    let mut offset = offset_of(*slot);
                    if let Some(window) = self.window_of(*slot, bytes).filter(|_| !key.is_empty()) {
                        offset += window.start as u64;
                        buffer.show(window.clone());
                        part = Part::Window(window);
                    }
                    bytes_read += buffer.len() as u64;
                    self.staged.push(Request::read(name, offset, buffer));
                    Ok(None)
                }
                // Nothing will give buffers back but the other records of this key.
                Err(_) if self.under_way() == 1 => Err(ReadError::TooLarge),
                Err(_) => {
                    self.staged.truncate(staged);
                    self.free(number, epoch);
                    return Err(Busy);
                }
            };
            let life = self.tier.life_of(slot.page);
            self.fetches[number].pieces.push(Piece { slot: *slot, life, read, part });
        }
        self.counts.read_records += seen.len() as u64;
        self.counts.read_bytes += bytes_read;
        let fetch = &mut self.fetches[number];
        (fetch.tag, fetch.hash, fetch.epoch) = (tag, hash, epoch);
        fetch.key.extend_from_slice(key);
        fetch.seen.clone_from(seen);
        fetch.left = self.staged.len() - staged;
        if fetch.left == 0 {
            self.ready.push(number);
        }
        Ok(())
    }

    /// Ends a fetch, and gives its buffers back.
    fn free(&mut self, number: usize, epoch: u64) {
        let fetch = &mut self.fetches[number];
        fetch.pieces.clear();
        fetch.key.clear();
        self.free.push(number);
        self.seat.leave(epoch);
    }

    fn bytes_of(&self, slot: FlashSlot, pages_max: u64) -> usize {
        let room = self.tier.layout().device_bytes().saturating_sub(offset_of(slot));
        (slot.length.pages().min(pages_max) * FLASH_PAGE_BYTES as u64).min(room) as usize
    }

    /// The window of a record of whose pages so many bytes are to be read, in the device's least reads.
    fn window_of(&self, slot: FlashSlot, bytes: usize) -> Option<Range<usize>> {
        let window = window_of(slot.length).filter(|_| bytes == 2 * FLASH_PAGE_BYTES)?;
        let block = self.tier.device.geometry().read_block_bytes as usize;
        let window = window.start / block * block..window.end.next_multiple_of(block);
        (window.len() < bytes).then_some(window)
    }

    /// Reads that were started and not submitted.
    pub(crate) fn prepared(&self) -> usize {
        self.staged.len()
    }

    /// Submits what was started as vectors of at most this width. What the device does not take stays for the next call.
    pub(crate) fn submit(&mut self, width: usize) -> io::Result<()> {
        self.check()?;
        while !self.staged.is_empty() {
            let rest = self.staged.split_off(self.staged.len().min(width));
            let submitted = self.lane.submit(&mut self.staged);
            let is_full = !self.staged.is_empty();
            self.staged.extend(rest);
            self.count_vector(submitted?);
            if is_full {
                break;
            }
        }
        Ok(())
    }

    /// Tells of a lane that was found unusable where nobody could be told.
    fn check(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    fn count_vector(&mut self, width: usize) {
        let counts = &mut self.counts;
        counts.read_vectors += u64::from(width > 0);
        counts.read_vectors_of_1 += u64::from(width == 1);
        counts.read_vectors_of_8 += u64::from(width >= 8);
        counts.read_vectors_of_32 += u64::from(width >= 32);
    }

    /// Waits until so many reads have ended, or the time is over.
    pub(crate) fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        let waited = self.lane.wait(least, timeout, &mut completions);
        self.completions = completions;
        waited.map(|_| ())
    }

    /// Reads that the device has not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    /// True if reads have ended whose keys were not given out, or the lane is unusable.
    pub(crate) fn has_ended(&self) -> bool {
        !self.completions.is_empty() || !self.ready.is_empty() || self.broken.is_some()
    }

    /// Takes the reads that have ended from the device; returns how many.
    pub(crate) fn reap(&mut self) -> io::Result<usize> {
        self.check()?;
        self.lane.complete(&mut self.completions)
    }

    /// Ends all fetches without a finding. Reads of theirs that the device still has are nobody's from now on.
    pub(crate) fn give_up(&mut self) {
        self.staged.clear();
        self.completions.clear();
        self.ready.clear();
        self.broken = None;
        self.generation = self.generation.wrapping_add(1);
        let free: HashSet<usize> = self.free.iter().copied().collect();
        for number in (0..self.fetches.len()).filter(|number| !free.contains(number)) {
            self.free(number, self.fetches[number].epoch);
        }
    }

    /// Gives out the keys of at most so many of the reads that were reaped; returns how many.
    pub(crate) fn poll(&mut self, reads_max: usize, mut f: impl FnMut(&Fetch, &mut ReadCounts)) -> usize {
        let mut ended = 0;
        let later = self.completions.split_off(self.completions.len().min(reads_max));
        let mut completions = std::mem::replace(&mut self.completions, later);
        if self.generation > 0 {
            completions.retain(|completion| generation_of(completion.tag) == self.generation);
        }
        for group in completions.chunks_mut(WALKED_AT_ONCE) {
            prefetch_headers(&self.fetches, group);
            for completion in group {
                let (number, _) = numbers_of(completion.tag);
                let fetch = &mut self.fetches[number];
                if let Some(again) = fetch.take(completion, self.tier.seal) {
                    self.read_again(again);
                } else if fetch.left == 0 {
                    ended += 1;
                    self.end(number, &mut f);
                }
            }
        }
        for number in std::mem::take(&mut self.ready) {
            ended += 1;
            self.end(number, &mut f);
        }
        ended
    }

    /// Reads at once: nobody else would know that there is something to submit.
    fn read_again(&mut self, request: Request) {
        self.counts.read_again += 1;
        self.counts.read_bytes += 2 * FLASH_PAGE_BYTES as u64;
        let mut vector = vec![request];
        match self.lane.submit(&mut vector) {
            Ok(taken) => self.count_vector(taken),
            Err(error) => self.broken = Some(error),
        }
        self.staged.append(&mut vector);
    }

    fn end(&mut self, number: usize, f: &mut impl FnMut(&Fetch, &mut ReadCounts)) {
        let fetch = &self.fetches[number];
        f(fetch, &mut self.counts);
        self.free(number, fetch.epoch);
    }
}

/// Prefetches the headers of the first records of each page, or where one may begin in a part of its pages. A device
/// writes around the caches, and the walk over a page waits for one header after another: so it waits for those of all
/// pages at once.
fn prefetch_headers(fetches: &[Fetch], completions: &[Completion]) {
    let mut pages: ArrayVec<(&[u8], Option<usize>), WALKED_AT_ONCE> = ArrayVec::new();
    for Completion { tag, buffer, .. } in completions {
        let Some(bytes) = buffer.as_deref() else { continue };
        let (number, at) = numbers_of(*tag);
        match &fetches[number].pieces[at].part {
            Part::Window(window) => {
                let first_page = &bytes[..FLASH_PAGE_BYTES - window.start];
                first_page.iter().step_by(LINE_BYTES).for_each(prefetch);
            }
            _ => pages.push((bytes, None)),
        }
    }
    pages.iter().for_each(|(page, _)| prefetch(&page[0]));
    for _ in 0..PREFETCHED_HEADERS {
        pages.retain(|(page, at)| {
            *at = next_record_hint(page, *at);
            at.is_some_and(|at| {
                prefetch(&page[at]);
                prefetch(&page[at + RECORD_HEADER_BYTES_MIN - 1]);
                true
            })
        });
    }
}

fn tag_of(generation: u32, fetch: usize, record: usize) -> u64 {
    u64::from(generation) << (FETCH_BITS + RECORD_BITS) | (fetch as u64) << RECORD_BITS | record as u64
}

/// The numbers of a fetch and of its record that a request's tag names.
fn numbers_of(tag: u64) -> (usize, usize) {
    let fetch = (tag >> RECORD_BITS) as usize & ((1 << FETCH_BITS) - 1);
    (fetch, tag as usize & ((1 << RECORD_BITS) - 1))
}

fn generation_of(tag: u64) -> u32 {
    (tag >> (FETCH_BITS + RECORD_BITS)) as u32
}

/// The byte of the device at which a record's first page begins.
fn offset_of(slot: FlashSlot) -> u64 {
    u64::from(slot.page) * FLASH_PAGE_BYTES as u64
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        match error {
            Error::Gone => Self::Gone,
            _ => Self::Device,
        }
    }
}
