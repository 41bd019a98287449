//! Units, limits, clock, expiry times, numbers, key hash and seeded random: the base of every other crate.
//!
//! Nothing here knows of sockets, tables or policies.

#![forbid(unsafe_code)]

mod clock;
mod flash_slot;
mod hash;
pub mod limits;
pub mod number;
mod random;
mod requests;
mod safeguards;
mod size_class;
mod size_text;

pub use clock::{Clock, Exptime, Seconds, seconds_up};
pub use flash_slot::{
    ALIKE_BUCKET_BITS, FLASH_PAGE_BYTES, FlashPlace, FlashSlot, RoughLength, Tombstone, growth_bits,
    may_look_alike, may_look_alike_among,
};
pub use hash::{KeyHash, hash_key};
pub use random::{seeded, seeded_stream};
pub use requests::{StatsGroup, StoreKind};
pub use safeguards::is_left_out;
pub use size_class::{SizeClass, VALUE_BYTES_MAX};
pub use size_text::{ParseSizeError, SizeText};
