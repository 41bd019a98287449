//! The places of everything on the device.

use super::{Journal, PAGE_BYTES};
use thiserror::Error;

/// Pages of the two superblocks.
const SUPERBLOCKS: u64 = 2;
/// Areas of the journal, which take turns.
pub(super) const AREAS: u64 = 2;
/// Copies of each area.
pub(super) const COPIES: u64 = 2;

const SEGMENT_BYTES_MIN: u32 = 8 * PAGE_BYTES as u32;
/// A page's number within its segment has 16 bits, a record's offset in 8 bytes has 24.
const SEGMENT_BYTES_MAX: u32 = 64 << 20;
/// A page's number on the device has 30 bits.
const DEVICE_BYTES_MAX: u64 = (PAGE_BYTES as u64) << 30;

/// The segments of a table and their places.
///
/// ```text
/// page 0, 1          superblock, twice
/// then               journal: area 0, area 1, second copy of area 0, of area 1
/// then               segments
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    segment_bytes: u32,
    segments: u32,
}

/// Sizes that no table can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The size of a segment is no whole number of pages, or out of bounds.
    #[error(
        "a segment of {0} bytes is not a multiple of 4096 from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
    )]
    SegmentBytes(u32),
    /// The device has room for too few segments.
    #[error("{device_bytes} bytes hold fewer than {needed} segments of {segment_bytes} bytes")]
    TooSmall {
        /// Bytes of the device.
        device_bytes: u64,
        /// Bytes of a segment.
        segment_bytes: u32,
        /// Fewest segments.
        needed: u32,
    },
    /// More than 4 TiB.
    #[error("{0} segments are more than 4 TiB")]
    TooLarge(u32),
}

impl Layout {
    /// Bytes of a segment unless asked otherwise.
    pub const SEGMENT_BYTES: u32 = 16 << 20;
    /// An open segment a stream, one reserved for each, and two to compact.
    pub const SEGMENTS_MIN: u32 = 8;

    /// A table of `segments` segments.
    pub fn new(segment_bytes: u32, segments: u32) -> Result<Self, LayoutError> {
        let is_whole = segment_bytes.is_multiple_of(PAGE_BYTES as u32);
        if !is_whole || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(LayoutError::SegmentBytes(segment_bytes));
        }
        let layout = Self { segment_bytes, segments };
        if segments < Self::SEGMENTS_MIN {
            let device_bytes = layout.device_bytes();
            return Err(LayoutError::TooSmall { device_bytes, segment_bytes, needed: Self::SEGMENTS_MIN });
        }
        if layout.device_bytes() > DEVICE_BYTES_MAX {
            return Err(LayoutError::TooLarge(segments));
        }
        Ok(layout)
    }

    /// The table that fills a device of `device_bytes`, or the first 4 TiB of it.
    pub fn fitting(device_bytes: u64, segment_bytes: u32) -> Result<Self, LayoutError> {
        let bytes = device_bytes.min(DEVICE_BYTES_MAX);
        let mut segments = (bytes / u64::from(segment_bytes.max(1))) as u32;
        while segments > 0 && (Self { segment_bytes, segments }).device_bytes() > bytes {
            segments -= 1;
        }
        let is_small = segments < Self::SEGMENTS_MIN;
        Self::new(segment_bytes, segments).map_err(|error| match error {
            LayoutError::TooSmall { segment_bytes, needed, .. } if is_small => {
                LayoutError::TooSmall { device_bytes, segment_bytes, needed }
            }
            other => other,
        })
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Number of segments.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Bytes of one copy of the journal.
    pub fn journal_bytes(&self) -> u64 {
        Journal::bytes(self.segments).next_multiple_of(PAGE_BYTES) as u64
    }

    /// The byte at which a superblock lies.
    pub fn superblock_at(&self, copy: u64) -> u64 {
        copy * PAGE_BYTES as u64
    }

    /// The byte at which the journal with this number lies.
    pub fn journal_at(&self, number: u64, copy: u64) -> u64 {
        SUPERBLOCKS * PAGE_BYTES as u64 + (copy * AREAS + number % AREAS) * self.journal_bytes()
    }

    /// The byte at which a segment begins.
    pub fn segment_at(&self, segment: u32) -> u64 {
        let before = SUPERBLOCKS * PAGE_BYTES as u64 + AREAS * COPIES * self.journal_bytes();
        before + u64::from(segment) * u64::from(self.segment_bytes)
    }

    /// The segment that byte `at` of the device lies in, and its offset there.
    pub fn segment_of(&self, at: u64) -> Option<(u32, u32)> {
        let offset = at.checked_sub(self.segment_at(0))?;
        let segment = u32::try_from(offset / u64::from(self.segment_bytes)).ok()?;
        (segment < self.segments).then_some((segment, (offset % u64::from(self.segment_bytes)) as u32))
    }

    /// Bytes of the device that the table takes.
    pub fn device_bytes(&self) -> u64 {
        self.segment_at(self.segments)
    }

    /// Most bytes of key and value together in one record: half a segment.
    pub fn record_bytes_max(&self) -> u64 {
        u64::from(self.segment_bytes / 2)
    }
}
