//! Operations driven by the caller's event loop: none of these functions blocks.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use minos_client::{Error, Outcome, Request, Verb, core::Completion as Ended};

use crate::{
    Client, Key, OwnedValue, Status,
    client::{status_of, with_client},
    failure::Failure,
    memory::{bytes, text, write},
};

/// The operations that can be started, in the order of the header's `minos_verb`.
const VERBS: [Verb; 14] = [
    Verb::Get,
    Verb::GetTouch,
    Verb::Put,
    Verb::Add,
    Verb::Replace,
    Verb::Append,
    Verb::Prepend,
    Verb::Compare,
    Verb::Delete,
    Verb::Touch,
    Verb::Incr,
    Verb::Decr,
    Verb::Ping,
    Verb::Flush,
];

/// An operation to be started: `minos_request` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StartRequest {
    /// The operation, numbered from 1.
    pub verb: c_int,
    /// The item's key.
    pub key: Key,
    /// The value's bytes.
    pub value: *const c_void,
    /// The length of the value in bytes.
    pub value_length: usize,
    /// The expiry of the item.
    pub exptime: i32,
    /// The flags to store with the item.
    pub flags: u32,
    /// The CAS unique to compare with, or the number to count by.
    pub operand: u64,
    /// The initial number of a missing counter; with NULL it stays missing.
    pub initial: *const u64,
    /// The time-out; 0 is the client's.
    pub timeout_ms: u64,
    /// Returned with the completion.
    pub context: *mut c_void,
}

/// An operation that has ended: `minos_completion` of the header.
#[derive(Debug)]
#[repr(C)]
pub struct Completion {
    /// The context of the request.
    pub context: *mut c_void,
    /// The result.
    pub status: Status,
    /// The value that was read, which the caller then owns.
    pub value: OwnedValue,
    /// The item's CAS unique, if any.
    pub cas: u64,
    /// The new number.
    pub number: u64,
}

/// Starts an operation.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_start(client: *mut Client, request: *const StartRequest) -> Status {
    let start = |client: &mut Client| {
        // SAFETY: the caller lends a request.
        let wanted = unsafe { request.as_ref() }.ok_or(Failure::Argument("request"))?;
        // SAFETY: what it points to is lent as well.
        let request = unsafe { request_of(wanted) }?;
        let id = client.inner.start(request).map_err(|_| Failure::Full)?;
        client.contexts.insert(id, wanted.context);
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, start) }
}

/// Converts the caller's request.
///
/// # Safety
/// Everything that `wanted` points to is lent.
unsafe fn request_of(wanted: &StartRequest) -> Result<Request, Failure> {
    let at = usize::try_from(wanted.verb).ok().and_then(|verb| verb.checked_sub(1));
    let verb = *at.and_then(|at| VERBS.get(at)).ok_or(Failure::Argument("verb"))?;
    // SAFETY: the same contract.
    let (key, value, initial) = unsafe {
        let key = bytes(wanted.key.bytes, wanted.key.length, "key")?;
        (key, bytes(wanted.value, wanted.value_length, "value")?, wanted.initial.as_ref())
    };
    let initial = initial.copied().filter(|_| matches!(verb, Verb::Incr | Verb::Decr));
    let timeout = Some(Duration::from_millis(wanted.timeout_ms)).filter(|timeout| !timeout.is_zero());
    let StartRequest { exptime: ttl, flags, operand, .. } = *wanted;
    let request = Request::new(verb, key).value(value);
    Ok(Request { ttl, flags, operand, initial, timeout, ..request })
}

/// Sends pending datagrams and processes those that arrived.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_step(client: *mut Client) -> Status {
    let step = |client: &mut Client| {
        client.inner.step()?;
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, step) }
}

/// Returns the next operation that has ended.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_next(client: *mut Client, completion: *mut Completion) -> Status {
    let next = |client: &mut Client| {
        if completion.is_null() {
            return Err(Failure::Argument("completion"));
        }
        let Some(Ended { id, result, .. }) = client.inner.take_ended() else { return Ok(Status::NotFound) };
        let context = client.contexts.remove(&id).unwrap_or(std::ptr::null_mut());
        // SAFETY: it is not NULL, and the caller wants the completion there.
        unsafe { write(completion, completion_of(context, result)) };
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, next) }
}

/// The completion for the caller. Stores an error's text for this thread.
fn completion_of(context: *mut c_void, result: Result<Outcome, Error>) -> Completion {
    let none = Completion { context, status: Status::Ok, value: OwnedValue::NONE, cas: 0, number: 0 };
    match result {
        Err(error) => Completion { status: Failure::from(error).note(), ..none },
        Ok(outcome) => {
            let none = Completion { status: status_of(&outcome), ..none };
            match outcome {
                Outcome::Value(value) => {
                    Completion { cas: value.cas, value: OwnedValue::from_value(value), ..none }
                }
                Outcome::Number { number, cas } => Completion { number, cas, ..none },
                Outcome::Done { cas } => Completion { cas, ..none },
                _ => none,
            }
        }
    }
}

/// The client's socket; -1 if there is no client.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_descriptor(client: *const Client) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { client.as_ref() }.map_or(-1, |client| client.inner.as_fd().as_raw_fd())
}

/// The time to wait for the socket at most, in milliseconds; -1 is forever.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_wait_ms(client: *const Client) -> c_int {
    // SAFETY: the caller's promise.
    let until_next = unsafe { client.as_ref() }.and_then(|client| client.inner.until_next());
    until_next.map_or(-1, |wait| c_int::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// Sets the time-out of later calls; 0 restores that of the options.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_timeout_ms(client: *mut Client, timeout_ms: u64) -> Status {
    let set = |client: &mut Client| {
        let timeout = Duration::from_millis(timeout_ms);
        client.inner.set_timeout(Some(timeout).filter(|timeout| !timeout.is_zero()));
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, set) }
}

/// One of the client's counters.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_counter(client: *mut Client, name: *const c_char, count: *mut u64) -> Status {
    let find = |client: &mut Client| {
        // SAFETY: the name is lent.
        let name = unsafe { text(name, "name") }?;
        let all = client.inner.counters().all();
        let Some((_, value)) = all.into_iter().find(|(known, _)| *known == name) else {
            return Ok(Status::NotFound);
        };
        // SAFETY: NULL or the caller's to be written.
        unsafe { write(count, value) };
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, find) }
}

/// The library's version, valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn minos_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
