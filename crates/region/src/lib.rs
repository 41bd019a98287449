//! One mapped memory region per store: huge pages, offsets, a segregated-fits heap.
//!
//! [`Region`] is the mapping, [`Memory`] a region with its header and its heaps. Items and index are
//! the engine's concern. A [`View`] has a region's words without the right to store, and an [`Image`] is a
//! read-only mapping of a region that another process writes.
//!
//! A region on a file, or of a [`MemoryKeeper`], outlives its process: [`Memory::mark_clean`] closes it,
//! [`Memory::open`] reopens it and reports whether it was closed, and [`Memory::rebuild`] repairs a region that a
//! killed process left.
//!
//! ```
//! use minos_region::{Backing, Geometry, Memory, Opened};
//! # let dir = tempfile::tempdir()?;
//! let backing = Backing::File(dir.path().join("region"));
//! let geometry = Geometry { memory_bytes: 1 << 20, partitions: 1, ..Geometry::default() };
//! let mut memory = Memory::create(geometry, &backing)?;
//! memory.publish()?;
//! let mut heap = memory.partition_heap(0);
//! let chunk = memory.allocate_shared(&mut heap, 10).ok_or("full")?;
//! memory.close()?;
//!
//! let Opened::Clean(memory) = Memory::open(&backing, &geometry)? else { return Err("unclean".into()) };
//! memory.free(&mut memory.partition_heap(0), chunk);
//! assert_eq!(memory.starts(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

mod backing;
mod check;
mod class;
mod exclusive;
mod file;
mod header;
mod heap;
mod image;
mod kept;
mod layout;
mod lent;
mod map;
mod memory;
mod nodes;
mod offset;
mod open;
mod owners;
mod rebuild;
mod region;
mod shared_map;
mod sums;
#[cfg(test)]
mod tests;
mod view;

pub use backing::{Backing, MapError};
pub use exclusive::Exclusive;
pub use file::FileError;
pub use header::LAYOUT_VERSION;
pub use heap::{Heap, HeapStats};
pub use image::Image;
pub use kept::{Kept, MemoryKeeper};
pub use layout::Geometry;
pub use lent::{Lender, Lent};
pub use map::Map;
pub use memory::{Arena, Memory, Settled};
pub use nodes::{Interleaving, Nodes};
pub use offset::{OFFSET_BITS, Offset};
pub use open::{OpenError, Opened};
pub use owners::{OwnerState, Ownership};
pub use rebuild::{ChunkKind, UsedChunk};
pub use region::Region;
pub use view::View;
