//! Bytes in shared memory, touched only as whole aligned words with relaxed atomics.
//!
//! A reader that races with a writer reads garbage, which a version check makes it throw away; it
//! never is undefined behaviour. Compilers turn these loops into plain moves of eight bytes.

use crate::{
    facade::{AtomicU64, Ordering},
    word::Word,
};
use std::mem::MaybeUninit;

/// Bytes of a word.
pub const WORD_BYTES: usize = 8;

/// The number of words that hold `bytes`.
#[inline]
pub const fn words_for(bytes: usize) -> usize {
    // The sum would only overflow for more than there is memory; `div_ceil` takes that into account.
    (bytes + (WORD_BYTES - 1)) >> WORD_BYTES.ilog2()
}

/// Appends `len` bytes from `words`, beginning `at` bytes inside, to `out`.
///
/// New memory of `out` is not zeroed first. Only whole words are written, up to seven bytes more than are
/// asked for, because that is faster than a copy of the right length.
///
/// # Panics
/// If `words` holds fewer bytes.
#[inline]
pub fn append_to(words: &[impl Word], at: usize, len: usize, out: &mut Vec<u8>) {
    let (words, shift) = (&words[at / WORD_BYTES..words_for(at + len)], at % WORD_BYTES);
    let Some((first, rest)) = words.split_first().filter(|_| len > 0) else { return };
    out.reserve(len + WORD_BYTES - 1);
    let spare = out.spare_capacity_mut();
    // In little-endian order, the bytes before the shift are the low ones.
    let first = u64::from_le_bytes(load(first)) >> (shift * 8);
    write_bytes(&mut spare[..WORD_BYTES], &first.to_le_bytes());
    let spare = &mut spare[WORD_BYTES - shift..len + WORD_BYTES - 1];
    for (chunk, word) in spare.chunks_exact_mut(WORD_BYTES).zip(rest) {
        write_bytes(chunk, &load(word));
    }
    // SAFETY: the `len` bytes lie within the capacity. The first word has written the first
    // `WORD_BYTES - shift` of them, and each word of the rest the next `WORD_BYTES`: there are
    // `words_for(shift + len) - 1` of those, and as many chunks.
    unsafe { out.set_len(out.len() + len) };
}

/// The eight bytes of `words`, beginning `at` bytes inside, as a number in little-endian order.
///
/// # Panics
/// If `words` holds fewer bytes.
#[inline(always)]
pub fn load_u64(words: &[impl Word], at: usize) -> u64 {
    if !at.is_multiple_of(WORD_BYTES) {
        return load_u64_across(words, at);
    }
    u64::from_le_bytes(load(&words[at / WORD_BYTES]))
}

/// The same where they lie in two words. A call, because most keys before a value end with a word.
#[inline(never)]
fn load_u64_across(words: &[impl Word], at: usize) -> u64 {
    let shift = at % WORD_BYTES * 8;
    let [low, high] = [0, 1].map(|word| u64::from_le_bytes(load(&words[at / WORD_BYTES + word])));
    low >> shift | high << (64 - shift)
}

/// Copies `bytes` into `words`, beginning `at` bytes inside; other bytes of the words are kept.
///
/// The caller is the only writer of these words. Readers may race with it.
///
/// # Panics
/// If `words` has no room.
// A call would cost a store of a small value a tenth more instructions.
#[inline(always)]
pub fn copy_in(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (words, shift) = (&words[at / WORD_BYTES..words_for(at + bytes.len())], at % WORD_BYTES);
    let (head, body) = bytes.split_at(head_len(shift, bytes.len()));
    let mut words = words.iter();
    if !head.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, shift, head);
    }
    let (whole, tail) = body.as_chunks::<WORD_BYTES>();
    for (bytes, word) in whole.iter().zip(&mut words) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !tail.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, 0, tail);
    }
}

/// True if `words` begin with `key`.
///
/// # Panics
/// If `words` holds fewer bytes.
#[inline]
pub fn eq_key(words: &[impl Word], key: &[u8]) -> bool {
    let (whole, tail) = key.as_chunks::<WORD_BYTES>();
    let (first, rest) = words.split_at(whole.len());
    if first.iter().zip(whole).any(|(word, bytes)| load(word) != *bytes) {
        return false;
    }
    tail.is_empty() || load(&rest[0])[..tail.len()] == *tail
}

/// Length of the part before the first word boundary; 0 when it begins on one.
#[inline]
fn head_len(shift: usize, len: usize) -> usize {
    if shift == 0 { 0 } else { len.min(WORD_BYTES - shift) }
}

#[inline]
fn load(word: &impl Word) -> [u8; WORD_BYTES] {
    // Relaxed: `version` has the orderings of data against its version.
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Fills `out` from the beginning of `bytes`.
#[inline]
fn write_bytes(out: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    for (out, byte) in out.iter_mut().zip(bytes) {
        out.write(*byte);
    }
}

/// Replaces some bytes of one word.
#[inline]
fn merge(word: &AtomicU64, shift: usize, bytes: &[u8]) {
    let mut merged = load(word);
    merged[shift..][..bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn memory(bytes: &[u8]) -> Vec<AtomicU64> {
        let words: Vec<_> = (0..words_for(bytes.len())).map(|_| AtomicU64::new(0)).collect();
        copy_in(&words, 0, bytes);
        words
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| at as u8 ^ 0x5a).collect()
    }

    #[test]
    fn copies_out_at_every_shift_and_length() {
        let bytes = pattern(64);
        let words = memory(&bytes);
        for at in 0..24 {
            for len in 0..=64 - at {
                let mut out = vec![7];
                append_to(&words, at, len, &mut out);
                assert_eq!(out[1..], bytes[at..at + len], "{at} {len}");
                assert_eq!(eq_key(&words, &bytes[at..at + len]), at == 0 || len == 0);
            }
        }
    }

    #[test]
    fn numbers_come_from_every_shift() {
        let bytes = pattern(24);
        let words = memory(&bytes);
        for at in 0..=16 {
            let expected = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            assert_eq!(load_u64(&words, at), expected, "{at}");
        }
    }

    #[test]
    fn copies_in_at_every_shift_and_length_and_keeps_the_rest() {
        for at in 0..24 {
            for len in 0..=40 - at {
                let mut expected = pattern(40);
                let words = memory(&expected);
                expected[at..at + len].fill(0xee);
                copy_in(&words, at, &vec![0xee; len]);
                let mut out = Vec::new();
                append_to(&words, 0, 40, &mut out);
                assert_eq!(out, expected, "{at} {len}");
            }
        }
    }

    #[test]
    fn one_differing_byte_is_noticed_anywhere() {
        let bytes = pattern(40);
        let words = memory(&bytes);
        for differing in 0..40 {
            let mut other = bytes.clone();
            other[differing] ^= 1;
            assert!(!eq_key(&words, &other), "{differing}");
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn reading_past_the_end_panics() {
        append_to(&memory(&[0; 16]), 1, 16, &mut Vec::new());
    }
}
