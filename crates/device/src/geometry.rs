//! The shape of a device and its bound on requests in flight.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The least that a disk transfers.
pub(crate) const SECTOR_BYTES: u32 = 512;

/// The shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Offsets and lengths of writes are multiples of this power of two, and those of buffers.
    pub block_bytes: u32,
    /// Those of reads are multiples of this one, which is not larger.
    pub read_block_bytes: u32,
    /// Bytes of the device: a multiple of `block_bytes`.
    pub capacity_bytes: u64,
    /// Requests in flight, of all lanes together. Above this a submit could block for milliseconds.
    pub in_flight_max: u32,
    /// Those of them that only writes and flushes may use, so that reads never keep writes out.
    pub kept_for_writes: u32,
    /// A longer request counts as several, because the kernel splits it.
    pub request_bytes_max: u32,
}

impl Geometry {
    /// With room for writes kept free.
    pub(crate) fn new(block_bytes: u32, capacity_bytes: u64, in_flight_max: u32) -> Self {
        let kept_for_writes = (in_flight_max / 8).max(1).min(in_flight_max - 1);
        let capacity_bytes = capacity_bytes / u64::from(block_bytes) * u64::from(block_bytes);
        Self {
            block_bytes,
            read_block_bytes: block_bytes.min(SECTOR_BYTES),
            capacity_bytes,
            in_flight_max,
            kept_for_writes,
            request_bytes_max: 1 << 20,
        }
    }

    /// Requests that one of `bytes` bytes counts as; at most half of what reads may use, so that any request is taken
    /// by an idle device.
    pub(crate) fn weight(&self, bytes: usize) -> u32 {
        let parts = (bytes as u64).div_ceil(u64::from(self.request_bytes_max)).max(1);
        parts.min(u64::from(self.in_flight_max - self.kept_for_writes)) as u32
    }
}

/// Counts the requests in flight of all lanes of a device.
#[derive(Debug, Default)]
pub(crate) struct Room {
    // Relaxed: it bounds a number and publishes nothing.
    in_flight: AtomicU32,
}

impl Room {
    /// Takes up to `wanted` places while at most `max` are taken; returns how many.
    pub(crate) fn take(&self, wanted: u32, max: u32) -> u32 {
        let mut taken = 0;
        let _ = self.in_flight.fetch_update(Relaxed, Relaxed, |now| {
            taken = wanted.min(max.saturating_sub(now));
            (taken > 0).then_some(now + taken)
        });
        taken
    }

    /// Gives places back.
    pub(crate) fn leave(&self, places: u32) {
        if places > 0 {
            self.in_flight.fetch_sub(places, Relaxed);
        }
    }
}

/// Parts of a device that its lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) geometry: Geometry,
    pub(crate) room: Room,
    pub(crate) read_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_whole_blocks_and_writes_keep_room() {
        let geometry = Geometry::new(4096, 10_000, 192);
        assert_eq!((geometry.capacity_bytes, geometry.kept_for_writes), (8192, 24));
        assert_eq!(Geometry::new(512, 512, 1).kept_for_writes, 0);
        assert_eq!(Geometry::new(512, 512, 2).kept_for_writes, 1);
    }

    #[test]
    fn a_request_that_the_kernel_splits_counts_as_several() {
        let geometry = Geometry::new(4096, 1 << 30, 16);
        let weights = [0, 4096, 1 << 20, (1 << 20) + 4096, 100 << 20].map(|bytes| geometry.weight(bytes));
        assert_eq!(weights, [1, 1, 1, 2, 14]);
    }

    #[test]
    fn room_is_bounded() {
        let room = Room::default();
        assert_eq!([room.take(3, 5), room.take(3, 5), room.take(1, 5)], [3, 2, 0]);
        room.leave(4);
        assert_eq!([room.take(9, 3), room.take(9, 4)], [2, 1]);
    }
}
