//! Devices of every kind, for tests that hold for all of them.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::{path::Path, time::Duration};

use minos_device::{
    Completion, Device, DriverChoice, Error, FileOptions, Lane, LaneOptions, MemoryOptions, Request,
    ServiceTime,
    faulty::{Faults, Twin},
};
use tempfile::TempDir;

pub(crate) const BLOCK: usize = 4096;
pub(crate) const CAPACITY: u64 = 1 << 20;
/// No test depends on its length.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A device, and what must live as long as it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) device: Device,
    _folder: Option<TempDir>,
}

/// Creates a file of [`CAPACITY`] bytes.
pub(crate) const CREATE: FileOptions = FileOptions {
    size_bytes: Some(CAPACITY),
    create: true,
    prefill: false,
    read_only: false,
    block_bytes: BLOCK as u32,
    in_flight_max: Some(16),
    driver: DriverChoice::Auto,
};

pub(crate) fn open(path: &Path, driver: DriverChoice) -> Device {
    Device::open(path, &FileOptions { driver, ..CREATE }).unwrap()
}

pub(crate) fn lane(device: &Device) -> Lane {
    device
        .lane(&LaneOptions { depth: 16, pool_bytes: 64 * BLOCK, threads: 4, ..LaneOptions::default() })
        .unwrap()
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
    let in_memory = |name, time| Sample { name, device: memory(time), _folder: None };
    let on_file = |name, driver| {
        let folder = tempfile::tempdir().unwrap();
        Sample { name, device: open(&folder.path().join("device"), driver), _folder: Some(folder) }
    };
    vec![
        in_memory("memory", None),
        in_memory("memory with service times", Some(ServiceTime::of_the_paper())),
        on_file("io_uring", DriverChoice::Ring),
        on_file("io_uring (cooperative)", DriverChoice::CooperativeRing),
        on_file("threads", DriverChoice::Threads),
        Sample {
            name: "faulty twin without faults",
            device: Twin::over(memory(None), Faults::none(), 1).device(),
            _folder: None,
        },
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
