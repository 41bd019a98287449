//! A lane of a device in memory: its requests end when the model says so.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use super::MemoryMedium;
use crate::backend::{Backend, Done, Job, Work};

/// A lane of a device in memory.
#[derive(Debug)]
pub(crate) struct MemoryLane {
    medium: Arc<MemoryMedium>,
    /// Its number, which chooses the engine.
    number: usize,
    /// Queued since the last submit.
    queued: Vec<Job>,
    /// Executed, with their ends in nanoseconds since the device was opened, which never fall: a lane has one engine.
    executed: VecDeque<(u64, Done)>,
    timer: OwnedFd,
}

impl MemoryLane {
    pub(crate) fn open(medium: &Arc<MemoryMedium>) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let (queued, executed) = (Vec::new(), VecDeque::new());
        let number = medium.lanes.fetch_add(1, Relaxed);
        Ok(Self { medium: Arc::clone(medium), number, queued, executed, timer })
    }

    fn now_ns(&self) -> u64 {
        self.medium.opened.elapsed().as_nanos() as u64
    }

    /// Executes a job; the model only delays the news.
    fn execute(&self, job: Job) -> (u64, Done) {
        let Job { slot, work } = job;
        let (bytes, buffer) = match work {
            Work::Read(offset, mut buffer) => {
                self.medium.read(offset, &mut buffer);
                (buffer.len(), Some(buffer))
            }
            Work::Write(offset, buffer) => {
                self.medium.write(offset, &buffer);
                (buffer.len(), Some(buffer))
            }
            Work::Flush => (0, None),
        };
        (bytes as u64, Done { slot, buffer, result: Ok(bytes) })
    }

    /// Lets the timer go off when `count` jobs have ended, or never if there is none.
    fn arm(&self, count: usize) -> io::Result<()> {
        let ends_ns = count.min(self.executed.len()).checked_sub(1).map(|at| self.executed[at].0);
        // A time of zero disarms it.
        let left_ns = ends_ns.map_or(0, |end_ns| end_ns.saturating_sub(self.now_ns()).max(1));
        let it_value = timespec(Duration::from_nanos(left_ns));
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

impl Backend for MemoryLane {
    fn start(&mut self, job: Job) {
        self.queued.push(job);
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        let now_ns = if self.medium.engines.is_some() { self.now_ns() } else { 0 };
        let first = self.executed.len();
        for job in std::mem::take(&mut self.queued) {
            let (bytes, done) = self.execute(job);
            let blocks = bytes.div_ceil(u64::from(self.medium.block_bytes));
            let engines = self.medium.engines.as_ref();
            let end_ns = engines.map_or(0, |engines| engines.end_ns(self.number, blocks, now_ns));
            self.executed.push_back((end_ns, done));
        }
        let is_whole = self.medium.engines.as_ref().is_some_and(|engines| engines.time.whole_vectors);
        if let (true, Some(&(last_ns, _))) = (is_whole, self.executed.back()) {
            self.executed.range_mut(first..).for_each(|(end_ns, _)| *end_ns = last_ns);
        }
        Ok(())
    }

    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        self.submit()?;
        self.arm(least)?;
        match poll(&mut [PollFd::new(&self.timer, PollFlags::IN)], Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let Some(&(first_ns, _)) = self.executed.front() else { return Ok(()) };
        let now_ns = if first_ns > 0 { self.now_ns() } else { 0 };
        let ended = self.executed.partition_point(|(end_ns, _)| *end_ns <= now_ns);
        done.extend(self.executed.drain(..ended).map(|(_, job)| job));
        Ok(())
    }

    fn prepare(&mut self) -> io::Result<()> {
        self.arm(1)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn abandon(&mut self) {}
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
