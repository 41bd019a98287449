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
    /// Writes before each flush.
    pub(super) flush_every: Option<u32>,
    /// Vectors a second of this thread, with exponential gaps; without it a closed loop.
    pub(super) vectors_per_s: Option<f64>,
    /// Spins between vectors.
    pub(super) spins: bool,
    /// Refuses a lane whose buffers the kernel maps with each request.
    pub(super) must_register: bool,
}

/// The measured window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
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
    pub(super) flushes: u64,
    pub(super) vectors: u64,
    /// Requests that found the device or the lane full, whenever they did.
    pub(super) refused: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// Requests without a completion at the end.
    pub(super) lost: u64,
    /// The reason for buffers that the kernel maps with each request.
    pub(super) why_unregistered: Option<String>,
    /// Of reads and writes begun within the window.
    pub(super) latencies: Latencies,
    /// Of flushes begun within the window.
    pub(super) flush_latencies: Latencies,
    /// Delays of vectors behind their intended times.
    pub(super) lags: Latencies,
}

/// A request in flight.
#[derive(Debug, Default)]
struct Begun {
    /// When it was to begin, in nanoseconds since the run began.
    ns: u64,
    kind: Kind,
    /// The buffer of its tag, which a flush does not need.
    kept: Option<Buffer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Read,
    Write,
    Flush,
}

/// The end of a turn of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The next turn follows at once.
    None,
    Sleep(Duration),
    /// Until so many requests have ended, or the time is over.
    Wait(usize, Duration),
}

impl Rest {
    /// `left_ns` nanoseconds before the next vector is due, which finds room when `lacking` requests have ended.
    fn of(left_ns: u64, lacking: usize, in_flight: usize) -> Self {
        match (Duration::from_nanos(left_ns), lacking, in_flight) {
            (Duration::ZERO, 0, _) => Self::None,
            // Other threads fill the device.
            (left, 1.., 0) => Self::Sleep(if left.is_zero() { FULL_SLEEP } else { left.min(FULL_SLEEP) }),
            (left, 0, 0) => Self::Sleep(left),
            (Duration::ZERO, lacking, _) => Self::Wait(lacking, WAIT_MAX),
            (left, ..) => Self::Wait(1, left),
        }
    }
}

/// Longest wait of a turn for room.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// Sleep of a thread without requests in flight that finds the device full.
const FULL_SLEEP: Duration = Duration::from_micros(100);

/// A thread and its lane.
pub(super) struct Driver {
    lane: Lane,
    work: Work,
    window: Window,
    /// Of the warm-up.
    begin: Instant,
    rng: StdRng,
    /// Places for a request on the device.
    places: u64,
    /// Tags that are not in flight, with their buffers.
    free: Vec<(u64, Buffer)>,
    /// By tag.
    begun: Vec<Begun>,
    /// Writes drawn since the last flush.
    unflushed: u32,
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
            must_register: work.must_register,
        })?;
        let why_unregistered = lane.why_unregistered().map(str::to_owned);
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
            begin: Instant::now(),
            rng,
            places: device.geometry().capacity_bytes / request_bytes as u64,
            free,
            begun: (0..depth).map(|_| Begun::default()).collect(),
            unflushed: 0,
            vector: Vec::with_capacity(work.width),
            completions: Vec::with_capacity(depth),
            next_ns: 0,
            tally: Tally { why_unregistered, ..Tally::default() },
        })
    }

    /// Runs from `begin` until the window is over.
    pub(super) fn run(mut self, begin: Instant) -> Result<Tally> {
        self.begin = begin;
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
        while self.vector.is_empty() && self.free.len() >= self.work.width {
            let now_ns = self.now_ns();
            self.draw_vector(now_ns);
            if self.free.len() >= self.work.width {
                self.lane.submit(&mut self.vector)?;
            }
        }
        let least = self.work.width.saturating_sub(self.free.len()).max(1);
        self.lane.submit_and_wait(&mut self.vector, least, WAIT_MAX, &mut self.completions)?;
        if !self.vector.is_empty() && self.lane.in_flight() == 0 {
            std::thread::sleep(FULL_SLEEP);
        }
        Ok(())
    }

    /// Submits the vectors that are due, and waits until the next is.
    fn turn_open(&mut self, vectors_per_s: f64) -> Result<()> {
        let now_ns = self.now_ns();
        if self.next_ns <= now_ns && self.lacking() == 0 {
            let due_ns = self.next_ns;
            if self.is_measured(due_ns) {
                self.tally.lags.record_ns(now_ns - due_ns);
            }
            self.draw_vector(due_ns);
            let gap: f64 = Exp1.sample(&mut self.rng);
            self.next_ns += (gap * 1e9 / vectors_per_s) as u64;
        }
        self.lane.submit(&mut self.vector)?;
        let left_ns = self.next_ns.min(self.end_ns()).saturating_sub(self.now_ns());
        let rest = Rest::of(left_ns, self.lacking(), self.lane.in_flight());
        match if self.work.spins { Rest::None } else { rest } {
            Rest::None => self.lane.complete(&mut self.completions)?,
            Rest::Wait(least, time) => self.lane.wait(least, time, &mut self.completions)?,
            Rest::Sleep(time) => {
                std::thread::sleep(time);
                0
            }
        };
        Ok(())
    }

    /// Requests that must end before the next vector finds room.
    fn lacking(&self) -> usize {
        match self.vector.len() {
            0 => self.work.width.saturating_sub(self.free.len()),
            // Refused by a full device.
            _ => 1,
        }
    }

    /// Draws a vector of random requests that begin at `begin_ns`.
    fn draw_vector(&mut self, begin_ns: u64) {
        let Work { width, request_bytes, read_share, flush_every, .. } = self.work;
        self.tally.vectors += u64::from(self.is_measured(begin_ns));
        let from = self.free.len() - width;
        for (tag, buffer) in self.free.drain(from..) {
            let begun = &mut self.begun[tag as usize];
            begun.ns = begin_ns;
            if flush_every.is_some_and(|writes| self.unflushed >= writes) {
                self.unflushed = 0;
                (begun.kind, begun.kept) = (Kind::Flush, Some(buffer));
                self.vector.push(Request::flush(tag));
                continue;
            }
            let offset = self.rng.random_range(0..self.places) * request_bytes as u64;
            let is_read = read_share >= 1.0 || self.rng.random_bool(read_share);
            begun.kind = if is_read { Kind::Read } else { Kind::Write };
            self.unflushed += u32::from(!is_read);
            let request = if is_read { Request::read } else { Request::write };
            self.vector.push(request(tag, offset, buffer));
        }
    }

    /// Counts completions.
    fn settle(&mut self) {
        let now_ns = self.now_ns();
        let inside = u64::from(self.is_measured(now_ns));
        for Completion { tag, buffer, result } in self.completions.drain(..) {
            let Begun { ns, kind, kept } = &mut self.begun[tag as usize];
            self.free.extend(buffer.or(kept.take()).map(|buffer| (tag, buffer)));
            if let Err(error) = result {
                *self.tally.errors.entry(name(error)).or_default() += 1;
                continue;
            }
            let (count, latencies) = match kind {
                Kind::Read => (&mut self.tally.reads, &mut self.tally.latencies),
                Kind::Write => (&mut self.tally.writes, &mut self.tally.latencies),
                Kind::Flush => (&mut self.tally.flushes, &mut self.tally.flush_latencies),
            };
            *count += inside;
            if *ns >= self.window.warmup.as_nanos() as u64 {
                latencies.record_ns(now_ns.saturating_sub(*ns));
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
        self.begin.elapsed().as_nanos() as u64
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

#[cfg(test)]
mod tests {
    use minos_base::seeded_stream;
    use minos_device::{MemoryOptions, ServiceTime};

    use super::*;

    const SERVICE: Duration = Duration::from_millis(200);

    #[test]
    fn a_turn_rests_until_the_next_can_do_something() {
        let us = Duration::from_micros;
        for (left_us, lacking, in_flight, rest) in [
            (0, 0, 5, Rest::None),
            (7, 0, 0, Rest::Sleep(us(7))),
            (7, 0, 5, Rest::Wait(1, us(7))),
            (7, 2, 5, Rest::Wait(1, us(7))),
            (0, 2, 5, Rest::Wait(2, WAIT_MAX)),
            (0, 1, 0, Rest::Sleep(FULL_SLEEP)),
            (7, 1, 0, Rest::Sleep(us(7))),
            (5000, 1, 0, Rest::Sleep(FULL_SLEEP)),
        ] {
            assert_eq!(Rest::of(1000 * left_us, lacking, in_flight), rest, "{left_us} {lacking} {in_flight}");
        }
    }

    #[test]
    fn a_sleeping_open_loop_waits_for_room_at_overload() {
        let time = ServiceTime { latency: SERVICE, ..ServiceTime::of_the_paper() };
        let device =
            Device::in_memory(&MemoryOptions { service_time: Some(time), ..MemoryOptions::default() });
        let work = Work {
            request_bytes: 4096,
            width: 1,
            depth: 1,
            read_share: 1.0,
            flush_every: None,
            vectors_per_s: Some(1e9),
            spins: false,
            must_register: false,
        };
        let hour = Duration::from_secs(3600);
        let window = Window { warmup: Duration::ZERO, duration: hour, drain: hour };
        let mut driver = Driver::new(&device, work, window, seeded_stream(1, 0)).unwrap();
        // The next vector is overdue, and nothing ends for 200 ms.
        driver.turn_open(1e9).unwrap();
        let turn = Instant::now();
        driver.turn_open(1e9).unwrap();
        assert!(turn.elapsed() >= WAIT_MAX || driver.begin.elapsed() >= SERVICE, "it spins");
    }
}
