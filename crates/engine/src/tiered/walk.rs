//! Settles entries ahead of the head of a log, the oldest first.

use super::{
    cold::place_of_twin,
    tier::{Flash, LogMode, Tier},
};
use crate::{
    chain::Place,
    holding::{HeldClaim, claim_of_writer},
    item::ItemState,
    log::{Log, LogEntry, Twin},
    mode::{Candidates, SEEN_MAX},
    position::{Position, PositionBits},
    settled::{inline_value, key_of},
    slot::Slot,
    store::{Engine, Writing},
};
use minos_base::{FlashPlace, KeyHash, Seconds};
use minos_region::View;
use minos_sync::{Access, Bell};
use std::sync::Arc;

/// Segments that are settled ahead of the head of a full log.
const AHEAD_SEGMENTS: u64 = 2;

/// The oldest part (1/4) of the log of a full cache that has copies: a burst of stores finds room without a wait for
/// flash, and what is read again is still in memory.
const CLEAN_PART: u64 = 4;

/// Names a copy on its way to flash, until [`Engine::written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) partition: usize,
    pub(super) number: u64,
    pub(super) position: u64,
    pub(super) hash: KeyHash,
    pub(super) sequence: u64,
}

/// An item that is about to leave memory.
#[derive(Debug)]
pub struct Due<'a> {
    /// To be kept if the item is copied.
    pub ticket: Ticket,
    /// The key's hash.
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
    /// The value; empty for an item that needs no copy.
    pub value: &'a [u8],
    /// Flags, expiry, CAS unique, and whether it was read.
    pub state: ItemState,
    /// The sequence of the record: higher than those of all records and tombstones of the partition so far.
    pub sequence: u64,
    /// Records that may be older ones of this key.
    pub doubts: Candidates,
    /// What it needs to leave.
    pub need: Need,
}

/// The room on flash for items that a table which may lose nothing has yet to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashSpace {
    /// There is more than memory could fill.
    #[default]
    Plenty,
    /// Memory could fill it: each store calls the thread that knows how much there is.
    Scarce,
    /// There is none: new items are refused.
    None,
}

/// What an item needs to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A copy on flash.
    Copy,
    /// It is dead, and stays only because of its doubts: see [`Engine::resolve`].
    Resolution,
    /// It has a copy, but too many records have its hash bits: those of its doubts that are older ones of its
    /// key are to be dropped.
    Room,
}

/// What becomes of an item that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Its copy is on its way to this place: [`Engine::written`] will be called with the ticket, or [`Engine::failed`].
    Write(FlashPlace),
    /// It is given up; in [`Engine::copy_new`] it stays without a copy. In a table that may lose nothing, as
    /// [`Choice::Later`].
    Evict,
    /// The walk ends here, and comes back to it.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The entries leave memory.
    Leave,
    /// Those with large values leave memory.
    LeaveLarge,
    /// They have copies.
    Copy,
}

/// Asks what becomes of an item.
pub(super) type Choose<'a> = &'a mut dyn FnMut(&Due<'_>) -> Choice;

/// The result of a part of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Entries settled or given to the caller.
    pub entries: usize,
    /// Items whose slot names a record again that was there all the time.
    pub put_back: usize,
    /// True if nothing is due before more is stored.
    pub is_done: bool,
}

impl<B: PositionBits, A: Access> Engine<LogMode<B, Flash>, A> {
    /// Rings this bell when there is more to do for the thread that moves items to flash. Only the first bell counts.
    pub fn call_by(&self, bell: Arc<Bell>) {
        self.common.call_by(bell);
    }

    /// Says whether flash takes no items now, and will not in a moment: nothing in memory waits for it then.
    pub fn set_flash_stuck(&self, is_stuck: bool) {
        self.common.set_flash_stuck(is_stuck);
    }

    /// Says how much room flash has for new items.
    pub fn set_flash_room(&self, room: FlashSpace) {
        self.common.set_flash_room(room);
    }

    /// True if flash takes no items.
    pub fn is_flash_stuck(&self) -> bool {
        self.common.is_flash_stuck()
    }

    /// Walks over at most `entries_max` entries of a partition ahead of the head of its log, if that is full. If large
    /// values need room, it goes on to the log's end for the large ones: a large value costs no small ones.
    ///
    /// `choose` is called under the partition's lock for the items that have no copy on flash: it copies what
    /// it wants to write, and must not use the table.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn walk_ahead(
        &self,
        partition: usize,
        entries_max: usize,
        now: Seconds,
        mut choose: impl FnMut(&Due<'_>) -> Choice,
    ) -> Walked {
        let end =
            |region: &View, log: &Log<B>| log.is_moving(region).then(|| log.full_end(region, AHEAD_SEGMENTS));
        let mut walked = self.walk_to(end, partition, (entries_max, now), Way::Leave, &mut choose);
        if walked.is_done && self.common.wants_room(self.memory()) {
            let tail = |region: &View, log: &Log<B>| Some(log.tail(region));
            let left = entries_max - walked.entries;
            let further = self.walk_to(tail, partition, (left, now), Way::LeaveLarge, &mut choose);
            walked.entries += further.entries;
            walked.put_back += further.put_back;
            walked.is_done = further.is_done;
        }
        walked
    }

    /// As [`Engine::walk_ahead`], further: the items stay in memory and have copies on flash, so that they need not wait
    /// for those when they leave. For a table that evicts rather than wait.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn copy_ahead(
        &self,
        partition: usize,
        entries_max: usize,
        now: Seconds,
        mut choose: impl FnMut(&Due<'_>) -> Choice,
    ) -> Walked {
        let end = |region: &View, log: &Log<B>| {
            log.is_moving(region).then(|| log.full_end(region, log.segments(region) / CLEAN_PART))
        };
        self.walk_to(end, partition, (entries_max, now), Way::Copy, &mut choose)
    }

    /// As [`Engine::walk_ahead`], over what was stored since the last call, full or not: the items stay in
    /// memory and have copies on flash. For a table to be durable.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn copy_new(
        &self,
        partition: usize,
        entries_max: usize,
        now: Seconds,
        mut choose: impl FnMut(&Due<'_>) -> Choice,
    ) -> Walked {
        let all = |region: &View, log: &Log<B>| Some(log.tail(region));
        self.walk_to(all, partition, (entries_max, now), Way::Copy, &mut choose)
    }

    /// As [`Engine::walk_ahead`], over everything stored so far, full or not. For tests.
    ///
    /// # Panics
    /// If there is no such partition.
    #[doc(hidden)]
    pub fn walk_all(
        &self,
        partition: usize,
        entries_max: usize,
        now: Seconds,
        mut choose: impl FnMut(&Due<'_>) -> Choice,
    ) -> Walked {
        let all = |region: &View, log: &Log<B>| Some(log.tail(region));
        self.walk_to(all, partition, (entries_max, now), Way::Leave, &mut choose)
    }

    fn walk_to(
        &self,
        end: impl FnOnce(&View, &Log<B>) -> Option<Position<B>>,
        partition: usize,
        (entries_max, now): (usize, Seconds),
        way: Way,
        choose: Choose<'_>,
    ) -> Walked {
        let mut writing = self.writing_at(partition);
        let Some(end) = end(writing.region(), &writing.partition.space) else {
            return Walked { is_done: true, ..Walked::default() };
        };
        writing.writer.now = now;
        writing.walk((entries_max, end), way, Some(choose))
    }
}

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    /// Where the walk has come to: what lies before leaves memory.
    pub(super) fn ahead(&self) -> Position<B> {
        self.partition.space.not_before_head(self.region(), self.writer.room.tier.ahead())
    }

    /// Where the walk for large values has come to.
    fn large_ahead(&self) -> Position<B> {
        let (ahead, large) = (self.ahead(), self.writer.room.tier.large_ahead());
        large.filter(|large| !large.is_before(ahead)).unwrap_or(ahead)
    }

    /// True if the item of this slot at this position leaves memory as soon as it is on flash.
    pub(super) fn leaves(&self, position: Position<B>, slot: Slot) -> bool {
        let is_large = slot.class_index() > self.engine.inline_class_max.index();
        position.is_before(if is_large { self.large_ahead() } else { self.ahead() })
    }

    /// Where the walk for copies has come to.
    fn copied_up_to(&self) -> Position<B> {
        let (ahead, copied) = (self.ahead(), self.writer.room.tier.copied());
        copied.filter(|copied| !copied.is_before(ahead)).unwrap_or(ahead)
    }

    /// Settles entries up to `end`; those that changed since come first, unless the caller gives everything up.
    pub(super) fn walk(
        &mut self,
        (entries_max, end): (usize, Position<B>),
        way: Way,
        mut choose: Option<Choose<'_>>,
    ) -> Walked {
        let (region, log) = (self.region(), self.partition.space);
        let before = self.partition.counts.tier.put_back.value();
        let mut walked = Walked::default();
        while walked.entries < entries_max {
            let again = self.writer.room.tier.next_again().filter(|_| choose.is_some());
            let at = match (again, way) {
                (Some(at), _) => Position::from_words(at).minus(1),
                (None, Way::Leave) => self.ahead(),
                (None, Way::LeaveLarge) => self.large_ahead(),
                (None, Way::Copy) => self.copied_up_to(),
            };
            if again.is_none() && !at.is_before(end) {
                walked.is_done = true;
                break;
            }
            let is_gone = again.is_some() && at != log.not_before_head(region, Some(at));
            let (entry, next) = if is_gone { (None, at) } else { log.entry_at(region, at) };
            let is_large = entry.as_ref().is_some_and(|entry| entry.owns_extent);
            let entry_way = match way {
                _ if at.is_before(self.ahead()) => Way::Leave,
                Way::LeaveLarge if is_large => Way::Leave,
                Way::LeaveLarge => Way::Copy,
                way => way,
            };
            // A small one that has not changed is for another walk.
            let entry = entry.filter(|_| again.is_some() || way != Way::LeaveLarge || is_large);
            if !entry.is_none_or(|entry| self.settle_entry(&entry, entry_way, &mut choose)) {
                break;
            }
            if again.is_some() {
                self.writer.room.tier.end_again();
            } else {
                let room = &mut self.writer.room.tier;
                let cursor = match way {
                    Way::Leave => &mut room.ahead,
                    Way::LeaveLarge => &mut room.large_ahead,
                    Way::Copy => &mut room.copied,
                };
                *cursor = Some(next.words());
            }
            walked.entries += 1;
        }
        walked.put_back = (self.partition.counts.tier.put_back.value() - before) as usize;
        walked
    }

    /// Settles an entry, or gives it to the caller; false if it must wait.
    fn settle_entry(&mut self, entry: &LogEntry<B>, way: Way, choose: &mut Option<Choose<'_>>) -> bool {
        if entry.is_dead {
            return true;
        }
        let (region, now) = (self.region(), self.writer.now);
        let hash = self.engine.hash(key_of(self, entry.payload));
        let Some(place) = self.place_at(hash, entry.position) else { return true };
        if self.is_dead(place.slot(region), entry.payload, now) {
            if way == Way::Copy {
                return true;
            }
            let is_hiding = self.is_hiding(place);
            if is_hiding && let Some(choose) = choose {
                self.offer(entry, (place, hash), (way, Need::Resolution), choose);
            } else {
                self.reclaim_if_dead(place, now);
            }
            return !is_hiding;
        }
        match self.partition.space.copy_of(region, entry.payload) {
            Twin::Begun(number) if self.writer.room.tier.is_open(number, entry.position.words()) => {
                return true;
            }
            Twin::Same(_) if way == Way::Copy => return true,
            Twin::Same(word) => {
                let is_back = place_of_twin(word).is_some_and(|to| self.flip(place, hash, to));
                self.partition.counts.tier.put_back.add(u64::from(is_back));
                if is_back {
                    return true;
                }
                if let Some(choose) = choose {
                    self.offer(entry, (place, hash), (way, Need::Room), choose);
                    return false;
                }
            }
            Twin::Begun(_) | Twin::None => {}
        }
        match choose {
            Some(choose) => self.offer(entry, (place, hash), (way, Need::Copy), choose),
            None => {
                self.evict_unwritten(place);
                true
            }
        }
    }

    /// Asks the caller what becomes of an item; false if it must wait.
    fn offer(
        &mut self,
        entry: &LogEntry<B>,
        (place, hash): (Place, KeyHash),
        (way, need): (Way, Need),
        choose: Choose<'_>,
    ) -> bool {
        let (partition, position) = (self.partition.number, entry.position.words());
        let number = self.writer.room.tier.next;
        let sequence = self.writer.next_cas();
        let ticket = Ticket { partition, number, position, hash, sequence };
        let choice = self.ask(entry, ticket, need, choose);
        let is_lossless = self.writer.room.tier.config.is_lossless;
        match choice {
            Choice::Write(to) if need == Need::Copy => {
                self.set_copy(entry.payload, Twin::Begun(number));
                let segment = self.partition.space.segment_of(entry.position);
                self.writer.room.tier.open((entry.position, segment), to);
                true
            }
            Choice::Evict if !is_lossless => {
                if way == Way::Leave {
                    self.evict_unwritten(place);
                }
                true
            }
            _ => false,
        }
    }

    fn ask(&self, entry: &LogEntry<B>, ticket: Ticket, need: Need, choose: Choose<'_>) -> Choice {
        let (item, Ticket { hash, sequence, .. }) = (entry.payload, ticket);
        if need == Need::Copy && self.writer.room.tier.is_full() {
            return Choice::Later;
        }
        let state = ItemState::load(self.region(), item, self.writer.now);
        let doubts = self.cold_places(hash).map(|(_, slot)| slot).take(SEEN_MAX).collect();
        let key = key_of(self, item);
        let mut due = Due { ticket, hash, key, value: &[], state, sequence, doubts, need };
        if need != Need::Copy {
            return choose(&due);
        }
        if self.engine.is_inline(state.value_bytes() as u64) {
            due.value = inline_value(self, item, &state);
            return choose(&due);
        }
        let Some(claim) = claim_of_writer(self.engine, self.partition, item, &state) else {
            return Choice::Evict;
        };
        let held = HeldClaim { engine: self.engine, partition: self.partition, claim };
        due.value = held.claim.bytes(self.region(), &state);
        choose(&due)
    }
}
