//! The header of an item: 24 bytes before key and value.
//!
//! ```text
//! word 0   CAS unique, or key bytes - 1 (16) and CAS unique (48)
//! word 1   key was encoded (1) | expires early (1) | expiry in seconds, 0 = never (30)
//!         | client flags (32), or milliseconds by which it expires early (10) and client flags (22)
//! word 2   value bytes (31) | key bytes (8), 255 = see word 0 | win sent, stale, fetched (3)
//!          | flush generation (3) | last access in seconds modulo 2^19, or more of the generation (19)
//! then     key, value, rounded up to a word
//! ```
//!
//! In cache mode the value of a large item lies in an extent, which two words behind the key name.
//!
//! Words are written under the lock of the item's partition. Word 2 changes its flags and its access
//! time alone, in one store, so that a reader needs no version for that.

use crate::{
    generation::{ACCESS_MASK, Generation, WHOLE},
    slot::Slot,
};
use minos_base::{Seconds, VALUE_BYTES_MAX, limits::ITEM_KEY_BYTES_MAX};
use minos_region::{Offset, Region, View};
use minos_sync::{
    ReadWord, Word,
    words::{append_to, load_u64, words_for},
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words before the key.
pub(crate) const HEADER_WORDS: usize = 3;
/// The word with the item's sizes.
pub(crate) const SHAPE: u64 = 2;

pub(crate) const FETCHED: u64 = 1 << 22;
pub(crate) const STALE: u64 = 1 << 23;
pub(crate) const WIN_SENT: u64 = 1 << 24;
const _: () = assert!(FETCHED == WHOLE << 1);
const KEY_SHIFT: u32 = 25;
/// Of the key's field: the length of the key lies above the CAS unique.
const LONG_KEY: u32 = 0xff;
const LONG_KEY_SHIFT: u32 = 48;
const _: () = assert!(ITEM_KEY_BYTES_MAX - 1 == (u64::MAX >> LONG_KEY_SHIFT) as usize);
const VALUE_SHIFT: u32 = 33;
const _: () = assert!(VALUE_BYTES_MAX < 1 << (64 - VALUE_SHIFT));

/// The latest expiry that fits beside the flags: 34 years after the start of the clock.
const EXPIRY_MAX: Seconds = Seconds::MAX >> 2;
const ENCODED_KEY_SHIFT: u32 = 63;
const EARLY: u64 = 1 << 62;
/// Of the flags word of an item that expires early.
const EARLY_SHIFT: u32 = 22;
const EARLY_MS_MAX: u16 = 999;

/// An access is recorded again when the last recorded one is this old, in seconds, as in memcached.
const ACCESS_AGE_S: u64 = 60;

/// The properties that a writer sets on a new item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// Client flags.
    pub flags: u32,
    /// When it expires, on the store's clock; 0 is never.
    pub expiry: Seconds,
    /// Milliseconds before `expiry` at which it expires for readers that look at them, below 1000. The table itself
    /// knows whole seconds. Beside flags from 2^22 on they are forgotten, because both share a word.
    pub early_ms: u16,
    /// CAS unique; `None` for the next one. Of an item whose key has 255 bytes or more its low 48 bits.
    pub cas: Option<u64>,
    /// It is marked as stale (meta protocol).
    pub stale: bool,
    /// A client was told that it has won the right to recache it (meta protocol).
    pub win_sent: bool,
    /// The client spelled the key in an encoding, and readers are to see it so (meta protocol).
    pub encoded_key: bool,
}

impl ItemMeta {
    /// Flags and milliseconds in one word, and true if the latter are in it.
    pub fn flags_word(&self) -> (u32, bool) {
        if self.early_ms == 0 || self.flags >> EARLY_SHIFT != 0 || self.expiry == 0 {
            return (self.flags, false);
        }
        (u32::from(self.early_ms.min(EARLY_MS_MAX)) << EARLY_SHIFT | self.flags, true)
    }

    /// The same properties with flags and milliseconds from [`ItemMeta::flags_word`].
    pub fn with_flags_word(self, (word, is_early): (u32, bool)) -> Self {
        let (flags, early_ms) = flags_and_early_ms(word, is_early);
        Self { flags, early_ms, ..self }
    }

    /// The second word of a header. Later expiries than the latest become that.
    #[inline]
    fn life(&self) -> u64 {
        let flags = if self.early_ms == 0 { self.flags.into() } else { self.early_flags() };
        u64::from(self.encoded_key) << ENCODED_KEY_SHIFT
            | u64::from(self.expiry.min(EXPIRY_MAX)) << 32
            | flags
    }

    /// The part of the word for flags and milliseconds.
    #[cold]
    fn early_flags(&self) -> u64 {
        let (word, is_early) = self.flags_word();
        if is_early { EARLY | u64::from(word) } else { word.into() }
    }
}

#[inline]
fn flags_and_early_ms(word: u32, is_early: bool) -> (u32, u16) {
    if is_early { (word & ((1 << EARLY_SHIFT) - 1), (word >> EARLY_SHIFT) as u16) } else { (word, 0) }
}

/// A snapshot of an item's header: everything but key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemState {
    pub(crate) cas: u64,
    pub(crate) life: u64,
    pub(crate) shape: u64,
    now: Seconds,
    /// Of both words together, because the length is needed more than once.
    key_bytes: u32,
}

/// Bytes of the key of an item with these words.
#[inline(always)]
fn key_bytes_in(cas: u64, shape: u64) -> u32 {
    match (shape >> KEY_SHIFT) as u32 & LONG_KEY {
        LONG_KEY => long_key_bytes(cas),
        bytes => bytes,
    }
}

/// True if the key of the item with this header has `bytes`: a comparison less than to compute its length.
#[inline(always)]
pub(crate) fn has_key_bytes([cas, _, shape]: &[impl Word; HEADER_WORDS], bytes: usize) -> bool {
    let field = (shape.load(Relaxed) >> KEY_SHIFT) as u32 & LONG_KEY;
    let is_same = field as usize == bytes.min(LONG_KEY as usize);
    is_same && (field < LONG_KEY || long_key_bytes(cas.load(Relaxed)) as usize == bytes)
}

#[cold]
fn long_key_bytes(cas: u64) -> u32 {
    (cas >> LONG_KEY_SHIFT) as u32 + 1
}

impl ItemState {
    /// The CAS unique in a word that has the key's length above.
    const CAS_BESIDE_LENGTH: u64 = u64::MAX >> (64 - LONG_KEY_SHIFT);

    #[inline]
    pub(crate) fn load(region: &View, item: Offset, now: Seconds) -> Self {
        Self::of(region.array(item), now)
    }

    /// The header in these words.
    #[inline]
    pub(crate) fn of(words: &[impl Word; HEADER_WORDS], now: Seconds) -> Self {
        // Relaxed: read under the lock, or checked with a version afterwards.
        let [cas, life, shape] = words;
        Self::from_words([cas.load(Relaxed), life.load(Relaxed), shape.load(Relaxed)], now)
    }

    /// As [`ItemState::of`], of words that were copied.
    #[inline(always)]
    pub(crate) fn from_words([cas, life, shape]: [u64; HEADER_WORDS], now: Seconds) -> Self {
        Self { cas, life, shape, now, key_bytes: key_bytes_in(cas, shape) }
    }

    /// As [`ItemState::load`], for a place that may be garbage: `None` if it lies outside.
    pub(crate) fn try_load(region: &View, item: Offset, now: Seconds) -> Option<Self> {
        region.try_words(item, HEADER_WORDS).map(|_| Self::load(region, item, now))
    }

    #[inline]
    pub(crate) fn new(
        meta: &ItemMeta,
        cas: u64,
        key: usize,
        value: u64,
        generation: Generation,
        now: Seconds,
    ) -> Self {
        let key_bytes = key as u32;
        let shape = value << VALUE_SHIFT | u64::from(key_bytes.min(LONG_KEY)) << KEY_SHIFT;
        let length = if key_bytes < LONG_KEY { 0 } else { u64::from(key_bytes - 1) << LONG_KEY_SHIFT };
        Self { cas: length, life: 0, shape, now, key_bytes }.renewed(meta, cas, generation, now)
    }

    /// The header of a new item of the same lengths.
    #[inline]
    pub(crate) fn renewed(&self, meta: &ItemMeta, cas: u64, generation: Generation, now: Seconds) -> Self {
        let flags = if meta.stale { STALE } else { 0 } | if meta.win_sent { WIN_SENT } else { 0 };
        let sizes = self.shape & (u64::MAX << KEY_SHIFT);
        let shape = sizes | flags | generation.stamp(now);
        Self { life: meta.life(), shape, now, ..self.with_cas(cas) }
    }

    #[inline]
    pub(crate) fn with_cas(self, cas: u64) -> Self {
        let cas = if self.has_long_key() { self.cas_beside_length(cas) } else { cas };
        Self { cas, ..self }
    }

    #[cold]
    fn cas_beside_length(&self, cas: u64) -> u64 {
        self.cas & !Self::CAS_BESIDE_LENGTH | cas & Self::CAS_BESIDE_LENGTH
    }

    #[inline]
    pub(crate) fn store(&self, region: &Region, item: Offset) {
        self.store_in(region.array(item));
    }

    #[inline]
    pub(crate) fn store_in(&self, [cas, life, shape]: &[AtomicU64; HEADER_WORDS]) {
        cas.store(self.cas, Relaxed);
        life.store(self.life, Relaxed);
        shape.store(self.shape, Relaxed);
    }

    /// Client flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        flags_and_early_ms(self.life as u32, self.is_early()).0
    }

    /// As [`ItemMeta::flags_word`].
    pub fn flags_word(&self) -> (u32, bool) {
        (self.life as u32, self.is_early())
    }

    /// Milliseconds before [`ItemState::expiry`] at which it expires for readers that look at them.
    #[inline]
    pub fn early_ms(&self) -> u16 {
        flags_and_early_ms(self.life as u32, self.is_early()).1
    }

    #[inline]
    fn is_early(&self) -> bool {
        self.life & EARLY != 0
    }

    /// CAS unique.
    pub fn cas(&self) -> u64 {
        if self.has_long_key() { self.cas & Self::CAS_BESIDE_LENGTH } else { self.cas }
    }

    /// Length of the value in bytes.
    #[inline]
    pub fn value_bytes(&self) -> usize {
        (self.shape >> VALUE_SHIFT) as usize
    }

    /// When it expires, on the store's clock; 0 is never.
    pub fn expiry(&self) -> Seconds {
        (self.life >> 32) as Seconds & EXPIRY_MAX
    }

    /// True if the client sent the key encoded.
    pub fn has_encoded_key(&self) -> bool {
        self.life >> ENCODED_KEY_SHIFT != 0
    }

    /// The same item with another expiry.
    pub(crate) fn expiring(self, expiry: Seconds, early_ms: u16) -> Self {
        let meta = ItemMeta { expiry, early_ms, encoded_key: self.has_encoded_key(), ..self.meta() };
        Self { life: meta.life(), ..self }
    }

    /// True if it differs from `other`, of the same key and value, in nothing that a record on flash has.
    #[inline]
    pub(crate) fn is_same_record(&self, other: &Self) -> bool {
        let marks = STALE | WIN_SENT;
        self.cas == other.cas && self.life == other.life && (self.shape ^ other.shape) & marks == 0
    }

    /// True if it is marked as stale.
    pub fn is_stale(&self) -> bool {
        self.shape & STALE != 0
    }

    /// True if a client was given the right to recache it.
    pub fn is_win_sent(&self) -> bool {
        self.shape & WIN_SENT != 0
    }

    /// True if it was read since it was stored.
    pub fn was_fetched(&self) -> bool {
        self.shape & FETCHED != 0
    }

    /// The time of the last read or store; exact to a minute, and wrong after six idle days. The present
    /// time, if it was stored while flushes came so fast that the generation needs all bits.
    pub fn last_access(&self) -> Seconds {
        self.now.saturating_sub(self.access_age_s() as Seconds)
    }

    #[inline]
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes as usize
    }

    #[inline]
    fn has_long_key(&self) -> bool {
        self.key_bytes >= LONG_KEY
    }

    /// Neither expired nor flushed.
    #[inline]
    pub(crate) fn is_live(&self, generation: Generation) -> bool {
        !self.is_flushed(generation) && !self.is_expired()
    }

    #[inline]
    pub(crate) fn is_expired(&self) -> bool {
        // Seconds from 1 on are before the expiry; at the second itself it is gone.
        let expiry = self.expiry();
        expiry != 0 && expiry <= self.now
    }

    #[inline]
    pub(crate) fn is_flushed(&self, generation: Generation) -> bool {
        !generation.holds(self.shape)
    }

    /// True if this access should be recorded with a write.
    #[inline]
    pub(crate) fn is_access_due(&self) -> bool {
        match self.shape & (FETCHED | WHOLE) {
            // Just below the modulus: the item was read by a worker whose clock is a little ahead.
            FETCHED => (ACCESS_AGE_S..ACCESS_MASK - ACCESS_AGE_S).contains(&self.access_age_s()),
            bits => bits & FETCHED == 0,
        }
    }

    /// The shape after an access now.
    pub(crate) fn accessed(&self, now: Seconds) -> u64 {
        if self.has_whole_generation() {
            return self.shape | FETCHED;
        }
        self.shape & !ACCESS_MASK | FETCHED | u64::from(now) & ACCESS_MASK
    }

    #[inline]
    pub(crate) fn access_age_s(&self) -> u64 {
        if self.has_whole_generation() {
            return 0;
        }
        u64::from(self.now).wrapping_sub(self.shape) & ACCESS_MASK
    }

    /// True if generation bits replace the access time.
    #[inline]
    fn has_whole_generation(&self) -> bool {
        self.shape & WHOLE != 0
    }

    #[inline]
    pub(crate) fn body_words(&self) -> usize {
        words_for(self.key_bytes() + self.value_bytes())
    }

    /// The same item with another CAS unique, as a writer would say it.
    pub(crate) fn meta_with(&self, cas: u64) -> ItemMeta {
        ItemMeta {
            cas: Some(cas),
            stale: self.is_stale(),
            win_sent: self.is_win_sent(),
            encoded_key: self.has_encoded_key(),
            ..self.meta()
        }
    }

    /// The properties that a rewritten item keeps.
    pub(crate) fn meta(&self) -> ItemMeta {
        ItemMeta {
            flags: self.flags(),
            expiry: self.expiry(),
            early_ms: self.early_ms(),
            cas: None,
            stale: false,
            win_sent: false,
            encoded_key: false,
        }
    }
}

/// Words of an item, without the heap's tag.
pub(crate) fn item_words(key_bytes: usize, value_bytes: u64) -> u64 {
    (HEADER_WORDS + words_for(key_bytes + value_bytes as usize)) as u64
}

/// Where key and value begin.
#[inline]
pub(crate) fn body(item: Offset) -> Offset {
    item.plus(HEADER_WORDS as u64)
}

/// An item as a reader without a lock sees it: lengths are right, bytes are checked afterwards.
#[derive(Clone, Copy, Debug)]
pub struct ItemView<'a> {
    state: ItemState,
    words: &'a [ReadWord],
    /// Byte of `words` at which the value begins.
    at: usize,
    slot: Slot,
}

impl<'a> ItemView<'a> {
    #[inline]
    pub(crate) fn new(state: ItemState, words: &'a [ReadWord], at: usize, slot: Slot) -> Self {
        Self { state, words, at, slot }
    }

    #[inline]
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// The word that names this item in the index: with the key's hash it tells the owner of a foreign table which
    /// item was read, see [`crate::Engine::note_reads`].
    #[inline]
    pub fn slot_word(&self) -> u64 {
        self.slot.0
    }

    /// Appends the value to `out`, whose new memory is not zeroed first.
    #[inline]
    pub fn copy_value_to(&self, out: &mut Vec<u8>) {
        append_to(self.words, self.at, self.state.value_bytes(), out);
    }

    /// As [`ItemView::copy_value_to`], a part of the value alone.
    ///
    /// # Panics
    /// If it is none: see [`ItemState::value_bytes`].
    pub fn copy_part_to(&self, part: std::ops::Range<usize>, out: &mut Vec<u8>) {
        assert!(part.start <= part.end && part.end <= self.state.value_bytes(), "no part of the value");
        append_to(self.words, self.at + part.start, part.len(), out);
    }

    /// The value as a number in little-endian order, if it has eight bytes: a copy without a buffer.
    #[inline]
    pub fn value_u64(&self) -> Option<u64> {
        (self.state.value_bytes() == 8).then(|| load_u64(self.words, self.at))
    }
}

impl std::ops::Deref for ItemView<'_> {
    type Target = ItemState;

    #[inline]
    fn deref(&self) -> &ItemState {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_back() {
        let meta = ItemMeta { flags: 7, expiry: 90, stale: true, encoded_key: true, ..ItemMeta::default() };
        for key_bytes in [1, 250, 254, 255, 256, ITEM_KEY_BYTES_MAX] {
            let state = ItemState::new(&meta, 5, key_bytes, 7, Generation::FIRST, 50);
            let again = state.with_cas(6).renewed(&meta, 8, Generation::FIRST, 51);
            assert_eq!(
                [state, again].map(|state| (state.key_bytes(), state.value_bytes())),
                [(key_bytes, 7); 2]
            );
            assert_eq!((state.cas(), state.with_cas(6).cas(), again.cas()), (5, 6, 8));
        }
        let state = ItemState::new(&meta, 5, 250, VALUE_BYTES_MAX, Generation::FIRST, 50);
        assert_eq!((state.key_bytes(), state.value_bytes()), (250, VALUE_BYTES_MAX as usize));
        assert_eq!((state.flags(), state.expiry(), state.cas()), (7, 90, 5));
        assert!(state.has_encoded_key() && state.expiring(91, 0).has_encoded_key());
        assert_eq!(state.expiring(Seconds::MAX, 0).expiry(), EXPIRY_MAX);
        assert!(state.is_stale() && !state.is_win_sent() && !state.was_fetched());
        assert!(state.is_live(Generation::FIRST) && !state.is_live(Generation::FIRST.next(0)));
        assert_eq!(state.last_access(), 50);
    }

    #[test]
    fn milliseconds_are_kept_beside_small_flags() {
        let of = |flags, early_ms, expiry| {
            let meta = ItemMeta { flags, early_ms, expiry, ..ItemMeta::default() };
            let word = meta.flags_word();
            assert_eq!(meta.with_flags_word(word).flags_word(), word);
            let state = ItemState::new(&meta, 1, 1, 1, Generation::FIRST, 5);
            (state.flags(), state.early_ms(), state.expiry())
        };
        let flags_max = (1 << 22) - 1;
        assert_eq!(of(flags_max, 999, 9), (flags_max, 999, 9));
        assert_eq!(of(flags_max + 1, 999, 9), (flags_max + 1, 0, 9));
        assert_eq!(of(u32::MAX, 0, EXPIRY_MAX), (u32::MAX, 0, EXPIRY_MAX));
        assert_eq!(of(0, 1, 0), (0, 0, 0));
        let state = ItemState::new(&ItemMeta::default(), 1, 1, 1, Generation::FIRST, 5).expiring(9, 20);
        assert_eq!((state.early_ms(), state.meta().early_ms, state.expiring(10, 0).early_ms()), (20, 20, 0));
    }

    #[test]
    fn expiry_is_exact() {
        let at = |now| {
            ItemState::new(&ItemMeta { expiry: 9, ..Default::default() }, 1, 1, 1, Generation::FIRST, now)
        };
        assert!(!at(8).is_expired() && at(9).is_expired());
        let never = ItemState::new(&ItemMeta::default(), 1, 1, 1, Generation::FIRST, Seconds::MAX);
        assert!(!never.is_expired());
    }

    #[test]
    fn a_whole_generation_outlives_accesses() {
        let generation = (0..9).fold(Generation::FIRST, |generation, _| generation.next(0));
        let mut state = ItemState::new(&ItemMeta::default(), 1, 1, 1, generation, 50);
        assert!(state.is_access_due() && state.is_live(generation));
        state.shape = state.accessed(70);
        state.now = 9000;
        assert!(state.was_fetched() && state.is_live(generation) && !state.is_access_due());
        assert_eq!(state.last_access(), 9000);
    }

    #[test]
    fn accesses_are_due_when_old() {
        let mut state = ItemState::new(&ItemMeta::default(), 1, 1, 1, Generation::FIRST, 1 << 19);
        assert!(state.is_access_due());
        state.shape = state.accessed(1 << 19);
        for (later, due) in [(0, false), (59, false), (60, true), (400_000, true)] {
            state.now = (1 << 19) + later;
            assert_eq!((state.is_access_due(), state.last_access()), (due, 1 << 19), "{later}");
        }
        state.now = (1 << 19) - 3;
        assert!(!state.is_access_due());
    }
}
