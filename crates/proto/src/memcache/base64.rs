//! Base64 as memcached decodes it.
//!
//! Characters outside the alphabet are skipped, and the others must come in groups of four. No library
//! decodes like that, and the keys must be those that memcached would store.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const SKIPPED: u8 = 0x80;
const DECODED: [u8; 256] = decode_table();

const fn decode_table() -> [u8; 256] {
    let mut table = [SKIPPED; 256];
    let mut index = 0;
    while index < ALPHABET.len() {
        table[ALPHABET[index] as usize] = index as u8;
        index += 1;
    }
    table[b'=' as usize] = 0;
    table
}

/// Decodes `text` into the front of `out` and returns the number of bytes written, always at least one.
///
/// `None` when `text` holds no whole groups of four, when its padding is invalid, or when `out` is too
/// short for three bytes a group.
pub fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let counted = text.iter().filter(|&&byte| DECODED[usize::from(byte)] != SKIPPED).count();
    if counted == 0 || !counted.is_multiple_of(4) || counted / 4 * 3 > out.len() {
        return None;
    }
    let mut symbols = text.iter().filter(|&&byte| DECODED[usize::from(byte)] != SKIPPED);
    let mut written = 0;
    while let (Some(a), Some(b), Some(c), Some(d)) =
        (symbols.next(), symbols.next(), symbols.next(), symbols.next())
    {
        let [w, x, y, z] = [a, b, c, d].map(|symbol| DECODED[usize::from(*symbol)]);
        let group = [(w << 2) | (x >> 4), (x << 4) | (y >> 2), (y << 6) | z];
        out[written..written + 3].copy_from_slice(&group);
        match [a, b, c, d].into_iter().filter(|&&symbol| symbol == b'=').count() {
            0 => written += 3,
            // A group with padding is the last one; any bytes may follow.
            1 => return Some(written + 2),
            2 => return Some(written + 1),
            _ => return None,
        }
    }
    Some(written)
}

/// Appends the base64 form of `bytes`, padded.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let (a, b, c) = (group[0], group.get(1).copied(), group.get(2).copied());
        let symbol = |bits: u8| ALPHABET[usize::from(bits & 0x3f)];
        let (middle, last) = (b.unwrap_or(0), c.unwrap_or(0));
        out.extend_from_slice(&[
            symbol(a >> 2),
            symbol((a << 4) | (middle >> 4)),
            if b.is_some() { symbol((middle << 2) | (last >> 6)) } else { b'=' },
            if c.is_some() { symbol(last) } else { b'=' },
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        let mut out = [0; 250];
        decode(text, &mut out).map(|bytes| out[..bytes].to_vec())
    }

    #[test]
    fn what_is_encoded_decodes() {
        for length in 1..60 {
            let bytes: Vec<u8> = (0..length).map(|index: u8| index.wrapping_mul(89)).collect();
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            assert_eq!(decoded(&text).as_deref(), Some(&bytes[..]));
        }
    }

    #[test]
    fn decodes_as_leniently_as_memcached() {
        assert_eq!(decoded(b"Zm9v").as_deref(), Some(&b"foo"[..]));
        assert_eq!(decoded(b"Z-m_9v").as_deref(), Some(&b"foo"[..]));
        assert_eq!(decoded(b"Zm8=Zm9v").as_deref(), Some(&b"fo"[..]));
        assert_eq!(decoded(b"Zg==").as_deref(), Some(&b"f"[..]));
    }

    #[test]
    fn refuses_what_memcached_refuses() {
        for text in [&b""[..], b"Zm9", b"----", b"Z===", b"====", b"Zm9vZ"] {
            assert_eq!(decoded(text), None, "{text:?}");
        }
        assert_eq!(decode(b"Zm9v", &mut [0; 2]), None);
    }
}
