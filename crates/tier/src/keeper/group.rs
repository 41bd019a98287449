//! Groups: everything stored so far becomes durable, then the tombstones that were due.

use super::{Keeper, Now, graves::Held, walk::Goal};
use crate::{
    options::{Durability, Options},
    syncs::SyncId,
};
use std::{fmt, time::Duration};

/// Shortest time between the beginnings of two groups for room, in microseconds.
const ROOM_US: u64 = 50_000;

/// How far a group is.
#[derive(Debug, Default)]
enum Phase {
    /// None is under way.
    #[default]
    Idle,
    /// Waits for what was on its way before: some of it may turn out to be dead.
    Settle(u64),
    /// Copies what was stored before, partition after partition.
    Copy(usize),
    /// Waits until the copies up to this token are durable.
    Flush(u64),
    /// Appends the tombstones.
    Bury,
    /// Waits until the tombstones up to this token are durable.
    FlushGraves(u64),
}

/// The group under way.
#[derive(Default)]
pub(crate) struct Group {
    phase: Phase,
    /// Groups begun.
    number: u64,
    /// The newest request that it serves.
    serves: Option<SyncId>,
    /// Copies that were given up before it began to copy.
    given_up: u64,
    /// The tombstones that were due when it began.
    pub(super) graves: Held,
    /// When the last one began.
    begun_us: Option<u64>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phase, number, serves, .. } = self;
        write!(f, "{phase:?} of {number} for {serves:?}")
    }
}

impl Group {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// The time until the next group by the clock.
    pub(crate) fn due_in(&self, options: &Options, now: Now) -> Option<Duration> {
        let Durability::Interval(interval_ms) = options.durability else { return None };
        let due_us = self.begun_us.map_or(now.us, |begun| begun + interval_ms * 1000);
        Some(Duration::from_micros(due_us.saturating_sub(now.us)))
    }
}

impl Group {
    /// True if the last one began long enough ago for another one that makes room.
    fn has_rested(&self, now: Now) -> bool {
        self.begun_us.is_none_or(|begun| now.us >= begun + ROOM_US)
    }
}

impl Keeper {
    /// A step of the group under way, or the beginning of the next.
    pub(super) fn advance_group(&mut self, now: Now) -> bool {
        if self.log.is_read_only() {
            return false;
        }
        match self.group.phase {
            Phase::Idle => self.begin_group(now),
            Phase::Settle(token) if self.flights.is_written(token) => self.begin_copies(),
            Phase::Copy(partition) => self.copy_some(partition, now),
            Phase::Flush(token) if self.flights.is_durable(token) => {
                // Given up is not durable: those items are copied again.
                if self.flights.given_up() == self.group.given_up { self.end_copies() } else { self.copy() }
            }
            Phase::Bury if !self.graves.has_due() => {
                self.flush();
                self.group.phase = Phase::FlushGraves(self.flights.last_token());
                true
            }
            Phase::FlushGraves(token) if self.flights.is_durable(token) => self.end_group(),
            _ => false,
        }
    }

    fn begin_group(&mut self, now: Now) -> bool {
        let asked = self.tier.syncs.newest();
        let is_time = self.group.due_in(&self.tier.options, now).is_some_and(|due| due.is_zero());
        // Dead records are room.
        let is_room = self.tier.is_room_coming() && self.group.has_rested(now);
        let is_needed = self.log.waits_for_group() || self.graves.is_full() || is_room;
        if asked.is_none() && !is_time && !is_needed {
            return false;
        }
        self.group.serves = asked;
        self.group.begun_us = Some(now.us);
        self.commit();
        self.group.phase = Phase::Settle(self.flights.last_token());
        true
    }

    fn begin_copies(&mut self) -> bool {
        self.take_all_deaths();
        self.group.graves = self.graves.take_held();
        self.group.number += 1;
        self.tell_log();
        self.copy()
    }

    fn copy(&mut self) -> bool {
        self.group.given_up = self.flights.given_up();
        self.group.phase = Phase::Copy(0);
        true
    }

    fn copy_some(&mut self, partition: usize, now: Now) -> bool {
        if partition == self.tier.engine.partitions() {
            self.flush();
            self.group.phase = Phase::Flush(self.flights.last_token());
            return true;
        }
        let walked = self.walk(partition, Goal::Durable, now);
        if walked.is_done {
            self.group.phase = Phase::Copy(partition + 1);
        }
        walked.is_done || walked.entries > 0
    }

    /// What killed the records of the tombstones is durable.
    fn end_copies(&mut self) -> bool {
        let graves = std::mem::take(&mut self.group.graves);
        self.graves.release(graves);
        if !self.graves.has_due() {
            return self.end_group();
        }
        self.group.phase = Phase::Bury;
        true
    }

    fn end_group(&mut self) -> bool {
        self.group.phase = Phase::Idle;
        self.tell_log();
        self.counts.syncs += 1;
        if let Some(id) = self.group.serves.take() {
            self.tier.syncs.serve(id);
            self.synced = true;
        }
        true
    }

    /// Tells the log which groups have begun and which are done.
    pub(super) fn tell_log(&mut self) {
        if self.holds_deaths() {
            let is_done = self.group.is_idle();
            self.log.groups(self.group.number, self.group.number.saturating_sub(u64::from(!is_done)));
        }
    }
}
