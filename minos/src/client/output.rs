//! Writing to standard output, which may be closed.

use std::io::{self, Write};

/// Writes to standard output. A closed pipe, as behind `head`, is no error.
pub(crate) fn show(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
