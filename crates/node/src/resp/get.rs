//! GET and MGET.

use std::cell::Cell;

use arrayvec::ArrayVec;
use minos_base::{Clock, limits::BURST_MAX};
use minos_engine::Mode;
use minos_proto::resp::{Id, Version, compose};

use super::{
    call::{Call, Done, cold, end, failed_text, pause},
    elsewhere,
    session::RespSession,
};
use crate::ops::{
    Cold, Context, Facts, Fetch, Found, Head, LINE_END, Lookup, Moment, Next, Placement, Work, find,
};

/// What stands before a value. It notes if the item has expired between two seconds: then there is none.
#[derive(Clone, Copy)]
struct BulkHead<'a> {
    clock: &'a Clock,
    is_gone: &'a Cell<bool>,
}

impl Head for BulkHead<'_> {
    #[inline]
    fn compose(self, _key: &[u8], item: &Facts, tx: &mut Vec<u8>) {
        self.is_gone.set(Moment::from(item).has_just_passed(self.clock));
        compose::bulk_head(tx, item.value_bytes);
    }
}

/// Looks a key up. The value is followed by its line end, and replaced by a null if there is none.
#[inline]
fn value<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    (lookup, key): (Lookup<'_>, &[u8]),
    version: Version,
    tx: &mut Vec<u8>,
) -> Found<M> {
    let (start, is_gone) = (tx.len(), Cell::new(false));
    let head = BulkHead { clock: cx.clock, is_gone: &is_gone };
    let mut found = find(cx, lookup, key, None, head, tx);
    if is_gone.get() && matches!(found, Found::Copied | Found::Pinned(_)) {
        tx.truncate(start);
        found = Found::Missing;
    }
    match found {
        Found::Copied => tx.extend_from_slice(LINE_END),
        Found::Missing => compose::null(tx, version),
        _ => {}
    }
    found
}

/// GET.
#[inline]
pub(super) fn get<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let key = call.argument(1);
    // One that was made before may lead to a copy.
    let known = call.lookup.filter(|_| session.tracked.is_none() || cx.rack.is_none());
    let lookup = known.unwrap_or_else(|| Lookup::of(cx, key, || session.read_intent()));
    if cx.rack.is_some() && !cx.holes.may_read(lookup.hash) {
        return pause(Next::Yield);
    }
    match value(cx, (lookup, key), session.version, tx) {
        Found::Copied | Found::Missing => {}
        Found::Pinned(item) => return end(Next::Away(Work::send(item, LINE_END))),
        Found::Cold(found) => return cold(cx, found, (lookup.hash, key)),
        Found::AskOwner(owner) => return elsewhere::get(cx, session, (owner, key, Some(Id::Get)), tx),
    }
    Ok(())
}

/// MGET. It pauses at a value that is sent from its item, at a full transmit buffer, or after `requests_left` keys.
pub(super) fn get_many<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    if session.progress.done == 0 {
        compose::array(tx, call.command.len() - 1);
        session.progress.done = 1;
    }
    let mut keys = call.command.arguments(session.progress.done);
    loop {
        let mut group: ArrayVec<(Lookup<'_>, &[u8]), BURST_MAX> = ArrayVec::new();
        for key in keys.by_ref().take(BURST_MAX) {
            let lookup = Lookup::of(cx, key, || session.read_intent());
            lookup.prefetch(cx);
            group.push((lookup, key));
        }
        if group.is_empty() {
            return Ok(());
        }
        group.iter_mut().for_each(|(lookup, _)| lookup.stage(cx));
        for (lookup, key) in group {
            let must_wait = cx.rack.is_some() && !cx.holes.may_read(lookup.hash);
            if must_wait || *requests_left == 0 || tx.len() >= session.replies_bytes_max {
                return pause(Next::Yield);
            }
            *requests_left -= 1;
            match value(cx, (lookup, key), session.version, tx) {
                Found::Copied | Found::Missing => {}
                Found::Pinned(item) => {
                    session.progress.done += 1;
                    return pause(Next::Away(Work::send(item, LINE_END)));
                }
                Found::Cold(Cold::Unknown(class, need)) => {
                    let others = call.command.arguments(session.progress.done + 1);
                    let others: Vec<_> = others.map(|key| (cx.store.hash(key), key)).collect();
                    let fetch = Fetch::of(lookup.hash, key, class, need).with(cx, others.into_iter());
                    return pause(Next::Fetch(Box::new(fetch)));
                }
                Found::Cold(Cold::Failed(failed)) => {
                    // The array goes on: one of its elements is an error.
                    compose::error(tx, failed_text(failed).as_bytes());
                }
                Found::AskOwner(owner) => elsewhere::get(cx, session, (owner, key, None), tx)?,
            }
            session.progress.done += 1;
        }
    }
}
