//! Items on flash: a request that needs one is executed again when it is in memory.

use std::cell::Cell;

use minos_base::{FlashSlot, KeyHash, Seconds, SizeClass};
use minos_engine::{Candidates, Entry, Lookup, Mode};
use minos_tier::{Found, SyncId};

use super::{context::Context, facts::Facts, work::LargeStore};

/// Times that a request waits for room in memory, each until flash has had a moment to take items.
pub(crate) const WAITS_MAX: u32 = 1000;

/// Times that a store in a cache waits so. Then it evicts what is not written.
pub(crate) const CACHE_WAITS_MAX: u32 = 200;

/// Most keys that are fetched at once for one connection.
const FETCH_KEYS_MAX: usize = 128;
/// The part of the memory that their items may take. They are to be there together.
const FETCH_PART: u64 = 32;

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
}

/// Why an item could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The device or what it holds is broken.
    Unreadable,
    /// There is no room for it in memory.
    NoMemory,
}

/// Keys whose items are read from flash before their request goes on.
pub(crate) struct Fetch<M: Mode> {
    pub(crate) keys: Vec<(KeyHash, Box<[u8]>)>,
    /// Class of the first key's record, as far as the index knows it.
    pub(crate) class: SizeClass,
    /// The form in which the request needs the items.
    pub(crate) need: Need,
    /// The large store that ends then, if it is not a request still to be executed.
    pub(crate) then: Option<Box<LargeStore<M>>>,
    /// Times that the request waited for room.
    pub(crate) waits: u32,
    /// The emptying of flash that the request waits for.
    pub(crate) emptying: Option<SyncId>,
    /// Bytes of the keys' records, at most.
    pub(super) bytes: u64,
}

impl<M: Mode> Fetch<M> {
    /// Fetches one key.
    pub(crate) fn of(hash: KeyHash, key: &[u8], class: SizeClass, need: Need) -> Self {
        Self { keys: vec![(hash, key.into())], class, need, bytes: class.bytes_max(), ..Self::of_nothing() }
    }

    /// Fetches nothing, but waits for room.
    pub(crate) fn of_room<P>(cx: &Context<'_, M, P>) -> Self {
        let waits = cx.fetched.map_or(0, |fetched| fetched.waits) + 1;
        Self { waits, ..Self::of_nothing() }
    }

    /// Fetches nothing, but waits until flash is empty.
    pub(crate) fn of_emptying(emptying: SyncId) -> Self {
        Self { emptying: Some(emptying), ..Self::of_nothing() }
    }

    fn of_nothing() -> Self {
        Self {
            keys: Vec::new(),
            class: SizeClass::of(0),
            need: Need::Item,
            then: None,
            waits: 0,
            emptying: None,
            bytes: 0,
        }
    }

    /// Bytes of memory for the items that are fetched together.
    pub(crate) fn room_bytes<P>(cx: &Context<'_, M, P>) -> u64 {
        cx.store.memory_limit() / FETCH_PART
    }

    /// Fetches the keys of another fetch along.
    ///
    /// # Errors
    /// That fetch, if it waits for something else, or there is no room for the items of both.
    pub(crate) fn join(&mut self, other: Self, room_bytes: u64) -> Result<(), Self> {
        let has_room = self.bytes + other.bytes <= room_bytes && self.keys.len() < FETCH_KEYS_MAX;
        if self.keys.is_empty() || other.keys.is_empty() || !has_room {
            return Err(other);
        }
        self.bytes += other.bytes;
        self.keys.extend(other.keys);
        if other.need == Need::Item {
            self.need = Need::Item;
        }
        Ok(())
    }

    /// Fetches other keys along, as far as there is room for their items. A key that has left memory again since it
    /// was fetched is fetched alone: then it stays until its request is executed.
    pub(crate) fn with<'k, P>(
        mut self,
        cx: &Context<'_, M, P>,
        others: impl Iterator<Item = (KeyHash, &'k [u8])>,
    ) -> Self {
        let is_asked = |fetched: &Fetched| self.keys.iter().all(|key| fetched.asked.contains(key));
        if self.keys.is_empty() || cx.fetched.is_some_and(is_asked) {
            return self;
        }
        let mut room_bytes = Self::room_bytes(cx);
        for (hash, key) in others {
            let Lookup::Cold(candidates) = M::look_again(cx.store, hash, key, cx.now) else { continue };
            let bytes = class_of(&candidates).bytes_max();
            if self.keys.len() == FETCH_KEYS_MAX || bytes > room_bytes {
                break;
            }
            room_bytes -= bytes;
            self.keys.push((hash, key.into()));
        }
        self
    }
}

/// The keys that a fetch did not bring to memory.
pub(crate) struct Fetched {
    /// All keys of the fetch.
    asked: Vec<(KeyHash, Box<[u8]>)>,
    known: Vec<Known>,
    /// Times that the request waited for room.
    waits: u32,
    /// The emptying of flash that the first request waits for.
    pub(super) emptying: Cell<Option<SyncId>>,
    /// True if the copies may be older than a change by this connection.
    is_outdated: Cell<bool>,
}

struct Known {
    hash: KeyHash,
    key: Box<[u8]>,
    answer: FlashAnswer,
}

/// The answer of flash about a key whose item did not come to memory.
#[derive(Debug)]
pub(crate) enum FlashAnswer {
    /// The item.
    Copy(ItemCopy),
    /// None of these records is the key's.
    NoneOf(Candidates),
    /// Flash is broken, and a cache makes a miss of that.
    Lost,
    /// It is not known.
    Failed(Failed),
}

/// An item as it was on flash when its request looked for it.
#[derive(Debug)]
pub(crate) struct ItemCopy {
    pub(crate) facts: Facts,
    pub(crate) value: Box<[u8]>,
    slot: FlashSlot,
}

impl ItemCopy {
    /// A copy of an item that was found.
    pub(crate) fn of(found: &Found<'_>, now: Seconds) -> Self {
        let (meta, mut value) = (found.meta, Vec::with_capacity(found.value.len()));
        found.value.copy_to(&mut value);
        let facts = Facts {
            value_bytes: value.len() as u64,
            flags: meta.flags,
            cas: meta.cas.unwrap_or_default(),
            expiry: meta.expiry,
            last_access: now,
            fetched: false,
            stale: meta.stale,
            win_sent: meta.win_sent,
            key_is_base64: meta.encoded_key,
        };
        Self { facts, value: value.into_boxed_slice(), slot: found.slot() }
    }
}

impl Fetched {
    /// No keys yet of this fetch.
    pub(crate) fn by<M: Mode>(fetch: &Fetch<M>) -> Self {
        Self {
            asked: Vec::new(),
            known: Vec::new(),
            waits: fetch.waits,
            emptying: Cell::new(fetch.emptying),
            is_outdated: Cell::new(false),
        }
    }

    /// Notes that the fetch of these keys has ended.
    pub(crate) fn end(&mut self, asked: Vec<(KeyHash, Box<[u8]>)>) {
        self.asked = asked;
    }

    /// Notes the answer about a key.
    pub(crate) fn note(&mut self, hash: KeyHash, key: &[u8], answer: FlashAnswer) {
        self.known.push(Known { hash, key: key.into(), answer });
    }

    /// The copies.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &ItemCopy> {
        self.known.iter().filter_map(|known| match &known.answer {
            FlashAnswer::Copy(copy) => Some(copy),
            _ => None,
        })
    }

    /// Uses no copies from now on: the connection may have changed the items since.
    pub(crate) fn outdate(&self) {
        self.is_outdated.set(true);
    }

    fn answer(&self, hash: KeyHash, key: &[u8]) -> Option<&FlashAnswer> {
        let known = self.known.iter().find(|known| known.hash == hash && *known.key == *key);
        known.map(|known| &known.answer)
    }

    /// The copy of a key's item, if the index still names the record that it was read from.
    fn copy(&self, hash: KeyHash, key: &[u8], candidates: &Candidates, now: Seconds) -> Option<&ItemCopy> {
        let Some(FlashAnswer::Copy(copy)) = self.answer(hash, key) else { return None };
        let is_alive = copy.facts.expiry == 0 || copy.facts.expiry > now;
        (is_alive && !self.is_outdated.get() && candidates.contains(&copy.slot)).then_some(copy)
    }

    /// The answer about a key that may have these records: `None` if none of them is its own.
    fn judge(&self, hash: KeyHash, key: &[u8], candidates: &Candidates, need: Need) -> Option<Cold> {
        match self.answer(hash, key) {
            Some(FlashAnswer::NoneOf(seen)) if candidates.iter().all(|slot| seen.contains(slot)) => None,
            Some(FlashAnswer::Lost) => None,
            Some(FlashAnswer::Failed(failed)) => Some(Cold::Failed(*failed)),
            Some(FlashAnswer::NoneOf(_) | FlashAnswer::Copy(_)) | None => {
                Some(Cold::Unknown(class_of(candidates), need))
            }
        }
    }
}

/// The class of the longest of these records, head and key included.
fn class_of(candidates: &Candidates) -> SizeClass {
    let pages = candidates.iter().map(|slot| slot.length.bytes_max()).max();
    SizeClass::of(pages.unwrap_or(0))
}

/// True if a store that found no room should wait for some: flash may be about to take items.
pub(crate) fn may_wait<M: Mode, P>(cx: &Context<'_, M, P>) -> bool {
    M::HAS_FLASH && cx.fetched.map_or(0, |fetched| fetched.waits) < cx.admin.flash_waits_max()
}

/// True if a large store should wait until flash has taken items, instead of evicting some that are not written.
#[inline]
pub(crate) fn awaits_room<M: Mode, P>(cx: &Context<'_, M, P>, value_bytes: u64) -> bool {
    M::lacks_room(cx.store, value_bytes) && may_wait(cx)
}

/// The entry of a key. An error if its item may be on flash: nobody may take it for missing.
pub(crate) fn entry<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    hash: KeyHash,
    key: &'a [u8],
) -> Result<Entry<'a, M>, Cold> {
    let entry = cx.store.entry(hash, key, cx.now);
    if M::HAS_FLASH {
        let candidates = M::candidates(&entry);
        if !candidates.is_empty()
            && let Some(cold) = judge(cx, hash, key, &candidates, Need::Item)
        {
            return Err(cold);
        }
    }
    Ok(entry)
}

/// Why a key that was not found in memory is not missing; `None` if it is.
#[inline]
pub(crate) fn cold<M: Mode, P>(cx: &Context<'_, M, P>, hash: KeyHash, key: &[u8]) -> Option<Cold> {
    if !M::HAS_FLASH {
        return None;
    }
    match M::look_again(cx.store, hash, key, cx.now) {
        Lookup::Missing => None,
        // It has just come: the fetch finds it there.
        Lookup::Hot => Some(Cold::Unknown(SizeClass::of(0), Need::Item)),
        Lookup::Cold(candidates) => judge(cx, hash, key, &candidates, Need::Item),
    }
}

/// The place of an item that a read did not find in memory.
pub(crate) enum Below<'a> {
    /// There is no such item.
    Missing,
    /// It was read from flash for this request.
    Copied(&'a ItemCopy),
    /// It may be on flash.
    Cold(Cold),
}

/// The place of an item that a read did not find in memory, and of which it needs the facts and the value.
#[inline]
pub(crate) fn below<'a, M: Mode, P>(cx: &Context<'a, M, P>, hash: KeyHash, key: &[u8]) -> Below<'a> {
    if !M::HAS_FLASH {
        return Below::Missing;
    }
    match M::look_again(cx.store, hash, key, cx.now) {
        Lookup::Missing => Below::Missing,
        Lookup::Hot => Below::Cold(Cold::Unknown(SizeClass::of(0), Need::Copy)),
        Lookup::Cold(candidates) => {
            match cx.fetched.and_then(|fetched| fetched.copy(hash, key, &candidates, cx.now)) {
                Some(copy) => Below::Copied(copy),
                None => judge(cx, hash, key, &candidates, Need::Copy).map_or(Below::Missing, Below::Cold),
            }
        }
    }
}

/// The class of the record that may be a key's, if memory has no item of it.
pub(super) fn record_class<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
) -> Option<SizeClass> {
    if !M::HAS_FLASH {
        return None;
    }
    match M::look_again(cx.store, hash, key, cx.now) {
        Lookup::Cold(candidates) => match judge(cx, hash, key, &candidates, Need::Item) {
            Some(Cold::Unknown(class, _)) => Some(class),
            Some(Cold::Failed(_)) | None => None,
        },
        Lookup::Hot | Lookup::Missing => None,
    }
}

fn judge<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
    candidates: &Candidates,
    need: Need,
) -> Option<Cold> {
    match cx.fetched {
        Some(fetched) => fetched.judge(hash, key, candidates, need),
        None => Some(Cold::Unknown(class_of(candidates), need)),
    }
}
