//! Walks over the table: SCAN, KEYS, RANDOMKEY and DBSIZE.

use std::time::{SystemTime, UNIX_EPOCH};

use minos_engine::Mode;
use minos_proto::resp::{compose, integer};

use super::{
    call::{Call, Done, Failure, Interrupt, NO_INTEGER, SYNTAX, fail, failed_text, pause},
    execute::until_nul,
    glob,
    session::RespSession,
};
use crate::{
    ops::{Context, Failed, Fetch, Moment, Next, Placement, WalkWish},
    rack::Intent,
};

/// Buckets that SCAN looks at in one call, at most; and KEYS and RANDOMKEY between two looks at other requests.
const BUCKETS_MAX: usize = 1024;
/// Keys of one reply to SCAN, about at most, whatever the client asks for.
const SCAN_KEYS_MAX: i64 = 4096;
/// Random buckets that RANDOMKEY looks at, before others in turn.
const RANDOM_ATTEMPTS_MAX: u64 = 64;

/// The error of KEYS beyond `--max-buffer`.
pub(super) const TOO_MANY_KEYS: &str = "ERR more keys match than --max-buffer holds: use SCAN";
/// The error of a node of a rack that may not answer: others may have its items by now.
pub(super) const NO_LEASE: &str = "ERR this node of the rack has no lease";
/// Keys above flash that one step of KEYS lists, about.
const KEYS_AT_ONCE: usize = 256;
/// Keys above flash among which RANDOMKEY chooses, about.
const RANDOM_KEYS: usize = 16;

/// The number of a cursor, which Redis reads as C's `strtoul` does: a sign is allowed, and nothing is 0.
pub(super) fn cursor_of(text: &[u8]) -> Option<u64> {
    let text = until_nul(text);
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() && !text.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// The options of SCAN.
struct Options<'a> {
    pattern: Option<&'a [u8]>,
    keys: i64,
    is_string: bool,
}

/// SCAN. An item that is there during the whole scan is returned: buckets are only added, and an item moves to a later
/// one only, in memory or on flash.
pub(super) fn scan<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let Some(mut cursor) = cursor_of(call.argument(1)) else { return fail("ERR invalid cursor") };
    let options = options(call)?;
    check_lease(cx)?;
    let (mut found, mut keys) = (Vec::new(), 0);
    let mut note = |key: &[u8]| {
        if options.is_string && options.pattern.is_none_or(|pattern| glob::matches(pattern, key)) {
            compose::bulk(&mut found, key);
            keys += 1;
        }
        keys
    };
    if M::HAS_FLASH {
        let note = |key: &[u8]| {
            note(key);
        };
        cursor = walk_with_flash(cx, cursor, options.keys as usize, note)?;
    } else {
        for _ in 0..BUCKETS_MAX {
            let mut is_enough = false;
            cursor = walk(cx, cursor, 1, |key| is_enough = note(key) >= options.keys);
            if cursor == 0 || is_enough {
                break;
            }
        }
    }
    compose::array(tx, 2);
    compose::bulk(tx, cursor.to_string().as_bytes());
    compose::array(tx, keys as usize);
    tx.extend_from_slice(&found);
    Ok(())
}

fn options<'a>(call: &Call<'a>) -> Result<Options<'a>, Failure> {
    let mut options = Options { pattern: None, keys: 10, is_string: true };
    let mut arguments = call.command.arguments(2);
    while let Some(word) = arguments.next() {
        let value = arguments.next().ok_or(SYNTAX)?;
        match word.to_ascii_lowercase().as_slice() {
            b"count" => {
                let keys = integer(value).ok_or(NO_INTEGER)?;
                options.keys = if keys < 1 { return Err(SYNTAX.into()) } else { keys.min(SCAN_KEYS_MAX) };
            }
            b"match" => options.pattern = Some(checked_pattern(value)?),
            b"type" => options.is_string = value.eq_ignore_ascii_case(b"string"),
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(options)
}

pub(super) fn checked_pattern(pattern: &[u8]) -> Result<&[u8], Failure> {
    if pattern.len() > glob::PATTERN_BYTES_MAX {
        return Err("ERR pattern is longer than 1024 bytes".into());
    }
    Ok(pattern)
}

/// Calls `f` with the keys of up to `buckets_max` buckets from `cursor` on: a bucket in each of the partitions, then
/// the next partition. Returns the cursor for the rest, 0 at the end. A client may have made the cursor up.
fn walk<M: Mode, P>(
    cx: &Context<'_, M, P>,
    cursor: u64,
    buckets_max: usize,
    mut f: impl FnMut(&[u8]),
) -> u64 {
    let partitions = cx.store.partitions() as u64;
    let (bucket, partition) = (cursor / partitions, cursor % partitions);
    let next = cx.store.visit(partition as usize, bucket, buckets_max, cx.now, |key, item| {
        if !is_elsewhere(cx, key) && !Moment::from(item).has_passed(cx.clock) {
            f(key);
        }
    });
    match next {
        Some(bucket) => bucket * partitions + partition,
        None if partition + 1 < partitions => partition + 1,
        None => 0,
    }
}

/// As [`walk`], of so many buckets, in as many partitions as have them.
fn walk_on<M: Mode, P>(cx: &Context<'_, M, P>, mut cursor: u64, mut f: impl FnMut(&[u8])) -> u64 {
    for _ in 0..BUCKETS_MAX {
        cursor = walk(cx, cursor, 1, &mut f);
        if cursor == 0 {
            break;
        }
    }
    cursor
}

/// Refuses a walk in a turn without the right to answer, which would find nothing.
fn check_lease<M: Mode, P>(cx: &Context<'_, M, P>) -> Result<(), Failure> {
    if cx.rack.is_some_and(|rack| rack.term().is_none()) { Err(NO_LEASE.into()) } else { Ok(()) }
}

/// True for a key that this node does not own: a rack's node may have copies of such items.
fn is_elsewhere<M: Mode, P>(cx: &Context<'_, M, P>, key: &[u8]) -> bool {
    cx.rack.is_some_and(|rack| rack.elsewhere(key, || Intent::Read).is_some())
}

/// As [`walk`], with the keys on flash, of as many buckets as have about `keys_max` keys. The command pauses until they are
/// read.
fn walk_with_flash<M: Mode, P>(
    cx: &Context<'_, M, P>,
    cursor: u64,
    keys_max: usize,
    mut f: impl FnMut(&[u8]),
) -> Result<u64, Box<Interrupt<M>>> {
    let Some(walked) = cx.fetched.and_then(|fetched| fetched.take_walked(cursor)) else {
        return pause(Next::Fetch(Box::new(Fetch::of_walk(WalkWish { cursor, keys: keys_max }))));
    };
    if walked.is_broken {
        return fail(failed_text(Failed::Unreadable));
    }
    // A second may have ended since they were read.
    let live = walked.keys.iter().filter(|(_, moment)| !moment.has_passed(cx.clock));
    live.filter(|(key, _)| !is_elsewhere(cx, key)).for_each(|(key, _)| f(key));
    Ok(walked.next)
}

/// KEYS. It pauses between steps, so that a large table delays no one for long.
pub(super) fn keys<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let pattern = checked_pattern(call.argument(1))?;
    let progress = &mut session.progress;
    progress.done = 1;
    let (found, count) = (&mut progress.found, &mut progress.count);
    let note = |key: &[u8]| {
        if glob::matches(pattern, key) {
            compose::bulk(found, key);
            *count += 1;
        }
    };
    progress.cursor = match M::HAS_FLASH {
        true => walk_with_flash(cx, progress.cursor, KEYS_AT_ONCE, note)?,
        false => walk(cx, progress.cursor, BUCKETS_MAX, note),
    };
    if found.len() > session.limits.command_bytes_max {
        return fail(TOO_MANY_KEYS);
    }
    if progress.cursor != 0 {
        return pause(Next::Yield);
    }
    compose::array(tx, progress.count as usize);
    tx.extend_from_slice(&progress.found);
    Ok(())
}

/// RANDOMKEY: one of the keys in some random buckets, and in the buckets from another one on. It pauses between steps, and
/// goes on until it has found a key or looked at all buckets.
pub(super) fn random<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    tx: &mut Vec<u8>,
) -> Done<M> {
    check_lease(cx)?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let random = |salt: u64| cx.store.hash(&(time ^ salt.rotate_left(32)).to_le_bytes()).0;
    let mut chosen: Option<Vec<u8>> = None;
    let mut seen = 0;
    let mut choose = |key: &[u8]| {
        seen += 1;
        if random(seen) % seen == 0 {
            chosen = Some(key.to_vec());
        }
    };
    let progress = &mut session.progress;
    if progress.done == 0 {
        let stats = cx.store.stats();
        if stats.items + stats.cold_items == 0 {
            compose::null(tx, session.version);
            return Ok(());
        }
        let bucket = |attempt: u64| random(attempt << 8) % stats.buckets.max(1);
        (progress.done, progress.cursor) = (1, bucket(0));
        let attempts = if M::HAS_FLASH { 0 } else { RANDOM_ATTEMPTS_MAX };
        for attempt in 1..=attempts {
            walk(cx, bucket(attempt), 1, &mut choose);
        }
    }
    progress.cursor = match M::HAS_FLASH {
        true => walk_with_flash(cx, progress.cursor, RANDOM_KEYS, &mut choose)?,
        false => walk_on(cx, progress.cursor, &mut choose),
    };
    // Behind the end everything once more from the beginning.
    progress.count += i64::from(progress.cursor == 0);
    match chosen {
        Some(key) => compose::bulk(tx, &key),
        None if progress.count < 2 => return pause(Next::Yield),
        None => compose::null(tx, session.version),
    }
    Ok(())
}

/// DBSIZE: items that have expired count until they are reclaimed, as in Redis.
pub(super) fn size<M: Mode, P: Placement>(cx: &mut Context<'_, M, P>, tx: &mut Vec<u8>) -> Done<M> {
    check_lease(cx)?;
    let stats = cx.store.stats();
    compose::integer(tx, (stats.items + stats.cold_items).saturating_sub(stats.dead_items) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_c_does() {
        for (text, expected) in [
            ("0", Some(0)),
            ("", Some(0)),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-1", Some(u64::MAX)),
            ("-18446744073709551615", Some(1)),
            ("5\0x", Some(5)),
            ("18446744073709551616", None),
            ("+", None),
            ("--1", None),
            (" 5", None),
            ("5 ", None),
            ("0x1", None),
        ] {
            assert_eq!(cursor_of(text.as_bytes()), expected, "{text:?}");
        }
    }
}
