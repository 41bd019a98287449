//! The log level that clients ask for.

use std::sync::atomic::{AtomicU32, Ordering};

/// The log level that clients set with `verbosity`. The owner of the log reads it.
#[derive(Debug, Default)]
pub struct Verbosity(pub(super) AtomicU32);

impl Verbosity {
    /// The level last set; 0 is the quietest.
    pub fn level(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
