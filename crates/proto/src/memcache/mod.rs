//! The memcached text protocol, classic and meta: bytes to [`Command`]s, outcomes to bytes. The binary protocol, whose
//! requests are the same, is in [`binary`].
//!
//! The model is memcached: its error texts, the order of its checks, the bytes that it skips after
//! an error, and the numbers that it accepts. Where its versions differ in a malformed line,
//! 1.6.45 is followed; `docs/memcached.md` has the table. Where memcached closes a connection
//! without an answer, so does this parser.

pub mod base64;
pub mod binary;
mod classic;
pub mod compose;
mod flags;
mod line;
mod meta;
mod replies;
mod request;
pub mod text;

use minos_base::{
    Exptime,
    limits::{ITEM_BYTES_MAX_DEFAULT, KEY_BYTES_MAX},
    number,
};

pub use flags::{MetaFlags, OPAQUE_BYTES_MAX};
pub use replies::{BadReply, Replies};
pub use request::{
    Arithmetic, Delete, Get, GetMany, Key, KeyBuffer, Request, ShutdownMode, StatsDetail, Store, Tokens,
    Touch, Value, Vivify,
};

use line::Line;

/// Shortest line that can be a command, in bytes, its line end included.
const LINE_BYTES_MIN: usize = 4;

/// The limits of a request's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest value, in bytes.
    pub value_bytes_max: u64,
    /// Longest line of keys, in bytes. Lines of other commands are held to 2048 bytes, unless they
    /// arrive in one piece.
    pub line_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { value_bytes_max: ITEM_BYTES_MAX_DEFAULT, line_bytes_max: 1 << 20 }
    }
}

/// A request together with the form that its reply must have, which is the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a, R = Reply<'a>> {
    /// The request.
    pub request: Request<'a>,
    /// How to answer.
    pub reply: R,
    /// Bytes of the line behind the last word, or behind the keys of a line that ends badly.
    pub line_end_bytes: usize,
}

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Words, as the classic commands answer.
    Classic {
        /// The client wants no answer at all.
        quiet: bool,
        /// Values come with their CAS unique.
        with_cas: bool,
    },
    /// A two-letter code and the flags that were asked for.
    Meta {
        /// The flags of the request, in their order.
        flags: MetaFlags<'a>,
        /// The client wants no answer in the nominal case.
        quiet: bool,
    },
}

impl Reply<'_> {
    /// A text answer that is always sent.
    pub const LOUD: Reply<'static> = Reply::Classic { quiet: false, with_cas: false };

    /// True if even execution errors are not sent to the client: only under the classic `noreply`.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Classic { quiet: true, .. })
    }
}

/// The result of parsing the front of the input. A protocol has its own form of replies, and of answers to what is no
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a, R = Reply<'a>, A = &'static [u8]> {
    /// A command in the first `consumed` bytes. A value that has not wholly arrived is
    /// [`Value::Pending`] and is not among them, nor is one that is too large.
    Request {
        /// The command.
        command: Command<'a, R>,
        /// Its length in bytes.
        consumed: usize,
    },
    /// Not enough bytes for a result. Never more than [`Limits::line_bytes_max`] bytes.
    NeedMore,
    /// No command, with the answer and the bytes to skip.
    Malformed(Malformed<A>),
}

/// The handling of bytes that are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed<A = &'static [u8]> {
    /// The whole answer, line end included; empty where there is to be none.
    pub reply: A,
    /// Bytes that were no command.
    pub consumed: usize,
    /// Bytes behind them to discard, whether they have arrived or not.
    pub swallow: u64,
    /// True if the connection is to be closed after the answer is sent.
    pub close: bool,
}

/// The state for resuming a line of keys in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Expiry to give to each item.
    pub touch: Option<Exptime>,
    /// Values come with their CAS unique.
    pub with_cas: bool,
    /// As [`GetMany::ends_badly`].
    pub ends_badly: bool,
    /// Bytes of the keys that are left.
    pub keys_bytes: usize,
    /// As [`Command::line_end_bytes`].
    pub line_end_bytes: usize,
}

impl Resume {
    /// Bytes of the line that are left.
    pub fn unread_bytes(&self) -> usize {
        self.keys_bytes + self.line_end_bytes
    }
}

/// Reads the command at the front of `input`.
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    let line = match line::first(input, limits) {
        Ok(line) => line,
        Err(verdict) => return verdict,
    };
    if line.consumed < LINE_BYTES_MIN {
        return line.refused(text::BAD_FORMAT);
    }
    let mut tokens = Tokens::new(line.text);
    let Some(word) = tokens.next() else { return line.refused(text::ERROR) };
    let source = Source { input, line, limits };
    match word {
        [b'm', letter @ (b'a' | b'd' | b'e' | b'g' | b'n' | b's')] => meta::parse(*letter, tokens, source),
        _ => classic::parse(word, tokens, source),
    }
}

/// Reads on in a line of keys, `input` beginning with those that are left.
///
/// The line was whole when its first part was parsed, and its keys were checked then: nothing is searched
/// again, however often a line is interrupted.
pub fn parse_resumed(resume: Resume, input: &[u8]) -> Parsed<'_> {
    let Resume { touch, with_cas, ends_badly, keys_bytes, line_end_bytes } = resume;
    match input.get(..keys_bytes) {
        Some(keys) => {
            let request = Request::GetMany(GetMany { keys: Tokens::new(keys), touch, ends_badly });
            let reply = Reply::Classic { quiet: false, with_cas };
            let command = Command { request, reply, line_end_bytes };
            Parsed::Request { command, consumed: resume.unread_bytes() }
        }
        None => Parsed::NeedMore,
    }
}

/// The source of a command: the inputs that every parser needs beside its words.
#[derive(Clone, Copy)]
struct Source<'a, 'l> {
    input: &'a [u8],
    line: Line<'a>,
    limits: &'l Limits,
}

impl<'a> Source<'a, '_> {
    /// The value of `bytes` bytes behind the line, and the length in bytes of the whole command; `None`
    /// if its line end is missing.
    fn value(&self, bytes: u64) -> Option<(Value<'a>, usize)> {
        let head_bytes = self.line.consumed;
        if bytes > self.limits.value_bytes_max {
            return Some((Value::TooLarge { bytes }, head_bytes));
        }
        let data = &self.input[head_bytes..];
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        match data.get(..length.saturating_add(2)) {
            None => Some((Value::Pending { bytes }, head_bytes)),
            Some(block) => {
                let value = block.strip_suffix(b"\r\n")?;
                Some((Value::Whole(value), head_bytes + block.len()))
            }
        }
    }

    /// The verdict on a value whose line end is missing.
    fn bad_chunk(&self, value_bytes: u64, reply: &'static [u8]) -> Parsed<'a> {
        // Only a value that has arrived can be found bad, so that its length fits the input.
        let block_bytes = usize::try_from(value_bytes).map_or(usize::MAX, |bytes| bytes.saturating_add(2));
        let consumed = self.line.consumed.saturating_add(block_bytes).min(self.input.len());
        Parsed::Malformed(Malformed { reply, consumed, swallow: 0, close: false })
    }
}

fn is_too_long(key: &[u8]) -> bool {
    key.len() > KEY_BYTES_MAX
}

/// Parses a length as a client writes it, by memcached's rules.
fn value_bytes(word: &[u8]) -> Option<u64> {
    let bytes = number::integer_32(word)?;
    // The two bytes of the line end must fit the same type.
    if bytes > i32::MAX - 2 { None } else { u64::try_from(bytes).ok() }
}
