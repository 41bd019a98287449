//! Discrete-event simulators.
//!
//! [`queues`] compares ways to bind requests to workers in the abstract, as queueing theory does
//! (Minos §2.2): a request is an arrival time and a service time. Tests compare it with closed forms.
//!
//! [`dispatch`] adds the cost of dispatching: workers that poll RX queues in bursts, rings, control epochs
//! and a link, under the policy code of `sched` that the server runs (Minos §5, §6).
//!
//! Runs are reproducible to the bit on every machine: time is counted in whole ticks, events at the
//! same tick happen in the order in which they were scheduled, the generator is a specified one
//! ([`Random`]), and logarithms come from a library that is compiled with the program.

#![forbid(unsafe_code)]

mod calendar;
pub mod dispatch;
mod parallel;
pub mod queues;
mod random;
mod service;
mod stats;

pub use calendar::{Calendar, Ticks};
pub use random::Random;
pub use service::{Distribution, DistributionError, Service, ServiceTimes};
pub use stats::{Estimate, Recorder, Responses, Summary};
