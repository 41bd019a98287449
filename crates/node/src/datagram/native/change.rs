//! Operations that change an item, named after memcached's commands.

use minos_base::{Exptime, StoreKind};
use minos_engine::Mode;
use minos_proto::native::{OpFlags, Opcode, Operation, Status};

use super::{
    Outcome,
    waiting::{Hindrance, failed_status},
};
use crate::ops::{
    self, Cold, Context, CountOperation, Counted, DeleteOperation, Deleted, Failure, StoreOperation, Stored,
};

/// An outcome that holds only a status.
pub(super) fn ended(status: Status) -> Outcome {
    Outcome { status, item_flags: 0, cas: 0, number: None }
}

/// Executes an operation that changes an item and carries all its data; counts as memcached does.
///
/// # Errors
/// It must wait for flash.
pub(super) fn apply<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &Operation<'_>,
) -> Result<Outcome, Hindrance> {
    if operation.opcode.is_store() && u64::from(operation.detail.value_bytes) > cx.store.value_bytes_max() {
        let drops = operation.opcode == Opcode::Put;
        ops::drop_for_too_large(cx, drops, operation.hash, operation.key)?;
        return Ok(ended(Status::TooLarge));
    }
    if operation.flags.contains(OpFlags::DEFERRED) {
        // There is nothing else to wait for.
        return Ok(ended(Status::BadRequest));
    }
    match operation.opcode {
        Opcode::Delete => delete(cx, operation),
        Opcode::Touch => touch(cx, operation),
        Opcode::Flush => {
            let emptying = ops::flush(cx, Exptime(operation.detail.ttl));
            emptying.map_or_else(|| Ok(ended(Status::Ok)), |emptying| Err(Hindrance::Emptying(emptying)))
        }
        Opcode::Incr | Opcode::Decr => count(cx, operation),
        opcode if opcode.is_store() => store(cx, operation),
        _ => Ok(ended(Status::BadRequest)),
    }
}

/// The parameters of a store, without its key and value.
pub(super) fn store_operation(operation: &Operation<'_>) -> StoreOperation {
    let kind = match operation.opcode {
        Opcode::Add => StoreKind::Add,
        Opcode::Replace => StoreKind::Replace,
        Opcode::Append => StoreKind::Append,
        Opcode::Prepend => StoreKind::Prepend,
        Opcode::Compare => StoreKind::Compare,
        _ => StoreKind::Set,
    };
    StoreOperation {
        kind,
        flags: operation.detail.item_flags,
        life: Exptime(operation.detail.ttl).into(),
        unique: if kind == StoreKind::Compare { operation.detail.operand } else { 0 },
        invalidate: false,
        key_is_base64: false,
        takes_old: false,
    }
}

/// The status of a store, and the CAS unique of the item.
pub(super) fn stored_status(stored: &Stored) -> (Status, u64) {
    match *stored {
        Stored::Done(cas) => (Status::Ok, cas),
        Stored::Unmet => (Status::NotStored, 0),
        Stored::OtherCas => (Status::Exists, 0),
        Stored::Missing => (Status::NotFound, 0),
        Stored::NoMemory => (Status::NoMemory, 0),
        // A large store whose item left memory once more.
        Stored::Cold(Cold::Unknown(..)) => (Status::Busy, 0),
        Stored::Cold(Cold::Failed(failed)) => (failed_status(failed), 0),
        Stored::NotHere => (Status::NotOwner, 0),
    }
}

fn store<M: Mode, P>(cx: &Context<'_, M, P>, operation: &Operation<'_>) -> Result<Outcome, Hindrance> {
    let wanted = store_operation(operation);
    let stored = ops::store(cx, &wanted, operation.hash, operation.key, operation.value);
    match stored {
        Stored::Cold(cold) => return Err(cold.into()),
        Stored::NoMemory if ops::may_wait(cx) => return Err(Hindrance::Room),
        _ => cx.counters.cmd_set.count(),
    }
    let (status, cas) = stored_status(&stored);
    let item_flags = if status == Status::Ok && !wanted.joins() { wanted.flags } else { 0 };
    Ok(Outcome { item_flags, cas, ..ended(status) })
}

fn delete<M: Mode, P>(cx: &Context<'_, M, P>, operation: &Operation<'_>) -> Result<Outcome, Hindrance> {
    let unique = Some(operation.detail.operand).filter(|&unique| unique != 0);
    let wanted = DeleteOperation { unique, invalidate: false, exptime: None };
    Ok(ended(match ops::delete(cx, &wanted, operation.hash, operation.key)? {
        Deleted::Done => Status::Ok,
        Deleted::NotFound => Status::NotFound,
        Deleted::OtherCas => Status::Exists,
    }))
}

fn touch<M: Mode, P>(cx: &Context<'_, M, P>, operation: &Operation<'_>) -> Result<Outcome, Hindrance> {
    let mut entry = ops::entry(cx, operation.hash, operation.key)?;
    let touched = ops::touch(cx, &mut entry, Exptime(operation.detail.ttl));
    ops::count_touch(cx, touched.is_some());
    Ok(match touched {
        Some(facts) => Outcome { item_flags: facts.flags, cas: facts.cas, ..ended(Status::Ok) },
        None => ended(Status::NotFound),
    })
}

/// Counts up or down; an item created on a miss gets the operation's expiry.
fn count<M: Mode, P>(cx: &Context<'_, M, P>, operation: &Operation<'_>) -> Result<Outcome, Hindrance> {
    let exptime = Exptime(operation.detail.ttl);
    let initial = if operation.flags.contains(OpFlags::CREATE) {
        let Ok(bytes) = operation.value.try_into() else { return Ok(ended(Status::BadRequest)) };
        Some(u64::from_le_bytes(bytes))
    } else {
        None
    };
    let wanted = CountOperation {
        decrement: operation.opcode == Opcode::Decr,
        delta: operation.detail.operand,
        unique: 0,
        initial,
        flags: operation.detail.item_flags,
    };
    let mut entry = ops::entry(cx, operation.hash, operation.key)?;
    let counted = ops::count(cx, &wanted, &mut entry);
    if matches!(counted, Counted::Vivified(..)) {
        entry.set_expiry(exptime.on(cx.clock, cx.now));
    }
    Ok(match counted {
        Counted::Value(number, facts) | Counted::Vivified(number, facts) => {
            Outcome { item_flags: facts.flags, cas: facts.cas, number: Some(number), ..ended(Status::Ok) }
        }
        Counted::NotFound => ended(Status::NotFound),
        Counted::OtherCas => ended(Status::Exists),
        Counted::Failed(Failure::NotANumber) => ended(Status::NotANumber),
        Counted::Failed(Failure::NoMemory | Failure::NoMemoryVivifying) => ended(Status::NoMemory),
        Counted::NoRoomYet => return Err(Hindrance::Room),
    })
}
