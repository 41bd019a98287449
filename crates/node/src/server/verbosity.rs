//! The level of logging that clients ask for.

use std::sync::atomic::{AtomicU32, Ordering};

/// How much is logged, as clients set it by `verbosity`. Whoever owns the log reads it.
#[derive(Debug, Default)]
pub struct Verbosity(pub(super) AtomicU32);

impl Verbosity {
    /// The level last asked for; 0 is the quietest.
    pub fn level(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
