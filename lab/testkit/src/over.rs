//! The end of a test, for its other threads.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Sets its flag when it is dropped, thus also when the test fails. Threads that go on until the flag is set would otherwise
/// keep a failed test from its end.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
