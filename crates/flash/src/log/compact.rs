//! Compaction: live records move out of a segment, or drop out of a cache; what they kept dead stays dead.

use super::{
    Event, Index, Log, Place, Policy, Standing,
    append::{Carried, Parcel},
    victim::{Phase, Run, Victim},
};
use crate::{
    format::{Footer, Kind, Life, Pages, Stream},
    switches::{Safeguard, is_on},
};
use minos_base::KeyHash;

/// With fewer segments available than this, compaction knows no rate.
const URGENT: usize = 4;

/// A segment that has ended waits so long for a journal that is written anyway, unless segments run out.
const JOURNAL_DELAY_US: u64 = 20_000;

/// The decision about a record of the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dead,
    Expired,
    Drop,
    Move,
}

/// The result of an attempt to move a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    Done,
    /// No segment is ready.
    Busy,
    /// The record was not read.
    Unread,
}

/// Progress of the new records that the end of a victim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageEnd {
    NotAsked,
    /// They are handed out where a page ends, or at the next poll.
    Asked,
    /// They are handed out.
    Reached,
}

/// A tombstone that waits for what superseded the dead record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disowned {
    carried: Carried,
    /// Batches before this one are settled first, if no more than so many fail until then. `None`: it is not
    /// known yet, because failed appends are unanswered, or the end of the victim is to write what is waited for.
    after: Option<(u64, u64)>,
}

impl Log {
    /// Compacts a little.
    pub(super) fn compact(&mut self, now_us: u64, index: &mut impl Index) {
        self.carry_disowned();
        self.pack_carried();
        let is_urgent = self.segments.available() < URGENT;
        let may_move = is_urgent || self.bucket.is_open(now_us);
        if let Some(victim) = self.victim.take() {
            self.go_on(victim, may_move, now_us, index);
        }
        self.flow.is_journal_old |= self.journal_by_us.is_some_and(|by| is_urgent || by <= now_us);
        if self.victim.is_none() {
            self.begin();
        }
    }

    /// Begins with the next segment, if one is to end.
    fn begin(&mut self) {
        let first = self.segments.first_to_end();
        // More of what ends already is no gain, nor of what is held back.
        let is_short = self.segments.available() + self.segments.ending() < self.options.available_min;
        if first.is_empty() && !is_short {
            return;
        }
        if let Some(number) = self.choose_victim(&first) {
            self.page_end = PageEnd::NotAsked;
            let mut victim = self.start(number);
            let will_move = matches!(self.options.policy, Policy::Store { .. })
                && self.segments.get(number).live_bytes > 0;
            // A journal that is due anyway says so.
            victim.is_leaving |= will_move && self.flow.is_journal_old;
            self.victim = Some(victim);
        }
    }

    /// Goes on with a segment.
    fn go_on(&mut self, mut victim: Victim, may_move: bool, now_us: u64, index: &mut impl Index) {
        if may_move && matches!(victim.phase, Phase::Moving) {
            self.decide(&mut victim, index);
        }
        if matches!(&victim.phase, Phase::Reading(run) if run.gather.is_done()) {
            self.move_run(&mut victim, index);
        }
        match victim.phase {
            Phase::Settling { before, group }
                if self.flow.is_settled_before(before) && self.groups.done > group =>
            {
                self.settled(victim, now_us, index)
            }
            _ => self.victim = Some(victim),
        }
    }

    /// Decides about records until some are to be read, or all are decided.
    fn decide(&mut self, victim: &mut Victim, index: &mut impl Index) {
        while victim.next < victim.footers.len() {
            if !self.carried.is_empty() {
                return;
            }
            let fate = self.fate(victim, victim.next, index);
            if fate == Fate::Move {
                // After a crash both copies of a record are there: the journal says which goes first.
                if !self.segments.get(victim.number).is_leaving {
                    self.flow.is_journal_old |= !victim.is_leaving;
                    victim.is_leaving = true;
                    return;
                }
                let run = self.run_of(victim, index);
                self.bucket.take(run.gather.len() as u64);
                victim.phase = Phase::Reading(run);
                return;
            }
            self.leave(victim, fate, index);
        }
        if self.unanswered > 0 || !self.carried.is_empty() {
            self.commit_all();
        } else if victim.moves > 0 {
            self.submit(Stream::Compacted, false);
        } else if self.disowned.iter().all(|it| it.after.is_none()) && self.has_written_new() {
            [Stream::Compacted, Stream::ShortLived].into_iter().for_each(|stream| self.submit(stream, false));
            let before = self.flow.next_batch;
            self.flow.flush_before = before;
            if self.disowned.is_empty() {
                victim.phase = Phase::Settling { before, group: self.groups.begun };
                return;
            }
            // Their tombstones follow, and are written before the victim ends.
            let after = Some((before, self.flow.failures));
            self.disowned.iter_mut().for_each(|it| it.after = after);
            self.page_end = PageEnd::NotAsked;
        }
    }

    /// Hands out the new records that waited at the first call, and returns true at the call after that. A chunk that ends
    /// with a page in between is enough: the rest of a page is lost, and compaction pays for it once more.
    fn has_written_new(&mut self) -> bool {
        let is_waiting = self.packers[Stream::New as usize].as_ref().is_some_and(|it| it.waiting() > 0);
        if is_waiting && self.page_end == PageEnd::NotAsked {
            self.page_end = PageEnd::Asked;
            return false;
        }
        if self.page_end == PageEnd::Asked {
            self.submit(Stream::New, false);
        }
        true
    }

    fn fate(&mut self, victim: &Victim, at: usize, index: &mut impl Index) -> Fate {
        let footer = &victim.footers[at];
        let Some(place) = self.place_of(victim.number, footer) else { return Fate::Dead };
        let standing = self.standing(victim, at, index);
        let is_kept = match self.options.policy {
            Policy::Store { .. } => true,
            Policy::Cache { .. } => {
                let is_reinserted =
                    standing == Standing::Read && place.length.bytes_typical() <= self.reinsertion;
                is_reinserted || self.ends_early(victim)
            }
        };
        match standing {
            Standing::Dead => Fate::Dead,
            _ if self.has_expired(footer, place, index) => Fate::Expired,
            _ if is_kept => Fate::Move,
            _ => Fate::Drop,
        }
    }

    /// True if a segment ends because the device failed there, and not to make room: a cache keeps its records, too.
    fn ends_early(&self, victim: &Victim) -> bool {
        self.segments.get(victim.number).is_failing && self.segments.available() > URGENT
    }

    /// The standing of a segment's record.
    fn standing(&self, victim: &Victim, at: usize, index: &mut impl Index) -> Standing {
        let footer = &victim.footers[at];
        let page = self.page_of(victim.number, footer.offset);
        // The index knows a page: of the key's records there it means the newest.
        let behind = victim.footers[at + 1..].iter();
        let mut in_page = behind.take_while(|it| self.page_of(victim.number, it.offset) == page);
        if in_page.any(|it| it.hash == footer.hash && it.sequence >= footer.sequence) {
            return Standing::Dead;
        }
        index.standing(footer.hash, footer.sequence, page)
    }

    fn has_expired(&self, footer: &Footer, place: Place, index: &mut impl Index) -> bool {
        footer.expiry != 0 && footer.expiry <= index.now() && index.may_expire(footer.hash, place.page)
    }

    /// Makes the index forget the records of a segment that have expired.
    pub(super) fn drop_expired(&mut self, victim: &Victim, index: &mut impl Index) {
        for (at, footer) in victim.footers.iter().enumerate() {
            let Some(place) = self.place_of(victim.number, footer) else { continue };
            let has_expired = self.has_expired(footer, place, index);
            if has_expired && self.standing(victim, at, index) != Standing::Dead {
                self.counters.expired_records += 1;
                index.forget(footer.hash, footer.sequence, place.page);
                self.segments.debit(victim.number, place.length);
            }
        }
    }

    /// Leaves a record where it is.
    fn leave(&mut self, victim: &mut Victim, fate: Fate, index: &mut impl Index) {
        let footer = victim.footers[victim.next];
        if matches!(fate, Fate::Drop | Fate::Expired) {
            self.counters.dropped_records += u64::from(fate == Fate::Drop);
            self.counters.expired_records += u64::from(fate == Fate::Expired);
            index.forget(footer.hash, footer.sequence, self.page_of(victim.number, footer.offset));
        }
        self.keep_dead(victim);
        victim.next += 1;
    }

    /// The next record may be what keeps an older one dead. It may have a copy that lives, so that it is itself spared.
    fn keep_dead(&mut self, victim: &mut Victim) {
        // Once: the records of a victim are gone through again where a write fails.
        let life = victim.life;
        let footer = &mut victim.footers[victim.next];
        let replaces = std::mem::replace(&mut footer.replaces, Life::NONE);
        if self.segments.is_alive(replaces) && replaces != life {
            let is_item = footer.kind() == Kind::Item;
            let sequence = footer.sequence.saturating_sub(u64::from(is_item));
            let page = footer.buries().map_or(0, |(page, _)| page);
            let hash = footer.hash;
            self.carry(Carried { hash, sequence, replaces, page });
        }
    }

    /// Begins to read the record of `victim.next` and those close behind it that are to move as well.
    fn run_of(&mut self, victim: &Victim, index: &mut impl Index) -> Run {
        let mut run = victim.span_of(victim.next);
        let mut last = victim.next;
        for at in victim.next + 1..victim.footers.len() {
            let Some(span) = victim.joined(&run, at) else { break };
            if self.fate(victim, at, index) == Fate::Move {
                (run, last) = (span, at);
            }
        }
        self.read_run(victim.number, run, last)
    }

    /// Moves the records of a run that was read.
    fn move_run(&mut self, victim: &mut Victim, index: &mut impl Index) {
        let Phase::Reading(run) = std::mem::replace(&mut victim.phase, Phase::Moving) else { return };
        while victim.next <= run.last && self.carried.is_empty() {
            let fate = self.fate(victim, victim.next, index);
            let moved = if fate == Fate::Move { self.move_one(victim, &run, index) } else { Moved::Done };
            match moved {
                Moved::Unread => return,
                Moved::Busy => break,
                Moved::Done if fate == Fate::Move => victim.next += 1,
                Moved::Done => self.leave(victim, fate, index),
            }
        }
        if victim.next <= run.last {
            victim.phase = Phase::Reading(run);
        }
    }

    fn move_one(&mut self, victim: &mut Victim, run: &Run, index: &mut impl Index) -> Moved {
        let footer = victim.footers[victim.next];
        let from = self.page_of(victim.number, footer.offset);
        let begin = run.gather.at - self.layout.segment_at(victim.number);
        let span = victim.span_of(victim.next);
        if span.start < begin || span.end > begin + run.gather.bytes.len() as u64 {
            return Moved::Unread;
        }
        let pages = Pages::new(&run.gather.bytes, run.gather.at, victim.life, self.seal);
        let record = match pages.record((u64::from(footer.offset) - begin) as usize) {
            Ok(Some((record, _))) if record.header.sequence == footer.sequence => record,
            _ => {
                self.lost(victim, &footer, from, index);
                return Moved::Done;
            }
        };
        let mut header = record.header;
        if !self.segments.is_alive(header.replaces) || header.replaces == victim.life {
            header.replaces = Life::NONE;
        }
        let (key, value) = (record.key.to_vec(), record.value.to_vec());
        let parcel = Parcel { header, key: &key, value: &value, token: 0, from: Some(from) };
        if self.pack(Stream::Compacted, &parcel).is_err() {
            return Moved::Busy;
        }
        victim.moves += 1;
        self.counters.moved_bytes += header.bytes();
        self.reinsertion = self.reinsertion.saturating_sub(header.bytes());
        Moved::Done
    }

    /// A live record cannot be read.
    fn lost(&mut self, victim: &mut Victim, footer: &Footer, page: u32, index: &mut impl Index) {
        self.counters.lost_records += 1;
        self.events.push(Event::Lost { hash: footer.hash, sequence: footer.sequence });
        index.forget(footer.hash, footer.sequence, page);
        self.keep_dead(victim);
    }

    /// All that the victim's records were moved to or replaced by is durable, or has failed.
    fn settled(&mut self, mut victim: Victim, now_us: u64, index: &mut impl Index) {
        if self.flow.failures != victim.failures || self.is_read_only {
            // What could not be moved is where it was.
            (victim.next, victim.phase, victim.failures) = (0, Phase::Moving, self.flow.failures);
            (self.page_end, self.victim) = (PageEnd::NotAsked, Some(victim));
            return;
        }
        if victim.is_scanned {
            self.forget_nameless(&victim, index);
        }
        self.segments.empty(victim.number);
        self.journal_by_us = self.journal_by_us.or(Some(now_us + JOURNAL_DELAY_US));
        self.counters.compacted_segments += 1;
    }

    /// Forgets the records of a segment whose footers are lost, and whose pages did not verify: all others have moved, or
    /// are dead.
    fn forget_nameless(&mut self, victim: &Victim, index: &mut impl Index) {
        let records = index.forget_pages(self.page_of(victim.number, 0)..self.page_of(victim.number + 1, 0));
        if records > 0 {
            self.counters.lost_records += records;
            self.events.push(Event::LostNameless { records });
        }
    }

    /// A move out of page `from` was written or failed.
    pub(super) fn move_ended(&mut self, from: u32) {
        let number = self.segments.segment_of_page(from);
        if let Some(victim) = self.victim.as_mut().filter(|victim| Some(victim.number) == number) {
            victim.moves = victim.moves.saturating_sub(1);
        }
    }

    /// Keeps dead what a tombstone kills, while records of that life could come back.
    pub(super) fn carry(&mut self, carried: Carried) {
        if is_on(Safeguard::Tombstones) {
            self.counters.carried_tombstones += 1;
            self.carried.push_back(carried);
            self.pack_carried();
        }
    }

    /// As [`Log::carry`], among the new records, which the end of a victim writes in any case.
    fn carry_among_new(&mut self, carried: Carried) {
        if is_on(Safeguard::Tombstones) {
            self.counters.carried_tombstones += 1;
            if self.pack(Stream::New, &Parcel::tombstone(&carried, 0)).is_err() {
                self.carried.push_back(carried);
            }
        }
    }

    /// A failed append was superseded: keeps the record that it replaced dead.
    pub fn disown(&mut self, hash: KeyHash, sequence: u64, replaces: Place) {
        if let Some(replaces) = self.segments.life_of_page(replaces.page) {
            self.carry_later(Carried { hash, sequence, replaces, page: 0 });
        }
    }

    /// A failed append was appended again or disowned. Until all are, no segment ends.
    pub fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Packs a tombstone when the record that superseded the dead one is durable, which was appended already
    /// unless it failed.
    fn carry_later(&mut self, carried: Carried) {
        self.disowned.push_back(Disowned { carried, after: None });
    }

    fn carry_disowned(&mut self) {
        for _ in 0..self.disowned.len() {
            let Some(Disowned { carried, after }) = self.disowned.pop_front() else { return };
            let failures = self.flow.failures;
            let after = match after.filter(|(_, known)| *known == failures) {
                Some((before, _)) if self.flow.is_settled_before(before) => {
                    self.carry_among_new(carried);
                    continue;
                }
                // The end of a victim flushes what it needs.
                None if self.unanswered == 0 && self.victim.is_none() => {
                    self.flush_all();
                    Some((self.flow.next_batch, failures))
                }
                after => after,
            };
            self.disowned.push_back(Disowned { carried, after });
        }
    }

    /// A record was moved to a segment of life `copied`, and superseded meanwhile: what superseded it does not
    /// know of the copy.
    pub(crate) fn bury_copy(&mut self, hash: KeyHash, sequence: u64, copied: Life) {
        self.carry_later(Carried { hash, sequence, replaces: copied, page: 0 });
    }

    fn pack_carried(&mut self) {
        while let Some(carried) = self.carried.front() {
            let parcel = Parcel::tombstone(carried, 0);
            if self.pack(Stream::Compacted, &parcel).is_err() {
                return;
            }
            self.carried.pop_front();
        }
    }
}
