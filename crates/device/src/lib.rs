//! Vectors of block reads and writes to one device.
//!
//! A [`Device`] is opened once and hands out [`Lane`]s. A lane belongs to one thread and has a ring and a pool of
//! [`Buffer`]s of its own. [`Lane::submit`] hands a vector of [`Request`]s to the device in one system call, which does
//! not block; [`Lane::complete`] takes the [`Completion`]s, without a system call where it can. A vector costs one
//! submission whatever its width (SoCC'12 §3.2).
//!
//! Requests own their buffers until they are completed, so that none can be freed or touched in flight. The number of
//! requests in flight is bounded by the [`Geometry`]: what does not fit stays with the caller, and nothing blocks. Some
//! of the room is kept for writes. Requests in flight are executed in any order; a flush alone waits for the writes in
//! front of it.
//!
//! ```
//! use std::time::Duration;
//! use minos_device::{Device, LaneOptions, MemoryOptions, Request};
//!
//! let device = Device::in_memory(&MemoryOptions::default());
//! let mut lane = device.lane(&LaneOptions::default())?;
//! let mut buffer = lane.buffer(4096)?;
//! buffer.fill(7);
//! let mut vector = vec![Request::write(1, 8192, buffer), Request::flush(2)];
//! let mut completions = Vec::new();
//! lane.submit(&mut vector)?;
//! assert!(vector.is_empty(), "all were taken");
//! lane.wait(2, Duration::from_secs(1), &mut completions)?;
//! assert!(completions.iter().all(|completion| completion.result.is_ok()));
//!
//! completions.clear();
//! let mut vector: Vec<_> = [8192, 0]
//!     .into_iter()
//!     .map(|offset| Ok(Request::read(offset, offset, lane.buffer(4096)?)))
//!     .collect::<Result<_, minos_device::Exhausted>>()?;
//! lane.submit_and_wait(&mut vector, 2, Duration::from_secs(1), &mut completions)?;
//! let buffers = completions.iter().map(|completion| (completion.tag, completion.buffer.as_deref().unwrap()[0]));
//! assert_eq!(buffers.collect::<Vec<_>>(), [(8192, 7), (0, 0)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

mod backend;
mod buffer;
mod device;
mod facts;
#[cfg(feature = "faulty")]
pub mod faulty;
mod file;
mod geometry;
mod inner;
mod lane;
mod memory;
mod request;

pub use buffer::{Buffer, Exhausted};
pub use device::Device;
pub use facts::{Driver, Facts};
pub use file::{DriverChoice, FileOptions, OpenError};
pub use geometry::Geometry;
pub use lane::{Lane, LaneCounts, LaneOptions};
pub use memory::{MemoryOptions, ServiceTime};
pub use request::{Completion, Error, Operation, Request};
