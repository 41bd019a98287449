//! The replies to reads of one key that are on the way to its owner, but for which this node has found out what the owner
//! would answer.

use minos_base::{KeyHash, Seconds};
use minos_proto::memcache::{Get, KeyBuffer, Limits, Parsed, Reply, Request, parse, text};

use super::{get::ValueLine, meta_get::MetaGet};
use crate::ops::{Facts, Head as _, Lookup};

/// The lookup of a key that is not looked up here.
const NOT_HERE: Lookup<'_> = Lookup { hash: KeyHash(0), staged: None, owner: None, staged_there: None };

/// A read of one key, in the words that nodes use.
pub(crate) struct ReadOfOne<'a> {
    request: Get<'a>,
    reply: Reply<'a>,
}

impl<'a> ReadOfOne<'a> {
    /// The read that `command` is; `None` if it is something else.
    pub(crate) fn of(command: &'a [u8]) -> Option<Self> {
        let Parsed::Request { command, .. } = parse(command, &Limits::default()) else { return None };
        let request = match command.request {
            Request::Get(get) => get,
            _ => return None,
        };
        Some(Self { request, reply: command.reply })
    }

    /// The key.
    pub(crate) fn key<'k>(&self, buffer: &'k mut KeyBuffer) -> &'k [u8]
    where
        'a: 'k,
    {
        self.request.key.bytes(buffer)
    }

    /// The reply if there is an item with these facts, whose value `copy_value` appends, or none; `None` if only the owner
    /// can tell.
    pub(crate) fn reply(
        &self,
        now: Seconds,
        found: Option<&Facts>,
        copy_value: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let (mut buffer, mut tx) = (KeyBuffer::default(), Vec::new());
        let key = self.request.key.bytes(&mut buffer);
        match (self.reply, found) {
            (Reply::Classic { .. }, None) => tx.extend_from_slice(text::END),
            (Reply::Classic { with_cas, .. }, Some(facts)) => {
                ValueLine { with_cas }.compose(key, facts, &mut tx);
                copy_value(&mut tx);
                tx.extend_from_slice(text::VALUE_END);
            }
            (Reply::Meta { flags, quiet }, found) => {
                let get = MetaGet::new(&self.request, NOT_HERE, key, flags, quiet);
                match found {
                    Some(facts) if facts.is_marked() => return None,
                    Some(facts) => {
                        get.compose(now, facts, &mut tx, copy_value);
                        tx.extend_from_slice(text::LINE_END);
                    }
                    None => get.compose_miss(&mut tx),
                }
            }
        }
        Some(tx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply with an item of the value `hi`, and without.
    fn replies(command: &str) -> Option<[String; 2]> {
        let read = ReadOfOne::of(command.as_bytes())?;
        let mut buffer = KeyBuffer::default();
        assert_eq!(read.key(&mut buffer), b"k");
        let facts = Facts { value_bytes: 2, flags: 7, cas: 9, ..Facts::default() };
        let hit = read.reply(1, Some(&facts), |tx| tx.extend_from_slice(b"hi"));
        let miss = read.reply(1, None, |_| panic!("there is no value"));
        Some([hit, miss].map(|reply| String::from_utf8(reply.unwrap()).unwrap()))
    }

    #[test]
    fn reads_of_one_key_are_answered_as_their_owner_would() {
        for (command, hit, miss) in [
            ("get k\r\n", "VALUE k 7 2\r\nhi\r\nEND\r\n", "END\r\n"),
            ("gets k\r\n", "VALUE k 7 2 9\r\nhi\r\nEND\r\n", "END\r\n"),
            ("mg k v f c\r\n", "VA 2 f7 c9\r\nhi\r\n", "EN\r\n"),
            ("mg k s k Oa\r\n", "HD s2 kk Oa\r\n", "EN kk Oa\r\n"),
            ("mg aw== b v q\r\n", "VA 2\r\nhi\r\n", ""),
        ] {
            assert_eq!(replies(command), Some([hit, miss].map(str::to_owned)), "{command}");
        }
        let marked = Facts { stale: true, ..Facts::default() };
        let read = ReadOfOne::of(b"mg k v\r\n").unwrap();
        assert!(read.reply(1, Some(&marked), |_| {}).is_none());
    }

    #[test]
    fn nothing_else_is_read() {
        for command in ["set k 0 0 1\r\nx\r\n", "get k", "get k l\r\n", "delete k\r\n", "mn\r\n", "\x01", ""]
        {
            assert!(replies(command).is_none(), "{command}");
        }
    }
}
