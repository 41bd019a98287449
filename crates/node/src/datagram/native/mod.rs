//! The server's part of the native datagram protocol, without I/O and without a clock.
//!
//! Datagrams come in as bytes with the time, answers leave through an [`Egress`], and work for another worker
//! is handed over as a [`Job`]. So tests and a simulated network run the server's own code.
//!
//! A [`NativeWorker`] is one worker's part, [`NativeShared`] the state that all share. A burst of messages is
//! executed in chunks of operations, from any of its datagrams, whose cache misses overlap (MICA §4.3.2,
//! vector interfaces §3.1). Operations that are large under the plan go to their large worker (Minos §3.1).

mod answer;
mod burst;
mod change;
pub mod cookies;
mod counters;
mod egress;
mod held;
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
mod waiting;
mod worker;

#[cfg(test)]
mod tests;

pub use egress::Egress;
pub use job::{HandOff, Job};
pub use shared::{ENTROPY_BYTES, NativeSetting, NativeShared};
pub use standalone::SizeLimit;
pub use worker::{NativeWorker, Turn};

pub use crate::ops::Placement;

pub(crate) use answer::AnswerTo;
pub(crate) use cookies::{Check, Cookies};
pub(crate) use seals::Seals;
pub(crate) use sessions::{Acceptance, Begin, Outcome, Sessions, SessionsConfig};
pub(crate) use waiting::{Held, Waiting};
