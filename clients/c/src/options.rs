//! How a client is to behave.

use std::{ffi::c_void, time::Duration};

use minos_client::{Config, OnceFor};

use crate::{
    Status,
    failure::{Failure, guarded},
    memory::bytes,
};

/// Options of a client: `minos_options` of the header, which does not say what is in it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) config: Config,
}

/// Options with all defaults; to be given back with [`minos_options_free`].
#[unsafe(no_mangle)]
pub extern "C" fn minos_options_new() -> *mut Options {
    Box::into_raw(Box::default())
}

/// Gives options back. NULL is let be.
///
/// # Safety
/// `options` is NULL or came from [`minos_options_new`] and was not given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_free(options: *mut Options) {
    if !options.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Replaces the options by what `change` makes of them.
///
/// # Safety
/// `options` is NULL, or came from [`minos_options_new`] and nobody else uses it.
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

/// How long an operation may take, retries included, in milliseconds.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_timeout_ms(options: *mut Options, timeout_ms: u64) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.timeout(Duration::from_millis(timeout_ms)))) }
}

/// A secret that is shared with the server.
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

/// Largest value to accept, in bytes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_value_bytes_max(options: *mut Options, value_bytes: u64) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.value_bytes_max(value_bytes))) }
}

/// Largest datagram to send and to ask for, in bytes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_datagram_bytes_max(options: *mut Options, bytes: usize) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.datagram_bytes_max(bytes))) }
}

/// Datagrams that may be unanswered at once.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_in_flight_max(options: *mut Options, datagrams: usize) -> Status {
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.in_flight_max(datagrams))) }
}

/// Whether everything that writes is executed exactly once, and not only what a second execution would make wrong.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_options_all_writes_once(options: *mut Options, all_writes: bool) -> Status {
    let once_for = if all_writes { OnceFor::AllWrites } else { OnceFor::NotIdempotent };
    // SAFETY: the same contract.
    unsafe { change(options, |config| Ok(config.once_for(once_for))) }
}
