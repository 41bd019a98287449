//! Protocol-neutral requests.
//!
//! A parser turns bytes into a [`Request`], whose parts are borrowed from the input; the node executes
//! it against a store. Nothing here allocates, and nothing here knows of sockets or tables.

#![forbid(unsafe_code)]

pub mod base64;
mod exptime;
mod key;
mod keys;
pub mod number;
mod request;

pub use exptime::Exptime;
pub use key::{Key, KeyBuffer};
pub use keys::{Keys, Tokens};
pub use request::{
    Arithmetic, Delete, Get, GetMany, Request, ShutdownMode, StatsDetail, StatsGroup, Store, StoreMode,
    Touch, Value, Vivify,
};
