//! The program that steers datagrams to their sockets, as instructions of eBPF.
//!
//! It takes plain UDP datagrams for this host's hardware address, IP address and ports, and passes all else to the
//! kernel's stack. Flow Director steers by the destination port (Minos §4.1, MICA §4.1.2); where a card cannot, any of
//! its queues may receive a datagram, so that each pair of queue and port has a socket of its own.

use std::{net::IpAddr, os::fd::RawFd};

use crate::frame::Mac;

/// What becomes of a packet, in the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It is lost. Only tests ask for it.
    #[cfg(test)]
    Drop = 1,
    /// It goes to the kernel's stack.
    Pass = 2,
}

/// What the program lets through, and where to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steering {
    pub(super) mac: Mac,
    pub(super) ip: IpAddr,
    /// First UDP port.
    pub(super) port: u16,
    /// Number of ports.
    pub(super) ports: u16,
    /// True if all are at the first port, and bytes 6 and 7 of the payload name one.
    pub(super) shares_address: bool,
    /// The map of sockets: that of queue *q* and port *p* is at *q* × `ports` + *p*.
    pub(super) sockets: RawFd,
    /// What becomes of a datagram without a socket.
    pub(super) otherwise: Action,
}

/// An instruction as the kernel reads it: code, registers, offset, and an immediate number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

/// Registers. The first five are a call's arguments, and lost by it.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const DATA: u8 = 2;
const LIMIT: u8 = 3;
const VALUE: u8 = 4;
const QUEUE: u8 = 5;

/// Fields of the context that the program is given.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_LIMIT: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

/// Codes of instructions.
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const LOAD_MAP: u8 = 0x18;
const SET: u8 = 0xb7;
const SET_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const ADD_REGISTER: u8 = 0x0f;
const SUBTRACT: u8 = 0x17;
const MULTIPLY: u8 = 0x27;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const FROM_BIG_ENDIAN: u8 = 0xdc;
const FROM_LITTLE_ENDIAN: u8 = 0xd4;
const JUMP_IF_ABOVE_REGISTER: u8 = 0x2d;
const JUMP_IF_NOT_BELOW: u8 = 0x35;
/// Compares 32 bits.
const JUMP_IF_NOT: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The source register of [`LOAD_MAP`] that says that the number is a descriptor.
const IS_DESCRIPTOR: u8 = 1;
const REDIRECT_MAP: i32 = 51;

/// Places in a frame.
const MAC: i16 = 0;
const TYPE: i16 = 12;
const IP: i16 = 14;
/// From the beginning of the payload.
const QUEUE_IN_PAYLOAD: i16 = 6;
const QUEUE_BYTES: i16 = 2;

/// The program under way. Jumps go to its end, which passes the packet on.
#[derive(Default)]
struct Assembly(Vec<Instruction>);

/// The instructions for `steering`.
pub(super) fn program(steering: &Steering) -> Vec<Instruction> {
    let mut it = Assembly::default();
    let udp = IP + if steering.ip.is_ipv4() { 20 } else { 40 };
    let payload = udp + 8;
    let read = if steering.shares_address { payload + QUEUE_IN_PAYLOAD + QUEUE_BYTES } else { payload };
    it.load(LOAD_32, DATA, CONTEXT, CONTEXT_DATA);
    it.load(LOAD_32, LIMIT, CONTEXT, CONTEXT_LIMIT);
    it.load(LOAD_32, QUEUE, CONTEXT, CONTEXT_QUEUE);
    it.with_register(SET_REGISTER, VALUE, DATA);
    it.with_number(ADD, VALUE, read.into());
    it.jump(JUMP_IF_ABOVE_REGISTER, VALUE, LIMIT, 0);
    it.expect(MAC, &steering.mac);
    match steering.ip {
        IpAddr::V4(ip) => it.expect_ipv4(&ip.octets()),
        IpAddr::V6(ip) => it.expect_ipv6(&ip.octets()),
    }
    it.load(LOAD_16, VALUE, DATA, udp + 2);
    it.with_number(FROM_BIG_ENDIAN, VALUE, 16);
    it.with_number(SUBTRACT, VALUE, steering.port.into());
    if steering.shares_address {
        it.jump(JUMP_IF_NOT, VALUE, 0, 0);
        it.load(LOAD_16, VALUE, DATA, payload + QUEUE_IN_PAYLOAD);
        it.with_number(FROM_LITTLE_ENDIAN, VALUE, 16);
    }
    it.jump(JUMP_IF_NOT_BELOW, VALUE, 0, steering.ports.into());
    it.with_number(MULTIPLY, QUEUE, steering.ports.into());
    it.with_register(ADD_REGISTER, QUEUE, VALUE);
    it.redirect(steering.sockets, steering.otherwise);
    it.finish()
}

impl Assembly {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, number: i32) {
        self.0.push(Instruction { code, registers: from << 4 | to, offset, number });
    }

    fn load(&mut self, code: u8, to: u8, from: u8, offset: i16) {
        self.add(code, to, from, offset, 0);
    }

    fn with_register(&mut self, code: u8, to: u8, from: u8) {
        self.add(code, to, from, 0, 0);
    }

    fn with_number(&mut self, code: u8, to: u8, number: i32) {
        self.add(code, to, 0, 0, number);
    }

    /// A jump to the end, which [`finish`](Self::finish) places.
    fn jump(&mut self, code: u8, left: u8, right: u8, number: i32) {
        self.add(code, left, right, 0, number);
    }

    /// Passes the packet on unless these bytes, an even number, are at `at`.
    fn expect(&mut self, at: i16, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<4>();
        let rest_at = at + 4 * words.len() as i16;
        for (word, at) in words.iter().zip((at..).step_by(4)) {
            self.load(LOAD_32, VALUE, DATA, at);
            self.jump(JUMP_IF_NOT, VALUE, 0, i32::from_ne_bytes(*word));
        }
        for (word, at) in rest.as_chunks::<2>().0.iter().zip((rest_at..).step_by(2)) {
            self.load(LOAD_16, VALUE, DATA, at);
            self.jump(JUMP_IF_NOT, VALUE, 0, u16::from_ne_bytes(*word).into());
        }
    }

    /// Passes the packet on unless the byte at `at` is this one.
    fn expect_byte(&mut self, at: i16, byte: u8) {
        self.load(LOAD_8, VALUE, DATA, at);
        self.jump(JUMP_IF_NOT, VALUE, 0, byte.into());
    }

    /// Expects UDP in a whole packet without options.
    fn expect_ipv4(&mut self, ip: &[u8; 4]) {
        self.expect(TYPE, &[0x08, 0x00]);
        self.expect_byte(IP, 0x45);
        self.load(LOAD_16, VALUE, DATA, IP + 6);
        self.with_number(FROM_BIG_ENDIAN, VALUE, 16);
        self.with_number(AND, VALUE, 0xbfff);
        self.jump(JUMP_IF_NOT, VALUE, 0, 0);
        self.expect_byte(IP + 9, 17);
        self.expect(IP + 16, ip);
    }

    /// Expects UDP right behind the header.
    fn expect_ipv6(&mut self, ip: &[u8; 16]) {
        self.expect(TYPE, &[0x86, 0xdd]);
        self.load(LOAD_8, VALUE, DATA, IP);
        self.with_number(SHIFT_RIGHT, VALUE, 4);
        self.jump(JUMP_IF_NOT, VALUE, 0, 6);
        self.expect_byte(IP + 6, 17);
        self.expect(IP + 24, ip);
    }

    /// Redirects to the socket whose number is in [`QUEUE`].
    fn redirect(&mut self, sockets: RawFd, otherwise: Action) {
        self.add(LOAD_MAP, CONTEXT, IS_DESCRIPTOR, 0, sockets);
        self.add(0, 0, 0, 0, 0);
        self.with_register(SET_REGISTER, DATA, QUEUE);
        self.with_number(SET, LIMIT, otherwise as i32);
        self.with_number(CALL, 0, REDIRECT_MAP);
        self.with_number(EXIT, 0, 0);
    }

    /// Adds the end, and lets all jumps lead there.
    fn finish(mut self) -> Vec<Instruction> {
        let end = self.0.len();
        let jumps = [JUMP_IF_ABOVE_REGISTER, JUMP_IF_NOT_BELOW, JUMP_IF_NOT];
        for (at, instruction) in self.0.iter_mut().enumerate().filter(|(_, it)| jumps.contains(&it.code)) {
            instruction.offset = (end - at - 1) as i16;
        }
        self.with_number(SET, RESULT, Action::Pass as i32);
        self.with_number(EXIT, 0, 0);
        self.0
    }
}
