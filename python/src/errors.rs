//! Errors as exceptions.

use minos_client::Error as ClientError;
use pyo3::{
    create_exception,
    exceptions::{PyException, PyValueError},
    prelude::*,
};

create_exception!(minos, Error, PyException, "A call failed.");
create_exception!(
    minos,
    TimedOut,
    Error,
    "No answer in time; what was asked for may have been done, or may still be, unless was_sent is False."
);
create_exception!(
    minos,
    OutcomeUnknown,
    Error,
    "The server forgot the client, as by a start, or could not keep the change: it was done once or not at all."
);
create_exception!(minos, TooLarge, Error, "The value is larger than the server or this client takes.");
create_exception!(minos, NoMemory, Error, "The server has no memory for the value.");
create_exception!(minos, NotANumber, Error, "The item to count with holds no number.");
create_exception!(minos, Unstable, Error, "The value changes faster than it can be fetched.");
create_exception!(minos, Busy, Error, "The server met a bound on transfers or sessions all the time.");

/// The exception for an error of the client. An invalid argument of the caller becomes a `ValueError`.
pub(crate) fn raised(error: ClientError) -> PyErr {
    let text = error.to_string();
    match error {
        ClientError::Key { .. } | ClientError::Option(_) | ClientError::Address { .. } => {
            PyValueError::new_err(text)
        }
        ClientError::TimedOut { was_sent } => timed_out(text, was_sent),
        ClientError::OutcomeUnknown => OutcomeUnknown::new_err(text),
        ClientError::TooLarge { .. } => TooLarge::new_err(text),
        ClientError::NoMemory => NoMemory::new_err(text),
        ClientError::NotANumber => NotANumber::new_err(text),
        ClientError::Busy => Busy::new_err(text),
        ClientError::Unstable => Unstable::new_err(text),
        _ => Error::new_err(text),
    }
}

fn timed_out(text: String, was_sent: bool) -> PyErr {
    let error = TimedOut::new_err(text);
    Python::attach(|py| error.value(py).setattr("was_sent", was_sent)).map_or_else(|fault| fault, |()| error)
}
