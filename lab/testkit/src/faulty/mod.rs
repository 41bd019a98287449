//! Faulty twins of pollers and ports: each wraps another and does what its contract allows, often.
//!
//! A [`FaultyIo`] opens them for a whole server. Random choices follow from a seed, as far as the threads that
//! call take the same turns.

mod io;
mod poller;
mod port;
mod signal;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use io::FaultyIo;
pub use poller::{FaultyPoller, PollerCounts, PollerFaults};
pub use port::{FaultyBurst, FaultyPort, PortCounts, PortFaults};

/// Counts that outlive a twin.
type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
