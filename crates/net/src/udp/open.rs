//! The ports of a server, and UDP as one way of carrying bursts of datagrams.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
};

use super::{
    Message, ReceiveBurst, Sent, TransmitBurst, UdpOptions, UdpPort,
    options::{Place, set_value},
};
use crate::{Port, PortFacts, PortOptions};

/// The place in the payload of the port that is to receive it: two bytes, little-endian.
const QUEUE_OFFSET: u32 = 6;

impl UdpPort {
    /// Opens the ports of a server.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::AddrInUse`] also if no free row was found.
    pub fn open_all(wanted: &PortOptions) -> io::Result<Vec<Self>> {
        let options =
            UdpOptions { receive_buffer_bytes: wanted.receive_buffer_bytes, ..UdpOptions::default() };
        if !wanted.shares_address {
            return Self::bind_row(wanted.address, wanted.count, &options);
        }
        // A shared port could also be shared with another server, without an error. So look for a free port
        // first.
        let free = Self::bind(wanted.address, &options)?.address();
        let ports = Self::bind_shared(free, wanted.count, &options)?;
        steer_by_queue(&ports)?;
        Ok(ports)
    }
}

impl Port for UdpPort {
    type Burst = ReceiveBurst;

    fn burst(&self) -> ReceiveBurst {
        ReceiveBurst::new()
    }

    #[inline]
    fn receive_at_most(&self, burst: &mut ReceiveBurst, messages_max: usize) -> io::Result<usize> {
        UdpPort::receive_at_most(self, burst, messages_max)
    }

    #[inline]
    fn messages(burst: &mut ReceiveBurst) -> impl Iterator<Item = Message<'_>> {
        burst.messages()
    }

    #[inline]
    fn send(&self, trains: &mut TransmitBurst) -> Sent {
        trains.send(self)
    }

    #[inline]
    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        UdpPort::send_gather(self, peer, pieces, segment_bytes)
    }

    fn address(&self) -> SocketAddr {
        UdpPort::address(self)
    }

    fn overruns(&self) -> u64 {
        UdpPort::overruns(self).into()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> PortFacts {
        PortFacts {
            gso: self.gso(),
            gro: self.gro(),
            receive_buffer_bytes: self.receive_buffer_bytes(),
            send_buffer_bytes: self.send_buffer_bytes(),
            ..PortFacts::default()
        }
    }
}

/// Lets a datagram for the address that `ports` share arrive at the port of this number that the bytes 6
/// and 7 of its payload say (little-endian), counted in the order in which the ports were bound. Numbers
/// that no port has are dealt by a hash of the source, and payloads of less than eight bytes go to port 0.
/// A train goes where its first segment belongs. Closing one of the ports moves those bound later.
///
/// # Errors
/// The kernel has no such programs, or the ports were not bound together
/// ([`UdpPort::bind_shared`]).
pub fn steer_by_queue(ports: &[UdpPort]) -> io::Result<()> {
    let Some(first) = ports.first() else { return Ok(()) };
    if ports.iter().any(|port| port.address() != first.address()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut instructions = program();
    let program =
        libc::sock_fprog { len: instructions.len() as libc::c_ushort, filter: instructions.as_mut_ptr() };
    let place = Place(libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
    // The program applies to all sockets with this address, whichever one it is attached to.
    // SAFETY: the program points to as many instructions as its length, which live through the call.
    unsafe { set_value(first.as_fd(), place, &program) }
}

/// Flow Director steers by the destination port (Minos §4.1, MICA §4.1.2). With one port for all, these six
/// instructions in the kernel read the queue from the payload instead.
///
/// Classic BPF, which needs no compiler and no privilege. Its loads are big-endian and the number is not,
/// so that it comes byte by byte. The kernel starts at the payload.
fn program() -> [libc::sock_filter; 6] {
    let load_byte = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    [
        instruction(load_byte, QUEUE_OFFSET + 1),
        instruction(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 8),
        instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
        instruction(load_byte, QUEUE_OFFSET),
        instruction(libc::BPF_ALU | libc::BPF_OR | libc::BPF_X, 0),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
