//! Writing over a part of a large value, without copying it under a lock.

use crate::{
    entry::Entry, item::ItemMeta, mode::Mode, partition::OutOfMemory, pinned::Pinned,
    reservation::Reservation, store::Engine,
};
use minos_base::{KeyHash, SizeClass};
use minos_sync::Access;
use std::sync::Arc;

impl<M: Mode, A: Access> Engine<M, A> {
    /// True if this key's value is large, or is once it has `value_bytes` bytes, as far as can be known without a lock.
    pub fn patches_large(&self, hash: KeyHash, value_bytes: u64) -> bool {
        let old = self.size_class(hash).unwrap_or(SizeClass::MIN);
        old.max(SizeClass::of(value_bytes)) > self.inline_class_max
    }

    /// A copy of a large value in which `bytes` stand from byte `at` on; zeros fill what lies between its old end and those.
    /// Without an `old` value there was none. It is made at once, without a lock, for [`Entry::put_in_place_of`].
    ///
    /// # Errors
    /// There is no room.
    pub fn patch(
        self: &Arc<Self>,
        (hash, key): (KeyHash, &[u8]),
        old: Option<&Pinned<M, A>>,
        (at, bytes): (usize, &[u8]),
    ) -> Result<Reservation<M, A>, OutOfMemory> {
        let kept = old.map_or(&[][..], |old| old.value());
        let end = at + bytes.len();
        let mut reservation = self.reserve(hash, key, kept.len().max(end) as u64)?;
        let value = reservation.value_mut();
        let before = kept.len().min(at);
        value[..before].copy_from_slice(&kept[..before]);
        value[before..at].fill(0);
        value[at..end].copy_from_slice(bytes);
        if let Some(behind) = kept.get(end..) {
            value[end..].copy_from_slice(behind);
        }
        reservation.settle();
        Ok(reservation)
    }
}

impl<M: Mode, A: Access> Entry<'_, M, A> {
    /// Links a value that was made of an `old` one, which keeps its flags and its expiry, or of none. Returns the CAS unique;
    /// `None` if the item is another one by now.
    ///
    /// # Errors
    /// There is no room; the item is as it was.
    ///
    /// # Panics
    /// As [`commit`](Self::commit).
    pub fn put_in_place_of(
        &mut self,
        old: Option<&Pinned<M, A>>,
        value: Reservation<M, A>,
    ) -> Option<Result<u64, OutOfMemory>> {
        let meta = match self.item() {
            // Its expiry may be another one by now.
            Some(item) if old.is_some_and(|old| old.is_still(&item)) => item.meta(),
            None if old.is_none() => ItemMeta::default(),
            _ => return None,
        };
        Some(self.commit(value, meta))
    }
}
