//! Output of results on standard output.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Prints `text` and a line end. A closed pipe, as behind `head`, is no error.
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

/// Prints a result as JSON, or its text.
///
/// # Errors
/// As [`emit`].
pub(crate) fn emit_either(as_json: bool, value: &impl Serialize, text: &str) -> io::Result<()> {
    if as_json { emit_json(value) } else { emit(text) }
}
