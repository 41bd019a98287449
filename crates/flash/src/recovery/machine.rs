//! Reads superblock, journal, and the segments that the journal names.

use super::{Damage, lengths::Lengths, scan::scan_pages};
use crate::{
    format::{
        Fault, Footer, FooterWriter, Footers, Held, Journal, Layout, Life, PAGE_BYTES, RoughLength, Seal,
        Superblock, Trailer, Use, footer_block_bytes,
    },
    gather::Gather,
    work::{Names, Outcome, Work, WorkId},
};
use minos_base::{KeyHash, Seconds};
use std::collections::VecDeque;
use thiserror::Error;

/// Segments whose footers are read at the same time.
const WIDTH: usize = 16;
const COPIES: u64 = 2;

/// The reason why there is no table to recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotOurs {
    /// Neither superblock is one.
    #[error("no table: {0}")]
    Superblock(Fault),
    /// No copy of the journal is one of this table.
    #[error("the table's journal is lost: {0}")]
    Journal(Fault),
    /// The device failed to flush.
    #[error("the device failed")]
    Device,
}

/// A segment that may hold records.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) segment: u32,
    /// Bytes of its footers.
    pub(crate) footer_bytes: u32,
    /// The footers, if the segment has none at its end.
    pub(crate) unsealed: Option<Vec<u8>>,
    pub(crate) is_failing: bool,
}

/// A table's state after recovery.
#[derive(Debug)]
pub struct Recovered {
    pub(crate) journal: Journal,
    pub(crate) kept: Vec<Kept>,
    /// What each segment holds.
    pub(super) held: Vec<Held>,
    /// Bytes of records, and the same by their rough lengths.
    pub(crate) lengths: (u64, u64),
    /// What is missing of what the journal says.
    pub damage: Option<Damage>,
}

/// A record that recovery found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key's hash.
    pub hash: KeyHash,
    /// Its sequence; the highest of a hash counts, of equal ones a tombstone.
    pub sequence: u64,
    /// When it expires; 0 is never. Of a tombstone, nothing.
    pub expiry: Seconds,
    /// The page and life in which a tombstone buries what looks alike, whatever its hash.
    pub buries: Option<(u32, Life)>,
    /// The page in which it begins.
    pub page: u32,
    /// Its length; `None` for a tombstone.
    pub length: Option<RoughLength>,
    /// The life of its segment.
    pub life: Life,
    /// The life in which the record lies that it replaces, or that it buries.
    pub replaces: Life,
    /// Records move out of its segment: there may be a copy elsewhere. Those come first.
    pub is_leaving: bool,
}

/// The progress of recovery.
#[derive(Debug)]
pub enum Step {
    /// Work is under way.
    Working,
    /// All is read and durable.
    Done(Box<(Superblock, Recovered)>),
    /// There is nothing to recover.
    Failed(NotOurs),
}

#[derive(Debug)]
enum Phase {
    Superblocks,
    Journals,
    Segments,
    Flush(WorkId),
    End,
}

/// A segment that is being read.
#[derive(Debug)]
struct Task {
    segment: u32,
    life: Life,
    kind: Kind,
    is_leaving: bool,
    gather: Gather,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Trailer,
    Footers,
    Pages,
}

/// Recovers a table.
#[derive(Debug)]
pub struct Recovery {
    names: Names,
    phase: Phase,
    heads: Vec<Gather>,
    superblock: Option<Superblock>,
    journal: Option<Journal>,
    held: Vec<Held>,
    lengths: Lengths,
    /// Footers are not read.
    is_survey: bool,
    /// Segments that records move out of; read before all others.
    leaving: VecDeque<(u32, Life)>,
    /// Live segments not yet begun.
    waiting: VecDeque<(u32, Life)>,
    /// Those without footers, read whole and one after another.
    unsealed: VecDeque<(u32, Life, bool)>,
    /// Memory of runs that were read, for others.
    rooms: Vec<Vec<u8>>,
    tasks: Vec<Task>,
    kept: Vec<Kept>,
    jobs: Vec<(WorkId, Work)>,
}

impl Recovery {
    /// Begins with the superblocks.
    pub fn new() -> Self {
        let (mut names, mut jobs) = (Names::default(), Vec::new());
        let page = PAGE_BYTES as u64;
        let heads = (0..COPIES).map(|copy| Gather::start(copy * page, PAGE_BYTES, &mut names, &mut jobs));
        let heads = heads.collect();
        Self {
            names,
            phase: Phase::Superblocks,
            heads,
            superblock: None,
            journal: None,
            held: Vec::new(),
            lengths: Lengths::default(),
            is_survey: false,
            leaving: VecDeque::new(),
            waiting: VecDeque::new(),
            unsealed: VecDeque::new(),
            rooms: Vec::new(),
            tasks: Vec::new(),
            kept: Vec::new(),
            jobs,
        }
    }

    /// Only finds out what each segment holds, for [`Recovered::last_journal`].
    pub fn survey() -> Self {
        Self { is_survey: true, ..Self::new() }
    }

    /// Asks for work.
    pub fn poll(&mut self, jobs: &mut Vec<(WorkId, Work)>) {
        jobs.append(&mut self.jobs);
    }

    /// The result of a piece of work. Every record that a segment holds is given to `out`.
    pub fn done(&mut self, id: WorkId, outcome: Outcome<'_>, out: &mut impl FnMut(&Found)) -> Step {
        match self.phase {
            Phase::Superblocks | Phase::Journals => {
                let (names, jobs) = (&mut self.names, &mut self.jobs);
                self.heads.iter_mut().any(|head| head.done(id, outcome, names, jobs));
                if !self.heads.iter().all(Gather::is_done) {
                    return Step::Working;
                }
                let read = match self.phase {
                    Phase::Superblocks => self.read_superblock(),
                    _ => self.read_journal(),
                };
                read.map_or_else(Step::Failed, |()| Step::Working)
            }
            Phase::Segments => {
                self.segment_done(id, outcome, out);
                Step::Working
            }
            Phase::Flush(flush) if flush == id => self.end(outcome.is_ok()),
            Phase::Flush(_) | Phase::End => Step::Working,
        }
    }

    fn end(&mut self, is_ok: bool) -> Step {
        self.phase = Phase::End;
        match (self.superblock, self.journal.take()) {
            (Some(superblock), Some(journal)) if is_ok => {
                let (kept, held) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.held));
                let damage = Damage::between(&journal, &held, superblock.layout);
                let lengths = self.lengths.sums();
                Step::Done(Box::new((superblock, Recovered { journal, kept, held, lengths, damage })))
            }
            _ => Step::Failed(NotOurs::Device),
        }
    }

    fn read_superblock(&mut self) -> Result<(), NotOurs> {
        let heads = std::mem::take(&mut self.heads);
        let superblock = Superblock::of_copies(heads.iter().map(|head| &*head.bytes));
        let superblock = superblock.map_err(NotOurs::Superblock)?;
        let layout = superblock.layout;
        let len = layout.journal_bytes() as usize;
        for (number, copy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let at = layout.journal_at(number, copy);
            self.heads.push(Gather::start(at, len, &mut self.names, &mut self.jobs));
        }
        (self.superblock, self.phase) = (Some(superblock), Phase::Journals);
        Ok(())
    }

    fn read_journal(&mut self) -> Result<(), NotOurs> {
        let Some(superblock) = self.superblock else { return Err(NotOurs::Device) };
        let seal = Seal::new(superblock.seed);
        let read = |head: &Gather| {
            let journal = Journal::decode(&head.bytes, seal, head.at)?;
            if journal.table != superblock.table {
                return Err(Fault::Table(journal.table));
            }
            let is_whole = journal.uses.len() == superblock.layout.segments() as usize;
            if !is_whole {
                return Err(Fault::Length(journal.uses.len() as u64));
            }
            Ok(journal)
        };
        let journals: Vec<_> = self.heads.drain(..).map(|head| read(&head)).collect();
        let newest = journals.iter().flatten().max_by_key(|journal| journal.number).cloned();
        let journal = match newest {
            Some(newest) => newest,
            None => first_ok(journals.into_iter()).map_err(NotOurs::Journal)?,
        };
        self.held = vec![Held::Unknown; journal.uses.len()];
        for (segment, used) in journal.uses.iter().enumerate() {
            let (queue, life) = match *used {
                Use::Live(life) => (&mut self.waiting, life),
                Use::Leaving(life) | Use::Failing(life) => (&mut self.leaving, life),
                Use::Free | Use::Bad => continue,
            };
            if life >= journal.least_life {
                queue.push_back((segment as u32, life));
            }
        }
        (self.journal, self.phase) = (Some(journal), Phase::Segments);
        self.begin_tasks(superblock.layout);
        Ok(())
    }

    /// Keeps the device busy, or ends with a flush: what is served from now on survives a power loss.
    fn begin_tasks(&mut self, layout: Layout) {
        let segment_bytes = u64::from(layout.segment_bytes());
        while self.tasks.len() < WIDTH
            && let Some((segment, life, is_leaving)) = self.next_segment()
        {
            let at = layout.segment_at(segment) + segment_bytes - PAGE_BYTES as u64;
            let gather = Gather::start(at, PAGE_BYTES, &mut self.names, &mut self.jobs);
            self.tasks.push(Task { segment, life, kind: Kind::Trailer, is_leaving, gather });
        }
        if self.tasks.iter().all(|task| task.kind != Kind::Pages)
            && let Some((segment, life, is_leaving)) = self.unsealed.pop_front()
        {
            let run = (layout.segment_at(segment), segment_bytes as usize);
            let room = self.rooms.pop().unwrap_or_default();
            let gather = Gather::start_in(room, run, &mut self.names, &mut self.jobs);
            self.tasks.push(Task { segment, life, kind: Kind::Pages, is_leaving, gather });
        }
        if self.tasks.is_empty() {
            let id = self.names.next();
            self.jobs.push((id, Work::Flush));
            self.phase = Phase::Flush(id);
        }
    }

    /// The next segment to read: all that are leaving are read to the end before the others.
    fn next_segment(&mut self) -> Option<(u32, Life, bool)> {
        if let Some((segment, life)) = self.leaving.pop_front() {
            return Some((segment, life, true));
        }
        let is_first = self.tasks.iter().any(|task| task.is_leaving);
        if is_first || self.unsealed.iter().any(|(_, _, is_leaving)| *is_leaving) {
            return None;
        }
        self.waiting.pop_front().map(|(segment, life)| (segment, life, false))
    }

    fn segment_done(&mut self, id: WorkId, outcome: Outcome<'_>, out: &mut impl FnMut(&Found)) {
        let Some(Superblock { layout, seed, .. }) = self.superblock else { return };
        let (names, jobs) = (&mut self.names, &mut self.jobs);
        let mut tasks = self.tasks.iter_mut();
        let Some(number) = tasks.position(|task| task.gather.done(id, outcome, names, jobs)) else { return };
        if !self.tasks[number].gather.is_done() {
            return;
        }
        let task = self.tasks.swap_remove(number);
        let seal = Seal::new(seed);
        let end = layout.segment_at(task.segment) + u64::from(layout.segment_bytes());
        match task.kind {
            Kind::Trailer => self.trailer_read(task, layout, seal, end, out),
            Kind::Footers => self.footers_read(task, layout, seal, end, out),
            Kind::Pages => self.pages_read(task, layout, seal, out),
        }
        self.begin_tasks(layout);
    }

    /// Reads the rest of the footers; all of them may be in the last page.
    fn trailer_read(
        &mut self,
        task: Task,
        layout: Layout,
        seal: Seal,
        end: u64,
        out: &mut impl FnMut(&Found),
    ) {
        let trailer = Trailer::decode(&task.gather.bytes).ok().filter(|it| it.life == task.life);
        let len = trailer.map_or(0, |trailer| footer_block_bytes(trailer.entry_bytes));
        if len == 0 || len > u64::from(layout.segment_bytes()) {
            return self.unsealed.push_back((task.segment, task.life, task.is_leaving));
        }
        if self.is_survey {
            self.held[task.segment as usize] = Held::Sealed;
            return;
        }
        if len == PAGE_BYTES as u64 {
            return self.footers_read(task, layout, seal, end, out);
        }
        let (room, run) = (self.rooms.pop().unwrap_or_default(), (end - len, len as usize));
        let gather = Gather::start_in(room, run, &mut self.names, &mut self.jobs);
        self.tasks.push(Task { kind: Kind::Footers, gather, ..task });
    }

    fn footers_read(
        &mut self,
        task: Task,
        layout: Layout,
        seal: Seal,
        end: u64,
        out: &mut impl FnMut(&Found),
    ) {
        let Ok(footers) = Footers::decode(&task.gather.bytes, seal, end) else {
            return self.unsealed.push_back((task.segment, task.life, task.is_leaving));
        };
        let begin = layout.segment_at(task.segment);
        let of = (task.life, task.is_leaving);
        let mut before = None;
        for footer in footers.iter() {
            out(&found(begin, &footer, of));
            self.lengths.learn(before.replace(footer), &footer);
        }
        let (segment, footer_bytes) = (task.segment, footers.trailer.entry_bytes);
        self.held[segment as usize] = Held::Sealed;
        self.kept.push(Kept { segment, footer_bytes, unsealed: None, is_failing: false });
        if task.kind == Kind::Footers {
            self.rooms.push(task.gather.bytes);
        }
    }

    fn pages_read(&mut self, task: Task, layout: Layout, seal: Seal, out: &mut impl FnMut(&Found)) {
        let (footers, pages) = scan_pages(&task.gather.bytes, task.gather.at, task.life, seal);
        self.held[task.segment as usize] = Held::Pages(pages);
        let mut writer = FooterWriter::default();
        let mut before = None;
        for footer in &footers {
            out(&found(layout.segment_at(task.segment), footer, (task.life, task.is_leaving)));
            self.lengths.learn(before.replace(*footer), footer);
            // They were in the segment, and there was room for those of all its records.
            writer.push(footer, u64::MAX);
        }
        let is_failing = task.gather.failed_pages > 0;
        let entries = writer.into_bytes();
        let (segment, footer_bytes) = (task.segment, entries.len() as u32);
        self.kept.push(Kept { segment, footer_bytes, unsealed: Some(entries), is_failing });
        self.rooms.push(task.gather.bytes);
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Self::new()
    }
}

fn found(begin: u64, footer: &Footer, (life, is_leaving): (Life, bool)) -> Found {
    let page = ((begin + u64::from(footer.offset)) / PAGE_BYTES as u64) as u32;
    let Footer { hash, sequence, expiry, replaces, length, .. } = *footer;
    Found { hash, sequence, expiry, buries: footer.buries(), page, length, life, replaces, is_leaving }
}

/// The first that is right, or the first error.
fn first_ok<T>(mut results: impl Iterator<Item = Result<T, Fault>>) -> Result<T, Fault> {
    let first = results.next().unwrap_or(Err(Fault::Checksum));
    first.or_else(|fault| results.find_map(Result::ok).ok_or(fault))
}
