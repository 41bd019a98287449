//! The script of arriving datagrams, decoded from the fuzzer's bytes.

use std::net::SocketAddr;

use minos_base::KeyHash;
use minos_proto::native::{
    Composer, DATAGRAM_BYTES_MIN, Detail, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, Header, Hello, Kind,
    OpFlags, Opcode, Operation, SealKeys,
};

use super::{Known, WORKERS};

#[derive(Debug)]
pub(crate) enum Step {
    /// So many milliseconds pass.
    Wait(u64),
    /// A datagram arrives at the socket of a queue.
    Datagram { peer: SocketAddr, queue: usize, bytes: Vec<u8> },
}

/// The address of the client that learns; other clients know nothing.
pub(crate) fn client() -> SocketAddr {
    ([10, 0, 0, 1], 4000).into()
}

pub(crate) struct Script<'i> {
    input: &'i [u8],
    seal: Option<SealKeys>,
}

impl<'i> Script<'i> {
    pub(crate) fn new(input: &'i [u8], is_sealed: bool) -> Self {
        Self { input, seal: is_sealed.then(super::keys) }
    }

    /// The next step; `None` at the end. The first byte selects its kind.
    pub(crate) fn next(&mut self, known: &Known) -> Option<Step> {
        let what = self.byte()?;
        let queue = usize::from(what >> 4) % (2 * usize::from(WORKERS));
        let bytes = match what & 7 {
            0 => return Some(Step::Wait(u64::from(self.byte()?) * 50)),
            1 => self.hello(known),
            2 | 3 => self.request(known, queue)?,
            4 => self.fragment(known, queue)?,
            5 => self.raw(known.welcome.map_or(0, |welcome| welcome.cookie))?,
            6 => self.raw(0)?,
            _ => {
                let peer = SocketAddr::from(([10, 0, 0, 2], 4000));
                return Some(Step::Datagram { peer, queue, bytes: self.raw(0)? });
            }
        };
        Some(Step::Datagram { peer: client(), queue, bytes })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from(self.byte()?) | u64::from(self.byte()?) << 8)
    }

    fn bytes(&mut self, count: usize) -> &'i [u8] {
        let (bytes, rest) = self.input.split_at(count.min(self.input.len()));
        self.input = rest;
        bytes
    }

    /// The header of a client that knows its cookie and geometry.
    fn header(&self, known: &Known, kind: Kind, queue: usize) -> Header {
        let seal = if self.seal.is_some() { Flags::SEALED } else { Flags::NONE };
        let header = Header { flags: seal, queue: queue as u16, ..Header::of(kind) };
        let Some(welcome) = known.welcome else { return header };
        let (geometry, session, cookie) = (welcome.geometry, welcome.session, welcome.cookie);
        // Differs between datagrams, as the input shrinks.
        let sequence = (1 << 16) - self.input.len() as u64;
        Header { geometry, session, cookie, sequence, ..header }
    }

    fn hello(&mut self, known: &Known) -> Vec<u8> {
        let hello = Hello { nonce: 5, datagram_bytes_max: 600, window: 4, version_max: 2 };
        let header = self.header(known, Kind::Hello, 0);
        let mut out = Vec::new();
        hello.compose(
            &mut out,
            Header { flags: header.flags | Flags::OPEN, ..header },
            self.seal.as_ref().map(|keys| &keys.to_server),
        );
        out
    }

    /// Operations on few keys, with valid hashes.
    fn request(&mut self, known: &Known, queue: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let count = self.byte()? % 8;
        let header = self.header(known, Kind::Request, queue);
        let mut composer = Composer::begin(&mut out, header, 2 * DATAGRAM_BYTES_MIN);
        for request in 0..count {
            let Some(operation) = self.operation(known, u32::from(request)) else { break };
            composer.push_operation(&operation);
        }
        composer.finish_with(self.seal.as_ref().map(|keys| &keys.to_server));
        Some(out)
    }

    fn operation(&mut self, known: &Known, request: u32) -> Option<Operation<'i>> {
        const KEYS: [&[u8]; 4] = [b"a", b"bb", b"ccc", b"a key that is longer than others"];
        let (opcode, flags) = (Opcode::from_byte(self.byte()?), OpFlags(self.byte()?));
        let (pick, length) = (self.byte()?, self.number()? as usize);
        let key = if opcode.names_item() { KEYS[usize::from(pick % 4)] } else { b"" };
        let operand = if pick & 4 == 4 { known.cas } else { u64::from(pick >> 3) };
        let is_deferred = flags.contains(OpFlags::DEFERRED);
        let detail = Detail {
            value_bytes: length as u32 * 2,
            // One in four has expired before it is read.
            ttl: 2 - i32::from(pick >> 6),
            item_flags: u32::from(pick),
            once: u32::from(pick >> 3),
            operand,
        };
        let value = if is_deferred || !opcode.is_long() { &[] } else { self.bytes(length % 512) };
        let hash = known.welcome.map_or(KeyHash(0), |welcome| welcome.direction(key));
        Some(Operation { opcode, flags, request, hash, key, detail, value })
    }

    fn fragment(&mut self, known: &Known, queue: usize) -> Option<Vec<u8>> {
        // The size of the fragments that the server grants to a client with datagrams of 600 bytes; the last
        // one may be shorter.
        const FRAGMENT_BYTES: usize = 536;
        let (what, length) = (self.byte()?, self.number()? as usize);
        let header = self.header(known, Kind::Fragment, queue);
        let tag_bytes = header.tag_bytes();
        let wanted = if what & 1 == 1 { Flags::ACK_WANTED } else { Flags::NONE };
        let mut out = Vec::new();
        let header = Header { flags: header.flags | wanted, ..header };
        let mut composer = Composer::begin(&mut out, header, 2 * DATAGRAM_BYTES_MIN);
        let mut head = [0; FRAGMENT_HEAD_BYTES];
        FragmentHead { transfer: known.transfer, index: u32::from(what >> 2) }.write(&mut head);
        composer.push_bytes(&head);
        let whole = FRAGMENT_BYTES - tag_bytes;
        let bytes = if what & 2 == 2 { length % 600 } else { whole };
        composer.push_bytes(&vec![what; bytes]);
        composer.finish_with(self.seal.as_ref().map(|keys| &keys.to_server));
        Some(out)
    }

    /// Raw bytes, with the protocol's magic, the right length and this cookie.
    fn raw(&mut self, cookie: u64) -> Option<Vec<u8>> {
        let length = self.number()? as usize % 1500;
        let mut out = self.bytes(length).to_vec();
        if out.len() < 48 || out[0] & 1 == 1 {
            return Some(out);
        }
        let length = out.len() as u16;
        out[..3].copy_from_slice(b"Mn\x01");
        out[8..10].copy_from_slice(&length.to_le_bytes());
        if cookie != 0 {
            out[24..32].copy_from_slice(&cookie.to_le_bytes());
        }
        Some(out)
    }
}
