//! Items that stay unchanged while they are read.

use crate::{
    candidate::Attempt,
    holding::{Claim, claim_of_writer},
    item::{ItemState, ItemView},
    mode::Mode,
    partition::Partition,
    places::HasAccess,
    settled::inline_value,
    store::{Engine, Writing},
};
use minos_base::{KeyHash, Seconds};
use minos_region::Offset;
use minos_sync::Access;
use std::{ops::Deref, sync::Arc};

/// An item whose bytes do not change and whose memory is not given away until it is dropped.
///
/// Writers are not held up meanwhile: they replace or delete the item, and its memory returns to the
/// heap with the last pin. A large value is sent from here, without a copy; a small one is copied.
#[derive(Debug)]
pub struct Pinned<M: Mode = crate::StoreMode, A: Access = <M as HasAccess>::Access> {
    engine: Arc<Engine<M, A>>,
    hash: KeyHash,
    pub(crate) state: ItemState,
    hold: Hold<M::Pin>,
}

#[derive(Debug)]
enum Hold<P> {
    Pin(Claim<P>),
    /// A copy of a small value.
    Copy(Box<[u8]>),
}

impl<M: Mode, A: Access> Pinned<M, A> {
    /// Pins an item that the writer of its partition has found in this `state`.
    pub(crate) fn of_writer(
        engine: &Arc<Engine<M, A>>,
        writing: &Writing<'_, M, A>,
        hash: KeyHash,
        item: Offset,
        state: ItemState,
    ) -> Option<Self> {
        let hold = if engine.is_inline(state.value_bytes() as u64) {
            Hold::Copy(inline_value(writing, item, &state).into())
        } else {
            Hold::Pin(claim_of_writer(engine, writing.partition, item, &state)?)
        };
        Some(Self { engine: Arc::clone(engine), hash, state, hold })
    }

    /// True if an item of its key is this one, as far as its value is concerned.
    pub(crate) fn is_still(&self, item: &ItemState) -> bool {
        item.cas() == self.cas() && item.value_bytes() == self.value_bytes()
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        match &self.hold {
            Hold::Pin(claim) => claim.bytes(self.engine.memory().region(), &self.state),
            Hold::Copy(value) => value,
        }
    }
}

impl<M: Mode, A: Access> Deref for Pinned<M, A> {
    type Target = ItemState;

    fn deref(&self) -> &ItemState {
        &self.state
    }
}

impl<M: Mode, A: Access> Drop for Pinned<M, A> {
    fn drop(&mut self) {
        if let Hold::Pin(claim) = &self.hold {
            M::unpin(&self.engine, self.engine.partition(self.hash), &claim.pin);
        }
    }
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Pins the live item with this key; `None` if there is none. Counts as an access. Tries as often as
    /// [`Engine::read`].
    pub fn pin(self: &Arc<Self>, hash: KeyHash, key: &[u8], now: Seconds) -> Option<Pinned<M, A>> {
        let partition = self.readable(self.partition(hash));
        partition.undisturbed(|| self.attempt_pin(partition, (hash, key), now, true))
    }

    /// As [`Engine::pin`], for a writer: it is no access.
    pub(crate) fn pin_unread(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
    ) -> Option<Pinned<M, A>> {
        let partition = self.readable(self.partition(hash));
        partition.undisturbed(|| self.attempt_pin(partition, (hash, key), now, false))
    }

    fn attempt_pin(
        self: &Arc<Self>,
        partition: &Partition<M, A>,
        (hash, key): (KeyHash, &[u8]),
        now: Seconds,
        is_access: bool,
    ) -> Attempt<Pinned<M, A>> {
        self.candidate(partition, hash, key, now).and_then(|(candidate, state)| {
            let reader = self.reader(partition);
            let hold = if reader.is_large(candidate.slot) {
                self.claim(partition, &candidate, &state).and_then(|claim| Attempt::Found(Hold::Pin(claim)))
            } else {
                let copy = &mut |item: &ItemView<'_>| {
                    let mut value = Vec::new();
                    item.copy_value_to(&mut value);
                    Hold::Copy(value.into())
                };
                reader.finish(&candidate, state, copy)
            };
            hold.and_then(|hold| {
                if is_access {
                    self.note_read(partition, (hash, key), &state, &candidate, now);
                }
                // The reported state is that before this access, as in a read.
                Attempt::Found(Pinned { engine: Arc::clone(self), hash, state, hold })
            })
        })
    }
}
