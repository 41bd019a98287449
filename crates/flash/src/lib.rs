//! A log-structured store on flash, as state machines without I/O (Vector Interfaces §3, §4.2).
//!
//! The machines ask for work as plain data and are told its results; time is passed in. The formats are drawn
//! in `docs/flash.md`.
//!
//! - [`format`](mod@format): every structure on the device, encoded and decoded, with precise errors.
//! - [`FlashSlot`]: a place on flash as a slot of the memory index holds it.

#![forbid(unsafe_code)]

pub mod format;
mod place;
mod switches;

pub use place::{FlashSlot, growth_bits};
