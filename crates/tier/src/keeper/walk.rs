//! Items that leave memory, or get copies.

use super::{
    Keeper, Now,
    examine::Doubt,
    flights::{Flights, Kept},
    graves::Held,
};
use crate::{
    options::{Admission, Options},
    payload,
    stats::KeeperCounts,
};
use minos_base::Seconds;
use minos_engine::{Choice, Due, Need, Walked};
use minos_flash::{Log, Refusal, format::Stream};

/// Items that expire within so many seconds go to a stream of their own.
const SHORT_LIVED_S: Seconds = 3600;

/// What a walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The items leave memory.
    Leave,
    /// They can leave it at once when they must.
    Clean,
    /// They survive a power loss.
    Durable,
}

/// Copies items into the log, under the lock of their partition.
struct Copyist<'a> {
    log: &'a mut Log,
    flights: &'a mut Flights,
    /// Tombstones of the group under way, and of the next.
    held: [&'a mut Held; 2],
    doubts: &'a mut Vec<Doubt>,
    /// Too many records of copied items are yet to be read.
    is_full_of_doubts: bool,
    counts: &'a mut KeeperCounts,
    options: &'a Options,
    now: Seconds,
    is_behind: bool,
}

impl Copyist<'_> {
    fn choose(&mut self, due: &Due<'_>, is_leaving: bool) -> Choice {
        if due.need != Need::Copy {
            self.doubts.push(Doubt::of(due));
            return Choice::Later;
        }
        let must_wait = self.is_full_of_doubts && self.leaves_older(due);
        if must_wait || self.flights.bytes() >= self.options.bytes_in_flight_max {
            self.is_behind = true;
            return Choice::Later;
        }
        let is_admitted = self.options.is_lossless
            || !is_leaving
            || self.options.admission == Admission::All
            || due.state.was_fetched();
        if !is_admitted {
            self.counts.not_admitted += 1;
            return Choice::Evict;
        }
        self.copy(due)
    }

    /// True if older records of the item would stay named. A cache has forgotten them.
    fn leaves_older(&self, due: &Due<'_>) -> bool {
        self.options.is_lossless && !due.doubts.is_empty()
    }

    fn copy(&mut self, due: &Due<'_>) -> Choice {
        let mut payload = Vec::new();
        payload::write(&mut payload, due.state.cas(), due.value);
        let expiry = due.state.expiry();
        let is_short = expiry != 0 && expiry.saturating_sub(self.now) < SHORT_LIVED_S;
        let superseded = self.held.iter().find_map(|held| held.superseded(due.hash, due.sequence));
        let (flags, marks) = payload::flags_and_marks_of(&due.state);
        let kept = Kept {
            stream: if is_short { Stream::ShortLived } else { Stream::New },
            hash: due.hash,
            key: due.key.into(),
            payload: payload.into(),
            sequence: due.sequence,
            expiry,
            flags,
            marks,
            replaces: superseded.map(|tombstone| tombstone.place),
        };
        let token = self.flights.next_token();
        match kept.append(self.log, token) {
            Ok(_) => {
                if let Some(tombstone) = superseded {
                    self.held.iter_mut().for_each(|held| held.remove(&tombstone));
                }
                let bytes = due.key.len() + due.value.len();
                let kept = self.options.is_lossless.then(|| Box::new(kept));
                self.flights.copy(token, due.ticket, bytes, kept);
                if self.leaves_older(due) {
                    self.doubts.push(Doubt::of(due));
                }
                Choice::Write
            }
            Err(Refusal::TooLarge { .. }) => {
                self.counts.too_large += 1;
                Choice::Evict
            }
            Err(refusal) => {
                self.is_behind = true;
                self.counts.log_busy += u64::from(refusal == Refusal::Busy);
                self.counts.log_full += u64::from(refusal == Refusal::Full);
                Choice::Later
            }
        }
    }
}

impl Keeper {
    /// Copies items that are about to leave memory.
    pub(super) fn walk_ahead(&mut self, now: Now) -> bool {
        let mut did = false;
        self.is_behind = false;
        for partition in 0..self.tier.engine.partitions() {
            did |= self.walk_towards(Goal::Leave, partition, now);
        }
        // What leaves goes first. What is admitted is not known before it leaves, unless all is.
        let is_clean = self.tier.options.is_lossless || self.tier.options.admission != Admission::All;
        if is_clean || self.is_behind {
            return did;
        }
        for partition in 0..self.tier.engine.partitions() {
            did |= self.walk_towards(Goal::Clean, partition, now);
        }
        did
    }

    fn walk_towards(&mut self, goal: Goal, partition: usize, now: Now) -> bool {
        let walked = self.walk(partition, goal, now);
        self.is_behind |= !walked.is_done;
        walked.entries > 0
    }

    /// Walks over some entries of a partition.
    pub(super) fn walk(&mut self, partition: usize, goal: Goal, now: Now) -> Walked {
        let mut doubts = Vec::new();
        let (engine, options) = (&self.tier.engine, &self.tier.options);
        let before = self.flights.bytes();
        let mut copyist = Copyist {
            log: &mut self.log,
            flights: &mut self.flights,
            held: [&mut self.group.graves, &mut self.graves.held],
            doubts: &mut doubts,
            is_full_of_doubts: self.examiner.is_full(),
            counts: &mut self.counts,
            options,
            now: now.seconds,
            is_behind: false,
        };
        let choose = |due: &Due<'_>| copyist.choose(due, goal == Goal::Leave);
        let (entries_max, seconds) = (options.entries_a_turn, now.seconds);
        let walked = match goal {
            Goal::Leave => engine.walk_ahead(partition, entries_max, seconds, choose),
            Goal::Clean => engine.copy_ahead(partition, entries_max, seconds, choose),
            Goal::Durable => engine.copy_new(partition, entries_max, seconds, choose),
        };
        // The engine may have ended the walk itself: too many copies are on their way.
        let is_behind = copyist.is_behind || !walked.is_done && walked.entries < options.entries_a_turn;
        if self.flights.bytes() != before {
            self.buffered_us = Some(self.buffered_us.map_or(now.us, |since| since.min(now.us)));
        }
        if is_behind && self.buffered_us.is_some() {
            // The walk waits for what is in the buffers.
            self.commit();
        }
        doubts.into_iter().for_each(|doubt| self.examiner.ask(doubt));
        walked
    }
}
