//! The MICA engine: partitions, cache-line buckets, optimistic reads, an index that grows while serving.
//!
//! [`Store`] is everything. Small items are read without a lock ([`Engine::read`]), a key is changed while
//! nothing else is written in its partition ([`Engine::entry`]), a large value is received into a
//! [`Reservation`] and sent from a [`Pinned`] item, both without holding anybody up, and what comes in
//! bursts is done in bursts ([`Engine::get_many`]).

#![forbid(unsafe_code)]

mod burst;
mod cache_mode;
mod chain;
mod check;
mod concat;
mod config;
mod entry;
#[doc(hidden)]
pub mod extents;
mod index;
mod item;
#[doc(hidden)]
pub mod log;
mod mode;
mod owner;
mod partition;
mod pinned;
mod plan;
#[doc(hidden)]
pub mod position;
mod read;
mod reservation;
mod restart;
mod slot;
mod stats;
mod store;
mod store_mode;
mod sweep;
mod versions;
mod visit;

pub use burst::{Delete, Get, Put, Staged};
pub use cache_mode::CacheMode;
pub use concat::{Concat, ConcatError, Side};
pub use config::{CreateError, Eviction, StoreConfig};
pub use entry::{Entry, Item};
pub use item::{ItemMeta, ItemState, ItemView};
pub use minos_region::{Backing, MapError};
pub use minos_sync::{Access, AnyWriter, Crcw, Crew, Erew};
pub use mode::Mode;
pub use owner::Owner;
pub use partition::OutOfMemory;
pub use pinned::Pinned;
pub use reservation::Reservation;
pub use restart::{CloseError, OpenError, Opening};
pub use stats::StoreStats;
pub use store::{Cache, Engine, Store};
pub use store_mode::StoreMode;
pub use sweep::Swept;
