//! Commands for a part of a value, for a value and its expiry, and for several values.

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Change, Concat, ConcatError, ItemMeta, Mode, OutOfMemory, Pinned, Seen, Side};
use minos_proto::resp::compose;

use super::{
    call::{Call, Done, Interrupt, TOO_LONG, end, entry, fail, kept, no_memory, pause, pin, read},
    expire,
    keys::fetch_all,
    session::RespSession,
    set::Options,
    together,
};
use crate::ops::{self, Context, LINE_END, Moment, Next, Placement, Work, now_ms};
use crate::tcp::queue::VISIT_REQUESTS_MAX;

/// Attempts to change a large value without a lock, each of which fails if the value is replaced meanwhile.
const ATTEMPTS_MAX: usize = 4;

/// GETDEL.
pub(super) fn get_and_delete<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (hash, key) = call.key();
    let mut entry = entry(cx, hash, key)?;
    let bytes = entry.item().map(|item| item.value_bytes() as u64);
    ops::count_get(cx, bytes.is_some());
    let Some(bytes) = bytes else {
        compose::null(tx, session.version);
        return Ok(());
    };
    cx.counters.delete_hits.count();
    if !cx.placement.is_here(SizeClass::of(bytes))
        && let Some(item) = entry.pin(cx.store)
    {
        entry.remove();
        compose::bulk_head(tx, bytes);
        return end(Next::Away(Work::send(item, LINE_END)));
    }
    match entry.item() {
        Some(item) => compose::bulk(tx, item.value()),
        None => compose::null(tx, session.version),
    }
    entry.remove();
    Ok(())
}

/// GETEX.
pub(super) fn get_and_expire<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let options = Options::read(call.command.arguments(2), true)?;
    let (hash, key) = call.key();
    let mut entry = entry(cx, hash, key)?;
    let bytes = entry.item().map(|item| item.value_bytes() as u64);
    ops::count_get(cx, bytes.is_some());
    let Some(bytes) = bytes else {
        compose::null(tx, session.version);
        return Ok(());
    };
    let until = options.expire.map(|expire| expire.unix_ms(call.spec.name)).transpose()?;
    let pinned = if cx.placement.is_here(SizeClass::of(bytes)) { None } else { entry.pin(cx.store) };
    match (&pinned, entry.item()) {
        (Some(_), _) => compose::bulk_head(tx, bytes),
        (None, Some(item)) => compose::bulk(tx, item.value()),
        (None, None) => compose::null(tx, session.version),
    }
    match until {
        Some(unix_ms) if unix_ms <= now_ms() => {
            entry.remove();
        }
        Some(unix_ms) => expire::change(&mut entry, Moment::at(cx.clock, unix_ms)),
        None if options.persists && entry.item().is_some_and(|item| item.expiry() != 0) => {
            expire::change(&mut entry, Moment::default());
        }
        None => entry.mark_fetched(cx.now),
    }
    match pinned {
        Some(item) => end(Next::Away(Work::send(item, LINE_END))),
        None => Ok(()),
    }
}

/// MSET. All keys are set in one step, up to as many as a visit to a connection serves; more are set in several steps.
pub(super) fn set_many<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    check_pairs(call)?;
    let done = session.progress.done.max(1);
    let changes: Vec<_> = pairs(cx, call, done, Seen::Anything).take(VISIT_REQUESTS_MAX).collect();
    together::change(cx, &changes)?;
    count_sets(cx, changes.len());
    session.progress.done = done + 2 * changes.len();
    if session.progress.done < call.command.len() {
        return pause(Next::Yield);
    }
    tx.extend_from_slice(compose::OK);
    Ok(())
}

/// MSETNX. All keys are set in one step.
pub(super) fn set_many_new<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    check_pairs(call)?;
    fetch_all(cx, call)?;
    let mut is_free = true;
    for key in call.command.arguments(1).step_by(2) {
        // It removes an item that has just expired.
        is_free &= entry(cx, cx.store.hash(key), key)?.item().is_none();
    }
    let changes: Vec<_> = pairs(cx, call, 1, Seen::Nothing).collect();
    let is_set = is_free && together::change(cx, &changes)?;
    count_sets(cx, if is_set { changes.len() } else { 0 });
    compose::integer(tx, i64::from(is_set));
    Ok(())
}

/// The changes that set the pairs of keys and values from argument `from` on.
fn pairs<'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    call: &Call<'a>,
    from: usize,
    seen: Seen,
) -> impl Iterator<Item = Change<'a>> {
    let mut arguments = call.command.arguments(from);
    std::iter::from_fn(move || {
        let (key, value) = (arguments.next()?, arguments.next()?);
        Some(together::store(cx, key, seen, (value, ItemMeta::default())))
    })
}

fn count_sets<M: Mode, P>(cx: &Context<'_, M, P>, count: usize) {
    cx.counters.cmd_set.add(count as u64);
    cx.counters.total_items.add(count as u64);
}

fn check_pairs<M: Mode>(call: &Call<'_>) -> Done<M> {
    if call.command.len().is_multiple_of(2) {
        return fail(format!("ERR wrong number of arguments for '{}' command", call.spec.name));
    }
    Ok(())
}

/// APPEND.
pub(super) fn append<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let ((hash, key), part) = (call.key(), call.argument(2));
    let concat = |compare| Concat { side: Side::Back, extra: part, compare, cas: None };
    for _ in 0..ATTEMPTS_MAX {
        if !cx.store.joins_large(hash, part.len() as u64) {
            break;
        }
        let Some(old) = pin(cx, (hash, key))? else { break };
        cx.note_change(hash, key);
        match cx.store.concat(hash, key, cx.now, &concat(Some(old.cas()))) {
            Ok(_) => return appended(cx, old.value_bytes() + part.len(), tx),
            Err(ConcatError::Missing | ConcatError::Changed) => {}
            Err(ConcatError::TooLarge) => return fail(TOO_LONG),
            Err(ConcatError::OutOfMemory(_)) => return no_memory(cx),
        }
    }
    let mut entry = entry(cx, hash, key)?;
    let old_bytes = entry.item().map(|item| item.value_bytes());
    let joined = match old_bytes {
        Some(_) if part.is_empty() => return appended(cx, old_bytes.unwrap_or(0), tx),
        Some(_) => entry.concat(&concat(None)),
        None => entry.insert(&[part], ItemMeta::default()).map_err(ConcatError::from),
    };
    drop(entry);
    match joined {
        Ok(_) => appended(cx, old_bytes.unwrap_or(0) + part.len(), tx),
        Err(ConcatError::TooLarge) => fail(TOO_LONG),
        Err(_) => no_memory(cx),
    }
}

fn appended<M: Mode, P>(cx: &Context<'_, M, P>, bytes: usize, tx: &mut Vec<u8>) -> Done<M> {
    cx.counters.cmd_set.count();
    compose::integer(tx, bytes as i64);
    Ok(())
}

/// STRLEN.
pub(super) fn length<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let bytes = read(cx, call.key(), |item| item.value_bytes())?;
    ops::count_get(cx, bytes.is_some());
    compose::integer(tx, bytes.unwrap_or(0) as i64);
    Ok(())
}

/// Calls `f` with the value of a key, without a lock if it is large; with nothing if there is no item.
pub(super) fn with_value<M: Mode, P, R>(
    cx: &Context<'_, M, P>,
    (hash, key): (KeyHash, &[u8]),
    f: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R, Box<Interrupt<M>>> {
    if cx.store.joins_large(hash, 0)
        && let Some(item) = pin(cx, (hash, key))?
    {
        return Ok(f(Some(item.value())));
    }
    let mut entry = entry(cx, hash, key)?;
    entry.mark_fetched(cx.now);
    let item = entry.item();
    Ok(f(item.as_ref().map(|item| item.value())))
}

/// Stores a large value of at least `bytes` bytes in which those that `change` makes of the old one stand from `at` on, if it
/// makes any. Returns the old item; `None` if the value is small, or was replaced in every attempt.
pub(super) fn patch_large<M: Mode, P, B: AsRef<[u8]>>(
    cx: &Context<'_, M, P>,
    (hash, key): (KeyHash, &[u8]),
    (at, bytes): (usize, u64),
    change: impl Fn(&[u8]) -> Option<B>,
) -> Result<Option<Option<Pinned<M>>>, Box<Interrupt<M>>> {
    for _ in 0..ATTEMPTS_MAX {
        if !cx.store.patches_large(hash, bytes) {
            break;
        }
        let old = pin(cx, (hash, key))?;
        if let Some(new) = change(old.as_ref().map_or(&[][..], |old| old.value())) {
            let patched = match cx.store.patch((hash, key), old.as_ref(), (at, new.as_ref())) {
                // Another client may have stored an item meanwhile that is on flash by now: the entry says so.
                Ok(patched) => entry(cx, hash, key)?.put_in_place_of(old.as_ref(), patched),
                Err(error) => Some(Err(error)),
            };
            match patched {
                Some(Ok(_)) => {}
                Some(Err(OutOfMemory)) => return no_memory(cx),
                None => continue,
            }
        }
        cx.counters.cmd_set.count();
        return Ok(Some(old));
    }
    Ok(None)
}

/// GETRANGE and SUBSTR.
pub(super) fn range<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (start, last) = (call.integer(2)?, call.integer(3)?);
    let is_there = with_value(cx, call.key(), |value| {
        let bytes = value.unwrap_or_default();
        let part = part(bytes.len(), start, last).and_then(|part| bytes.get(part));
        compose::bulk(tx, part.unwrap_or_default());
        value.is_some()
    })?;
    ops::count_get(cx, is_there);
    Ok(())
}

/// The part of `len` elements from `start` to `last`, both counted from the end if they are negative; `None` if it is
/// empty.
pub(super) fn part(len: usize, start: i64, last: i64) -> Option<std::ops::Range<usize>> {
    if start < 0 && last < 0 && start > last {
        return None;
    }
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { (len.saturating_add(at)).max(0) } else { at };
    let (start, last) = (from_end(start), from_end(last).min(len - 1));
    (start <= last && len > 0).then(|| start as usize..last as usize + 1)
}

/// SETRANGE.
pub(super) fn set_range<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (offset, bytes) = (call.integer(2)?, call.argument(3));
    if offset < 0 {
        return fail("ERR offset is out of range");
    }
    let (hash, key) = call.key();
    if bytes.is_empty() {
        let old_bytes = read(cx, call.key(), |item| item.value_bytes())?;
        compose::integer(tx, old_bytes.unwrap_or(0) as i64);
        return Ok(());
    }
    let end = (offset as u64).saturating_add(bytes.len() as u64);
    if end > cx.store.value_bytes_max() {
        return fail(TOO_LONG);
    }
    let at = offset as usize;
    if let Some(old) = patch_large(cx, (hash, key), (at, end), |_| Some(bytes))? {
        let old_bytes = old.map_or(0, |old| old.value_bytes());
        compose::integer(tx, old_bytes.max(end as usize) as i64);
        return Ok(());
    }
    let end = end as usize;
    let mut entry = entry(cx, hash, key)?;
    let old_bytes = entry.item().map_or(0, |item| item.value_bytes());
    let written = if end <= old_bytes {
        entry.overwrite_value(at, bytes)
    } else {
        let (kept, meta) = match entry.item() {
            Some(item) => (item.value()[..old_bytes.min(at)].to_vec(), kept(&item)),
            None => (Vec::new(), ItemMeta::default()),
        };
        let zeros = vec![0; at - kept.len()];
        entry.insert(&[&kept, &zeros, bytes], meta)
    };
    drop(entry);
    if let Err(OutOfMemory) = written {
        return no_memory(cx);
    }
    cx.counters.cmd_set.count();
    compose::integer(tx, old_bytes.max(end) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_in_redis() {
        for (start, last, expected) in [
            (0, 3, Some(0..4)),
            (-3, -1, Some(7..10)),
            (0, -1, Some(0..10)),
            (5, 100, Some(5..10)),
            (-100, 2, Some(0..3)),
            (3, 2, None),
            (-1, -3, None),
            (10, 20, None),
            (i64::MIN, i64::MAX, Some(0..10)),
        ] {
            assert_eq!(part(10, start, last), expected, "{start} {last}");
        }
        assert_eq!(part(0, 0, -1), None);
    }
}
