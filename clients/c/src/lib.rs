//! The blocking client for C: `include/minos.h` documents each function.
//!
//! Every function catches panics, checks pointers for NULL, and reports errors by a [`Status`] and a text of
//! the calling thread. The header states the caller's other duties: pointers point to what their types say,
//! lengths are right, and a client is used by one thread at a time.

mod calls;
mod client;
mod failure;
mod many;
mod memory;
mod options;
mod status;
mod steps;

pub use calls::*;
pub use client::*;
pub use failure::minos_error_text;
pub use many::*;
pub use memory::{Item, Key, OwnedValue, minos_value_free};
pub use options::*;
pub use status::{Status, minos_status_text};
pub use steps::*;
