//! The ports of a server, and UDP as one way of carrying bursts of datagrams.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
};

use super::{Message, ReceiveBurst, Sent, TransmitBurst, UdpOptions, UdpPort, steer_by_queue};
use crate::{Port, PortFacts, PortOptions};

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
        }
    }
}
