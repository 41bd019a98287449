//! The messages by which two processes agree on memory (memif 2.0, as in VPP and DPDK). Numbers are little-endian.
//!
//! ```text
//! | type u16 | what the type needs, packed | zeros up to 128 bytes |
//! hello:      name 32 | least version u16 | greatest u16 | last region u16 | last ring to the client u16
//!             | last ring to the server u16 | log2 of the largest ring u8
//! init:       version u16 | id u32 | mode u8 | secret 24 | name 32
//! add region: number u16 | bytes u64, and a file
//! add ring:   flags u16 | number u16 | region u16 | offset u32 | log2 of its entries u8 | private bytes u16, and an eventfd
//! connect, connected: name 32
//! disconnect: code u32 | reason 96
//! ```

/// Bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 128;
/// Version 2.0.
pub(super) const VERSION: u16 = 2 << 8;
const NAME: &[u8] = b"minos";
const REASON_BYTES: usize = 96;
/// A ring's flag: the client fills it.
const TO_SERVER: u16 = 1;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ack,
    Hello(Hello),
    Init(Init),
    AddRegion { number: u16, bytes: u64 },
    AddRing(AddRing),
    Connect,
    Connected,
    Disconnect { reason: String },
}

/// The bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) versions: [u16; 2],
    pub(super) last_region: u16,
    /// Of rings to the client, and to the server.
    pub(super) last_rings: [u16; 2],
    pub(super) log2_entries_max: u8,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) version: u16,
    pub(super) id: u32,
    /// 0: Ethernet frames.
    pub(super) mode: u8,
}

/// A ring in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddRing {
    pub(super) is_to_server: bool,
    pub(super) number: u16,
    pub(super) region: u16,
    pub(super) offset: u32,
    pub(super) log2_entries: u8,
}

/// Writes numbers one behind the other.
struct Writer([u8; MESSAGE_BYTES], usize);

impl Writer {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
        self
    }

    fn shorts(&mut self, numbers: &[u16]) -> &mut Self {
        numbers.iter().for_each(|number| {
            self.put(&number.to_le_bytes());
        });
        self
    }

    fn name(&mut self) -> &mut Self {
        self.put(NAME).put(&[0; 32 - NAME.len()])
    }
}

/// Reads them.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (array, rest) = self.0.split_first_chunk().expect("a message is long enough for its numbers");
        self.0 = rest;
        *array
    }

    fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
}

impl Message {
    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut to = Writer([0; MESSAGE_BYTES], 0);
        to.put(&self.number().to_le_bytes());
        match self {
            Self::Ack => {}
            Self::Hello(Hello { versions, last_region, last_rings, log2_entries_max }) => {
                to.name();
                let numbers = [versions[0], versions[1], *last_region, last_rings[0], last_rings[1]];
                to.shorts(&numbers).put(&[*log2_entries_max]);
            }
            Self::Init(Init { version, id, mode }) => {
                to.put(&version.to_le_bytes()).put(&id.to_le_bytes()).put(&[*mode]).put(&[0; 24]).name();
            }
            Self::AddRegion { number, bytes } => {
                to.put(&number.to_le_bytes()).put(&bytes.to_le_bytes());
            }
            Self::AddRing(AddRing { is_to_server, number, region, offset, log2_entries }) => {
                let flags = if *is_to_server { TO_SERVER } else { 0 };
                to.shorts(&[flags, *number, *region]).put(&offset.to_le_bytes()).put(&[*log2_entries]);
            }
            Self::Connect | Self::Connected => {
                to.name();
            }
            Self::Disconnect { reason } => {
                let reason = &reason.as_bytes()[..reason.len().min(REASON_BYTES - 1)];
                to.put(&[0; 4]).put(reason);
            }
        }
        to.0
    }

    /// `None`: there is no such type.
    pub(super) fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let mut from = Reader(bytes);
        Some(match from.short() {
            1 => Self::Ack,
            2 => {
                from.array::<32>();
                Self::Hello(Hello {
                    versions: [from.short(), from.short()],
                    last_region: from.short(),
                    last_rings: [from.short(), from.short()],
                    log2_entries_max: from.byte(),
                })
            }
            3 => Self::Init(Init { version: from.short(), id: from.word(), mode: from.byte() }),
            4 => Self::AddRegion { number: from.short(), bytes: u64::from_le_bytes(from.array()) },
            5 => Self::AddRing(AddRing {
                is_to_server: from.short() & TO_SERVER != 0,
                number: from.short(),
                region: from.short(),
                offset: from.word(),
                log2_entries: from.byte(),
            }),
            6 => Self::Connect,
            7 => Self::Connected,
            8 => {
                from.word();
                let reason: [u8; REASON_BYTES] = from.array();
                let text = reason.split(|byte| *byte == 0).next().unwrap_or_default();
                Self::Disconnect { reason: String::from_utf8_lossy(text).into_owned() }
            }
            _ => return None,
        })
    }

    fn number(&self) -> u16 {
        match self {
            Self::Ack => 1,
            Self::Hello(_) => 2,
            Self::Init(_) => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect => 6,
            Self::Connected => 7,
            Self::Disconnect { .. } => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_on_the_wire() {
        let ring = AddRing { is_to_server: true, number: 1, region: 2, offset: 0x0403, log2_entries: 9 };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(bytes[..15], [5, 0, 1, 0, 1, 0, 2, 0, 3, 4, 0, 0, 9, 0, 0]);
        let bytes = Message::AddRegion { number: 3, bytes: 0x0102 }.encode();
        assert_eq!(bytes[..12], [4, 0, 3, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        let bytes = Message::Init(Init { version: VERSION, id: 7, mode: 0 }).encode();
        assert_eq!(bytes[..9], [3, 0, 0, 2, 7, 0, 0, 0, 0]);
        assert_eq!(&bytes[33..39], b"minos\0");
        let hello =
            Hello { versions: [VERSION; 2], last_region: 1, last_rings: [2, 3], log2_entries_max: 14 };
        let bytes = Message::Hello(hello).encode();
        assert_eq!(bytes[34..45], [0, 2, 0, 2, 1, 0, 2, 0, 3, 0, 14]);
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let ring = AddRing { is_to_server: false, number: 1, region: 2, offset: 64, log2_entries: 9 };
        let hello = Hello { versions: [1, 2], last_region: 3, last_rings: [4, 5], log2_entries_max: 6 };
        let all = [
            Message::Ack,
            Message::Hello(hello),
            Message::Init(Init { version: 1, id: 2, mode: 3 }),
            Message::AddRegion { number: 1, bytes: 1 << 40 },
            Message::AddRing(ring),
            Message::Connect,
            Message::Connected,
            Message::Disconnect { reason: "because".to_owned() },
        ];
        for message in all {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in proptest::array::uniform32(0..=255u8), number in 0..12u16) {
            let mut message = [0; MESSAGE_BYTES];
            message.chunks_exact_mut(32).for_each(|chunk| chunk.copy_from_slice(&bytes));
            message[..2].copy_from_slice(&number.to_le_bytes());
            let decoded = Message::decode(&message);
            prop_assert_eq!(decoded.is_some(), (1..=8).contains(&number));
            if let Some(decoded) = decoded {
                prop_assert!(Message::decode(&decoded.encode()).is_some());
            }
        }
    }
}
