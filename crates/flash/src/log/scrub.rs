//! The scrubber: reads every sealed segment in turn, gives up those that do not verify, and drops what expired.

use super::{
    Index, Log,
    bucket::Bucket,
    segments::State,
    victim::{Phase, Run, Victim},
};
use crate::{format::Pages, gather::Gather};

/// The scrubber's way through the segments.
#[derive(Debug)]
pub(super) struct Scrubber {
    bucket: Bucket,
    next: u32,
}

impl Scrubber {
    pub(super) fn new(bytes_s: u64) -> Self {
        Self { bucket: Bucket::new(bytes_s), next: 0 }
    }
}

impl Log {
    /// Reads and verifies a little.
    pub(super) fn scrub(&mut self, now_us: u64, index: &mut impl Index) {
        if !self.scrubber.bucket.is_open(now_us) {
            return;
        }
        let Some(mut scrubbed) = self.scrubbed.take() else { return self.begin_scrub() };
        let segment = self.segments.get(scrubbed.number);
        if segment.life != scrubbed.life || segment.state != State::Sealed {
            return;
        }
        if matches!(&scrubbed.phase, Phase::Reading(run) if run.gather.is_done()) {
            self.verify(&mut scrubbed);
        }
        if matches!(scrubbed.phase, Phase::Moving) {
            if scrubbed.next == scrubbed.footers.len() {
                self.counters.scrubbed_segments += 1;
                return;
            }
            if scrubbed.next == 0 {
                self.drop_expired(&scrubbed, index);
            }
            scrubbed.phase = Phase::Reading(self.run_of_all(&scrubbed));
        }
        self.scrubbed = Some(scrubbed);
    }

    fn begin_scrub(&mut self) {
        let sealed = self.segments.in_state(State::Sealed);
        let sealed: Vec<u32> = sealed.filter(|&number| self.segments.get(number).unsettled == 0).collect();
        let next = sealed.iter().find(|&&number| number >= self.scrubber.next).or(sealed.first());
        if let Some(&number) = next {
            self.scrubber.next = number + 1;
            self.scrubbed = Some(self.start(number));
        }
    }

    /// Begins to read the next records, dead ones too.
    fn run_of_all(&mut self, scrubbed: &Victim) -> Run {
        let mut run = scrubbed.span_of(scrubbed.next);
        let mut last = scrubbed.next;
        for at in scrubbed.next + 1..scrubbed.footers.len() {
            let Some(joined) = scrubbed.joined(&run, at) else { break };
            (run, last) = (joined, at);
        }
        let run = self.read_run(scrubbed.number, run, last);
        self.scrubber.bucket.take(run.gather.len() as u64);
        run
    }

    /// Reads a range of a segment.
    pub(super) fn read_run(&mut self, number: u32, range: std::ops::Range<u64>, last: usize) -> Run {
        let end = range.end.min(u64::from(self.layout.segment_bytes()));
        let at = self.layout.segment_at(number) + range.start;
        let (names, jobs) = (&mut self.flow.names, &mut self.flow.jobs);
        Run { gather: Gather::start(at, (end - range.start) as usize, names, jobs), last }
    }

    fn verify(&mut self, scrubbed: &mut Victim) {
        let Phase::Reading(run) = std::mem::replace(&mut scrubbed.phase, Phase::Moving) else { return };
        let pages = Pages::new(&run.gather.bytes, run.gather.at, scrubbed.life, self.seal);
        let begin = run.gather.at - self.layout.segment_at(scrubbed.number);
        let is_whole = |at: usize| {
            let footer = &scrubbed.footers[at];
            let offset = (u64::from(footer.offset) - begin) as usize;
            let is_stamped = pages.stamp(offset / crate::format::PAGE_BYTES).is_ok();
            let record = pages.record(offset);
            is_stamped && matches!(record, Ok(Some((record, _))) if record.header.sequence == footer.sequence)
        };
        let faults = (scrubbed.next..=run.last).filter(|&at| !is_whole(at)).count();
        scrubbed.next = run.last + 1;
        if faults > 0 {
            self.counters.scrub_faults += faults as u64;
            self.segments.give_up(scrubbed.number);
        }
    }
}
