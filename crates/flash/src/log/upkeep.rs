//! Closing, reserving and emptying segments; the journal.

use super::{
    Event, Log,
    flow::{Journaling, Purpose},
    packer::footer_write,
    segments::State,
};
use crate::{
    format::{Journal, Stream, Trailer},
    recovery::Recovered,
    work::Work,
};

const JOURNAL_COPIES: u64 = 2;

/// A full segment whose footers wait until its records are durable: a footer without its record would hide
/// the key's older record after a power loss.
#[derive(Debug)]
pub(super) struct Closing {
    segment: u32,
    footers: Vec<u8>,
}

impl Log {
    /// Makes all records dead, also after a crash: [`Event::Emptied`] follows. The index is empty already. What failed
    /// before is to be answered all the same.
    pub fn empty_all(&mut self) {
        self.commit_all();
        self.flow.flush_before = self.flow.next_batch;
        self.packers = [None, None, None];
        self.closing.clear();
        (self.victim, self.scrubbed) = (None, None);
        self.carried.clear();
        self.disowned.clear();
        self.segments.least_life = self.segments.next_life;
        self.segments.take_back();
        for number in 0..self.layout.segments() {
            let state = self.segments.get(number).state;
            if !matches!(state, State::Free | State::Emptied | State::Cooling | State::Bad) {
                self.segments.empty(number);
            }
        }
        self.flow.is_journal_old = true;
        self.emptying = Emptying::Asked;
    }

    /// Takes over what recovery found.
    pub(super) fn adopt(&mut self, recovered: Recovered) {
        for kept in recovered.kept {
            if kept.is_failing {
                self.segments.fail(kept.segment);
            }
            match kept.unsealed {
                None => {
                    self.segments.get_mut(kept.segment).footers = Some(kept.footer_bytes);
                    self.segments.learn_footers(kept.footer_bytes);
                }
                // Reserved, and never written.
                Some(_) if kept.footer_bytes == 0 && !kept.is_failing => self.segments.empty(kept.segment),
                Some(entries) if !kept.is_failing => {
                    self.segments.set_state(kept.segment, State::Full);
                    self.closing.push(Closing { segment: kept.segment, footers: entries });
                }
                Some(_) => {}
            }
        }
        self.flow.is_journal_old = self.segments.count(State::Emptied) > 0;
    }

    /// The open segment of `stream` takes no more.
    pub(super) fn close(&mut self, stream: Stream) {
        self.submit(stream, false);
        let Some(packer) = self.packers[stream as usize].take() else { return };
        let segment = packer.segment();
        self.segments.set_state(segment, State::Full);
        self.closing.push(Closing { segment, footers: packer.into_footers() });
        self.flow.flush_before = self.flow.next_batch;
    }

    /// The segment's footers are written, or will not be.
    pub(super) fn sealed(&mut self, number: u32, footers: Option<u32>) {
        if self.segments.get(number).state == State::Full {
            self.segments.set_state(number, State::Sealed);
            self.segments.get_mut(number).footers = footers;
        }
    }

    pub(super) fn upkeep(&mut self) {
        self.write_footers();
        let ahead = self.options.reserve_ahead;
        let ready = self.segments.count(State::Promised) + self.segments.count(State::Reserved);
        let is_due = ready * 2 <= ahead || self.flow.is_journal_old;
        if is_due && self.segments.promise(ahead) {
            self.flow.is_journal_old = true;
        }
        self.start_journal();
        self.flush_if_due();
    }

    /// Ends the segments in which no batch was written. What failed in them was never acknowledged, and nothing is kept
    /// dead by it alone: it is appended again, or disowned. So they need not wait for that, which may need a segment.
    pub(super) fn end_unwritten(&mut self) {
        for number in self.segments.first_to_end() {
            let segment = self.segments.get(number);
            let is_over = segment.state == State::Sealed && segment.unsettled == 0;
            if is_over && segment.is_failing && !segment.has_records {
                self.segments.empty(number);
                self.flow.is_journal_old = true;
            }
        }
    }

    fn write_footers(&mut self) {
        let is_ready = |closing: &Closing| self.segments.get(closing.segment).unsettled == 0;
        let (ready, rest) = std::mem::take(&mut self.closing).into_iter().partition(is_ready);
        self.closing = rest;
        let ready: Vec<Closing> = ready;
        for Closing { segment, footers } in ready {
            let state = *self.segments.get(segment);
            if state.is_failing {
                self.sealed(segment, None);
                continue;
            }
            let entry_bytes = footers.len() as u32;
            let (life, stream) = (state.life, state.stream);
            let trailer = Trailer { table: self.table, segment, life, entry_bytes, stream };
            let work = footer_write(footers, trailer, self.seal, self.layout);
            self.segments.get_mut(segment).unsettled += 1;
            self.flow.send(segment, vec![work], Vec::new(), Some(entry_bytes));
        }
    }

    fn start_journal(&mut self) {
        if !self.flow.is_journal_old || !matches!(self.flow.journaling, Journaling::Idle) {
            return;
        }
        (self.flow.is_journal_old, self.journal_by_us) = (false, None);
        self.segments.promise_ended(self.options.reserve_ahead);
        self.flow.journal_number += 1;
        if self.emptying == Emptying::Asked {
            self.emptying = Emptying::Journaled;
        }
        let leaving = self.victim.as_ref().filter(|victim| victim.is_leaving).map(|victim| victim.number);
        let journal = Journal {
            table: self.table,
            number: self.flow.journal_number,
            next_life: self.segments.next_life,
            least_life: self.segments.least_life,
            items: None,
            uses: self.segments.uses(leaving),
            held: self.segments.held(),
        };
        for copy in 0..JOURNAL_COPIES {
            let at = self.layout.journal_at(journal.number, copy);
            let bytes = journal.encode(self.seal, at, self.layout.journal_bytes() as usize);
            self.flow.ask(Work::Write { at, bytes }, Purpose::Journal);
        }
        self.flow.journaling = Journaling::Writing { left: JOURNAL_COPIES as usize, ok: 0, journal };
    }

    pub(super) fn journal_done(&mut self, is_ok: bool) {
        let Journaling::Writing { left, ok, .. } = &mut self.flow.journaling else { return };
        (*left, *ok) = (*left - 1, *ok + usize::from(is_ok));
        let (left, ok) = (*left, *ok);
        if left > 0 {
            return;
        }
        if ok == 0 {
            return self.end_writing();
        }
        if let Journaling::Writing { journal, .. } =
            std::mem::replace(&mut self.flow.journaling, Journaling::Idle)
        {
            self.flow.journaling = Journaling::Written(journal);
        }
    }

    /// A journal is durable.
    pub(super) fn emptying_journaled(&mut self) {
        if self.emptying == Emptying::Journaled {
            self.emptying = Emptying::No;
            self.events.push(Event::Emptied);
        }
    }
}

/// How far [`Log::empty_all`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptying {
    No,
    /// The next journal says so.
    Asked,
    /// The journal on its way says so.
    Journaled,
}
