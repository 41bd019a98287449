//! Driving a server: open loop by time, or closed loop as fast as it answers.

mod checker;
mod clock;
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

pub use cpu::server_pid;
pub use latencies::Latencies;
pub use minos_client::QueueBy;
pub use recorder::ErrorKind;
pub use report::{DriverShare, LatencyReport, LoadReport, Quantiles, Report};
pub use run::{Arrivals, DUE_SLEEP_MIN, DatagramOptions, Moment, Pace, RunConfig, RunError, load, run};
pub use target::{ParseTargetError, Place, Target, TargetProtocol};
