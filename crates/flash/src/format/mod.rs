//! Structures on the device. Integers are little-endian; every structure carries a checksum.

mod bytes;
mod footer;
mod journal;
mod layout;
mod page;
mod record;
mod seal;
mod superblock;
#[cfg(test)]
mod tests;

pub use footer::{
    FOOTER_BYTES_MAX, Footer, FooterWriter, Footers, TRAILER_BYTES, Trailer, footer_block_bytes,
    write_footers,
};
pub use journal::{Held, Journal, Use};
pub use layout::{Layout, LayoutError};
pub use minos_base::RoughLength;
pub use page::{Pages, Stamp, next_record_hint};
pub use record::{
    Kind, RECORD_HEADER_BYTES_MIN, Record, RecordHeader, Span, end_of, pages_of, position_of, window_of,
};
pub use seal::Seal;
pub use superblock::Superblock;

use thiserror::Error;

/// Bytes of a page: the unit of reads.
pub const PAGE_BYTES: usize = minos_base::FLASH_PAGE_BYTES;
/// Bytes of the stamp at the beginning of a page.
pub const STAMP_BYTES: usize = 8;

/// One use of a segment. No other use of any segment of the table has the same; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Life(pub u32);

impl Life {
    /// No life.
    pub const NONE: Self = Self(0);
}

/// Streams of a table, each with an open segment of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Records that were not on the device before.
    New = 0,
    /// Records that compaction moved.
    Compacted = 1,
    /// Records that expire soon.
    ShortLived = 2,
}

impl Stream {
    /// All streams.
    pub const ALL: [Self; 3] = [Self::New, Self::Compacted, Self::ShortLived];

    fn from_byte(byte: u8) -> Result<Self, Fault> {
        Self::ALL.get(usize::from(byte)).copied().ok_or(Fault::Stream(byte))
    }
}

/// The reason why bytes are not the structure that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Fewer bytes than the structure has.
    #[error("{len} bytes, {needed} are needed")]
    Short {
        /// Bytes there are.
        len: usize,
        /// Bytes that are needed.
        needed: usize,
    },
    /// The bytes begin with another structure's mark, or with none.
    #[error("the mark {0:#018x} is not that of this structure")]
    Mark(u64),
    /// Something else was written where the structure would be, or was.
    #[error("something else is written there")]
    Foreign,
    /// A version that this program does not know.
    #[error("format version {0} is not known")]
    Version(u32),
    /// The checksum does not match: rot, a torn or misdirected write, or an earlier life.
    #[error("the checksum does not match")]
    Checksum,
    /// The structure of another table.
    #[error("belongs to the table {0:#018x}")]
    Table(u64),
    /// The structure of another segment.
    #[error("belongs to segment {0}")]
    Segment(u32),
    /// The structure of another life.
    #[error("belongs to life {0}")]
    Life(u32),
    /// No stream has this number.
    #[error("stream {0} is not known")]
    Stream(u8),
    /// No kind of record has this number.
    #[error("kind {0} of a record is not known")]
    Kind(u8),
    /// No numbers of a record's header have these widths.
    #[error("widths {0:#06x} of numbers are not known")]
    Widths(u16),
    /// No use of a segment has this number.
    #[error("use {0} of a segment is not known")]
    Use(u8),
    /// A length or offset that leads out of the structure.
    #[error("a length of {0} leads out of its structure")]
    Length(u64),
    /// Sizes of a table that cannot be.
    #[error("the table's sizes: {0}")]
    Layout(#[from] LayoutError),
}
