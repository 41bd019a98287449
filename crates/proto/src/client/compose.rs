//! Requests.

use super::Protocol;

/// Appends a request for the values of `keys`, which must not be empty.
///
/// One key makes a plain `get` or `GET`, several make one multi-get.
pub fn compose_get<'k>(protocol: Protocol, out: &mut Vec<u8>, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
    match protocol {
        Protocol::Memcache => {
            out.extend_from_slice(b"get");
            for key in keys {
                out.push(b' ');
                out.extend_from_slice(key);
            }
            out.extend_from_slice(b"\r\n");
        }
        Protocol::Resp => {
            let count = keys.len();
            length(out, b'*', count as u64 + 1);
            bulk(out, if count == 1 { b"GET" } else { b"MGET" });
            for key in keys {
                bulk(out, key);
            }
        }
    }
}

/// Appends everything of a SET that goes before the value. `value_bytes` of value and then
/// [`compose_set_tail`] must follow.
pub fn compose_set_head(protocol: Protocol, out: &mut Vec<u8>, key: &[u8], value_bytes: u64) {
    match protocol {
        Protocol::Memcache => {
            out.extend_from_slice(b"set ");
            out.extend_from_slice(key);
            out.extend_from_slice(b" 0 0 ");
            number(out, value_bytes);
            out.extend_from_slice(b"\r\n");
        }
        Protocol::Resp => {
            length(out, b'*', 3);
            bulk(out, b"SET");
            bulk(out, key);
            length(out, b'$', value_bytes);
        }
    }
}

/// Appends the bytes after the value of a SET; the same in both protocols.
pub fn compose_set_tail(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn length(out: &mut Vec<u8>, mark: u8, value: u64) {
    out.push(mark);
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn get(protocol: Protocol, keys: &[&str]) -> String {
        composed(|out| compose_get(protocol, out, keys.iter().map(|key| key.as_bytes())))
    }

    #[test]
    fn memcache_requests() {
        assert_eq!(get(Protocol::Memcache, &["a"]), "get a\r\n");
        assert_eq!(get(Protocol::Memcache, &["a", "bc"]), "get a bc\r\n");
        let set = composed(|out| compose_set_head(Protocol::Memcache, out, b"key", 12));
        assert_eq!(set, "set key 0 0 12\r\n");
    }

    #[test]
    fn resp_requests() {
        assert_eq!(get(Protocol::Resp, &["abc"]), "*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n");
        assert_eq!(get(Protocol::Resp, &["a", "b"]), "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n");
        let set = composed(|out| {
            compose_set_head(Protocol::Resp, out, b"key", 2);
            out.extend_from_slice(b"xy");
            compose_set_tail(out);
        });
        assert_eq!(set, "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\nxy\r\n");
    }
}
