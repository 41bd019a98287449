//! Discovery: how a client learns a server's parameters.

use minos_base::{KeyHash, hash_key};

use super::{
    Composer, DATAGRAM_BYTES_MIN, HELLO_DATAGRAM_BYTES, Header, Malformed, SealKey,
    bytes::{head, put, u16_at, u32_at, u64_at},
};

/// Bytes of a [`Hello`], without the padding of its datagram.
pub const HELLO_BYTES: usize = 64;

/// Bytes of a [`Welcome`].
pub const WELCOME_BYTES: usize = 96;

/// Most partition bits, as in the engine.
const PARTITION_BITS_MAX: u8 = 16;

/// A client's question.
///
/// ```text
/// 0 8 nonce   8 2 datagram_bytes_max   10 2 window   12 2 version_max   14 50 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Any number; the Welcome echoes it.
    pub nonce: u64,
    /// Largest datagram that the client takes, in bytes.
    pub datagram_bytes_max: u16,
    /// Fragments that the client takes at once.
    pub window: u16,
    /// Highest version that the client speaks.
    pub version_max: u16,
}

impl Hello {
    /// Reads a body.
    ///
    /// # Errors
    /// It is too short, or the largest datagram smaller than [`DATAGRAM_BYTES_MIN`].
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (bytes, _) = head::<HELLO_BYTES>(body, Malformed::Body)?;
        let hello = Self {
            nonce: u64_at(bytes, 0),
            datagram_bytes_max: u16_at(bytes, 8),
            window: u16_at(bytes, 10),
            version_max: u16_at(bytes, 12),
        };
        let makes_sense = usize::from(hello.datagram_bytes_max) >= DATAGRAM_BYTES_MIN && hello.window > 0;
        makes_sense.then_some(hello).ok_or(Malformed::Body)
    }

    /// Writes the body.
    pub fn write(&self, out: &mut [u8; HELLO_BYTES]) {
        out.fill(0);
        put(out, 0, self.nonce.to_le_bytes());
        put(out, 8, self.datagram_bytes_max.to_le_bytes());
        put(out, 10, self.window.to_le_bytes());
        put(out, 12, self.version_max.to_le_bytes());
    }

    /// Appends the whole datagram to `out`, padded to the length that servers
    /// require, and sealed if there is a key.
    pub fn compose(&self, out: &mut Vec<u8>, header: Header, key: Option<&SealKey>) {
        let mut body = [0; HELLO_BYTES];
        self.write(&mut body);
        let mut composer = Composer::begin(out, header, HELLO_DATAGRAM_BYTES);
        composer.push_bytes(&body);
        composer.fill();
        composer.finish_with(key);
    }
}

/// The server's access mode (MICA §4.1.2), which decides the queues that a client may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Access {
    /// Any queue for anything.
    Crcw = 0,
    /// Any queue for reading, the key's for everything else.
    Crew = 1,
    /// The key's queue.
    Erew = 2,
}

impl Access {
    /// The mode that is written as `byte`.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Crcw,
            1 => Self::Crew,
            2 => Self::Erew,
            _ => return None,
        })
    }
}

/// Marks of a server. Marks that this version does not know are carried along and mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WelcomeFlags(pub u16);
marks!(WelcomeFlags);

impl WelcomeFlags {
    /// All queues are reached by the base port; the header's queue steers.
    pub const SINGLE_PORT: Self = Self(1);
    /// Only sealed datagrams are served.
    pub const SEALED: Self = Self(2);
    /// The server is a cache: it evicts items when memory is full.
    pub const CACHE: Self = Self(4);
    /// The server is a node of a rack, and knows its directory. All its nodes have the same direction seed.
    pub const RACK: Self = Self(8);
}

/// The facts about a server that a client needs.
///
/// ```text
///  0 8 nonce     8 8 boot     16 8 cookie     24 8 direction_seed     32 8 session     40 4 cookie_seconds     44 4 geometry
/// 48 2 queues   50 1 partition_bits   51 1 access   52 2 base_port   54 2 flags   56 2 datagram_bytes_max
/// 58 2 key_bytes_max   60 2 window   62 2 once_window   64 8 value_bytes_max   72 4 transfers_per_client
/// 76 4 in_flight   80 16 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The Hello's.
    pub nonce: u64,
    /// Random for each start of the server: another one means that sessions and, maybe, items are gone.
    pub boot: u64,
    /// To be sent with everything from now on.
    pub cookie: u64,
    /// Seed of [`Welcome::direction`].
    pub direction_seed: u64,
    /// The client's session, or 0.
    pub session: u64,
    /// How long the cookie is good at least, in seconds.
    pub cookie_seconds: u32,
    /// Changes with anything below; to be sent with requests.
    pub geometry: u32,
    /// RX queues, each of one worker.
    pub queues: u16,
    /// Number of the direction's highest bits that choose the queue.
    pub partition_bits: u8,
    /// Which queues a client may choose from.
    pub access: Access,
    /// The port of queue 0; queue `i` is at `base_port + i`, and behind the queues come those for transfers.
    pub base_port: u16,
    /// Marks of the server.
    pub flags: WelcomeFlags,
    /// Largest datagram that the server takes and sends, in bytes.
    pub datagram_bytes_max: u16,
    /// Longest key, in bytes.
    pub key_bytes_max: u16,
    /// Fragments that a client may send at once.
    pub window: u16,
    /// Once numbers that a client may have unanswered.
    pub once_window: u16,
    /// Largest value, in bytes.
    pub value_bytes_max: u64,
    /// Values that one client may be sending at once.
    pub transfers_per_client: u32,
    /// Datagrams that a client should have unanswered at most.
    pub in_flight: u32,
}

impl Welcome {
    /// Reads a body.
    ///
    /// # Errors
    /// It is too short, or impossible: no queues, ports beyond the last one, an unknown access mode, more
    /// than 16 partition bits, a largest datagram below [`DATAGRAM_BYTES_MIN`], no window.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (bytes, _) = head::<WELCOME_BYTES>(body, Malformed::Body)?;
        let welcome = Self {
            nonce: u64_at(bytes, 0),
            boot: u64_at(bytes, 8),
            cookie: u64_at(bytes, 16),
            direction_seed: u64_at(bytes, 24),
            session: u64_at(bytes, 32),
            cookie_seconds: u32_at(bytes, 40),
            geometry: u32_at(bytes, 44),
            queues: u16_at(bytes, 48),
            partition_bits: bytes[50],
            access: Access::from_byte(bytes[51]).ok_or(Malformed::Body)?,
            base_port: u16_at(bytes, 52),
            flags: WelcomeFlags(u16_at(bytes, 54)),
            datagram_bytes_max: u16_at(bytes, 56),
            key_bytes_max: u16_at(bytes, 58),
            window: u16_at(bytes, 60),
            once_window: u16_at(bytes, 62),
            value_bytes_max: u64_at(bytes, 64),
            transfers_per_client: u32_at(bytes, 72),
            in_flight: u32_at(bytes, 76),
        };
        welcome.makes_sense().then_some(welcome).ok_or(Malformed::Body)
    }

    fn makes_sense(&self) -> bool {
        let ports =
            if self.flags.contains(WelcomeFlags::SINGLE_PORT) { 1 } else { 2 * u32::from(self.queues) };
        self.queues > 0
            && self.queues <= u16::MAX / 2
            && u32::from(self.base_port) + ports <= 1 << 16
            && self.partition_bits <= PARTITION_BITS_MAX
            && usize::from(self.datagram_bytes_max) >= DATAGRAM_BYTES_MIN
            && self.window > 0
    }

    /// Writes the body.
    pub fn write(&self, out: &mut [u8; WELCOME_BYTES]) {
        out.fill(0);
        put(out, 0, self.nonce.to_le_bytes());
        put(out, 8, self.boot.to_le_bytes());
        put(out, 16, self.cookie.to_le_bytes());
        put(out, 24, self.direction_seed.to_le_bytes());
        put(out, 32, self.session.to_le_bytes());
        put(out, 40, self.cookie_seconds.to_le_bytes());
        put(out, 44, self.geometry.to_le_bytes());
        put(out, 48, self.queues.to_le_bytes());
        put(out, 50, [self.partition_bits, self.access as u8]);
        put(out, 52, self.base_port.to_le_bytes());
        put(out, 54, self.flags.0.to_le_bytes());
        put(out, 56, self.datagram_bytes_max.to_le_bytes());
        put(out, 58, self.key_bytes_max.to_le_bytes());
        put(out, 60, self.window.to_le_bytes());
        put(out, 62, self.once_window.to_le_bytes());
        put(out, 64, self.value_bytes_max.to_le_bytes());
        put(out, 72, self.transfers_per_client.to_le_bytes());
        put(out, 76, self.in_flight.to_le_bytes());
    }

    /// The direction of a key: a hash that chooses the key's queue. It does not reveal the key's place in the
    /// server's table, whose seed stays in the server.
    #[inline]
    pub fn direction(&self, key: &[u8]) -> KeyHash {
        hash_key(key, self.direction_seed)
    }

    /// The queue of the keys with this direction.
    #[inline]
    pub fn key_queue(&self, direction: KeyHash) -> u16 {
        (direction.partition(u32::from(self.partition_bits)) % usize::from(self.queues)) as u16
    }

    /// The port to which a datagram for `queue` goes, which may be a queue for transfers.
    #[inline]
    pub fn port_of(&self, queue: u16) -> u16 {
        if self.flags.contains(WelcomeFlags::SINGLE_PORT) {
            self.base_port
        } else {
            self.base_port.wrapping_add(queue)
        }
    }
}
