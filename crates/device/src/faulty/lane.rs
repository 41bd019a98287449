//! A lane of a faulty twin.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::{FaultyMedium, State};
use crate::backend::{Backend, Done, Job, Work};

/// A lane of a faulty twin. Each call of `reap` is a moment in its time.
#[derive(Debug)]
pub(crate) struct FaultyLane {
    state: Arc<Mutex<State>>,
    epoch: u64,
    queued: Vec<Job>,
    /// With the polls that each has to wait.
    pending: Vec<(u32, Job)>,
    /// Readable while it is raised: while requests wait, for an owner that is about to sleep.
    wake: OwnedFd,
    is_raised: bool,
}

impl FaultyLane {
    pub(crate) fn open(medium: &FaultyMedium) -> io::Result<Self> {
        Ok(Self {
            state: Arc::clone(&medium.state),
            epoch: medium.epoch,
            queued: Vec::new(),
            pending: Vec::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_raised: false,
        })
    }
}

impl Backend for FaultyLane {
    fn start(&mut self, job: Job) {
        self.queued.push(job);
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut state = self.state.lock();
        self.pending.extend(self.queued.drain(..).map(|job| (state.delay(), job)));
        Ok(())
    }

    fn wait(&mut self, _least: usize, _timeout: Duration) -> io::Result<()> {
        self.submit()
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut due: Vec<_> = self.pending.extract_if(.., |(polls, _)| *polls == 0).collect();
        self.pending.iter_mut().for_each(|(polls, _)| *polls -= 1);
        for (_, Job { slot, mut work }) in state.choose(&mut due) {
            let result = state.execute(self.epoch, &mut work);
            let buffer = match work {
                Work::Read(_, buffer) | Work::Write(_, buffer) => Some(buffer),
                Work::Flush => None,
            };
            done.push(Done { slot, buffer, result });
        }
        self.pending.append(&mut due);
        Ok(())
    }

    fn prepare(&mut self) -> io::Result<()> {
        match (self.is_raised, !self.pending.is_empty()) {
            (false, true) => rustix::io::write(&self.wake, &1u64.to_ne_bytes())?,
            (true, false) => rustix::io::read(&self.wake, &mut [0; 8])?,
            _ => 0,
        };
        self.is_raised = !self.pending.is_empty();
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn abandon(&mut self) {}
}
