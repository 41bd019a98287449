//! A client that stores items at a pace, and counts those that it finds again.

use std::{
    fmt::Write as _,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use minos_testkit::Client;

use super::machine::Items;
use crate::measure::contestants::Contestant;

/// The digits of keys, as `minos bench` writes them.
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
/// Requests sent in one write.
const BATCH: u64 = 16;

/// The results of storing items.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) items: u64,
    /// Items that the server did not take.
    pub(super) refused: u64,
    pub(super) bytes_per_s: f64,
}

/// A connection, and the items of a workload.
pub(super) struct Loader {
    client: Client,
    items: Items,
    request: Vec<u8>,
}

impl Loader {
    pub(super) fn new(server: &Contestant, items: Items) -> anyhow::Result<Self> {
        Ok(Self { client: Client::connect(server.address())?, items, request: Vec::new() })
    }

    /// Stores all items at `bytes_per_s`, or as fast as it can below that.
    pub(super) fn store(&mut self, bytes_per_s: f64) -> anyhow::Result<Stored> {
        self.store_those(&(0..self.items.keys).collect::<Vec<_>>(), bytes_per_s)
    }

    /// Stores those items again that are not found, at most `passes` times. Returns the share that is found.
    pub(super) fn mend(&mut self, bytes_per_s: f64, passes: u32) -> anyhow::Result<f64> {
        for _ in 0..passes {
            let missing = self.missing()?;
            if missing.is_empty() {
                break;
            }
            self.store_those(&missing, bytes_per_s)?;
        }
        let lost = self.missing()?.len() as u64;
        Ok((self.items.keys - lost) as f64 / self.items.keys as f64)
    }

    /// The items that are not found. Each value that is found must be that of its key.
    pub(super) fn missing(&mut self) -> anyhow::Result<Vec<u64>> {
        let mut missing = Vec::new();
        for first in (0..self.items.keys).step_by(BATCH as usize) {
            let batch = first..self.items.keys.min(first + BATCH);
            self.request.clear();
            self.request.extend_from_slice(b"get");
            for index in batch.clone() {
                self.request.push(b' ');
                let key = self.key(index);
                self.request.extend_from_slice(&key);
            }
            self.request.extend_from_slice(b"\r\n");
            self.client.send(&self.request)?;
            self.note_missing(batch, &mut missing)?;
        }
        Ok(missing)
    }

    /// Reads the reply to a `get` of items with these numbers.
    fn note_missing(&mut self, batch: Range<u64>, missing: &mut Vec<u64>) -> anyhow::Result<()> {
        let mut expected = batch;
        loop {
            let line = self.client.line()?;
            if line == "END" {
                missing.extend(expected);
                return Ok(());
            }
            let name =
                line.strip_prefix("VALUE ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let value = self.client.exact(self.items.value_bytes as usize + 2)?;
            ensure!(value.starts_with(name.as_bytes()), "{line}: another key's value");
            missing.extend(expected.by_ref().take_while(|&index| self.key(index) != name.as_bytes()));
        }
    }

    fn key(&self, index: u64) -> Vec<u8> {
        key(self.items.first + index, self.items.key_bytes)
    }

    fn store_those(&mut self, indexes: &[u64], bytes_per_s: f64) -> anyhow::Result<Stored> {
        let (begun, mut stored) = (Instant::now(), Stored::default());
        for batch in indexes.chunks(BATCH as usize) {
            let due =
                begun + Duration::from_secs_f64((stored.items * self.items.value_bytes) as f64 / bytes_per_s);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.request.clear();
            for &index in batch {
                self.append_set(index);
            }
            self.client.send(&self.request)?;
            for _ in batch {
                let is_stored = self.client.line()? == "STORED";
                stored.refused += u64::from(!is_stored);
            }
            stored.items += batch.len() as u64;
        }
        let bytes = (stored.items * self.items.value_bytes) as f64;
        stored.bytes_per_s = bytes / begun.elapsed().as_secs_f64();
        Ok(stored)
    }

    /// Appends a `set`, whose value begins with its key.
    fn append_set(&mut self, index: u64) {
        let key = self.key(index);
        let mut line = String::new();
        let _ = write!(line, "set {} 0 0 {}\r\n", String::from_utf8_lossy(&key), self.items.value_bytes);
        self.request.extend_from_slice(line.as_bytes());
        let begin = self.request.len();
        self.request.extend_from_slice(&key);
        self.request.resize(begin + self.items.value_bytes as usize, b'v');
        self.request.extend_from_slice(b"\r\n");
    }
}

/// The key of an item, as `minos bench` writes it: its number to the base of 64, padded in front.
fn key(index: u64, key_bytes: usize) -> Vec<u8> {
    let digit = |place: usize| DIGITS[(index.checked_shr(6 * place as u32).unwrap_or(0) & 63) as usize];
    (0..key_bytes).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_benchmark() {
        assert_eq!(key(64, 8), b"00000010");
        assert_eq!(key(63 + 64 * 10, 4), b"00A_");
        assert_eq!(key(u64::MAX, 16), b"00000F__________");
    }
}
