//! Operations that an event loop of the caller drives: none of these functions waits.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use minos_client::{Error, Outcome, Request, Verb, core::Completion as Ended};

use crate::{
    Client, Key, OwnedValue, Status,
    client::{status_of, with_whole},
    failure::Failure,
    memory::{bytes, text, write},
};

/// What can be started, in the order of the header's `minos_verb`.
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
    /// Which operation, from 1 on.
    pub verb: c_int,
    /// The item's key.
    pub key: Key,
    /// The value's bytes.
    pub value: *const c_void,
    /// How many.
    pub value_length: usize,
    /// When the item expires.
    pub exptime: i32,
    /// What is kept with the item.
    pub flags: u32,
    /// The CAS unique to compare with, or the number to count by.
    pub operand: u64,
    /// The number that a counter is made with; NULL leaves it missing.
    pub initial: *const u64,
    /// How long it may take; 0 is what the client says.
    pub timeout_ms: u64,
    /// Given back with the completion.
    pub context: *mut c_void,
}

/// An operation that has ended: `minos_completion` of the header.
#[derive(Debug)]
#[repr(C)]
pub struct Completion {
    /// That of the request.
    pub context: *mut c_void,
    /// How it ended.
    pub status: Status,
    /// What was read, which the caller gets.
    pub value: OwnedValue,
    /// The item's CAS unique, where there is one.
    pub cas: u64,
    /// The number that was counted to.
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
    unsafe { with_whole(client, start) }
}

/// The operation that a caller describes.
///
/// # Safety
/// What `wanted` points to is lent.
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

/// Sends what there is to send and takes in what has arrived.
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
    unsafe { with_whole(client, step) }
}

/// Hands out the next operation that has ended.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_next(client: *mut Client, completion: *mut Completion) -> Status {
    let next = |client: &mut Client| {
        if completion.is_null() {
            return Err(Failure::Argument("completion"));
        }
        let Some(Ended { id, result }) = client.inner.take_ended() else { return Ok(Status::NotFound) };
        let context = client.contexts.remove(&id).unwrap_or(std::ptr::null_mut());
        // SAFETY: it is not NULL, and the caller wants the completion there.
        unsafe { write(completion, completion_of(context, result)) };
        Ok(Status::Ok)
    };
    // SAFETY: the same contract.
    unsafe { with_whole(client, next) }
}

/// What the caller gets. The words about an error are this thread's.
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

/// The client's socket; below 0 if there is no client.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_descriptor(client: *const Client) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { client.as_ref() }.map_or(-1, |client| client.inner.as_fd().as_raw_fd())
}

/// How long a loop may wait for the socket, in milliseconds; below 0 for ever.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_wait_ms(client: *const Client) -> c_int {
    // SAFETY: the caller's promise.
    let until_next = unsafe { client.as_ref() }.and_then(|client| client.inner.until_next());
    until_next.map_or(-1, |wait| c_int::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// How long each call may take from now on; 0 is what the options said.
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
    unsafe { with_whole(client, set) }
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
    unsafe { with_whole(client, find) }
}

/// The library's version, for ever valid.
#[unsafe(no_mangle)]
pub extern "C" fn minos_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
