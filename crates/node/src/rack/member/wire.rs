//! The bytes in which an owner shows its items to a node of another machine. Numbers are little-endian; a list has its
//! length, u32, before it.
//!
//! ```text
//! | request: kind u8 | its fields in the order of their declaration |
//! | reply: lost micro-shards | answered u32 | is last u8 | items |
//! | item: tag u32 | flags u32 | expiry u32 | CAS unique u64 | marks u8 | bytes of the value u64 | key | part |
//! ```

use std::io;

use minos_base::limits::KEY_BYTES_MAX;
use minos_engine::ItemMeta;

/// Most bytes of a request: a walk through all micro-shards of the largest rack.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of a reply: see [`super::showing`].
pub(super) const REPLY_BYTES_MAX: u32 = 1 << 19;

const WALK: u8 = 0;
const MORE: u8 = 1;
const KEYS: u8 = 2;
const PIECE: u8 = 3;
const STALE: u8 = 1;
const WIN_SENT: u8 = 2;
const ENCODED_KEY: u8 = 4;
/// Its flags share their word with milliseconds.
const EARLY: u8 = 8;

/// A micro-shard, and the epoch in which the asked node became its owner.
pub(super) type Owned = (u32, u32);

/// Hashes of keys of one micro-shard.
pub(super) type Group = (Owned, Vec<u64>);

/// What is asked of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// All items of these micro-shards, of which the first come with the reply.
    Walk(Vec<Owned>),
    /// The next items of the walk.
    More,
    /// The items with these hashes, of several micro-shards.
    Keys(Vec<Group>),
    /// Bytes of the value of this key, from a position on.
    Piece(Owned, u64, Vec<u8>),
}

/// What an owner answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// Micro-shards that the owner did not own, under their epoch, while it read: nothing of them counts.
    pub(super) lost: Vec<u32>,
    /// The first of the hashes, of all groups in turn, all of whose items are there.
    pub(super) answered: u32,
    /// The walk is over.
    pub(super) is_last: bool,
    pub(super) items: Vec<Item>,
}

/// An item as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Its micro-shard in a walk, or the position of its hash.
    pub(super) tag: u32,
    /// Its expiry is on the owner's clock.
    pub(super) meta: ItemMeta,
    /// Length of the value.
    pub(super) value_bytes: u64,
    pub(super) key: Vec<u8>,
    /// The value, or a piece of it; none of a large one that is not asked for by its key.
    pub(super) part: Vec<u8>,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Walk(wanted) => {
                bytes.push(WALK);
                put(&mut bytes, wanted.len());
                wanted.iter().for_each(|owned| put_owned(&mut bytes, *owned));
            }
            Self::More => bytes.push(MORE),
            Self::Keys(groups) => {
                bytes.push(KEYS);
                put(&mut bytes, groups.len());
                for (owned, hashes) in groups {
                    put_owned(&mut bytes, *owned);
                    put(&mut bytes, hashes.len());
                    hashes.iter().for_each(|hash| bytes.extend(hash.to_le_bytes()));
                }
            }
            Self::Piece(owned, from, key) => {
                bytes.push(PIECE);
                put_owned(&mut bytes, *owned);
                bytes.extend(from.to_le_bytes());
                put(&mut bytes, key.len());
                bytes.extend(key);
            }
        }
        bytes
    }

    /// The request with these bytes. It takes memory in proportion to them.
    ///
    /// # Errors
    /// They are none.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut rest = Rest(bytes);
        let request = match rest.byte()? {
            WALK => Self::Walk(rest.list(Rest::owned)?),
            MORE => Self::More,
            KEYS => Self::Keys(rest.list(Rest::group)?),
            PIECE => Self::Piece(rest.owned()?, rest.long()?, rest.key()?),
            _ => return Err(malformed()),
        };
        rest.end().map(|()| request)
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.lost.len());
        self.lost.iter().for_each(|lost| bytes.extend(lost.to_le_bytes()));
        bytes.extend(self.answered.to_le_bytes());
        bytes.push(self.is_last.into());
        put(&mut bytes, self.items.len());
        self.items.iter().for_each(|item| put_item(&mut bytes, item));
        bytes
    }

    /// The reply with these bytes. It takes memory in proportion to them.
    ///
    /// # Errors
    /// They are none.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut rest = Rest(bytes);
        let reply = Self {
            lost: rest.list(Rest::number)?,
            answered: rest.number()?,
            is_last: rest.byte()? != 0,
            items: rest.list(Rest::item)?,
        };
        rest.end().map(|()| reply)
    }
}

fn put(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend((length as u32).to_le_bytes());
}

fn put_owned(bytes: &mut Vec<u8>, (micro_shard, epoch): Owned) {
    bytes.extend(micro_shard.to_le_bytes());
    bytes.extend(epoch.to_le_bytes());
}

fn put_item(bytes: &mut Vec<u8>, Item { tag, meta, value_bytes, key, part }: &Item) {
    let (flags, is_early) = meta.flags_word();
    let marks =
        [(meta.stale, STALE), (meta.win_sent, WIN_SENT), (meta.encoded_key, ENCODED_KEY), (is_early, EARLY)];
    bytes.extend(tag.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(meta.expiry.to_le_bytes());
    bytes.extend(meta.cas.unwrap_or_default().to_le_bytes());
    bytes.push(marks.iter().map(|(is_set, mark)| if *is_set { *mark } else { 0 }).sum());
    bytes.extend(value_bytes.to_le_bytes());
    for piece in [key, part] {
        put(bytes, piece.len());
        bytes.extend(piece);
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no message about items")
}

/// The bytes that are left.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn number(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn owned(&mut self) -> io::Result<Owned> {
        Ok((self.number()?, self.number()?))
    }

    fn group(&mut self) -> io::Result<Group> {
        Ok((self.owned()?, self.list(Rest::long)?))
    }

    fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken.to_vec())
    }

    fn key(&mut self) -> io::Result<Vec<u8>> {
        self.bytes().and_then(|key| match key.len() {
            1..=KEY_BYTES_MAX => Ok(key),
            _ => Err(malformed()),
        })
    }

    fn item(&mut self) -> io::Result<Item> {
        let (tag, flags, expiry, cas) = (self.number()?, self.number()?, self.number()?, self.long()?);
        let marks = self.byte()?;
        let is_marked = |mark| marks & mark != 0;
        let meta = ItemMeta {
            expiry,
            cas: Some(cas),
            stale: is_marked(STALE),
            win_sent: is_marked(WIN_SENT),
            encoded_key: is_marked(ENCODED_KEY),
            ..ItemMeta::default()
        };
        let meta = meta.with_flags_word((flags, is_marked(EARLY)));
        Ok(Item { tag, meta, value_bytes: self.long()?, key: self.key()?, part: self.bytes()? })
    }

    /// Memory is taken as items are read, so that a length alone takes none.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let length = self.number()?;
        let mut list = Vec::new();
        for _ in 0..length {
            list.push(item(self)?);
        }
        Ok(list)
    }

    fn end(self) -> io::Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    #[test]
    fn messages_come_as_they_were_sent_and_no_part_of_one_is_one() {
        let meta = ItemMeta {
            flags: 1,
            expiry: 2,
            early_ms: 4,
            cas: Some(3),
            stale: true,
            encoded_key: true,
            ..ItemMeta::default()
        };
        let item = Item { tag: 4, meta, value_bytes: 5, key: vec![6], part: vec![7; 5] };
        let reply = Reply { lost: vec![8], answered: 9, is_last: true, items: vec![item.clone(), item] };
        let bytes = reply.encode();
        assert_eq!(Reply::decode(&bytes).unwrap(), reply);
        assert!((0..bytes.len()).all(|cut| Reply::decode(&bytes[..cut]).is_err()));
        let keys = Request::Keys(vec![((1, 2), vec![3, 4]), ((5, 6), vec![]), ((7, 8), vec![9])]);
        for request in
            [Request::Walk(vec![(1, 2), (3, 4)]), Request::More, keys, Request::Piece((1, 2), 3, b"k".into())]
        {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes).unwrap(), request);
            assert!((0..bytes.len()).all(|cut| Request::decode(&bytes[..cut]).is_err()));
        }
        assert!(Request::decode(&Request::Piece((1, 2), 3, vec![b'k'; KEY_BYTES_MAX + 1]).encode()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in vec(any::<u8>(), 0..200)) {
            let _ = (Request::decode(&bytes), Reply::decode(&bytes));
        }
    }
}
