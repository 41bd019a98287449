//! A core with a socket and a clock.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_net::udp::{
    BURST_MESSAGES, MESSAGE_BYTES_MAX, ReceiveBurst, TransmitBurst, UdpOptions, UdpPort, header_bytes,
};
use minos_proto::native::DATAGRAM_BYTES_ETHERNET;

use crate::{Address, Config, Error, rack::Router};

/// Messages that are received with one call.
const SLOTS: usize = BURST_MESSAGES / 2;

/// A core with its socket and its clock.
pub(crate) struct Wire {
    pub(crate) core: Router,
    port: UdpPort,
    receive: ReceiveBurst,
    transmit: TransmitBurst,
    begun: Instant,
}

impl Wire {
    /// A core for the servers at `addresses`; it uses the first. Sends nothing yet.
    pub(crate) fn open(addresses: &[Address], config: Config) -> Result<Self, Error> {
        let servers = addresses.iter().map(Address::resolve).collect::<Result<Vec<_>, _>>()?;
        let (server, others) = servers.split_first().ok_or(Error::Option("there is no address"))?;
        if others.iter().any(|other| other.is_ipv4() != server.is_ipv4()) {
            return Err(Error::Option("addresses are either all of IPv4 or all of IPv6"));
        }
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let port = UdpPort::bind(SocketAddr::new(any, 0), &UdpOptions::default())?;
        let mut core = Router::new(config, *server, unguessable(), 0)?;
        core.add_servers(others.iter().copied());
        let paths = servers.iter().map(|&server| path_bytes(server).unwrap_or(DATAGRAM_BYTES_ETHERNET));
        core.limit_datagrams(paths.min().unwrap_or(DATAGRAM_BYTES_ETHERNET));
        Ok(Self {
            core,
            port,
            receive: ReceiveBurst::with_slots(SLOTS, MESSAGE_BYTES_MAX),
            transmit: TransmitBurst::new(),
            begun: Instant::now(),
        })
    }

    /// The time on the core's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Handles due timers and sends all pending datagrams.
    pub(crate) fn flush(&mut self) {
        let now_ns = self.now_ns();
        self.core.on_timer(now_ns);
        loop {
            let mut is_full = false;
            while let Some(train) = self.core.poll_transmit(now_ns) {
                // A burst with fewer trains than this has room for any other.
                is_full = !self.transmit.push(train.to, train.bytes, train.segment_bytes)
                    || self.transmit.len() == BURST_MESSAGES;
                if is_full {
                    break;
                }
            }
            let sent = self.transmit.send(&self.port);
            if sent.too_long > 0
                && let Some(bytes) = path_bytes(self.core.server())
            {
                self.core.limit_datagrams(bytes);
            }
            if !is_full {
                return;
            }
        }
    }

    /// Receives all datagrams that have arrived. Returns true if there were any.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn drain(&mut self) -> Result<bool, Error> {
        let mut has_any = false;
        loop {
            let received = self.port.receive(&mut self.receive)?;
            let now_ns = self.now_ns();
            for message in self.receive.messages() {
                has_any = true;
                self.core.receive(message.peer, message.bytes, message.segment_bytes, now_ns);
            }
            if received < SLOTS {
                return Ok(has_any);
            }
        }
    }

    /// Time until the next timer is due; `None` if there is none.
    pub(crate) fn until_next(&self) -> Option<Duration> {
        let next_ns = self.core.next_timer()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(self.now_ns())))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("core", &self.core).finish_non_exhaustive()
    }
}

/// An unpredictable seed: the hash of no bytes under a random key from the system.
fn unguessable() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Bytes of payload that the path to `server` carries, as far as the system knows.
fn path_bytes(server: SocketAddr) -> Option<usize> {
    let mtu_bytes = UdpPort::path_mtu(server).ok()?;
    mtu_bytes.checked_sub(header_bytes(&server))
}
