//! Keys of drawn items.

/// 64 characters that may stand in a key of any protocol.
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/// Shortest key that is drawn, in bytes: 16 M items fit.
pub(super) const KEY_BYTES_MIN: usize = 4;

/// Appends the key of item `index`, `key_bytes` long: its number to the base of 64, padded in front.
pub(super) fn write_key(index: u64, key_bytes: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + key_bytes, DIGITS[0]);
    let mut rest = index;
    for byte in out[begin..].iter_mut().rev() {
        *byte = DIGITS[(rest & 63) as usize];
        rest >>= 6;
    }
}

/// How many items have different keys of `key_bytes`.
pub(super) fn key_count_max(key_bytes: usize) -> u64 {
    if key_bytes < 11 { 1 << (6 * key_bytes) } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(index: u64, key_bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_key(index, key_bytes, &mut out);
        out
    }

    #[test]
    fn keys_differ_and_have_their_length() {
        let keys: HashSet<_> =
            (0..5000).chain(key_count_max(4) - 10..key_count_max(4)).map(|i| key(i, 4)).collect();
        assert_eq!(keys.len(), 5010);
        assert!(keys.iter().all(|key| key.len() == 4));
        assert_eq!(key(64, 8), b"00000010");
        assert_eq!(key(u64::MAX, 128).len(), 128);
        assert_ne!(key(u64::MAX, 16), key(u64::MAX - 1, 16));
        assert_ne!(key(u64::MAX, 11), key(u64::MAX >> 1, 11));
    }
}
