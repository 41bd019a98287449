//! Commands without a key.

use minos_base::{Exptime, Seconds, SizeClass, StatsGroup, limits::KEY_BYTES_MAX};
use minos_engine::{Access, Mode};
use minos_proto::memcache::{
    Command, Request, ShutdownMode, StatsDetail,
    compose::{self, DumpFacts},
    text,
};

use super::{
    answer::Answer,
    session::{Executed, MemcacheSession, Unread},
};
use crate::ops::{self, Context, Fetch, Next, Placement};
use crate::rack::Flushing;

/// Buckets of which items are listed in one step.
const DUMP_BUCKETS: usize = 16;
/// Steps until other connections have their turn.
const DUMP_SLICES_MAX: usize = 16;

/// Executes commands without a key.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let is_silent = command.reply.is_silent();
    let reply = match command.request {
        Request::FlushAll { delay } => match flush(cx, session, (command, delay), tx) {
            Some(executed) => return executed,
            None => text::OK,
        },
        Request::Stats(StatsGroup::Connections) => {
            let from = session.listed.unwrap_or(0);
            session.listed = cx.admin.list_connections(from, tx, session.replies_bytes_max);
            if session.listed.is_some() {
                return Executed { next: Next::Yield, unread: Unread::All };
            }
            text::END
        }
        Request::Metadump => {
            session.dumped = dump(cx, session.dumped.unwrap_or_default(), session.replies_bytes_max, tx);
            if session.dumped.is_some() {
                let next = session.dumped.and_then(|(partition, _)| cx.owner_of_partition(partition));
                return Executed { next: next.map_or(Next::Yield, Next::Owner), unread: Unread::All };
            }
            text::END
        }
        Request::Stats(group) => {
            ops::report(cx.store, cx.admin, group, &mut |name, value| compose::stat(tx, name, value));
            tx.extend_from_slice(if group == StatsGroup::Reset { text::RESET } else { text::END });
            text::NOTHING
        }
        Request::StatsDetail(detail) => stats_detail(cx, detail, tx),
        Request::Version => {
            compose::version(tx);
            text::NOTHING
        }
        Request::Verbosity { level } => {
            cx.admin.set_verbosity(level);
            text::OK
        }
        Request::MemoryLimit { mebibytes } => memory_limit(cx, mebibytes),
        Request::NoOp => text::META_NOOP,
        Request::Quit => return Executed::then(Next::Close),
        Request::Shutdown(mode) => return Executed::then(shutdown(cx, mode, tx)),
        _ => text::ERROR,
    };
    if !is_silent {
        tx.extend_from_slice(reply);
    }
    Executed::DONE
}

/// Executes a flush; `None` if it has ended.
pub(super) fn flush<M: Mode, P: Placement, R: Answer>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, delay): (&Command<'_, R>, Exptime),
    tx: &mut Vec<u8>,
) -> Option<Executed<M>> {
    if !cx.holes.is_empty() {
        return Some(Executed::BEHIND_HOLES);
    }
    if let Some(flushing) = session.flushing.take_if(|flushing| flushing.is_over()) {
        command.reply.refused(flushing.failure()?, tx);
        return Some(Executed::DONE);
    }
    if M::Access::IS_BY_THREAD {
        let next = ops::flush_in_turn(cx, delay, &mut session.flushed);
        return next.map(|worker| Executed::then(Next::Owner(worker)));
    }
    if let Some(emptying) = ops::flush(cx, delay) {
        return Some(Executed::then(Next::Fetch(Box::new(Fetch::of_emptying(emptying)))));
    }
    // All nodes are one store.
    let rack = cx.rack.filter(|_| !session.is_peer)?;
    let flushing = session.flushing.get_or_insert_with(|| Flushing::new(rack));
    flushing.go_round(rack, delay, (&mut cx.holes, tx.len()));
    Some(Executed::BEHIND_HOLES)
}

/// Lists items in memory from a place on, until `tx` is as long as it may be or a bound of buckets is reached. Returns the
/// place to continue from, `None` at the end.
fn dump<M: Mode, P: Placement>(
    cx: &Context<'_, M, P>,
    (mut partition, mut cursor): (usize, u64),
    bytes_max: usize,
    tx: &mut Vec<u8>,
) -> Option<(usize, u64)> {
    let unix = |seconds: Seconds| cx.clock.zero_unix_s() + u64::from(seconds);
    for _ in 0..DUMP_SLICES_MAX {
        if partition == cx.store.partitions() {
            return None;
        }
        if tx.len() >= bytes_max || cx.owner_of_partition(partition).is_some() {
            break;
        }
        let next = cx.store.visit(partition, cursor, DUMP_BUCKETS, cx.now, |key, item| {
            if key.len() > KEY_BYTES_MAX {
                // Its clients could not name it.
                return;
            }
            let facts = DumpFacts {
                expires_unix_s: (item.expiry() != 0).then(|| unix(item.expiry())),
                accessed_unix_s: unix(item.last_access()),
                cas: item.cas(),
                is_fetched: item.was_fetched(),
                class: SizeClass::of(item.value_bytes() as u64).index(),
                bytes: (key.len() + item.value_bytes()) as u64,
            };
            compose::dump(tx, key, &facts);
        });
        (partition, cursor) = next.map_or((partition + 1, 0), |next| (partition, next));
    }
    Some((partition, cursor))
}

/// Changes the memory limit. The region of a store is mapped once, so the limit can only lower its use.
fn memory_limit<M: Mode, P>(cx: &Context<'_, M, P>, mebibytes: u32) -> &'static [u8] {
    match mebibytes {
        0..8 => text::MEMLIMIT_TOO_SMALL,
        1_000_000_001.. => text::MEMLIMIT_NOT_MEGABYTES,
        _ => match cx.admin.change(&[("memory", &format!("{mebibytes}m"))]) {
            Ok(()) => text::OK,
            Err(_) => text::MEMLIMIT_FIXED,
        },
    }
}

fn shutdown<M: Mode, P>(cx: &Context<'_, M, P>, mode: ShutdownMode, tx: &mut Vec<u8>) -> Next<M> {
    let graceful = match mode {
        _ if !cx.admin.allows_shutdown() => {
            tx.extend_from_slice(text::SHUTDOWN_DISABLED);
            return Next::Continue;
        }
        ShutdownMode::Now => false,
        ShutdownMode::Graceful => true,
        ShutdownMode::Unknown => {
            tx.extend_from_slice(text::INVALID_SHUTDOWN);
            return Next::Continue;
        }
    };
    cx.admin.shut_down(graceful);
    Next::Close
}

/// Executes `stats detail`; returns the end of the reply.
fn stats_detail<M: Mode, P>(
    cx: &mut Context<'_, M, P>,
    detail: StatsDetail,
    tx: &mut Vec<u8>,
) -> &'static [u8] {
    match (detail, cx.admin.prefixes()) {
        (StatsDetail::Dump, Some(prefixes)) => {
            prefixes.tell(|prefix, counts| {
                compose::prefix(tx, prefix, [counts.gets, counts.hits, counts.sets, counts.deletes]);
            });
            text::END
        }
        (StatsDetail::Dump, None) => text::ERROR,
        _ if cx.turn_prefixes(detail == StatsDetail::On) => text::OK,
        _ => text::ERROR,
    }
}
