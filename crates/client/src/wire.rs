//! A core with a socket and a clock.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_net::udp::{
    BURST_MESSAGES, MESSAGE_BYTES_MAX, ReceiveBurst, TransmitBurst, UdpOptions, UdpPort, header_bytes,
};
use minos_proto::native::DATAGRAM_BYTES_ETHERNET;
use rand::{TryRng, rngs::SysRng};

use crate::{
    Address, Config, Error, Request,
    config::nanoseconds,
    core::{Completion, Transmit},
    rack::Router,
};

/// Messages that are received with one call.
const SLOTS: usize = BURST_MESSAGES / 2;

/// A core with its socket and its clock.
pub(crate) struct Wire {
    pub(crate) core: Router,
    port: UdpPort,
    receive: ReceiveBurst,
    transmit: TransmitBurst,
    begun: Instant,
    timeout: Duration,
    /// When something last arrived.
    received_ns: u64,
    /// When an operation was last answered.
    answered_ns: u64,
}

impl Wire {
    /// A core for the servers at `addresses`; it uses the first. Sends nothing yet.
    pub(crate) fn open(addresses: &[Address], config: Config) -> Result<Self, Error> {
        let servers = resolve_all(addresses)?;
        let (server, others) = servers.split_first().ok_or(Error::Option("there is no address"))?;
        if others.iter().any(|other| other.is_ipv4() != server.is_ipv4()) {
            return Err(Error::Option("addresses are either all of IPv4 or all of IPv6"));
        }
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let port = UdpPort::bind(SocketAddr::new(any, 0), &UdpOptions::default())?;
        let timeout = config.timeout;
        let mut core = Router::new(config, *server, unguessable()?, 0)?;
        core.add_servers(others.iter().copied());
        core.know_paths(path_bytes);
        let paths = servers.iter().map(|&server| path_bytes(server).unwrap_or(DATAGRAM_BYTES_ETHERNET));
        core.limit_datagrams(paths.min().unwrap_or(DATAGRAM_BYTES_ETHERNET));
        Ok(Self {
            core,
            port,
            receive: ReceiveBurst::with_slots(SLOTS, MESSAGE_BYTES_MAX),
            transmit: TransmitBurst::new(),
            begun: Instant::now(),
            timeout,
            received_ns: 0,
            answered_ns: 0,
        })
    }

    /// The time on the core's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.begun.elapsed())
    }

    /// The time on the core's clock at `instant`.
    #[cfg(feature = "tokio")]
    pub(crate) fn ns_of(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.begun))
    }

    /// Takes the next operation that has ended.
    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        let completion = self.core.poll_completion()?;
        if !matches!(completion.result, Err(Error::TimedOut { .. } | Error::Busy)) {
            self.answered_ns = self.received_ns;
        }
        Some(completion)
    }

    /// The end of a request that has waited for room since `since_ns`, if its time-out is over and nothing was answered
    /// meanwhile. As long as there are answers, there will be room.
    pub(crate) fn overdue(&self, request: &Request, since_ns: u64, now_ns: u64) -> Option<Error> {
        let timeout_ns = nanoseconds(self.timeout_of(request));
        let waited_ns = now_ns.saturating_sub(since_ns.max(self.answered_ns));
        // The core names a time-out of zero.
        (1..=waited_ns).contains(&timeout_ns).then_some(Error::TimedOut { was_sent: false })
    }

    /// The time-out of a request.
    pub(crate) fn timeout_of(&self, request: &Request) -> Duration {
        request.timeout.unwrap_or(self.timeout)
    }

    /// The time since an operation was last answered.
    #[cfg(feature = "tokio")]
    pub(crate) fn silence(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.answered_ns))
    }

    /// Handles due timers and sends all pending datagrams.
    pub(crate) fn flush(&mut self) {
        let now_ns = self.now_ns();
        self.core.on_timer(now_ns);
        loop {
            let mut is_full = false;
            while let Some(train) = self.core.poll_transmit(now_ns) {
                queue(&mut self.transmit, &train);
                is_full = self.transmit.len() == BURST_MESSAGES;
                if is_full {
                    break;
                }
            }
            let sent = self.transmit.send(&self.port);
            if sent.too_long > 0 {
                self.core.limit_to_paths();
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
                self.received_ns = now_ns;
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

/// Queues a train, of which there are fewer than a burst holds. It is not joined to the one before, which may be for another queue
/// of the same port: the kernel steers a train by its first datagram.
fn queue(transmit: &mut TransmitBurst, train: &Transmit<'_>) {
    let buffer = transmit.buffer();
    let begin = buffer.len();
    buffer.extend_from_slice(train.bytes);
    let end = buffer.len();
    let is_queued = transmit.queue(train.to, begin..end, train.segment_bytes);
    debug_assert!(is_queued, "a core composes no longer trains");
}

/// The servers at `addresses`. One whose host is not known is left out, unless none is: the others stand in for it.
fn resolve_all(addresses: &[Address]) -> Result<Vec<SocketAddr>, Error> {
    let (mut servers, mut fault) = (Vec::new(), None);
    for address in addresses {
        match address.resolve() {
            Ok(server) => servers.push(server),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        Some(error) if servers.is_empty() => Err(error),
        _ => Ok(servers),
    }
}

/// An unpredictable seed, from the system each time: whatever the process remembers, its forks remember as well, and the
/// server would take two clients with the same numbers for one.
fn unguessable() -> Result<u64, Error> {
    SysRng.try_next_u64().map_err(|error| io::Error::other(error).into())
}

/// Bytes of payload that the path to `server` carries, as far as the system knows.
fn path_bytes(server: SocketAddr) -> Option<usize> {
    let mtu_bytes = UdpPort::path_mtu(server).ok()?;
    mtu_bytes.checked_sub(header_bytes(&server))
}
