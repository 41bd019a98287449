//! Requests that the worker's probe looks at.

use std::time::Instant;

use minos_base::StoreKind;
use minos_engine::Mode;
use minos_proto::memcache::{Command, KeyBuffer, Request};

use super::{
    serve::{self, Dialect},
    session::{Executed, MemcacheSession},
};
use crate::ops::{Context, Lookup, Next, Placement};

/// Executes the command that the probe has chosen, and keeps its times. Those of commands that go on elsewhere are taken
/// there.
#[cold]
#[inline(never)]
pub(super) fn execute<D: Dialect, M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, bytes): (&Command<'_, D::Reply<'_>>, &[u8]),
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let begun = Instant::now();
    let executed = serve::execute::<D, M, P>(cx, session, (command, bytes), lookup, requests_left, tx);
    let is_here = matches!(executed.next, Next::Continue | Next::Yield | Next::Close) && cx.holes.is_empty();
    if is_here {
        let mut buffer = KeyBuffer::default();
        let request = &command.request;
        let key = request.key().map_or(&[][..], |key| key.bytes(&mut buffer));
        let hash = lookup.map(|lookup| lookup.hash).filter(|_| !matches!(request, Request::GetMany(_)));
        let bytes = value_bytes(cx, request, lookup);
        cx.probe.executed(name(request), (hash, key), bytes, (begun, cx.now));
    }
    executed
}

/// Begins the times of a request if it is about to be handed over. A line of several keys has noted its own.
#[cold]
pub(super) fn noted<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Request<'_>,
    lookup: Option<Lookup<'_>>,
    next: Next<M>,
) -> Next<M> {
    if let (Next::Away(_), Some(lookup), Some(key)) = (&next, lookup, request.key())
        && !matches!(request, Request::GetMany(_))
    {
        let mut buffer = KeyBuffer::default();
        cx.probe.goes_away(name(request), lookup.hash, key.bytes(&mut buffer));
    }
    next
}

/// Notes a key of a line, which the probe has chosen.
#[cold]
pub(super) fn note_key<M: Mode, P>(cx: &Context<'_, M, P>, lookup: &Lookup<'_>, key: &[u8]) {
    cx.probe.note((lookup.hash, key), stored_bytes(cx, lookup), cx.now);
}

/// Length of the value that a request stores or finds, in bytes: at least roughly.
fn value_bytes<M: Mode, P>(cx: &Context<'_, M, P>, request: &Request<'_>, lookup: Option<Lookup<'_>>) -> u64 {
    match request {
        Request::Store(store) => store.value.bytes(),
        _ => lookup.map_or(0, |lookup| stored_bytes(cx, &lookup)),
    }
}

fn stored_bytes<M: Mode, P>(cx: &Context<'_, M, P>, lookup: &Lookup<'_>) -> u64 {
    let is_here = lookup.owner.is_none();
    let class = is_here.then(|| cx.store.stage(lookup.hash).size_class()).flatten();
    class.map_or(0, |class| class.bytes_min())
}

/// The command by memcached's name; meta commands have those of the others.
fn name(request: &Request<'_>) -> &'static str {
    match request {
        Request::Get(get) if get.touch.is_some() => "gat",
        Request::Get(_) | Request::GetMany(_) => "get",
        Request::Store(store) => match store.kind {
            StoreKind::Set => "set",
            StoreKind::Add => "add",
            StoreKind::Replace => "replace",
            StoreKind::Append => "append",
            StoreKind::Prepend => "prepend",
            StoreKind::Compare => "cas",
        },
        Request::Arithmetic(arithmetic) if arithmetic.decrement => "decr",
        Request::Arithmetic(_) => "incr",
        Request::Delete(_) => "delete",
        Request::Touch(_) => "touch",
        Request::Debug { .. } => "me",
        Request::FlushAll { .. } => "flush_all",
        Request::Stats(_) | Request::StatsDetail(_) => "stats",
        _ => "other",
    }
}
