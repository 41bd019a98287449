//! A worker's counters of commands, under memcached's names.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
};

use minos_proto::resp::{Id, Spec, TABLE};

/// A counter that one thread changes and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the thread that owns the counter calls it, so a load and a store suffice, without a
    /// locked instruction.
    #[inline]
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Adds `more`; only the owning thread calls it.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: the numbers order nothing, and each is exact by itself.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Raises the counter to `value` if it is lower; only the owning thread calls it.
    pub(crate) fn raise(&self, value: u64) {
        if value > self.value() {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares counters of a worker once: the fields, and their names in `stats minos`, which begin with `$prefix`.
macro_rules! worker_counters {
    ($(#[$about:meta])* $counters:ident, $prefix:literal: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $counters { $($(#[$doc])* pub(crate) $name: $crate::ops::counters::Counter,)* }

        impl $counters {
            /// Every counter with its name.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!($prefix, stringify!($name)), self.$name.value()),)*].into_iter()
            }
        }
    };
}
pub(crate) use worker_counters;

/// Counts of commands of Redis' protocol, by their [`Id`].
#[derive(Debug)]
pub(crate) struct RespCalls([Counter; TABLE.len()]);

impl Default for RespCalls {
    fn default() -> Self {
        Self(array::from_fn(|_| Counter::default()))
    }
}

impl RespCalls {
    /// Counts one.
    #[inline]
    pub(crate) fn count(&self, id: Id) {
        self.0[id as usize].count();
    }
}

/// The same, summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls([u64; TABLE.len()]);

impl Default for Calls {
    fn default() -> Self {
        Self([0; TABLE.len()])
    }
}

impl Calls {
    fn add(&mut self, calls: &RespCalls) {
        self.0.iter_mut().zip(&calls.0).for_each(|(sum, count)| *sum = sum.wrapping_add(count.value()));
    }

    fn since(&self, earlier: &Self) -> Self {
        Self(array::from_fn(|at| self.0[at].wrapping_sub(earlier.0[at])))
    }

    fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Declares the counters once: the fields, their sums, and their names in `stats`, in memcached's order.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            /// Commands of Redis' protocol that were executed.
            pub(crate) resp_calls: RespCalls,
            /// Those that were refused before.
            pub(crate) resp_rejected: RespCalls,
            /// Those of the executed ones that have failed.
            pub(crate) resp_failed: RespCalls,
        }

        /// The summed counters of several workers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Totals {
            $($(#[$doc])* pub(crate) $name: u64,)*
            /// Commands of Redis' protocol.
            resp_calls: Calls,
            resp_rejected: Calls,
            resp_failed: Calls,
        }

        impl Totals {
            /// Adds a worker's counters.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.value());)*
                self.resp_calls.add(&counters.resp_calls);
                self.resp_rejected.add(&counters.resp_rejected);
                self.resp_failed.add(&counters.resp_failed);
            }

            /// The difference since `earlier`.
            pub(crate) fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($name: self.$name.wrapping_sub(earlier.$name),)*
                    resp_calls: self.resp_calls.since(&earlier.resp_calls),
                    resp_rejected: self.resp_rejected.since(&earlier.resp_rejected),
                    resp_failed: self.resp_failed.since(&earlier.resp_failed),
                }
            }

            /// Every total with its name.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)* ("resp_commands", self.resp_calls.sum())].into_iter()
            }
        }
    };
}

impl Counters {
    /// Counts a command of Redis' protocol that has an error as its reply: as one that was executed, or was refused before.
    #[cold]
    pub(crate) fn end_with_error(&self, id: Id, has_begun: bool) {
        if has_begun {
            self.resp_calls.count(id);
            self.resp_failed.count(id);
        } else {
            self.resp_rejected.count(id);
        }
    }

    /// Counts an error reply to a command of Redis' protocol whose call is counted already.
    #[cold]
    pub(crate) fn fail_later(&self, id: Id) {
        self.resp_errors.count();
        self.resp_failed.count(id);
    }
}

impl Totals {
    /// The commands of Redis' protocol that there were: how often each was executed, was refused before, and has failed.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (&'static Spec, [u64; 3])> {
        let counts = |at| [&self.resp_calls, &self.resp_rejected, &self.resp_failed].map(|calls| calls.0[at]);
        TABLE.iter().zip((0..).map(counts)).filter(|(_, counts)| *counts != [0; 3])
    }
}

counters! {
    /// Keys requested by reads.
    cmd_get,
    /// Values stored, or refused because of the stored item.
    cmd_set,
    /// Flushes.
    cmd_flush,
    /// Touches of items, with or without a read.
    cmd_touch,
    /// Meta debug commands.
    cmd_meta,
    /// Commands refused because the client's user may not use them.
    cmd_denied,
    /// Logins, by a right password or not.
    auth_cmds,
    /// Logins by a wrong name or password.
    auth_errors,
    /// Keys found.
    get_hits,
    /// Keys not found.
    get_misses,
    /// Deletes that found no item, or one with another CAS unique.
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
    /// CAS stores that found no item.
    cas_misses,
    /// CAS stores whose unique matched.
    cas_hits,
    /// CAS stores whose unique did not match.
    cas_badval,
    /// Items touched.
    touch_hits,
    /// Touches that found no item.
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
    /// Error replies of Redis' protocol.
    resp_errors,
    /// Commands of Redis' protocol with a key that is empty or too long.
    resp_bad_keys,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_and_start_anew() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].cmd_get.count();
        workers[1].cmd_get.add(4);
        workers.iter().for_each(|counters| counters.resp_calls.count(Id::Get));
        let mut totals = Totals::default();
        workers.iter().for_each(|counters| totals.add(counters));
        assert_eq!(totals.cmd_get, 5);
        workers[0].cmd_get.count();
        workers[0].resp_calls.count(Id::Set);
        workers[1].resp_failed.count(Id::Set);
        workers[1].resp_rejected.count(Id::Del);
        let mut later = Totals::default();
        workers.iter().for_each(|counters| later.add(counters));
        let since = later.since(&totals);
        assert_eq!(since.all().find(|(name, _)| *name == "cmd_get"), Some(("cmd_get", 1)));
        let commands = |totals: &Totals| {
            let mut commands: Vec<_> = totals.commands().map(|(spec, counts)| (spec.name, counts)).collect();
            commands.sort_unstable();
            commands
        };
        let [del, get, set] = [("del", [0, 1, 0]), ("get", [2, 0, 0]), ("set", [1, 0, 1])];
        assert_eq!((commands(&later), commands(&since)), (vec![del, get, set], vec![del, set]));
        assert_eq!(later.all().last(), Some(("resp_commands", 3)));
    }
}
