//! The decisions of a rack: the placement of keys, the server that reads, and replication (RackOut §3-§5).
//!
//! Everything here is a pure function of its arguments, without sockets, clock or randomness: a simulator
//! runs the same decisions as the real rack.
//!
//! - [`Placement`]: keys to micro-shards, micro-shards to servers by a ring, servers to units.
//! - [`ReadDistribution`]: which server of a unit reads for a request; [`adaptive`] computes it from the
//!   servers' reports, [`printed`] is the paper's pseudo-code to the letter.
//! - [`Cluster`] with [`Cluster::relieve`]: migration and replication of the hottest micro-shards (§4.7).
//! - [`unit_size_max`]: how many servers a unit may have (§4.6).

#![forbid(unsafe_code)]

pub mod adaptive;
mod error;
mod placement;
pub mod printed;
mod reads;
mod replication;
mod unit_size;

pub use error::BadParameter;
pub use placement::{
    MICRO_SHARDS_MAX, MicroShard, MicroShards, Placement, SERVERS_MAX, ServerId, UnitId, VIRTUAL_NODES,
    unit_count,
};
pub use reads::{Alias, ReadDistribution};
pub use replication::{Cluster, Demand, ServiceTimes, Step, StepKind};
pub use unit_size::{NodeRates, unit_size_max};
