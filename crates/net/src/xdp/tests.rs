//! The steering program, run by the kernel on single packets. It needs privileges; without them each test says so.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
};

use super::{
    bpf::{Program, SocketMap, test_run::run},
    program::{Action, Steering, program},
};
use crate::frame::{End, Mac, head_bytes, write_head};

const SERVER: Mac = [2, 0, 0, 0, 0xfe, 0xff];
const CLIENT: Mac = [2, 0, 0, 0, 0, 1];
const PORT: u16 = 11311;
const PORTS: u16 = 4;
const FAMILIES: [[&str; 2]; 2] = [["10.77.0.2", "10.77.0.1"], ["fd77::2", "fd77::1"]];

/// A program that steers to a map without sockets, and drops what it would steer.
struct Steered {
    program: Program,
    _map: SocketMap,
}

impl Steered {
    /// `None` without privileges.
    fn to(ip: &str, shares_address: bool) -> Option<Self> {
        let map = match SocketMap::new(u32::from(PORTS)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // As `minos_testkit::skip` does, whose crate depends on this one.
                let thread = std::thread::current();
                let name = thread.name().unwrap_or("a test");
                let line = format!("skipped: {name}: no program may be loaded here: {error}\n");
                io::stderr().write_all(line.as_bytes()).unwrap();
                return None;
            }
            map => map.unwrap(),
        };
        let steering = Steering {
            mac: SERVER,
            ip: ip.parse().unwrap(),
            port: PORT,
            ports: PORTS,
            shares_address,
            sockets: map.as_fd().as_raw_fd(),
            otherwise: Action::Drop,
        };
        Some(Self { program: Program::load(&program(&steering)).unwrap(), _map: map })
    }

    fn takes(&self, packet: &[u8]) -> bool {
        match run(&self.program, packet) {
            result if result == Action::Drop as u32 => true,
            result if result == Action::Pass as u32 => false,
            result => panic!("the program ended with {result}"),
        }
    }
}

/// A datagram of 64 bytes that names queue 1.
fn packet([from, to]: [&str; 2], port: u16) -> Vec<u8> {
    let end = |mac, ip: &str, port| End { mac, address: SocketAddr::new(ip.parse().unwrap(), port) };
    let begin = head_bytes(&from.parse().unwrap());
    let mut frame = vec![0; begin + 64];
    frame[begin + 6] = 1;
    write_head(&mut frame, &end(CLIENT, from, 4000), &end(SERVER, to, port), 64).unwrap();
    frame
}

#[test]
fn datagrams_for_the_ports_are_taken_and_all_others_are_passed() {
    for family in FAMILIES {
        let Some(steered) = Steered::to(family[1], false) else { return };
        for port in PORT..PORT + PORTS {
            assert!(steered.takes(&packet(family, port)), "{port}");
        }
        for port in [0, 53, PORT - 1, PORT + PORTS, u16::MAX] {
            assert!(!steered.takes(&packet(family, port)), "{port}");
        }
        let [other, server] = family;
        assert!(!steered.takes(&packet([server, other], PORT)), "another address");
    }
}

#[test]
fn each_changed_byte_of_the_headers_belongs_to_the_kernel() {
    // Addresses, type, version and length, fragments, protocol; then the same of IPv6, whose version is half a byte.
    let ipv4 = [
        (0..6, 0xff),
        (12..14, 0xff),
        (14..15, 0xff),
        (20..21, 0xbf),
        (21..22, 0xff),
        (23..24, 0xff),
        (30..34, 0xff),
    ];
    let ipv6 = [(0..6, 0xff), (12..14, 0xff), (14..15, 0xf0), (20..21, 0xff), (38..54, 0xff)];
    for (family, places) in FAMILIES.into_iter().zip([&ipv4[..], &ipv6]) {
        let Some(steered) = Steered::to(family[1], false) else { return };
        for (at, bits) in places.iter().flat_map(|(at, bits)| at.clone().map(move |at| (at, *bits))) {
            for bit in (0..8).map(|bit| 1 << bit).filter(|bit| bit & bits != 0) {
                let mut frame = packet(family, PORT);
                frame[at] ^= bit;
                assert!(!steered.takes(&frame), "byte {at}, bit {bit:#x}");
            }
        }
        // The source, hop limit and payload are free.
        for at in [6, 22, 60, 100] {
            let mut frame = packet(family, PORT);
            frame[at] ^= 0x11;
            assert!(steered.takes(&frame), "byte {at}");
        }
    }
}

#[test]
fn a_packet_that_ends_early_is_passed() {
    for family in FAMILIES {
        let Some(steered) = Steered::to(family[1], false) else { return };
        let whole = packet(family, PORT);
        let head = head_bytes(&family[0].parse().unwrap());
        assert!(steered.takes(&whole[..head]));
        // The kernel runs no program on less than Ethernet's header.
        for bytes in 14..head {
            assert!(!steered.takes(&whole[..bytes]), "{bytes}");
        }
    }
}

#[test]
fn with_one_port_the_payload_names_the_queue() {
    for family in FAMILIES {
        let Some(steered) = Steered::to(family[1], true) else { return };
        let queue = head_bytes(&family[0].parse().unwrap()) + 6;
        let naming = |number: u16| {
            let mut frame = packet(family, PORT);
            frame[queue..queue + 2].copy_from_slice(&number.to_le_bytes());
            frame
        };
        for number in 0..PORTS {
            assert!(steered.takes(&naming(number)));
        }
        // Queues that are none, another port, and a payload without a queue.
        assert!(!steered.takes(&naming(PORTS)) && !steered.takes(&naming(0x100)));
        assert!(!steered.takes(&packet(family, PORT + 1)));
        assert!(!steered.takes(&naming(0)[..queue + 1]));
        assert!(steered.takes(&naming(0)[..queue + 2]));
    }
}
