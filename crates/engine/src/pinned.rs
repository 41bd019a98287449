//! Items that stay as they are while somebody reads them.

use crate::{
    item::{ItemState, body},
    partition::Writer,
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
///
/// Dropping it takes the partition's lock for a moment, so not while an entry is held.
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
    /// A copy, when too many items were pinned already.
    Copy(Box<[u8]>),
}

impl Pinned {
    /// Pins `item`, which the holder of the lock has found in this `state`.
    pub(crate) fn new(
        store: &Arc<Store>,
        writer: &mut Writer,
        hash: KeyHash,
        item: Offset,
        state: ItemState,
    ) -> Self {
        let claim = match writer.pin(store.memory(), item) {
            Some(pin) => Claim::Pin { item, pin },
            None => Claim::Copy(value_of(store, item, &state).into()),
        };
        Self { store: Arc::clone(store), hash, state, claim }
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
        let (item, state) = self.find_live(&writer, hash, key, now)?;
        note_access(self.memory().region(), item, &state, now);
        // What is reported is the item before this access, as in a read.
        Some(Pinned::new(self, &mut writer, hash, item, state))
    }

    fn unpin(&self, hash: KeyHash, item: Offset, pin: &Pin) {
        self.partition(hash).writer.lock().unpin(self.memory(), item, pin);
    }
}
