//! One function for each operation, for both clients.

use std::time::Duration;

use crate::{
    Compared, Error, Request, StoreOptions, Value, Verb,
    meaning::{
        compared, counting, expiring, flush, found, lines, number, number_made, store, stored, stored_if,
        value, with_operand,
    },
};

/// The functions of a client, and how they differ: `async`, by `&mut self`, and what waits for an outcome.
macro_rules! calls {
    ($client:ty, [$($async:ident)?], [$($mut:ident)?], [$($wait:tt)*]) => {
        /// Every call may fail as [`Error`] says; errors that only some have are named there.
        impl $client {
            /// The value of `key`, if there is one.
            ///
            /// # Errors
            /// See [`Error`]; [`Error::TooLarge`] if it is larger than this client accepts.
            pub $($async)? fn get(&$($mut)? self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
                value(self.call(Request::new(Verb::Get, key.as_ref()))$($wait)*)
            }

            /// The values of many keys, in their order. Collect into a `Result` to stop at the first error.
            pub $($async)? fn get_many<K: AsRef<[u8]>>(
                &$($mut)? self,
                keys: impl IntoIterator<Item = K>,
            ) -> Vec<Result<Option<Value>, Error>> {
                let requests = keys.into_iter().map(|key| Request::new(Verb::Get, key.as_ref()));
                self.call_many(requests)$($wait)*.into_iter().map(value).collect()
            }

            /// Stores a value that never expires. Returns its CAS unique.
            ///
            /// # Errors
            /// See [`Error`]; [`Error::NoMemory`], [`Error::TooLarge`].
            pub $($async)? fn put(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                value: impl Into<Vec<u8>>,
            ) -> Result<u64, Error> {
                self.put_with(key, value, StoreOptions::default())$($wait)*
            }

            /// Stores a value. Returns its CAS unique.
            ///
            /// # Errors
            /// See [`Error`]; [`Error::NoMemory`], [`Error::TooLarge`].
            pub $($async)? fn put_with(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                value: impl Into<Vec<u8>>,
                options: StoreOptions,
            ) -> Result<u64, Error> {
                stored(self.call(store(Verb::Put, key, value, options))$($wait)*)
            }

            /// Stores many values. Results are in their order.
            pub $($async)? fn put_many<K: AsRef<[u8]>, V: Into<Vec<u8>>>(
                &$($mut)? self,
                items: impl IntoIterator<Item = (K, V)>,
                options: StoreOptions,
            ) -> Vec<Result<u64, Error>> {
                let requests = items.into_iter().map(|(key, value)| store(Verb::Put, key, value, options));
                self.call_many(requests)$($wait)*.into_iter().map(stored).collect()
            }

            /// Stores a value if there is none. Returns its CAS unique if it was stored.
            ///
            /// # Errors
            /// As [`put`](Self::put); [`Error::OutcomeUnknown`].
            pub $($async)? fn add(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                value: impl Into<Vec<u8>>,
                options: StoreOptions,
            ) -> Result<Option<u64>, Error> {
                stored_if(self.call(store(Verb::Add, key, value, options))$($wait)*)
            }

            /// Stores a value if there is one already. Returns its CAS unique if it was stored.
            ///
            /// # Errors
            /// As [`put`](Self::put).
            pub $($async)? fn replace(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                value: impl Into<Vec<u8>>,
                options: StoreOptions,
            ) -> Result<Option<u64>, Error> {
                stored_if(self.call(store(Verb::Replace, key, value, options))$($wait)*)
            }

            /// Stores a value if the item's CAS unique is still `cas`.
            ///
            /// # Errors
            /// As [`put`](Self::put); [`Error::OutcomeUnknown`].
            pub $($async)? fn compare_and_swap(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                value: impl Into<Vec<u8>>,
                cas: u64,
                options: StoreOptions,
            ) -> Result<Compared, Error> {
                compared(self.call(store(Verb::Compare, key, value, options).operand(cas))$($wait)*)
            }

            /// Appends to a value. Returns its new CAS unique if there was one.
            ///
            /// # Errors
            /// As [`put`](Self::put); [`Error::OutcomeUnknown`].
            pub $($async)? fn append(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                end: impl Into<Vec<u8>>,
            ) -> Result<Option<u64>, Error> {
                stored_if(self.call(store(Verb::Append, key, end, StoreOptions::default()))$($wait)*)
            }

            /// Prepends to a value. Returns its new CAS unique if there was one.
            ///
            /// # Errors
            /// As [`put`](Self::put); [`Error::OutcomeUnknown`].
            pub $($async)? fn prepend(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                beginning: impl Into<Vec<u8>>,
            ) -> Result<Option<u64>, Error> {
                stored_if(self.call(store(Verb::Prepend, key, beginning, StoreOptions::default()))$($wait)*)
            }

            /// Deletes an item. Returns true if there was one.
            ///
            /// # Errors
            /// See [`Error`]; [`Error::OutcomeUnknown`].
            pub $($async)? fn delete(&$($mut)? self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
                found(self.call(Request::new(Verb::Delete, key.as_ref()))$($wait)*)
            }

            /// Deletes many items. Returns for each, in their order, true if there was one.
            pub $($async)? fn delete_many<K: AsRef<[u8]>>(
                &$($mut)? self,
                keys: impl IntoIterator<Item = K>,
            ) -> Vec<Result<bool, Error>> {
                let requests = keys.into_iter().map(|key| Request::new(Verb::Delete, key.as_ref()));
                self.call_many(requests)$($wait)*.into_iter().map(found).collect()
            }

            /// Sets the time to live of an item; with `None` it never expires. Returns true if there was one.
            ///
            /// # Errors
            /// See [`Error`].
            pub $($async)? fn touch(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                ttl: Option<Duration>,
            ) -> Result<bool, Error> {
                found(self.call(expiring(Verb::Touch, key, ttl))$($wait)*)
            }

            /// Reads a value and sets its time to live; with `None` it never expires.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub $($async)? fn get_and_touch(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                ttl: Option<Duration>,
            ) -> Result<Option<Value>, Error> {
                value(self.call(expiring(Verb::GetTouch, key, ttl))$($wait)*)
            }

            /// Adds to a number, wrapping around at 2^64. Returns the new number, if there was one.
            ///
            /// # Errors
            /// See [`Error`]; [`Error::NotANumber`], [`Error::OutcomeUnknown`].
            pub $($async)? fn incr(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                by: u64,
            ) -> Result<Option<u64>, Error> {
                number(self.call(with_operand(Verb::Incr, key, by))$($wait)*)
            }

            /// Subtracts from a number, at most down to 0. Returns the new number, if there was one.
            ///
            /// # Errors
            /// As [`incr`](Self::incr).
            pub $($async)? fn decr(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                by: u64,
            ) -> Result<Option<u64>, Error> {
                number(self.call(with_operand(Verb::Decr, key, by))$($wait)*)
            }

            /// Adds to a number, or creates it as `initial` if there is none. Returns the new number.
            ///
            /// # Errors
            /// As [`incr`](Self::incr).
            pub $($async)? fn incr_or_create(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                by: u64,
                initial: u64,
                options: StoreOptions,
            ) -> Result<u64, Error> {
                number_made(self.call(counting(Verb::Incr, key, by, initial, options))$($wait)*)
            }

            /// Subtracts from a number, or creates it as `initial` if there is none. Returns the new number.
            ///
            /// # Errors
            /// As [`incr`](Self::incr).
            pub $($async)? fn decr_or_create(
                &$($mut)? self,
                key: impl AsRef<[u8]>,
                by: u64,
                initial: u64,
                options: StoreOptions,
            ) -> Result<u64, Error> {
                number_made(self.call(counting(Verb::Decr, key, by, initial, options))$($wait)*)
            }

            /// Drops all items, `after` this time or at once. A later call replaces a pending one.
            ///
            /// # Errors
            /// See [`Error`]; [`Error::Unsupported`] of older servers, [`Error::OutcomeUnknown`].
            pub $($async)? fn flush_all(&$($mut)? self, after: Option<Duration>) -> Result<(), Error> {
                stored(self.call(flush(after))$($wait)*).map(drop)
            }

            /// Statistics of the server, names and values: of `group`, or the general ones if that is empty.
            ///
            /// # Errors
            /// See [`Error`].
            pub $($async)? fn stats(&$($mut)? self, group: &str) -> Result<Vec<(String, String)>, Error> {
                lines(self.call(Request::new(Verb::Stats, group))$($wait)*)
            }
        }
    };
}

calls!(crate::blocking::Client, [], [mut], []);
#[cfg(feature = "tokio")]
calls!(crate::tokio::Client, [async], [], [.await]);
