//! Integers in byte slices. The callers have checked the lengths.

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The low bytes of a word, by their number.
const MASKS: [u64; 9] =
    [0, 0xff, 0xffff, 0xff_ffff, u32::MAX as u64, (1 << 40) - 1, (1 << 48) - 1, (1 << 56) - 1, u64::MAX];

/// Bytes that a number takes without the zeros at its high end.
#[inline]
pub(super) fn width_of(value: u64) -> usize {
    8 - value.leading_zeros() as usize / 8
}

/// The number in the `width` bytes at `at`, at most 8.
#[inline]
pub(super) fn uint_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    if at + 8 <= bytes.len() {
        return u64_at(bytes, at) & MASKS[width];
    }
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(word)
}

/// Puts the number into the `width` bytes at `at`. Returns the offset behind them.
#[inline]
pub(super) fn put_uint(bytes: &mut [u8], at: usize, value: u64, width: usize) -> usize {
    put(bytes, at, &value.to_le_bytes()[..width]);
    at + width
}

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[inline]
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
