//! The native part of the client for Python: `package/minos` is its public part, `README.md` shows it in use.

#![forbid(unsafe_code)]

mod errors;
mod native;
mod value;

use pyo3::pymodule;

/// The native part of the client.
#[pymodule]
mod _minos {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::errors::{Busy, Error, NoMemory, NotANumber, OutcomeUnknown, TimedOut, TooLarge, Unstable};
    #[pymodule_export]
    use crate::{native::Native, value::Value};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
