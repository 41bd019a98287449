//! OBJECT and MEMORY USAGE: facts about the item of a key.

use minos_engine::Mode;
use minos_proto::resp::{Id, compose, integer};

use super::{
    call::{Call, Done, NO_INTEGER, SYNTAX, entry, fail},
    session::RespSession,
};
use crate::ops::{Context, Placement};

/// Longest value that Redis keeps beside its object.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Bytes of an item besides key and value: its header and its share of the index.
const ITEM_BYTES: usize = 24 + 10;

const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
                            when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// OBJECT with its subcommands for a key, and MEMORY USAGE.
pub(super) fn tell<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    check_samples(call)?;
    let (hash, key) = call.key();
    let entry = entry(cx, hash, key)?;
    let Some(item) = entry.item() else {
        compose::null(tx, session.version);
        return Ok(());
    };
    match call.spec.id {
        Id::ObjectFreq => return fail(NO_FREQUENCY),
        Id::ObjectRefCount => compose::integer(tx, 1),
        Id::ObjectIdleTime => compose::integer(tx, i64::from(cx.now.saturating_sub(item.last_access()))),
        Id::MemoryUsage => compose::integer(tx, (ITEM_BYTES + key.len() + item.value_bytes()) as i64),
        _ => {
            let is_short = item.value_bytes() <= EMBEDDED_BYTES_MAX;
            let is_integer = is_short && integer(item.value()).is_some();
            let encoding = if is_integer {
                "int"
            } else if is_short {
                "embstr"
            } else {
                "raw"
            };
            compose::bulk(tx, encoding.as_bytes());
        }
    }
    Ok(())
}

/// MEMORY USAGE takes a number of samples, which only other types would need.
fn check_samples<M: Mode>(call: &Call<'_>) -> Done<M> {
    if call.spec.id != Id::MemoryUsage {
        return Ok(());
    }
    match call.command.len() {
        3 => Ok(()),
        5 if call.is(3, "samples") => match integer(call.argument(4)) {
            Some(0..) => Ok(()),
            Some(_) => fail(SYNTAX),
            None => fail(NO_INTEGER),
        },
        _ => fail(SYNTAX),
    }
}
