//! A port whose datagrams come by shared memory.

use std::{
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_sync::Ring;
use rustix::event::{EventfdFlags, eventfd};

use super::{
    MemifFacts, MemifOptions, Side, control,
    link::Link,
    region::Span,
    ring::{BUFFER_BYTES, FRAME_BYTES_MAX, LOG2_ENTRIES_MAX, Looked, Outgoing},
};
use crate::{
    CardCounts, Port, PortFacts, PortOptions, Way,
    frame::{ARP_FRAME_BYTES, Arp, End, HEAD_BYTES_MAX, Mac, packet_bytes},
    neighbours::{Heads, Recent},
    pieces::Bytes,
    resolver::{Heard, Resolver},
    row::Row,
    senders::{Arrival, Senders, Stranger},
    socket_file::SocketFile,
    udp::{BURST_MESSAGES, Message, Sent, TransmitBurst},
};

/// Largest IP packet, in bytes.
const MTU_BYTES: usize = 1500;
/// Datagrams that wait for a port because another port's queue brought them.
const INBOX: usize = 512;
/// Where frames begin in a burst.
const ALIGN: usize = 64;
/// Fewest entries of a client's ring, as a power of two.
const LOG2_ENTRIES_MIN: u8 = 8;
/// Hardware addresses of the two sides, which are administered locally.
pub(super) const SERVER_MAC: Mac = [2, 0x4d, 0x69, 0x6e, 0x6f, 1];
pub(super) const CLIENT_MAC: Mac = [2, 0x4d, 0x69, 0x6e, 0x6f, 2];
/// Time for the thread that speaks with clients to end.
const DOORMAN_WITHIN: Duration = Duration::from_secs(2);
/// Time between two looks whether it has.
const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(100);

/// A UDP port of an address that only the process at the other end reaches.
#[derive(Debug)]
pub struct MemifPort {
    host: Arc<Host>,
    number: usize,
    here: End,
    /// Whoever sends holds it.
    sending: Mutex<Desk>,
    /// Readable at all times.
    readable: OwnedFd,
    counts: Counts,
}

/// What is needed to write frames.
#[derive(Debug)]
struct Desk {
    heads: Heads,
    /// The headers of the last frame.
    before: [u8; HEAD_BYTES_MAX],
    /// A payload that lay in pieces.
    joined: Box<[u8; MTU_BYTES]>,
}

#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    invalid: AtomicU64,
    inbox_full: AtomicU64,
    send_full: AtomicU64,
}

/// What all ports share.
#[derive(Debug)]
struct Host {
    link: Arc<Link>,
    inboxes: Box<[Ring<Stray>]>,
    resolver: Resolver,
    options: MemifOptions,
    row: Row,
    receive_buffer_bytes: usize,
    _end: Connection,
}

/// What keeps the connection.
#[derive(Debug)]
enum Connection {
    Server { _doorman: Doorman },
    Client { _socket: OwnedFd },
}

/// The thread that speaks with clients; it ends when this is dropped.
#[derive(Debug)]
struct Doorman {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

impl Drop for Doorman {
    fn drop(&mut self) {
        // It has room: nobody else writes there.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        let end = Instant::now() + DOORMAN_WITHIN;
        while !thread.is_finished() && Instant::now() < end {
            thread::sleep(LOOK_AGAIN_AFTER);
        }
        // One that a client holds up ends with the process.
        if thread.is_finished() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// A datagram on its way to another port's inbox.
#[derive(Debug)]
struct Stray {
    peer: SocketAddr,
    payload: Box<[u8]>,
}

/// Datagrams received by a [`MemifPort`], in memory of its own.
#[derive(Debug)]
pub struct MemifBurst {
    bytes: Box<[u8]>,
    end: usize,
    held: ArrayVec<Held, BURST_MESSAGES>,
    senders: Senders,
}

/// A received datagram.
#[derive(Debug)]
struct Held {
    peer: SocketAddr,
    payload: Range<usize>,
}

impl Host {
    fn open(options: &MemifOptions, wanted: &PortOptions) -> io::Result<Self> {
        let row = Row::of(wanted)?;
        let per_queue = wanted.receive_buffer_bytes / BUFFER_BYTES as usize;
        let log2_entries = per_queue.max(1).ilog2().clamp(LOG2_ENTRIES_MIN.into(), LOG2_ENTRIES_MAX.into());
        let (link, end) = match options.side {
            Side::Server { .. } => {
                let link = Arc::new(Link::new(wanted.count));
                let doorman = Doorman::start(&options.path, &link)?;
                (link, Connection::Server { _doorman: doorman })
            }
            Side::Client { queues } => {
                let link = Arc::new(Link::new(queues));
                let joined = control::join(&options.path, queues, log2_entries as u8, &link);
                let named = |ended| io::Error::other(format!("{}: {ended}", options.path.display()));
                (link, Connection::Client { _socket: joined.map_err(named)? })
            }
        };
        Ok(Self {
            link,
            inboxes: (0..wanted.count).map(|_| Ring::new(INBOX)).collect(),
            resolver: Resolver::new(),
            options: options.clone(),
            row,
            // A server's buffers are the other process'.
            receive_buffer_bytes: wanted.receive_buffer_bytes,
            _end: end,
        })
    }

    fn mac(&self) -> Mac {
        if matches!(self.options.side, Side::Server { .. }) { SERVER_MAC } else { CLIENT_MAC }
    }

    fn receive_queues(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        let port = self.row.first.port() + number as u16;
        let [queues, _] = self.link.counts();
        self.options.side.receive_queues(port, queues).into_iter().flatten()
    }
}

impl Doorman {
    fn start(path: &Path, link: &Arc<Link>) -> io::Result<Self> {
        let file = SocketFile::take(path, || control::answers(path))?;
        let (listener, stop) = (control::listen_at(path)?, Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?));
        let file = file.made();
        let (link, stopped) = (Arc::clone(link), Arc::clone(&stop));
        let thread = thread::Builder::new().name("minos-memif".to_owned());
        let thread = thread.spawn(move || control::serve(&listener, &stopped, &link))?;
        Ok(Self { stop, thread: Some(thread), _file: file })
    }
}

impl MemifPort {
    /// Opens all ports of a server, or of a client whose server is there or about to start. Those of a server are followed by
    /// as many for large transfers.
    ///
    /// # Errors
    /// The address is not one of IPv4, or is none of a host; another server has the socket; a client's server is not there,
    /// or sends it away.
    pub fn open_all(options: &MemifOptions, wanted: &PortOptions) -> io::Result<Vec<Self>> {
        let host = Arc::new(Host::open(options, wanted)?);
        let port = |number| {
            let (before, joined) = ([0; HEAD_BYTES_MAX], Box::new([0; MTU_BYTES]));
            Ok(Self {
                readable: eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                here: End { mac: host.mac(), address: host.row.address(number).into() },
                sending: Mutex::new(Desk { heads: Heads::default(), before, joined }),
                host: Arc::clone(&host),
                number,
                counts: Counts::default(),
            })
        };
        (0..wanted.count).map(port).collect()
    }

    /// Waits until the other process has answered with the hardware address of `peer`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `within`.
    pub fn reach(&self, peer: Ipv4Addr, within: Duration) -> io::Result<()> {
        let (mac, ip, mut burst) = (self.here.mac, *self.host.row.first.ip(), self.burst());
        let ask = || self.send_arp(|frame| Arp::write_request(frame, mac, ip, peer));
        self.host.resolver.reach(peer, within, (|| true, ask), || {
            // The answer may come to any of them; nothing else was asked for yet.
            burst.clear();
            (0..self.host.link.queues()).for_each(|queue| self.receive_from(queue, &mut burst, 1));
        })
    }

    #[cfg(test)]
    pub(super) fn link(&self) -> &Link {
        &self.host.link
    }

    /// Receives from a queue until the burst has `messages_max` datagrams at most.
    #[inline]
    fn receive_from(&self, queue: usize, burst: &mut MemifBurst, messages_max: usize) {
        let room = messages_max.saturating_sub(burst.held.len());
        let Some(mut queue) = self.host.link.incoming(queue) else { return };
        let Some(queue) = queue.as_mut().filter(|_| room > 0) else { return };
        let Looked { invalid, .. } = queue.receive(room, |span| self.take(span, burst));
        if invalid > 0 {
            self.counts.invalid.fetch_add(invalid.into(), Relaxed);
        }
    }

    /// Takes a frame from a queue: into the burst, to another port's inbox, or as a question for the address.
    #[inline]
    fn take(&self, span: Span<'_>, burst: &mut MemifBurst) {
        let (begin, bytes) = (burst.end, span.bytes());
        let frame = &mut burst.bytes[begin..begin + bytes];
        span.copy_to(frame);
        let Host { row, resolver, .. } = &*self.host;
        let recipient = |datagram: &_| row.recipient(datagram, frame, self.here.mac);
        match burst.senders.arrival(frame, &resolver.neighbours, recipient) {
            Ok(Arrival { peer, port, payload }) if port == self.number => {
                burst.held.push(Held { peer, payload: begin + payload.start..begin + payload.end });
                burst.end = (begin + bytes).next_multiple_of(ALIGN);
            }
            Ok(Arrival { peer, port, payload }) => {
                self.pass(port, Stray { peer, payload: frame[payload].into() });
            }
            Err(Stranger::Unread) => {
                let arp = Arp::parse(frame);
                self.take_arp(arp, &mut burst.senders.recent);
            }
            Err(Stranger::NotHere) => {
                self.counts.invalid.fetch_add(1, Relaxed);
            }
        }
    }

    /// Puts a datagram into another port's inbox: a peer with other queues than this side brings it to any of them.
    #[cold]
    fn pass(&self, port: usize, stray: Stray) {
        if self.host.inboxes[port].push(stray).is_err() {
            self.counts.inbox_full.fetch_add(1, Relaxed);
        }
    }

    /// Answers a question for the address, or notes the answer to one.
    #[cold]
    fn take_arp(&self, arp: Option<Arp>, recent: &mut Recent) {
        let (here, wanted) = (self.here.mac, *self.host.row.first.ip());
        match self.host.resolver.hear(arp, wanted, recent) {
            Heard::Question(mac, ip) => {
                self.send_arp(|frame| Arp::write_reply(frame, here, wanted, (mac, ip)));
            }
            Heard::Other => {}
            Heard::Invalid => {
                self.counts.invalid.fetch_add(1, Relaxed);
            }
        }
    }

    fn send_arp(&self, write: impl FnOnce(&mut [u8])) {
        let mut frame = [0; ARP_FRAME_BYTES];
        write(&mut frame);
        if let Some(queue) = self.host.link.outgoing(self.send_queue(0)).as_mut() {
            // A question is asked again, and so comes its answer.
            let _ = queue.push([&frame, &[]]);
            queue.show();
        }
    }

    fn send_queue(&self, peer: u16) -> usize {
        let Host { link, inboxes, options, .. } = &*self.host;
        let (is_large, [_, queues]) = (self.number >= inboxes.len().div_ceil(2), link.counts());
        options.side.send_queue(is_large, peer, queues)
    }
}

impl Port for MemifPort {
    type Burst = MemifBurst;

    fn burst(&self) -> MemifBurst {
        MemifBurst::new()
    }

    #[inline]
    fn receive_at_most(&self, burst: &mut MemifBurst, messages_max: usize) -> io::Result<usize> {
        burst.clear();
        let messages_max = messages_max.min(BURST_MESSAGES);
        // What came by other queues leaves room for this port's own.
        while burst.held.len() < messages_max.div_ceil(2)
            && let Some(stray) = self.host.inboxes[self.number].pop()
        {
            burst.hold(&stray);
        }
        for queue in self.host.receive_queues(self.number) {
            self.receive_from(queue, burst, messages_max);
        }
        if !burst.held.is_empty() {
            self.counts.received.fetch_add(burst.held.len() as u64, Relaxed);
        }
        Ok(burst.held.len())
    }

    fn messages(burst: &mut MemifBurst) -> impl Iterator<Item = Message<'_>> {
        let (mut rest, mut at) = (&mut burst.bytes[..], 0);
        burst.held.iter().map(move |Held { peer, payload }| {
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(payload.start - at);
            let (bytes, behind) = behind.split_at_mut(payload.len());
            (rest, at) = (behind, payload.end);
            Message { peer: *peer, segment_bytes: bytes.len().max(1), bytes }
        })
    }

    #[inline]
    fn send(&self, trains: &mut TransmitBurst) -> Sent {
        let mut sending = Sending::by(self, trains.len());
        for (peer, bytes, segment_bytes) in trains.trains() {
            sending.add(peer, &[IoSlice::new(bytes)], segment_bytes);
        }
        trains.clear();
        sending.finish()
    }

    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        let mut sending = Sending::by(self, 1);
        sending.add(peer, pieces, segment_bytes);
        sending.finish()
    }

    fn address(&self) -> SocketAddr {
        self.here.address
    }

    fn overruns(&self) -> u64 {
        self.counts.inbox_full.load(Relaxed)
    }

    fn card_counts(&self) -> CardCounts {
        CardCounts {
            received: self.counts.received.load(Relaxed),
            invalid: self.counts.invalid.load(Relaxed),
            ring_full: self.counts.inbox_full.load(Relaxed),
            no_frame: 0,
            send_full: self.counts.send_full.load(Relaxed),
            by_socket: 0,
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn facts(&self) -> PortFacts {
        let Host { link, options, .. } = &*self.host;
        let (path, queues, memory_bytes) = (options.path.clone(), link.queues(), link.memory_bytes());
        PortFacts {
            way: Way::Memif(MemifFacts { path, queues, memory_bytes }),
            receive_buffer_bytes: self.host.receive_buffer_bytes,
            datagram_bytes_max: Some(MTU_BYTES - packet_bytes(&(*self.host.row.first.ip()).into(), 0)),
            ..PortFacts::default()
        }
    }
}

impl MemifBurst {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; BURST_MESSAGES * FRAME_BYTES_MAX].into();
        Self { bytes, end: 0, held: ArrayVec::new(), senders: Senders::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.end = 0;
    }

    fn hold(&mut self, Stray { peer, payload }: &Stray) {
        let place = self.end..self.end + payload.len();
        self.bytes[place.clone()].copy_from_slice(payload);
        self.end = place.end.next_multiple_of(ALIGN);
        self.held.push(Held { peer: *peer, payload: place });
    }
}

/// Trains that become frames.
struct Sending<'a> {
    port: &'a MemifPort,
    desk: MutexGuard<'a, Desk>,
    /// The queue of the last frames, locked.
    queue: Option<(usize, MutexGuard<'a, Option<Outgoing>>)>,
    /// Trains that are about to come.
    left: usize,
    sent: Sent,
}

impl<'a> Sending<'a> {
    fn by(port: &'a MemifPort, trains: usize) -> Self {
        let desk = port.sending.lock().unwrap_or_else(PoisonError::into_inner);
        Self { port, desk, queue: None, left: trains, sent: Sent::default() }
    }

    #[inline]
    fn add(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        let port = self.port;
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let segment_bytes = segment_bytes.clamp(1, left.max(1));
        if packet_bytes(&peer.ip(), segment_bytes) > MTU_BYTES {
            self.sent.too_long += 1;
            return;
        }
        self.take_queue(port.send_queue(peer.port()), left.div_ceil(segment_bytes));
        let Desk { heads, before, joined } = &mut *self.desk;
        let Some(head) = heads.to(&port.here, peer, |recent| port.host.resolver.mac_of(recent, peer)) else {
            self.sent.refused += 1;
            return;
        };
        let queue = self.queue.as_mut().and_then(|(_, queue)| queue.as_mut());
        let Some(queue) = queue else {
            self.sent.dropped += 1;
            return;
        };
        let (mut bytes, before) = (Bytes::of(pieces), &mut before[..head.bytes()]);
        while left > 0 {
            let taken = left.min(segment_bytes);
            // Bytes of several pieces are joined first.
            let payload = bytes.whole(taken).unwrap_or_else(|| {
                bytes.copy_to(&mut joined[..taken]);
                &joined[..taken]
            });
            if head.write_before(payload, before).is_none() || !queue.push([before, payload]) {
                self.sent.dropped += 1;
                return;
            }
            left -= taken;
        }
        self.sent.trains += 1;
    }

    /// Takes the lock of a queue, which so many frames of the next train are for.
    #[inline]
    fn take_queue(&mut self, number: usize, frames: usize) {
        if self.queue.as_ref().is_none_or(|(held, _)| *held != number) {
            self.show();
            let mut queue = self.port.host.link.outgoing(number);
            queue.iter_mut().for_each(|queue| queue.prepare(self.left.max(frames)));
            self.queue = Some((number, queue));
        }
        self.left = self.left.saturating_sub(1);
    }

    fn show(&mut self) {
        if let Some((_, mut queue)) = self.queue.take() {
            queue.iter_mut().for_each(Outgoing::show);
        }
    }

    fn finish(mut self) -> Sent {
        self.show();
        if self.sent.dropped > 0 {
            self.port.counts.send_full.fetch_add(self.sent.dropped, Relaxed);
        }
        self.sent
    }
}
