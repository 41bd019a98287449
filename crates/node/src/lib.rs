//! The worker loop that joins net, proto, sched and engine.
//!
//! Protocol and store meet only here. A [`Server`] is a number of workers, each with an RX queue, a ring
//! and a set of large transfers (Minos §3.1), and a control thread.

#![deny(unsafe_code)]
// With UCX, `rack/fabric.rs` has some.
#![cfg_attr(not(feature = "ucx"), forbid(unsafe_code))]

mod access;
mod datagram;
mod memcache;
mod ops;
mod rack;
mod resp;
mod server;
mod tcp;
mod tracking;
pub mod watch;
mod worker;

pub use datagram::native;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use memcache::fuzz;
pub use minos_base::StatsGroup;
pub use rack::coordinator;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use resp::fuzz as resp_fuzz;
pub use server::{
    Health, LISTENERS_MAX, Operator, Server, StartError, Stop, SwitchError, ThreadPanicked,
    config::{self, ServerConfig},
    settings,
};
