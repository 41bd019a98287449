//! Tools for tests: servers on free ports, a line client, a model map, a history checker, eviction
//! simulators, a network, faulty transports.
//!
//! [`Server`] starts memcached, Redis, etcd or Minos on a free loopback port with persistence off and
//! ends it when dropped. [`Client`] speaks the memcache text protocol one blocking request at a
//! time, [`PacketClient`] the binary one. [`Model`] is a plain map, the reference for a store. [`history`] checks that concurrent clients'
//! results are linearizable. [`eviction`] computes the exact hit ratio of a policy. [`network`] is a faulty
//! network in virtual time. [`faulty`] wraps pollers and ports in twins with faults. [`number_from`] reads how often a test is to run. [`numa_folder`] shows NUMA nodes as the kernel does. [`forget_package`] is for a cargo within a test. [`skip`] says that a test shows nothing here. [`Over`] ends a test's other threads. [`turns`] are recorded turns of workers, for the server and its simulator.

#![forbid(unsafe_code)]

/// Declares counters that can be added up.
macro_rules! counts {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: $kind,)* }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

mod client;
pub mod eviction;
pub mod faulty;
pub mod history;
mod model;
pub mod network;
mod numa;
mod number;
mod over;
mod package;
mod packets;
mod server;
mod skip;
mod sockets;
pub mod turns;

pub use client::{Client, Found};
pub use model::{Model, ModelItem};
pub use numa::numa_folder;
pub use number::number_from;
pub use over::Over;
pub use package::forget_package;
pub use packets::{Answer, Packet, PacketClient};
pub use server::{Server, StartError};
pub use skip::{SKIPPED, skip};
pub use sockets::is_free;
