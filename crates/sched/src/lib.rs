//! The Minos policy: size histogram, threshold, core split and size ranges (Minos §3.1).
//!
//! Pure: no sockets, no clock, no tables. A worker counts the size class of each request in its
//! [`SharedHistogram`] through a [`Profiler`]. Once an epoch a control thread adds the histograms
//! up ([`EpochCounts`]), hands them to a [`Discipline`] and gives the workers the [`Plan`] that
//! comes out. A [`Decision`] says what was decided and why.

#![forbid(unsafe_code)]

mod config;
mod control;
mod decision;
mod discipline;
mod histogram;
mod plan;
mod smoothed;

pub use config::{ConfigError, ControlConfig, Cost, ParseCostError, ParseThresholdError, Threshold};
pub use control::THRESHOLD_BEFORE_FIRST_EPOCH_BYTES;
pub use decision::{Decision, RangeDecision};
pub use discipline::{Discipline, KeySharded, SizeAware};
pub use histogram::{EpochCounts, Profiler, SharedHistogram, SizeHistogram};
pub use plan::{Plan, Role, SizeRange, WorkerId};
