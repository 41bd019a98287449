//! Joins the engine above flash, the log on flash and a device (Vector Interfaces §3, §4).
//!
//! The engine's index names what is in memory and what is on flash, the log's machines say what to write and read, and a
//! device executes vectors. This crate moves items and bytes between the three.
//!
//! - A [`Tier`] is shared by all threads. Stores go to its engine at once.
//! - One [`Keeper`] writes: [`Keeper::turn`] does a bounded piece of everything that is due and never blocks. A thread
//!   calls it in a loop; a test calls it by hand.
//! - Each thread that reads owns a [`Reader`] with a lane of its own: a vector of keys becomes one vector of reads.
//! - A [`TieredStore`] does both sides of `get_many` and `put_many` for programs that embed the store.
//!
//! # Order
//!
//! - **A slot names a record only after its write** ([`minos_flash::Event::Written`]). In a cache that is behind, an item
//!   may have to leave memory before: until then its record does not verify, and a read of it is a miss.
//! - **A record is read in the life that its segment had at the look-up.** A reader announces the log's epoch before it
//!   looks a key up and withdraws it when its reads have ended; the log uses a segment again only when all readers have
//!   passed. A look-up and its reads belong to one thread, so that no epoch is handed over.
//! - **A store writes a tombstone only after what killed the record is durable**, and a segment ends only after such a
//!   group: a power loss between the two would take the old value and the new one. So a group copies all new items,
//!   flushes, writes the tombstones that were due when it began, and flushes again. A cache writes them at once: it
//!   may miss, but must not return what was replaced.
//! - **An acknowledgement waits for a group** ([`Tier::sync`]); one group serves all who asked before it began.
//!
//! # Snapshots
//!
//! [`Tier::snapshot`] copies the table to a file that can be served. The keeper makes durable what was stored before,
//! takes an image of the log, and holds the image's segments back from use while a thread copies them. Segments that
//! the log would use are copied first. If it lacks them for a second nevertheless, the copy is given up. Until the image is
//! taken, a store without durability writes no tombstones either, and ends no segment without a group.
//!
//! # Errors
//!
//! A read that fails is told apart from a miss ([`ReadError`]) and counted. A cache makes a miss of it; a store
//! must not, because the record that could not be read may be the newest of its key. Where one of several records
//! of a key's hash bits cannot be read, the answer is an error, even if another has the key.

#![forbid(unsafe_code)]

mod epochs;
mod fetch;
mod heads;
mod index;
mod keeper;
mod last;
mod names;
mod open;
mod options;
mod payload;
mod reader;
mod snapshot;
mod stats;
mod store;
mod syncs;
mod tier;
mod wishes;

pub use fetch::ReadError;
pub use heads::{Head, Walk};
pub use keeper::{Keeper, Now, Turn};
pub use last::Noted;
pub use minos_flash::{Damage, format::Superblock};
pub use names::{Place, WaitError};
pub use open::{
    Contents, Format, FormatError, Memory, OpenError, Recovered, check_value, format, inspect, open,
    value_bytes_max,
};
pub use options::{Admission, Durability, Options};
pub use payload::Value;
pub use reader::{Answer, Found, Reader, Sought};
pub use snapshot::{
    Snapshot, SnapshotCounts, SnapshotError, SnapshotPhase, SnapshotWish, remove_stale_snapshots,
};
pub use stats::{KeeperCounts, LogState, ReadCounts, Stats};
pub use store::{Entry, StoreError, TieredStore};
pub use syncs::{ReadOnly, SyncId};
pub use tier::Tier;
pub use wishes::{RATE_MAX, Wish, WishError};
