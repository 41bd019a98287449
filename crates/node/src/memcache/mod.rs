//! memcached's protocol: each command calls operations of [`crate::ops`] and composes a reply from their
//! results.
//!
//! A request for a small item is executed to completion and its reply appended to the transmit buffer. Work
//! for another worker, or a value better moved without a copy, comes back as [`Next::Away`](crate::ops::Next::Away), which owns all it
//! needs, so that it can be handed over together with its connection.

mod administrate;
#[cfg(any(test, feature = "ucx"))]
mod afar;
mod answer;
mod arithmetic;
mod binary;
mod debug;
mod delete;
mod get;
mod get_many;
mod guarded;
#[cfg(any(test, fuzzing))]
pub(crate) mod harness;
mod meta_get;
mod remote;
mod rights;
mod serve;
mod session;
mod store;
mod stored;
mod text;
mod timed;
mod touch;

#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "ucx"))]
pub(crate) use afar::ReadOfOne;
pub(crate) use rights::COMMANDS;
pub(crate) use serve::serve;
pub(crate) use session::MemcacheSession;
