//! A key-value table in one piece of memory, for use within a process: MICA's engine (NSDI'14, §4).
//!
//! An [`Engine`] has a mode, which decides how it handles full memory, and an access mode, which decides
//! which threads may read and write it. Both are types: code that a mode does not need is not compiled.
//!
//! | | full memory | a full bucket | large values |
//! |---|---|---|---|
//! | [`Store`] | a new item is refused, the old value stays | gets longer | as others, read under a pin |
//! | [`Cache`] | the oldest items go, see [`Eviction`] | its oldest entry goes | in an order of their own |
//! | [`Tiered`] | the oldest items go to flash | gets longer | as a cache's |
//!
//! | access mode | who reads | who writes |
//! |---|---|---|
//! | [`Crcw`], the default | any thread, no lock | any thread, a lock a partition |
//! | [`Crew`] | any thread, no lock | a partition's owner, no lock |
//! | [`Erew`] | a partition's owner, no versions | the same |
//!
//! Every call takes a key with its [`Engine::hash`], which is thus computed only once, and the time in whole
//! [seconds](minos_base::Seconds) of a clock that the caller chooses. An item whose expiry is not after that
//! time has expired. Where no item expires, any constant will do. Sizes are in bytes.
//!
//! # A store
//!
//! ```
//! use minos_engine::{ItemMeta, OutOfMemory, Store, StoreConfig};
//!
//! let store: Store = Store::create(&StoreConfig::new(16 << 20))?;
//! let (key, now) = (b"language".as_slice(), 2);
//! let hash = store.hash(key);
//!
//! store.entry(hash, key, now).insert(&[b"Rust"], ItemMeta { flags: 7, ..ItemMeta::default() })?;
//!
//! let mut value = Vec::new();
//! let flags = store.read(hash, key, now, |item| {
//!     // May run again when a writer interferes, so it clears its output first.
//!     value.clear();
//!     item.copy_value_to(&mut value);
//!     item.flags()
//! });
//! assert_eq!((flags, value.as_slice()), (Some(7), b"Rust".as_slice()));
//!
//! // While an entry is held, no other thread writes in its partition: read, decide, write.
//! let mut entry = store.entry(hash, key, now);
//! let longer = entry.item().map(|item| [item.value(), b"!"].concat()).unwrap_or_default();
//! entry.insert(&[&longer], ItemMeta::default())?;
//! assert_eq!(entry.item().unwrap().value(), b"Rust!");
//! assert!(entry.remove());
//! drop(entry);
//! assert_eq!(store.read(hash, key, now, |_| ()), None);
//!
//! // A value that does not fit is refused.
//! let huge = vec![0; 32 << 20];
//! assert_eq!(store.entry(hash, key, now).insert(&[&huge], ItemMeta::default()), Err(OutOfMemory));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A cache
//!
//! ```
//! use minos_engine::{Cache, Eviction, ItemMeta, StoreConfig};
//!
//! let config = StoreConfig { eviction: Eviction::ApproxLru, ..StoreConfig::new(1 << 20) };
//! let cache: Cache = Cache::create(&config)?;
//! let key = |number: u32| number.to_le_bytes();
//! for number in 0..10_000 {
//!     let key = key(number);
//!     cache.entry(cache.hash(&key), &key, 2).insert(&[&[0; 200]], ItemMeta::default())?;
//! }
//! let is_there = |number| cache.read(cache.hash(&key(number)), &key(number), 2, |_| ()).is_some();
//! assert!(is_there(9_999) && !is_there(0));
//! let stats = cache.stats();
//! assert_eq!(stats.items + stats.evictions(), 10_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Above flash
//!
//! The caller does the I/O: it copies what is due, says when it is written, and reads what is cold.
//!
//! ```
//! use minos_base::{FlashPlace, RoughLength};
//! use minos_engine::{Choice, Cold, ItemMeta, Lookup, Promotion, StoreConfig, Tiered, Written};
//!
//! let table: Tiered = Tiered::create(&StoreConfig { partitions: Some(1), ..StoreConfig::new(1 << 20) })?;
//! let (key, now) = (b"language".as_slice(), 2);
//! let hash = table.hash(key);
//! table.entry(hash, key, now).insert(&[b"Rust"], ItemMeta::default())?;
//!
//! // The maintenance thread copies items ahead of the head of a log. Here, all of them.
//! let place = FlashPlace { page: 8, length: RoughLength::of(60, 1) };
//! let mut copy = None;
//! table.walk_all(0, 100, now, |due| {
//!     copy = Some((due.ticket, due.value.to_vec(), due.sequence, due.state.cas()));
//!     Choice::Write(place)
//! });
//! let (ticket, value, sequence, cas) = copy.ok_or("nothing is due")?;
//! assert_eq!(table.written(&ticket, place), Written::Linked);
//!
//! // The item has left memory. Its record is read, and comes back.
//! let Lookup::Cold(seen) = table.find_cold(hash, key, now) else { return Err("not on flash".into()) };
//! assert_eq!(seen[0].page, 8);
//! let meta = ItemMeta { cas: Some(cas), ..ItemMeta::default() };
//! let record = Cold { slot: seen[0], seen: &seen, sequence, value: &value, meta };
//! assert_eq!(table.promote(hash, key, &record, now)?, Promotion::Promoted);
//! assert_eq!(table.find_cold(hash, key, now), Lookup::Hot);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Bursts
//!
//! The cache misses of many operations overlap: up to [`StoreConfig::prefetch_depth`] at a time.
//!
//! ```
//! use minos_engine::{Delete, Get, ItemMeta, Put, Store, StoreConfig};
//!
//! let store: Store = Store::create(&StoreConfig::new(16 << 20))?;
//! let keys: Vec<_> = (0..100u64).map(u64::to_le_bytes).collect();
//! let put = |key| Put { hash: store.hash(key), key, value: key, meta: ItemMeta::default() };
//! let puts: Vec<_> = keys.iter().map(|key| put(key.as_slice())).collect();
//! store.put_many(&puts, 2, |_, stored| assert!(stored.is_ok()));
//!
//! let gets: Vec<_> = keys.iter().map(|key| Get { hash: store.hash(key), key }).collect();
//! let mut numbers = vec![None; keys.len()];
//! store.get_many(&gets, 2, |at, item| numbers[at] = item.and_then(|item| item.value_u64()));
//! assert!((0..100).all(|at| numbers[at] == Some(at as u64)));
//!
//! let deletes: Vec<_> = keys.iter().map(|key| Delete { hash: store.hash(key), key }).collect();
//! store.delete_many(&deletes, 2, |_, was_there| assert!(was_there));
//! assert_eq!(store.stats().items, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # CREW and EREW: threads that own partitions
//!
//! A partition belongs to the thread that opens it first, until it gives it up. Another one that writes to it, or in EREW
//! reads it, panics.
//!
//! ```
//! use minos_engine::{Crew, ItemMeta, Store, StoreConfig};
//! use std::thread;
//!
//! let config = StoreConfig { partitions: Some(4), owners: 2, ..StoreConfig::new(16 << 20) };
//! let store = Store::<Crew>::create(&config)?;
//! thread::scope(|scope| {
//!     for owner in 0..store.owners() {
//!         let store = &store;
//!         scope.spawn(move || {
//!             store.take_up(owner);
//!             for key in (0..1000u32).map(u32::to_le_bytes) {
//!                 let hash = store.hash(&key);
//!                 if store.owner_of(hash) == owner {
//!                     store.entry(hash, &key, 2).insert(&[&key], ItemMeta::default()).unwrap();
//!                 }
//!             }
//!             store.give_up(owner);
//!         });
//!     }
//! });
//! assert_eq!(store.stats().items, 1000);
//! let key = 7u32.to_le_bytes();
//! assert!(store.read(store.hash(&key), &key, 2, |_| ()).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Large values
//!
//! A large value is received into a [`Reservation`] and sent from a [`Pinned`] item. Neither blocks other
//! threads, however long it takes.
//!
//! ```
//! use minos_engine::{Cache, ItemMeta, StoreConfig};
//! use std::sync::Arc;
//!
//! let cache: Arc<Cache> = Arc::new(Cache::create(&StoreConfig::new(64 << 20))?);
//! let key = b"film".as_slice();
//! let hash = cache.hash(key);
//! let mut reservation = cache.reserve(hash, key, 8 << 20)?;
//! reservation.value_mut().fill(7);
//! cache.entry(hash, key, 2).commit(reservation, ItemMeta::default())?;
//!
//! let pinned = cache.pin(hash, key, 2).ok_or("evicted already")?;
//! cache.entry(hash, key, 2).remove();
//! assert!(pinned.value().iter().all(|&byte| byte == 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On a file
//!
//! With [`Backing::File`] a table outlives its process: [`Engine::close`] saves it, and [`Engine::open`]
//! reopens it or returns the reason why it cannot. A table that was not closed is repaired, or started empty.
//!
//! ```
//! use minos_engine::{Backing, Crcw, ItemMeta, Opening, Store, StoreConfig};
//!
//! # let dir = tempfile::tempdir()?;
//! let backing = Backing::File(dir.path().join("table"));
//! let config = StoreConfig { backing, ..StoreConfig::new(16 << 20) };
//! let key = b"kept".as_slice();
//!
//! let (store, opening) = Store::<Crcw>::open(&config)?;
//! assert_eq!(opening, Opening::Created);
//! store.entry(store.hash(key), key, 2).insert(&[b"value"], ItemMeta::default())?;
//! store.close()?;
//!
//! let (store, opening) = Store::<Crcw>::open(&config)?;
//! assert_eq!(opening, Opening::Warm { items: 1 });
//! assert!(store.read(store.hash(key), key, 2, |_| ()).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`ReadOnly`] maps such a table read only, in this process or another, and reads it beside its writers.
//!
//! # Errors
//!
//! Creating a table fails with [`CreateError`]: the configuration is not possible, the memory is not
//! available, or is too little for that many partitions. A write that fails with [`OutOfMemory`] changes
//! nothing; in a cache this happens only to values that are larger than its memory allows, or while pinned
//! ones fill it. Reading does not fail.
//!
//! Layouts, invariants and memory orders are explained in `docs/engine.md`.

#![deny(unsafe_code)]

mod access;
mod buffers;
mod burst;
mod cache_mode;
mod candidate;
mod chain;
mod check;
mod concat;
mod config;
mod counts;
mod create;
mod entry;
#[doc(hidden)]
pub mod extents;
mod gather;
mod generation;
mod holding;
mod index;
mod inline;
mod item;
mod linking;
#[doc(hidden)]
pub mod log;
mod mode;
mod observer;
mod overwrite;
mod ownership;
mod partition;
mod parts;
mod patch;
mod pinned;
mod places;
mod plan;
#[doc(hidden)]
pub mod position;
mod read;
mod read_only;
mod reader;
mod relink;
pub mod remote;
mod reservation;
mod restart;
mod saved;
mod settled;
mod slot;
mod stats;
mod store;
mod store_mode;
mod sweep;
mod threads;
mod tiered;
mod together;
mod turns;
mod versions;
mod visit;

pub use burst::{Delete, Get, Put};
pub use cache_mode::CacheMode;
pub use candidate::Staged;
pub use concat::{Concat, ConcatError, Joining, Side};
pub use config::{CHAIN_BUCKETS_MAX, CreateError, Eviction, StoreConfig, TierConfig};
pub use create::{Cache, Store};
pub use entry::{Entry, Item};
pub use item::{ItemMeta, ItemState, ItemView};
pub use minos_region::{Backing, Kept, MapError, MemoryKeeper, OwnerState, Ownership};
pub use minos_sync::{Access, Crcw, Crew, Erew};
pub use mode::{Candidates, Lookup, Mode};
pub use observer::Observer;
pub use partition::OutOfMemory;
pub use pinned::Pinned;
pub use places::HasAccess;
pub use read_only::{Answer, ReadOnly, StagedOwned, Unfinished};
pub use reservation::Reservation;
pub use restart::{CloseError, OpenError, Opening};
pub use stats::{ClassStats, StoreStats};
pub use store::Engine;
pub use store_mode::StoreMode;
pub use sweep::Swept;
pub use tiered::{
    Choice, Cold, Due, Flash, FlashSpace, LogMode, MemoryOnly, Need, Promotion, Standing, Ticket, TierStats,
    Tiered, TieredMode, Tombstone, Tombstones, Walked, Written,
};
pub use together::{Change, NotTogether, Seen, Then};
pub use visit::Named;
