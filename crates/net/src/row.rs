//! The ports of an address that the kernel does not have.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV4},
};

use crate::{
    PortOptions,
    frame::{Datagram, Mac},
    senders::Recipient,
};

/// The first port if none is asked for.
const FIRST_PORT: u16 = 49_152;
/// Bytes before the queue's number in a payload, which names the port where all share an address.
const QUEUE_AT: usize = 6;

/// Ports in a row, or at one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) first: SocketAddrV4,
    count: usize,
    /// True if payloads name the port.
    pub(crate) shares_address: bool,
}

impl Row {
    /// # Errors
    /// The address is none of IPv4, or none of a single host; or there are not so many ports behind it.
    pub(crate) fn of(wanted: &PortOptions) -> io::Result<Self> {
        let invalid = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned()));
        let SocketAddr::V4(mut first) = wanted.address else {
            return invalid("the address must be one of IPv4");
        };
        let ip = first.ip();
        if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() {
            return invalid("the address must be one host's, and no loopback address");
        }
        if first.port() == 0 {
            first.set_port(FIRST_PORT);
        }
        if usize::from(first.port()) + wanted.count > usize::from(u16::MAX) {
            return invalid("there are not so many ports behind the first");
        }
        Ok(Self { first, count: wanted.count, shares_address: wanted.shares_address })
    }

    /// The address of a port.
    pub(crate) fn address(&self, number: usize) -> SocketAddrV4 {
        let offset = if self.shares_address { 0 } else { number as u16 };
        SocketAddrV4::new(*self.first.ip(), self.first.port() + offset)
    }

    /// The port that a datagram in `frame` is for, on the host with this hardware address.
    pub(crate) fn recipient(&self, datagram: &Datagram, frame: &[u8], mac: Mac) -> Option<Recipient> {
        let to = datagram.to.address;
        let is_here = to.ip() == IpAddr::V4(*self.first.ip()) && datagram.to.mac == mac;
        let offset = usize::from(to.port().wrapping_sub(self.first.port()));
        let number = if self.shares_address {
            let queue = frame[datagram.payload.clone()].get(QUEUE_AT..QUEUE_AT + 2);
            queue.filter(|_| offset == 0).map(|queue| usize::from(u16::from_le_bytes([queue[0], queue[1]])))
        } else {
            Some(offset)
        };
        let port = number.filter(|&number| is_here && number < self.count)?;
        Some(Recipient { port, is_in_payload: self.shares_address, peer: datagram.from.address })
    }
}
