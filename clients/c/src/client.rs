//! Clients: creation, use, closing.

use std::{
    collections::HashMap,
    ffi::{c_char, c_void},
    ptr,
};

use minos_client::{Config, Error, Outcome, Request, blocking, core::OpId};

use crate::{
    Options, Status,
    failure::{Failure, guarded},
    memory::{text, write},
};

/// A client: the opaque `minos_client` of the header.
#[derive(Debug)]
pub struct Client {
    pub(crate) inner: blocking::Client,
    /// The caller's context of each started operation.
    pub(crate) contexts: HashMap<OpId, *mut c_void>,
    /// A call is under way; if the next call finds it set, the last one panicked.
    is_busy: bool,
}

/// Creates a client of the server at `address`, which must answer. `options` may be NULL. The caller closes
/// the client with [`minos_close`].
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_connect(
    address: *const c_char,
    options: *const Options,
    client: *mut *mut Client,
) -> Status {
    // SAFETY: the same contract.
    unsafe { make(address, options, client, blocking::Client::connect) }
}

/// As [`minos_connect`], but sends nothing before the first call.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_open(
    address: *const c_char,
    options: *const Options,
    client: *mut *mut Client,
) -> Status {
    // SAFETY: the same contract.
    unsafe { make(address, options, client, blocking::Client::open) }
}

/// Passes a new client to the caller.
///
/// # Safety
/// As [`minos_connect`].
unsafe fn make(
    address: *const c_char,
    options: *const Options,
    client: *mut *mut Client,
    begin: fn(&str, Config) -> Result<blocking::Client, Error>,
) -> Status {
    guarded(|| {
        if client.is_null() {
            return Err(Failure::Argument("client"));
        }
        // SAFETY: it is not NULL, and the caller wants the client there.
        unsafe { write(client, ptr::null_mut()) };
        // SAFETY: the caller lends a C string, and options or NULL.
        let (address, options) = unsafe { (text(address, "address")?, options.as_ref()) };
        let config = options.map(|options| options.config.clone()).unwrap_or_default();
        let inner = begin(address, config)?;
        let made = Client { inner, contexts: HashMap::new(), is_busy: false };
        // SAFETY: as above.
        unsafe { write(client, Box::into_raw(Box::new(made))) };
        Ok(Status::Ok)
    })
}

/// Closes a client. NULL is ignored.
///
/// # Safety
/// `client` is NULL, or came from [`minos_connect`], was not closed, and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_close(client: *mut Client) {
    if !client.is_null() {
        guarded(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(client) });
            Ok(Status::Ok)
        });
    }
}

/// Runs a call with a client.
///
/// # Safety
/// `client` is NULL, or came from [`minos_connect`], is not closed, and is not in use elsewhere.
pub(crate) unsafe fn with_client(
    client: *mut Client,
    body: impl FnOnce(&mut Client) -> Result<Status, Failure>,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let client = unsafe { client.as_mut() }.ok_or(Failure::Argument("client"))?;
        if std::mem::replace(&mut client.is_busy, true) {
            return Err(Failure::Broken);
        }
        let result = body(client);
        client.is_busy = false;
        result
    })
}

/// Runs one operation with a client, and passes its outcome to `show`. The status follows from the outcome.
///
/// # Safety
/// As [`with_client`].
pub(crate) unsafe fn call(
    client: *mut Client,
    request: impl FnOnce() -> Result<Request, Failure>,
    show: impl FnOnce(Outcome),
) -> Status {
    let body = |client: &mut Client| {
        let outcome = client.inner.call(request()?)?;
        let status = status_of(&outcome);
        show(outcome);
        Ok(status)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, body) }
}

/// The status of an operation that succeeded.
pub(crate) fn status_of(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Value(_) | Outcome::Done { .. } | Outcome::Number { .. } | Outcome::Text(_) => Status::Ok,
        Outcome::Missing => Status::NotFound,
        Outcome::Exists => Status::Exists,
        Outcome::NotStored => Status::NotStored,
    }
}
