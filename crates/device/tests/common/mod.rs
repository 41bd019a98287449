//! Devices of every kind, for tests that hold for all of them.

use std::time::Duration;

use minos_device::{Completion, Device, Error, Lane, MemoryOptions, Request, ServiceTime};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const CAPACITY: u64 = 1 << 20;
/// No test depends on its length.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A device, and what must live as long as it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) device: Device,
}

pub(crate) fn memory(service_time: Option<ServiceTime>) -> Device {
    let defaults = MemoryOptions::default();
    Device::in_memory(&MemoryOptions {
        capacity_bytes: CAPACITY,
        in_flight_max: 16,
        service_time,
        ..defaults
    })
}

/// A device of each kind, of [`CAPACITY`] bytes and with 16 requests in flight.
pub(crate) fn all() -> Vec<Sample> {
    let sample = |name, device| Sample { name, device };
    vec![
        sample("memory", memory(None)),
        sample("memory with service times", memory(Some(ServiceTime::of_the_paper()))),
    ]
}

/// A write of `blocks` blocks of `mark`, with the offset as its tag.
pub(crate) fn write(lane: &mut Lane, offset: u64, blocks: usize, mark: u8) -> Request {
    let mut buffer = lane.buffer(blocks * BLOCK).unwrap();
    buffer.fill(mark);
    Request::write(offset, offset, buffer)
}

/// A read of `blocks` blocks, with the offset as its tag.
pub(crate) fn read(lane: &mut Lane, offset: u64, blocks: usize) -> Request {
    Request::read(offset, offset, lane.buffer(blocks * BLOCK).unwrap())
}

/// Submits a vector that fits, and waits for all of it.
pub(crate) fn run(lane: &mut Lane, mut vector: Vec<Request>) -> Vec<Completion> {
    let (width, mut completions) = (vector.len(), Vec::new());
    assert_eq!(lane.submit(&mut vector).unwrap(), width);
    while completions.len() < width {
        lane.wait(width - completions.len(), LONG, &mut completions).unwrap();
    }
    assert_eq!(lane.in_flight(), 0);
    completions
}

/// The results by tag, in the order of tags.
pub(crate) fn results(completions: &[Completion]) -> Vec<(u64, Result<(), Error>)> {
    let mut results: Vec<_> = completions.iter().map(|ended| (ended.tag, ended.result)).collect();
    results.sort_by_key(|(tag, _)| *tag);
    results
}
