//! The scrubber: reads every sealed segment in turn, gives up those that do not verify, and drops what expired.

use super::{
    Index, Log,
    bucket::Bucket,
    segments::State,
    victim::{Phase, Run, Victim},
};
use crate::{
    format::{Life, Pages},
    gather::Gather,
};

/// The scrubber's way through the segments.
#[derive(Debug)]
pub(super) struct Scrubber {
    bucket: Bucket,
    /// The rate between sweeps.
    bytes_s: u64,
    next: u32,
    /// Segments that the sweep under way has yet to read, the next one last.
    sweep: Option<Vec<(u32, Life)>>,
}

impl Scrubber {
    pub(super) fn new(bytes_s: u64) -> Self {
        Self { bucket: Bucket::new(bytes_s), bytes_s, next: 0, sweep: None }
    }
}

/// What the scrubber does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubState {
    /// Bytes a second that it reads now.
    pub bytes_s: u64,
    /// The segment that it reads next, or reads.
    pub segment: u32,
    /// Segments that a sweep under way has yet to read; `None`: it reads round and round.
    pub left: Option<usize>,
}

impl Log {
    /// Bytes a second that the scrubber reads from now on, or after the sweep under way; 0: none.
    pub fn set_scrub_rate(&mut self, bytes_s: u64) {
        self.scrubber.bytes_s = bytes_s;
        if self.scrubber.sweep.is_none() {
            self.scrubber.bucket.set_rate(bytes_s);
        }
    }

    /// Reads and verifies everything that is sealed once, from now on, at this rate.
    pub fn sweep(&mut self, bytes_s: u64) {
        let sealed =
            self.segments.in_state(State::Sealed).map(|number| (number, self.segments.get(number).life));
        let mut left: Vec<_> = sealed.collect();
        left.reverse();
        self.scrubber.sweep = Some(left);
        self.scrubber.bucket.set_rate(bytes_s);
        self.scrubbed = None;
    }

    /// What the scrubber does.
    pub fn scrub_state(&self) -> ScrubState {
        let Scrubber { bucket, next, sweep, .. } = &self.scrubber;
        let under_way = usize::from(self.scrubbed.is_some());
        let segment = self.scrubbed.as_ref().map_or(*next, |scrubbed| scrubbed.number);
        ScrubState {
            bytes_s: bucket.rate(),
            segment,
            left: sweep.as_ref().map(|left| left.len() + under_way),
        }
    }

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
        if let Some(left) = &mut self.scrubber.sweep {
            let Some((number, life)) = left.pop() else { return self.end_sweep() };
            let segment = self.segments.get(number);
            // What was compacted meanwhile was read.
            if segment.life == life && segment.state == State::Sealed {
                self.scrubbed = Some(self.start(number));
            }
            return;
        }
        let sealed = self.segments.in_state(State::Sealed);
        let sealed: Vec<u32> = sealed.filter(|&number| self.segments.get(number).unsettled == 0).collect();
        let next = sealed.iter().find(|&&number| number >= self.scrubber.next).or(sealed.first());
        if let Some(&number) = next {
            self.scrubber.next = number + 1;
            self.scrubbed = Some(self.start(number));
        }
    }

    fn end_sweep(&mut self) {
        self.scrubber.sweep = None;
        self.scrubber.bucket.set_rate(self.scrubber.bytes_s);
        self.counters.sweeps += 1;
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
        let at = self.layout.segment_at(number) + range.start;
        let (names, jobs) = (&mut self.flow.names, &mut self.flow.jobs);
        Run { gather: Gather::start(at, (range.end - range.start) as usize, names, jobs), last }
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
