//! The keeper: brings items to the log, and the log's work to the device.

mod examine;
mod flights;
mod graves;
mod group;
mod hands;
mod image;
mod tell;
mod walk;

use crate::{
    index::{Names, forget_pages},
    stats::KeeperCounts,
    syncs::SyncId,
    tier::Tier,
};
use examine::Examiner;
use flights::Flights;
use graves::{Graves, Held};
use group::Group;
pub(crate) use hands::Hands;
use image::Imaging;
use minos_base::Seconds;
use minos_device::Lane;
use minos_flash::{Event, Log, Tombstone};
use std::{fmt, io, sync::Arc, time::Duration};
use tell::Teller;
use walk::Behind;

/// Longest sleep of a keeper to whom nobody calls: the scrubber goes on then.
const IDLE: Duration = Duration::from_secs(1);
/// Longest sleep while something is under way.
const UNDER_WAY: Duration = Duration::from_millis(5);

/// The time of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that only rises.
    pub us: u64,
    /// Seconds of the store's clock.
    pub seconds: Seconds,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Something was done: more may be due at once.
    pub did: bool,
    /// Otherwise, the longest time to sleep.
    pub rest: Duration,
    /// Requests of [`Tier::sync`] were served, or never will be: those who wait for them may go on.
    pub synced: bool,
}

/// Owns the log and the lane that writes. One thread calls [`Keeper::turn`].
pub struct Keeper {
    tier: Arc<Tier>,
    log: Log,
    hands: Hands,
    flights: Flights,
    graves: Graves,
    group: Group,
    examiner: Examiner,
    /// When the first item came into the buffers that are not handed out.
    buffered_us: Option<u64>,
    /// Lives that readers know.
    lives_shown: u32,
    /// Number of the newest journal that the engine knows of.
    journal_known: u64,
    emptying: Option<SyncId>,
    imaging: Imaging,
    behind: Behind,
    /// Requests were served in this turn, or given up.
    synced: bool,
    counts: KeeperCounts,
    teller: Teller,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flights, graves, group, .. } = self;
        f.debug_struct("Keeper")
            .field("flights", &flights.len())
            .field("graves", &graves.len())
            .field("group", group)
            .field("stats", &self.tier.stats())
            .finish_non_exhaustive()
    }
}

impl Keeper {
    pub(crate) fn new(tier: Arc<Tier>, log: Log, lane: Lane) -> io::Result<Self> {
        let examiner = Examiner::new(&tier)?;
        tier.engine.know_journal(log.journal_number());
        tier.publish_lives(&log);
        tier.publish(&log, lane.counts());
        tier.epochs.publish(log.epoch());
        let mut keeper = Self {
            lives_shown: log.lives_given(),
            journal_known: log.journal_number(),
            graves: Graves::of(&tier.superblock.layout),
            tier,
            log,
            hands: Hands::new(lane),
            flights: Flights::default(),
            group: Group::default(),
            examiner,
            buffered_us: None,
            emptying: None,
            imaging: Imaging::No,
            behind: Behind::No,
            synced: false,
            counts: KeeperCounts::default(),
            teller: Teller::default(),
        };
        let bad = keeper.log.bad_segments();
        if bad > 0 {
            tracing::warn!(bad, "the device failed in segments of flash before: they are not used any more");
        }
        if keeper.tier.options.holds_deaths() {
            keeper.log.groups(0, 0);
        }
        Ok(keeper)
    }

    /// Tombstones that recovery found to be due. What killed the records may be in memory alone.
    pub(crate) fn bury_first(&mut self, tombstones: Vec<Tombstone>) {
        if self.holds_deaths() {
            tombstones.into_iter().for_each(|tombstone| self.graves.held.push(tombstone));
        } else {
            self.graves.release(tombstones);
        }
    }

    /// The tier.
    pub fn tier(&self) -> &Arc<Tier> {
        &self.tier
    }

    /// Does a bounded piece of what is due. It does not block.
    ///
    /// # Errors
    /// Only errors that make a lane unusable.
    pub fn turn(&mut self, now: Now) -> io::Result<Turn> {
        self.tier.bell.take();
        let wished = self.tier.wishes.apply(&mut self.log);
        let mut did = self.take_completions(now)?;
        did |= self.take_events();
        did |= self.take_findings(now)?;
        did |= self.empty_if_asked();
        did |= self.append_again();
        did |= self.take_deaths();
        did |= self.bury(now);
        did |= self.walk_ahead(now);
        did |= self.advance_group(now);
        did |= self.advance_image(now);
        did |= self.examine()?;
        self.commit_if_due(now);
        did |= self.hand_out(now)?;
        did |= self.take_events();
        self.teller.tell(now.us, &self.log.counters());
        self.tier.kept.add(&std::mem::take(&mut self.counts));
        let tombstones = self.graves.len() + self.group.graves.len();
        self.tier.publish_room(&self.log, (self.flights.bytes() as u64, tombstones));
        self.tier.publish(&self.log, self.hands.lane.counts());
        wished.into_iter().for_each(|number| self.tier.wishes.done(number));
        let synced = std::mem::take(&mut self.synced);
        Ok(Turn { did, rest: self.rest(now), synced })
    }

    /// Sleeps until a request has ended, somebody calls, or the time of a turn is over.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn rest_for(&mut self, turn: &Turn) -> io::Result<()> {
        if turn.did {
            return Ok(());
        }
        if self.hands.lane.in_flight() > 0 {
            return self.hands.wait(turn.rest);
        }
        if self.examiner.is_reading() {
            return self.examiner.wait(turn.rest);
        }
        self.tier.bell.rest(turn.rest);
        Ok(())
    }

    /// The lane, to sleep on.
    pub fn lane(&mut self) -> &mut Lane {
        &mut self.hands.lane
    }

    /// True if nothing is on its way to the device.
    pub fn is_idle(&self) -> bool {
        let is_waiting = self.graves.has_due() || self.buffered_us.is_some();
        let is_owed = self.behind == Behind::Waits || self.emptying.is_some() || self.log.is_compacting();
        self.hands.is_idle() && self.flights.are_written() && self.group.is_idle() && !is_waiting && !is_owed
    }

    fn rest(&self, now: Now) -> Duration {
        if self.log.is_read_only() && self.hands.is_idle() {
            // What waits for the log waits in vain.
            return IDLE;
        }
        if !self.is_idle() || self.examiner.is_busy() || self.log.scrub_state().left.is_some() {
            return UNDER_WAY;
        }
        self.group.due_in(&self.tier.options, now).map_or(IDLE, |due| due.min(IDLE))
    }

    fn take_completions(&mut self, now: Now) -> io::Result<bool> {
        let (log, mut names) = (&mut self.log, Names { engine: &self.tier.engine, now: now.seconds });
        let taken = self.hands.take(|id, outcome| log.done(id, outcome, &mut names))?;
        Ok(taken > 0)
    }

    /// The log's news.
    fn take_events(&mut self) -> bool {
        let events: Vec<Event> = self.log.events().collect();
        for event in &events {
            match *event {
                Event::Written { token, place } => self.written(token, place),
                Event::Durable { token } => self.flights.durable(token),
                Event::Failed { token } => self.flights.failed(token),
                Event::Lost { .. } => self.counts.lost += 1,
                Event::LostNameless { records } => self.counts.lost += records,
                Event::Emptied => self.emptied(),
                Event::ReadOnly => {
                    tracing::error!("flash failed at a flush or the journal: nothing more is written there");
                    self.tier.syncs.end();
                    self.synced = true;
                }
            }
        }
        !events.is_empty()
    }

    /// Hands out what waits in buffers for too long.
    fn commit_if_due(&mut self, now: Now) {
        let linger_us = self.tier.options.linger_us;
        if self.buffered_us.is_some_and(|since| now.us >= since + linger_us) {
            self.commit();
        }
    }

    fn commit(&mut self) {
        self.log.commit();
        self.buffered_us = None;
    }

    /// Makes durable what was appended.
    fn flush(&mut self) {
        self.log.flush();
        self.buffered_us = None;
    }

    fn hand_out(&mut self, now: Now) -> io::Result<bool> {
        // The index no longer names what was emptied in earlier epochs.
        self.tier.epochs.publish(self.log.epoch());
        let passed = self.tier.epochs.passed();
        let mut names = Names { engine: &self.tier.engine, now: now.seconds };
        self.log.poll(now.us, passed, &mut names, self.hands.jobs());
        self.know_journal();
        if self.lives_shown != self.log.lives_given() {
            self.lives_shown = self.log.lives_given();
            self.tier.publish_lives(&self.log);
        }
        self.hands.submit()
    }

    /// A region that outlives the process knows of a journal before that is on the device.
    fn know_journal(&mut self) {
        if self.journal_known != self.log.journal_number() {
            self.journal_known = self.log.journal_number();
            self.tier.engine.know_journal(self.journal_known);
        }
    }

    /// Serves a `flush_all`: the index forgets everything, then the log does.
    fn empty_if_asked(&mut self) -> bool {
        let Some(id) = self.tier.syncs.newest_empty().filter(|id| self.emptying.is_none_or(|it| it < *id))
        else {
            return false;
        };
        let engine = Arc::clone(&self.tier.engine);
        engine.flush();
        forget_pages(&engine, |_| true);
        (0..engine.partitions()).for_each(|partition| drop(engine.take_tombstones(partition, usize::MAX)));
        self.graves.clear();
        self.group.graves = Held::default();
        self.log.empty_all();
        self.flights.empty();
        self.emptying = Some(id);
        self.counts.flushed_all += 1;
        true
    }

    fn emptied(&mut self) {
        if let Some(id) = self.emptying.take() {
            self.tier.syncs.serve_empty(id);
        }
    }

    /// Appends a tombstone; false if the log takes none now.
    fn bury_one(&mut self, tombstone: &Tombstone) -> bool {
        let token = self.flights.next_token();
        match self.log.bury(tombstone, token) {
            Ok(true) => {
                self.counts.tombstones_written += 1;
                self.flights.bury(token, *tombstone);
                true
            }
            // It cannot come back, or nothing more is written.
            Ok(false) | Err(minos_flash::Refusal::ReadOnly) => true,
            Err(_) => false,
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Nobody serves requests any more.
        self.tier.syncs.end();
        self.tier.wishes.end();
        self.tier.snapshots.end();
    }
}
