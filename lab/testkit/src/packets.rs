//! A blocking client of memcached's binary protocol, packet by packet.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Longest time that a read may take before the test fails.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// Bytes of a header.
const HEADER_BYTES: usize = 24;

/// A request, part by part. The lengths in its header are those of the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The command.
    pub opcode: u8,
    /// Its parameters.
    pub extras: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The CAS unique that the item must have; 0 for any.
    pub cas: u64,
    /// Comes back with the reply.
    pub opaque: u32,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The opcode of its request.
    pub opcode: u8,
    /// 0 for success.
    pub status: u16,
    /// Client flags of an item.
    pub extras: Vec<u8>,
    /// The key, if it was asked for.
    pub key: Vec<u8>,
    /// The value, or the text of an error.
    pub value: Vec<u8>,
    /// The item's CAS unique.
    pub cas: u64,
    /// That of the request.
    pub opaque: u32,
}

impl Packet {
    /// A request without key and value.
    pub fn new(opcode: u8) -> Self {
        Self { opcode, ..Self::default() }
    }

    /// A request with a key.
    pub fn of(opcode: u8, key: impl AsRef<[u8]>) -> Self {
        Self { opcode, key: key.as_ref().to_vec(), ..Self::default() }
    }

    /// A `set`, `add` or `replace`.
    pub fn store(
        opcode: u8,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        flags: u32,
        expiry: u32,
    ) -> Self {
        let extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
        Self { extras, value: value.as_ref().to_vec(), ..Self::of(opcode, key) }
    }

    /// An `increment` or `decrement`.
    pub fn count(opcode: u8, key: impl AsRef<[u8]>, delta: u64, initial: u64, expiry: u32) -> Self {
        let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &expiry.to_be_bytes()].concat();
        Self { extras, ..Self::of(opcode, key) }
    }

    /// A `touch`, or a read with one.
    pub fn touch(opcode: u8, key: impl AsRef<[u8]>, expiry: u32) -> Self {
        Self { extras: expiry.to_be_bytes().to_vec(), ..Self::of(opcode, key) }
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let body_bytes = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend((body_bytes as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        [&bytes, &self.extras[..], &self.key, &self.value].concat()
    }
}

impl Answer {
    /// The reply at the front of `bytes`, and its length; `None` if it is not whole.
    ///
    /// # Errors
    /// The bytes are no reply.
    pub fn read(bytes: &[u8]) -> io::Result<Option<(Self, usize)>> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let word = |at: usize| (u32::from(short(at)) << 16) | u32::from(short(at + 2));
        let (key_bytes, extras_bytes) = (usize::from(short(2)), usize::from(header[4]));
        let body_bytes = word(8) as usize;
        if header[0] != 0x81 || key_bytes + extras_bytes > body_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("no reply: {header:?}")));
        }
        let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
        let (extras, body) = body.split_at(extras_bytes);
        let (key, value) = body.split_at(key_bytes);
        let answer = Self {
            opcode: header[1],
            status: short(6),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
            cas: (u64::from(word(16)) << 32) | u64::from(word(20)),
            opaque: word(12),
        };
        Ok(Some((answer, HEADER_BYTES + body_bytes)))
    }
}

/// A connection that speaks the binary protocol.
#[derive(Debug)]
pub struct PacketClient {
    stream: TcpStream,
    input: Vec<u8>,
}

impl PacketClient {
    /// Connects. Reads fail when nothing comes for half a minute.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_WITHIN))?;
        stream.set_write_timeout(Some(READ_WITHIN))?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// Writes `bytes` as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Reads one reply; `None` if the server has closed the connection.
    pub fn answer(&mut self) -> io::Result<Option<Answer>> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some((answer, bytes)) = Answer::read(&self.input)? {
                self.input.drain(..bytes);
                return Ok(Some(answer));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                // A server that closes with our bytes unread resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                // This process was stopped and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request that is answered, and reads the reply.
    pub fn ask(&mut self, packet: &Packet) -> io::Result<Answer> {
        self.send(packet.bytes())?;
        self.answer()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
