//! The limits of the kernel's queue below a file.

use std::{fs, path::PathBuf};

use rustix::fs::{Dev, major, minor};

/// Of a kernel that tells nothing, as for files without a block device of their own.
const UNKNOWN: Queue = Queue { requests: 128, request_bytes_max: 1 << 20 };

/// The limits of a block device's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    /// Requests that it holds: `nr_requests`.
    requests: u32,
    /// Bytes of the longest request that is not split.
    pub(super) request_bytes_max: u32,
}

impl Queue {
    /// The queue of the block device `device`.
    pub(super) fn of(device: Dev) -> Self {
        let node = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
        // A partition shares the queue of the whole device.
        let limit = |name: &str| {
            let text = ["queue", "../queue"]
                .iter()
                .find_map(|at| fs::read_to_string(node.join(at).join(name)).ok())?;
            text.trim().parse::<u32>().ok().filter(|&limit| limit > 0)
        };
        Self::with(limit("nr_requests"), limit("max_sectors_kb"), limit("max_segments"))
    }

    fn with(requests: Option<u32>, max_sectors_kb: Option<u32>, max_segments: Option<u32>) -> Self {
        // In the worst case each page of memory is a segment.
        let by_segments = max_segments.map_or(u32::MAX, |segments| segments.saturating_mul(4096));
        let by_sectors = max_sectors_kb.map_or(u32::MAX, |kb| kb.saturating_mul(1024));
        let least = by_segments.min(by_sectors);
        Self {
            requests: requests.unwrap_or(UNKNOWN.requests),
            request_bytes_max: if least == u32::MAX { UNKNOWN.request_bytes_max } else { least },
        }
    }

    /// Requests in flight that cannot make a submit block: others, such as the file system's own, need room too.
    pub(super) fn in_flight_max(&self) -> u32 {
        (self.requests / 4 * 3).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_queue() {
        let queue = Queue::with(Some(256), Some(4096), Some(254));
        assert_eq!((queue.in_flight_max(), queue.request_bytes_max), (192, 254 * 4096));
        let queue = Queue::with(Some(2), Some(1280), None);
        assert_eq!((queue.in_flight_max(), queue.request_bytes_max), (1, 1280 * 1024));
        assert_eq!(Queue::with(None, None, None), UNKNOWN);
    }
}
