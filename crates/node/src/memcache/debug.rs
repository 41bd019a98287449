//! `me`.

use minos_base::{KeyHash, SizeClass};
use minos_engine::Mode;
use minos_proto::memcache::compose::{self, DebugFacts};
use minos_proto::memcache::{Reply, text};

use super::session::Executed;
use crate::ops::{self, Context, Facts};

/// Bytes of an item besides its key and value: the heap's tag and the header.
const ITEM_HEAD_BYTES: u64 = 32;

/// Describes an item without marking it as read.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let found = match ops::entry(cx, hash, key) {
        Ok(entry) => entry.item().map(|item| Facts::from(&*item)),
        Err(cold) => return Executed::cold(cold, (hash, key), Reply::LOUD, tx),
    };
    cx.counters.cmd_meta.count();
    let Some(item) = found else {
        tx.extend_from_slice(text::META_MISS);
        return Executed::DONE;
    };
    // memcached shows the time left as a negative number, and tools that parse it expect that.
    let expiry_s = if item.expiry == 0 { -1 } else { i64::from(cx.now) - i64::from(item.expiry) };
    let facts = DebugFacts {
        expiry_s,
        idle_s: cx.now.saturating_sub(item.last_access),
        cas: item.cas,
        fetched: item.fetched,
        class: SizeClass::of(item.value_bytes).index(),
        item_bytes: ITEM_HEAD_BYTES + (key.len() as u64 + item.value_bytes).next_multiple_of(8),
    };
    compose::meta_debug(tx, key, item.key_is_base64, &facts);
    Executed::DONE
}
