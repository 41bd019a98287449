//! Many operations at once, in as few datagrams as hold them (vector interfaces §6.2).

use minos_client::{Outcome, Request, Verb};

use crate::{
    Client, Item, Key, OwnedValue, Status,
    client::{status_of, with_client},
    failure::Failure,
    memory::{bytes, list, write},
};

/// Runs `requests`, and passes the outcome of each with its index to `show`. Returns the first error;
/// `statuses` gets the status of each.
fn call_all(
    client: &mut Client,
    requests: Vec<Request>,
    statuses: *mut Status,
    mut show: impl FnMut(usize, Outcome),
) -> Status {
    let mut all = Status::Ok;
    for (at, result) in client.inner.call_many(requests).into_iter().enumerate() {
        let status = match &result {
            Ok(outcome) => status_of(outcome),
            Err(error) => Status::from(error),
        };
        if let (Status::Ok, Err(error)) = (all, &result) {
            all = Failure::from(error.clone()).note();
        }
        if !statuses.is_null() {
            // SAFETY: the caller has room for a status of each operation.
            unsafe { write(statuses.add(at), status) };
        }
        if let Ok(outcome) = result {
            show(at, outcome);
        }
    }
    all
}

/// Operations on keys that the caller lends.
///
/// # Safety
/// As [`list`] and, for each key, [`bytes`].
unsafe fn requests(verb: Verb, keys: *const Key, count: usize) -> Result<Vec<Request>, Failure> {
    // SAFETY: the keys are lent.
    let keys = unsafe { list(keys, count, "keys") }?;
    // SAFETY: so are their bytes.
    let request = |key: &Key| Ok(Request::new(verb, unsafe { bytes(key.bytes, key.length, "keys") }?));
    keys.iter().map(request).collect()
}

/// Reads the values of many keys, which the caller then owns.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_get_many(
    client: *mut Client,
    keys: *const Key,
    count: usize,
    values: *mut OwnedValue,
    statuses: *mut Status,
) -> Status {
    if !values.is_null() {
        // Whatever comes of the call, the caller frees them.
        // SAFETY: the caller has room for a value of each key.
        (0..count).for_each(|at| unsafe { write(values.add(at), OwnedValue::NONE) });
    }
    let get = |client: &mut Client| {
        if values.is_null() && count > 0 {
            return Err(Failure::Argument("values"));
        }
        // SAFETY: the keys are lent.
        let requests = unsafe { requests(Verb::Get, keys, count) }?;
        Ok(call_all(client, requests, statuses, |at, outcome| {
            if let Outcome::Value(value) = outcome {
                // SAFETY: as above; there are as many outcomes as keys.
                unsafe { write(values.add(at), OwnedValue::from_value(value)) };
            }
        }))
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, get) }
}

/// Stores many values.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_put_many(
    client: *mut Client,
    items: *const Item,
    count: usize,
    exptime: i32,
    flags: u32,
    statuses: *mut Status,
) -> Status {
    let put = |client: &mut Client| {
        // SAFETY: the items are lent.
        let items = unsafe { list(items, count, "items") }?;
        let request = |item: &Item| {
            // SAFETY: so are their bytes.
            let (key, value) = unsafe {
                let key = bytes(item.key.bytes, item.key.length, "items")?;
                (key, bytes(item.value, item.value_length, "items")?)
            };
            Ok(Request { ttl: exptime, flags, ..Request::new(Verb::Put, key).value(value) })
        };
        let requests = items.iter().map(request).collect::<Result<_, Failure>>()?;
        Ok(call_all(client, requests, statuses, |_, _| {}))
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, put) }
}

/// Deletes many items.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn minos_delete_many(
    client: *mut Client,
    keys: *const Key,
    count: usize,
    statuses: *mut Status,
) -> Status {
    let delete = |client: &mut Client| {
        // SAFETY: the keys are lent.
        let requests = unsafe { requests(Verb::Delete, keys, count) }?;
        Ok(call_all(client, requests, statuses, |_, _| {}))
    };
    // SAFETY: the same contract.
    unsafe { with_client(client, delete) }
}
