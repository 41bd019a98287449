//! A device in memory, with a model of service time.

mod engines;
mod lane;

use std::{sync::atomic::AtomicUsize, time::Instant};

use engines::Engines;
pub use engines::ServiceTime;
pub(crate) use lane::MemoryLane;
use parking_lot::Mutex;

/// Bytes under one lock.
const STRIPE_BYTES: usize = 256 << 10;

/// A device in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryOptions {
    /// Bytes, rounded down to whole blocks. Only bytes that were written take memory.
    pub capacity_bytes: u64,
    /// A power of two.
    pub block_bytes: u32,
    /// Requests in flight, of all lanes together.
    pub in_flight_max: u32,
    /// Without one, requests have ended when they are submitted.
    pub service_time: Option<ServiceTime>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { capacity_bytes: 64 << 20, block_bytes: 4096, in_flight_max: 192, service_time: None }
    }
}

/// The bytes of a device in memory, and its engines.
#[derive(Debug)]
pub(crate) struct MemoryMedium {
    /// Allocated by the first write; before that all bytes are zero.
    stripes: Box<[Mutex<Box<[u8]>>]>,
    engines: Option<Engines>,
    block_bytes: u32,
    opened: Instant,
    /// Lanes handed out, for the engine that each uses.
    lanes: AtomicUsize,
}

impl MemoryMedium {
    pub(crate) fn new(options: &MemoryOptions) -> Self {
        let stripes = options.capacity_bytes.div_ceil(STRIPE_BYTES as u64);
        Self {
            stripes: (0..stripes).map(|_| Mutex::default()).collect(),
            engines: options.service_time.map(Engines::new),
            block_bytes: options.block_bytes,
            opened: Instant::now(),
            lanes: AtomicUsize::new(0),
        }
    }

    /// Copies bytes out. The range lies within the capacity.
    pub(crate) fn read(&self, offset: u64, mut bytes: &mut [u8]) {
        let mut offset = offset;
        while !bytes.is_empty() {
            let (stripe, at, len) = place(offset, bytes.len());
            let (here, rest) = bytes.split_at_mut(len);
            let stripe = self.stripes[stripe].lock();
            if stripe.is_empty() {
                here.fill(0)
            } else {
                here.copy_from_slice(&stripe[at..at + len])
            }
            (bytes, offset) = (rest, offset + len as u64);
        }
    }

    /// Copies bytes in. The range lies within the capacity.
    pub(crate) fn write(&self, offset: u64, mut bytes: &[u8]) {
        let mut offset = offset;
        while !bytes.is_empty() {
            let (stripe, at, len) = place(offset, bytes.len());
            let mut stripe = self.stripes[stripe].lock();
            if stripe.is_empty() {
                *stripe = vec![0; STRIPE_BYTES].into_boxed_slice();
            }
            stripe[at..at + len].copy_from_slice(&bytes[..len]);
            (bytes, offset) = (&bytes[len..], offset + len as u64);
        }
    }
}

/// The stripe of a position, the position within it, and how many of `len` bytes lie there.
fn place(offset: u64, len: usize) -> (usize, usize, usize) {
    let at = (offset % STRIPE_BYTES as u64) as usize;
    ((offset / STRIPE_BYTES as u64) as usize, at, len.min(STRIPE_BYTES - at))
}
