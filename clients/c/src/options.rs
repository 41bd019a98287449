//! Options of clients.

use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

use minos_client::{Config, OnceFor};

use crate::{
    Status,
    failure::{Failure, guarded},
    memory::{bytes, text},
};

/// Options of a client: the opaque `minos_options` of the header.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) config: Config,
}

/// Options with all defaults, which the caller frees with [`minos_options_free`].
#[unsafe(no_mangle)]
pub extern "C" fn minos_options_new() -> *mut Options {
    Box::into_raw(Box::default())
}

/// Frees options. NULL is ignored.
///
/// # Safety
/// `options` is NULL, or came from [`minos_options_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_free(options: *mut Options) {
    if !options.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Applies `change` to the options.
///
/// # Safety
/// `options` is NULL, or came from [`minos_options_new`] and is not in use elsewhere.
unsafe fn change(options: *mut Options, change: impl FnOnce(Config) -> Result<Config, Failure>) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_mut() }.ok_or(Failure::Argument("options"))?;
        let config = change(options.config.clone())?;
        config.check()?;
        options.config = config;
        Ok(Status::Ok)
    })
}

/// Sets the time-out of operations, retries included, in milliseconds.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_timeout_ms(options: *mut Options, timeout_ms: u64) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.timeout(Duration::from_millis(timeout_ms)))) }
}

/// Sets the secret shared with the server.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_secret(
    options: *mut Options,
    secret: *const c_void,
    length: usize,
) -> Status {
    let with_secret = |config: Config| {
        // SAFETY: the caller lends `length` bytes.
        Ok(config.secret_text(unsafe { bytes(secret, length, "secret") }?)?)
    };
    // SAFETY: the same contract.
    unsafe { change(options, with_secret) }
}

/// Sets the largest value to accept, in bytes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_value_bytes_max(options: *mut Options, value_bytes: u64) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.value_bytes_max(value_bytes))) }
}

/// Sets the largest datagram to send and to ask for, in bytes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_datagram_bytes_max(options: *mut Options, bytes: usize) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.datagram_bytes_max(bytes))) }
}

/// Sets the number of datagrams that may be unanswered at once.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_in_flight_max(options: *mut Options, datagrams: usize) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.in_flight_max(datagrams))) }
}

/// Selects exactly-once execution for all writes, or only for those that must not be repeated.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_all_writes_once(options: *mut Options, all_writes: bool) -> Status {
    let once_for = if all_writes { OnceFor::AllWrites } else { OnceFor::NotIdempotent };
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.once_for(once_for))) }
}

/// Sets which node of a rack's unit gets a read.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_reads(options: *mut Options, reads: *const c_char) -> Status {
    let with_reads = |config: Config| {
        // SAFETY: the caller lends a C string.
        Ok(config.read_by(unsafe { text(reads, "reads") }?.parse()?))
    };
    // SAFETY: the same contract.
    unsafe { change(options, with_reads) }
}
