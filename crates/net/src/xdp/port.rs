//! A port of a server at a card.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use arrayvec::ArrayVec;
use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
    net::xdp::{XdpDesc, XdpDescOptions},
};

use super::{
    CardCounts, CardFacts, Refusal,
    card::{Card, PortRings},
    frames::Frame,
    ring::{Consumer, Producer},
};
use crate::{
    PortOptions,
    frame::{Datagram, End, Head, packet_bytes},
    neighbours::{Heads, Recent},
    pieces::Bytes,
    senders::{Arrival, Recipient, Senders},
    udp::{BURST_MESSAGES, Message},
};

/// Free frames that a port takes from its queue at once.
const TAKEN_AT_ONCE: usize = 64;
/// Receives from the card after which the socket is asked again.
const RECEIVES_UNTIL_SOCKET: u32 = 32;
/// Calls for one burst at most: each sends at least 32 frames in copy mode, unless the card has no room.
const WAKES_MAX: usize = 64;

/// A port: its sockets at all receive queues of the card. Frames are sent by one of them.
#[derive(Debug)]
pub(crate) struct CardPort {
    card: Arc<Card>,
    number: usize,
    here: End,
    receiving: Mutex<Receiving>,
    sending: Mutex<Sending>,
    /// Readable while frames wait at any of the sockets, or messages at the UDP socket.
    descriptor: OwnedFd,
    received: AtomicU64,
    invalid: AtomicU64,
    send_full: AtomicU64,
    by_socket: AtomicU64,
    /// Counts down to the next look at the UDP socket; who receives writes it.
    until_socket: AtomicU32,
}

#[derive(Debug)]
struct Receiving {
    rings: Vec<Consumer<XdpDesc>>,
    /// The ring to begin with, so that none starves.
    next: usize,
}

#[derive(Debug)]
struct Sending {
    ring: Producer<XdpDesc>,
    queue: usize,
    free: Vec<Frame>,
    heads: Heads,
}

/// Frames with received datagrams. The next receive returns them to their queues.
#[derive(Debug, Default)]
pub(crate) struct CardBurst {
    card: Option<Arc<Card>>,
    held: ArrayVec<Held, BURST_MESSAGES>,
    senders: Senders,
}

/// A received frame, and the datagram in it if it is sound.
#[derive(Debug)]
struct Held {
    frame: Frame,
    queue: usize,
    datagram: Option<(SocketAddr, Range<usize>)>,
}

/// Sends trains of one burst.
pub(crate) struct Sender<'a> {
    port: &'a CardPort,
    sending: MutexGuard<'a, Sending>,
}

/// What became of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// All of it leaves.
    Sent,
    /// A part of it is lost, or all.
    Dropped,
    /// The card cannot send it: its peer was not heard of here, or its segments are too long.
    NotHere,
}

impl CardPort {
    /// The ports of `sockets`, which are given by address and descriptor.
    pub(crate) fn open_all(
        sockets: &[(SocketAddr, BorrowedFd<'_>)],
        wanted: &PortOptions,
    ) -> Result<Vec<Self>, Refusal> {
        let addresses: Vec<_> = sockets.iter().map(|(address, _)| *address).collect();
        let (card, rings) = Card::open(&addresses, wanted)?;
        let card = Arc::new(card);
        let ports = rings.into_iter().zip(sockets).enumerate();
        ports
            .map(|(number, (rings, (address, socket)))| {
                let descriptor = watch(&card, number, *socket);
                let descriptor =
                    descriptor.map_err(|error| Refusal::of("cannot watch the sockets", error))?;
                Ok(Self::new(Arc::clone(&card), number, *address, rings, descriptor))
            })
            .collect()
    }

    fn new(
        card: Arc<Card>,
        number: usize,
        address: SocketAddr,
        rings: PortRings,
        descriptor: OwnedFd,
    ) -> Self {
        let PortRings { receiving, sending, send_queue } = rings;
        Self {
            here: End { mac: card.interface.mac, address },
            card,
            number,
            receiving: Mutex::new(Receiving { rings: receiving, next: 0 }),
            sending: Mutex::new(Sending {
                ring: sending,
                queue: send_queue,
                free: Vec::with_capacity(TAKEN_AT_ONCE),
                heads: Heads::default(),
            }),
            descriptor,
            received: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
            send_full: AtomicU64::new(0),
            by_socket: AtomicU64::new(0),
            until_socket: AtomicU32::new(RECEIVES_UNTIL_SOCKET),
        }
    }

    /// Room for a burst of this port and all opened with it.
    pub(crate) fn burst(&self) -> CardBurst {
        CardBurst { card: Some(Arc::clone(&self.card)), held: ArrayVec::new(), senders: Senders::default() }
    }

    /// Receives at most `messages_max` frames in place of the burst's old contents; returns the number of datagrams.
    ///
    /// # Errors
    /// The burst is that of another card's port.
    pub(crate) fn receive(&self, burst: &mut CardBurst, messages_max: usize) -> io::Result<usize> {
        burst.clear();
        if !burst.card.as_ref().is_some_and(|card| Arc::ptr_eq(card, &self.card)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut receiving = match self.receiving.try_lock() {
            Ok(receiving) => receiving,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        let Receiving { rings, next } = &mut *receiving;
        let frames_max = messages_max.min(BURST_MESSAGES);
        for at in 0..rings.len() {
            let queue = (*next + at) % rings.len();
            let ring = &mut rings[queue];
            let had = burst.held.len();
            while burst.held.len() < frames_max
                && let Some(descriptor) = ring.pop()
            {
                burst.held.extend(self.look(queue, &descriptor, &mut burst.senders));
            }
            if burst.held.len() > had {
                ring.release();
            }
        }
        *next = (*next + 1) % rings.len();
        Ok(self.count(burst))
    }

    /// True once in so many calls: the UDP socket may have messages, however busy the card is.
    pub(crate) fn is_socket_due(&self) -> bool {
        let left = self.until_socket.load(Relaxed);
        self.until_socket.store(left.checked_sub(1).unwrap_or(RECEIVES_UNTIL_SOCKET), Relaxed);
        left == 0
    }

    /// The way to send a burst. Its end is [`Sender::finish`].
    pub(crate) fn sender(&self) -> Sender<'_> {
        Sender { port: self, sending: self.sending.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    pub(crate) fn counts(&self) -> CardCounts {
        let mut counts = CardCounts {
            received: self.received.load(Relaxed),
            invalid: self.invalid.load(Relaxed),
            send_full: self.send_full.load(Relaxed),
            by_socket: self.by_socket.load(Relaxed),
            ..CardCounts::default()
        };
        for statistics in self.card.sockets(self.number).filter_map(|socket| socket.statistics()) {
            counts.ring_full += statistics.rx_ring_full.unwrap_or(0);
            counts.no_frame += statistics.rx_dropped;
        }
        counts
    }

    pub(crate) fn facts(&self) -> CardFacts {
        self.card.facts()
    }

    /// The frame of a descriptor, which the kernel has just given back, and the datagram in it.
    fn look(&self, queue: usize, descriptor: &XdpDesc, senders: &mut Senders) -> Option<Held> {
        // SAFETY: it comes from a ring of received frames.
        let (mut frame, begin) = unsafe { self.card.frames.around(descriptor.addr) }?;
        let end = begin + descriptor.len as usize;
        // SAFETY: the frame is one of this card's.
        let bytes = unsafe { self.card.frames.slice(&mut frame) };
        // All ports of one address take its datagrams: the kernel's program has told them apart.
        let here = usize::from(self.here.address.port());
        let end_of = |address: SocketAddr| (address.ip(), address.port());
        let recipient = |Datagram { from, to, .. }: &_| {
            let is_here = end_of(to.address) == end_of(self.here.address);
            let peer = self.scoped(from.address);
            is_here.then_some(Recipient { port: here, is_in_payload: false, peer })
        };
        let read = bytes.get(begin..end).and_then(|bytes| {
            let arrival = senders.arrival(bytes, &self.card.neighbours, recipient).ok();
            // Another port may have used this burst.
            let Arrival { peer, payload, .. } = arrival.filter(|arrival| arrival.port == here)?;
            Some((peer, begin + payload.start..begin + payload.end))
        });
        Some(Held { frame, queue, datagram: read })
    }

    /// The address as the kernel gives it to UDP sockets: one of the link says which link.
    fn scoped(&self, mut peer: SocketAddr) -> SocketAddr {
        if let SocketAddr::V6(v6) = &mut peer
            && v6.ip().is_unicast_link_local()
        {
            v6.set_scope_id(self.card.interface.index);
        }
        peer
    }

    fn count(&self, burst: &CardBurst) -> usize {
        let sound = burst.held.iter().filter(|held| held.datagram.is_some()).count();
        if !burst.held.is_empty() {
            self.received.fetch_add(sound as u64, Relaxed);
            self.invalid.fetch_add((burst.held.len() - sound) as u64, Relaxed);
        }
        sound
    }
}

impl CardBurst {
    /// Returns all frames to their queues.
    pub(crate) fn clear(&mut self) {
        if let Some(card) = self.card.as_ref().filter(|_| !self.held.is_empty()) {
            card.give_back(self.held.drain(..).map(|held| (held.queue, held.frame)));
        }
    }

    /// The datagrams of the last receive.
    pub(crate) fn messages(&mut self) -> impl Iterator<Item = Message<'_>> {
        let card = self.card.as_deref();
        self.held.iter_mut().filter_map(move |held| {
            let (peer, range) = held.datagram.clone()?;
            // SAFETY: the frame is this card's; `receive` takes no others.
            let bytes = &mut unsafe { card?.frames.slice(&mut held.frame) }[range];
            Some(Message { peer, segment_bytes: bytes.len().max(1), bytes })
        })
    }
}

impl Drop for CardBurst {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Sender<'_> {
    /// Copies the joined bytes of `pieces`, cut into segments of `segment_bytes`, into frames for `peer`. They leave
    /// with [`finish`](Self::finish) at the latest.
    pub(crate) fn send(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Fate {
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let segment_bytes = segment_bytes.clamp(1, left.max(1));
        let is_too_long = packet_bytes(&peer.ip(), segment_bytes) > self.port.card.interface.mtu_bytes;
        let port = self.port;
        let mac_of = |recent: &mut Recent| port.card.neighbours.find(recent, peer).filter(|_| !is_too_long);
        let Some(head) = self.sending.heads.to(&port.here, peer, mac_of).cloned() else {
            self.port.by_socket.fetch_add(1, Relaxed);
            return Fate::NotHere;
        };
        let mut bytes = Bytes::of(pieces);
        while left > 0 {
            let taken = left.min(segment_bytes);
            if !self.send_one(&head, &mut bytes, taken) {
                self.port.send_full.fetch_add(1, Relaxed);
                return Fate::Dropped;
            }
            left -= taken;
        }
        Fate::Sent
    }

    /// Lets all frames leave.
    pub(crate) fn finish(self) {
        self.wake();
    }

    /// Adds one datagram with the next `count` bytes; false if there is no room.
    fn send_one(&mut self, head: &Head, bytes: &mut Bytes<'_>, count: usize) -> bool {
        let Some(mut frame) = self.frame() else { return false };
        let begin = head.bytes();
        // SAFETY: the frame is one of this card's.
        let room = unsafe { self.port.card.frames.slice(&mut frame) };
        let payload = room.get_mut(begin..begin + count);
        payload.into_iter().for_each(|payload| bytes.copy_to(payload));
        let Some(length) = head.write(room, count) else {
            self.sending.free.push(frame);
            return false;
        };
        let descriptor = |frame: Frame| XdpDesc {
            addr: frame.into_address(),
            len: length as u32,
            options: XdpDescOptions::empty(),
        };
        // `frame` has seen to a place in the ring.
        self.sending.ring.push(descriptor(frame))
    }

    /// A free frame, and a place in the ring for it. If there is none, the kernel sends what it has first.
    fn frame(&mut self) -> Option<Frame> {
        if !self.sending.ring.has_room() {
            self.wake();
        }
        if !self.sending.ring.has_room() {
            return None;
        }
        self.free().or_else(|| {
            self.wake();
            self.free()
        })
    }

    fn free(&mut self) -> Option<Frame> {
        let Sending { queue, free, .. } = &mut *self.sending;
        if free.is_empty() {
            self.port.card.take_free(*queue, free, TAKEN_AT_ONCE);
        }
        free.pop()
    }

    /// Shows the kernel the frames, and calls it if it does not look by itself.
    fn wake(&self) {
        let Sending { ring, queue, .. } = &*self.sending;
        ring.publish();
        let card = &self.port.card;
        let socket = card.socket(*queue, self.port.number);
        // Without zero copy, frames leave within the calls.
        let must = || if card.is_zero_copy { ring.needs_wakeup() } else { !ring.is_taken() };
        for _ in 0..WAKES_MAX {
            if !must() {
                return;
            }
            match socket.wake_sending() {
                // Busy: a frame was dropped, and those behind it were not looked at.
                Err(Errno::AGAIN | Errno::INTR | Errno::BUSY) => {}
                // What is left goes with the next burst, or is lost with the link.
                Ok(()) | Err(_) => return,
            }
        }
    }
}

/// A descriptor that is readable while one of the port's sockets is.
fn watch(card: &Card, number: usize, udp: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let sockets = card.sockets(number).map(AsFd::as_fd);
    for socket in sockets.chain([udp]) {
        epoll::add(&epoll, socket, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(epoll)
}
