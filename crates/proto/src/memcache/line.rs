//! Finding the end of a line, and handling a line without one.

use super::{Command, Limits, Malformed, Parsed, Reply, Request, text};

/// Bytes without a line end after which memcached gives up on anything but a line of keys.
const COMMAND_BYTES_MAX: usize = 2048;

/// Spaces before a line of keys that memcached bears with.
const LEADING_SPACES_MAX: usize = 100;

#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    /// Its text, without the line end, and cut off at a zero byte, as a string in C is.
    pub(super) text: &'a [u8],
    /// Its length in bytes with all of that.
    pub(super) consumed: usize,
}

/// The line at the front of `input`, or the verdict on an input that has none.
#[inline]
pub(super) fn first<'a>(input: &'a [u8], limits: &Limits) -> Result<Line<'a>, Parsed<'a>> {
    // One search finds the end, unless a zero byte comes first, which no sane client sends.
    let (end, zero) = match memchr::memchr2(b'\n', 0, input) {
        Some(end) if input[end] == b'\n' => (end, None),
        Some(zero) => match memchr::memchr(b'\n', input) {
            Some(end) => (end, Some(zero)),
            None => return Err(unended(input, limits)),
        },
        None => return Err(unended(input, limits)),
    };
    let line = &input[..end];
    let line = if end > 1 { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    let text = zero.map_or(line, |zero| &line[..zero]);
    Ok(Line { text, consumed: end + 1 })
}

/// The verdict on an input without a line end.
fn unended<'a>(input: &[u8], limits: &Limits) -> Parsed<'a> {
    if input.len() <= COMMAND_BYTES_MAX.min(limits.line_bytes_max) {
        return Parsed::NeedMore;
    }
    let spaces = input.iter().position(|&byte| byte != b' ').unwrap_or(input.len());
    let words = &input[spaces..];
    let has_keys = words.starts_with(b"get ") || words.starts_with(b"gets ");
    let reply = match has_keys && spaces <= LEADING_SPACES_MAX {
        true if input.len() <= limits.line_bytes_max => return Parsed::NeedMore,
        true => text::LINE_TOO_LONG,
        false => text::NOTHING,
    };
    Parsed::Malformed(Malformed { reply, consumed: input.len(), swallow: 0, close: true })
}

impl<'a> Line<'a> {
    /// The line is the whole command.
    #[inline]
    pub(super) fn accepted(&self, request: Request<'a>, reply: Reply<'a>) -> Parsed<'a> {
        self.accepted_with(request, reply, self.consumed)
    }

    /// The command is `consumed` bytes long and starts with this line.
    #[inline]
    pub(super) fn accepted_with(
        &self,
        request: Request<'a>,
        reply: Reply<'a>,
        consumed: usize,
    ) -> Parsed<'a> {
        let line_end_bytes = self.consumed - self.text.len();
        Parsed::Request { command: Command { request, reply, line_end_bytes }, consumed }
    }

    /// The line is no command.
    pub(super) fn refused(&self, reply: &'static [u8]) -> Parsed<'a> {
        self.refused_with_value(reply, 0)
    }

    /// The line is no command, and neither are the `swallow` bytes behind it.
    pub(super) fn refused_with_value(&self, reply: &'static [u8], swallow: u64) -> Parsed<'a> {
        Parsed::Malformed(Malformed { reply, consumed: self.consumed, swallow, close: false })
    }

    /// The line comes from something that is no client.
    pub(super) fn hung_up(&self) -> Parsed<'a> {
        let reply = text::NOTHING;
        Parsed::Malformed(Malformed { reply, consumed: self.consumed, swallow: 0, close: true })
    }
}
