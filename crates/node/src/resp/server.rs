//! FLUSHALL, SWAPDB, TIME, WAIT, SLOWLOG and LATENCY.

use std::time::{SystemTime, UNIX_EPOCH};

use minos_base::Exptime;
use minos_engine::Mode;
use minos_proto::resp::{Id, Version, compose, integer};

use super::{
    call::{Call, Done, NO_INTEGER, SYNTAX, fail, pause},
    session::RespSession,
};
use crate::{
    ops::{self, Context, Fetch, Next, Placement},
    watch::{SlowRequest, Watch},
};

/// FLUSHDB and FLUSHALL. Above flash, the reply waits until all is removed.
pub(super) fn flush<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.command.len() {
        1 => {}
        2 if call.is(1, "async") || call.is(1, "sync") => {}
        _ => return fail(SYNTAX),
    }
    if let Some(emptying) = ops::flush(cx, Exptime(0)) {
        return pause(Next::Fetch(Box::new(Fetch::of_emptying(emptying))));
    }
    tx.extend_from_slice(compose::OK);
    Ok(())
}

/// SWAPDB. There is only one database.
pub(super) fn swap<M: Mode>(call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    match [1, 2].map(|at| integer(call.argument(at)).and_then(|index| i32::try_from(index).ok())) {
        [None, _] => fail("ERR invalid first DB index"),
        [_, None] => fail("ERR invalid second DB index"),
        [Some(0), Some(0)] => {
            tx.extend_from_slice(compose::OK);
            Ok(())
        }
        _ => fail("ERR DB index is out of range"),
    }
}

/// Microseconds since 1970, now.
pub(super) fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

/// TIME.
pub(super) fn time<M: Mode>(tx: &mut Vec<u8>) -> Done<M> {
    let us = now_us();
    compose::array(tx, 2);
    for number in [us / 1_000_000, us % 1_000_000] {
        compose::bulk(tx, number.to_string().as_bytes());
    }
    Ok(())
}

/// WAIT. There are no replicas.
pub(super) fn wait<M: Mode>(call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    match [1, 2].map(|at| integer(call.argument(at))) {
        [None, _] => return fail(NO_INTEGER),
        [_, None] => return fail("ERR timeout is not an integer or out of range"),
        [_, Some(..0)] => return fail("ERR timeout is negative"),
        _ => {}
    }
    compose::integer(tx, 0);
    Ok(())
}

/// Entries that SLOWLOG GET shows by default.
const SLOW_SHOWN: usize = 10;

/// SLOWLOG: the slow requests of all protocols that were looked at.
pub(super) fn slow_log<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let watch = cx.admin.watch();
    let slow = || watch.map(Watch::slow_requests).unwrap_or_default();
    match call.spec.id {
        Id::SlowLogLen => compose::integer(tx, slow().len() as i64),
        Id::SlowLogReset => {
            watch.into_iter().for_each(Watch::clear_slow);
            tx.extend_from_slice(compose::OK);
        }
        _ => {
            let shown = match call.command.argument(2).map(integer) {
                None => SLOW_SHOWN,
                Some(Some(-1)) => usize::MAX,
                Some(Some(count @ 0..)) => usize::try_from(count).unwrap_or(usize::MAX),
                Some(_) => return fail("ERR count should be greater than or equal to -1"),
            };
            let slow = slow();
            compose::array(tx, slow.len().min(shown));
            slow.iter().take(shown).for_each(|entry| slow_entry(entry, tx));
        }
    }
    Ok(())
}

/// Number, time in seconds, duration in microseconds, command and key, client, and the client's name, which is not kept.
fn slow_entry(entry: &SlowRequest, tx: &mut Vec<u8>) {
    compose::array(tx, 6);
    for number in [entry.number, entry.unix_s, entry.duration_us] {
        compose::integer(tx, i64::try_from(number).unwrap_or(i64::MAX));
    }
    compose::array(tx, 2);
    compose::bulk(tx, entry.command.as_bytes());
    compose::bulk(tx, entry.key.front());
    compose::bulk(tx, entry.client.as_bytes());
    compose::bulk(tx, b"");
}

/// LATENCY. No events are noted.
pub(super) fn latency<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.spec.id {
        Id::LatencyReset => compose::integer(tx, 0),
        Id::LatencyHistogram => histogram(cx, session.version, call, tx),
        _ => compose::array(tx, 0),
    }
    Ok(())
}

/// LATENCY HISTOGRAM: of each command, or of those that are named, the calls and those up to a number of microseconds.
fn histogram<M: Mode, P>(cx: &Context<'_, M, P>, version: Version, call: &Call<'_>, tx: &mut Vec<u8>) {
    let mut commands = cx.admin.watch().map(Watch::commands).unwrap_or_default();
    if call.command.len() > 2 {
        let is_named =
            |name: &str| call.command.arguments(2).any(|asked| name.as_bytes().eq_ignore_ascii_case(asked));
        commands.retain(|name, _| is_named(name));
    }
    compose::map(tx, commands.len(), version);
    for (name, times) in commands {
        compose::bulk(tx, name.as_bytes());
        compose::map(tx, 2, version);
        compose::bulk(tx, b"calls");
        compose::integer(tx, times.calls() as i64);
        compose::bulk(tx, b"histogram_usec");
        compose::map(tx, times.steps().count(), version);
        for (end_us, calls) in times.steps() {
            compose::integer(tx, end_us as i64);
            compose::integer(tx, calls as i64);
        }
    }
}
