//! The blocking client for Python: `minos.pyi` says what is in the module, `README.md` shows it in use.

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod errors;

use pyo3::prelude::*;

/// Client of Minos, a size-aware sharded key-value store.
#[pymodule]
mod minos {
    #[pymodule_export]
    use crate::client::{Client, Value};
    #[pymodule_export]
    use crate::errors::{Busy, Error, NoMemory, NotANumber, OutcomeUnknown, TimedOut, TooLarge};
}
