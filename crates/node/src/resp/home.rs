//! The worker for a command that goes through a large value.

use minos_base::{SizeClass, VALUE_BYTES_MAX};
use minos_engine::Mode;
use minos_proto::resp::Id;

use super::{
    call::{Call, Interrupt, pause},
    execute::all_keys,
    scratch,
    session::RespSession,
};
use crate::ops::{Context, Next, Placement};

/// Gives a command that goes through large values to their worker, with its connection, before it begins. It has come there
/// if it is executed again, whatever the plan is then. A part of a step stays with the others. Returns the bytes, about, that
/// the command goes through here.
pub(super) fn go_home<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
) -> Result<u64, Box<Interrupt<M>>> {
    if session.is_part || session.transaction.is_executing {
        return Ok(0);
    }
    let class = match call.spec.id {
        Id::Exec => class_of_transaction(cx, session),
        _ => Some(class_of(cx, call)),
    };
    let Some(class) = class else { return Ok(0) };
    if std::mem::take(&mut session.has_come) || cx.placement.is_here(class) {
        return Ok(class.bytes_max());
    }
    match cx.placement.home(class).filter(|home| *home != cx.placement.worker()) {
        Some(home) => {
            session.has_come = true;
            pause(Next::Owner(home))
        }
        None => Ok(class.bytes_max()),
    }
}

/// The class of what a command goes through, as far as can be known without a lock.
fn class_of<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>) -> SizeClass {
    let old = cx.store.size_class(call.key().0).unwrap_or(SizeClass::MIN);
    match call.spec.id {
        Id::GetRange | Id::SubStr => {
            let [start, last] = [2, 3].map(|at| call.integer(at).unwrap_or(0));
            // What is counted from the end may be the whole.
            let is_known = start >= 0 && last >= 0;
            let bytes = if is_known { (last - start).max(0) as u64 + 1 } else { VALUE_BYTES_MAX };
            old.min(SizeClass::of(bytes.min(VALUE_BYTES_MAX)))
        }
        _ => old.max(made(call)),
    }
}

/// The class of the largest value of a transaction, all of which are copied; `None` if there is none.
fn class_of_transaction<M: Mode, P>(cx: &Context<'_, M, P>, session: &RespSession) -> Option<SizeClass> {
    let transaction = &session.transaction;
    let old = |hash| cx.store.size_class(hash).unwrap_or(SizeClass::MIN);
    let watched = transaction.watched.iter().map(|watched| old(watched.hash));
    let commands = scratch::commands(&transaction.queued).map(|call| {
        all_keys(&call).map(|key| old(cx.store.hash(key))).max().unwrap_or(SizeClass::MIN).max(made(&call))
    });
    watched.chain(commands).max().filter(|_| transaction.is_open)
}

/// The class of the value that a command makes where there is none.
fn made(call: &Call<'_>) -> SizeClass {
    let offset = || call.integer(2).map_or(0, |offset| offset.max(0) as u64);
    let bytes = match call.spec.id {
        Id::SetBit => offset() / 8 + 1,
        Id::SetRange => offset().saturating_add(call.argument(3).len() as u64),
        Id::Append | Id::Set => call.argument(2).len() as u64,
        _ => 0,
    };
    SizeClass::of(bytes.min(VALUE_BYTES_MAX))
}
