//! Items on flash: a request that needs one is executed again when it is in memory.

use std::time::Duration;

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Candidates, Entry, Lookup, Mode};
use minos_tier::Tier;

use super::{
    context::Context,
    fetched::{Cold, Need, class_of},
    read::Facts,
};

/// Time between two attempts of a request that waits for room in memory: flash has had a moment to take items.
pub(crate) const RETRY: Duration = Duration::from_millis(1);
/// Time for which a request waits so, unless another one is set.
const WAIT: Duration = Duration::from_secs(1);
/// The same above a cache, which evicts then what is not written.
const CACHE_WAIT: Duration = Duration::from_millis(200);

/// How often a request that waits for room above this flash tries again, at most, in its time or the usual one.
pub(crate) fn waits_max(tier: &Tier, wait: Option<Duration>) -> u32 {
    let usual = match tier.is_lossless() {
        _ if tier.is_read_only() => return 0,
        true if tier.is_full() && !tier.is_room_coming() => return 0,
        true => WAIT,
        false => CACHE_WAIT,
    };
    let waits = wait.unwrap_or(usual).as_nanos().div_ceil(RETRY.as_nanos());
    u32::try_from(waits).unwrap_or(u32::MAX)
}

/// True if a store that found no room should wait for some: flash may be about to take items.
pub(crate) fn may_wait<M: Mode, P>(cx: &Context<'_, M, P>) -> bool {
    M::HAS_FLASH && cx.fetched.map_or(0, |fetched| fetched.waits) < cx.admin.flash_waits_max()
}

/// True if a large store should wait until flash has taken items, instead of evicting some that are not written.
#[inline]
pub(crate) fn awaits_room<M: Mode, P>(cx: &Context<'_, M, P>, value_bytes: u64) -> bool {
    M::lacks_room(cx.store, value_bytes) && may_wait(cx)
}

/// The entry of a key. An error if its item may be on flash: nobody may take it for missing.
pub(crate) fn entry<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    hash: KeyHash,
    key: &'a [u8],
) -> Result<Entry<'a, M>, Cold> {
    entry_for(cx, hash, key, Need::Item)
}

/// The entry of a key whose item, if it is on flash, is needed in this form.
pub(crate) fn entry_for<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    hash: KeyHash,
    key: &'a [u8],
    need: Need,
) -> Result<Entry<'a, M>, Cold> {
    cx.note_change(hash, key);
    let mut entry = cx.store.entry(hash, key, cx.now);
    if M::HAS_FLASH {
        let candidates = M::candidates(&entry);
        if !candidates.is_empty() {
            if let Some(cold) = judge(cx, hash, key, &candidates, need) {
                return Err(cold);
            }
            if cx.fetched.is_some_and(|fetched| fetched.has_lost(hash, key)) {
                // It is missing for this change, and must not be there for a later read.
                M::forget_candidates(&mut entry);
            }
        }
    }
    Ok(entry)
}

/// Why a key that was not found in memory is not missing; `None` if it is.
#[inline]
pub(crate) fn cold<M: Mode, P>(cx: &Context<'_, M, P>, hash: KeyHash, key: &[u8]) -> Option<Cold> {
    if !M::HAS_FLASH {
        return None;
    }
    match M::look_again(cx.store, hash, key, cx.now) {
        Lookup::Missing => None,
        // It has just come: the fetch finds it there.
        Lookup::Hot => Some(Cold::Unknown(SizeClass::of(0), Need::Item)),
        Lookup::Cold(candidates) => judge(cx, hash, key, &candidates, Need::Item),
    }
}

/// The place of an item that a read did not find in memory.
pub(crate) enum Below<'a> {
    /// There is no such item.
    Missing,
    /// It was read from flash for this request: what it is, and its value.
    Copied(&'a Facts, &'a [u8]),
    /// It may be on flash.
    Cold(Cold),
}

/// The place of an item that a read did not find in memory, and of which it needs the facts and the value.
#[inline]
pub(crate) fn below<'a, M: Mode, P>(cx: &Context<'a, M, P>, hash: KeyHash, key: &[u8]) -> Below<'a> {
    if !M::HAS_FLASH {
        return Below::Missing;
    }
    match M::look_again(cx.store, hash, key, cx.now) {
        Lookup::Missing => Below::Missing,
        Lookup::Hot => Below::Cold(Cold::Unknown(SizeClass::of(0), Need::Copy)),
        Lookup::Cold(candidates) => {
            match cx.fetched.and_then(|fetched| fetched.copy_of(hash, key, &candidates, cx.now)) {
                Some((facts, value)) => Below::Copied(facts, value),
                None => judge(cx, hash, key, &candidates, Need::Copy).map_or(Below::Missing, Below::Cold),
            }
        }
    }
}

/// The class of the record that may be a key's, if memory has no item of it.
pub(super) fn record_class<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
) -> Option<SizeClass> {
    if !M::HAS_FLASH {
        return None;
    }
    match M::look_again(cx.store, hash, key, cx.now) {
        Lookup::Cold(candidates) => match judge(cx, hash, key, &candidates, Need::Item) {
            Some(Cold::Unknown(class, _)) => Some(class),
            Some(Cold::Failed(_)) | None => None,
        },
        Lookup::Hot | Lookup::Missing => None,
    }
}

fn judge<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
    candidates: &Candidates,
    need: Need,
) -> Option<Cold> {
    match cx.fetched {
        Some(fetched) => fetched.judge(hash, key, candidates, need),
        None => Some(Cold::Unknown(class_of(candidates), need)),
    }
}
