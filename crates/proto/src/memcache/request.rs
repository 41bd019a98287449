//! Requests, their keys and words: the meaning of each part, without the form of the reply.

use minos_base::{Exptime, StatsGroup, StoreKind, limits::KEY_BYTES_MAX};

use super::base64;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Read one item.
    Get(Get<'a>),
    /// Read any number of items in one request.
    GetMany(GetMany<'a>),
    /// Store a value.
    Store(Store<'a>),
    /// Count up or down.
    Arithmetic(Arithmetic<'a>),
    /// Remove an item or mark it stale.
    Delete(Delete<'a>),
    /// Give an item another expiry.
    Touch(Touch<'a>),
    /// Describe an item for a person.
    Debug {
        /// The item's key.
        key: Key<'a>,
    },
    /// Drop everything that is stored by the time the delay has passed.
    FlushAll {
        /// When, as a client writes an expiry; zero and less is now.
        delay: Exptime,
    },
    /// Report counters or settings.
    Stats(StatsGroup),
    /// Count commands by the prefix of their keys, or report the counts.
    StatsDetail(StatsDetail),
    /// List the items in memory, without their values.
    Metadump,
    /// Report the server's version.
    Version,
    /// Log more, or less.
    Verbosity {
        /// Level from 0; numbers above the highest level mean the highest.
        level: u32,
    },
    /// Change the memory limit.
    MemoryLimit {
        /// The limit asked for, in MiB.
        mebibytes: u32,
    },
    /// Answer, and do nothing else.
    NoOp,
    /// Close this connection.
    Quit,
    /// End the server.
    Shutdown(ShutdownMode),
}

impl<'a> Request<'a> {
    /// True if the request may change an item beyond the traces of an access.
    #[inline]
    pub fn may_change(&self) -> bool {
        match self {
            Self::Get(get) => get.touch.is_some() || get.vivify.is_some(),
            Self::GetMany(many) => many.touch.is_some(),
            Self::Store(_)
            | Self::Arithmetic(_)
            | Self::Delete(_)
            | Self::Touch(_)
            | Self::FlushAll { .. } => true,
            _ => false,
        }
    }

    /// The key, or the first of several, so that its bucket can be fetched early.
    #[inline]
    pub fn key(&self) -> Option<Key<'a>> {
        match self {
            Self::Get(get) => Some(get.key),
            Self::GetMany(many) => many.keys.clone().next().map(Key::Plain),
            Self::Store(store) => Some(store.key),
            Self::Arithmetic(arithmetic) => Some(arithmetic.key),
            Self::Delete(delete) => Some(delete.key),
            Self::Touch(touch) => Some(touch.key),
            Self::Debug { key } => Some(*key),
            _ => None,
        }
    }
}

/// Read one item, with the changes that may go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The item's key.
    pub key: Key<'a>,
    /// Expiry to give to the item.
    pub touch: Option<Exptime>,
    /// On a miss, make an empty item with this expiry, and tell the client to fill it.
    pub vivify: Option<Exptime>,
    /// Tell one client to store anew an item that expires before this.
    pub recache: Option<Exptime>,
    /// True if the access leaves no trace in the item.
    pub unseen: bool,
}

impl<'a> Get<'a> {
    /// A read of `key` that changes nothing but the traces of the access.
    pub fn plain(key: Key<'a>) -> Self {
        Self { key, touch: None, vivify: None, recache: None, unseen: false }
    }
}

/// Read any number of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMany<'a> {
    /// Their keys, plain, each short enough. There may be none.
    pub keys: Tokens<'a>,
    /// Expiry to give to each item.
    pub touch: Option<Exptime>,
    /// Behind these keys stands one that is too long. The items are accessed all the same, and then the
    /// reply is an error and nothing else.
    pub ends_badly: bool,
}

/// Store a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The condition, and the way: as a whole or as a part.
    pub kind: StoreKind,
    /// The item's key.
    pub key: Key<'a>,
    /// Flags that the store keeps for the client.
    pub flags: u32,
    /// When the item expires.
    pub exptime: Exptime,
    /// Store only over an item with this CAS unique; 0 matches none and, except for
    /// [`StoreKind::Compare`], asks for no comparison.
    pub unique: u64,
    /// With [`StoreKind::Compare`]: store over an item with a larger unique too, and mark the result
    /// stale.
    pub invalidate: bool,
    /// The value, as far as it has arrived.
    pub value: Value<'a>,
}

/// The value of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// All of it, without the line end that follows it.
    Whole(&'a [u8]),
    /// Its end has not arrived yet.
    Pending {
        /// Length of the value, in bytes, without the line end that follows it.
        bytes: u64,
    },
    /// Larger than the server allows.
    TooLarge {
        /// Length of the value, in bytes, without the line end that follows it.
        bytes: u64,
    },
}

impl Value<'_> {
    /// Length of the value in bytes, arrived or not.
    pub fn bytes(&self) -> u64 {
        match *self {
            Self::Whole(value) => value.len() as u64,
            Self::Pending { bytes } | Self::TooLarge { bytes } => bytes,
        }
    }
}

/// Count up or down a value that is a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The item's key.
    pub key: Key<'a>,
    /// True to count down, which stops at zero; counting up wraps.
    pub decrement: bool,
    /// By how much.
    pub delta: u64,
    /// Only if the item has this CAS unique; 0 asks for no comparison.
    pub unique: u64,
    /// The item to make on a miss.
    pub vivify: Option<Vivify>,
    /// Expiry to give to the item.
    pub touch: Option<Exptime>,
}

/// The item that counting makes on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vivify {
    /// Its value.
    pub initial: u64,
    /// When it expires.
    pub exptime: Exptime,
}

/// Remove an item or mark it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The item's key.
    pub key: Key<'a>,
    /// Only if the item has this CAS unique.
    pub unique: Option<u64>,
    /// Keep the item, marked stale and with a new CAS unique.
    pub invalidate: bool,
    /// Expiry to give to the item that is kept.
    pub touch: Option<Exptime>,
}

/// Give an item another expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The item's key.
    pub key: Key<'a>,
    /// When it is to expire.
    pub exptime: Exptime,
}

/// The command for the counters by prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsDetail {
    /// Count from now on.
    On,
    /// Count no more.
    Off,
    /// Report the counts.
    Dump,
}

/// How to end the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// At once.
    Now,
    /// After work in progress has finished.
    Graceful,
    /// In a way that does not exist.
    Unknown,
}

/// Room for a decoded key. Costs nothing until a key has to be decoded.
#[derive(Clone, Debug, Default)]
pub struct KeyBuffer(Option<[u8; KEY_BYTES_MAX]>);

/// A key as it stands in the input, 1 to [`KEY_BYTES_MAX`] bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The bytes themselves.
    Plain(&'a [u8]),
    /// The base64 form of the bytes. The parser has seen that it decodes.
    Base64(&'a [u8]),
}

impl<'a> Key<'a> {
    /// The key's bytes, decoded into `buffer` where that is needed.
    ///
    /// Decoding waits until here so that a request stays a few words long and nothing is copied for
    /// the common, plain key. A text that does not decode gives the empty key, which no store holds.
    #[inline]
    pub fn bytes<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Base64(text) => {
                let room = buffer.0.insert([0; KEY_BYTES_MAX]);
                let decoded_bytes = base64::decode(text, room).unwrap_or(0);
                &room[..decoded_bytes]
            }
        }
    }

    /// The key as it stands in the input.
    pub fn text(self) -> &'a [u8] {
        let (Self::Plain(text) | Self::Base64(text)) = self;
        text
    }

    /// True if the client sent the key in base64, so that replies use base64 too.
    pub fn is_base64(self) -> bool {
        matches!(self, Self::Base64(_))
    }
}

/// The words of a line, separated by spaces, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The words of `line`.
    pub fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// The input not walked yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let from_token = &self.rest[start..];
        let end = from_token.iter().position(|&byte| byte == b' ').unwrap_or(from_token.len());
        let (token, rest) = from_token.split_at(end);
        self.rest = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_order_without_spaces() {
        let words: Vec<&[u8]> = Tokens::new(b"  a bb   c ").collect();
        assert_eq!(words, [&b"a"[..], b"bb", b"c"]);
        assert_eq!(Tokens::new(b"   ").next(), None);
    }

    #[test]
    fn the_rest_follows_the_last_word_taken() {
        let mut tokens = Tokens::new(b"a bb c");
        tokens.next();
        tokens.next();
        assert_eq!(tokens.rest(), b" c");
    }
}
