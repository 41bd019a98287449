//! Append and prepend, without copying large values under a lock.

use crate::{
    entry::Entry,
    item::{ItemMeta, ItemState},
    mode::Mode,
    partition::OutOfMemory,
    pinned::Pinned,
    places::HasAccess,
    reservation::Reservation,
    store::Engine,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_sync::Access;
use std::sync::Arc;

/// Attempts to copy a large value without the lock; an attempt fails if the value is replaced meanwhile.
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

impl Side {
    /// The old value and the new bytes in the order in which they lie.
    fn order<'a>(self, old: &'a [u8], extra: &'a [u8]) -> [&'a [u8]; 2] {
        match self {
            Self::Back => [old, extra],
            Self::Front => [extra, old],
        }
    }
}

/// Bytes to join to the value of an item.
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

impl<M: Mode, A: Access> Engine<M, A> {
    /// Joins bytes to the value of the live item with this key; it keeps its flags and its expiry. Returns
    /// the new CAS unique.
    ///
    /// A large value is pinned and copied into a reservation without a lock, and linked if the item is still
    /// the same. If other writers interfere each time, the last copy is made under the lock.
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
            if !self.joins_large(hash, concat.extra.len() as u64) {
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
        let mut joining = match self.begin_concat(hash, key, now, concat) {
            Ok(joining) => joining,
            Err(error) => return Some(Err(error)),
        };
        while joining.copy(concat.extra, usize::MAX) > 0 {}
        joining.finish(self, key, now, concat)
    }

    /// True if a join to this key's value gives a large value, as far as can be known without a lock.
    pub fn joins_large(&self, hash: KeyHash, extra_bytes: u64) -> bool {
        let old = self.size_class(hash);
        old.is_some_and(|class| class.max(SizeClass::of(extra_bytes)) > self.inline_class_max)
    }

    /// Begins a join with a long copy, which [`Joining::copy`] makes in slices without a lock.
    ///
    /// # Errors
    /// There is nothing to join to, or no room.
    pub fn begin_concat(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        concat: &Concat<'_>,
    ) -> Result<Joining<M, A>, ConcatError> {
        let old = self.pin_unread(hash, key, now).ok_or(ConcatError::Missing)?;
        let value_bytes = concat.judge(&old, self.value_bytes_max())?;
        let reservation = self.reserve(hash, key, value_bytes)?;
        Ok(Joining { old, reservation, side: concat.side, hash, copied_bytes: 0 })
    }
}

/// A value that is being joined: the old one, which stays as it is, and memory for the new one.
#[derive(Debug)]
pub struct Joining<M: Mode = crate::StoreMode, A: Access = <M as HasAccess>::Access> {
    old: Pinned<M, A>,
    reservation: Reservation<M, A>,
    side: Side,
    hash: KeyHash,
    copied_bytes: usize,
}

impl<M: Mode, A: Access> Joining<M, A> {
    /// Copies at most `bytes_max` bytes of the old value and of `extra`, the bytes to join. Returns the
    /// number copied, 0 when all are in place.
    pub fn copy(&mut self, extra: &[u8], bytes_max: usize) -> usize {
        let [first, second] = self.side.order(self.old.value(), extra);
        let from = self.copied_bytes;
        let end = from.saturating_add(bytes_max).min(first.len() + second.len());
        if from == end {
            return self.reservation.settle_slice(bytes_max);
        }
        let middle = first.len().clamp(from, end);
        let value = self.reservation.value_mut();
        value[from..middle].copy_from_slice(&first[from.min(first.len())..middle.min(first.len())]);
        let (second_from, second_end) = (middle - first.len().min(middle), end - first.len().min(end));
        value[middle..end].copy_from_slice(&second[second_from..second_end]);
        self.copied_bytes = end;
        end - from
    }

    /// Links the new value if the item is unchanged since the copy; `None` if it was replaced meanwhile.
    pub fn finish(
        self,
        engine: &Engine<M, A>,
        key: &[u8],
        now: Seconds,
        concat: &Concat<'_>,
    ) -> Option<Result<u64, ConcatError>> {
        let Self { old, reservation, hash, .. } = self;
        let mut entry = engine.entry(hash, key, now);
        // Its expiry may be another one by now.
        let meta = entry.item().filter(|item| old.is_still(item)).map(|item| concat.meta(&item))?;
        Some(entry.commit(reservation, meta).map_err(ConcatError::from))
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
        let value_bytes_max = self.writing.engine.value_bytes_max();
        // Kept for the next one, so that no memory is allocated. Making room for the new value may move or
        // evict the old one.
        let mut joined = std::mem::take(&mut self.writing.writer.scratch);
        joined.clear();
        let result = match self.item() {
            None => Err(ConcatError::Missing),
            Some(old) => concat.judge(&old, value_bytes_max).map(|_| {
                concat
                    .side
                    .order(old.value(), concat.extra)
                    .into_iter()
                    .for_each(|part| joined.extend_from_slice(part));
                concat.meta(&old)
            }),
        };
        let result = result.and_then(|meta| Ok(self.insert(&[&joined], meta)?));
        joined.shrink_to(SCRATCH_BYTES_MAX);
        self.writing.writer.scratch = joined;
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

    fn meta(&self, old: &ItemState) -> ItemMeta {
        ItemMeta { cas: self.cas, ..old.meta() }
    }
}
