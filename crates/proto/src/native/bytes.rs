//! Little-endian numbers at known places.

use super::Malformed;

#[inline]
pub(super) fn head<const N: usize>(bytes: &[u8], fault: Malformed) -> Result<(&[u8; N], &[u8]), Malformed> {
    bytes.split_first_chunk().ok_or(fault)
}

/// A `u16` at `at`, which lies within `bytes`.
#[inline]
pub(super) fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

/// A `u32` at `at`, which lies within `bytes`.
#[inline]
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

/// A `u64` at `at`, which lies within `bytes`.
#[inline]
pub(super) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

/// Writes `field` at `at`; both lie within `bytes`.
#[inline]
pub(super) fn put<const N: usize, const M: usize>(bytes: &mut [u8; N], at: usize, field: [u8; M]) {
    bytes[at..at + M].copy_from_slice(&field);
}

#[inline]
fn part<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    let mut part = [0; M];
    part.copy_from_slice(&bytes[at..at + M]);
    part
}
