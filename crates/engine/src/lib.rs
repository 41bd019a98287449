//! The MICA engine: partitions, cache-line buckets, optimistic reads, an index that grows while serving.
//!
//! [`Store`] is everything. Small items are read without a lock ([`Engine::read`]), a key is changed while
//! nothing else is written in its partition ([`Engine::entry`]), a large value is received into a
//! [`Reservation`] and sent from a [`Pinned`] item, both without holding anybody up, and what comes in
//! bursts is done in bursts ([`Engine::get_many`]).
//!
//! A table on a file outlives its process:
//!
//! ```
//! use minos_engine::{Backing, Cache, ItemMeta, Opening, StoreConfig};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("region");
//! let config = StoreConfig { backing: Backing::File(path), ..StoreConfig::new(4 << 20) };
//! let (cache, opening): (Cache, _) = Cache::open(&config)?;
//! assert_eq!(opening, Opening::Created);
//! cache.entry(cache.hash(b"key"), b"key", 1).insert(&[b"value"], ItemMeta::default())?;
//! cache.close()?;
//!
//! let (cache, opening): (Cache, _) = Cache::open(&config)?;
//! assert_eq!(opening, Opening::Warm { items: 1 });
//! assert!(cache.read(cache.hash(b"key"), b"key", 1, |item| item.value_bytes()).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
