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

/// How far the log is behind what is to come to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Behind {
    /// It has all.
    #[default]
    No,
    /// It takes nothing before something on flash dies, or never again.
    Stuck,
    /// It takes more in a moment.
    Waits,
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
    behind: Behind,
}

impl Copyist<'_> {
    fn choose(&mut self, due: &Due<'_>, is_leaving: bool) -> Choice {
        if due.need != Need::Copy {
            self.doubts.push(Doubt::of(due));
            return Choice::Later;
        }
        let must_wait = self.is_full_of_doubts && self.leaves_older(due);
        if must_wait || self.flights.bytes() >= self.options.bytes_in_flight_max {
            self.behind = Behind::Waits;
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
            Ok(place) => {
                if let Some(tombstone) = superseded {
                    self.held.iter_mut().for_each(|held| held.remove(&tombstone));
                }
                let bytes = due.key.len() + due.value.len();
                let kept = self.options.is_lossless.then(|| Box::new(kept));
                self.flights.copy(token, (due.ticket, place), bytes, kept);
                if self.leaves_older(due) {
                    self.doubts.push(Doubt::of(due));
                }
                Choice::Write(place)
            }
            Err(Refusal::TooLarge { .. }) => {
                self.counts.too_large += 1;
                Choice::Evict
            }
            Err(refusal) => {
                self.behind = if refusal == Refusal::Busy { Behind::Waits } else { Behind::Stuck };
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
        self.behind = Behind::No;
        for partition in 0..self.tier.engine.partitions() {
            did |= self.walk(partition, Goal::Leave, now).entries > 0;
        }
        self.tier.engine.set_flash_stuck(self.behind == Behind::Stuck);
        // What leaves goes first. What is admitted is not known before it leaves, unless all is.
        let options = &self.tier.options;
        let goal = match (options.is_lossless, options.admission) {
            // What was changed in memory has dead records, and their bytes are room. A group sees to that where there are any.
            (true, _) if self.tier.is_room_coming() && !options.holds_deaths() => Goal::Durable,
            (false, Admission::All) => Goal::Clean,
            _ => return did,
        };
        if self.behind != Behind::No {
            return did;
        }
        for partition in 0..self.tier.engine.partitions() {
            did |= self.walk(partition, goal, now).entries > 0;
        }
        did
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
            behind: Behind::No,
        };
        let choose = |due: &Due<'_>| copyist.choose(due, goal == Goal::Leave);
        let (entries_max, seconds) = (options.entries_a_turn, now.seconds);
        let walked = match goal {
            Goal::Leave => engine.walk_ahead(partition, entries_max, seconds, choose),
            Goal::Clean => engine.copy_ahead(partition, entries_max, seconds, choose),
            Goal::Durable => engine.copy_new(partition, entries_max, seconds, choose),
        };
        // The engine may have ended the walk itself: too many copies are on their way.
        let is_behind = copyist.behind != Behind::No || !walked.is_done && walked.entries < entries_max;
        let behind = if copyist.behind == Behind::Stuck { Behind::Stuck } else { Behind::Waits };
        self.behind = if walked.is_done { self.behind } else { self.behind.max(behind) };
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
