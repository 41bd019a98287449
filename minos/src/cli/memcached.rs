//! Commands of memcached's text protocol.

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

    fn execute(&mut self, words: &[Vec<u8>]) -> anyhow::Result<Vec<u8>> {
        self.connection.send(&request(words))?;
        let is_quiet = is_quiet(words);
        if is_quiet {
            // Its answer comes last, where there may be no other.
            self.connection.send(b"mn\r\n")?;
        }
        let mut reply = Vec::new();
        loop {
            let line = String::from_utf8_lossy(self.connection.line()?).into_owned();
            if is_quiet && line == "MN" {
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
            if !is_quiet && !PARTS.contains(&parts[0].split('=').next().unwrap_or_default()) {
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

/// The bytes of a command. A store of two or three words behind its name is the short form: key, value, expiry.
fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let is_store = STORES.contains(&&words[0][..]);
    let (line, value) = match words {
        [name, key, value, rest @ ..] if is_store && rest.len() <= 1 => {
            let ttl = rest.first().map_or(&b"0"[..], |ttl| ttl);
            let bytes = value.len().to_string();
            ([&name[..], key, b"0", ttl, bytes.as_bytes()].join(&b' '), Some(value))
        }
        // The value comes last.
        [start @ .., value] if is_store || words[0] == b"ms" => (start.join(&b' '), Some(value)),
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
