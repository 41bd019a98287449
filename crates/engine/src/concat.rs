//! Append and prepend, without copying large values under a lock.

use crate::{item::ItemMeta, partition::OutOfMemory, pinned::Pinned, store::Store};
use minos_base::{KeyHash, Seconds, SizeClass};
use std::sync::Arc;

/// Times that a large value is copied outside of the lock, in the hope that nobody replaces it meanwhile.
const ATTEMPTS_MAX: u32 = 4;

/// On which side of the old value the new bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Behind it: append.
    Back,
    /// Before it: prepend.
    Front,
}

/// What is to be joined to the value of an item.
#[derive(Clone, Copy, Debug)]
pub struct Concat<'a> {
    /// Where the new bytes go.
    pub side: Side,
    /// The new bytes.
    pub extra: &'a [u8],
    /// Only if the item has this CAS unique.
    pub compare: Option<u64>,
    /// The CAS unique afterwards; `None` for the next one.
    pub cas: Option<u64>,
}

/// Why nothing was joined. The item is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConcatError {
    /// There is no item with this key.
    #[error("no such item")]
    Missing,
    /// The item has another CAS unique.
    #[error("the item was changed meanwhile")]
    Changed,
    /// The value would be larger than the store allows.
    #[error("the value would be too large")]
    TooLarge,
    /// There is no memory for the longer value.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Store {
    /// Joins bytes to the value of the live item with this key; it keeps its flags and its expiry. Returns
    /// the new CAS unique.
    ///
    /// A large value is pinned and copied into a reservation without a lock, and linked if the item is still
    /// the same; if others are always faster, the copy is made under the lock in the end.
    pub fn concat(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        concat: &Concat<'_>,
    ) -> Result<u64, ConcatError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(class) = self.size_class(hash) else { break };
            if class.max(SizeClass::of(concat.extra.len() as u64)) <= self.class_optimistic_max {
                break;
            }
            if let Some(result) = self.concat_outside(hash, key, now, concat) {
                return result;
            }
        }
        self.concat_inside(hash, key, now, concat)
    }

    /// `None` when the item was replaced meanwhile.
    fn concat_outside(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        concat: &Concat<'_>,
    ) -> Option<Result<u64, ConcatError>> {
        let Some(old) = self.pin(hash, key, now) else { return Some(Err(ConcatError::Missing)) };
        if let Err(error) = self.may_concat(old.cas(), old.value_bytes(), concat) {
            return Some(Err(error));
        }
        let value_bytes = old.value_bytes() + concat.extra.len();
        let mut reservation = match self.reserve(hash, key, value_bytes as u64) {
            Ok(reservation) => reservation,
            Err(error) => return Some(Err(error.into())),
        };
        let [first, second] = concat.parts(old.value());
        let (to_first, to_second) = reservation.value_mut().split_at_mut(first.len());
        to_first.copy_from_slice(first);
        to_second.copy_from_slice(second);
        reservation.settle();
        let mut entry = self.entry(hash, key, now);
        let is_same = entry
            .item()
            .is_some_and(|item| item.cas() == old.cas() && item.value_bytes() == old.value_bytes());
        let result = is_same.then(|| entry.commit(reservation, concat.meta(&old)).map_err(ConcatError::from));
        // Before the pin is dropped, which takes the same lock.
        drop(entry);
        result
    }

    fn concat_inside(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        concat: &Concat<'_>,
    ) -> Result<u64, ConcatError> {
        let mut entry = self.entry(hash, key, now);
        let old = entry.pin(self).ok_or(ConcatError::Missing)?;
        let result = self
            .may_concat(old.cas(), old.value_bytes(), concat)
            .and_then(|()| Ok(entry.insert(&concat.parts(old.value()), concat.meta(&old))?));
        // Before the pin is dropped, which takes the same lock.
        drop(entry);
        result
    }

    fn may_concat(&self, cas: u64, value_bytes: usize, concat: &Concat<'_>) -> Result<(), ConcatError> {
        if concat.compare.is_some_and(|compare| compare != cas) {
            return Err(ConcatError::Changed);
        }
        let value_bytes = value_bytes as u64 + concat.extra.len() as u64;
        if value_bytes > self.value_bytes_max { Err(ConcatError::TooLarge) } else { Ok(()) }
    }
}

impl<'a> Concat<'a> {
    fn parts(&self, old: &'a [u8]) -> [&'a [u8]; 2] {
        match self.side {
            Side::Back => [old, self.extra],
            Side::Front => [self.extra, old],
        }
    }

    fn meta(&self, old: &Pinned) -> ItemMeta {
        ItemMeta { cas: self.cas, ..old.state.meta() }
    }
}
