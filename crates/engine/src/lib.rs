//! The MICA store: partitions, cache-line buckets, optimistic reads, a lossless index that grows while serving.
//!
//! [`Store`] is everything. Small items are read without a lock ([`Store::read`]), a key is changed under
//! its partition's lock ([`Store::entry`]), a large value is received into a [`Reservation`] and sent from
//! a [`Pinned`] item, both without holding anybody up.

#![forbid(unsafe_code)]

mod chain;
mod check;
mod concat;
mod config;
mod entry;
mod index;
mod item;
mod partition;
mod pinned;
mod read;
mod reservation;
mod slot;
mod stats;
mod store;
mod sweep;
mod visit;

pub use concat::{Concat, ConcatError, Side};
pub use config::{CreateError, StoreConfig};
pub use entry::{Entry, Item};
pub use item::{ItemMeta, ItemState, ItemView};
pub use minos_region::{Backing, MapError};
pub use partition::OutOfMemory;
pub use pinned::Pinned;
pub use reservation::Reservation;
pub use stats::StoreStats;
pub use store::Store;
pub use sweep::Swept;
