//! Exact simulations of eviction policies, and traces to run them on.
//!
//! These simulators give the hit ratio that a real cache is compared with. Each keeps exactly the items of
//! its policy, counted in bytes, without the rounding, partitions and segments of a real cache. [`Log`] is
//! MICA's circular log (MICA §4.3.1): FIFO costs nothing, and LRU writes requested items again. [`Lru`] and
//! [`Clock`] are the policies of other caches, with lists and reference bits.
//!
//! A request is a GET, followed by a SET of the same item if it missed ("fill on miss").

mod clock;
mod log;
mod lru;
mod trace;

pub use clock::Clock;
pub use log::{Log, Reinsert};
pub use lru::Lru;
pub use trace::{Request, ZipfTrace, trace_bytes};

/// A cache of bounded size that is filled on misses.
pub trait EvictionPolicy {
    /// Requests an item of `bytes` bytes and stores it on a miss. Returns true on a hit.
    ///
    /// An item larger than the cache is never stored.
    fn request(&mut self, key: u64, bytes: u64) -> bool;
}

impl<P: EvictionPolicy + ?Sized> EvictionPolicy for Box<P> {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        (**self).request(key, bytes)
    }
}

/// The share of hits among the requests after the first `warm_up` ones, from 0 to 1; 0 if there are none.
pub fn hit_ratio(
    policy: &mut impl EvictionPolicy,
    requests: impl IntoIterator<Item = Request>,
    warm_up: usize,
) -> f64 {
    let (mut hits, mut asked) = (0u64, 0u64);
    for (number, Request { key, bytes }) in requests.into_iter().enumerate() {
        let is_hit = policy.request(key, bytes);
        if number >= warm_up {
            asked += 1;
            hits += u64::from(is_hit);
        }
    }
    if asked == 0 { 0.0 } else { hits as f64 / asked as f64 }
}

#[cfg(test)]
mod tests;
