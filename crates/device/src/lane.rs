//! Lanes: one thread's way to a device.

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Buffer, Completion, Error, Exhausted, Geometry, Operation, Request,
    backend::{Backend, Done, Job, Work},
    buffer::Pool,
    geometry::Shared,
    inner::InnerLane,
};

/// Longest time that a dropped lane waits for its requests in flight.
const DROP_WAIT: Duration = if cfg!(test) { Duration::from_millis(10) } else { Duration::from_secs(5) };
/// Longest single wait.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The size of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// Requests of this lane in flight, 1 to 4096.
    pub depth: u32,
    /// Bytes of its pool of buffers, at most 1 GiB.
    pub pool_bytes: usize,
    /// Threads of a lane without io_uring, which is the number of requests that proceed at a time.
    pub threads: u16,
    /// Refuses to open a lane by io_uring whose pool the kernel does not map once for all: mapping it with each request
    /// takes more time.
    pub must_register: bool,
}

impl LaneOptions {
    /// Largest pool: the kernel registers no more memory at once.
    pub const POOL_BYTES_MAX: usize = 1 << 30;
    /// Largest depth.
    pub const DEPTH_MAX: u32 = 4096;

    /// These options within their bounds.
    pub(crate) fn clamped(self) -> Self {
        Self {
            depth: self.depth.clamp(1, Self::DEPTH_MAX),
            pool_bytes: self.pool_bytes.min(Self::POOL_BYTES_MAX),
            threads: self.threads.clamp(1, 256),
            ..self
        }
    }
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self { depth: 128, pool_bytes: 4 << 20, threads: 16, must_register: false }
    }
}

/// Counters of a lane. They only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Vectors submitted with at least one request taken.
    pub vectors: u64,
    /// Reads taken.
    pub reads: u64,
    /// Writes taken.
    pub writes: u64,
    /// Flushes taken.
    pub flushes: u64,
    /// Bytes of reads taken.
    pub read_bytes: u64,
    /// Bytes of writes taken.
    pub written_bytes: u64,
    /// Requests refused because the lane or the device had too many in flight.
    pub refused: u64,
    /// Buffers refused because the pool had none.
    pub exhausted: u64,
    /// Requests that ended with an error.
    pub failed: u64,
}

/// A lane: a ring of its own and a pool of buffers of its own. The thread that first submits, waits or prepares owns it
/// and drops it: with io_uring, calls of other threads fail from then on.
///
/// A thread that sleeps between requests does as with a waker: it calls [`Lane::prepare`], then
/// [`Lane::complete`] once more, and sleeps until [`Lane::descriptor`] is readable only if that brought nothing.
///
/// A lane that is dropped waits for its requests in flight. If the device does not answer within seconds, their buffers
/// are leaked, because the device may still write to them.
#[derive(Debug)]
pub struct Lane {
    backend: InnerLane,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    /// Requests in flight by the slot of their job.
    slots: Vec<Option<InFlight>>,
    free_slots: Vec<u32>,
    /// Flushes that wait for writes in front of them.
    held: VecDeque<HeldFlush>,
    /// The number of the next flush.
    next_flush: u64,
    /// Requests that were wrong, until the next call of `complete`.
    early: Vec<Completion>,
    done: Vec<Done>,
    refused: Vec<Request>,
    counts: LaneCounts,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    tag: u64,
    bytes: usize,
    weight: u32,
    /// For a write, the number of the next flush when it was submitted.
    before_flush: Option<u64>,
}

/// A flush that must not start yet.
#[derive(Debug)]
struct HeldFlush {
    number: u64,
    slot: u32,
    /// Writes in front of it that are in flight.
    writes: u32,
}

impl Lane {
    pub(crate) fn new(backend: InnerLane, shared: Arc<Shared>, pool: Arc<Pool>, depth: u32) -> Self {
        Self {
            backend,
            shared,
            pool,
            slots: vec![None; depth as usize],
            free_slots: (0..depth).rev().collect(),
            held: VecDeque::new(),
            next_flush: 0,
            early: Vec::new(),
            done: Vec::with_capacity(depth as usize),
            refused: Vec::new(),
            counts: LaneCounts::default(),
        }
    }

    /// The device's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// A buffer of `bytes` bytes, rounded up to whole blocks. Its bytes are left from earlier use.
    ///
    /// # Errors
    /// The pool has no free run of so many blocks. Drop buffers, or wait for completions.
    pub fn buffer(&mut self, bytes: usize) -> Result<Buffer, Exhausted> {
        self.pool.take(bytes).inspect_err(|_| self.counts.exhausted += 1)
    }

    /// Submits a vector in one system call, which does not block. Returns the number of requests taken; those that stay
    /// in `requests` were refused because the lane or the device has as many in flight as it may. After a refused
    /// write, later writes and flushes of the vector are refused too; reads likewise.
    ///
    /// A request that is wrong in itself is taken, and fails: the next [`Lane::complete`] returns it.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    ///
    /// # Panics
    /// A buffer is of another lane.
    pub fn submit(&mut self, requests: &mut Vec<Request>) -> io::Result<usize> {
        let taken = self.stage(requests);
        self.backend.submit()?;
        Ok(taken)
    }

    /// As [`Lane::submit`] and then [`Lane::wait`], in one system call if none has ended yet.
    ///
    /// # Errors
    /// As [`Lane::submit`].
    ///
    /// # Panics
    /// As [`Lane::submit`].
    pub fn submit_and_wait(
        &mut self,
        requests: &mut Vec<Request>,
        least: usize,
        timeout: Duration,
        completions: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let taken = self.stage(requests);
        self.wait(least, timeout, completions)?;
        // A wait that found enough before it reached the kernel has submitted nothing.
        self.backend.submit()?;
        Ok(taken)
    }

    /// Appends the requests that have ended; returns how many. Needs no system call unless the kernel has work
    /// for this thread or a flush has come due.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn complete(&mut self, completions: &mut Vec<Completion>) -> io::Result<usize> {
        let before = completions.len();
        completions.append(&mut self.early);
        let mut done = mem::take(&mut self.done);
        let reaped = self.backend.reap(&mut done);
        let mut weight = 0;
        for done in done.drain(..) {
            weight += self.settle(done, completions);
        }
        self.done = done;
        self.shared.room.leave(weight);
        if self.start_due_flushes() {
            self.backend.submit()?;
        }
        reaped.map(|()| completions.len() - before)
    }

    /// As [`Lane::complete`], but waits until at least `least` requests, or all in flight if those are fewer, have
    /// ended or the time is over.
    ///
    /// # Errors
    /// As [`Lane::complete`].
    pub fn wait(
        &mut self,
        least: usize,
        timeout: Duration,
        completions: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let mut found = self.complete(completions)?;
        if found >= least || self.in_flight() == 0 {
            return Ok(found);
        }
        let end = Instant::now() + timeout.min(WAIT_MAX);
        loop {
            // A held flush starts when writes have ended, so that the wait is for those first.
            let started = self.in_flight() - self.held.len();
            let left = end.saturating_duration_since(Instant::now());
            self.backend.wait((least - found).min(started), left)?;
            found += self.complete(completions)?;
            if found >= least || self.in_flight() == 0 || left.is_zero() {
                return Ok(found);
            }
        }
    }

    /// Requests taken that have not been completed.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Announces that the owner is about to sleep until [`Lane::descriptor`] is readable.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn prepare(&mut self) -> io::Result<()> {
        self.backend.prepare()
    }

    /// A descriptor to sleep on. Readable when a request in flight has ended since [`Lane::prepare`]; it may be
    /// readable without that.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.backend.descriptor()
    }

    /// The kernel's reason to map this lane's buffers with each request, if it does not map its pool once for all.
    /// Mostly RLIMIT_MEMLOCK is too low.
    pub fn why_unregistered(&self) -> Option<&str> {
        self.backend.why_unregistered()
    }

    /// Counters of this lane.
    pub fn counts(&self) -> LaneCounts {
        self.counts
    }

    /// Hands requests to the implementation as far as there is room; the others stay.
    fn stage(&mut self, requests: &mut Vec<Request>) -> usize {
        let mut grant = self.grant(requests);
        let before = requests.len();
        let mut refused = mem::take(&mut self.refused);
        for request in requests.drain(..) {
            if let Some(error) = self.fault_of(&request) {
                self.fail(request, error);
            } else if let Some(weight) = grant.admit(&request, &self.shared.geometry) {
                self.start(request, weight);
            } else {
                refused.push(request);
            }
        }
        self.shared.room.leave(grant.reads.places + grant.writes.places);
        mem::swap(requests, &mut refused);
        self.refused = refused;
        let taken = before - requests.len();
        self.counts.refused += requests.len() as u64;
        self.counts.vectors += u64::from(taken > 0);
        taken
    }

    /// Takes the places that a vector needs, or as many as there are.
    fn grant(&self, requests: &[Request]) -> Grant {
        let geometry = &self.shared.geometry;
        let (mut reads, mut writes) = (0, 0);
        for request in requests {
            let places = if request.is_read() { &mut reads } else { &mut writes };
            *places += request.weight(geometry);
        }
        let reads_max = geometry.in_flight_max - geometry.kept_for_writes;
        let places = |wanted, max| if wanted == 0 { 0 } else { self.shared.room.take(wanted, max) };
        Grant {
            writes: Places::new(places(writes, geometry.in_flight_max)),
            reads: Places::new(places(reads, reads_max)),
            slots: self.free_slots.len(),
        }
    }

    /// The error of a request that cannot be executed.
    fn fault_of(&self, request: &Request) -> Option<Error> {
        let geometry = &self.shared.geometry;
        let is_write = !matches!(request.operation, Operation::Read { .. });
        if is_write && self.shared.read_only {
            return Some(Error::ReadOnly);
        }
        let (Operation::Read { offset, buffer } | Operation::Write { offset, buffer }) = &request.operation
        else {
            return None;
        };
        assert!(buffer.is_of(&self.pool), "a buffer of another lane");
        let end = offset.checked_add(buffer.len() as u64);
        let unit = u64::from(if is_write { geometry.block_bytes } else { geometry.read_block_bytes });
        if buffer.is_empty() || !(offset | buffer.len() as u64).is_multiple_of(unit) {
            Some(Error::Misaligned)
        } else if end.is_none_or(|end| end > geometry.capacity_bytes) {
            Some(Error::OutOfRange)
        } else {
            None
        }
    }

    fn fail(&mut self, request: Request, error: Error) {
        let buffer = match request.operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => Some(buffer),
            Operation::Flush => None,
        };
        self.counts.failed += 1;
        self.early.push(Completion { tag: request.tag, buffer, result: Err(error) });
    }

    /// Gives a request that was admitted a slot, and hands it over.
    fn start(&mut self, request: Request, weight: u32) {
        let slot = self.free_slots.pop().expect("a request was admitted without a free slot");
        let (mut bytes, mut before_flush) = (0, None);
        let work = match request.operation {
            Operation::Read { offset, buffer } => {
                bytes = buffer.len();
                self.counts.reads += 1;
                self.counts.read_bytes += bytes as u64;
                Some(Work::Read(offset, buffer))
            }
            Operation::Write { offset, buffer } => {
                bytes = buffer.len();
                before_flush = Some(self.next_flush);
                self.counts.writes += 1;
                self.counts.written_bytes += bytes as u64;
                Some(Work::Write(offset, buffer))
            }
            Operation::Flush => {
                self.counts.flushes += 1;
                self.hold_flush(slot)
            }
        };
        self.slots[slot as usize] = Some(InFlight { tag: request.tag, bytes, weight, before_flush });
        if let Some(work) = work {
            self.backend.start(Job { slot, work });
        }
    }

    /// A flush at once if no write is in flight, else one that waits for those.
    fn hold_flush(&mut self, slot: u32) -> Option<Work> {
        let writes = self.slots.iter().flatten().filter(|request| request.before_flush.is_some()).count();
        let number = self.next_flush;
        self.next_flush += 1;
        if writes == 0 {
            return Some(Work::Flush);
        }
        self.held.push_back(HeldFlush { number, slot, writes: writes as u32 });
        None
    }

    /// Turns the end of a job into that of its request; returns its weight.
    fn settle(&mut self, done: Done, completions: &mut Vec<Completion>) -> u32 {
        let Some(request) = self.slots.get_mut(done.slot as usize).and_then(Option::take) else {
            debug_assert!(false, "a job ended twice");
            return 0;
        };
        self.free_slots.push(done.slot);
        if let Some(number) = request.before_flush {
            let behind = self.held.iter_mut().filter(|flush| flush.number >= number);
            behind.for_each(|flush| flush.writes -= 1);
        }
        let result = match done.result {
            Ok(bytes) if bytes == request.bytes => Ok(()),
            Ok(bytes) => Err(Error::Short { bytes }),
            Err(error) => Err(error.into()),
        };
        self.counts.failed += u64::from(result.is_err());
        completions.push(Completion { tag: request.tag, buffer: done.buffer, result });
        request.weight
    }

    /// Starts flushes whose writes have ended; returns true if there was one.
    fn start_due_flushes(&mut self) -> bool {
        let before = self.held.len();
        while let Some(flush) = self.held.front().filter(|flush| flush.writes == 0) {
            self.backend.start(Job { slot: flush.slot, work: Work::Flush });
            self.held.pop_front();
        }
        self.held.len() < before
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let waited = self.wait(self.in_flight(), DROP_WAIT, &mut Vec::new());
        let (in_flight, lost) = (self.in_flight(), waited.err());
        if in_flight > 0 {
            tracing::warn!(in_flight, ?lost, "requests to a device are given up; their buffers are leaked");
            self.backend.abandon();
            let weights = self.slots.iter().flatten().map(|request| request.weight);
            self.shared.room.leave(weights.sum());
        }
    }
}

impl Request {
    fn is_read(&self) -> bool {
        matches!(self.operation, Operation::Read { .. })
    }

    fn weight(&self, geometry: &Geometry) -> u32 {
        match &self.operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => geometry.weight(buffer.len()),
            Operation::Flush => 1,
        }
    }
}

/// Room for a vector.
struct Grant {
    reads: Places,
    writes: Places,
    /// Slots of the lane.
    slots: usize,
}

/// Places for one kind of request.
struct Places {
    places: u32,
    /// No request has been refused yet.
    is_open: bool,
}

impl Places {
    fn new(places: u32) -> Self {
        Self { places, is_open: true }
    }
}

impl Grant {
    /// Uses up the places of a request; returns its weight, or nothing if it is refused.
    fn admit(&mut self, request: &Request, geometry: &Geometry) -> Option<u32> {
        let kind = if request.is_read() { &mut self.reads } else { &mut self.writes };
        let weight = request.weight(geometry);
        kind.is_open &= self.slots > 0 && kind.places >= weight;
        if !kind.is_open {
            return None;
        }
        self.slots -= 1;
        kind.places -= weight;
        Some(weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, MemoryOptions, ServiceTime};

    #[test]
    fn nothing_ends_before_its_service_time_and_a_drop_does_not_wait_for_ever() {
        let hour = Duration::from_secs(3600);
        let slow = ServiceTime { latency: hour, ..ServiceTime::of_the_paper() };
        let options =
            MemoryOptions { in_flight_max: 2, service_time: Some(slow), ..MemoryOptions::default() };
        let device = Device::in_memory(&options);
        let mut lane = device.lane(&LaneOptions::default()).unwrap();
        let mut vector = vec![Request::read(0, 0, lane.buffer(4096).unwrap())];
        let mut ended = Vec::new();
        lane.submit_and_wait(&mut vector, 1, Duration::from_millis(1), &mut ended).unwrap();
        assert_eq!((ended.len(), lane.in_flight()), (0, 1));
        drop(lane);
        // Its room is free again.
        let mut lane = device.lane(&LaneOptions::default()).unwrap();
        let mut vector = vec![Request::read(0, 0, lane.buffer(4096).unwrap())];
        assert_eq!(lane.submit(&mut vector).unwrap(), 1);
    }
}
