//! What a socket knows of its server, and which way it sends.

use std::{
    io,
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use minos_base::{KeyHash, seeded_stream};
use minos_net::{
    Wait,
    udp::{ReceiveBurst, UdpOptions, UdpPort, header_bytes},
    wait_readable,
};
use minos_proto::native::{
    Access, DATAGRAM_BYTES_ETHERNET, DATAGRAM_BYTES_MAX, Header, Hello, Kind, Welcome, WelcomeFlags,
};
use rand::{RngExt, rngs::StdRng};

use super::super::{any_port, outbox::Outbox};
use crate::driver::run::QueueBy;

/// Fragments that a driver takes at once: its receive buffer is far larger.
const WINDOW: u16 = 64;

/// How long a server may take for its first answer, and how often it is asked in that time.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Time between two hellos of a socket that is at work.
const HELLO_INTERVAL_NS: u64 = 100_000_000;

/// Which way an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Direction {
    /// The queue whose port it is sent to.
    pub(super) sent_to: u16,
    /// The queue that is to execute it.
    pub(super) executed_by: u16,
}

/// What a socket knows of its server.
#[derive(Debug)]
pub(super) struct Directory {
    server: SocketAddr,
    pub(super) welcome: Welcome,
    /// Largest datagram that is sent.
    pub(super) datagram_bytes_max: usize,
    queue_by: QueueBy,
    rng: StdRng,
    sequence: u64,
    hello_due_ns: u64,
}

impl Directory {
    /// Opens a port and says hello until the server answers.
    ///
    /// # Errors
    /// No port is to be had, nobody answers, or what is asked for cannot be with this server.
    pub(super) fn learn(server: SocketAddr, queue_by: QueueBy, seed: u64) -> io::Result<(UdpPort, Self)> {
        let port = UdpPort::bind(any_port(server), &UdpOptions::default())?;
        let welcome = first_welcome(&port, server)?;
        let is_single = welcome.flags.contains(WelcomeFlags::SINGLE_PORT);
        if queue_by == QueueBy::Wrong && (is_single || welcome.queues < 2) {
            return Err(io::Error::other("no queue is wrong: the server has one port or one queue only"));
        }
        if welcome.flags.contains(WelcomeFlags::SEALED) {
            return Err(io::Error::other(
                "the server takes sealed datagrams only, which the driver does not send",
            ));
        }
        let datagram_bytes_max = usize::from(welcome.datagram_bytes_max.min(own_datagram_bytes_max(server)));
        let rng = seeded_stream(seed, u64::from(port.address().port()));
        let directory =
            Self { server, welcome, datagram_bytes_max, queue_by, rng, sequence: 0, hello_due_ns: 0 };
        Ok((port, directory))
    }

    /// What a later Welcome says.
    pub(super) fn renew(&mut self, welcome: Welcome) {
        self.welcome = welcome;
    }

    /// Whether an answer says that the server is not as it was.
    pub(super) fn is_outdated(&self, answer: &Header) -> bool {
        answer.geometry != self.welcome.geometry && answer.kind != Kind::Welcome
    }

    /// Asks for a new cookie and directory, unless that was done a moment ago.
    pub(super) fn say_hello(&mut self, now_ns: u64, outbox: &mut Outbox) {
        if now_ns >= self.hello_due_ns {
            self.hello_due_ns = now_ns + HELLO_INTERVAL_NS;
            hello(self.server, now_ns).compose(outbox.room(), Header::of(Kind::Hello), None);
            outbox.end_datagram(self.server);
        }
    }

    /// The header of a datagram that `queue` is to execute; `stamp` comes back in the answer.
    pub(super) fn header(&mut self, kind: Kind, queue: u16, stamp: u64) -> Header {
        self.sequence += 1;
        Header {
            queue,
            geometry: self.welcome.geometry,
            cookie: self.welcome.cookie,
            stamp,
            sequence: self.sequence,
            ..Header::of(kind)
        }
    }

    /// The sequence number of the last header.
    pub(super) fn last_sequence(&self) -> u64 {
        self.sequence
    }

    /// Where datagrams for a queue go.
    pub(super) fn peer(&self, queue: u16) -> SocketAddr {
        SocketAddr::new(self.server.ip(), self.welcome.port_of(queue))
    }

    /// A queue for all operations of a request that may be executed anywhere.
    pub(super) fn any_queue(&mut self) -> u16 {
        match self.welcome.queues {
            1 => 0,
            queues => self.rng.random_range(0..queues),
        }
    }

    /// Which way an operation on the key with this hash goes; `any` is what [`Directory::any_queue`] gave.
    pub(super) fn direction(&self, hash: KeyHash, is_read: bool, any: u16) -> Direction {
        let Welcome { queues, access, .. } = self.welcome;
        if queues == 1 {
            return Direction { sent_to: 0, executed_by: 0 };
        }
        let key_queue = self.welcome.key_queue(hash);
        let is_free = match access {
            Access::Crcw => true,
            Access::Crew => is_read,
            Access::Erew => false,
        };
        let by_access = if is_free { any } else { key_queue };
        let (sent_to, executed_by) = match self.queue_by {
            QueueBy::Access => (by_access, by_access),
            QueueBy::Random => (any, by_access),
            QueueBy::Key => (key_queue, key_queue),
            QueueBy::Wrong => ((by_access + 1) % queues, by_access),
        };
        Direction { sent_to, executed_by }
    }
}

fn hello(server: SocketAddr, nonce: u64) -> Hello {
    let version_max = u16::from(minos_proto::native::VERSION);
    Hello { nonce, datagram_bytes_max: own_datagram_bytes_max(server), window: WINDOW, version_max }
}

/// What the path to the server takes.
fn own_datagram_bytes_max(server: SocketAddr) -> u16 {
    let payload = UdpPort::path_mtu(server)
        .map_or(DATAGRAM_BYTES_ETHERNET, |mtu| mtu.saturating_sub(header_bytes(&server)));
    payload.clamp(DATAGRAM_BYTES_ETHERNET, DATAGRAM_BYTES_MAX) as u16
}

/// Says hello until there is an answer.
fn first_welcome(port: &UdpPort, server: SocketAddr) -> io::Result<Welcome> {
    let (mut burst, mut outbox) = (ReceiveBurst::with_slots(1, 2048), Outbox::new(true));
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_WITHIN {
        let nonce = begun.elapsed().as_nanos() as u64;
        hello(server, nonce).compose(outbox.room(), Header::of(Kind::Hello), None);
        outbox.end_datagram(server);
        outbox.send(port);
        wait_readable(&[port.as_fd()], Wait::For(ASK_EVERY))?;
        port.receive(&mut burst)?;
        let welcome = burst.messages().find_map(|message| {
            let header = Header::parse(message.bytes).ok().filter(|header| header.kind == Kind::Welcome)?;
            Welcome::parse(header.body(message.bytes)).ok()
        });
        if let Some(welcome) = welcome {
            return Ok(welcome);
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "nobody answers the native protocol's hello there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(access: Access, queue_by: QueueBy) -> Directory {
        let welcome = Welcome {
            nonce: 0,
            boot: 0,
            cookie: 0,
            direction_seed: 0,
            session: 0,
            cookie_seconds: 60,
            geometry: 1,
            queues: 2,
            partition_bits: 1,
            access,
            base_port: 4000,
            flags: WelcomeFlags::NONE,
            datagram_bytes_max: 1448,
            key_bytes_max: 250,
            window: 32,
            once_window: 128,
            value_bytes_max: 1 << 20,
            transfers_per_client: 8,
            in_flight: 64,
        };
        let server = "127.0.0.1:4000".parse().unwrap();
        let rng = seeded_stream(1, 1);
        Directory { server, welcome, datagram_bytes_max: 1448, queue_by, rng, sequence: 0, hello_due_ns: 0 }
    }

    /// Where a key of queue 1 goes, when chance says queue 0: sent to, executed by; to be read and to be written.
    fn ways(access: Access, queue_by: QueueBy) -> [(u16, u16); 2] {
        let directory = directory(access, queue_by);
        let hash = KeyHash(u64::MAX);
        assert_eq!(directory.welcome.key_queue(hash), 1);
        [true, false].map(|is_read| {
            let Direction { sent_to, executed_by } = directory.direction(hash, is_read, 0);
            (sent_to, executed_by)
        })
    }

    #[test]
    fn the_access_mode_says_who_executes() {
        assert_eq!(ways(Access::Erew, QueueBy::Access), [(1, 1), (1, 1)]);
        assert_eq!(ways(Access::Crew, QueueBy::Access), [(0, 0), (1, 1)]);
        assert_eq!(ways(Access::Crcw, QueueBy::Access), [(0, 0), (0, 0)]);
    }

    #[test]
    fn another_way_may_be_asked_for() {
        assert_eq!(ways(Access::Erew, QueueBy::Random), [(0, 1), (0, 1)]);
        assert_eq!(ways(Access::Crcw, QueueBy::Key), [(1, 1), (1, 1)]);
        assert_eq!(ways(Access::Erew, QueueBy::Wrong), [(0, 1), (0, 1)]);
        assert_eq!(ways(Access::Crew, QueueBy::Wrong), [(1, 0), (0, 1)]);
    }
}
