//! What tests share: servers on free ports, a line client, a model map, a history checker, eviction simulators, a
//! network.
//!
//! [`Server`] starts memcached, Redis or Minos on a free loopback port with persistence off and
//! ends it when dropped. [`Client`] speaks the memcache text protocol one blocking request at a
//! time. [`Model`] is the plainest map that behaves as a store must. [`history`] checks that what
//! concurrent clients saw could have happened one request after another. [`eviction`] says which hit ratio
//! a policy has to have. [`network`] is one in virtual time, with every fault a network can have. [`turns`] are those
//! of workers, for the server and its simulator.

#![forbid(unsafe_code)]

mod client;
pub mod eviction;
pub mod history;
mod model;
pub mod network;
mod server;
pub mod turns;

pub use client::{Client, Found};
pub use model::{Model, ModelItem};
pub use server::{Server, StartError};
