//! Driving a server: open loop by time, or closed loop as fast as it answers.

mod checker;
mod clock;
mod config;
mod connection;
mod cpu;
mod crew;
mod datagram;
mod latencies;
mod recorder;
mod report;
mod run;
mod schedule;
mod target;
mod thread;

pub use config::{Arrivals, DatagramOptions, Moment, RATE_MAX, RunConfig, RunError};
pub use cpu::server_pid;
pub use latencies::Latencies;
pub use minos_client::QueueBy;
pub use recorder::ErrorKind;
pub use report::{DriverShare, LatencyReport, LoadReport, Octave, Quantiles, Report};
pub use run::{load, run};
pub use schedule::{DUE_SLEEP_MIN, Pace};
pub use target::{MemifPlace, ParseTargetError, Place, Target, TargetProtocol};
