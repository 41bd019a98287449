//! What a worker counts about the commands it executes, under memcached's names.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread counts up and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only ever called by the one thread that owns the counter, so that a load and a store
    /// do, and no locked instruction is needed.
    #[inline]
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Adds `more`, under the same condition.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: the numbers order nothing, and each is exact by itself.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Lets the number be `value` at least, under the same condition.
    pub(crate) fn raise(&self, value: u64) {
        if value > self.value() {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the counters once: the fields, their sums and their names in `stats`, in the order of
/// memcached's own.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one worker counts.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $($(#[$doc])* pub(crate) $name: Counter,)* }

        /// The counters of any number of workers, added up.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Totals { $($(#[$doc])* pub(crate) $name: u64,)* }

        impl Totals {
            /// Adds what a worker has counted.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.value());)*
            }

            /// What was counted since `earlier`.
            pub(crate) fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }

            /// Every total with its name.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Keys asked for.
    cmd_get,
    /// Values stored or refused for a reason that is in the store.
    cmd_set,
    /// Flushes.
    cmd_flush,
    /// Items that were to get another expiry, read or not.
    cmd_touch,
    /// Meta debug commands.
    cmd_meta,
    /// Keys found.
    get_hits,
    /// Keys not found.
    get_misses,
    /// Deletes that found nothing, or not the item they wanted.
    delete_misses,
    /// Items deleted.
    delete_hits,
    /// Increments that found nothing.
    incr_misses,
    /// Increments.
    incr_hits,
    /// Decrements that found nothing.
    decr_misses,
    /// Decrements.
    decr_hits,
    /// Comparisons that found nothing.
    cas_misses,
    /// Comparisons that held.
    cas_hits,
    /// Comparisons with an item that had changed.
    cas_badval,
    /// Items that got another expiry.
    touch_hits,
    /// Items that were to get another expiry and were not there.
    touch_misses,
    /// Values refused because they were too large.
    store_too_large,
    /// Values refused because there was no room.
    store_no_memory,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Values stored.
    total_items,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_and_start_anew() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].cmd_get.count();
        workers[1].cmd_get.add(4);
        let mut totals = Totals::default();
        workers.iter().for_each(|counters| totals.add(counters));
        assert_eq!(totals.cmd_get, 5);
        workers[0].cmd_get.count();
        let mut later = Totals::default();
        workers.iter().for_each(|counters| later.add(counters));
        assert_eq!(later.since(&totals).all().find(|(name, _)| *name == "cmd_get"), Some(("cmd_get", 1)));
    }
}
