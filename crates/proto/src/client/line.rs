//! A line that may arrive in pieces.

/// Longest line a server may answer with, in bytes: a VALUE line with the longest key fits.
pub(super) const LINE_BYTES_MAX: usize = 1024;

/// The beginning of a line whose end has not arrived yet.
#[derive(Debug)]
pub(super) struct PartialLine {
    bytes: [u8; LINE_BYTES_MAX],
    len: usize,
}

/// The result of searching a piece of input for a line.
pub(super) enum Found {
    /// The line ends in the input; its first part may lie in the partial line.
    Whole {
        /// Bytes of input up to and including the line feed.
        consumed: usize,
    },
    /// The input was kept; more is needed.
    Part,
    /// The line is longer than any server's.
    TooLong,
}

impl PartialLine {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; LINE_BYTES_MAX], len: 0 }
    }

    /// Searches for the end of the line in `input`, which is not empty.
    pub(super) fn find(&mut self, input: &[u8]) -> Found {
        match memchr::memchr(b'\n', input) {
            Some(end) if self.len + end < LINE_BYTES_MAX => Found::Whole { consumed: end + 1 },
            None if self.len + input.len() <= LINE_BYTES_MAX => {
                self.keep(input);
                Found::Part
            }
            _ => Found::TooLong,
        }
    }

    /// The line whose last bytes are `tail`, without its line end. The partial line is empty afterwards.
    pub(super) fn joined<'a>(&'a mut self, tail: &'a [u8]) -> &'a [u8] {
        let line = if self.len == 0 {
            tail
        } else {
            self.keep(tail);
            let len = std::mem::take(&mut self.len);
            &self.bytes[..len]
        };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}
