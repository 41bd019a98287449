//! One function for each operation.

use std::ffi::{c_char, c_void};

use minos_client::{Outcome, Request, Value, Verb};

use crate::{
    Client, OwnedValue, Status,
    client::{call, with_client},
    failure::Failure,
    memory::{bytes, text, write},
};

/// A request for `verb` on a key that the caller lends.
///
/// # Safety
/// As [`bytes`].
unsafe fn request(verb: Verb, key: *const c_void, key_length: usize) -> Result<Request, Failure> {
    // SAFETY: the same contract.
    Ok(Request::new(verb, unsafe { bytes(key, key_length, "key") }?))
}

/// Reads a value, which the caller then owns.
///
/// # Safety
/// `key` is lent, `value` may be written to, and `client` is valid for [`with_client`].
unsafe fn read(
    client: *mut Client,
    request: impl FnOnce() -> Result<Request, Failure>,
    value: *mut OwnedValue,
) -> Status {
    let request = || {
        if value.is_null() { Err(Failure::Argument("value")) } else { request() }
    };
    // SAFETY: NULL, or the caller lets it be written.
    unsafe { write(value, OwnedValue::NONE) };
    let show = |outcome| {
        let found = match outcome {
            Outcome::Value(found) => found,
            Outcome::Text(bytes) => Value { bytes, ..Value::default() },
            _ => return,
        };
        // SAFETY: as above.
        unsafe { write(value, OwnedValue::from_value(found)) };
    };
    // SAFETY: the same contract.
    unsafe { call(client, request, show) }
}

/// A store.
///
/// # Safety
/// `key` and `value` are lent, `cas` is NULL or may be written to, and `client` is valid for [`with_client`].
#[expect(clippy::too_many_arguments, reason = "as many as the functions of C have")]
unsafe fn store(
    client: *mut Client,
    verb: Verb,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    (exptime, flags, operand): (i32, u32, u64),
    cas: *mut u64,
) -> Status {
    let request = || {
        // SAFETY: both are lent.
        let (request, value) =
            unsafe { (request(verb, key, key_length)?, bytes(value, value_length, "value")?) };
        Ok(Request { ttl: exptime, flags, ..request.value(value).operand(operand) })
    };
    let show = |outcome| {
        if let Outcome::Done { cas: unique } = outcome {
            // SAFETY: NULL, or the caller lets it be written.
            unsafe { write(cas, unique) };
        }
    };
    // SAFETY: the same contract.
    unsafe { call(client, request, show) }
}

/// Adds to or subtracts from a number, or creates it if it is missing and there is an `initial` one.
///
/// # Safety
/// `key` is lent, `number` is NULL or may be written to, and `client` is valid for [`with_client`].
unsafe fn count(
    client: *mut Client,
    verb: Verb,
    (key, key_length): (*const c_void, usize),
    by: u64,
    (initial, exptime): (Option<u64>, i32),
    number: *mut u64,
) -> Status {
    let request = || {
        // SAFETY: the key is lent.
        let request = unsafe { request(verb, key, key_length) }?;
        Ok(Request { operand: by, initial, ttl: exptime, ..request })
    };
    let show = |outcome| {
        if let Outcome::Number { number: now, .. } = outcome {
            // SAFETY: NULL, or the caller lets it be written.
            unsafe { write(number, now) };
        }
    };
    // SAFETY: the same contract.
    unsafe { call(client, request, show) }
}

/// Reads a value, which the caller then owns.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_get(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    value: *mut OwnedValue,
) -> Status {
    // SAFETY: the same contract.
    unsafe { read(client, || request(Verb::Get, key, key_length), value) }
}

/// Reads a value, which the caller then owns, and changes its expiry.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_get_and_touch(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    exptime: i32,
    value: *mut OwnedValue,
) -> Status {
    let request = || {
        // SAFETY: the key is lent.
        Ok(Request { ttl: exptime, ..unsafe { request(Verb::GetTouch, key, key_length) }? })
    };
    // SAFETY: the same contract.
    unsafe { read(client, request, value) }
}

/// Defines functions that store, which differ only in their verb.
macro_rules! stores {
    ($($(#[$doc:meta])* $name:ident: $verb:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            client: *mut Client,
            key: *const c_void,
            key_length: usize,
            value: *const c_void,
            value_length: usize,
            exptime: i32,
            flags: u32,
            cas: *mut u64,
        ) -> Status {
            let options = (exptime, flags, 0);
            // SAFETY: the same contract.
            unsafe { store(client, Verb::$verb, key, key_length, value, value_length, options, cas) }
        }
    )*};
}

stores! {
    /// Stores a value.
    minos_put: Put;
    /// Stores a value if there is none.
    minos_add: Add;
    /// Stores a value if there is one.
    minos_replace: Replace;
}

/// Stores a value if the item's CAS unique is `expected`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_compare_and_swap(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    expected: u64,
    exptime: i32,
    flags: u32,
    cas: *mut u64,
) -> Status {
    let options = (exptime, flags, expected);
    // SAFETY: the same contract.
    unsafe { store(client, Verb::Compare, key, key_length, value, value_length, options, cas) }
}

/// Appends to a value.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_append(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    end: *const c_void,
    end_length: usize,
    cas: *mut u64,
) -> Status {
    // SAFETY: the same contract.
    unsafe { store(client, Verb::Append, key, key_length, end, end_length, (0, 0, 0), cas) }
}

/// Prepends to a value.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_prepend(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    beginning: *const c_void,
    beginning_length: usize,
    cas: *mut u64,
) -> Status {
    // SAFETY: the same contract.
    unsafe { store(client, Verb::Prepend, key, key_length, beginning, beginning_length, (0, 0, 0), cas) }
}

/// Deletes an item.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_delete(client: *mut Client, key: *const c_void, key_length: usize) -> Status {
    // SAFETY: the same contract.
    unsafe { call(client, || request(Verb::Delete, key, key_length), drop) }
}

/// Changes the expiry of an item.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_touch(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    exptime: i32,
) -> Status {
    let request = || {
        // SAFETY: the key is lent.
        Ok(Request { ttl: exptime, ..unsafe { request(Verb::Touch, key, key_length) }? })
    };
    // SAFETY: the same contract.
    unsafe { call(client, request, drop) }
}

/// Adds to a number.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_incr(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    by: u64,
    number: *mut u64,
) -> Status {
    // SAFETY: the same contract.
    unsafe { count(client, Verb::Incr, (key, key_length), by, (None, 0), number) }
}

/// Subtracts from a number.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_decr(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    by: u64,
    number: *mut u64,
) -> Status {
    // SAFETY: the same contract.
    unsafe { count(client, Verb::Decr, (key, key_length), by, (None, 0), number) }
}

/// Adds to a number, or creates it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_incr_or_create(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    by: u64,
    initial: u64,
    exptime: i32,
    number: *mut u64,
) -> Status {
    // SAFETY: the same contract.
    unsafe { count(client, Verb::Incr, (key, key_length), by, (Some(initial), exptime), number) }
}

/// Subtracts from a number, or creates it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_decr_or_create(
    client: *mut Client,
    key: *const c_void,
    key_length: usize,
    by: u64,
    initial: u64,
    exptime: i32,
    number: *mut u64,
) -> Status {
    // SAFETY: the same contract.
    unsafe { count(client, Verb::Decr, (key, key_length), by, (Some(initial), exptime), number) }
}

/// Drops all items.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_flush_all(client: *mut Client, exptime: i32) -> Status {
    let request = || Ok(Request { ttl: exptime, ..Request::new(Verb::Flush, "") });
    // SAFETY: the same contract.
    unsafe { call(client, request, drop) }
}

/// Reads the server's statistics as lines, which the caller then owns.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_stats(
    client: *mut Client,
    group: *const c_char,
    lines: *mut OwnedValue,
) -> Status {
    let request = || {
        // SAFETY: the group is lent.
        let group = if group.is_null() { "" } else { unsafe { text(group, "group") }? };
        Ok(Request::new(Verb::Stats, group))
    };
    // SAFETY: the same contract.
    unsafe { read(client, request, lines) }
}

/// Measures the time until the server answers.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_ping(client: *mut Client, round_trip_ns: *mut u64) -> Status {
    let ping = |client: &mut Client| {
        let round_trip = client.inner.ping()?;
        // SAFETY: NULL, or the caller lets it be written.
        unsafe { write(round_trip_ns, u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX)) };
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, ping) }
}
