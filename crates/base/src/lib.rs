//! Units, limits, clock, expiry times, numbers, key hash and seeded random: the base of every other crate.
//!
//! Nothing here knows of sockets, tables or policies.

#![forbid(unsafe_code)]

mod clock;
mod exptime;
mod flash_slot;
mod hash;
pub mod limits;
pub mod number;
mod random;
mod rough_length;
mod size_class;
mod size_text;
mod stats_group;
mod store_kind;
mod tombstone;

pub use clock::{Clock, Seconds};
pub use exptime::Exptime;
pub use flash_slot::{FlashPlace, FlashSlot, growth_bits};
pub use hash::{KeyHash, hash_key};
pub use random::{seeded, seeded_stream};
pub use rough_length::{FLASH_PAGE_BYTES, RoughLength};
pub use size_class::{SizeClass, VALUE_BYTES_MAX};
pub use size_text::{ParseSizeError, SizeText};
pub use stats_group::StatsGroup;
pub use store_kind::StoreKind;
pub use tombstone::{ALIKE_BUCKET_BITS, Tombstone, may_look_alike};
