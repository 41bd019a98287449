//! Where each micro-shard is, as workers see it while it changes.
//!
//! One thread changes routes; workers read them without a lock. A worker notices a change at the beginning of its
//! next turn, so that a turn that has begun before may still go by what was. [`Routes::pass`] waits until no turn does:
//! it is the pass of all writers without which a micro-shard must not be given away.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use minos_base::KeyHash;
use minos_unit::MICRO_SHARDS_MAX;
use parking_lot::Mutex;

/// The bits of a word that name a node.
const NODE: u16 = 0x0fff;
/// A copy of it may be read here.
const COPIED: u16 = 0x1000;
/// Changes are handed over to followers.
const FED: u16 = 0x2000;
/// Changes are noted.
const NOTING: u16 = 0x4000;
/// Changes wait; reads go on.
const FROZEN: u16 = 0x8000;

/// The number that stands for no node: the micro-shard changes hands, or this node has no lease.
pub(crate) const NOWHERE: u16 = NODE;

/// Most changes of a micro-shard that are noted at a time; with more, its move has to begin again.
const NOTES_MAX: usize = 1 << 18;
/// The end of a lease that has none: in a century.
const FOR_EVER_US: u64 = 100 * 365 * 24 * 3600 * 1_000_000;
/// Longest time between two looks whether a pass has become pointless.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The routes to all micro-shards, and the lease under which this node may answer.
pub(crate) struct Routes {
    /// As many as there may be at most, so that no access has a bound to check.
    words: Box<[AtomicU16; MICRO_SHARDS_MAX as usize]>,
    /// How many there are.
    micro_shards: u32,
    /// Raised after each change.
    version: AtomicU64,
    /// Micro-shards whose changes are handed over.
    fed: AtomicUsize,
    /// True if a route was changed since the version was raised for that.
    has_changed: AtomicBool,
    /// The version that each worker has noticed.
    noticed: Box<[AtomicU64]>,
    /// The thread that waits until workers have noticed a version.
    passing: Mutex<Option<Thread>>,
    /// From which times are counted.
    pub(crate) zero: Instant,
    /// Microseconds since `zero` at which the lease ends.
    lease_until_us: AtomicU64,
    /// Number of the lease. A lease that does not follow another without a gap has another number.
    lease: AtomicU64,
    /// Microseconds since `zero` at which copies are too old to be read.
    fresh_until_us: AtomicU64,
    /// The changed keys of micro-shards that are being copied; `None` once there were too many.
    notes: Mutex<HashMap<u32, Option<Vec<KeyHash>>>>,
}

/// The right of a worker's turn to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Right(u64);

/// A right, and until when a turn has it at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) right: Right,
    pub(crate) until: Instant,
}

/// Lets answers of a turn leave, as long as this node has had the right to give them since the turn began. A process may
/// be stopped at any moment: somebody else may have got the right meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Guard<'a> {
    pub(crate) routes: &'a Routes,
    pub(crate) term: Option<Term>,
}

impl Guard<'_> {
    /// True if answers may leave now. A turn without the right has touched no item.
    #[inline]
    pub(crate) fn may_answer(&self) -> bool {
        self.term.is_none_or(|term| self.routes.may_answer(&term))
    }

    /// The right of the turn.
    pub(crate) fn right(&self) -> Option<Right> {
        self.term.map(|term| term.right)
    }

    /// True if this node has had a right since it was given, or needs none.
    pub(crate) fn is_still(&self, right: Option<Right>) -> bool {
        right.is_none_or(|right| self.routes.has_still(right))
    }
}

impl Routes {
    /// Routes to `micro_shards` for so many workers: all nowhere, and without a lease.
    pub(crate) fn new(micro_shards: u32, workers: usize) -> Self {
        Self {
            words: Box::new([const { AtomicU16::new(NOWHERE) }; MICRO_SHARDS_MAX as usize]),
            micro_shards,
            version: AtomicU64::new(1),
            fed: AtomicUsize::new(0),
            has_changed: AtomicBool::new(false),
            noticed: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            passing: Mutex::default(),
            zero: Instant::now(),
            lease_until_us: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            fresh_until_us: AtomicU64::new(0),
            notes: Mutex::default(),
        }
    }

    #[inline]
    fn word(&self, micro_shard: u32) -> &AtomicU16 {
        const { assert!(MICRO_SHARDS_MAX == 1 << u16::BITS) };
        debug_assert!(micro_shard < self.micro_shards);
        &self.words[usize::from(micro_shard as u16)]
    }

    /// True if a node may do anything with a key of a micro-shard, and nobody is to hear of it. Else the node may have it
    /// all the same.
    #[inline]
    pub(crate) fn is_settled_at(&self, micro_shard: u32, node: u16) -> bool {
        self.word(micro_shard).load(Ordering::Relaxed) == node
    }

    /// The node to read a key of a micro-shard at.
    #[inline]
    pub(crate) fn reader(&self, micro_shard: u32) -> u16 {
        self.word(micro_shard).load(Ordering::Relaxed) & NODE
    }

    /// The node to change a key of a micro-shard at; `None` while changes wait.
    #[inline]
    pub(crate) fn writer(&self, micro_shard: u32) -> Option<u16> {
        let word = self.word(micro_shard).load(Ordering::Relaxed);
        (word & FROZEN == 0).then_some(word & NODE)
    }

    /// Whether changes to a micro-shard are to be noted, and whether to be handed over.
    #[inline]
    pub(crate) fn notes(&self, micro_shard: u32) -> (bool, bool) {
        let word = self.word(micro_shard).load(Ordering::Relaxed);
        (word & NOTING != 0, word & FED != 0)
    }

    /// Sets the node of a micro-shard, and whether changes wait.
    pub(crate) fn set(&self, micro_shard: u32, node: u16, is_frozen: bool) {
        let word = self.word(micro_shard);
        let old = word.load(Ordering::Relaxed);
        let new = old & (NOTING | FED | COPIED) | node | if is_frozen { FROZEN } else { 0 };
        if old != new {
            word.store(new, Ordering::Relaxed);
            self.has_changed.store(true, Ordering::Relaxed);
        }
    }

    /// How many micro-shards are at a node.
    pub(crate) fn count(&self, node: u16) -> usize {
        (0..self.micro_shards).filter(|micro_shard| self.reader(*micro_shard) == node).count()
    }

    /// The version of the routes.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // Acquire: pairs with the change that raised it.
        self.version.load(Ordering::Acquire)
    }

    /// Lets workers notice changes of routes, if there were any since the last call; true if there were.
    pub(crate) fn raise_if_changed(&self) -> bool {
        let has_changed = self.has_changed.swap(false, Ordering::Relaxed);
        if has_changed {
            self.raise();
        }
        has_changed
    }

    /// Lets workers notice what was changed.
    pub(crate) fn raise(&self) -> u64 {
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Says that a worker goes by no older version.
    pub(crate) fn notice(&self, worker: usize, version: u64) {
        // Release: whoever sees it sees all that the worker did before.
        self.noticed[worker].store(version, Ordering::Release);
        self.passing.lock().iter().for_each(Thread::unpark);
    }

    /// Waits until no worker goes by older routes; false if `is_over` before. `wake` wakes all workers.
    pub(crate) fn pass(&self, wake: impl Fn(), is_over: impl Fn() -> bool) -> bool {
        self.has_changed.store(false, Ordering::Relaxed);
        // Before workers can notice, so that each of them wakes this thread.
        *self.passing.lock() = Some(thread::current());
        let version = self.raise();
        wake();
        let has_noticed = |noticed: &AtomicU64| noticed.load(Ordering::Acquire) >= version;
        let has_passed = loop {
            if self.noticed.iter().all(has_noticed) {
                break true;
            }
            if is_over() {
                break false;
            }
            thread::park_timeout(LOOK_EVERY);
        };
        *self.passing.lock() = None;
        has_passed
    }

    /// Lets this node answer for ever: nobody else gives its micro-shards away.
    pub(crate) fn hold_for_ever(&self) {
        self.lease_until_us.store(u64::MAX, Ordering::Relaxed);
    }

    /// Extends the lease of this number until a time of [`Routes::now_us`]. Workers look again if it is another lease.
    pub(crate) fn hold(&self, number: u64, until_us: u64) {
        // In this order: a turn with the old number that sees the new end finds the number changed afterwards.
        let is_another = self.lease.swap(number, Ordering::SeqCst) != number;
        self.lease_until_us.store(until_us, Ordering::SeqCst);
        if is_another {
            self.raise();
        }
    }

    /// A moment as microseconds, as leases count them.
    pub(crate) fn now_us(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.zero).as_micros() as u64
    }

    /// The right to answer from now on, if this node has it.
    #[inline]
    pub(crate) fn right(&self, now: Instant) -> Option<Right> {
        let number = self.lease.load(Ordering::SeqCst);
        (self.now_us(now) < self.lease_until_us.load(Ordering::SeqCst)).then_some(Right(number))
    }

    /// The right to answer from now on, if this node has it.
    pub(crate) fn term(&self, now: Instant) -> Option<Term> {
        let right = self.right(now)?;
        let until_us = self.lease_until_us.load(Ordering::SeqCst).min(FOR_EVER_US);
        // The end may be that of another lease.
        let is_its_own = self.lease.load(Ordering::SeqCst) == right.0;
        let until = if is_its_own { self.zero + Duration::from_micros(until_us) } else { now };
        Some(Term { right, until })
    }

    /// True if this node has had the right since the term was given. The end of a lease only grows, so that most turns need not
    /// look at it.
    #[inline]
    pub(crate) fn may_answer(&self, term: &Term) -> bool {
        self.is_within(term, Instant::now()) || self.has_still(term.right)
    }

    #[inline]
    fn is_within(&self, term: &Term, now: Instant) -> bool {
        now < term.until && self.lease.load(Ordering::SeqCst) == term.right.0
    }

    #[cold]
    pub(super) fn has_still(&self, right: Right) -> bool {
        self.right(Instant::now()) == Some(right)
    }

    /// Begins to note the changes of a micro-shard, with none.
    pub(crate) fn note(&self, micro_shard: u32) {
        self.notes.lock().insert(micro_shard, Some(Vec::new()));
        self.word(micro_shard).fetch_or(NOTING, Ordering::Relaxed);
    }

    /// Ends that.
    pub(crate) fn stop_noting(&self, micro_shard: u32) {
        self.word(micro_shard).fetch_and(!NOTING, Ordering::Relaxed);
        self.notes.lock().remove(&micro_shard);
    }

    /// Begins or ends to hand the changes of a micro-shard over.
    pub(crate) fn feed(&self, micro_shard: u32, is_fed: bool) {
        let was_fed = self.mark(micro_shard, FED, is_fed);
        // Relaxed: no follower counts on changes before a pass.
        match (was_fed, is_fed) {
            (false, true) => self.fed.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.fed.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// True if changes of any micro-shard are to be handed over. A turn that has begun before need not know.
    #[inline]
    pub(crate) fn is_feeding(&self) -> bool {
        self.fed.load(Ordering::Relaxed) > 0
    }

    /// Lets a copy of a micro-shard be read here, or no longer; true if it could be read before.
    pub(crate) fn copy(&self, micro_shard: u32, is_copied: bool) -> bool {
        self.mark(micro_shard, COPIED, is_copied)
    }

    /// Sets or clears a mark; true if it was set before.
    fn mark(&self, micro_shard: u32, mark: u16, is_set: bool) -> bool {
        let word = self.word(micro_shard);
        let old = match is_set {
            true => word.fetch_or(mark, Ordering::Relaxed),
            false => word.fetch_and(!mark, Ordering::Relaxed),
        };
        old & mark != 0
    }

    /// Lets copies be read until a time of [`Routes::now_us`].
    pub(crate) fn freshen(&self, until_us: u64) {
        self.fresh_until_us.store(until_us, Ordering::SeqCst);
    }

    /// True if copies may be read.
    #[inline]
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let until_us = self.fresh_until_us.load(Ordering::SeqCst);
        until_us > 0 && self.now_us(now) < until_us
    }

    /// True if a copy of a micro-shard may be read here as long as it is fresh.
    #[inline]
    pub(crate) fn is_copied(&self, micro_shard: u32) -> bool {
        self.word(micro_shard).load(Ordering::Relaxed) & COPIED != 0
    }

    /// Takes in changes that were made.
    pub(crate) fn add_notes(&self, changes: impl Iterator<Item = (u32, KeyHash)>) {
        let mut noted = self.notes.lock();
        for (micro_shard, hash) in changes {
            let Some(list) = noted.get_mut(&micro_shard) else { continue };
            match list {
                Some(hashes) if hashes.len() < NOTES_MAX => hashes.push(hash),
                _ => *list = None,
            }
        }
    }

    /// Everything noted so far counts as lost: too much has changed at once.
    pub(crate) fn lose_notes(&self) {
        self.notes.lock().values_mut().for_each(|list| *list = None);
    }

    /// The keys of a micro-shard that have changed, each once; `None` if some were lost. Then none are left.
    pub(crate) fn take_notes(&self, micro_shard: u32) -> Option<Vec<KeyHash>> {
        let mut hashes = self.notes.lock().get_mut(&micro_shard)?.replace(Vec::new())?;
        hashes.sort_unstable_by_key(|hash| hash.0);
        hashes.dedup();
        Some(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_micro_shard_is_read_where_it_is() {
        let routes = Routes::new(2, 1);
        assert_eq!((routes.reader(0), routes.writer(0)), (NOWHERE, Some(NOWHERE)));
        routes.note(0);
        routes.set(0, 5, false);
        routes.feed(0, true);
        assert_eq!((routes.reader(0), routes.writer(0), routes.notes(0)), (5, Some(5), (true, true)));
        routes.set(0, 5, true);
        assert_eq!((routes.reader(0), routes.writer(0), routes.notes(0)), (5, None, (true, true)));
        routes.stop_noting(0);
        assert_eq!((routes.reader(0), routes.notes(0), routes.count(5)), (5, (false, true), 1));
        routes.feed(0, false);
        assert_eq!(routes.notes(0), (false, false));
    }

    #[test]
    fn feeding_ends_with_the_last_micro_shard_that_is_fed() {
        let routes = Routes::new(3, 1);
        for (micro_shard, is_fed, is_feeding) in [
            (0, false, false),
            (0, true, true),
            (0, true, true),
            (1, true, true),
            (0, false, true),
            (1, false, false),
        ] {
            routes.feed(micro_shard, is_fed);
            assert_eq!(routes.is_feeding(), is_feeding, "{micro_shard} {is_fed}");
        }
        assert!(!routes.copy(2, true));
        assert!(!routes.is_feeding());
    }

    #[test]
    fn changes_are_noted_once_and_too_many_are_lost() {
        let routes = Routes::new(3, 1);
        let changes = |hashes: &[u64]| hashes.iter().map(|hash| (1, KeyHash(*hash))).collect::<Vec<_>>();
        routes.add_notes(changes(&[1]).into_iter());
        assert_eq!(routes.take_notes(1), None);
        routes.note(1);
        routes.add_notes(changes(&[7, 3, 7]).into_iter());
        assert_eq!(routes.take_notes(1), Some(vec![KeyHash(3), KeyHash(7)]));
        assert_eq!(routes.take_notes(1), Some(vec![]));
        let many: Vec<u64> = (0..=NOTES_MAX as u64).collect();
        routes.add_notes(changes(&many).into_iter());
        assert_eq!(routes.take_notes(1), None);
    }

    #[test]
    fn a_lease_that_ends_takes_the_right_with_it() {
        let routes = Routes::new(1, 1);
        let at = |us| routes.zero + Duration::from_micros(us);
        assert_eq!(routes.right(at(0)), None);
        routes.hold(1, 100);
        let right = routes.right(at(99));
        assert!(right.is_some() && routes.right(at(100)).is_none());
        routes.hold(1, 200);
        assert_eq!(routes.right(at(150)), right);
        routes.hold(2, 400);
        assert_ne!(routes.right(at(300)), right);
    }

    #[test]
    fn a_term_lasts_as_long_as_its_lease_was_known_to_last() {
        let routes = Routes::new(1, 1);
        let at = |us| routes.zero + Duration::from_micros(us);
        let is_within = |term: &Term, us: u64| routes.is_within(term, at(us));
        assert!(routes.term(at(0)).is_none());
        routes.hold(1, 100);
        let term = routes.term(at(50)).unwrap();
        assert!(Some(term.right) == routes.right(at(50)) && is_within(&term, 99));
        assert_eq!(term.until, at(100));
        routes.hold(1, 200);
        assert!(!is_within(&term, 100) && is_within(&routes.term(at(100)).unwrap(), 199));
        // A lease with a gap before it.
        routes.hold(2, 400);
        assert!(!is_within(&term, 99));
        routes.hold_for_ever();
        assert!(is_within(&routes.term(at(50)).unwrap(), 1 << 50));
    }

    #[test]
    fn workers_are_told_of_another_lease_but_not_of_a_longer_one() {
        let routes = Routes::new(1, 1);
        let raises = |number, until_us| {
            let before = routes.version();
            routes.hold(number, until_us);
            routes.version() != before
        };
        assert!(raises(1, 100) && !raises(1, 200) && raises(2, 400));
    }

    #[test]
    fn a_pass_ends_when_every_worker_has_noticed() {
        let (routes, is_over) = (Routes::new(1, 2), AtomicBool::new(false));
        let passes = || routes.pass(|| (), || is_over.load(Ordering::Relaxed));
        thread::scope(|scope| {
            let pass = scope.spawn(passes);
            while routes.version() == 1 {
                thread::yield_now();
            }
            routes.notice(0, routes.version());
            thread::sleep(Duration::from_millis(5));
            assert!(!pass.is_finished());
            routes.notice(1, routes.version());
            assert!(pass.join().unwrap());
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(!passes());
    }
}
