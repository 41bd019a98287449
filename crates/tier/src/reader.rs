//! Reads of keys, from memory or from flash.

use crate::{
    fetch::{Busy, Fetch, Fetcher, ReadError, Verdict},
    heads::Head,
    payload::{Value, meta_of},
    stats::ReadCounts,
    tier::Tier,
};
use minos_base::{FlashSlot, KeyHash, Seconds};
use minos_device::Lane;
use minos_engine::{Candidates, Cold, ItemMeta, Lookup, Mode, OutOfMemory, Promotion, TieredMode};
use minos_flash::format::Record;
use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

/// The place where a key is looked for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// In memory: read it from the engine.
    Hot,
    /// On flash, if it is anywhere: [`Reader::poll`] will answer.
    Cold,
    /// It is nowhere.
    Missing,
    /// No buffer is free: submit and poll, then try again.
    Busy,
}

/// An item that was found on flash.
#[derive(Debug)]
pub struct Found<'a> {
    tier: &'a Tier,
    fetch: &'a Fetch,
    slot: FlashSlot,
    /// The record's sequence.
    sequence: u64,
    /// Its value, in the reader's buffer.
    pub value: Value<'a>,
    /// Flags, expiry, CAS unique, marks.
    pub meta: ItemMeta,
}

impl Found<'_> {
    /// Deletes the item on flash, without a way through memory; false if it is no longer there alone, because it
    /// came to memory or was deleted.
    pub fn delete(&self) -> bool {
        let is_dropped = self.tier.engine.drop_cold(self.fetch.hash, self.slot, Some(self.sequence));
        if is_dropped {
            self.tier.engine.tell_lost(self.fetch.hash);
        }
        is_dropped
    }

    /// The slot of its record.
    pub fn slot(&self) -> FlashSlot {
        self.slot
    }

    /// True if other items would leave memory for this one.
    pub fn displaces(&self) -> bool {
        self.tier.engine.is_full(self.fetch.hash)
    }

    /// True if there is no room for the item in memory without an eviction; flash is then asked to take others.
    pub fn lacks_room(&self) -> bool {
        TieredMode::lacks_room(&self.tier.engine, self.value.len() as u64)
    }

    /// Takes the item into memory, where the engine has it from then on unless it has changed meanwhile.
    ///
    /// # Errors
    /// There is no room in memory.
    pub fn promote(&self, now: Seconds) -> Result<Promotion, OutOfMemory> {
        let mut copy = Vec::new();
        let value = self.value.whole(&mut copy);
        let Fetch { hash, key, seen, .. } = self.fetch;
        let cold = Cold { slot: self.slot, seen, sequence: self.sequence, value, meta: self.meta };
        self.tier.engine.promote(*hash, key, &cold, now)
    }
}

/// The answer about a key.
#[derive(Debug)]
pub struct Answer<'a> {
    /// As the caller named it.
    pub tag: u64,
    /// The key's hash.
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
    /// The records that were read.
    pub seen: &'a Candidates,
    /// The heads of records that [`Reader::read_heads`] asked for; `result` is then `None` or an error.
    pub heads: Vec<Head>,
    /// The item as it was at the moment of the look-up; `None`: there was none. A cache makes a miss of an error.
    pub result: Result<Option<Found<'a>>, ReadError>,
}

/// Reads vectors of keys. One thread owns it, with a lane and buffers of its own.
///
/// [`Reader::seek`] looks a key up, [`Reader::submit`] hands all reads to the device in one system call, and
/// [`Reader::poll`] gives out answers.
#[derive(Debug)]
pub struct Reader {
    pub(crate) tier: Arc<Tier>,
    pub(crate) fetcher: Fetcher,
}

impl Tier {
    /// A reader with a lane of its own, for one thread.
    ///
    /// # Errors
    /// No descriptor, no thread or no memory is left.
    pub fn reader(self: &Arc<Self>) -> io::Result<Reader> {
        let fetcher = Fetcher::new(Arc::clone(self), &self.options.read_lane)?;
        Ok(Reader { tier: Arc::clone(self), fetcher })
    }
}

impl Reader {
    /// The tier.
    pub fn tier(&self) -> &Arc<Tier> {
        &self.tier
    }

    /// The lane, to sleep on.
    pub fn lane(&mut self) -> &mut Lane {
        self.fetcher.lane()
    }

    /// The lane's descriptor. Call `prepare` on the lane before a sleep.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fetcher.descriptor()
    }

    /// Keys under way.
    pub fn under_way(&self) -> usize {
        self.fetcher.under_way()
    }

    /// Looks a key up, and prepares the reads of the records that may be its own.
    pub fn seek(&mut self, tag: u64, hash: KeyHash, key: &[u8], now: Seconds) -> Sought {
        let epoch = self.fetcher.enter();
        let slots = match self.tier.engine.find_cold(hash, key, now) {
            Lookup::Cold(slots) => slots,
            other => {
                self.fetcher.leave(epoch);
                return if other == Lookup::Hot { Sought::Hot } else { Sought::Missing };
            }
        };
        match self.fetcher.start((tag, epoch), (hash, key), &slots, u64::MAX) {
            Ok(()) => {
                self.fetcher.counts.read_keys += 1;
                Sought::Cold
            }
            Err(Busy) => {
                self.fetcher.counts.read_waited += 1;
                Sought::Busy
            }
        }
    }

    /// Reads that are prepared and not submitted.
    pub fn prepared(&self) -> usize {
        self.fetcher.prepared()
    }

    /// Submits all prepared reads as one vector. What the device does not take stays for the next call.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn submit(&mut self) -> io::Result<()> {
        self.submit_at_most(usize::MAX)
    }

    /// Submits all prepared reads as vectors of at most this width.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn submit_at_most(&mut self, width: usize) -> io::Result<()> {
        self.fetcher.submit(width)
    }

    /// Waits until three quarters of the reads in flight have ended or the time is over: the others end while those are
    /// answered, and each wake-up saved is processor time.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let in_flight = self.in_flight();
        self.fetcher.wait(in_flight - in_flight / 4, timeout)
    }

    /// Reads that were submitted and that the device has not ended.
    pub fn in_flight(&self) -> usize {
        self.fetcher.in_flight()
    }

    /// True if reads have ended whose answers were not given out.
    pub fn has_ended(&self) -> bool {
        self.fetcher.has_ended()
    }

    /// Takes the reads that have ended from the device, without their answers; returns how many.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn reap(&mut self) -> io::Result<usize> {
        self.fetcher.reap()
    }

    /// Ends all look-ups without an answer, because the lane is unusable. Segments that they held may be used again, and what
    /// the device still answers to them is dropped.
    pub fn give_up(&mut self) {
        self.fetcher.give_up();
    }

    /// Gives out the answers that have come; returns how many.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn poll(&mut self, now: Seconds, f: impl FnMut(Answer<'_>)) -> io::Result<usize> {
        self.reap()?;
        Ok(self.answer(usize::MAX, now, f))
    }

    /// Gives out the answers of at most so many of the reads that were reaped; returns how many.
    pub fn answer(&mut self, reads_max: usize, now: Seconds, mut f: impl FnMut(Answer<'_>)) -> usize {
        let tier = &self.tier;
        let ended = self.fetcher.poll(reads_max, |fetch, counts| {
            // No key is empty.
            let (heads, result) = match fetch.key.is_empty() {
                false => (Vec::new(), settle(tier, fetch, now, counts)),
                true => {
                    fetch.heads(tier).map_or_else(|error| (Vec::new(), Err(error)), |heads| (heads, Ok(None)))
                }
            };
            f(Answer { tag: fetch.tag, hash: fetch.hash, key: &fetch.key, seen: &fetch.seen, heads, result });
        });
        tier.reads.add(&std::mem::take(&mut self.fetcher.counts));
        ended
    }
}

/// The newest record of a key, if it is alive. Older ones are forgotten.
fn settle<'a>(
    tier: &'a Tier,
    fetch: &'a Fetch,
    now: Seconds,
    counts: &mut ReadCounts,
) -> Result<Option<Found<'a>>, ReadError> {
    let mut best: Option<(FlashSlot, Record<'a>)> = None;
    let mut failure = None;
    for (slot, verdict) in fetch.verdicts(tier) {
        match verdict {
            Verdict::Ours(record) => {
                let is_newer = |best: &(_, Record<'_>)| best.1.header.sequence < record.header.sequence;
                let older = if best.as_ref().is_none_or(is_newer) {
                    best.replace((slot, record))
                } else {
                    Some((slot, record))
                };
                let (older, newest) = (older.iter(), best.as_ref());
                for ((slot, record), (best, newest)) in older.zip(newest) {
                    let sequence = record.header.sequence;
                    // Two slots may have found the same record. If they name one page, a tombstone would bury neighbours too.
                    let is_neighbour = best.page == slot.page;
                    if sequence < newest.header.sequence {
                        counts.read_older += 1;
                        tier.engine.drop_cold(fetch.hash, *slot, (!is_neighbour).then_some(sequence));
                    }
                }
            }
            Verdict::Other => counts.read_others += 1,
            Verdict::Failed(error) => failure = Some(error),
        }
    }
    // A record that cannot be read may be newer than one that can.
    if let Some(error) = failure {
        let is_awaited = || fetch.seen.iter().any(|slot| tier.engine.awaits(fetch.hash, slot.page));
        match error {
            ReadError::Rot if is_awaited() => counts.read_unwritten += 1,
            ReadError::Rot => counts.read_rotten += 1,
            ReadError::Gone => counts.read_gone += 1,
            ReadError::Device | ReadError::TooLarge => counts.read_failed += 1,
        }
        return Err(error);
    }
    Ok(best.and_then(|(slot, record)| alive(tier, fetch, (slot, record), now, counts)).or_else(|| {
        counts.read_missed += 1;
        None
    }))
}

/// The item of a record, unless it was flushed or has expired.
fn alive<'a>(
    tier: &'a Tier,
    fetch: &'a Fetch,
    (slot, record): (FlashSlot, Record<'a>),
    now: Seconds,
    counts: &mut ReadCounts,
) -> Option<Found<'a>> {
    let (sequence, expiry) = (record.header.sequence, record.header.expiry);
    let is_flushed = sequence <= tier.engine.flushed_up_to(tier.engine.partition_of(fetch.hash));
    if is_flushed || (expiry != 0 && expiry <= now) {
        counts.read_dead += 1;
        if tier.engine.drop_cold(fetch.hash, slot, Some(sequence)) {
            tier.engine.tell_lost(fetch.hash);
        }
        return None;
    }
    let (cas, value) = Value::of(record.value)?;
    counts.read_found += 1;
    Some(Found { tier, fetch, slot, sequence, value, meta: meta_of(&record.header, cas) })
}
