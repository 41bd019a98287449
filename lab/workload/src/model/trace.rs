//! Replay of a recorded trace.
//!
//! A trace is a CSV file with the columns time, op, key, size: seconds since any beginning (fractions
//! allowed), `get` or `set`, the key, and the bytes of the value. A first line that names the columns
//! is skipped, as are empty lines and those that begin with `#`. In a closed loop it begins again at its end.

use std::{
    collections::HashMap,
    io::{self, BufRead},
};

use minos_base::{VALUE_BYTES_MAX, limits::KEY_BYTES_MAX};

/// A key of the trace.
#[derive(Clone, Debug)]
pub(super) struct TracedItem {
    pub(super) key: Box<[u8]>,
    /// Bytes of its value at its first occurrence, which the load stores.
    pub(super) value_bytes: u64,
}

/// One request of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracedOp {
    /// Nanoseconds since the first request.
    pub(super) at_ns: u64,
    pub(super) item: u64,
    pub(super) value_bytes: u64,
    pub(super) is_set: bool,
}

#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) items: Vec<TracedItem>,
    /// In the order of their times.
    pub(super) ops: Vec<TracedOp>,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("line {line}: expected time,op,key,size with op get or set, found {text:?}")]
    Line { line: usize, text: String },
    #[error("there is no request in it")]
    Empty,
}

pub(super) fn read_trace(input: impl BufRead) -> Result<Trace, TraceError> {
    let mut trace = Trace::default();
    let mut numbers = HashMap::new();
    for (index, line) in input.lines().enumerate() {
        let line = line?;
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') || (index == 0 && text.starts_with("time")) {
            continue;
        }
        let Some((seconds, is_set, key, value_bytes)) = columns(text) else {
            return Err(TraceError::Line { line: index + 1, text: text.to_owned() });
        };
        let item = *numbers.entry(key.as_bytes().to_vec()).or_insert_with(|| {
            trace.items.push(TracedItem { key: key.as_bytes().into(), value_bytes });
            trace.items.len() as u64 - 1
        });
        trace.ops.push(TracedOp { at_ns: (seconds * 1e9) as u64, item, value_bytes, is_set });
    }
    if trace.ops.is_empty() {
        return Err(TraceError::Empty);
    }
    trace.ops.sort_by_key(|op| op.at_ns);
    let first_ns = trace.ops[0].at_ns;
    trace.ops.iter_mut().for_each(|op| op.at_ns -= first_ns);
    Ok(trace)
}

fn columns(line: &str) -> Option<(f64, bool, &str, u64)> {
    let mut columns = line.split(',').map(str::trim);
    let seconds: f64 = columns.next()?.parse().ok()?;
    let is_set = match columns.next()?.to_ascii_lowercase().as_str() {
        "get" => false,
        "set" | "put" => true,
        _ => return None,
    };
    let key = columns.next()?;
    let value_bytes: u64 = columns.next()?.parse().ok()?;
    let is_key =
        (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    let fits = is_key && value_bytes <= VALUE_BYTES_MAX && seconds.is_finite() && seconds >= 0.0;
    fits.then_some((seconds, is_set, key, value_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_trace_in_order_of_time() {
        let text = "time,op,key,size\n# remark\n10.5,get,a,3\n10,SET,b,5\n\n11, get, a, 4\n";
        let trace = read_trace(text.as_bytes()).unwrap();
        assert_eq!(trace.items.len(), 2);
        assert_eq!((&*trace.items[0].key, trace.items[0].value_bytes), (&b"a"[..], 3));
        let op = |at_ns, item, value_bytes, is_set| TracedOp { at_ns, item, value_bytes, is_set };
        assert_eq!(
            trace.ops,
            [op(0, 1, 5, true), op(500_000_000, 0, 3, false), op(1_000_000_000, 0, 4, false)]
        );
    }

    #[test]
    fn says_which_line_is_wrong() {
        for text in
            ["1,get,a", "x,get,a,1", "1,del,a,1", "1,get,,1", "1,get,a b,1", "-1,get,a,1", "1,get,a,-1"]
        {
            let input = format!("0,get,k,1\n{text}\n");
            let error = read_trace(input.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 2:"), "{text}: {error}");
        }
        assert!(matches!(read_trace(&b"time,op,key,size\n"[..]), Err(TraceError::Empty)));
    }
}
