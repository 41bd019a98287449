//! Packets of the rack's state machines on a stream: the length of each, u32 little-endian, before its bytes.

use std::io::{self, Read, Write};

use minos_unit::Packet;

/// Most bytes of a packet: a directory of 65,536 micro-shards with eight copies each, or the changes of a busy one.
const PACKET_BYTES_MAX: u32 = 8 << 20;
/// Before the reason why an end is refused. No packet begins so.
const REFUSED: &[u8] = b"refused: ";

/// Sends a packet.
///
/// # Errors
/// As the stream, which must not be used again.
pub(crate) fn send(stream: &mut impl Write, packet: &Packet) -> io::Result<()> {
    send_bytes(stream, &packet.encode())
}

/// Sends bytes as a packet.
///
/// # Errors
/// As [`send`].
pub(crate) fn send_bytes(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= PACKET_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("a packet is too long"))?;
    stream.write_all(&[length.to_le_bytes().as_slice(), bytes].concat())
}

/// Says in place of a packet why the other end is refused.
///
/// # Errors
/// As [`send`].
pub(crate) fn refuse(stream: &mut impl Write, why: &str) -> io::Result<()> {
    send_bytes(stream, &[REFUSED, why.as_bytes()].concat())
}

/// Receives a packet.
///
/// # Errors
/// As the stream, which must not be used again, or the bytes are not those of a packet, or say why this end is refused.
pub(crate) fn receive(stream: &mut impl Read) -> io::Result<Packet> {
    let bytes = receive_bytes(stream, PACKET_BYTES_MAX)?;
    if bytes.starts_with(REFUSED) {
        return Err(io::Error::other(String::from_utf8_lossy(&bytes)));
    }
    Packet::decode(&bytes).map_err(io::Error::other)
}

/// Receives the bytes of a packet, at most `bytes_max`. Memory is taken as they come.
///
/// # Errors
/// As the stream, which must not be used again.
pub(crate) fn receive_bytes(stream: &mut impl Read, bytes_max: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > bytes_max {
        return Err(io::Error::other("a packet is too long"));
    }
    let mut bytes = Vec::new();
    stream.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Reads a line of at most `bytes_max` bytes, its end included, byte for byte: what follows stays in the stream.
///
/// # Errors
/// As the stream, or the line is longer or no text.
pub(crate) fn receive_line(stream: &mut impl Read, bytes_max: usize) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.len() > bytes_max {
            return Err(io::Error::other("a line is too long"));
        }
    }
    String::from_utf8(line).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minos_rack::{MicroShard, ServerId};
    use minos_unit::{Asked, Message, MoveId};

    const ASKED: Asked = Asked {
        id: MoveId { micro_shard: MicroShard(1), number: 2 },
        incarnation: 3,
        epoch: 4,
        batch: 5,
        freeze: true,
    };

    #[test]
    fn packets_come_as_they_were_sent_and_others_are_refused() {
        let packet = |node| Packet::Message(ServerId(node), Message::Refused(ASKED));
        let mut bytes = b"hello\n".to_vec();
        send(&mut bytes, &packet(1)).unwrap();
        send(&mut bytes, &packet(2)).unwrap();
        let mut stream = bytes.as_slice();
        assert_eq!(receive_line(&mut stream, 6).unwrap(), "hello\n");
        assert_eq!(receive(&mut stream).unwrap(), packet(1));
        assert_eq!(receive(&mut stream).unwrap(), packet(2));
        assert!(receive(&mut stream).is_err());
        let mut refused = Vec::new();
        refuse(&mut refused, "another lease").unwrap();
        assert_eq!(receive(&mut refused.as_slice()).unwrap_err().to_string(), "refused: another lease");
        for cut in 7..bytes.len() - 1 {
            let mut stream = &bytes[6..cut];
            while receive(&mut stream).is_ok() {}
        }
        assert!(receive(&mut [0xff; 8].as_slice()).is_err());
        assert!(receive_line(&mut b"hello\n".as_slice(), 5).is_err());
        assert!(receive_line(&mut b"\xff\n".as_slice(), 5).is_err());
    }
}
