//! memcached's binary protocol: packets to the [`Request`]s of the text protocol, outcomes to packets.
//!
//! The model is memcached 1.6.45, as in the text protocol: the order of its checks, its error texts, and the packets
//! after which it closes the connection.

pub mod compose;
mod sasl;

use minos_base::{Exptime, StatsGroup, StoreKind, limits::KEY_BYTES_MAX};

use super::{
    Arithmetic, Command, Delete, Get, Key, Limits, Malformed, Request, StatsDetail, Store, Touch, Value,
    Vivify,
};

pub use sasl::{Greeting, Wants, begins_login, greeting};

/// First byte of a request. A connection whose very first byte this is speaks the binary protocol.
pub const MAGIC: u8 = 0x80;

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 24;

/// Longest body that memcached reads at all, in bytes.
const BODY_BYTES_MAX: usize = 1 << 30;

/// The expiry by which a count says that it creates no item.
const NO_VIVIFY: u32 = u32::MAX;

/// The form of a reply: what it repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The opcode as it was sent.
    pub opcode: u8,
    /// Bytes that the client knows the request by.
    pub opaque: [u8; 4],
    /// The client wants no answer in the nominal case: to a read, if there is no such item; to anything else, if it
    /// succeeds.
    pub quiet: bool,
    /// The key comes with the reply.
    pub with_key: bool,
}

impl Reply {
    /// That to a no-op of a client that gives it no name.
    pub const NOOP: Self = Self { opcode: opcode::NOOP, opaque: [0; 4], quiet: false, with_key: false };

    /// True if the request, whatever its CAS unique, is a plain set.
    pub fn is_set(&self) -> bool {
        matches!(self.opcode, opcode::SET | opcode::SETQ)
    }
}

/// Why a request is not executed, or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There is no such item, or no such group of statistics.
    NotFound,
    /// The item is another one than the client has seen, or there is one already.
    Exists,
    /// The value is larger than the server allows.
    TooLarge,
    /// The parts of the packet have lengths that its opcode does not allow.
    Invalid,
    /// There is nothing to append to.
    NotStored,
    /// The value to count with is no number.
    NonNumeric,
    /// The client has not said who it is, or may not do this.
    Auth,
    /// There is no such command.
    Unknown,
    /// There is no room.
    NoMemory,
    /// The server has failed.
    Internal,
}

impl Status {
    /// The status in a header.
    pub fn code(self) -> u16 {
        match self {
            Self::NotFound => 0x01,
            Self::Exists => 0x02,
            Self::TooLarge => 0x03,
            Self::Invalid => 0x04,
            Self::NotStored => 0x05,
            Self::NonNumeric => 0x06,
            Self::Auth => 0x20,
            Self::Unknown => 0x81,
            Self::NoMemory => 0x82,
            Self::Internal => 0x84,
        }
    }

    /// The text behind a header, word for word memcached's, which has none for the last.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NonNumeric => "Non-numeric server-side value for incr or decr",
            Self::Auth => "Auth failure.",
            Self::Unknown => "Unknown command",
            Self::NoMemory => "Out of memory",
            Self::Internal => "Internal error",
        }
    }
}

/// The answer to a packet that is no command; `None` if there is to be none.
pub type Refusal = Option<(Reply, Status)>;

/// As [`super::Parsed`], of a packet.
pub type Parsed<'a> = super::Parsed<'a, Reply, Refusal>;

/// The opcodes that are served.
mod opcode {
    pub(super) const GET: u8 = 0x00;
    pub(super) const SET: u8 = 0x01;
    pub(super) const ADD: u8 = 0x02;
    pub(super) const REPLACE: u8 = 0x03;
    pub(super) const DELETE: u8 = 0x04;
    pub(super) const INCREMENT: u8 = 0x05;
    pub(super) const DECREMENT: u8 = 0x06;
    pub(super) const QUIT: u8 = 0x07;
    pub(super) const FLUSH: u8 = 0x08;
    pub(super) const GETQ: u8 = 0x09;
    pub(super) const NOOP: u8 = 0x0a;
    pub(super) const VERSION: u8 = 0x0b;
    pub(super) const GETK: u8 = 0x0c;
    pub(super) const GETKQ: u8 = 0x0d;
    pub(super) const APPEND: u8 = 0x0e;
    pub(super) const PREPEND: u8 = 0x0f;
    pub(super) const STAT: u8 = 0x10;
    pub(super) const SETQ: u8 = 0x11;
    /// The quiet forms of [`SET`] to [`FLUSH`] follow each other.
    pub(super) const FLUSHQ: u8 = 0x18;
    pub(super) const APPENDQ: u8 = 0x19;
    pub(super) const PREPENDQ: u8 = 0x1a;
    pub(super) const TOUCH: u8 = 0x1c;
    pub(super) const GAT: u8 = 0x1d;
    pub(super) const GATQ: u8 = 0x1e;
    pub(super) const SASL_LIST: u8 = 0x20;
    pub(super) const SASL_AUTH: u8 = 0x21;
    pub(super) const SASL_STEP: u8 = 0x22;
    pub(super) const GATK: u8 = 0x23;
    pub(super) const GATKQ: u8 = 0x24;

    /// The form of an opcode that is not quiet, and true if `opcode` is the quiet one.
    pub(super) fn loud(opcode: u8) -> (u8, bool) {
        match opcode {
            GETQ => (GET, true),
            GETKQ => (GETK, true),
            SETQ..=FLUSHQ => (opcode - (SETQ - SET), true),
            APPENDQ | PREPENDQ => (opcode - (APPENDQ - APPEND), true),
            GATQ => (GAT, true),
            GATKQ => (GATK, true),
            _ => (opcode, false),
        }
    }
}

/// A header, and the parts behind it.
struct Packet<'a> {
    reply: Reply,
    key_bytes: usize,
    extras_bytes: usize,
    body_bytes: usize,
    cas: u64,
    /// The input behind the header.
    rest: &'a [u8],
}

/// Reads the packet at the front of `input`.
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    if input.first().is_some_and(|&magic| magic != MAGIC) {
        return closed(None);
    }
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else { return Parsed::NeedMore };
    let (opcode, quiet) = opcode::loud(header[1]);
    let packet = Packet {
        reply: Reply {
            opcode: header[1],
            opaque: [header[12], header[13], header[14], header[15]],
            quiet,
            with_key: matches!(opcode, opcode::GETK | opcode::GATK),
        },
        key_bytes: usize::from(u16::from_be_bytes([header[2], header[3]])),
        extras_bytes: usize::from(header[4]),
        body_bytes: word(header, 8) as usize,
        cas: long(header, 16),
        rest,
    };
    if packet.key_bytes + packet.extras_bytes > packet.body_bytes {
        return packet.refused_and_closed(Status::Unknown);
    }
    if packet.body_bytes > BODY_BYTES_MAX || packet.key_bytes > KEY_BYTES_MAX {
        return packet.refused_and_closed(Status::Invalid);
    }
    packet.parse(opcode, limits)
}

fn closed<'a>(reply: Refusal) -> Parsed<'a> {
    Parsed::Malformed(Malformed { reply, consumed: 0, swallow: 0, close: true })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |long| u64::from_be_bytes(*long))
}

/// An expiry, which has no sign here: numbers from 2³¹ on are times after 2038, as late as can be.
fn exptime(word: u32) -> Exptime {
    Exptime(i32::try_from(word).unwrap_or(i32::MAX))
}

impl<'a> Packet<'a> {
    /// Checks the lengths for the `opcode`, which is no quiet one, then reads the parts.
    fn parse(&self, opcode: u8, limits: &Limits) -> Parsed<'a> {
        let (has_key, extras_bytes) = (self.key_bytes > 0, self.extras_bytes);
        let value_bytes = self.body_bytes - self.key_bytes - extras_bytes;
        let is_valid = match opcode {
            opcode::GET | opcode::GETK | opcode::DELETE => has_key && extras_bytes == 0 && value_bytes == 0,
            opcode::SET | opcode::ADD | opcode::REPLACE => has_key && extras_bytes == 8,
            opcode::APPEND | opcode::PREPEND => has_key && extras_bytes == 0,
            opcode::INCREMENT | opcode::DECREMENT => has_key && extras_bytes == 20 && value_bytes == 0,
            // What follows their keys is, as in memcached, the next packet.
            opcode::TOUCH | opcode::GAT | opcode::GATK => has_key && extras_bytes == 4,
            opcode::STAT => extras_bytes == 0,
            opcode::FLUSH => !has_key && matches!(extras_bytes, 0 | 4) && value_bytes == 0,
            opcode::SASL_AUTH | opcode::SASL_STEP => has_key && extras_bytes == 0,
            opcode::QUIT | opcode::NOOP | opcode::VERSION | opcode::SASL_LIST => self.body_bytes == 0,
            _ => return self.refused(Status::Unknown, self.body_bytes),
        };
        if !is_valid {
            return self.refused_and_closed(Status::Invalid);
        }
        if matches!(opcode, opcode::SASL_LIST | opcode::SASL_AUTH | opcode::SASL_STEP) {
            // As in memcached without credentials.
            return self.refused(Status::Unknown, self.body_bytes);
        }
        let Some(extras) = self.rest.get(..extras_bytes) else { return Parsed::NeedMore };
        let head_bytes = extras_bytes + self.key_bytes;
        let Some(key) = self.rest.get(extras_bytes..head_bytes) else { return Parsed::NeedMore };
        match opcode {
            opcode::SET | opcode::ADD | opcode::REPLACE | opcode::APPEND | opcode::PREPEND => {
                self.store(opcode, (extras, key), value_bytes, limits)
            }
            opcode::STAT => match stats(key) {
                Some(request) => self.accepted(request, 0),
                None => self.refused(Status::NotFound, head_bytes),
            },
            _ => self.accepted(self.request(opcode, extras, Key::Plain(key)), 0),
        }
    }

    /// A request without a value.
    fn request(&self, opcode: u8, extras: &[u8], key: Key<'a>) -> Request<'a> {
        let unique = self.cas;
        match opcode {
            opcode::GET | opcode::GETK => Request::Get(Get::plain(key)),
            opcode::GAT | opcode::GATK => {
                Request::Get(Get { touch: Some(exptime(word(extras, 0))), ..Get::plain(key) })
            }
            opcode::TOUCH => Request::Touch(Touch { key, exptime: exptime(word(extras, 0)) }),
            opcode::DELETE => {
                let unique = (unique != 0).then_some(unique);
                Request::Delete(Delete { key, unique, invalidate: false, touch: None })
            }
            opcode::INCREMENT | opcode::DECREMENT => {
                let expiry = word(extras, 16);
                let vivify = Vivify { initial: long(extras, 8), exptime: exptime(expiry) };
                Request::Arithmetic(Arithmetic {
                    key,
                    decrement: opcode == opcode::DECREMENT,
                    delta: long(extras, 0),
                    unique,
                    vivify: (expiry != NO_VIVIFY).then_some(vivify),
                    touch: None,
                })
            }
            opcode::FLUSH => {
                let delay = if extras.is_empty() { 0 } else { word(extras, 0) };
                Request::FlushAll { delay: exptime(delay) }
            }
            opcode::VERSION => Request::Version,
            opcode::QUIT => Request::Quit,
            _ => Request::NoOp,
        }
    }

    /// A request with a value, which may not have arrived.
    fn store(
        &self,
        opcode: u8,
        (extras, key): (&[u8], &'a [u8]),
        value_bytes: usize,
        limits: &Limits,
    ) -> Parsed<'a> {
        let kind = match opcode {
            opcode::APPEND => StoreKind::Append,
            opcode::PREPEND => StoreKind::Prepend,
            // With a unique, the item must be there whatever the opcode.
            _ if self.cas != 0 => StoreKind::Compare,
            opcode::ADD => StoreKind::Add,
            opcode::REPLACE => StoreKind::Replace,
            _ => StoreKind::Set,
        };
        let (flags, expiry) = if extras.is_empty() { (0, 0) } else { (word(extras, 0), word(extras, 4)) };
        let bytes = value_bytes as u64;
        let (value, consumed) = match self.rest[extras.len() + key.len()..].get(..value_bytes) {
            _ if bytes > limits.value_bytes_max => (Value::TooLarge { bytes }, 0),
            Some(value) => (Value::Whole(value), value_bytes),
            None => (Value::Pending { bytes }, 0),
        };
        let (key, exptime, unique) = (Key::Plain(key), exptime(expiry), self.cas);
        let store = Store { kind, key, flags, exptime, unique, invalidate: false, value };
        self.accepted(Request::Store(store), consumed)
    }

    /// The request takes header, extras, key and `value_bytes` more.
    fn accepted(&self, request: Request<'a>, value_bytes: usize) -> Parsed<'a> {
        let consumed = HEADER_BYTES + self.extras_bytes + self.key_bytes + value_bytes;
        Parsed::Request { command: Command { request, reply: self.reply, line_end_bytes: 0 }, consumed }
    }

    /// An error, and `swallow` bytes behind the header to skip.
    fn refused(&self, status: Status, swallow: usize) -> Parsed<'a> {
        let reply = Some((self.reply, status));
        Parsed::Malformed(Malformed { reply, consumed: HEADER_BYTES, swallow: swallow as u64, close: false })
    }

    fn refused_and_closed(&self, status: Status) -> Parsed<'a> {
        closed(Some((self.reply, status)))
    }
}

/// The request of a `stat` for the group named `name`.
fn stats<'a>(name: &[u8]) -> Option<Request<'a>> {
    Some(match name {
        b"detail on" => Request::StatsDetail(StatsDetail::On),
        b"detail off" => Request::StatsDetail(StatsDetail::Off),
        b"detail dump" => Request::StatsDetail(StatsDetail::Dump),
        // memcached lists connections in the text protocol only.
        _ => Request::Stats(StatsGroup::named(name).filter(|&group| group != StatsGroup::Connections)?),
    })
}
