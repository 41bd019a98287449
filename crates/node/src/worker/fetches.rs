//! Requests that wait for items from flash. A worker reads the items of all of them through its own lane, as
//! many with one submission as are due (Vector Interfaces §4.2).

use std::{
    collections::VecDeque,
    io,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{Seconds, SizeClass};
use minos_engine::{Mode, OutOfMemory};
use minos_sched::SharedHistogram;
use minos_tier::{Answer, Reader, Sought, Tier};

use self::walks::Walking;
use super::{
    copies::{Copies, ReadLately},
    gather::{Gather, Reads},
    rings::Awaiting,
};
use crate::{
    ops::{Failed, Fetched, FlashAnswer, Need, RETRY, waits_max},
    server::config::{Gathering, Promote},
};

/// Bits of a read's tag that name the key within its request.
const KEY_BITS: u32 = 16;

/// Reads whose answers are taken, and requests that go on, between two looks at the RX queues.
pub(super) const ANSWERS_MAX: usize = 8;

/// A request under way.
struct UnderWay<M: Mode> {
    awaiting: Box<Awaiting<M>>,
    /// Keys without an answer.
    left: usize,
    /// Times that it waited for room in memory.
    waits: u32,
    fetched: Box<Fetched>,
    walking: Option<Walking>,
}

/// Requests of one worker that wait for items from flash.
pub(crate) struct Fetches<M: Mode> {
    reader: Reader,
    gather: Gather,
    copies: Copies,
    /// Counts items by size, for the next plan.
    histogram: Arc<SharedHistogram>,
    /// True if a key that cannot be read is an error, false if it is a miss.
    is_lossless: bool,
    /// Time for which a request waits for room in memory.
    wait: Option<Duration>,
    under_way: Vec<Option<UnderWay<M>>>,
    free: Vec<usize>,
    /// Keys for which the reader had no room, the oldest first: numbers of the request and the key.
    held_up: VecDeque<(usize, usize)>,
    /// Requests with all answers.
    ready: VecDeque<usize>,
    /// Keys whose items found no room in memory, and requests that wait for room.
    parked: Vec<(usize, Option<usize>)>,
    /// When those are tried again.
    retry: Option<Instant>,
    /// Reads had ended when the worker was about to sleep.
    has_ended: bool,
    /// The error that has made the lane unusable, until [`advance`](Self::advance) tells of it.
    failure: Option<io::Error>,
}

impl<M: Mode> Fetches<M> {
    /// No requests, and a lane to `tier`.
    pub(crate) fn of(
        tier: &Arc<Tier>,
        (gathering, wait): (Gathering, Option<Duration>),
        (promote, read_lately): (Promote, Arc<ReadLately>),
        histogram: Arc<SharedHistogram>,
    ) -> io::Result<Self> {
        Ok(Self {
            reader: tier.reader()?,
            gather: Gather::new(gathering),
            copies: Copies::new(promote, read_lately),
            histogram,
            is_lossless: tier.is_lossless(),
            wait,
            under_way: Vec::new(),
            free: Vec::new(),
            held_up: VecDeque::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            retry: None,
            has_ended: false,
            failure: None,
        })
    }

    /// True if no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.len() == self.free.len()
    }

    /// True if there is work that the descriptor does not report.
    pub(crate) fn is_runnable(&self) -> bool {
        !self.ready.is_empty() || self.reader.has_ended() || self.failure.is_some()
    }

    /// The descriptor that is readable when a read has ended.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.descriptor()
    }

    /// Announces a sleep on the descriptor; false if the worker must not sleep.
    pub(crate) fn prepare_sleep(&mut self, now: (Instant, Seconds)) -> bool {
        if self.is_empty() {
            return true;
        }
        self.try_prepare(now).unwrap_or_else(|error| {
            self.failure = Some(error);
            false
        })
    }

    fn try_prepare(&mut self, now: (Instant, Seconds)) -> io::Result<bool> {
        if self.advance(now)? {
            return Ok(false);
        }
        // The descriptor does not report what ended before it was prepared, and nothing is submitted after that.
        self.reader.lane().prepare()?;
        self.has_ended = self.reader.reap()? > 0;
        Ok(!self.is_runnable())
    }

    /// Takes a request in; its reads are submitted by [`advance`](Self::advance).
    pub(super) fn begin(&mut self, awaiting: Box<Awaiting<M>>, (now, now_s): (Instant, Seconds)) {
        let walking = awaiting.fetch.walk.map(|wish| Walking::begin(&mut self.reader, wish, now_s));
        let is_walk = walking.is_some();
        let left = walking.as_ref().map_or(awaiting.fetch.keys.len(), Walking::vectors);
        let waits = awaiting.fetch.waits;
        let fetched = Box::new(awaiting.fetch.fetched(self.copies.memory(awaiting.fetch.need)));
        let entry = UnderWay { awaiting, left, waits, fetched, walking };
        let number = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() - 1
        });
        self.under_way[number] = Some(entry);
        match left {
            0 if is_walk => self.ready.push_back(number),
            0 => self.park((number, None), now),
            _ => {}
        }
        for at in 0..left {
            // Those held up before come first.
            if !self.held_up.is_empty() || !self.seek(number, at, now_s) {
                self.held_up.push_back((number, at));
            }
        }
        if self.gather.is_direct()
            && let Err(error) = self.reader.submit()
        {
            self.failure = Some(error);
        }
    }

    /// Looks a key up and prepares its reads; false if there is no room for them.
    fn seek(&mut self, number: usize, at: usize, now: Seconds) -> bool {
        let Some(entry) = &self.under_way[number] else { return true };
        let tag = (number as u64) << KEY_BITS | at as u64;
        if let Some(walking) = &entry.walking {
            return walking.read(&mut self.reader, tag, at);
        }
        let (hash, key) = &entry.awaiting.fetch.keys[at];
        match self.reader.seek(tag, *hash, key, now) {
            Sought::Cold => {}
            Sought::Hot | Sought::Missing => self.answered(number),
            Sought::Busy => return false,
        }
        true
    }

    fn answered(&mut self, number: usize) {
        let Some(entry) = &mut self.under_way[number] else { return };
        entry.left -= 1;
        if entry.left == 0 {
            self.ready.push_back(number);
        }
    }

    fn park(&mut self, parked: (usize, Option<usize>), now: Instant) {
        self.parked.push(parked);
        self.retry.get_or_insert(now + RETRY);
    }

    /// Tries again what found no room a moment ago.
    fn try_again(&mut self, now: Instant) {
        if self.retry.is_none_or(|retry| now < retry) {
            return;
        }
        self.retry = None;
        for (number, at) in std::mem::take(&mut self.parked) {
            match at {
                Some(at) => self.held_up.push_back((number, at)),
                None => self.ready.push_back(number),
            }
        }
    }

    /// Submits the reads that are due, and takes some of the answers that have come.
    pub(super) fn advance(&mut self, (now, now_s): (Instant, Seconds)) -> io::Result<bool> {
        self.failure.take().map_or(Ok(()), Err)?;
        self.try_again(now);
        let has_ended = std::mem::take(&mut self.has_ended) | (self.reader.reap()? > 0);
        while let Some(&(number, at)) = self.held_up.front()
            && self.seek(number, at, now_s)
        {
            self.held_up.pop_front();
        }
        let (prepared, in_flight) = (self.reader.prepared(), self.reader.in_flight());
        if self.gather.is_due(Reads { prepared, in_flight, has_ended }, now) {
            self.reader.submit_at_most(self.gather.width_max())?;
        }
        let (is_lossless, waits_max) = (self.is_lossless, waits_max(self.reader.tier(), self.wait));
        let Self { under_way, copies, histogram, .. } = self;
        let (mut answered, mut crowded) = (Vec::new(), Vec::new());
        self.reader.answer(ANSWERS_MAX, now_s, |answer| {
            let (number, at) =
                ((answer.tag >> KEY_BITS) as usize, answer.tag as usize & ((1 << KEY_BITS) - 1));
            let Some(Some(entry)) = under_way.get_mut(number) else { return };
            if let Some(walking) = &mut entry.walking {
                walking.take(answer);
                return answered.push(number);
            }
            let found = answer.result.as_ref().ok().and_then(Option::as_ref);
            let class = found.map(|found| SizeClass::of(found.value.len() as u64));
            let count = || class.into_iter().for_each(|class| histogram.record(class));
            let (need, fetched) = (entry.awaiting.fetch.need, &mut entry.fetched);
            match (need, found) {
                (Need::Deletion(unique), Some(found)) => {
                    fetched.delete((answer.hash, answer.key), found, unique);
                    return answered.push(number);
                }
                (Need::Copy, Some(found)) if copies.will_do(answer.hash, found) => {
                    fetched.copy(answer.hash, answer.key, found, now_s);
                    count();
                    return answered.push(number);
                }
                _ => {}
            }
            let may_evict = is_lossless || entry.waits >= waits_max;
            if take(&answer, fetched, (is_lossless, may_evict), now_s).is_err() {
                match found.filter(|found| need == Need::Copy && copies.have_room(found)) {
                    Some(found) => fetched.copy(answer.hash, answer.key, found, now_s),
                    None if entry.waits < waits_max => {
                        entry.waits += 1;
                        return crowded.push((number, Some(at)));
                    }
                    None => fetched.note(answer.hash, answer.key, FlashAnswer::Failed(Failed::NoMemory)),
                }
            }
            count();
            answered.push(number);
        });
        crowded.into_iter().for_each(|parked| self.park(parked, now));
        answered.iter().for_each(|&number| self.answered(number));
        Ok(!answered.is_empty())
    }

    /// Longest sleep of the worker, if something is to be tried again.
    pub(crate) fn sleep_max(&self) -> Option<Duration> {
        // The device had no place for reads beside those of others, whose ends nobody reports here.
        let is_shut_out = self.reader.prepared() > 0 && self.reader.in_flight() == 0;
        let retry = (self.retry.is_some() || is_shut_out).then_some(RETRY);
        retry.into_iter().chain(self.gather.sleep_max()).min()
    }

    /// Takes out a request that has all answers.
    pub(super) fn take_ready(&mut self, now: Seconds) -> Option<(Box<Awaiting<M>>, Box<Fetched>)> {
        let number = self.ready.pop_front()?;
        let entry = self.under_way[number].take()?;
        self.free.push(number);
        let walked = entry.walking.map(|walking| walking.end(&mut self.reader, now));
        entry.fetched.walked.set(walked);
        Some((entry.awaiting, entry.fetched))
    }

    /// Takes back the answers to a request that has gone on.
    pub(crate) fn take_back(&mut self, fetched: Fetched) {
        self.copies.take_back(fetched.into_memory());
    }

    /// Ends all requests, because the lane is unusable.
    pub(super) fn fail(&mut self) {
        self.reader.give_up();
        self.held_up.clear();
        self.ready.clear();
        self.parked.clear();
        for (number, entry) in self.under_way.iter_mut().enumerate() {
            let Some(entry) = entry else { continue };
            entry.left = 0;
            entry.walking.iter_mut().for_each(|walking| walking.is_broken = true);
            for (hash, key) in &entry.awaiting.fetch.keys {
                entry.fetched.note(*hash, key, broken(self.is_lossless));
            }
            self.ready.push_back(number);
        }
    }
}

/// The answer about a key that cannot be read.
fn broken(is_lossless: bool) -> FlashAnswer {
    if is_lossless { FlashAnswer::Failed(Failed::Unreadable) } else { FlashAnswer::Lost }
}

/// Takes an item into memory, or notes why it does not come. An error if there is no room for it.
fn take(
    answer: &Answer<'_>,
    fetched: &mut Fetched,
    (is_lossless, may_evict): (bool, bool),
    now: Seconds,
) -> Result<(), OutOfMemory> {
    let noted = match &answer.result {
        // Rather read again than lose an item that is not written.
        Ok(Some(found)) if !may_evict && found.lacks_room() => return Err(OutOfMemory),
        // Whatever has changed meanwhile, the request looks again.
        Ok(Some(found)) => return found.promote(now).map(|_| ()),
        Ok(None) => FlashAnswer::NoneOf { seen: answer.seen.clone(), is_sure: is_lossless },
        Err(_) => broken(is_lossless),
    };
    fetched.note(answer.hash, answer.key, noted);
    Ok(())
}

#[cfg(test)]
mod tests;
mod walks;
