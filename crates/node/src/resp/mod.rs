//! Redis' protocol: each command calls operations of [`crate::ops`] and composes a reply from their results.
//!
//! Commands for one key are executed to completion. One that has many keys, or needs an item from flash, may pause: it
//! stays in the input, and [`Progress`](session::Progress) says where it goes on.

mod acl;
mod bits;
mod call;
mod client;
mod config;
mod count;
mod describe;
mod elsewhere;
mod execute;
mod expire;
mod get;
mod glob;
mod home;
mod info;
mod keys;
mod lcs;
mod object;
mod relayed;
mod rename;
mod rights;
mod scan;
mod scratch;
mod serve;
mod server;
mod session;
mod set;
mod strings;
#[cfg(test)]
mod tests;
mod timed;
mod together;
mod tracking;
mod transaction;
mod walks;

#[cfg(fuzzing)]
pub mod fuzz;

pub(crate) use relayed::{MARK, Midway, serve as serve_relayed};
#[cfg(any(test, feature = "ucx"))]
pub(crate) use relayed::{key_of_get, reply_to_get};
pub(crate) use rights::COMMANDS;
pub(crate) use serve::serve;
pub(crate) use session::RespSession;
