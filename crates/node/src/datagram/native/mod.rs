//! The server's part of the native datagram protocol, without I/O and without a clock.
//!
//! Datagrams come in as bytes with the time, answers leave through an [`Egress`], and what belongs to another worker
//! is handed over as a [`Job`]: so that tests and a simulated network run the very code of the server.
//!
//! A [`NativeWorker`] is what one worker has of it, [`NativeShared`] what all share. A burst of messages is executed
//! in chunks of operations, whichever datagrams they came in, whose cache misses overlap (MICA §4.3.2, vector
//! interfaces §3.1); what is large by the plan goes to its large worker (Minos §3.1).

mod answer;
mod burst;
mod change;
pub mod cookies;
mod counters;
mod egress;
mod job;
mod operate;
mod outlet;
pub mod replay;
mod seals;
pub mod sessions;
mod shared;
mod standalone;
mod statistics;
mod transfers;
mod worker;

#[cfg(test)]
mod tests;

pub use egress::Egress;
pub use job::Job;
pub use shared::{ENTROPY_BYTES, NativeSetting, NativeShared};
pub use standalone::SizeLimit;
pub use worker::{NativeWorker, Turn};

pub use crate::ops::Placement;

pub(crate) use answer::AnswerTo;
pub(crate) use cookies::{Check, Cookies};
pub(crate) use seals::Seals;
pub(crate) use sessions::{Acceptance, Begin, Outcome, Sessions, SessionsConfig};
