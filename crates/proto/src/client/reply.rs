//! Replies, and what the lines of either protocol tell of them.

/// A finished reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer to a GET or a multi-get.
    Values {
        /// How many of the keys were found.
        found: u32,
    },
    /// The answer to a SET that was done.
    Stored,
    /// The server refused the request.
    Refused(Refusal),
}

/// How a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The value was not stored although nothing was wrong with the request.
    NotStored,
    /// The server did not understand the request.
    Client,
    /// The server could not do it: out of memory, too large an object.
    Server,
}

/// The server's bytes are no reply in its protocol. The connection can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent what is no reply in its protocol")]
pub struct ReplyError;

/// A receiver of values as they arrive.
pub trait ReplySink {
    /// A value of `value_bytes` begins. memcached names its key; in RESP values come in the order of
    /// the keys that were asked for, and `position` counts them, the missing ones included.
    fn value(&mut self, key: Option<&[u8]>, position: u32, value_bytes: u64);

    /// The next bytes of the value.
    fn bytes(&mut self, part: &[u8]);
}

/// A sink that ignores all values.
#[derive(Clone, Copy, Debug)]
pub struct NoSink;

impl ReplySink for NoSink {
    fn value(&mut self, _key: Option<&[u8]>, _position: u32, _value_bytes: u64) {}
    fn bytes(&mut self, _part: &[u8]) {}
}

/// The part of a reply that has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Values that began so far.
    pub(super) found: u32,
    /// RESP: elements seen so far, the missing ones included.
    pub(super) position: u32,
    /// RESP: elements still to come.
    pub(super) elements_left: u64,
}

pub(super) enum Meaning {
    /// A value of this many bytes follows.
    Value(u64),
    /// More lines follow.
    More,
    Done(Reply),
}

/// What a line of memcached's replies tells.
pub(super) fn understand_memcache(
    line: &[u8],
    progress: &mut Progress,
    sink: &mut impl ReplySink,
) -> Result<Meaning, ReplyError> {
    if let Some(rest) = line.strip_prefix(b"VALUE ") {
        return value(rest, progress, sink);
    }
    Ok(Meaning::Done(match line {
        b"END" => Reply::Values { found: progress.found },
        b"STORED" => Reply::Stored,
        b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" => Reply::Refused(Refusal::NotStored),
        b"ERROR" => Reply::Refused(Refusal::Client),
        _ if line.starts_with(b"CLIENT_ERROR") => Reply::Refused(Refusal::Client),
        _ if line.starts_with(b"SERVER_ERROR") => Reply::Refused(Refusal::Server),
        _ => return Err(ReplyError),
    }))
}

/// `<key> <flags> <bytes> [<cas unique>]`.
fn value(rest: &[u8], progress: &mut Progress, sink: &mut impl ReplySink) -> Result<Meaning, ReplyError> {
    let mut words = rest.split(|&byte| byte == b' ');
    let (Some(key), Some(_flags), Some(bytes)) = (words.next(), words.next(), words.next()) else {
        return Err(ReplyError);
    };
    let value_bytes = decimal(bytes).ok_or(ReplyError)?;
    sink.value(Some(key), progress.found, value_bytes);
    progress.found += 1;
    Ok(Meaning::Value(value_bytes))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// What a line of a Redis server's replies tells.
pub(super) fn understand_resp(
    line: &[u8],
    progress: &mut Progress,
    sink: &mut impl ReplySink,
) -> Result<Meaning, ReplyError> {
    let (&mark, rest) = line.split_first().ok_or(ReplyError)?;
    match mark {
        b'$' => bulk(rest, progress, sink),
        b'*' if progress.elements_left == 0 => array(rest, progress),
        b'+' if progress.elements_left == 0 => Ok(Meaning::Done(Reply::Stored)),
        // An error in the place of an element would leave the array open: no server does that.
        b'-' if progress.elements_left == 0 => Ok(Meaning::Done(Reply::Refused(refusal(rest)))),
        _ => Err(ReplyError),
    }
}

fn bulk(rest: &[u8], progress: &mut Progress, sink: &mut impl ReplySink) -> Result<Meaning, ReplyError> {
    let position = progress.position;
    progress.position += 1;
    progress.elements_left = progress.elements_left.saturating_sub(1);
    if rest == b"-1" {
        return Ok(if progress.elements_left > 0 {
            Meaning::More
        } else {
            Meaning::Done(Reply::Values { found: progress.found })
        });
    }
    let value_bytes = decimal(rest).ok_or(ReplyError)?;
    sink.value(None, position, value_bytes);
    progress.found += 1;
    Ok(Meaning::Value(value_bytes))
}

fn array(rest: &[u8], progress: &mut Progress) -> Result<Meaning, ReplyError> {
    progress.elements_left = decimal(rest).ok_or(ReplyError)?;
    Ok(if progress.elements_left > 0 { Meaning::More } else { Meaning::Done(Reply::Values { found: 0 }) })
}

/// `OOM`, `MISCONF`, `LOADING` and the like say that the server cannot; `ERR` that it did not understand.
fn refusal(message: &[u8]) -> Refusal {
    if message.starts_with(b"ERR") || message.starts_with(b"WRONGTYPE") {
        Refusal::Client
    } else {
        Refusal::Server
    }
}
