//! Commands of memcached's text protocol.

use anyhow::{Context, ensure};

use super::Remote;
use crate::{
    transfer::{Connection, PATIENCE, Place},
    trust::TrustArgs,
};

const NAMES: &[&str] = &[
    "add",
    "append",
    "cas",
    "decr",
    "delete",
    "flush_all",
    "gat",
    "gats",
    "get",
    "gets",
    "incr",
    "lru_crawler metadump all",
    "ma",
    "md",
    "me",
    "mg",
    "mn",
    "ms",
    "prepend",
    "replace",
    "set",
    "stats",
    "stats items",
    "stats settings",
    "stats sizes",
    "touch",
    "verbosity",
    "version",
];
/// The commands that a value follows.
const STORES: [&[u8]; 6] = [b"set", b"add", b"replace", b"append", b"prepend", b"cas"];
/// The word that is the length of the value, in such a command and in `ms`.
const LENGTH_AT: usize = 4;
const META_LENGTH_AT: usize = 2;
/// The first words of replies that consist of more lines.
const PARTS: [&str; 5] = ["STAT", "VALUE", "PREFIX", "ITEM", "key"];
/// The meta commands, of which a `q` leaves replies out.
const METAS: [&[u8]; 5] = [b"ma", b"md", b"me", b"mg", b"ms"];
pub(super) struct Memcached {
    connection: Connection,
    names: Vec<String>,
}

impl Memcached {
    pub(super) fn connect(place: &Place, trust: &TrustArgs) -> anyhow::Result<Self> {
        let names = NAMES.iter().map(|&name| name.to_owned()).collect();
        Ok(Self { connection: Connection::open(place, trust, PATIENCE)?, names })
    }
}

impl Remote for Memcached {
    fn names(&self) -> &[String] {
        &self.names
    }

    /// Of a value that has not its length the server takes the rest for a command, or waits for more.
    fn check(&self, words: &[Vec<u8>]) -> anyhow::Result<()> {
        let Some((value, start)) = words.split_last().filter(|_| has_value(words)) else { return Ok(()) };
        if is_short(words) {
            return Ok(());
        }
        let at = if words[0] == b"ms" { META_LENGTH_AT } else { LENGTH_AT };
        let length = start.get(at).context("the length of the value is missing")?;
        let bytes = value.len();
        let said = String::from_utf8_lossy(length);
        ensure!(said.parse() == Ok(bytes), "the length is {said}, but the value has {bytes} bytes");
        Ok(())
    }

    fn execute(&mut self, words: &[Vec<u8>]) -> anyhow::Result<Vec<u8>> {
        self.connection.send(&request(words))?;
        // A quiet command may have no reply, and one that is refused two, if its value is read as another.
        let is_closed = is_quiet(words) || has_value(words);
        if is_closed {
            // Its answer comes last.
            self.connection.send(b"mn\r\n")?;
        }
        let mut reply = Vec::new();
        loop {
            let line = String::from_utf8_lossy(self.connection.line()?).into_owned();
            if is_closed && line == "MN" {
                return Ok(reply);
            }
            reply.extend_from_slice(line.as_bytes());
            reply.push(b'\n');
            let parts: Vec<_> = line.split(' ').collect();
            let announced = match parts[..] {
                ["VALUE", _, _, bytes, ..] | ["VA", bytes, ..] => bytes.parse().ok(),
                _ => None,
            };
            if let Some(bytes) = announced {
                reply.extend(self.connection.value(bytes)?);
                reply.extend(b"\r\n");
            }
            if !is_closed && !PARTS.contains(&parts[0].split('=').next().unwrap_or_default()) {
                return Ok(reply);
            }
        }
    }
}

/// True if the command may have no reply.
fn is_quiet(words: &[Vec<u8>]) -> bool {
    let has = |word: &[u8]| words[1..].iter().any(|other| other == word);
    has(b"noreply") || METAS.contains(&&words[0][..]) && has(b"q")
}

/// True if a value belongs to the command.
fn has_value(words: &[Vec<u8>]) -> bool {
    words.first().is_some_and(|name| STORES.contains(&&name[..]) || name == b"ms")
}

/// True for the short form of a store, which has two or three words behind its name: key, value, expiry.
fn is_short(words: &[Vec<u8>]) -> bool {
    matches!(words.len(), 3 | 4) && STORES.contains(&&words[0][..])
}

/// The bytes of a command.
fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let (line, value) = match words {
        [name, key, value, rest @ ..] if is_short(words) => {
            let ttl = rest.first().map_or(&b"0"[..], |ttl| ttl);
            let bytes = value.len().to_string();
            ([&name[..], key, b"0", ttl, bytes.as_bytes()].join(&b' '), Some(value))
        }
        // The value comes last.
        [start @ .., value] if has_value(words) => (start.join(&b' '), Some(value)),
        _ => (words.join(&b' '), None),
    };
    let value = value.map(|value| [&value[..], b"\r\n"].concat()).unwrap_or_default();
    [&line[..], b"\r\n", &value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_a_short_form() {
        let of = |line| String::from_utf8(request(&super::super::words(line).unwrap())).unwrap();
        assert_eq!(of("set k 'a b'"), "set k 0 0 3\r\na b\r\n");
        assert_eq!(of("add k v 60"), "add k 0 60 1\r\nv\r\n");
        assert_eq!(of("set k 5 0 2 xy"), "set k 5 0 2\r\nxy\r\n");
        assert_eq!(of("ms k 2 T0 xy"), "ms k 2 T0\r\nxy\r\n");
        assert_eq!(of("get a b"), "get a b\r\n");
    }
}
