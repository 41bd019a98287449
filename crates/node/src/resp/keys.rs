//! DEL, UNLINK, EXISTS, TOUCH and TYPE.

use minos_base::{KeyHash, limits::BURST_MAX};
use minos_engine::{Lookup, Mode};
use minos_proto::resp::compose;

use super::{
    call::{Call, Done, Interrupt, entry_for, pause, read},
    execute::all_keys,
    session::RespSession,
};
use crate::ops::{self, Cold, Context, Fetch, Need, Next, Placement, cold};

/// True if there is an item with this key.
pub(super) fn exists<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
) -> Result<bool, Box<Interrupt<M>>> {
    Ok(read(cx, (hash, key), |_| ())?.is_some())
}

/// Fetches all keys of a command that are on flash, before it changes any.
pub(super) fn fetch_all<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>) -> Done<M> {
    if !M::HAS_FLASH {
        return Ok(());
    }
    let is_cold = |key| {
        let hash = cx.store.hash(key);
        match M::look_again(cx.store, hash, key, cx.now) {
            Lookup::Cold(_) => cold(cx, hash, key).map(|found| (found, hash)),
            Lookup::Hot | Lookup::Missing => None,
        }
    };
    for key in all_keys(call) {
        if let Some((Cold::Unknown(class, _), hash)) = is_cold(key) {
            let others: Vec<_> = all_keys(call).map(|key| (cx.store.hash(key), key)).collect();
            let fetch = Fetch::of(hash, key, class, Need::Item);
            let others = others.into_iter().filter(|(_, other)| *other != key);
            return pause(Next::Fetch(Box::new(fetch.with(cx, others))));
        }
    }
    Ok(())
}

/// Calls `f` with each key, and answers with the sum of its results. It pauses after `requests_left` keys.
fn sum<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
    f: impl Fn(&Context<'_, M, P>, KeyHash, &[u8]) -> Result<bool, Box<Interrupt<M>>>,
) -> Done<M> {
    let keys = call.command.arguments(session.progress.done.max(1));
    if keys.len() > 1 {
        let ahead = keys.clone().take(BURST_MAX);
        ahead.for_each(|key| cx.store.prefetch_bucket(cx.store.hash(key)));
    }
    let mut keys = keys;
    while let Some(key) = keys.next() {
        if *requests_left == 0 && session.progress.done > 0 {
            return pause(Next::Yield);
        }
        *requests_left = requests_left.saturating_sub(1);
        let counted = f(cx, cx.store.hash(key), key);
        let is_counted = counted.map_err(|interrupt| along(cx, interrupt, keys.clone()))?;
        session.progress.count += i64::from(is_counted);
        session.progress.done = session.progress.done.max(1) + 1;
    }
    compose::integer(tx, session.progress.count);
    Ok(())
}

/// Fetches the keys behind one that is on flash along with it.
#[cold]
fn along<'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    interrupt: Box<Interrupt<M>>,
    behind: impl Iterator<Item = &'a [u8]>,
) -> Box<Interrupt<M>> {
    match *interrupt {
        Interrupt::Paused(Next::Fetch(fetch)) => {
            let fetch = fetch.with_own(cx, behind.map(|key| (cx.store.hash(key), key)));
            Box::new(Interrupt::Paused(Next::Fetch(Box::new(fetch))))
        }
        _ => interrupt,
    }
}

/// DEL and UNLINK.
pub(super) fn delete<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    sum(cx, session, call, requests_left, tx, |cx, hash, key| {
        if let Some((moment, _)) = ops::deleted_on_flash(cx, hash, key) {
            return Ok(!moment.has_just_passed(cx.clock));
        }
        let is_deleted = entry_for(cx, hash, key, Need::Deletion(None))?.remove();
        if is_deleted {
            cx.counters.delete_hits.count()
        } else {
            cx.counters.delete_misses.count()
        }
        Ok(is_deleted)
    })
}

/// EXISTS and TOUCH.
pub(super) fn exist<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    sum(cx, session, call, requests_left, tx, |cx, hash, key| exists(cx, hash, key))
}

/// TYPE. All values are strings.
pub(super) fn kind<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (hash, key) = call.key();
    compose::simple(tx, if exists(cx, hash, key)? { "string" } else { "none" });
    Ok(())
}
