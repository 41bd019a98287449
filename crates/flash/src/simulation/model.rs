//! The states that each key may be in.

use crate::log::Extent;
use std::collections::HashMap;

/// A put or a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) sequence: u64,
    /// `None`: deleted.
    pub(super) value_bytes: Option<usize>,
    pub(super) is_written: bool,
    pub(super) is_durable: bool,
}

/// The operations of each key since its state was last certain.
#[derive(Clone, Debug, Default)]
pub(super) struct Model(HashMap<u64, Vec<Op>>);

impl Model {
    pub(super) fn add(&mut self, key: u64, sequence: u64, value_bytes: Option<usize>) {
        let op = Op { sequence, value_bytes, is_written: false, is_durable: false };
        self.0.entry(key).or_default().push(op);
    }

    pub(super) fn mark(&mut self, key: u64, sequence: u64, mark: impl Fn(&mut Op)) {
        let ops = self.0.entry(key).or_default();
        ops.iter_mut().filter(|op| op.sequence == sequence).for_each(mark);
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.0.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The newest state of a key: its sequence and size.
    pub(super) fn newest(&self, key: u64) -> Option<(u64, usize)> {
        let op = self.0.get(&key)?.last()?;
        Some((op.sequence, op.value_bytes?))
    }

    pub(super) fn sequence(&self, key: u64) -> u64 {
        self.0.get(&key).and_then(|ops| ops.last()).map_or(0, |op| op.sequence)
    }

    /// True if a reader that began when `since` was the newest may see this now.
    pub(super) fn may_read(&self, key: u64, since: u64, seen: Option<(u64, usize)>) -> bool {
        let ops = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        let mut states = ops.iter().filter(|op| op.sequence >= since);
        match seen {
            None => ops.is_empty() || states.any(|op| op.value_bytes.is_none()),
            Some((sequence, bytes)) => {
                states.any(|op| (op.sequence, op.value_bytes) == (sequence, Some(bytes)))
            }
        }
    }

    /// The key's state after a crash, which is certain from now on. Returns an explanation if it may not be so.
    pub(super) fn settle(
        &mut self,
        key: u64,
        found: Option<(u64, usize)>,
        has_lost_power: bool,
        is_cache: bool,
    ) -> Result<(), String> {
        let ops = self.0.remove(&key).unwrap_or_default();
        let is_kept = |op: &Op| op.is_durable || !has_lost_power && op.is_written;
        let certain = ops.iter().rposition(is_kept);
        let states = &ops[certain.unwrap_or(0)..];
        let is_allowed = match found {
            None => is_cache || certain.is_none() || states.iter().any(|op| op.value_bytes.is_none()),
            Some((sequence, bytes)) => {
                states.iter().any(|op| (op.sequence, op.value_bytes) == (sequence, Some(bytes)))
            }
        };
        if let Some((sequence, bytes)) = found {
            let op = Op { sequence, value_bytes: Some(bytes), is_written: true, is_durable: true };
            self.0.insert(key, vec![op]);
        }
        if is_allowed {
            Ok(())
        } else {
            Err(format!("key {key} is {found:?} after a crash, but was {ops:?}"))
        }
    }
}

/// A copy under way.
pub(super) struct Copy {
    pub(super) left: Vec<Extent>,
    pub(super) bytes: Vec<u8>,
    /// The states of the keys at the moment of the image.
    pub(super) model: Model,
}
