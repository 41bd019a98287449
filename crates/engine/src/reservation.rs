//! Memory for an item that is not there yet.

use crate::{
    buffers::Buffer, entry::Entry, item::ItemMeta, mode::Mode, partition::OutOfMemory, places::HasAccess,
    store::Engine,
};
use minos_base::KeyHash;
use minos_region::{Exclusive, Offset, Settled};
use minos_sync::{
    Access,
    words::{copy_in, words_for},
};
use std::sync::{
    Arc,
    atomic::{Ordering::Release, fence},
};

/// Memory for one item, to be filled without a lock and then linked by [`Entry::commit`].
///
/// Dropping it frees the memory. A large value is received directly into its place, which no other
/// thread can reach. If that memory once held small items, which are read without a lock, the bytes
/// go through a buffer instead (see [`Reservation::settle`]). A small value waits in a buffer, and
/// gets its place when it is committed.
#[derive(Debug)]
pub struct Reservation<M: Mode = crate::StoreMode, A: Access = <M as HasAccess>::Access> {
    engine: Arc<Engine<M, A>>,
    hash: KeyHash,
    key_bytes: usize,
    value_bytes: u64,
    /// `None` once it was committed.
    space: Option<Space>,
}

#[derive(Debug)]
enum Space {
    Exclusive(Exclusive),
    /// The first bytes are in place already.
    Shared {
        chunk: Offset,
        value: Buffer,
        settled_bytes: usize,
    },
    Small(Vec<u8>),
}

impl<M: Mode, A: Access> Reservation<M, A> {
    /// Length of the value in bytes.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The bytes of the value, to be written. Their initial contents are unspecified.
    pub fn value_mut(&mut self) -> &mut [u8] {
        let at = M::large_value_at(self.key_bytes);
        match &mut self.space {
            Some(Space::Exclusive(exclusive)) => {
                exclusive.bytes_mut(self.engine.memory().region(), at, self.value_bytes as usize)
            }
            Some(Space::Shared { value, settled_bytes, .. }) => {
                *settled_bytes = 0;
                &mut value.bytes
            }
            Some(Space::Small(value)) => value,
            None => &mut [],
        }
    }

    /// Moves the value to its place if it went through a buffer. To be called when the value is complete
    /// and before the entry is taken, so that no writer waits for the copy; else `commit` does it.
    pub fn settle(&mut self) {
        self.settle_slice(usize::MAX);
    }

    /// As [`Reservation::settle`], at most `bytes_max` bytes; returns the bytes moved, 0 if all are in place.
    pub fn settle_slice(&mut self, bytes_max: usize) -> usize {
        let Some(Space::Shared { chunk, value, settled_bytes }) = &mut self.space else { return 0 };
        let at = M::large_value_at(self.key_bytes);
        let value = &value.bytes;
        let end = settled_bytes.saturating_add(bytes_max).min(value.len());
        let moved = end - *settled_bytes;
        // Release: a late reader that sees these bytes also sees that its item
        // is gone, whichever thread freed it.
        fence(Release);
        let words = self.engine.memory().region().words(*chunk, words_for(at + value.len()));
        copy_in(words, at + *settled_bytes, &value[*settled_bytes..end]);
        *settled_bytes = end;
        moved
    }

    /// True if its memory is gone, because the index had no room for the item.
    pub fn is_spent(&self) -> bool {
        self.space.is_none()
    }

    /// True if [`Reservation::settle`] has nothing left to do.
    pub fn is_settled(&self) -> bool {
        match &self.space {
            Some(Space::Shared { value, settled_bytes, .. }) => *settled_bytes == value.bytes.len(),
            _ => true,
        }
    }
}

impl<M: Mode, A: Access> Drop for Reservation<M, A> {
    fn drop(&mut self) {
        match self.space.take() {
            Some(Space::Exclusive(exclusive)) => self.engine.memory().free_settled(exclusive.share()),
            Some(Space::Shared { chunk, .. }) => self.engine.memory().free_settled(chunk),
            Some(Space::Small(_)) | None => {}
        }
    }
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Takes memory for a value of `value_bytes` under this key, without linking it.
    ///
    /// # Errors
    /// Key or value are too long, or there is no memory for a large value; or it would need a buffer (see
    /// [`Reservation::settle`]), and others hold [`crate::StoreConfig::buffer_bytes_max`].
    pub fn reserve(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        value_bytes: u64,
    ) -> Result<Reservation<M, A>, OutOfMemory> {
        let Some(space) = self.space_for(key.len(), value_bytes) else {
            self.partition(hash).counts.refuse(value_bytes);
            return Err(OutOfMemory);
        };
        let engine = Arc::clone(self);
        Ok(Reservation { engine, hash, key_bytes: key.len(), value_bytes, space: Some(space) })
    }

    fn space_for(&self, key_bytes: usize, value_bytes: u64) -> Option<Space> {
        if !M::takes(self, key_bytes, value_bytes) {
            return None;
        }
        if self.is_inline(value_bytes) {
            return Some(Space::Small(vec![0; value_bytes as usize]));
        }
        Some(match M::take_large(self, key_bytes, value_bytes)? {
            Settled::Exclusive(exclusive) => Space::Exclusive(exclusive),
            Settled::Shared(chunk) => match Buffer::new(&self.buffers, value_bytes) {
                Some(value) => Space::Shared { chunk, value, settled_bytes: 0 },
                None => {
                    self.memory().free_settled(chunk);
                    return None;
                }
            },
        })
    }
}

impl<M: Mode, A: Access> Entry<'_, M, A> {
    /// Links the reserved memory as the item of this entry's key. Returns its CAS unique.
    ///
    /// If there is no room for it after all, the old item stays and the reservation is dropped.
    ///
    /// # Panics
    /// If the reservation was made for another key or another table.
    pub fn commit(&mut self, mut reservation: Reservation<M, A>, meta: ItemMeta) -> Result<u64, OutOfMemory> {
        self.try_commit(&mut reservation, meta)
    }

    /// As [`commit`](Self::commit), but a reservation for whose item there is no room yet stays as it is; see
    /// [`Reservation::is_spent`].
    ///
    /// # Panics
    /// As [`commit`](Self::commit).
    pub fn try_commit(
        &mut self,
        reservation: &mut Reservation<M, A>,
        meta: ItemMeta,
    ) -> Result<u64, OutOfMemory> {
        let is_for = std::ptr::eq(&*reservation.engine, self.writing.engine)
            && (reservation.hash, reservation.key_bytes) == (self.hash, self.key.len());
        assert!(is_for, "reserved for another key");
        reservation.settle();
        let (chunk, value_bytes) = match &reservation.space {
            Some(Space::Small(value)) => return self.insert(&[value], meta),
            Some(Space::Exclusive(exclusive)) => (exclusive.chunk(), reservation.value_bytes),
            Some(Space::Shared { chunk, .. }) => (*chunk, reservation.value_bytes),
            None => return Err(OutOfMemory),
        };
        let Some(placed) = M::place_large(&mut self.writing, chunk, self.key, value_bytes) else {
            return self.refuse(value_bytes);
        };
        // The memory is no longer the reservation's, whatever becomes of the item.
        reservation.space = None;
        self.link_placed(placed, &meta, value_bytes)
    }
}
