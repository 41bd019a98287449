//! The lines of a Redis server's replies.

use super::{
    memcache::decimal,
    reply::{Meaning, Progress, Refusal, Reply, ReplyError, ReplySink},
};

pub(super) fn understand(
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
