//! The class `Native`, the base of both clients of the package.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    thread::{self, ThreadId},
    time::Duration,
};

use minos_client::{
    Config, Error as ClientError, OnceFor, Outcome, Request, Verb, blocking,
    core::{Completion, OpId},
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    pybacked::{PyBackedBytes, PyBackedStr},
    types::{PyBool, PyBytes},
};

use crate::{
    errors::{Error, raised},
    value::Value,
};

/// Verb, key, value, exptime, flags, operand, initial number, time-out in seconds.
type Wanted = (PyBackedStr, PyBackedBytes, PyBackedBytes, i32, u32, u64, Option<u64>, Option<f64>);

/// A client that has sent nothing yet.
#[pyclass(frozen, module = "minos._minos")]
pub(crate) struct Native {
    /// None after close.
    inner: Mutex<Option<blocking::Client>>,
    /// The thread that has locked `inner`.
    caller: Mutex<Option<ThreadId>>,
    fileno: i32,
}

impl Native {
    /// Runs `body` with the client; releases the interpreter meanwhile. Handlers of signals run within `body`: they would
    /// wait for the client for ever.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut blocking::Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.refuse_handlers()?;
        let run = || {
            let mut inner = self.lock();
            self.note_caller(Some(thread::current().id()));
            let result = inner.as_mut().map_or(Err(ClientError::Closed), body);
            self.note_caller(None);
            result
        };
        py.detach(run).map_err(raised)
    }

    /// Fails if the calling thread is in the middle of a call with this client.
    fn refuse_handlers(&self) -> PyResult<()> {
        let is_locked = matches!(self.inner.try_lock(), Err(TryLockError::WouldBlock));
        let caller = *self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        if is_locked && caller == Some(thread::current().id()) {
            return Err(Error::new_err(
                "the handler of a signal cannot use the client whose call it interrupts",
            ));
        }
        Ok(())
    }

    fn note_caller(&self, caller: Option<ThreadId>) {
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = caller;
    }

    fn lock(&self) -> MutexGuard<'_, Option<blocking::Client>> {
        // A panic may have left the client inconsistent: removing it makes later calls fail.
        self.inner.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut guard = poisoned.into_inner();
            *guard = None;
            guard
        })
    }
}

#[pymethods]
impl Native {
    #[new]
    fn new(
        py: Python<'_>,
        address: &str,
        timeout: f64,
        secret: Option<PyBackedBytes>,
        value_bytes_max: Option<u64>,
        datagram_bytes_max: Option<usize>,
        in_flight_max: Option<usize>,
        all_writes_once: bool,
        reads: &str,
    ) -> PyResult<Self> {
        let once_for = if all_writes_once { OnceFor::AllWrites } else { OnceFor::NotIdempotent };
        let mut config = Config::new().timeout(Duration::from_secs_f64(timeout)).once_for(once_for);
        config = config.read_by(reads.parse().map_err(raised)?);
        if let Some(secret) = &secret {
            config = config.secret_text(secret).map_err(raised)?;
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
        let client = py.detach(|| blocking::Client::open(address, config)).map_err(raised)?;
        let fileno = client.as_fd().as_raw_fd();
        Ok(Self { inner: Mutex::new(Some(client)), caller: Mutex::new(None), fileno })
    }

    /// Runs operations to their end, or until the handler of a signal raises an exception. Returns their results in order,
    /// errors included.
    fn call(&self, py: Python<'_>, requests: Vec<Wanted>) -> PyResult<Vec<Py<PyAny>>> {
        let requests = requests.into_iter().map(request).collect::<PyResult<Vec<_>>>()?;
        let mut raised = Ok(());
        let goes_on = || {
            raised = Python::attach(|py| py.check_signals());
            raised.is_ok()
        };
        let results = self.with(py, |client| Ok(client.call_many_while(requests, goes_on)))?;
        raised?;
        results.into_iter().map(|result| shown(py, result)).collect()
    }

    /// Starts an operation, if there is room, and returns its number.
    #[pyo3(name = "start")]
    fn begin(&self, py: Python<'_>, request: Wanted) -> PyResult<Option<u32>> {
        let request = self::request(request)?;
        self.with(py, |client| Ok(client.start(request).ok().map(OpId::number)))
    }

    /// Sends pending datagrams and processes those that arrived. Returns the numbers and results of ended
    /// operations.
    fn step(&self, py: Python<'_>) -> PyResult<Vec<(u32, Py<PyAny>)>> {
        let ended: Vec<Completion> = self.with(py, |client| {
            client.step()?;
            Ok(std::iter::from_fn(|| client.take_ended()).collect())
        })?;
        ended.into_iter().map(|it| Ok((it.id.number(), shown(py, it.result)?))).collect()
    }

    /// Seconds until step must be called even if nothing arrives.
    fn until_next(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let next = self.with(py, |client| Ok(client.until_next()))?;
        Ok(next.map(|next| next.as_secs_f64()))
    }

    /// The socket, to wait for.
    fn fileno(&self) -> i32 {
        self.fileno
    }

    /// The server in use.
    fn server(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |client| Ok(client.server().to_string()))
    }

    /// The counters so far.
    fn counters(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        self.with(py, |client| Ok(client.counters().all().into_iter().collect()))
    }

    /// Closes the client.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse_handlers()?;
        py.detach(|| *self.lock() = None);
        Ok(())
    }
}

/// A request from its fields, whose numbers the caller has checked.
fn request((verb, key, value, ttl, flags, operand, initial, timeout): Wanted) -> PyResult<Request> {
    let request = Request::new(verb_of(&verb)?, &*key).value(&*value);
    let timeout = timeout.map(Duration::from_secs_f64);
    Ok(Request { ttl, flags, operand, initial, timeout, ..request })
}

fn verb_of(name: &str) -> PyResult<Verb> {
    Ok(match name {
        "get" => Verb::Get,
        "ping" => Verb::Ping,
        "put" => Verb::Put,
        "add" => Verb::Add,
        "replace" => Verb::Replace,
        "append" => Verb::Append,
        "prepend" => Verb::Prepend,
        "compare" => Verb::Compare,
        "delete" => Verb::Delete,
        "touch" => Verb::Touch,
        "get_and_touch" => Verb::GetTouch,
        "incr" => Verb::Incr,
        "decr" => Verb::Decr,
        "stats" => Verb::Stats,
        "flush" => Verb::Flush,
        _ => return Err(PyValueError::new_err("there is no such operation")),
    })
}

/// The result of an operation as a Python object.
fn shown(py: Python<'_>, result: Result<Outcome, ClientError>) -> PyResult<Py<PyAny>> {
    Ok(match result {
        Err(error) => raised(error).into_value(py).into_any(),
        Ok(Outcome::Missing) => py.None(),
        Ok(Outcome::Exists | Outcome::NotStored) => PyBool::new(py, false).to_owned().into_any().unbind(),
        Ok(Outcome::Done { cas: number } | Outcome::Number { number, .. }) => {
            number.into_pyobject(py)?.into_any().unbind()
        }
        Ok(Outcome::Text(lines)) => PyBytes::new(py, &lines).into_any().unbind(),
        Ok(Outcome::Value(value)) => Value::new(py, value).into_pyobject(py)?.into_any().unbind(),
    })
}
