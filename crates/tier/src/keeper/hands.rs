//! The log's work on its way to the device.

use minos_device::{Completion, Error, Lane, Request};
use minos_flash::{DeviceFailed, Outcome, Work, WorkId};
use std::{collections::VecDeque, io, time::Duration};

/// Hands work to a lane, in order, and takes the results.
#[derive(Debug)]
pub(crate) struct Hands {
    pub(crate) lane: Lane,
    new: Vec<(WorkId, Work)>,
    /// Work without buffers.
    waiting: VecDeque<(WorkId, Work)>,
    /// Requests with their buffers.
    staged: Vec<Request>,
    completions: Vec<Completion>,
}

impl Hands {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, new: Vec::new(), waiting: VecDeque::new(), staged: Vec::new(), completions: Vec::new() }
    }

    /// Where new work goes.
    pub(crate) fn jobs(&mut self) -> &mut Vec<(WorkId, Work)> {
        &mut self.new
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.new.is_empty() && self.waiting.is_empty() && self.staged.is_empty() && self.lane.in_flight() == 0
    }

    /// Submits as much as there are buffers for as one vector; true if anything was taken.
    pub(crate) fn submit(&mut self) -> io::Result<bool> {
        self.waiting.extend(self.new.drain(..));
        while let Some((id, work)) = self.waiting.front() {
            let request = match work {
                Work::Flush => Request::flush(id.0),
                Work::Write { at, bytes } => {
                    let Ok(mut buffer) = self.lane.buffer(bytes.len()) else { break };
                    buffer.copy_from_slice(bytes);
                    Request::write(id.0, *at, buffer)
                }
                Work::Read { at, len } => {
                    let Ok(buffer) = self.lane.buffer(*len) else { break };
                    Request::read(id.0, *at, buffer)
                }
            };
            self.staged.push(request);
            self.waiting.pop_front();
        }
        if self.staged.is_empty() {
            return Ok(false);
        }
        Ok(self.lane.submit(&mut self.staged)? > 0)
    }

    /// Gives out the results that have come; returns how many.
    pub(crate) fn take(&mut self, mut f: impl FnMut(WorkId, Outcome<'_>)) -> io::Result<usize> {
        self.lane.complete(&mut self.completions)?;
        let taken = self.completions.len();
        self.completions.drain(..).for_each(|completion| give(completion, &mut f));
        Ok(taken)
    }

    /// Gives out one result that has come, the others later: what it asks for is submitted before them. False if there
    /// is none.
    pub(crate) fn take_one(&mut self, f: impl FnOnce(WorkId, Outcome<'_>)) -> io::Result<bool> {
        if self.completions.is_empty() {
            self.lane.complete(&mut self.completions)?;
        }
        let completion = self.completions.pop();
        Ok(completion.map(|completion| give(completion, f)).is_some())
    }

    /// Waits until something has ended, or the time is over.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.lane.wait(1, timeout, &mut self.completions).map(|_| ())
    }
}

fn give(completion: Completion, f: impl FnOnce(WorkId, Outcome<'_>)) {
    let Completion { tag, buffer, result } = completion;
    // A flush or a write has no bytes to return; the log does not look at them.
    let bytes = buffer.as_deref().unwrap_or_default();
    let failed = |error| match error {
        Error::NoSpace => DeviceFailed::NoSpace,
        _ => DeviceFailed::Broken,
    };
    f(WorkId(tag), result.map(|()| bytes).map_err(failed));
}
