//! Rings, locks and relaxed-atomic word copies, behind one loom facade.
//!
//! All lock-free sharing between the store's threads is built from these few parts, and each part has a loom
//! model with a control that must fail (`src/loom_models.rs`).

#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod bell;
mod facade;
pub mod horizon;
mod lock;
mod pins;
mod ring;
mod sleep;
pub mod tags;
pub mod tenure;
mod threads;
pub mod version;
mod word;
pub mod words;

#[cfg(all(test, loom))]
mod loom_models;

pub use access::{Access, ByThread, Crcw, Crew, Erew};
pub use bell::Bell;
pub use lock::{SpinGuard, SpinLock};
pub use pins::{Pin, PinTable, Unpinned};
pub use ring::Ring;
pub use sleep::SleepFlag;
pub use threads::{ThreadCell, ThreadGuard};
pub use word::{ReadWord, Word, prefetch};
