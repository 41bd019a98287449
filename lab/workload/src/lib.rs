//! Popularity, sizes, arrivals, the open-loop driver and latency histograms.
//!
//! A [`Workload`] defines items and the requests for them. It is a pure function of its description and a
//! seed, so that the load, the run and the check of every reply agree without communication. [`run`] drives
//! a server with it (Minos §5.3, §5.4), [`load`] fills one.

#![forbid(unsafe_code)]

mod driver;
mod model;

pub use driver::{
    Arrivals, DUE_SLEEP_MIN, DatagramOptions, DriverShare, ErrorKind, Latencies, LatencyReport, LoadReport,
    MemifPlace, Moment, Octave, Pace, ParseTargetError, Place, Quantiles, QueueBy, RATE_MAX, Report,
    RunConfig, RunError, Target, TargetProtocol, load, run, server_pid,
};
pub use model::{
    Class, GroupSpec, LARGE_THRESHOLD_DEFAULT, Op, OpKind, Ops, Popularity, Shape, SizeRange, StreamSpec,
    ValueSizes, Workload, WorkloadError, WorkloadSpec, Writes, named_workloads,
};
