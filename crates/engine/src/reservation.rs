//! Memory for an item that is not there yet.

use crate::{
    entry::Entry,
    item::{ItemMeta, body, item_words},
    partition::OutOfMemory,
    store::Store,
};
use minos_base::{KeyHash, SizeClass, limits::KEY_BYTES_MAX};
use minos_region::{Exclusive, Offset, Settled};
use minos_sync::words::{copy_in, words_for};
use std::sync::{
    Arc,
    atomic::{Ordering::Release, fence},
};

/// Memory for one item, to be filled without a lock and then linked by [`Entry::commit`].
///
/// Given back when dropped. A large value is received right into its place: nobody else can reach it.
/// Only if that memory once held small items, which are read without a lock, the bytes go through a
/// buffer (see [`Reservation::settle`]).
#[derive(Debug)]
pub struct Reservation {
    store: Arc<Store>,
    hash: KeyHash,
    key_bytes: usize,
    value_bytes: u64,
    /// `None` once it was committed.
    space: Option<Space>,
}

#[derive(Debug)]
enum Space {
    Exclusive(Exclusive),
    Buffered { item: Offset, value: Vec<u8>, is_settled: bool },
}

impl Reservation {
    /// Length of the value in bytes.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// Where the value goes. What it holds before it is written is not defined.
    pub fn value_mut(&mut self) -> &mut [u8] {
        let at = crate::item::HEADER_WORDS * 8 + self.key_bytes;
        match &mut self.space {
            Some(Space::Exclusive(exclusive)) => {
                exclusive.bytes_mut(self.store.memory().region(), at, self.value_bytes as usize)
            }
            Some(Space::Buffered { value, is_settled, .. }) => {
                *is_settled = false;
                value
            }
            None => &mut [],
        }
    }

    /// Moves the value to its place if it went through a buffer. To be called when the value is complete
    /// and before the entry is taken, so that no writer waits for the copy; else `commit` does it.
    pub fn settle(&mut self) {
        let region = self.store.memory().region();
        if let Some(Space::Buffered { item, value, is_settled: is_settled @ false }) = &mut self.space {
            // Release: a reader that strays here sees why it must not, whoever freed this memory.
            fence(Release);
            copy_in(
                region.words(body(*item), words_for(self.key_bytes + value.len())),
                self.key_bytes,
                value,
            );
            *is_settled = true;
        }
    }

    fn sizes(&self) -> (usize, u64) {
        (self.key_bytes, self.value_bytes)
    }

    fn item(&self) -> Option<Offset> {
        self.space.as_ref().map(|space| match space {
            Space::Exclusive(exclusive) => exclusive.chunk(),
            Space::Buffered { item, .. } => *item,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(item) = self.item() else { return };
        let memory = self.store.memory();
        memory.free(&mut self.store.partition(self.hash).writer.lock().heap, item);
    }
}

impl Store {
    /// Takes memory for a value of `value_bytes` under this key, without linking it.
    pub fn reserve(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        value_bytes: u64,
    ) -> Result<Reservation, OutOfMemory> {
        let space = self.space_for(hash, key.len(), value_bytes);
        let Some(space) = space else {
            self.partition(hash).writer.lock().counts.out_of_memory += 1;
            return Err(OutOfMemory);
        };
        let mut reservation = Reservation {
            store: Arc::clone(self),
            hash,
            key_bytes: key.len(),
            value_bytes,
            space: Some(space),
        };
        self.write_key(&mut reservation, key);
        Ok(reservation)
    }

    fn space_for(&self, hash: KeyHash, key_bytes: usize, value_bytes: u64) -> Option<Space> {
        if key_bytes > KEY_BYTES_MAX || value_bytes > self.value_bytes_max {
            return None;
        }
        let words = item_words(key_bytes, value_bytes);
        let item = if SizeClass::of(value_bytes) <= self.class_optimistic_max {
            self.memory().allocate_shared(&mut self.partition(hash).writer.lock().heap, words)?
        } else {
            match self.memory().allocate_settled(words)? {
                Settled::Exclusive(exclusive) => return Some(Space::Exclusive(exclusive)),
                Settled::Shared(item) => item,
            }
        };
        Some(Space::Buffered { item, value: vec![0; value_bytes as usize], is_settled: false })
    }

    fn write_key(&self, reservation: &mut Reservation, key: &[u8]) {
        if let Some(item) = reservation.item() {
            // The lock that gave this memory ended with a release fence, as in `settle`.
            copy_in(self.memory().region().words(body(item), words_for(key.len())), 0, key);
        }
    }
}

impl Entry<'_> {
    /// Links what was reserved as the item of this entry's key. Returns its CAS unique.
    ///
    /// When the index has no room, the old item stays and the reservation is given back.
    ///
    /// # Panics
    /// If the reservation was made for another key or another store.
    pub fn commit(&mut self, mut reservation: Reservation, meta: ItemMeta) -> Result<u64, OutOfMemory> {
        reservation.settle();
        let sizes = reservation.sizes();
        let Some(item) = reservation.item() else { return Err(OutOfMemory) };
        let is_for = self.is_for(&reservation.store, reservation.hash, item, sizes.0);
        // From here on this entry owns the memory: dropping it there would wait for the lock held here.
        reservation.space = None;
        assert!(is_for, "reserved for another key");
        let linked = self.link(item, &meta, sizes);
        if linked.is_err() {
            self.free(item);
        }
        linked
    }
}
