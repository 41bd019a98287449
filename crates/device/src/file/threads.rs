//! Transfers by threads that block, for kernels and containers without io_uring.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{pread, pwrite, retry_on_intr},
};

use crate::{
    backend::{Backend, Done, Job, Work},
    file::FileMedium,
};

/// A lane by threads.
#[derive(Debug)]
pub(crate) struct ThreadLane {
    queues: Arc<Queues>,
    /// Queued since the last submit.
    queued: Vec<Job>,
    threads: Vec<JoinHandle<()>>,
}

/// The lane's owner and its threads meet here.
#[derive(Debug)]
struct Queues {
    jobs: Mutex<Jobs>,
    has_jobs: Condvar,
    ended: Mutex<Ended>,
    has_ended: Condvar,
    /// Readable when a job has ended for an owner that asked to be woken.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Jobs {
    queue: VecDeque<Job>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Ended {
    done: Vec<Done>,
    /// The owner sleeps on `wake`, or is about to.
    is_watched: bool,
    /// `wake` is readable.
    is_raised: bool,
}

impl ThreadLane {
    pub(crate) fn open(file: &Arc<FileMedium>, threads: u16) -> io::Result<Self> {
        let queues = Queues {
            jobs: Mutex::default(),
            has_jobs: Condvar::new(),
            ended: Mutex::default(),
            has_ended: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        let mut lane = Self { queues: Arc::new(queues), queued: Vec::new(), threads: Vec::new() };
        for number in 0..threads {
            let (queues, file) = (Arc::clone(&lane.queues), Arc::clone(file));
            let thread = thread::Builder::new().name(format!("minos-device-{number}"));
            lane.threads.push(thread.spawn(move || queues.serve(&file.fd))?);
        }
        Ok(lane)
    }
}

impl Queues {
    /// Executes jobs until the lane is dropped.
    fn serve(&self, fd: &OwnedFd) {
        while let Some(job) = self.next() {
            let ended = execute(fd, job);
            let mut lane = self.ended.lock();
            lane.done.push(ended);
            if std::mem::take(&mut lane.is_watched) {
                lane.is_raised = true;
                // It can only fail when the counter is full, and then the descriptor is readable anyway.
                let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            }
            drop(lane);
            self.has_ended.notify_one();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        self.has_jobs.wait_while(&mut jobs, |jobs| jobs.queue.is_empty() && !jobs.is_closed);
        jobs.queue.pop_front()
    }
}

fn execute(fd: &OwnedFd, job: Job) -> Done {
    let Job { slot, work } = job;
    let (buffer, result) = match work {
        Work::Read(offset, mut buffer) => {
            let result = retry_on_intr(|| pread(fd, &mut buffer[..], offset));
            (Some(buffer), result)
        }
        Work::Write(offset, buffer) => {
            let result = retry_on_intr(|| pwrite(fd, &buffer, offset));
            (Some(buffer), result)
        }
        Work::Flush => (None, retry_on_intr(|| rustix::fs::fdatasync(fd)).map(|()| 0)),
    };
    Done { slot, buffer, result }
}

impl Backend for ThreadLane {
    fn start(&mut self, job: Job) {
        self.queued.push(job);
    }

    fn submit(&mut self) -> io::Result<()> {
        let queued = self.queued.len();
        self.queues.jobs.lock().queue.extend(self.queued.drain(..));
        if queued == 1 {
            self.queues.has_jobs.notify_one();
        } else if queued > 1 {
            self.queues.has_jobs.notify_all();
        }
        Ok(())
    }

    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        self.submit()?;
        let mut ended = self.queues.ended.lock();
        self.queues.has_ended.wait_while_for(&mut ended, |ended| ended.done.len() < least, timeout);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let mut ended = self.queues.ended.lock();
        if ended.done.is_empty() {
            // Still watched: the owner sleeps next.
            return Ok(());
        }
        done.append(&mut ended.done);
        ended.is_watched = false;
        if std::mem::take(&mut ended.is_raised) {
            let _ = rustix::io::read(&self.queues.wake, &mut [0; 8]);
        }
        Ok(())
    }

    fn prepare(&mut self) -> io::Result<()> {
        self.queues.ended.lock().is_watched = true;
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.queues.wake.as_fd()
    }

    fn abandon(&mut self) {
        // They own the buffers of their jobs, and end by themselves.
        self.threads.clear();
    }
}

impl Drop for ThreadLane {
    fn drop(&mut self) {
        self.queues.jobs.lock().is_closed = true;
        self.queues.has_jobs.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
