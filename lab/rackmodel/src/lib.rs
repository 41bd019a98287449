//! Models of clusters of racks: RackOut (§2-§5), and the study of multigets over many nodes of "Using vector
//! interfaces" (§6.1).
//!
//! - [`Popularity`]: the share of all requests of each micro-shard, for up to billions of zipf keys.
//! - [`skew`]: the hottest server and the hottest unit; the ideal speed-up (equation 1).
//! - [`Model`]: servers with their loads; saturation in closed form, [`simulate`], [`search`] for the
//!   throughput that an SLO allows.
//! - [`adaptive`]: a unit whose reads follow its servers' reports.
//! - [`replication`]: utilization after each step of the greedy algorithm.
//! - [`multiget`]: how few nodes can answer for many keys.
//! - [`figures`]: the rows of the papers' figures; [`targets`]: the papers' claims beside our numbers.
//!
//! All decisions are made by `minos-rack`, the code of the real rack. Runs are reproducible to the bit by
//! their seed: sums over keys are of whole numbers, so that the number of threads does not matter, and
//! logarithms and powers come from a library that is compiled with the program.

#![forbid(unsafe_code)]

pub mod adaptive;
mod cache;
mod dataset;
pub mod figures;
mod model;
pub mod multiget;
mod popularity;
mod queueing;
pub mod replication;
pub mod skew;
mod slo;
pub mod targets;
mod zipf;

pub use cache::{Cache, CacheError};
pub use dataset::Dataset;
pub use minos_rack::{BadParameter, NodeRates, unit_count, unit_size_max};
pub use minos_sim::Random;
pub use model::{Fabric, Model};
pub use popularity::{KEYS_MAX, Popularity, PopularitySpec};
pub use queueing::{Latencies, Load, simulate};
pub use slo::{Slo, Throughput, search};
