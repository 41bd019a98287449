//! What callers pass.

use std::time::Duration;

use minos_client::StoreOptions;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    pybacked::{PyBackedBytes, PyBackedStr},
};

/// Keys and values: `bytes`, `bytearray`, or `str`, which stands for its UTF-8.
#[derive(FromPyObject)]
pub(crate) enum Bytes {
    /// Bytes as they are.
    Bytes(PyBackedBytes),
    /// A text.
    Text(PyBackedStr),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
        }
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Self {
        bytes.as_ref().to_vec()
    }
}

/// Seconds as a duration.
///
/// # Errors
/// They are negative, no number, or too many.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A time to live in seconds, or none.
///
/// # Errors
/// As [`duration`].
pub(crate) fn ttl(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    seconds.map(duration).transpose()
}

/// What goes with a store.
///
/// # Errors
/// As [`duration`].
pub(crate) fn store_options(seconds: Option<f64>, flags: u32) -> PyResult<StoreOptions> {
    let options = StoreOptions::new().flags(flags);
    Ok(ttl(seconds)?.map_or(options, |ttl| options.ttl(ttl)))
}
