//! The server's part of the native datagram protocol, without I/O and without a clock.
//!
//! Datagrams come in as bytes with the time, answers leave through an [`Egress`], and work for another worker
//! is handed over as a [`Job`]. So tests and a simulated network run the server's own code.
//!
//! A [`NativeWorker`] is one worker's part, [`NativeShared`] the state that all share. A burst of messages is
//! executed in chunks of operations, from any of its datagrams, whose cache misses overlap (MICA §4.3.2,
//! vector interfaces §3.1). Operations that are large under the plan go to their large worker (Minos §3.1).

mod burst;
mod change;
pub mod cookies;
mod counters;
mod elsewhere;
mod held;
mod job;
mod operate;
mod outlet;
mod probed;
pub mod replay;
pub mod sessions;
mod shared;
mod statistics;
mod transfers;
mod waiting;
mod worker;

#[cfg(test)]
mod tests;

pub use job::{HandOff, Job};
pub use outlet::Egress;
pub use shared::{ENTROPY_BYTES, NativeSetting, NativeShared};
pub use worker::{NativeWorker, SizeLimit, Turn};

pub use crate::ops::Placement;

pub(crate) use cookies::{Check, Cookies};
pub(crate) use outlet::{AnswerTo, Seals};
pub(crate) use sessions::{Acceptance, Begin, Outcome, Sessions, SessionsConfig};
pub(crate) use waiting::{Held, Waiting};
