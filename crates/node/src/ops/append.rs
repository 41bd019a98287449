//! Joins: append or prepend a value to the stored one.

use minos_base::{KeyHash, StoreKind};
use minos_engine::{Concat, ConcatError, Mode, Side};

use super::{
    cold::{cold, may_wait},
    context::Context,
    store_operation::{StoreOperation, Stored},
};

/// Joins `part` with the stored value; a large value is not copied under the partition's lock.
pub(super) fn join<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    key: &[u8],
    part: &[u8],
) -> Stored {
    settle(cx, (hash, key), cx.store.concat(hash, key, cx.now, &concat(operation, part)))
}

/// The join that a store asks for.
pub(super) fn concat<'a>(operation: &StoreOperation, part: &'a [u8]) -> Concat<'a> {
    Concat {
        side: if operation.kind == StoreKind::Prepend { Side::Front } else { Side::Back },
        extra: part,
        compare: (operation.unique != 0).then_some(operation.unique),
        cas: None,
    }
}

/// Counts the result of a join.
pub(super) fn settle<M: Mode, P>(
    cx: &Context<'_, M, P>,
    (hash, key): (KeyHash, &[u8]),
    attempt: Result<u64, ConcatError>,
) -> Stored {
    match attempt {
        Ok(cas) => {
            cx.counters.total_items.count();
            Stored::Done(cas)
        }
        Err(ConcatError::Changed) => Stored::OtherCas,
        Err(ConcatError::Missing) => cold(cx, hash, key).map_or(Stored::Unmet, Stored::Cold),
        Err(ConcatError::OutOfMemory(_)) if may_wait(cx) => Stored::NoMemory,
        // A join without room for the whole value is, in memcached, a condition that did not hold.
        Err(ConcatError::TooLarge | ConcatError::OutOfMemory(_)) => {
            cx.counters.store_no_memory.count();
            Stored::Unmet
        }
    }
}
