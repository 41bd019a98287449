//! The log: appends, durability, and the life of segments.

mod append;
mod bucket;
mod compact;
mod flow;
mod image;
mod packer;
mod rest;
mod scrub;
mod segments;
#[cfg(test)]
mod tests;
mod upkeep;
mod victim;

pub use append::{Put, Refusal};
pub use image::{Extent, Image};
pub use minos_base::FlashPlace as Place;
pub use scrub::ScrubState;
pub use segments::Usage;

use crate::{
    format::{Layout, Life, Seal, Stream, Superblock},
    recovery::Recovered,
    work::{Outcome, Work, WorkId},
};
use append::Carried;
use bucket::Bucket;
use compact::{Disowned, PageEnd};
use flow::Flow;
use minos_base::{KeyHash, Seconds};
use packer::Packer;
use rest::Rest;
use segments::{Segments, State};
use std::{collections::VecDeque, ops::Range};
use upkeep::Emptying;
use victim::Victim;

/// Decisions about what to keep when segments run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The oldest segment goes. Records that were read are written again, within so many percent of the bytes
    /// that are appended.
    Cache {
        /// Percent of appended bytes.
        reinsert_percent: u32,
    },
    /// Nothing is lost: live records are moved out of the segment that gains the most.
    Store {
        /// Appends are refused above this share of [`Log::capacity_bytes`].
        utilisation_percent_max: u32,
    },
}

/// Sizes and rates of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a stream that are written together.
    pub chunk_bytes: usize,
    /// Segments that are reserved ahead.
    pub reserve_ahead: usize,
    /// Compaction begins when fewer segments than this are available.
    pub available_min: usize,
    /// Bytes a second that compaction moves unless segments run out.
    pub compaction_bytes_s: u64,
    /// Bytes a second that the scrubber reads; 0: it does not run.
    pub scrub_bytes_s: u64,
    /// Cache or store.
    pub policy: Policy,
}

impl Options {
    /// The usual ones for a policy.
    pub fn of(policy: Policy, layout: &Layout) -> Self {
        let available_min = (layout.segments() as usize / 64).max(6);
        Self {
            chunk_bytes: 1 << 20,
            reserve_ahead: 4,
            available_min,
            compaction_bytes_s: 64 << 20,
            scrub_bytes_s: 1 << 20,
            policy,
        }
    }
}

/// The standing of a record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The key has another record, or none, or it has expired.
    Dead,
    /// The index names it.
    Live,
    /// The index names it, and it was read since it was written.
    Read,
}

/// The memory index, as compaction needs it.
pub trait Index {
    /// The standing of the record of `hash` with this sequence in `page`.
    fn standing(&mut self, hash: KeyHash, sequence: u64, page: u32) -> Standing;

    /// Names the record's new place, unless it is no longer the one in page `from`. Returns true if it did.
    fn relink(&mut self, hash: KeyHash, sequence: u64, from: u32, to: Place) -> bool;

    /// The time on the clock of expiries, past which records are dropped; 0: none is.
    fn now(&self) -> Seconds {
        0
    }

    /// False if the record of `hash` in `page` is needed although it has expired.
    fn may_expire(&mut self, _hash: KeyHash, _page: u32) -> bool {
        true
    }

    /// Forgets the record in `page`, which expired, a cache drops, or the device lost.
    fn forget(&mut self, hash: KeyHash, sequence: u64, page: u32);

    /// Forgets all records in these pages, of which the device has lost even the names. Returns their number.
    fn forget_pages(&mut self, pages: Range<u32>) -> u64;
}

/// News for the owner of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The append's write is complete: the index may name its place.
    Written {
        /// The append's token.
        token: u64,
        /// Its place.
        place: Place,
    },
    /// The append survives a power loss.
    Durable {
        /// The append's token.
        token: u64,
    },
    /// The append's write failed. Append again, or [`Log::disown`] it if it is superseded, then call
    /// [`Log::answered`].
    Failed {
        /// The append's token.
        token: u64,
    },
    /// The device lost a live record.
    Lost {
        /// Its key's hash.
        hash: KeyHash,
        /// Its sequence.
        sequence: u64,
    },
    /// The device lost so many live records, and their names.
    LostNameless {
        /// Their number.
        records: u64,
    },
    /// All records before are dead, also after a crash.
    Emptied,
    /// A flush or the journal failed: nothing more is written.
    ReadOnly,
}

/// Counts, in bytes and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys and values of appended items.
    pub appended_bytes: u64,
    /// Appended records with their headers.
    pub appended_record_bytes: u64,
    /// Records moved by compaction.
    pub moved_bytes: u64,
    /// Everything written, journal and footers included.
    pub written_bytes: u64,
    /// Everything read by compaction.
    pub compaction_read_bytes: u64,
    /// Everything read by the scrubber.
    pub scrub_read_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Segments compacted.
    pub compacted_segments: u64,
    /// Tombstones written or moved by compaction.
    pub carried_tombstones: u64,
    /// Live records that the device lost.
    pub lost_records: u64,
    /// Live records that a cache dropped.
    pub dropped_records: u64,
    /// Records that had expired when compaction or scrubber came by, and that the index still named.
    pub expired_records: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Segments that end because of them.
    pub failed_segments: u64,
    /// Segments that the scrubber read to the end.
    pub scrubbed_segments: u64,
    /// Records that the scrubber could not verify, and footers that did not verify when they were read again.
    pub scrub_faults: u64,
    /// Times that everything was read because somebody asked.
    pub sweeps: u64,
}

/// A table's log. It asks for work in [`Log::poll`] and is told the results in [`Log::done`].
#[derive(Debug)]
pub struct Log {
    table: u64,
    seal: Seal,
    layout: Layout,
    options: Options,
    segments: Segments,
    packers: [Option<Packer>; Stream::ALL.len()],
    flow: Flow,
    closing: Vec<upkeep::Closing>,
    victim: Option<Victim>,
    bucket: Bucket,
    scrubbed: Option<Victim>,
    scrubber: scrub::Scrubber,
    /// Bytes that a cache may write again.
    reinsertion: u64,
    events: Vec<Event>,
    counters: Counters,
    /// Tombstones that no segment had room for.
    carried: VecDeque<Carried>,
    disowned: VecDeque<Disowned>,
    /// The victim's end waits for it.
    page_end: PageEnd,
    /// When the journal is to say that segments have ended.
    journal_by_us: Option<u64>,
    /// Failed appends that the owner has not answered.
    unanswered: u64,
    rest: Rest,
    emptying: Emptying,
    groups: Groups,
    /// Appends wait in the stream of compaction.
    is_compacted_shared: bool,
    is_read_only: bool,
}

/// Groups of appends by which the owner makes durable what superseded dead records.
#[derive(Clone, Copy, Debug)]
struct Groups {
    begun: u64,
    done: u64,
}

impl Log {
    /// Continues a table that was recovered.
    pub fn resume(superblock: &Superblock, options: Options, recovered: Recovered) -> Self {
        let layout = superblock.layout;
        let mut log = Self {
            table: superblock.table,
            seal: Seal::new(superblock.seed),
            layout,
            options,
            segments: Segments::of(layout, &recovered.journal, recovered.lengths),
            packers: [None, None, None],
            flow: Flow::new(recovered.journal.clone()),
            closing: Vec::new(),
            victim: None,
            bucket: Bucket::new(options.compaction_bytes_s),
            scrubbed: None,
            scrubber: scrub::Scrubber::new(options.scrub_bytes_s),
            reinsertion: 0,
            events: Vec::new(),
            counters: Counters::default(),
            carried: VecDeque::new(),
            disowned: VecDeque::new(),
            page_end: PageEnd::NotAsked,
            journal_by_us: None,
            unanswered: 0,
            rest: Rest::default(),
            emptying: Emptying::No,
            groups: Groups { begun: 0, done: u64::MAX },
            is_compacted_shared: false,
            is_read_only: false,
        };
        log.adopt(recovered);
        // Who has opened the table shows by its number.
        log.flow.is_journal_old = true;
        log
    }

    /// Asks for work. `now_us` is the time in microseconds; no lane reads what it looked up before `lanes_at`. The index
    /// names no place of an append whose failure an earlier call of [`Log::events`] told.
    pub fn poll(
        &mut self,
        now_us: u64,
        lanes_at: u64,
        index: &mut impl Index,
        jobs: &mut Vec<(WorkId, Work)>,
    ) {
        self.segments.lanes_at(lanes_at);
        self.rest.poll(now_us);
        if !self.is_read_only {
            if self.rest.is_trial() {
                // The attempt ends soon.
                self.commit_all();
            }
            self.end_unwritten();
            self.counters.compaction_read_bytes += self.reads_of(|log| log.compact(now_us, index));
            self.counters.scrub_read_bytes += self.reads_of(|log| log.scrub(now_us, index));
            self.upkeep();
        }
        for (_, work) in &self.flow.jobs {
            match work {
                Work::Write { bytes, .. } => self.counters.written_bytes += bytes.len() as u64,
                Work::Read { .. } => {}
                Work::Flush => self.counters.flushes += 1,
            }
        }
        jobs.append(&mut self.flow.jobs);
    }

    /// Bytes that this asks to be read.
    fn reads_of(&mut self, ask: impl FnOnce(&mut Self)) -> u64 {
        let before = self.flow.jobs.len();
        ask(self);
        let reads = self.flow.jobs[before..].iter().map(|(_, work)| match work {
            Work::Read { len, .. } => *len as u64,
            Work::Write { .. } | Work::Flush => 0,
        });
        reads.sum()
    }

    /// The result of a piece of work.
    pub fn done(&mut self, id: WorkId, outcome: Outcome<'_>, index: &mut impl Index) {
        match self.flow.purpose(id) {
            Some(flow::Purpose::Batch(number)) => self.batch_done(number, outcome.err(), index),
            Some(flow::Purpose::Journal) => self.journal_done(outcome.is_ok()),
            Some(flow::Purpose::Flush) => self.flush_done(outcome.is_ok()),
            None => self.read_done(id, outcome),
        }
    }

    /// News since the last call.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + use<'_> {
        self.events.drain(..)
    }

    /// The epoch to remember with each look-up in the index, until its read is complete.
    pub fn epoch(&self) -> u64 {
        self.segments.epoch
    }

    /// The life in which to verify what is read from a page that the index names.
    pub fn life_of(&self, page: u32) -> Life {
        let segment = self.segments.segment_of_page(page);
        segment.map_or(Life::NONE, |number| self.segments.get(number).life)
    }

    /// Rises when segments get lives that [`Log::life_of`] has not told before.
    pub fn lives_given(&self) -> u32 {
        self.segments.next_life.0
    }

    /// The owner has begun the group `begun` of appends, and made durable all up to `done`: a segment ends only when
    /// a group is done that began after its records were found dead or moved. Where the index calls a record dead
    /// before its successor is appended, a power loss would take both. An owner without groups calls this never.
    pub fn groups(&mut self, begun: u64, done: u64) {
        self.groups = Groups { begun, done };
    }

    /// True if a segment waits for a group to begin and to be done.
    pub fn waits_for_group(&self) -> bool {
        let settling = |victim: &Victim| match victim.phase {
            victim::Phase::Settling { group, .. } => self.groups.done <= group,
            _ => false,
        };
        self.victim.as_ref().is_some_and(settling)
    }

    /// The index names this record, found by recovery.
    pub fn credit(&mut self, place: Place) {
        if let Some(number) = self.segments.segment_of_page(place.page) {
            self.segments.credit(number, place.length);
        }
    }

    /// The index forgot a record without an append: it expired, or was evicted.
    pub fn debit(&mut self, place: Place) {
        self.retire(place);
    }

    fn retire(&mut self, place: Place) {
        if let Some(number) = self.segments.segment_of_page(place.page) {
            self.segments.debit(number, place.length);
        }
    }

    /// Counts since the log was resumed.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Segments that can be opened at once or soon.
    pub fn available_segments(&self) -> usize {
        self.segments.available()
    }

    /// Number of segments in each use.
    pub fn usage(&self) -> Usage {
        self.segments.usage()
    }

    /// Bytes a second that compaction moves from now on unless segments run out; 0: none.
    pub fn set_compaction_rate(&mut self, bytes_s: u64) {
        self.bucket.set_rate(bytes_s);
    }

    /// Bytes a second that compaction moves unless segments run out.
    pub fn compaction_rate(&self) -> u64 {
        self.bucket.rate()
    }

    /// Segments that the device failed in for good.
    pub fn bad_segments(&self) -> usize {
        self.segments.count(State::Bad)
    }

    /// Bytes of records that the segments hold, without those kept free for compaction.
    pub fn capacity_bytes(&self) -> u64 {
        let kept_free = self.options.available_min + Stream::ALL.len();
        let segments = u64::from(self.layout.segments()).saturating_sub(kept_free as u64).max(1);
        segments.saturating_sub(self.segments.count(State::Bad) as u64) * self.segments.full_bytes
    }

    /// Live bytes, about.
    pub fn live_bytes(&self) -> u64 {
        self.segments.live_bytes()
    }

    /// The number of the newest journal that was handed out.
    pub fn journal_number(&self) -> u64 {
        self.flow.journal_number
    }

    /// True while compaction has a segment in hand: it goes on as its rate allows.
    pub fn is_compacting(&self) -> bool {
        self.victim.is_some() && !self.is_read_only
    }

    /// True after a failed flush or journal: nothing more is written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}
