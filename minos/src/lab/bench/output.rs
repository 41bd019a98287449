//! Where results go: standard output.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Prints `text` and a line end. A reader that has gone away, as `head` does, has seen enough.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub(crate) fn emit(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints one JSON object.
///
/// # Errors
/// As [`emit`].
pub(crate) fn emit_json(value: &impl Serialize) -> io::Result<()> {
    emit(&serde_json::to_string_pretty(value)?)
}
