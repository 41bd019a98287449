//! A log-structured store on flash, as state machines without I/O (Vector Interfaces §3, §4.2).
//!
//! The machines ask for work as plain data and are told its results; time is passed in. The formats are drawn
//! in `docs/flash.md`.
//!
//! - [`format`](mod@format): every structure on the device, encoded and decoded, with precise errors.
//! - [`create`] makes a table, [`Recovery`] finds its records, [`Newest`] keeps those that count.
//! - [`Log`]: appends, flushes, compaction.

#![forbid(unsafe_code)]

mod create;
pub mod format;
mod gather;
mod log;
mod recovery;
#[cfg(test)]
mod simulation;
mod switches;
mod work;

pub use create::create;
pub use log::{
    Counters, Event, Extent, Image, Index, Log, Options, Place, Policy, Put, Refusal, ScrubState, Standing,
    Usage,
};
pub use minos_base::{FlashSlot, Tombstone, growth_bits};
pub use recovery::{Damage, Found, Newest, NotOurs, Recovered, Recovery, Step, Winners};
pub use work::{DeviceFailed, Outcome, Work, WorkId};
