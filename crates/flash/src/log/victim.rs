//! The segment that is being compacted.

use super::{Log, Place, Policy, segments::State};
use crate::{
    format::{Footer, Footers, Life, PAGE_BYTES, footer_block_bytes},
    gather::Gather,
    recovery::scan,
    work::{Outcome, WorkId},
};
use std::ops::Range;

/// Most bytes of a run of records that is read at once.
const RUN_BYTES_MAX: u64 = 256 << 10;
/// Dead bytes that are read rather than begin another run.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// A segment on its way out.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) number: u32,
    /// Bytes of the segment.
    bytes: u64,
    pub(super) life: Life,
    pub(super) footers: Vec<Footer>,
    /// The first footer that is not yet decided about.
    pub(super) next: usize,
    pub(super) phase: Phase,
    /// It has no footers: the index may name records that are not among those found.
    pub(super) is_scanned: bool,
    /// Some of its records are to move: the journal must know first.
    pub(super) is_leaving: bool,
    /// Moved records that are not yet written.
    pub(super) moves: usize,
    /// Failed batches when it began.
    pub(super) failures: u64,
}

/// How far compaction of a segment is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Reads the footers.
    Footers(Gather),
    /// Reads all pages, because there are no footers.
    Pages(Gather),
    /// Decides about records.
    Moving,
    /// Reads records to move.
    Reading(Run),
    /// Waits until everything before this batch is durable, and a later group of the owner's.
    Settling { before: u64, group: u64 },
}

/// Live records that lie close together, from the victim's next footer to the last one.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) gather: Gather,
    pub(super) last: usize,
}

impl Victim {
    /// The pages of a footer's record, as offsets in the segment. Lengths are rounded up; the segment's end is exact.
    pub(super) fn span_of(&self, at: usize) -> Range<u64> {
        let page = PAGE_BYTES as u64;
        let footer = &self.footers[at];
        let start = u64::from(footer.offset) / page * page;
        let end = start + footer.length.map_or(1, |length| length.pages()) * page;
        start..end.min(self.bytes)
    }

    /// `run` with the record of another footer, unless that is too far away.
    pub(super) fn joined(&self, run: &Range<u64>, at: usize) -> Option<Range<u64>> {
        let span = self.span_of(at);
        let is_near = span.start <= run.end + GAP_BYTES_MAX && span.end - run.start <= RUN_BYTES_MAX;
        is_near.then_some(run.start..span.end.max(run.end))
    }
}

impl Log {
    /// Begins to read a segment.
    pub(super) fn start(&mut self, number: u32) -> Victim {
        let segment = *self.segments.get(number);
        let begin = self.layout.segment_at(number);
        let bytes = u64::from(self.layout.segment_bytes());
        let (names, jobs) = (&mut self.flow.names, &mut self.flow.jobs);
        let phase = match segment.footers {
            Some(entry_bytes) => {
                let len = footer_block_bytes(entry_bytes);
                Phase::Footers(Gather::start(begin + bytes - len, len as usize, names, jobs))
            }
            _ => Phase::Pages(Gather::start(begin, bytes as usize, names, jobs)),
        };
        let (life, failures, is_leaving) = (segment.life, self.flow.failures, segment.is_leaving);
        let (footers, is_scanned) = (Vec::new(), segment.footers.is_none());
        Victim { number, bytes, life, footers, next: 0, phase, is_scanned, is_leaving, moves: 0, failures }
    }

    /// The result of a read for compaction or scrubber.
    pub(super) fn read_done(&mut self, id: WorkId, outcome: Outcome<'_>) {
        if let Some(mut victim) = self.victim.take() {
            let again = self.reads_of(|log| log.take_read(&mut victim, id, outcome));
            self.counters.compaction_read_bytes += again;
            self.victim = Some(victim);
        }
        if let Some(mut scrubbed) = self.scrubbed.take() {
            let again = self.reads_of(|log| log.take_read(&mut scrubbed, id, outcome));
            self.counters.scrub_read_bytes += again;
            self.scrubbed = Some(scrubbed);
        }
    }

    fn take_read(&mut self, victim: &mut Victim, id: WorkId, outcome: Outcome<'_>) {
        let (Phase::Footers(gather) | Phase::Pages(gather) | Phase::Reading(Run { gather, .. })) =
            &mut victim.phase
        else {
            return;
        };
        if !gather.done(id, outcome, &mut self.flow.names, &mut self.flow.jobs) || !gather.is_done() {
            return;
        }
        if gather.failed_pages > 0 {
            self.segments.fail(victim.number);
        }
        self.read_footers(victim);
    }

    /// Takes the footers from what was read, or reads all pages instead.
    fn read_footers(&mut self, victim: &mut Victim) {
        let (number, life) = (victim.number, victim.life);
        let end = self.layout.segment_at(number) + u64::from(self.layout.segment_bytes());
        match &victim.phase {
            Phase::Footers(gather) => match Footers::decode(&gather.bytes, self.seal, end) {
                Ok(footers) if footers.trailer.life == life => {
                    victim.footers = footers.iter().collect();
                    victim.phase = Phase::Moving;
                }
                _ => {
                    self.counters.scrub_faults += 1;
                    self.segments.get_mut(number).footers = None;
                    self.segments.give_up(number);
                    *victim = self.start(number);
                }
            },
            Phase::Pages(gather) => {
                victim.footers = scan(&gather.bytes, gather.at, life, self.seal);
                victim.phase = Phase::Moving;
            }
            _ => {}
        }
    }

    /// The segment that is best compacted now.
    pub(super) fn choose_victim(&self, first: &[u32]) -> Option<u32> {
        let sealed = self.segments.in_state(State::Sealed);
        let settled: Vec<u32> = sealed.filter(|&number| self.segments.get(number).unsettled == 0).collect();
        if !first.is_empty() {
            let ready = settled.into_iter().filter(|number| first.contains(number));
            return ready.min_by_key(|&number| self.segments.get(number).is_failing);
        }
        match self.options.policy {
            Policy::Cache { .. } => settled.into_iter().min_by_key(|&number| self.segments.get(number).life),
            Policy::Store { .. } => {
                let best = settled.into_iter().map(|number| (self.benefit(number), number));
                let best = best.max_by(|a, b| a.0.total_cmp(&b.0));
                best.filter(|(benefit, _)| *benefit > 0.0).map(|(_, number)| number)
            }
        }
    }

    /// Free bytes won, times age, over the cost to read all and write the live ones.
    fn benefit(&self, number: u32) -> f64 {
        let segment = self.segments.get(number);
        let live = self.segments.exact(segment.live_bytes) as f64 / self.segments.full_bytes as f64;
        let age = f64::from(self.segments.next_life.0 - segment.life.0);
        (1.0 - live).max(0.0) * age / (1.0 + live)
    }

    /// The page of a record at this offset in a segment.
    pub(super) fn page_of(&self, number: u32, offset: u32) -> u32 {
        ((self.layout.segment_at(number) + u64::from(offset)) / PAGE_BYTES as u64) as u32
    }

    /// The place of a footer's record; `None` for a tombstone.
    pub(super) fn place_of(&self, number: u32, footer: &Footer) -> Option<Place> {
        Some(Place { page: self.page_of(number, footer.offset), length: footer.length? })
    }
}
