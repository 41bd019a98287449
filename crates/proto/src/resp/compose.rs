//! Composers of replies: each appends to a buffer.

/// The version of the protocol that a client has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, which every client speaks.
    #[default]
    Two,
    /// RESP3, which has maps, sets, doubles and one null.
    Three,
}

/// `+OK`.
pub const OK: &[u8] = b"+OK\r\n";
/// The line end behind a bulk string.
pub const LINE_END: &[u8] = b"\r\n";

/// A number behind a byte that says what it counts, as a line.
#[inline]
fn head(tx: &mut Vec<u8>, kind: u8, number: i64) {
    let mut buffer = itoa::Buffer::new();
    tx.push(kind);
    tx.extend_from_slice(buffer.format(number).as_bytes());
    tx.extend_from_slice(LINE_END);
}

/// A short text, which must not hold a line end.
pub fn simple(tx: &mut Vec<u8>, text: &str) {
    tx.push(b'+');
    tx.extend_from_slice(text.as_bytes());
    tx.extend_from_slice(LINE_END);
}

/// An error: a code in capitals and words. Line ends within it become spaces, as in Redis.
pub fn error(tx: &mut Vec<u8>, text: &[u8]) {
    tx.push(b'-');
    tx.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    tx.extend_from_slice(LINE_END);
}

/// An integer.
#[inline]
pub fn integer(tx: &mut Vec<u8>, number: i64) {
    head(tx, b':', number);
}

/// What stands before the bytes of a bulk string.
#[inline]
pub fn bulk_head(tx: &mut Vec<u8>, bytes: u64) {
    head(tx, b'$', bytes as i64);
}

/// A bulk string.
#[inline]
pub fn bulk(tx: &mut Vec<u8>, bytes: &[u8]) {
    bulk_head(tx, bytes.len() as u64);
    tx.extend_from_slice(bytes);
    tx.extend_from_slice(LINE_END);
}

/// A text for people: a bulk string in RESP2.
pub fn text(tx: &mut Vec<u8>, text: &str, version: Version) {
    if version == Version::Two {
        return bulk(tx, text.as_bytes());
    }
    head(tx, b'=', text.len() as i64 + 4);
    tx.extend_from_slice(b"txt:");
    tx.extend_from_slice(text.as_bytes());
    tx.extend_from_slice(LINE_END);
}

/// A double: a bulk string in RESP2.
pub fn double(tx: &mut Vec<u8>, number: f64, version: Version) {
    let text = number.to_string();
    if version == Version::Two {
        return bulk(tx, text.as_bytes());
    }
    tx.push(b',');
    tx.extend_from_slice(text.as_bytes());
    tx.extend_from_slice(LINE_END);
}

/// The head of an array of so many elements.
#[inline]
pub fn array(tx: &mut Vec<u8>, elements: usize) {
    head(tx, b'*', elements as i64);
}

/// The head of a map of so many pairs: an array of their keys and values in RESP2.
pub fn map(tx: &mut Vec<u8>, pairs: usize, version: Version) {
    match version {
        Version::Two => head(tx, b'*', 2 * pairs as i64),
        Version::Three => head(tx, b'%', pairs as i64),
    }
}

/// The head of a set: an array in RESP2.
pub fn set(tx: &mut Vec<u8>, elements: usize, version: Version) {
    head(tx, if version == Version::Two { b'*' } else { b'~' }, elements as i64);
}

/// The head of a message that answers no command; there is none in RESP2.
pub fn push(tx: &mut Vec<u8>, elements: usize) {
    head(tx, b'>', elements as i64);
}

/// No value, where a bulk string could be.
#[inline]
pub fn null(tx: &mut Vec<u8>, version: Version) {
    tx.extend_from_slice(if version == Version::Two { b"$-1\r\n" } else { b"_\r\n" });
}

/// No value, where an array could be.
pub fn null_array(tx: &mut Vec<u8>, version: Version) {
    tx.extend_from_slice(if version == Version::Two { b"*-1\r\n" } else { b"_\r\n" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_forms() {
        let composed = |version| {
            let mut tx = Vec::new();
            map(&mut tx, 1, version);
            null(&mut tx, version);
            null_array(&mut tx, version);
            set(&mut tx, 2, version);
            double(&mut tx, 1.5, version);
            text(&mut tx, "ab", version);
            String::from_utf8(tx).unwrap().replace("\r\n", "|")
        };
        assert_eq!(composed(Version::Two), "*2|$-1|*-1|*2|$3|1.5|$2|ab|");
        assert_eq!(composed(Version::Three), "%1|_|_|~2|,1.5|=6|txt:ab|");
    }

    #[test]
    fn an_error_is_one_line() {
        let mut tx = Vec::new();
        error(&mut tx, b"ERR a\r\nb");
        integer(&mut tx, i64::MIN);
        bulk(&mut tx, b"\r\n");
        assert_eq!(tx, b"-ERR a  b\r\n:-9223372036854775808\r\n$2\r\n\r\n\r\n");
    }
}
