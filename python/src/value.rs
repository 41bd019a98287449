//! The class `Value`.

use pyo3::{prelude::*, types::PyBytes};

/// A value, with its flags and CAS unique.
#[pyclass(frozen, get_all, module = "minos")]
pub(crate) struct Value {
    /// The value.
    bytes: Py<PyBytes>,
    /// The flags stored with it.
    flags: u32,
    /// Changes with each store of the item; for Client.cas.
    cas: u64,
}

#[pymethods]
impl Value {
    #[new]
    fn made(bytes: Py<PyBytes>, flags: u32, cas: u64) -> Self {
        Self { bytes, flags, cas }
    }

    /// For pickle.
    fn __getnewargs__(&self, py: Python<'_>) -> (Py<PyBytes>, u32, u64) {
        (self.bytes.clone_ref(py), self.flags, self.cas)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let bytes = self.bytes.bind(py).repr()?;
        Ok(format!("Value(bytes={bytes}, flags={}, cas={})", self.flags, self.cas))
    }
}

impl Value {
    pub(crate) fn new(py: Python<'_>, value: minos_client::Value) -> Self {
        let bytes = PyBytes::new(py, &value.bytes).unbind();
        Self { bytes, flags: value.flags, cas: value.cas }
    }
}
