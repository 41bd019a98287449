//! The Minos policy: size histogram, threshold, core split and size ranges (Minos §3.1).
//!
//! Pure: no sockets, no clock, no tables. A worker counts the size class of each request in its
//! [`SharedHistogram`] through a [`Profiler`]. Once an epoch a control thread adds the histograms
//! up ([`EpochCounts`]), hands them to a [`Discipline`] and gives the workers the [`Plan`] that
//! comes out. A [`Decision`] says what was decided and why.
//!
//! A worker asks the discipline's [`Dispatch`] side which queues are its to poll and whose a request is;
//! server and simulator run the same answers.

#![forbid(unsafe_code)]

mod answers;
mod config;
mod control;
mod decision;
mod discipline;
mod dispatch;
mod fixed;
mod histogram;
mod plan;
mod rivals;
mod smoothed;
mod variants;
mod worker_set;

pub use answers::Answers;
pub use config::{
    ConfigError, ControlConfig, Cost, HANDOFF_WORKERS_MAX, LargeOrder, ParseCostError, ParseThresholdError,
    Threshold,
};
pub use control::THRESHOLD_BEFORE_FIRST_EPOCH_BYTES;
pub use decision::{Decision, RangeDecision};
pub use discipline::{Discipline, KeySharded, SizeAware};
pub use dispatch::{Dispatch, Help, Intake, Place, Pulls, RELIEF_SLICE_BYTES};
pub use histogram::{EpochCounts, Profiler, SharedHistogram, SizeHistogram};
pub use plan::{Plan, Role, SharedWorker, SizeRange, WorkerId};
pub use rivals::{HandOff, Reserved, Stealing};
pub use variants::{Fractional, Helping, WorkConserving};
pub use worker_set::WorkerSet;
