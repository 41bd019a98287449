//! The list of a memcached server's keys.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Seek, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{BATCH_BYTES, Connection, PATIENCE, Place, TELL_EVERY, memcached::is_nameable};
use crate::trust::TrustArgs;

/// Keys asked for at once.
const KEYS_AT_ONCE: usize = 200;
/// Times that a server is asked for its keys, which lists them to one client at a time.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);
/// The list along the hash table names each item that is there all the time.
const LIST_BY_HASH: &str = "hash";
/// The list along memcached's queues of items by age leaves out some that move meanwhile. Memcached before 1.6.9 has
/// no other.
const LIST_BY_AGE: &str = "all";

/// The keys of a server, in a file without a name.
///
/// The list is read to its end before anything else is asked: memcached holds a lock of its items while it waits for
/// whoever reads its list, and until then others wait for that lock.
pub(super) struct KeyList {
    lines: BufReader<File>,
    line: Vec<u8>,
    /// Keys that no command can name: the protocol's keys are shorter, once they are encoded.
    pub(super) nameless: u64,
}

impl KeyList {
    /// The keys that a server lists.
    pub(super) fn of(place: &Place, trust: &TrustArgs) -> anyhow::Result<Self> {
        let mut list = LIST_BY_HASH;
        for _ in 0..ATTEMPTS {
            let mut server = Connection::open(place, trust, PATIENCE)?;
            server.send(format!("lru_crawler metadump {list}\r\n").as_bytes())?;
            // The first line alone tells whether there is a list.
            let line = server.line()?;
            if line.starts_with(b"key=") || line == b"END" {
                return Self::read(server);
            }
            let line = String::from_utf8_lossy(line).into_owned();
            if line.starts_with("BUSY") {
                thread::sleep(PAUSE);
            } else if list == LIST_BY_HASH {
                list = LIST_BY_AGE;
            } else {
                bail!("the server lists no keys (lru_crawler metadump): {line}");
            }
        }
        bail!("another client is listing the server's keys")
    }

    /// Reads the list behind its first line.
    fn read(mut server: Connection) -> anyhow::Result<Self> {
        let file = tempfile::tempfile().context("a temporary file for the list of keys")?;
        let (mut file, mut keys, mut told) = (BufWriter::new(file), 0_u64, Instant::now());
        while server.last_line() != b"END" {
            file.write_all(server.last_line())?;
            file.write_all(b"\n")?;
            keys += 1;
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                eprintln!("{keys} keys listed");
            }
            server.line()?;
        }
        let mut file = file.into_inner()?;
        file.rewind()?;
        Ok(Self { lines: BufReader::new(file), line: Vec::new(), nameless: 0 })
    }

    /// The next keys whose values are asked for together; none at the end.
    pub(super) fn next(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while keys.len() < KEYS_AT_ONCE && bytes < BATCH_BYTES {
            self.line.clear();
            if self.lines.read_until(b'\n', &mut self.line)? == 0 {
                break;
            }
            let mut words = self.line.trim_ascii_end().split(|&byte| byte == b' ');
            let encoded = words.next().and_then(|word| word.strip_prefix(b"key="));
            let encoded = encoded.context("a line of the list names no key")?;
            let key = decoded(encoded).context("a key of the list is badly encoded")?;
            let size = words.find_map(|word| word.strip_prefix(b"size="));
            bytes += size.and_then(|size| std::str::from_utf8(size).ok()?.parse::<u64>().ok()).unwrap_or(0);
            if is_nameable(&key) {
                keys.push(key);
            } else {
                self.nameless += 1;
            }
        }
        Ok(keys)
    }
}

/// Resolves percent-encoding.
fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((&byte, behind)) = rest.split_first() {
        if byte != b'%' {
            key.push(byte);
            rest = behind;
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2)?;
        key.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::{super::word_of, *};

    #[test]
    fn keys_are_encoded_where_they_must() {
        assert_eq!(word_of(b"a\xff"), (b"a\xff".to_vec(), &b""[..]));
        assert_eq!(word_of(b"a b"), (b"YSBi".to_vec(), &b" b"[..]));
        assert_eq!(decoded(b"a%20b%FF"), Some(b"a b\xff".to_vec()));
        for bad in [&b"%"[..], b"%2", b"%zz"] {
            assert_eq!(decoded(bad), None);
        }
    }
}
