//! The class `Client`.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use minos_client::{Compared, Config, Error as ClientError, OnceFor, blocking};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyMapping},
};

use crate::{
    arguments::{Bytes, duration, store_options, ttl},
    errors::raised,
};

/// A value and what the server keeps with it.
#[pyclass(frozen, get_all, module = "minos")]
pub(crate) struct Value {
    /// The value.
    bytes: Py<PyBytes>,
    /// What the client that stored it keeps with it.
    flags: u32,
    /// Changes with each store of the item.
    cas: u64,
}

#[pymethods]
impl Value {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let bytes = self.bytes.bind(py).repr()?;
        Ok(format!("Value(bytes={bytes}, flags={}, cas={})", self.flags, self.cas))
    }
}

impl Value {
    fn new(py: Python<'_>, value: minos_client::Value) -> Self {
        let bytes = PyBytes::new(py, &value.bytes).unbind();
        Self { bytes, flags: value.flags, cas: value.cas }
    }
}

/// A client of one server. Threads may share it, but only one of them is served at a time.
#[pyclass(frozen, module = "minos")]
pub(crate) struct Client {
    /// None once it is closed.
    inner: Mutex<Option<blocking::Client>>,
}

impl Client {
    /// Runs `body` with the client while other threads of Python run.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut blocking::Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.lock().as_mut().map_or(Err(ClientError::Closed), body)).map_err(raised)
    }

    fn lock(&self) -> MutexGuard<'_, Option<blocking::Client>> {
        // A call that panicked leaves a client that nobody should use; taking it out says so to the next one.
        self.inner.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut guard = poisoned.into_inner();
            *guard = None;
            guard
        })
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address="127.0.0.1:11311", *, timeout=2.0, secret=None, value_bytes_max=None,
        datagram_bytes_max=None, in_flight_max=None, all_writes_once=false))]
    #[expect(clippy::too_many_arguments, reason = "all but the first have names where they are passed")]
    fn new(
        py: Python<'_>,
        address: &str,
        timeout: f64,
        secret: Option<Bytes>,
        value_bytes_max: Option<u64>,
        datagram_bytes_max: Option<usize>,
        in_flight_max: Option<usize>,
        all_writes_once: bool,
    ) -> PyResult<Self> {
        let once_for = if all_writes_once { OnceFor::AllWrites } else { OnceFor::NotIdempotent };
        let mut config = Config::new().timeout(duration(timeout)?).once_for(once_for);
        if let Some(secret) = &secret {
            config = config.secret_text(secret.as_ref()).map_err(raised)?;
        }
        if let Some(bytes) = value_bytes_max {
            config = config.value_bytes_max(bytes);
        }
        if let Some(bytes) = datagram_bytes_max {
            config = config.datagram_bytes_max(bytes);
        }
        if let Some(datagrams) = in_flight_max {
            config = config.in_flight_max(datagrams);
        }
        let client = py.detach(|| blocking::Client::connect(address, config)).map_err(raised)?;
        Ok(Self { inner: Mutex::new(Some(client)) })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| *self.lock() = None);
    }

    fn ping(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.call(py, blocking::Client::ping)?.as_secs_f64())
    }

    fn get<'py>(&self, py: Python<'py>, key: Bytes) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.call(py, |client| client.get(key))?;
        Ok(value.map(|value| PyBytes::new(py, &value.bytes)))
    }

    fn gets(&self, py: Python<'_>, key: Bytes) -> PyResult<Option<Value>> {
        let value = self.call(py, |client| client.get(key))?;
        Ok(value.map(|value| Value::new(py, value)))
    }

    fn get_many<'py>(&self, py: Python<'py>, keys: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        let names = keys.iter().map(|key| key.extract()).collect::<PyResult<Vec<Bytes>>>()?;
        let values =
            self.call(py, |client| client.get_many(names).into_iter().collect::<Result<Vec<_>, _>>())?;
        let found = PyDict::new(py);
        for (key, value) in keys.into_iter().zip(values) {
            if let Some(value) = value {
                found.set_item(key, PyBytes::new(py, &value.bytes))?;
            }
        }
        Ok(found)
    }

    #[pyo3(signature = (key, ttl=None))]
    fn get_and_touch<'py>(
        &self,
        py: Python<'py>,
        key: Bytes,
        ttl: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let ttl = self::ttl(ttl)?;
        let value = self.call(py, |client| client.get_and_touch(key, ttl))?;
        Ok(value.map(|value| PyBytes::new(py, &value.bytes)))
    }

    #[pyo3(signature = (key, value, *, ttl=None, flags=0))]
    fn set(&self, py: Python<'_>, key: Bytes, value: Bytes, ttl: Option<f64>, flags: u32) -> PyResult<u64> {
        let options = store_options(ttl, flags)?;
        self.call(py, |client| client.put_with(key, value, options))
    }

    #[pyo3(signature = (items, *, ttl=None, flags=0))]
    fn set_many(
        &self,
        py: Python<'_>,
        items: &Bound<'_, PyMapping>,
        ttl: Option<f64>,
        flags: u32,
    ) -> PyResult<()> {
        let options = store_options(ttl, flags)?;
        let items: Vec<(Bytes, Bytes)> = items.items()?.extract()?;
        self.call(py, |client| {
            client.put_many(items, options).into_iter().try_for_each(|stored| stored.map(drop))
        })
    }

    #[pyo3(signature = (key, value, *, ttl=None, flags=0))]
    fn add(&self, py: Python<'_>, key: Bytes, value: Bytes, ttl: Option<f64>, flags: u32) -> PyResult<bool> {
        let options = store_options(ttl, flags)?;
        Ok(self.call(py, |client| client.add(key, value, options))?.is_some())
    }

    #[pyo3(signature = (key, value, *, ttl=None, flags=0))]
    fn replace(
        &self,
        py: Python<'_>,
        key: Bytes,
        value: Bytes,
        ttl: Option<f64>,
        flags: u32,
    ) -> PyResult<bool> {
        let options = store_options(ttl, flags)?;
        Ok(self.call(py, |client| client.replace(key, value, options))?.is_some())
    }

    #[pyo3(signature = (key, value, cas, *, ttl=None, flags=0))]
    fn cas(
        &self,
        py: Python<'_>,
        key: Bytes,
        value: Bytes,
        cas: u64,
        ttl: Option<f64>,
        flags: u32,
    ) -> PyResult<Option<bool>> {
        let options = store_options(ttl, flags)?;
        let compared = self.call(py, |client| client.compare_and_swap(key, value, cas, options))?;
        Ok(match compared {
            Compared::Stored { .. } => Some(true),
            Compared::Changed => Some(false),
            Compared::Missing => None,
        })
    }

    fn append(&self, py: Python<'_>, key: Bytes, end: Bytes) -> PyResult<bool> {
        Ok(self.call(py, |client| client.append(key, end))?.is_some())
    }

    fn prepend(&self, py: Python<'_>, key: Bytes, beginning: Bytes) -> PyResult<bool> {
        Ok(self.call(py, |client| client.prepend(key, beginning))?.is_some())
    }

    fn delete(&self, py: Python<'_>, key: Bytes) -> PyResult<bool> {
        self.call(py, |client| client.delete(key))
    }

    fn delete_many(&self, py: Python<'_>, keys: Vec<Bytes>) -> PyResult<usize> {
        let deleted =
            self.call(py, |client| client.delete_many(keys).into_iter().collect::<Result<Vec<_>, _>>())?;
        Ok(deleted.into_iter().filter(|was_there| *was_there).count())
    }

    #[pyo3(signature = (key, ttl=None))]
    fn touch(&self, py: Python<'_>, key: Bytes, ttl: Option<f64>) -> PyResult<bool> {
        let ttl = self::ttl(ttl)?;
        self.call(py, |client| client.touch(key, ttl))
    }

    #[pyo3(signature = (key, by=1, *, initial=None, ttl=None))]
    fn incr(
        &self,
        py: Python<'_>,
        key: Bytes,
        by: u64,
        initial: Option<u64>,
        ttl: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let options = store_options(ttl, 0)?;
        self.call(py, |client| match initial {
            Some(initial) => client.incr_or_create(key, by, initial, options).map(Some),
            None => client.incr(key, by),
        })
    }

    #[pyo3(signature = (key, by=1, *, initial=None, ttl=None))]
    fn decr(
        &self,
        py: Python<'_>,
        key: Bytes,
        by: u64,
        initial: Option<u64>,
        ttl: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let options = store_options(ttl, 0)?;
        self.call(py, |client| match initial {
            Some(initial) => client.decr_or_create(key, by, initial, options).map(Some),
            None => client.decr(key, by),
        })
    }

    #[pyo3(signature = (group=""))]
    fn stats(&self, py: Python<'_>, group: &str) -> PyResult<BTreeMap<String, String>> {
        Ok(self.call(py, |client| client.stats(group))?.into_iter().collect())
    }
}
