//! Commands that the worker's probe looks at.

use std::time::Instant;

use minos_engine::Mode;

use super::{
    call::Call,
    execute::{Outcome, Request, run},
    session::RespSession,
};
use crate::ops::{Context, Next, Placement};

/// Executes the command that the probe has chosen, and keeps its times. Those of commands that go on elsewhere are taken
/// there.
#[cold]
#[inline(never)]
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    request: &Request<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Outcome<M> {
    let begun = Instant::now();
    let outcome = run(cx, session, request, requests_left, tx);
    if let (Outcome::Done, Ok(call)) = (&outcome, &request.call) {
        let lookup = call.lookup.filter(|_| call.spec.keys.first > 0);
        let class = lookup.and_then(|lookup| cx.store.stage(lookup.hash).size_class());
        let (bytes, key) = (class.map_or(0, |class| class.bytes_min()), call.key().1);
        cx.probe.executed(call.spec.name, (lookup.map(|lookup| lookup.hash), key), bytes, (begun, cx.now));
    }
    outcome
}

/// Begins the times of a command if it is about to be handed over.
#[cold]
pub(super) fn noted<M: Mode, P>(cx: &Context<'_, M, P>, request: &Request<'_>, next: Next<M>) -> Next<M> {
    if let (Next::Away(_), Ok(call @ Call { lookup: Some(lookup), .. })) = (&next, &request.call) {
        cx.probe.goes_away(call.spec.name, lookup.hash, call.key().1);
    }
    next
}
