//! The header of every datagram.
//!
//! ```text
//!  0 2 magic "Mn"    2 1 version     3 1 kind
//!  4 1 flags         5 1 secret      6 2 queue       8 2 length     10 2 count
//! 12 4 geometry     16 8 session    24 8 cookie     32 8 stamp    40 8 sequence
//! ```

use std::ops::BitOrAssign;

use super::{
    HEADER_BYTES, HELLO_DATAGRAM_BYTES, MAGIC, Malformed, REPLY_HEAD_BYTES, SHORT_HEAD_BYTES, TAG_BYTES,
    VERSION,
    bytes::{head, put, u16_at, u32_at, u64_at},
};

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Operations, from a client.
    Request = 1,
    /// Results of operations, from a server.
    Reply = 2,
    /// A client asks for the server's parameters.
    Hello = 3,
    /// The facts about a server that a client needs.
    Welcome = 4,
    /// Nothing was executed, for a [`Reason`].
    Refusal = 5,
    /// A piece of a value that is being stored.
    Fragment = 6,
    /// A piece of a value that was asked for.
    Data = 7,
    /// Which fragments arrived.
    Ack = 8,
}

impl Kind {
    /// The kind that is written as `byte`.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Request,
            2 => Self::Reply,
            3 => Self::Hello,
            4 => Self::Welcome,
            5 => Self::Refusal,
            6 => Self::Fragment,
            7 => Self::Data,
            8 => Self::Ack,
            _ => return None,
        })
    }

    /// True if servers send it. Such a datagram is never answered, so that two
    /// servers cannot answer each other for ever.
    #[inline]
    pub const fn is_from_server(self) -> bool {
        matches!(self, Self::Reply | Self::Welcome | Self::Refusal | Self::Data | Self::Ack)
    }
}

/// Marks of a datagram. Marks that this version does not know are carried along and mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);
marks!(Flags);

impl Flags {
    /// A tag stands at the end.
    pub const SEALED: Self = Self(1);
    /// In answers: the cookie was made with the previous key; say hello soon.
    pub const RENEW: Self = Self(2);
    /// In a Hello: a session is wanted.
    pub const OPEN: Self = Self(4);
    /// In a Fragment: say which fragments arrived.
    pub const ACK_WANTED: Self = Self(8);
    /// In answers: the server is stopping.
    pub const DRAINING: Self = Self(16);

    /// Without the marks of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

coded! {
    /// Why a datagram was refused: the count of a [`Kind::Refusal`].
    Reason: u16, from_count, to_count;
    /// The version is not supported; the refusal's version byte is the highest supported one.
    Version = 1,
    /// No cookie, or an old one: say hello.
    Cookie = 2,
    /// The tag is missing or wrong.
    Seal = 3,
    /// A sealed datagram came a second time, or too late.
    Replayed = 4,
    /// The session is not known.
    Session = 5,
    /// It could not be read.
    Malformed = 6,
    /// A bound was met; try later.
    Busy = 7,
}

/// The header of every datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the datagram.
    pub kind: Kind,
    /// Its marks.
    pub flags: Flags,
    /// The id of the secret under which it is sealed; 0 if it is not.
    pub secret: u8,
    /// In a request: the queue that is to execute it; numbers from the number of queues on are transfer
    /// queues, whose worker is the difference. In an answer: the queue that executed it.
    pub queue: u16,
    /// Bytes of header, records or body, and tag; without the padding to a train's segments.
    pub length: u16,
    /// Records in a request or a reply; the [`Reason`] of a refusal; otherwise 0.
    pub count: u16,
    /// The server's geometry: in a request the one that the client knows, 0 for
    /// none; in an answer the current one.
    pub geometry: u32,
    /// The session, or 0 for none.
    pub session: u64,
    /// To the server: the cookie that it gave to the client's address. In answers: the rack's news, see
    /// [`Header::news`].
    pub cookie: u64,
    /// The client's time, in a unit of its own; echoed in answers.
    pub stamp: u64,
    /// The client's number of the datagram; echoed in answers.
    pub sequence: u64,
}

impl Header {
    /// A header of this kind, everything else zero.
    pub const fn of(kind: Kind) -> Self {
        Self {
            kind,
            flags: Flags::NONE,
            secret: 0,
            queue: 0,
            length: 0,
            count: 0,
            geometry: 0,
            session: 0,
            cookie: 0,
            stamp: 0,
            sequence: 0,
        }
    }

    /// The header of an answer of this kind: session, stamp and sequence are those of `self`, the queue too.
    #[must_use]
    pub const fn answer(&self, kind: Kind, geometry: u32) -> Self {
        Self {
            queue: self.queue,
            geometry,
            session: self.session,
            stamp: self.stamp,
            sequence: self.sequence,
            ..Self::of(kind)
        }
    }

    /// What the sender of an answer knows of its rack: the epoch of the directory, and the version of the weights; 0 for
    /// none.
    #[inline]
    pub const fn news(&self) -> (u32, u32) {
        (self.cookie as u32, (self.cookie >> 32) as u32)
    }

    /// Reads the header of `datagram`, which may be longer than the header's length.
    ///
    /// A refusal of any version is read, because its form is the same in all; see [`version_of`].
    ///
    /// # Errors
    /// It is not of this protocol, version or any known kind, or its length or count is impossible.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Self, Malformed> {
        let (bytes, _) = head::<HEADER_BYTES>(datagram, Malformed::Short)?;
        if bytes[..2] != MAGIC {
            return Err(Malformed::Magic);
        }
        let kind = Kind::from_byte(bytes[3]);
        if bytes[2] != VERSION && kind != Some(Kind::Refusal) {
            return Err(Malformed::Version(bytes[2]));
        }
        let header = Self::read(bytes, kind.ok_or(Malformed::Kind(bytes[3]))?);
        header.check(datagram.len())?;
        Ok(header)
    }

    #[inline]
    fn read(bytes: &[u8; HEADER_BYTES], kind: Kind) -> Self {
        Self {
            kind,
            flags: Flags(bytes[4]),
            secret: bytes[5],
            queue: u16_at(bytes, 6),
            length: u16_at(bytes, 8),
            count: u16_at(bytes, 10),
            geometry: u32_at(bytes, 12),
            session: u64_at(bytes, 16),
            cookie: u64_at(bytes, 24),
            stamp: u64_at(bytes, 32),
            sequence: u64_at(bytes, 40),
        }
    }

    /// Checks that length and count are possible for a datagram of `datagram_bytes`.
    #[inline]
    fn check(&self, datagram_bytes: usize) -> Result<(), Malformed> {
        let length = usize::from(self.length);
        let length_min = match self.kind {
            Kind::Hello => HELLO_DATAGRAM_BYTES,
            _ => HEADER_BYTES + self.tag_bytes(),
        };
        if length < length_min || length > datagram_bytes {
            return Err(Malformed::Length);
        }
        let record_bytes_min = match self.kind {
            Kind::Request => SHORT_HEAD_BYTES,
            Kind::Reply => REPLY_HEAD_BYTES,
            _ => return Ok(()),
        };
        let fits = usize::from(self.count) * record_bytes_min <= length - length_min;
        if fits { Ok(()) } else { Err(Malformed::Count) }
    }

    /// Writes it to the front of a datagram, with the version that is spoken here.
    #[inline]
    pub fn write(&self, out: &mut [u8; HEADER_BYTES]) {
        put(out, 0, MAGIC);
        put(out, 2, [VERSION, self.kind as u8]);
        put(out, 4, [self.flags.0, self.secret]);
        put(out, 6, self.queue.to_le_bytes());
        put(out, 8, self.length.to_le_bytes());
        put(out, 10, self.count.to_le_bytes());
        put(out, 12, self.geometry.to_le_bytes());
        put(out, 16, self.session.to_le_bytes());
        put(out, 24, self.cookie.to_le_bytes());
        put(out, 32, self.stamp.to_le_bytes());
        put(out, 40, self.sequence.to_le_bytes());
    }

    /// True if the datagram ends with a tag.
    #[inline]
    pub const fn is_sealed(&self) -> bool {
        self.flags.contains(Flags::SEALED)
    }

    /// Bytes of the tag: 0 if the datagram is not sealed.
    #[inline]
    pub const fn tag_bytes(&self) -> usize {
        if self.is_sealed() { TAG_BYTES } else { 0 }
    }

    /// The records or the body of `datagram`, whose header this is: without tag and padding. Empty where the
    /// lengths do not fit, which [`Header::parse`] does not let pass.
    #[inline]
    pub fn body<'d>(&self, datagram: &'d [u8]) -> &'d [u8] {
        let end = usize::from(self.length).saturating_sub(self.tag_bytes());
        datagram.get(HEADER_BYTES..end).unwrap_or_default()
    }
}

/// The version byte of `datagram`, if it begins as one of this protocol: in a refusal for
/// [`Reason::Version`] the highest version that the server speaks.
pub fn version_of(datagram: &[u8]) -> Option<u8> {
    let (bytes, _) = head::<HEADER_BYTES>(datagram, Malformed::Short).ok()?;
    (bytes[..2] == MAGIC).then_some(bytes[2])
}

/// The refusal that answers `datagram`, readable or not: it echoes stamp, sequence and session, whose places
/// are the same in all versions. `None` where no answer may be sent: to less than a header, to another
/// protocol, and to kinds that only servers send.
pub fn refusal_of(datagram: &[u8], reason: Reason, geometry: u32) -> Option<Header> {
    let (bytes, _) = head::<HEADER_BYTES>(datagram, Malformed::Short).ok()?;
    let is_from_server = Kind::from_byte(bytes[3]).is_some_and(Kind::is_from_server);
    if bytes[..2] != MAGIC || is_from_server {
        return None;
    }
    let refusal = Header::read(bytes, Kind::Refusal).answer(Kind::Refusal, geometry);
    Some(Header { length: HEADER_BYTES as u16, count: reason.to_count(), ..refusal })
}
