//! One mapped memory region per store: huge pages, offsets, a segregated-fits heap.
//!
//! [`Region`] is the mapping, [`Memory`] a region with its header and its heaps. Items and index are
//! the engine's concern.

#![deny(unsafe_op_in_unsafe_fn)]

mod arena;
mod backing;
mod check;
mod class;
mod exclusive;
mod file;
mod header;
mod heap;
mod layout;
mod memory;
mod open;
mod rebuild;
mod region;
mod shared_map;
#[cfg(test)]
mod tests;

pub use arena::Arena;
pub use backing::{Backing, MapError};
pub use exclusive::Exclusive;
pub use file::FileError;
pub use header::LAYOUT_VERSION;
pub use heap::{Heap, HeapStats};
pub use layout::Geometry;
pub use memory::{Memory, Settled};
pub use open::{OpenError, Opened};
pub use rebuild::{ChunkKind, UsedChunk};
pub use region::{OFFSET_BITS, Offset, Region};
