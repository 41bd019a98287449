//! The Minos policy: size histogram, threshold, core split and size ranges (Minos §3.1).
//!
//! Pure: no sockets, no clock, no tables. A worker counts the size class of each request in its
//! [`SharedHistogram`]. Once an epoch a control thread adds the histograms up ([`EpochCounts`]), hands
//! them to a [`Policy`] and gives the workers the [`Plan`] that comes out. A [`Decision`] records the result and its reasons.
//!
//! An [`Assignment`] gives each worker its [`Duty`] under a [`Design`] and a plan. A worker, in the server as
//! in the simulator, takes the steps of a turn that [`is_due`] admits.

#![forbid(unsafe_code)]

mod assignment;
mod config;
mod control;
mod decision;
mod design;
mod domains;
mod histogram;
mod plan;
mod policy;
mod smoothed;
mod step;
mod worker_set;

pub use assignment::{Assignment, Drains, Duty, Help, Intake, Place, Placing, Portion, Share};
pub use config::{
    ConfigError, ControlConfig, Cost, HANDOFF_WORKERS_MAX, LargeOrder, ParseCostError, ParseThresholdError,
    Threshold,
};
pub use decision::{Decision, RangeDecision};
pub use design::{Design, Options, Standby};
pub use domains::{Domains, deal};
pub use histogram::{EpochCounts, SharedHistogram, SizeHistogram};
pub use plan::{Plan, Role, SizeRange};
pub use policy::Policy;
pub use step::{Seen, Step, is_due, next_step};
pub use worker_set::{WorkerId, WorkerSet};
