//! The worker loop that joins net, proto, sched and engine.
//!
//! Protocol and store meet only here. A [`Server`] is a number of workers, each with an RX queue, a ring
//! and a set of large transfers (Minos §3.1), and a control thread.

#![forbid(unsafe_code)]

mod admin;
mod arrivals;
pub mod config;
mod connection;
mod control;
mod counters;
mod datagrams;
mod housekeeping;
mod idle;
mod large_set;
mod memcache;
mod metrics;
pub mod native;
mod operator;
mod ops;
mod outbound;
mod patience;
mod placement;
mod plan_cell;
mod ports;
mod queue;
mod receiving;
mod registry;
mod seldom;
mod server;
mod shared;
mod slab;
mod sleep;
mod transfer;
mod visit;
mod waiting;
mod worker;

pub use admin::Verbosity;
pub use config::ServerConfig;
pub use control::LISTENERS_MAX;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use memcache::fuzz;
pub use minos_base::StatsGroup;
pub use operator::{Operator, SwitchError};
pub use server::{Server, StartError, ThreadPanicked};
pub use shared::Stop;
