//! The lines of memcached's replies.

use super::reply::{Meaning, Progress, Refusal, Reply, ReplyError, ReplySink};

pub(super) fn understand(
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

pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
