//! What is known about keys whose items may be on flash.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use minos_base::{FlashSlot, KeyHash, Seconds, SizeClass};
use minos_engine::Candidates;
use minos_tier::{Found, SyncId};

use super::{delete::Deleted, moment::Moment, read::Facts};

/// Why an operation on a key cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cold {
    /// Its item may be on flash, in a record of about this class: fetch it.
    Unknown(SizeClass, Need),
    /// It could not be fetched.
    Failed(Failed),
}

/// The form in which an operation needs an item that may be on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// In memory: it is changed or pinned.
    Item,
    /// Its facts and value are enough.
    Copy,
    /// Deleted where it is, if it has this CAS unique: no room in memory is needed.
    Deletion(Option<u64>),
}

/// Why an item could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The device or what it holds is broken.
    Unreadable,
    /// There is no room for it in memory.
    NoMemory,
}

/// The keys that a fetch did not bring to memory.
pub(crate) struct Fetched {
    pub(super) asked: Vec<(KeyHash, Box<[u8]>)>,
    known: Vec<Known>,
    /// The values of all copies.
    copied: Vec<u8>,
    /// Bytes of all copies of the worker that made these.
    held_bytes: Arc<AtomicUsize>,
    /// True if the copies may be older than a change by this connection.
    is_outdated: Cell<bool>,
    /// Times that the request waited for room.
    pub(super) waits: u32,
    /// The emptying of flash that the first request waits for.
    pub(super) emptying: Cell<Option<SyncId>>,
    /// The keys that were listed.
    pub(crate) walked: Cell<Option<Walked>>,
}

/// The keys of a part of the table.
#[derive(Debug)]
pub(crate) struct Walked {
    /// Where it began, as in [`WalkWish`](super::WalkWish).
    pub(crate) from: u64,
    /// Where the next part begins; 0 at the end.
    pub(crate) next: u64,
    /// Each key once, with its expiry.
    pub(crate) keys: BTreeMap<Box<[u8]>, Moment>,
    /// True if some are missing, because a store could not read them.
    pub(crate) is_broken: bool,
}

struct Known {
    hash: KeyHash,
    key: Box<[u8]>,
    answer: FlashAnswer,
}

/// The answer of flash about a key whose item did not come to memory.
#[derive(Debug)]
pub(crate) enum FlashAnswer {
    /// The item was copied from the record of this slot; its value begins here.
    Copy { facts: Facts, slot: FlashSlot, at: usize },
    /// The item had this expiry, and was deleted or had another CAS unique. It answers one command.
    Deletion(Cell<Option<(Moment, Deleted)>>),
    /// None of these records is the key's. In a cache, one of them may only just have been written.
    NoneOf { seen: Candidates, is_sure: bool },
    /// Flash is broken, and a cache makes a miss of that.
    Lost,
    /// It is not known.
    Failed(Failed),
}

impl Fetched {
    /// No keys yet of a fetch that has waited so often. Copies go to empty memory, and are counted.
    pub(super) fn new(
        waits: u32,
        emptying: Option<SyncId>,
        (copied, held_bytes): (Vec<u8>, Arc<AtomicUsize>),
    ) -> Self {
        Self {
            asked: Vec::new(),
            known: Vec::new(),
            copied,
            held_bytes,
            is_outdated: Cell::new(false),
            waits,
            emptying: Cell::new(emptying),
            walked: Cell::new(None),
        }
    }

    /// Takes out the keys that were listed from this cursor on.
    pub(crate) fn take_walked(&self, from: u64) -> Option<Walked> {
        self.walked.take().filter(|walked| walked.from == from && !self.is_outdated.get())
    }

    /// Notes that the fetch of these keys has ended.
    pub(crate) fn end(&mut self, asked: Vec<(KeyHash, Box<[u8]>)>) {
        self.asked = asked;
    }

    pub(crate) fn note(&mut self, hash: KeyHash, key: &[u8], answer: FlashAnswer) {
        self.known.push(Known { hash, key: key.into(), answer });
    }

    /// Deletes an item that was found for a key, unless it has another CAS unique. One that has changed meanwhile is looked at
    /// again.
    pub(crate) fn delete(&mut self, (hash, key): (KeyHash, &[u8]), found: &Found<'_>, unique: Option<u64>) {
        let deleted = match unique {
            Some(unique) if found.meta.cas != Some(unique) => Deleted::OtherCas,
            _ if found.delete() => Deleted::Done,
            _ => return,
        };
        let moment = Moment { expiry: found.meta.expiry, early_ms: found.meta.early_ms };
        self.note(hash, key, FlashAnswer::Deletion(Cell::new(Some((moment, deleted)))));
    }

    /// How the deletion of a key on flash ended, and the expiry of its item.
    pub(super) fn deletion_of(&self, hash: KeyHash, key: &[u8]) -> Option<(Moment, Deleted)> {
        match self.answer(hash, key) {
            Some(FlashAnswer::Deletion(deletion)) => deletion.take(),
            _ => None,
        }
    }

    /// Copies an item that was found for a key.
    pub(crate) fn copy(&mut self, hash: KeyHash, key: &[u8], found: &Found<'_>, now: Seconds) {
        let (meta, at) = (found.meta, self.copied.len());
        found.value.copy_to(&mut self.copied);
        // Relaxed: a bound that a race may pass by a value.
        self.held_bytes.fetch_add(found.value.len(), Relaxed);
        let facts = Facts {
            value_bytes: found.value.len() as u64,
            flags: meta.flags,
            cas: meta.cas.unwrap_or_default(),
            expiry: meta.expiry,
            early_ms: meta.early_ms,
            last_access: now,
            fetched: false,
            stale: meta.stale,
            win_sent: meta.win_sent,
            key_is_base64: meta.encoded_key,
        };
        self.note(hash, key, FlashAnswer::Copy { facts, slot: found.slot(), at });
    }

    pub(crate) fn copies(&self) -> usize {
        self.known.iter().filter(|known| matches!(known.answer, FlashAnswer::Copy { .. })).count()
    }

    /// The memory of the copies, empty, to be used again.
    pub(crate) fn into_memory(mut self) -> Vec<u8> {
        self.forget_copies();
        std::mem::take(&mut self.copied)
    }

    fn forget_copies(&mut self) {
        self.held_bytes.fetch_sub(self.copied.len(), Relaxed);
        self.copied.clear();
    }

    /// Uses no copies from now on: the connection may have changed the items since.
    pub(crate) fn outdate(&self) {
        self.is_outdated.set(true);
    }

    fn answer(&self, hash: KeyHash, key: &[u8]) -> Option<&FlashAnswer> {
        let known = self.known.iter().find(|known| known.hash == hash && *known.key == *key);
        known.map(|known| &known.answer)
    }

    /// True if the key's item could not be read, or perhaps not yet, in a cache.
    pub(super) fn has_lost(&self, hash: KeyHash, key: &[u8]) -> bool {
        let answer = self.answer(hash, key);
        matches!(answer, Some(FlashAnswer::Lost | FlashAnswer::NoneOf { is_sure: false, .. }))
    }

    /// The copy of a key's item, if the index still names the record that it was read from.
    pub(super) fn copy_of(
        &self,
        hash: KeyHash,
        key: &[u8],
        candidates: &Candidates,
        now: Seconds,
    ) -> Option<(&Facts, &[u8])> {
        let Some(FlashAnswer::Copy { facts, slot, at }) = self.answer(hash, key) else { return None };
        let is_alive = facts.expiry == 0 || facts.expiry > now;
        let is_current = is_alive && !self.is_outdated.get() && candidates.contains(slot);
        is_current.then(|| (facts, &self.copied[*at..][..facts.value_bytes as usize]))
    }

    /// The answer about a key that may have these records: `None` if none of them is its own.
    pub(super) fn judge(
        &self,
        hash: KeyHash,
        key: &[u8],
        candidates: &Candidates,
        need: Need,
    ) -> Option<Cold> {
        match self.answer(hash, key) {
            Some(FlashAnswer::NoneOf { seen, .. }) if candidates.iter().all(|slot| seen.contains(slot)) => {
                None
            }
            Some(FlashAnswer::Lost) => None,
            Some(FlashAnswer::Failed(failed)) => Some(Cold::Failed(*failed)),
            Some(FlashAnswer::NoneOf { .. } | FlashAnswer::Copy { .. } | FlashAnswer::Deletion(_)) | None => {
                Some(Cold::Unknown(class_of(candidates), need))
            }
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.forget_copies();
    }
}

/// The class of the longest of these records, head and key included.
pub(super) fn class_of(candidates: &Candidates) -> SizeClass {
    let pages = candidates.iter().map(|slot| slot.length.bytes_max()).max();
    SizeClass::of(pages.unwrap_or(0))
}
