//! Converts calls to requests, and outcomes to the calls' results, for all clients.

use std::time::Duration;

use crate::{Compared, Error, Outcome, Request, StoreOptions, Value, Verb, options::exptime};

const UNEXPECTED: Error = Error::Protocol("an answer to another kind of operation");

/// A store of any kind.
pub(crate) fn store(
    verb: Verb,
    key: impl AsRef<[u8]>,
    value: impl Into<Vec<u8>>,
    options: StoreOptions,
) -> Request {
    let request = Request::new(verb, key.as_ref()).value(value);
    Request { ttl: exptime(options.ttl), flags: options.flags, ..request }
}

/// An operation on a key with an expiry.
pub(crate) fn expiring(verb: Verb, key: impl AsRef<[u8]>, ttl: Option<Duration>) -> Request {
    Request { ttl: exptime(ttl), ..Request::new(verb, key.as_ref()) }
}

pub(crate) fn with_operand(verb: Verb, key: impl AsRef<[u8]>, operand: u64) -> Request {
    Request::new(verb, key.as_ref()).operand(operand)
}

/// A counter operation with an initial number.
pub(crate) fn counting(
    verb: Verb,
    key: impl AsRef<[u8]>,
    by: u64,
    initial: u64,
    options: StoreOptions,
) -> Request {
    let request = with_operand(verb, key, by);
    Request { initial: Some(initial), ttl: exptime(options.ttl), flags: options.flags, ..request }
}

/// Drops all items, `after` this time or at once.
pub(crate) fn flush(after: Option<Duration>) -> Request {
    let delay = after.filter(|after| !after.is_zero());
    Request { ttl: exptime(delay), ..Request::new(Verb::Flush, "") }
}

pub(crate) fn value(result: Result<Outcome, Error>) -> Result<Option<Value>, Error> {
    match result? {
        Outcome::Value(value) => Ok(Some(value)),
        Outcome::Missing => Ok(None),
        _ => Err(UNEXPECTED),
    }
}

/// The CAS unique of an unconditional store.
pub(crate) fn stored(result: Result<Outcome, Error>) -> Result<u64, Error> {
    match result? {
        Outcome::Done { cas } => Ok(cas),
        _ => Err(UNEXPECTED),
    }
}

/// The CAS unique of a conditional store, if the condition held.
pub(crate) fn stored_if(result: Result<Outcome, Error>) -> Result<Option<u64>, Error> {
    match result? {
        Outcome::Done { cas } => Ok(Some(cas)),
        Outcome::NotStored | Outcome::Missing | Outcome::Exists => Ok(None),
        _ => Err(UNEXPECTED),
    }
}

pub(crate) fn compared(result: Result<Outcome, Error>) -> Result<Compared, Error> {
    match result? {
        Outcome::Done { cas } => Ok(Compared::Stored { cas }),
        Outcome::Exists | Outcome::NotStored => Ok(Compared::Changed),
        Outcome::Missing => Ok(Compared::Missing),
        _ => Err(UNEXPECTED),
    }
}

/// True if there was such an item.
pub(crate) fn found(result: Result<Outcome, Error>) -> Result<bool, Error> {
    match result? {
        Outcome::Done { .. } => Ok(true),
        Outcome::Missing => Ok(false),
        _ => Err(UNEXPECTED),
    }
}

/// The counter's new number, if there was one.
pub(crate) fn number(result: Result<Outcome, Error>) -> Result<Option<u64>, Error> {
    match result? {
        Outcome::Number { number, .. } => Ok(Some(number)),
        Outcome::Missing => Ok(None),
        _ => Err(UNEXPECTED),
    }
}

/// Names and values of lines.
pub(crate) fn lines(result: Result<Outcome, Error>) -> Result<Vec<(String, String)>, Error> {
    match result? {
        Outcome::Text(text) => {
            let lines = String::from_utf8_lossy(&text);
            let pairs = lines.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
            Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        }
        Outcome::Missing => Ok(Vec::new()),
        _ => Err(UNEXPECTED),
    }
}

/// The counter's new number; an operation that creates missing counters always has one.
pub(crate) fn number_made(result: Result<Outcome, Error>) -> Result<u64, Error> {
    number(result)?.ok_or(UNEXPECTED)
}
