//! Append and prepend, without copying large values under a lock.

use crate::{
    entry::Entry,
    item::{ItemMeta, ItemState},
    mode::Mode,
    partition::OutOfMemory,
    store::Engine,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_sync::{Access, AnyWriter};
use std::sync::Arc;

/// Times that a large value is copied outside of the lock, in the hope that nobody replaces it meanwhile.
const ATTEMPTS_MAX: u32 = 4;

/// Bytes of the buffer that a partition keeps for joining.
const SCRATCH_BYTES_MAX: usize = 16 << 10;

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

impl<M: Mode, A: AnyWriter> Engine<M, A> {
    /// Joins bytes to the value of the live item with this key; it keeps its flags and its expiry. Returns
    /// the new CAS unique.
    ///
    /// A large value is pinned and copied into a reservation without a lock, and linked if the item is still
    /// the same; if others are always faster, the copy is made under the lock in the end.
    ///
    /// # Errors
    /// There is nothing to join to, or no room; the item is as it was.
    pub fn concat(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        concat: &Concat<'_>,
    ) -> Result<u64, ConcatError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(class) = self.size_class(hash) else { break };
            if class.max(SizeClass::of(concat.extra.len() as u64)) <= self.inline_class_max {
                break;
            }
            if let Some(result) = self.concat_outside(hash, key, now, concat) {
                return result;
            }
        }
        self.entry(hash, key, now).concat(concat)
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
        let value_bytes = match concat.judge(&old, self.value_bytes_max()) {
            Ok(value_bytes) => value_bytes,
            Err(error) => return Some(Err(error)),
        };
        let mut reservation = match self.reserve(hash, key, value_bytes) {
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
        is_same.then(|| entry.commit(reservation, concat.meta(&old)).map_err(ConcatError::from))
    }
}

impl<M: Mode, A: Access> Entry<'_, M, A> {
    /// Joins bytes to the value of the item; it keeps its flags and its expiry. Returns the new CAS unique.
    ///
    /// A large value is copied twice while other writers wait: see [`Engine::concat`].
    ///
    /// # Errors
    /// There is nothing to join to, or no room; the item is as it was.
    pub fn concat(&mut self, concat: &Concat<'_>) -> Result<u64, ConcatError> {
        let value_bytes_max = self.engine().value_bytes_max();
        // Kept for the next one, so that no memory is allocated. Making room for the new value may move or
        // evict the old one.
        let mut joined = std::mem::take(self.scratch());
        joined.clear();
        let result = match self.item() {
            None => Err(ConcatError::Missing),
            Some(old) => concat.judge(&old, value_bytes_max).map(|_| {
                concat.parts(old.value()).into_iter().for_each(|part| joined.extend_from_slice(part));
                concat.meta(&old)
            }),
        };
        let result = result.and_then(|meta| Ok(self.insert(&[&joined], meta)?));
        joined.shrink_to(SCRATCH_BYTES_MAX);
        *self.scratch() = joined;
        result
    }
}

impl Concat<'_> {
    /// The length of the joined value in bytes, if it may be made of an item in this state.
    fn judge(&self, old: &ItemState, value_bytes_max: u64) -> Result<u64, ConcatError> {
        if self.compare.is_some_and(|compare| compare != old.cas()) {
            return Err(ConcatError::Changed);
        }
        let value_bytes = old.value_bytes() as u64 + self.extra.len() as u64;
        if value_bytes > value_bytes_max { Err(ConcatError::TooLarge) } else { Ok(value_bytes) }
    }

    fn parts<'a>(&'a self, old: &'a [u8]) -> [&'a [u8]; 2] {
        match self.side {
            Side::Back => [old, self.extra],
            Side::Front => [self.extra, old],
        }
    }

    fn meta(&self, old: &ItemState) -> ItemMeta {
        ItemMeta { cas: self.cas, ..old.meta() }
    }
}
