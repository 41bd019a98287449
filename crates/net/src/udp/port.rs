//! A socket for datagrams, and the features of its kernel.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with, sockopt};

use super::options::{Place, integer, integers, set};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
const SEGMENT: Place = Place(libc::SOL_UDP, libc::UDP_SEGMENT);
const GRO: Place = Place(libc::SOL_UDP, libc::UDP_GRO);
const MEMORY: Place = Place(libc::SOL_SOCKET, libc::SO_MEMINFO);
/// Places of ports in a row that are tried before giving up.
const ROW_TRIES: usize = 64;

/// How a port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Bytes requested for the receive buffer. Without privilege, `net.core.rmem_max` limits it;
    /// [`UdpPort::receive_buffer_bytes`] returns the granted size.
    pub receive_buffer_bytes: usize,
    /// The same for the send buffer.
    pub send_buffer_bytes: usize,
    /// True if several ports may be bound to the same address; see [`steer_by_queue`](super::steer_by_queue).
    pub shares_address: bool,
    /// True to send trains as one message where the kernel supports it.
    pub gso: bool,
    /// True to receive trains as one message where the kernel supports it.
    pub gro: bool,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            shares_address: false,
            gso: true,
            gro: true,
        }
    }
}

/// A UDP socket that never blocks. The network may cut a datagram into fragments only where it would never
/// arrive otherwise ([`Sent::too_long`](super::Sent::too_long)).
#[derive(Debug)]
pub struct UdpPort {
    fd: OwnedFd,
    address: SocketAddr,
    gro: bool,
    /// Becomes false once, when a device refuses a train. A thread that still sends a train meanwhile gets
    /// the same refusal, so that no ordering is needed.
    gso: AtomicBool,
}

impl UdpPort {
    /// Opens a port on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The kernel's error: the address is in use, not allowed or not available.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        let fd = open(address)?;
        if options.shares_address {
            sockopt::set_socket_reuseport(&fd, true)?;
        }
        set_fragments(fd.as_fd(), address.ip(), false)?;
        enlarge(fd.as_fd(), options)?;
        let gro = options.gro && set(fd.as_fd(), GRO, 1).is_ok();
        // Size 0 leaves the choice to each message; the call fails if the kernel knows no trains.
        let gso = options.gso && set(fd.as_fd(), SEGMENT, 0).is_ok();
        bind(&fd, &address)?;
        let address = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self { fd, address, gro, gso: AtomicBool::new(gso) })
    }

    /// Opens `count` ports in a row from `address` on; port 0 takes free ones.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); [`io::ErrorKind::AddrInUse`] also if no free row was found.
    pub fn bind_row(address: SocketAddr, count: usize, options: &UdpOptions) -> io::Result<Vec<Self>> {
        let tries = if address.port() == 0 { ROW_TRIES } else { 1 };
        let mut result = Err(io::ErrorKind::AddrInUse.into());
        for _ in 0..tries {
            result = row(address, count, options);
            match &result {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                _ => break,
            }
        }
        result
    }

    /// Opens `count` ports that share `address`; port 0 takes a free one. A datagram arrives at one of
    /// them, by a hash of its source unless [`steer_by_queue`](super::steer_by_queue) is in force.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_shared(address: SocketAddr, count: usize, options: &UdpOptions) -> io::Result<Vec<Self>> {
        let options = UdpOptions { shares_address: true, ..options.clone() };
        let mut ports: Vec<Self> = Vec::with_capacity(count);
        for _ in 0..count {
            let address = ports.first().map_or(address, Self::address);
            ports.push(Self::bind(address, &options)?);
        }
        Ok(ports)
    }

    /// The address in use, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if trains leave as one message (UDP_SEGMENT). Becomes false for good when a device refuses one.
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// True if trains arrive as one message (UDP_GRO).
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Bytes of the receive buffer that the kernel gave; 0 if it does not say.
    pub fn receive_buffer_bytes(&self) -> usize {
        // The kernel doubles the requested size for its own use.
        sockopt::socket_recv_buffer_size(&self.fd).unwrap_or(0) / 2
    }

    /// Bytes of the send buffer that the kernel gave; 0 if it does not say.
    pub fn send_buffer_bytes(&self) -> usize {
        sockopt::socket_send_buffer_size(&self.fd).unwrap_or(0) / 2
    }

    /// Messages that the kernel dropped since this port was opened, most likely because they were not
    /// received in time. Counts modulo 2^32.
    pub fn overruns(&self) -> u32 {
        const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
        integers::<{ DROPS + 1 }>(self.as_fd(), MEMORY).map_or(0, |values| values[DROPS] as u32)
    }

    /// The MTU of the path to `peer` as far as the kernel knows it, in bytes with all headers; see
    /// [`header_bytes`](super::header_bytes).
    ///
    /// # Errors
    /// There is no route to `peer`, or no descriptor left for the query.
    pub fn path_mtu(peer: SocketAddr) -> io::Result<usize> {
        let place = match peer {
            SocketAddr::V4(_) => Place(libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => Place(libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        // Only a connected socket has a path; connecting one for datagrams sends nothing.
        let socket = open(peer)?;
        connect(&socket, &peer)?;
        let mtu = integer(socket.as_fd(), place)?;
        usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Allows or forbids IP fragmentation of later datagrams.
    pub(super) fn allow_fragments(&self, are_allowed: bool) {
        // The option was set when the port was opened, so setting it again cannot fail.
        let _ = set_fragments(self.as_fd(), self.address.ip(), are_allowed);
    }

    /// Trains go as single messages from now on.
    pub(super) fn give_up_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UdpPort {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, FLAGS, None)?;
    if address.is_ipv6() {
        // An address stands for one family only, and a peer has one form only.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

/// Allows or forbids IP fragmentation. Without it, sending a datagram that is too long for its path fails;
/// with it, one lost fragment loses the whole datagram.
fn set_fragments(socket: BorrowedFd<'_>, ip: IpAddr, are_allowed: bool) -> io::Result<()> {
    let (place, allowed, forbidden) = match ip {
        IpAddr::V4(_) => {
            (Place(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_DONT, libc::IP_PMTUDISC_DO)
        }
        IpAddr::V6(_) => (
            Place(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            libc::IPV6_PMTUDISC_DONT,
            libc::IPV6_PMTUDISC_DO,
        ),
    };
    set(socket, place, if are_allowed { allowed } else { forbidden })
}

/// Asks for buffers beyond the system's bound first, which needs privilege.
fn enlarge(socket: BorrowedFd<'_>, options: &UdpOptions) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, options.receive_buffer_bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, options.receive_buffer_bytes))?;
    sockopt::set_socket_send_buffer_size_force(socket, options.send_buffer_bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, options.send_buffer_bytes))?;
    Ok(())
}

fn row(address: SocketAddr, count: usize, options: &UdpOptions) -> io::Result<Vec<UdpPort>> {
    let mut ports: Vec<UdpPort> = Vec::with_capacity(count);
    for index in 0..count {
        let mut next = address;
        if let Some(first) = ports.first() {
            let port = u16::try_from(index).ok().and_then(|index| first.address.port().checked_add(index));
            next.set_port(port.ok_or(io::ErrorKind::AddrInUse)?);
        }
        ports.push(UdpPort::bind(next, options)?);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{ReceiveBurst, TransmitBurst};

    /// A port whose kernel refuses trains, as that of a device that cannot cut them does.
    fn port_without_trains() -> UdpPort {
        let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        assert!(port.gso(), "this kernel knows no trains, so that nothing is shown");
        set(port.as_fd(), Place(libc::SOL_SOCKET, libc::SO_NO_CHECK), 1).unwrap();
        port
    }

    fn received(port: &UdpPort, count: usize) -> Vec<Vec<u8>> {
        let (mut burst, mut datagrams) = (ReceiveBurst::new(), Vec::new());
        while datagrams.len() < count {
            port.receive(&mut burst).unwrap();
            burst.messages().for_each(|message| datagrams.extend(message.segments().map(<[u8]>::to_vec)));
        }
        datagrams
    }

    #[test]
    fn a_refused_train_goes_in_segments_and_so_do_the_next() {
        let near = port_without_trains();
        let far = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        let bytes: Vec<u8> = (0..250).collect();
        let mut burst = TransmitBurst::new();
        for _ in 0..2 {
            assert!(burst.push(far.address(), &bytes, 100) && burst.push(far.address(), &bytes[..7], 7));
            assert_eq!(burst.send(&near).trains, 2);
            assert!(!near.gso());
            assert_eq!(received(&far, 4), [&bytes[..100], &bytes[100..200], &bytes[200..], &bytes[..7]]);
        }
    }

    #[test]
    fn a_refused_train_of_pieces_goes_in_segments() {
        let near = port_without_trains();
        let far = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        let pieces = [io::IoSlice::new(b"abc"), io::IoSlice::new(b"defgh")];
        assert_eq!(near.send_gather(far.address(), &pieces, 4).trains, 1);
        assert!(!near.gso());
        assert_eq!(received(&far, 2), [b"abcd", b"efgh"]);
    }

    #[test]
    fn a_peer_that_is_none_does_not_take_the_trains_from_others() {
        let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        let had = port.gso();
        let mut burst = TransmitBurst::new();
        assert!(burst.push("127.0.0.1:0".parse().unwrap(), &[0; 100], 10));
        let sent = burst.send(&port);
        assert_eq!((sent.trains, sent.refused), (0, 1));
        assert_eq!(port.gso(), had);
    }
}
