//! Units, limits, clock, key hash and seeded random: what every room of Minos shares.
//!
//! Nothing here knows of sockets, tables or policies.

#![forbid(unsafe_code)]

mod clock;
mod hash;
pub mod limits;
mod random;
mod size_class;
mod size_text;

pub use clock::{Clock, Seconds};
pub use hash::{KeyHash, hash_key};
pub use random::{seeded, seeded_stream};
pub use size_class::{SizeClass, VALUE_BYTES_MAX};
pub use size_text::{ParseSizeError, SizeText};
