//! Packets of memcached's binary protocol.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// The status of a command that the client may not use.
pub(crate) const AUTH: u16 = 0x20;

#[derive(Debug)]
pub(crate) struct Packet {
    opcode: u8,
    extras: Vec<u8>,
    key: String,
    value: Vec<u8>,
}

impl Packet {
    pub(crate) fn new(opcode: u8) -> Self {
        Self { opcode, extras: Vec::new(), key: String::new(), value: Vec::new() }
    }

    pub(crate) fn extras(self, bytes: usize) -> Self {
        Self { extras: vec![0; bytes], ..self }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    pub(crate) fn value(self, value: impl Into<Vec<u8>>) -> Self {
        Self { value: value.into(), ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode, 0, self.key.len() as u8, self.extras.len() as u8, 0, 0, 0];
        bytes.extend((body as u32).to_be_bytes());
        bytes.extend([0; 12]);
        bytes.extend([&self.extras[..], self.key.as_bytes(), &self.value].concat());
        bytes
    }

    /// As [`ask`](Self::ask), with the packet in two pieces.
    pub(crate) fn ask_in_pieces(&self, stream: &mut TcpStream) -> (u16, Vec<u8>) {
        let bytes = self.bytes();
        let (head, tail) = bytes.split_at(30);
        stream.write_all(head).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        stream.write_all(tail).unwrap();
        reply(stream)
    }

    /// The status and the body of the reply, or of the last of several.
    pub(crate) fn ask(&self, stream: &mut TcpStream) -> (u16, Vec<u8>) {
        stream.write_all(&self.bytes()).unwrap();
        let mut last = reply(stream);
        // `stat` has several.
        while self.opcode == 0x10 && last.0 == 0 && !last.1.is_empty() {
            last = reply(stream);
        }
        last
    }
}

fn reply(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    let mut header = [0; 24];
    stream.read_exact(&mut header).unwrap();
    let body = u32::from_be_bytes(header[8..12].try_into().unwrap()) as usize;
    let mut bytes = vec![0; body];
    stream.read_exact(&mut bytes).unwrap();
    (u16::from_be_bytes([header[6], header[7]]), bytes)
}

/// A packet, and the users who may send it.
type Right = (fn() -> Packet, &'static [&'static str]);

/// Packets of all kinds.
pub(crate) const RIGHTS: [Right; 17] = [
    (|| Packet::new(0x00).key("a:1"), &["reader", "half", "all"]),
    (|| Packet::new(0x0c).key("c:1"), &["reader", "all"]),
    (|| Packet::new(0x1d).extras(4).key("a:1"), &["writer", "all"]),
    (|| Packet::new(0x01).extras(8).key("a:1").value("1"), &["writer", "all"]),
    (|| Packet::new(0x01).extras(8).key("b:1").value("1"), &["half", "all"]),
    (|| Packet::new(0x02).extras(8).key("a:1").value("1"), &["writer", "all"]),
    (|| Packet::new(0x03).extras(8).key("a:1").value("1"), &["writer", "all"]),
    (|| Packet::new(0x0e).key("a:1").value("1"), &["writer", "all"]),
    (|| Packet::new(0x0f).key("a:1").value("1"), &["writer", "all"]),
    (|| Packet::new(0x05).extras(20).key("a:2"), &["writer", "all"]),
    (|| Packet::new(0x06).extras(20).key("b:2"), &["half", "all"]),
    (|| Packet::new(0x1c).extras(4).key("a:1"), &["writer", "all"]),
    (|| Packet::new(0x04).key("a:1"), &["writer", "all"]),
    (|| Packet::new(0x08), &["half", "operator", "all"]),
    (|| Packet::new(0x10).key("settings"), &["watcher", "operator", "all"]),
    (|| Packet::new(0x10).key("reset"), &["operator", "all"]),
    (|| Packet::new(0x0b), &["reader", "writer", "half", "operator", "watcher", "all"]),
];
