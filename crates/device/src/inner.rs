//! The lane of any implementation.

use std::{io, os::fd::BorrowedFd, time::Duration};

#[cfg(feature = "faulty")]
use crate::faulty::FaultyLane;
use crate::{
    backend::{Backend, Done, Job},
    file::{RingLane, ThreadLane},
    memory::MemoryLane,
};

/// The lane of an implementation. An enum and no trait object, so that the choice is a branch that is always right.
#[derive(Debug)]
pub(crate) enum InnerLane {
    Ring(Box<RingLane>),
    Threads(ThreadLane),
    Memory(MemoryLane),
    #[cfg(feature = "faulty")]
    Faulty(FaultyLane),
}

/// Calls the same method of whichever implementation it is.
macro_rules! each {
    ($lane:expr, $inner:ident => $call:expr) => {
        match $lane {
            InnerLane::Ring($inner) => $call,
            InnerLane::Threads($inner) => $call,
            InnerLane::Memory($inner) => $call,
            #[cfg(feature = "faulty")]
            InnerLane::Faulty($inner) => $call,
        }
    };
}

impl InnerLane {
    pub(crate) fn why_unregistered(&self) -> Option<&str> {
        match self {
            Self::Ring(lane) => lane.why_unregistered(),
            _ => None,
        }
    }
}

impl Backend for InnerLane {
    fn start(&mut self, job: Job) {
        each!(self, lane => lane.start(job))
    }

    fn submit(&mut self) -> io::Result<()> {
        each!(self, lane => lane.submit())
    }

    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        each!(self, lane => lane.wait(least, timeout))
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        each!(self, lane => lane.reap(done))
    }

    fn prepare(&mut self) -> io::Result<()> {
        each!(self, lane => lane.prepare())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        each!(self, lane => lane.descriptor())
    }

    fn abandon(&mut self) {
        each!(self, lane => lane.abandon())
    }
}
