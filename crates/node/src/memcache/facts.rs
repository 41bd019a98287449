//! The properties of items in meta replies.

use minos_base::Seconds;
use minos_proto::memcache::compose::MetaFacts;

use crate::ops::Facts;

/// The properties of the item with `key` in a meta reply, at `now` on the store's clock.
pub(super) fn meta_facts<'k>(facts: &Facts, key: &'k [u8], now: Seconds) -> MetaFacts<'k> {
    MetaFacts {
        key,
        key_is_base64: facts.key_is_base64,
        value_bytes: facts.value_bytes,
        flags: facts.flags,
        cas: facts.cas,
        ttl_s: (facts.expiry != 0).then(|| facts.expiry.saturating_sub(now)),
        idle_s: now.saturating_sub(facts.last_access),
        fetched: facts.fetched,
    }
}
