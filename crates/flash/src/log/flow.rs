//! Batches on their way to the device, flushes, and the journal.

use super::{
    Event, Index, Log, Place,
    append::{Carried, Parcel},
    compact::PageEnd,
    packer::Packer,
};
use crate::{
    format::{Journal, Kind, Stream},
    switches::{Safeguard, is_on},
    work::{DeviceFailed, Names, Work, WorkId},
};
use minos_base::KeyHash;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

/// The purpose of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Batch(u64),
    Journal,
    Flush,
}

/// A record on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// 0: the log's own.
    pub(super) token: u64,
    pub(super) hash: KeyHash,
    pub(super) sequence: u64,
    pub(super) place: Place,
    pub(super) from: Option<u32>,
    /// A tombstone of the log's own, which nobody else would write again.
    tombstone: Option<Carried>,
}

impl Entry {
    pub(super) fn of(parcel: &Parcel<'_>, place: Place) -> Self {
        let (token, from, header) = (parcel.token, parcel.from, &parcel.header);
        let is_own = token == 0 && header.kind == Kind::Tombstone;
        let tombstone = is_own.then(|| Carried::of(header));
        Self { token, hash: header.hash, sequence: header.sequence, place, from, tombstone }
    }
}

/// Records that are written together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) segment: u32,
    pub(super) entries: Vec<Entry>,
    writes_left: usize,
    failure: Option<DeviceFailed>,
    /// The footers of its segment, so many bytes.
    pub(super) footers: Option<u32>,
    is_in_flush: bool,
    /// The bytes of the device that it is written to.
    pub(super) span: Range<u64>,
}

/// The way of a journal to the device.
#[derive(Debug)]
pub(super) enum Journaling {
    Idle,
    Writing { left: usize, ok: usize, journal: Journal },
    Written(Journal),
    Flushing(Journal),
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) jobs: Vec<(WorkId, Work)>,
    pub(super) names: Names,
    purposes: HashMap<WorkId, Purpose>,
    /// Packed and not yet handed out, by stream.
    pub(super) waiting: [Vec<Entry>; Stream::ALL.len()],
    /// Handed out and not yet durable.
    pub(super) batches: BTreeMap<u64, Batch>,
    pub(super) next_batch: u64,
    /// Batches before this one are to be made durable.
    pub(super) flush_before: u64,
    is_flushing: bool,
    pub(super) journaling: Journaling,
    /// The newest journal that is durable.
    pub(super) durable: Journal,
    /// The number of the newest one that was handed out.
    pub(super) journal_number: u64,
    pub(super) is_journal_old: bool,
    /// Batches that failed so far.
    pub(super) failures: u64,
}

impl Flow {
    pub(super) fn new(durable: Journal) -> Self {
        Self {
            jobs: Vec::new(),
            names: Names::default(),
            purposes: HashMap::new(),
            waiting: [Vec::new(), Vec::new(), Vec::new()],
            batches: BTreeMap::new(),
            next_batch: 0,
            flush_before: 0,
            is_flushing: false,
            journaling: Journaling::Idle,
            journal_number: durable.number,
            durable,
            is_journal_old: false,
            failures: 0,
        }
    }

    pub(super) fn purpose(&mut self, id: WorkId) -> Option<Purpose> {
        self.purposes.remove(&id)
    }

    pub(super) fn ask(&mut self, work: Work, purpose: Purpose) {
        let id = self.names.next();
        self.purposes.insert(id, purpose);
        self.jobs.push((id, work));
    }

    pub(super) fn send(&mut self, segment: u32, works: Vec<Work>, entries: Vec<Entry>, footers: Option<u32>) {
        let number = self.next_batch;
        self.next_batch += 1;
        let writes_left = works.len();
        let span = span_of(&works);
        let batch = Batch { segment, entries, writes_left, failure: None, footers, is_in_flush: false, span };
        self.batches.insert(number, batch);
        works.into_iter().for_each(|work| self.ask(work, Purpose::Batch(number)));
    }

    /// True if all batches before this one are durable or failed.
    pub(super) fn is_settled_before(&self, number: u64) -> bool {
        self.batches.keys().next().is_none_or(|&first| first >= number)
    }

    /// True if a flush would make something durable that is waited for.
    fn is_flush_due(&self) -> bool {
        let mut before = self.batches.range(..self.flush_before).peekable();
        let is_waited_for = before.peek().is_some() && before.all(|(_, batch)| batch.writes_left == 0);
        !self.is_flushing && (is_waited_for || matches!(self.journaling, Journaling::Written(_)))
    }
}

/// The bytes that adjoining writes go to.
fn span_of(works: &[Work]) -> Range<u64> {
    let writes = works.iter().filter_map(|work| match work {
        Work::Write { at, bytes } => Some(*at..*at + bytes.len() as u64),
        Work::Read { .. } | Work::Flush => None,
    });
    writes.reduce(|all, next| all.start.min(next.start)..all.end.max(next.end)).unwrap_or_default()
}

impl Log {
    /// Asks that all appends so far become durable.
    pub fn flush(&mut self) {
        self.commit();
        self.flow.flush_before = self.flow.next_batch;
    }

    /// Hands out all appends as writes: several streams in one vector. What compaction moves waits for a chunk of
    /// its own: written with each commit it would take as many pages as it had before.
    pub fn commit(&mut self) {
        self.submit(Stream::New, true);
        self.submit(Stream::ShortLived, true);
        if self.is_compacted_shared {
            self.submit(Stream::Compacted, true);
        }
    }

    /// As [`Log::flush`], with what compaction moved.
    pub(super) fn flush_all(&mut self) {
        self.commit_all();
        self.flow.flush_before = self.flow.next_batch;
    }

    pub(super) fn commit_all(&mut self) {
        Stream::ALL.into_iter().for_each(|stream| self.submit(stream, false));
    }

    /// Hands out the waiting pages of a stream. `is_early` if the owner could not wait for a chunk.
    pub(super) fn submit(&mut self, stream: Stream, is_early: bool) {
        let Some(packer) = &mut self.packers[stream as usize] else { return };
        if packer.waiting() == 0 {
            return;
        }
        self.is_compacted_shared &= stream != Stream::Compacted;
        if stream == Stream::New && self.page_end == PageEnd::Asked {
            self.page_end = PageEnd::Reached;
        }
        let entries = std::mem::take(&mut self.flow.waiting[stream as usize]);
        let (segment, works) = (packer.segment(), packer.take(is_early));
        let end = packer.handed_out();
        let opened = self.segments.get_mut(segment);
        (opened.unsettled, opened.end) = (opened.unsettled + 1, end);
        self.flow.send(segment, works, entries, None);
    }

    pub(super) fn flush_if_due(&mut self) {
        if !self.flow.is_flush_due() {
            return;
        }
        for batch in self.flow.batches.values_mut().filter(|batch| batch.writes_left == 0) {
            batch.is_in_flush = true;
        }
        self.flow.journaling = match std::mem::replace(&mut self.flow.journaling, Journaling::Idle) {
            Journaling::Written(journal) => Journaling::Flushing(journal),
            other => other,
        };
        self.flow.is_flushing = true;
        if is_on(Safeguard::Flush) {
            self.flow.ask(Work::Flush, Purpose::Flush);
        } else {
            self.flush_done(true);
        }
    }

    pub(super) fn flush_done(&mut self, is_ok: bool) {
        self.flow.is_flushing = false;
        if !is_ok {
            return self.end_writing();
        }
        let durable: Vec<u64> = self
            .flow
            .batches
            .iter()
            .filter(|(_, batch)| batch.is_in_flush)
            .map(|(&number, _)| number)
            .collect();
        for number in durable {
            let Some(batch) = self.flow.batches.remove(&number) else { continue };
            let tokens = batch.entries.iter().map(|entry| entry.token).filter(|&token| token != 0);
            self.events.extend(tokens.map(|token| Event::Durable { token }));
            self.segments.get_mut(batch.segment).unsettled -= 1;
        }
        match std::mem::replace(&mut self.flow.journaling, Journaling::Idle) {
            Journaling::Flushing(journal) => {
                self.segments.journaled(&journal.uses);
                self.flow.durable = journal;
                self.emptying_journaled();
            }
            other => self.flow.journaling = other,
        }
    }

    /// The device failed where no other place will do.
    pub(super) fn end_writing(&mut self) {
        if !self.is_read_only {
            self.is_read_only = true;
            self.events.push(Event::ReadOnly);
        }
    }

    pub(super) fn batch_done(&mut self, number: u64, failure: Option<DeviceFailed>, index: &mut impl Index) {
        let Some(batch) = self.flow.batches.get_mut(&number) else { return };
        batch.writes_left -= 1;
        batch.failure = batch.failure.max(failure);
        if batch.writes_left > 0 {
            return;
        }
        if let Some(failure) = batch.failure {
            return self.batch_failed(number, failure);
        }
        let (segment, footers) = (batch.segment, batch.footers);
        let entries = std::mem::take(&mut batch.entries);
        self.rest.succeeded();
        self.segments.get_mut(segment).has_records = true;
        if footers.is_some() {
            self.sealed(segment, footers);
        }
        for entry in &entries {
            self.written(segment, entry, index);
        }
        if let Some(batch) = self.flow.batches.get_mut(&number) {
            batch.entries = entries;
        }
    }

    fn written(&mut self, segment: u32, entry: &Entry, index: &mut impl Index) {
        let Entry { token, hash, sequence, place, from, .. } = *entry;
        if token != 0 {
            self.events.push(Event::Written { token, place });
        }
        let Some(from) = from else { return };
        self.move_ended(from);
        if !index.relink(hash, sequence, from, place) {
            // The key was overwritten or deleted meanwhile: its killer does not know of this copy.
            self.segments.debit(segment, place.length);
            self.bury_copy(hash, sequence, self.segments.get(segment).life);
        }
    }

    /// Some of the batch may be on the device: it stays among the batches until a flush, so that compaction of its
    /// segment reads what a crash would leave.
    fn batch_failed(&mut self, number: u64, failure: DeviceFailed) {
        let Some(batch) = self.flow.batches.get_mut(&number) else { return };
        let (segment, entries, footers) = (batch.segment, std::mem::take(&mut batch.entries), batch.footers);
        self.counters.failed_writes += 1;
        self.counters.failed_segments += u64::from(!self.segments.get(segment).is_failing);
        self.rest.failed();
        match failure {
            DeviceFailed::NoSpace => self.segments.end_early(segment),
            DeviceFailed::Broken => self.segments.fail(segment),
        }
        self.flow.failures += 1;
        self.flow.is_journal_old = true;
        self.flow.flush_before = self.flow.next_batch;
        for entry in &entries {
            self.segments.debit(segment, entry.place.length);
            entry.from.into_iter().for_each(|from| self.move_ended(from));
            if entry.token != 0 {
                self.events.push(Event::Failed { token: entry.token });
                self.unanswered += 1;
            }
            // The next poll packs it, into another segment. Until then, none ends.
            self.carried.extend(entry.tombstone.filter(|it| self.segments.is_alive(it.replaces)));
        }
        if footers.is_some() {
            return self.sealed(segment, None);
        }
        let is_open = |packer: &Packer| packer.segment() == segment;
        let open = Stream::ALL
            .into_iter()
            .find(|&stream| self.packers[stream as usize].as_ref().is_some_and(is_open));
        open.into_iter().for_each(|stream| self.close(stream));
    }
}
