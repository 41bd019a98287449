//! One thread of a measurement: vectors of random requests through a lane of its own.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use minos_device::{Buffer, Completion, Device, Error, Lane, LaneOptions, Request};
use minos_workload::Latencies;
use rand::{Rng as _, RngExt as _, rngs::StdRng};
use rand_distr::{Distribution as _, Exp1};

/// The work of each thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Bytes of a request.
    pub(super) request_bytes: usize,
    /// Requests of a vector.
    pub(super) width: usize,
    /// Requests in flight.
    pub(super) depth: usize,
    /// Share of reads.
    pub(super) read_share: f64,
    /// Vectors a second of this thread, with exponential gaps; without it a closed loop.
    pub(super) vectors_per_s: Option<f64>,
    /// Spins between vectors.
    pub(super) spins: bool,
}

/// The measured window, since the run began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    /// Longest wait for requests in flight afterwards.
    pub(super) drain: Duration,
}

/// The results of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Completions within the window.
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) vectors: u64,
    /// Requests that found the device or the lane full, whenever they did.
    pub(super) refused: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// Requests without a completion at the end.
    pub(super) lost: u64,
    /// Of requests begun within the window.
    pub(super) latencies: Latencies,
    /// Delays of vectors behind their intended times.
    pub(super) lags: Latencies,
}

/// A thread and its lane.
pub(super) struct Driver {
    lane: Lane,
    work: Work,
    window: Window,
    rng: StdRng,
    /// Places for a request on the device.
    places: u64,
    /// Tags that are not in flight, with their buffers.
    free: Vec<(u64, Buffer)>,
    /// Of each tag in flight: when it was to begin, in nanoseconds since the run began, and if it reads.
    begun: Vec<(u64, bool)>,
    vector: Vec<Request>,
    completions: Vec<Completion>,
    next_ns: u64,
    tally: Tally,
}

impl Driver {
    pub(super) fn new(device: &Device, work: Work, window: Window, mut rng: StdRng) -> Result<Self> {
        let Work { request_bytes, depth, .. } = work;
        let pool_bytes = depth * request_bytes;
        let threads = depth.min(256) as u16;
        let mut lane = device.lane(&LaneOptions {
            depth: depth as u32,
            pool_bytes,
            threads,
            ..LaneOptions::default()
        })?;
        let mut free = Vec::with_capacity(depth);
        for tag in 0..depth as u64 {
            let mut buffer = lane.buffer(request_bytes)?;
            rng.fill_bytes(&mut buffer);
            free.push((tag, buffer));
        }
        Ok(Self {
            lane,
            work,
            window,
            rng,
            places: device.geometry().capacity_bytes / request_bytes as u64,
            free,
            begun: vec![(0, false); depth],
            vector: Vec::with_capacity(work.width),
            completions: Vec::with_capacity(depth),
            next_ns: 0,
            tally: Tally::default(),
        })
    }

    /// Runs until the window is over.
    pub(super) fn run(mut self) -> Result<Tally> {
        let end_ns = self.end_ns();
        while self.now_ns() < end_ns {
            match self.work.vectors_per_s {
                None => self.turn_closed()?,
                Some(rate) => self.turn_open(rate)?,
            }
            self.settle();
        }
        let drain_end = self.now_ns() + self.window.drain.as_nanos() as u64;
        while self.lane.in_flight() > 0 && self.now_ns() < drain_end {
            self.lane.wait(self.lane.in_flight(), self.window.drain, &mut self.completions)?;
            self.settle();
        }
        self.tally.lost = self.lane.in_flight() as u64;
        self.tally.refused = self.lane.counts().refused;
        Ok(self.tally)
    }

    /// Submits as many vectors as fit, the last together with the wait for room for the next.
    fn turn_closed(&mut self) -> Result<()> {
        let end = Duration::from_millis(10);
        while self.vector.is_empty() && self.free.len() >= self.work.width {
            let now_ns = self.now_ns();
            self.draw_vector(now_ns);
            if self.free.len() >= self.work.width {
                self.lane.submit(&mut self.vector)?;
            }
        }
        let least = self.work.width.saturating_sub(self.free.len()).max(1);
        self.lane.submit_and_wait(&mut self.vector, least, end, &mut self.completions)?;
        Ok(())
    }

    /// Submits the vectors that are due, and waits until the next is.
    fn turn_open(&mut self, vectors_per_s: f64) -> Result<()> {
        let now_ns = self.now_ns();
        if self.next_ns <= now_ns && self.vector.is_empty() && self.free.len() >= self.work.width {
            let due_ns = self.next_ns;
            if self.is_measured(due_ns) {
                self.tally.lags.record_ns(now_ns - due_ns);
            }
            self.draw_vector(due_ns);
            let gap: f64 = Exp1.sample(&mut self.rng);
            self.next_ns += (gap * 1e9 / vectors_per_s) as u64;
        }
        self.lane.submit(&mut self.vector)?;
        let left_ns = if self.work.spins { 0 } else { self.next_ns.saturating_sub(self.now_ns()) };
        match (left_ns, self.lane.in_flight()) {
            (0, _) => self.lane.complete(&mut self.completions)?,
            (left_ns, 0) => {
                std::thread::sleep(Duration::from_nanos(left_ns));
                0
            }
            (left_ns, _) => self.lane.wait(1, Duration::from_nanos(left_ns), &mut self.completions)?,
        };
        Ok(())
    }

    /// Draws a vector of random requests that begin at `begin_ns`.
    fn draw_vector(&mut self, begin_ns: u64) {
        let Work { width, request_bytes, read_share, .. } = self.work;
        self.tally.vectors += u64::from(self.is_measured(begin_ns));
        let from = self.free.len() - width;
        for (tag, buffer) in self.free.drain(from..) {
            let offset = self.rng.random_range(0..self.places) * request_bytes as u64;
            let is_read = read_share >= 1.0 || self.rng.random_bool(read_share);
            self.begun[tag as usize] = (begin_ns, is_read);
            let request = if is_read { Request::read } else { Request::write };
            self.vector.push(request(tag, offset, buffer));
        }
    }

    /// Counts completions.
    fn settle(&mut self) {
        let now_ns = self.now_ns();
        let is_inside = self.is_measured(now_ns);
        for Completion { tag, buffer, result } in self.completions.drain(..) {
            let (begin_ns, is_read) = self.begun[tag as usize];
            self.free.extend(buffer.map(|buffer| (tag, buffer)));
            if let Err(error) = result {
                *self.tally.errors.entry(name(error)).or_default() += 1;
                continue;
            }
            self.tally.reads += u64::from(is_inside && is_read);
            self.tally.writes += u64::from(is_inside && !is_read);
            if begin_ns >= self.window.warmup.as_nanos() as u64 {
                self.tally.latencies.record_ns(now_ns.saturating_sub(begin_ns));
            }
        }
    }

    fn is_measured(&self, ns: u64) -> bool {
        (self.window.warmup.as_nanos() as u64..self.end_ns()).contains(&ns)
    }

    fn end_ns(&self) -> u64 {
        (self.window.warmup + self.window.duration).as_nanos() as u64
    }

    fn now_ns(&self) -> u64 {
        self.window.begin.elapsed().as_nanos() as u64
    }
}

/// The kind of an error in reports.
fn name(error: Error) -> String {
    match error {
        Error::Io(number) => format!("io_{number}"),
        Error::Short { .. } => "short".to_owned(),
        Error::NoSpace => "no_space".to_owned(),
        Error::Gone => "gone".to_owned(),
        error => error.to_string(),
    }
}
