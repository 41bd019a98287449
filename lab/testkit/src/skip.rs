//! Tests that show nothing on this machine.

use std::{
    fmt::Display,
    io::{self, Write as _},
    thread,
};

/// What a line about such a test begins with.
pub const SKIPPED: &str = "skipped: ";

/// Says that this test shows nothing here, and why. It passes, so that its captured output is never seen: the line goes
/// past it, and `cargo xtask` counts such lines.
pub fn skip(reason: impl Display) {
    let thread = thread::current();
    // In one piece, as others write too.
    let line = format!("{SKIPPED}{}: {reason}\n", thread.name().unwrap_or("a test"));
    // Without an output there is nobody to tell.
    let _ = io::stderr().write_all(line.as_bytes());
}
