//! The execution of one command.

use minos_base::StatsGroup;
use minos_engine::{Engine, Mode};
use minos_proto::memcache::{Command, KeyBuffer, Reply, Request, ShutdownMode, StatsDetail, compose, text};

use super::{
    arithmetic, debug, delete,
    executed::{Executed, Unread},
    get, get_many,
    lookup::Lookup,
    meta_get::MetaGet,
    session::MemcacheSession,
    store, touch,
};
use crate::ops::{self, Context, Fetch, Next, Placement, Prefixes};

/// Executes `command` as [`execute_uncounted`] does, and counts it by prefix if that is on.
#[inline]
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_>,
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let hits = cx.counters.get_hits.value();
    let executed = execute_uncounted(cx, session, command, lookup, requests_left, tx);
    if let Some(prefixes) = cx.prefixes
        && !matches!(executed.next, Next::Fetch(_))
    {
        count_by_prefix(prefixes, &command.request, cx.counters.get_hits.value() > hits);
    }
    executed
}

/// Executes `command` with its [`Lookup`], if that is known. Appends the reply, or the part of it that is
/// ready, to `tx`. Each key of a line takes one of `requests_left`; the line pauses when none is left.
#[inline]
fn execute_uncounted<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_>,
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let store = cx.store;
    let known = |key: &[u8]| lookup.map_or_else(|| store.hash(key), |lookup| lookup.hash);
    let mut buffer = KeyBuffer::default();
    match &command.request {
        Request::Get(request) => {
            let key = request.key.bytes(&mut buffer);
            let lookup = lookup.unwrap_or_else(|| Lookup::of_key(cx.store, key));
            match command.reply {
                Reply::Classic { with_cas, .. } => {
                    Executed::then(get::execute(cx, lookup, key, request.touch, with_cas, tx))
                }
                Reply::Meta { flags, quiet } => {
                    Executed::then(MetaGet::new(request, lookup, key, flags, quiet).execute(cx, tx))
                }
            }
        }
        Request::GetMany(request) => get_many::execute(cx, session, *request, command, requests_left, tx),
        Request::Store(request) => {
            let key = request.key.bytes(&mut buffer);
            store::execute(cx, session, request, known(key), command.reply, key, tx)
        }
        Request::Arithmetic(request) => {
            let key = request.key.bytes(&mut buffer);
            arithmetic::execute(cx, request, known(key), key, command.reply, tx)
        }
        Request::Delete(request) => {
            let key = request.key.bytes(&mut buffer);
            delete::execute(cx, request, known(key), key, command.reply, tx)
        }
        Request::Touch(request) => {
            let key = request.key.bytes(&mut buffer);
            touch::execute(cx, request, known(key), key, command.reply, tx)
        }
        Request::Debug { key } => {
            let key = key.bytes(&mut buffer);
            debug::execute(cx, known(key), key, tx)
        }
        _ => administrate(cx, session, command, tx),
    }
}

/// Executes commands without a key.
fn administrate<M: Mode, P>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let is_silent = command.reply.is_silent();
    let reply = match command.request {
        Request::FlushAll { delay } => {
            if let Some(emptying) = ops::flush(cx, delay) {
                return Executed::then(Next::Fetch(Box::new(Fetch::of_emptying(emptying))));
            }
            text::OK
        }
        Request::Stats(StatsGroup::Connections) => {
            let from = session.listed.unwrap_or(0);
            session.listed = cx.admin.list_connections(from, tx, session.replies_bytes_max);
            if session.listed.is_some() {
                return Executed { next: Next::Yield, unread: Unread::All };
            }
            text::END
        }
        Request::Stats(group) => {
            ops::report(cx.store, cx.admin, group, &mut |name, value| compose::stat(tx, name, value));
            tx.extend_from_slice(if group == StatsGroup::Reset { text::RESET } else { text::END });
            text::NOTHING
        }
        Request::StatsDetail(detail) => {
            cx.admin.prefixes().map_or(text::ERROR, |prefixes| stats_detail(prefixes, detail, tx))
        }
        Request::Version => {
            compose::version(tx);
            text::NOTHING
        }
        Request::Verbosity { level } => {
            cx.admin.set_verbosity(level);
            text::OK
        }
        Request::MemoryLimit { mebibytes } => memory_limit(cx.store, mebibytes),
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

/// Changes the memory limit. The region of a store is mapped once, so the limit can only lower its use.
fn memory_limit<M: Mode>(store: &Engine<M>, mebibytes: u32) -> &'static [u8] {
    match mebibytes {
        0..8 => text::MEMLIMIT_TOO_SMALL,
        1_000_000_001.. => text::MEMLIMIT_NOT_MEGABYTES,
        _ if store.set_memory_limit(u64::from(mebibytes) << 20) => text::OK,
        _ => text::MEMLIMIT_FIXED,
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
fn stats_detail(prefixes: &Prefixes, detail: StatsDetail, tx: &mut Vec<u8>) -> &'static [u8] {
    match detail {
        StatsDetail::On | StatsDetail::Off => {
            prefixes.turn(detail == StatsDetail::On);
            text::OK
        }
        StatsDetail::Dump => {
            prefixes.tell(|prefix, counts| {
                compose::prefix(tx, prefix, [counts.gets, counts.hits, counts.sets, counts.deletes]);
            });
            text::END
        }
    }
}

/// Counts a command for one key by its prefix.
fn count_by_prefix(prefixes: &Prefixes, request: &Request<'_>, is_hit: bool) {
    let mut buffer = KeyBuffer::default();
    match request {
        Request::Get(get) => prefixes.count_get(get.key.bytes(&mut buffer), is_hit),
        Request::Store(store) => prefixes.count_set(store.key.bytes(&mut buffer)),
        Request::Delete(delete) => prefixes.count_delete(delete.key.bytes(&mut buffer)),
        _ => {}
    }
}
