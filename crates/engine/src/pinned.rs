//! Items that stay as they are while somebody reads them.

use crate::{
    item::{ItemState, body},
    read::note_access,
    store::Store,
};
use minos_base::{KeyHash, Seconds};
use minos_region::Offset;
use minos_sync::Pin;
use std::{ops::Deref, sync::Arc};

/// An item whose bytes do not change and whose memory is not given away until it is dropped.
///
/// Writers are not held up meanwhile: they replace or delete the item, and its memory returns to the
/// heap with the last pin. A large value is sent from here, without a copy.
#[derive(Debug)]
pub struct Pinned {
    store: Arc<Store>,
    hash: KeyHash,
    pub(crate) state: ItemState,
    claim: Claim,
}

#[derive(Debug)]
enum Claim {
    Pin {
        item: Offset,
        pin: Pin,
    },
    /// When too many items were pinned: a copy, made without holding writers up.
    Copy(Box<[u8]>),
}

impl Pinned {
    pub(crate) fn new(store: &Arc<Store>, hash: KeyHash, item: Offset, state: ItemState, pin: Pin) -> Self {
        Self { store: Arc::clone(store), hash, state, claim: Claim::Pin { item, pin } }
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        match &self.claim {
            Claim::Pin { item, .. } => value_of(&self.store, *item, &self.state),
            Claim::Copy(value) => value,
        }
    }
}

impl Deref for Pinned {
    type Target = ItemState;

    fn deref(&self) -> &ItemState {
        &self.state
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Claim::Pin { item, pin } = &self.claim {
            self.store.unpin(self.hash, *item, pin);
        }
    }
}

/// A pin for the time of a call.
pub(crate) struct BorrowedPin<'a> {
    pub(crate) store: &'a Store,
    pub(crate) hash: KeyHash,
    pub(crate) item: Offset,
    pub(crate) pin: Pin,
}

impl Drop for BorrowedPin<'_> {
    fn drop(&mut self) {
        self.store.unpin(self.hash, self.item, &self.pin);
    }
}

/// The value of an item under the partition's lock or a pin.
pub(crate) fn value_of<'a>(store: &'a Store, item: Offset, state: &ItemState) -> &'a [u8] {
    store.memory().region().settled_bytes(body(item), state.key_bytes(), state.value_bytes())
}

impl Store {
    /// Pins the live item with this key; `None` if there is none. Counts as an access.
    pub fn pin(self: &Arc<Self>, hash: KeyHash, key: &[u8], now: Seconds) -> Option<Pinned> {
        let mut writer = self.partition(hash).writer.lock();
        let (item, found) = self.find_live(&writer, hash, key, now)?;
        note_access(self.memory().region(), item, &found, now);
        let state = ItemState::load(self.memory().region(), item, now);
        if let Some(pin) = writer.pin(self.memory(), item, &state) {
            // What is reported is the item before this access, as in a read.
            return Some(Pinned::new(self, hash, item, found, pin));
        }
        let value = value_of(self, item, &found).into();
        Some(Pinned { store: Arc::clone(self), hash, state: found, claim: Claim::Copy(value) })
    }

    fn unpin(&self, hash: KeyHash, item: Offset, pin: &Pin) {
        self.partition(hash).writer.lock().unpin(self.memory(), item, pin);
    }
}
