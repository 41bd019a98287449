//! The port of a server without a device of its own.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::BorrowedFd,
};

use crate::{
    CardCounts, KernelPort, MemifPort, Port, PortFacts, PortOptions, Source,
    udp::{Message, Sent, TransmitBurst},
};

/// A port over the kernel's transports, or to a process that shares memory with this one.
#[derive(Debug)]
pub enum HostPort {
    /// A UDP socket, and sockets at a card's queues where asked.
    Kernel(KernelPort),
    /// Shared memory.
    Memif(MemifPort),
}

/// Messages of a [`HostPort`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a server has a few, all of one kind")]
pub enum HostBurst {
    /// Of one over the kernel's transports.
    Kernel(<KernelPort as Port>::Burst),
    /// Of one by shared memory.
    Memif(<MemifPort as Port>::Burst),
}

/// Messages of either.
enum Either<K, M> {
    Kernel(K),
    Memif(M),
}

impl<'a, K: Iterator<Item = Message<'a>>, M: Iterator<Item = Message<'a>>> Iterator for Either<K, M> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        match self {
            Self::Kernel(messages) => messages.next(),
            Self::Memif(messages) => messages.next(),
        }
    }
}

impl HostPort {
    /// Opens the ports of a server. If they cannot receive from a card, they do so by UDP sockets alone, and
    /// [`PortFacts::way`] has the reason.
    ///
    /// # Errors
    /// As [`KernelPort::open_all`] and [`MemifPort::open_all`].
    pub fn open_all(wanted: &PortOptions) -> io::Result<Vec<Self>> {
        Ok(match &wanted.source {
            Source::Memif(options) => {
                MemifPort::open_all(options, wanted)?.into_iter().map(Self::Memif).collect()
            }
            Source::Sockets | Source::Card => {
                KernelPort::open_all(wanted)?.into_iter().map(Self::Kernel).collect()
            }
        })
    }
}

impl Port for HostPort {
    type Burst = HostBurst;

    fn burst(&self) -> HostBurst {
        match self {
            Self::Kernel(port) => HostBurst::Kernel(port.burst()),
            Self::Memif(port) => HostBurst::Memif(port.burst()),
        }
    }

    #[inline]
    fn receive_at_most(&self, burst: &mut HostBurst, messages_max: usize) -> io::Result<usize> {
        match (self, burst) {
            (Self::Kernel(port), HostBurst::Kernel(burst)) => port.receive_at_most(burst, messages_max),
            (Self::Memif(port), HostBurst::Memif(burst)) => port.receive_at_most(burst, messages_max),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    #[inline]
    fn messages(burst: &mut HostBurst) -> impl Iterator<Item = Message<'_>> {
        match burst {
            HostBurst::Kernel(burst) => Either::Kernel(KernelPort::messages(burst)),
            HostBurst::Memif(burst) => Either::Memif(MemifPort::messages(burst)),
        }
    }

    #[inline]
    fn send(&self, trains: &mut TransmitBurst) -> Sent {
        match self {
            Self::Kernel(port) => port.send(trains),
            Self::Memif(port) => port.send(trains),
        }
    }

    #[inline]
    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        match self {
            Self::Kernel(port) => port.send_gather(peer, pieces, segment_bytes),
            Self::Memif(port) => port.send_gather(peer, pieces, segment_bytes),
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Kernel(port) => port.address(),
            Self::Memif(port) => port.address(),
        }
    }

    fn overruns(&self) -> u64 {
        match self {
            Self::Kernel(port) => port.overruns(),
            Self::Memif(port) => port.overruns(),
        }
    }

    fn card_counts(&self) -> CardCounts {
        match self {
            Self::Kernel(port) => port.card_counts(),
            Self::Memif(port) => port.card_counts(),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kernel(port) => port.descriptor(),
            Self::Memif(port) => port.descriptor(),
        }
    }

    fn facts(&self) -> PortFacts {
        match self {
            Self::Kernel(port) => port.facts(),
            Self::Memif(port) => port.facts(),
        }
    }
}
