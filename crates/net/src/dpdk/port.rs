//! A port at a device of DPDK.

use std::{
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, eventfd};

use super::{
    DpdkOptions,
    device::{Frame, Frames, free},
    host::Host,
};
use crate::{
    CardCounts, Port, PortFacts, PortOptions, Way,
    frame::{ARP_FRAME_BYTES, Arp, End, Head, packet_bytes},
    neighbours::{Heads, Recent},
    pieces::Bytes,
    resolver::Heard,
    senders::{Arrival, Senders, Stranger},
    udp::{BURST_MESSAGES, Message, Sent, TransmitBurst},
};

/// A port at a device of DPDK: a UDP port of the device's address.
#[derive(Debug)]
pub struct DpdkPort {
    host: Arc<Host>,
    number: usize,
    here: End,
    ip: Ipv4Addr,
    /// Whoever sends holds it.
    heads: Mutex<Heads>,
    /// Readable at all times.
    readable: OwnedFd,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    invalid: AtomicU64,
    inbox_full: AtomicU64,
    send_full: AtomicU64,
}

/// Datagrams received by a [`DpdkPort`], in the packets that the device wrote.
#[derive(Debug)]
pub struct DpdkBurst {
    held: ArrayVec<Held, BURST_MESSAGES>,
    senders: Senders,
    host: Arc<Host>,
}

/// A received datagram.
#[derive(Debug)]
pub(super) struct Held {
    frame: Frame,
    peer: SocketAddr,
    payload: Range<usize>,
}

impl DpdkPort {
    /// Opens all ports of a host at its device. Those of a server are followed by as many for large transfers.
    ///
    /// # Errors
    /// The address is not one of IPv4, or is none of a host; or DPDK's error: no such device, a driver that refuses, no
    /// memory, no privilege.
    pub fn open_all(options: &DpdkOptions, wanted: &PortOptions) -> io::Result<Vec<Self>> {
        let host = Arc::new(Host::open(options, wanted)?);
        let port = |number| {
            let address = host.row.address(number);
            Ok(Self {
                readable: eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                here: End { mac: host.device.mac(), address: address.into() },
                ip: *address.ip(),
                heads: Mutex::default(),
                host: Arc::clone(&host),
                number,
                counts: Counts::default(),
            })
        };
        (0..wanted.count).map(port).collect()
    }

    /// Waits until the device has a link, or a peer, and the hardware address of `peer` is known.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `within`.
    pub fn reach(&self, peer: Ipv4Addr, within: Duration) -> io::Result<()> {
        let (mac, ip, mut burst) = (self.here.mac, self.ip, self.burst());
        let ask = || self.send_arp(|frame| Arp::write_request(frame, mac, ip, peer));
        self.host.resolver.reach(peer, within, (|| self.host.device.is_up(), ask), || {
            // The answer may come to any of them; nothing else was asked for yet.
            burst.clear();
            (0..self.host.device.receive_queues()).for_each(|queue| self.receive_from(queue, &mut burst, 1));
        })
    }

    #[cfg(test)]
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Receives from a queue until the burst has `messages_max` datagrams at most.
    fn receive_from(&self, queue: usize, burst: &mut DpdkBurst, messages_max: usize) {
        let mut frames = Frames::new();
        self.host.device.receive(queue, &mut frames, messages_max.saturating_sub(burst.held.len()));
        frames.drain(..).for_each(|frame| self.take(frame, burst));
    }

    /// Takes a frame from a queue: into the burst, to another port's inbox, or as a question for the address.
    fn take(&self, mut frame: Frame, burst: &mut DpdkBurst) {
        let bytes = frame.bytes();
        let Host { row, resolver, .. } = &*self.host;
        let recipient = |datagram: &_| row.recipient(datagram, bytes, self.here.mac);
        match burst.senders.arrival(bytes, &resolver.neighbours, recipient) {
            Ok(Arrival { peer, port, payload }) => {
                let held = Held { peer, payload, frame };
                if port == self.number {
                    burst.held.push(held);
                } else if self.host.inboxes[port].push(held).is_err() {
                    self.counts.inbox_full.fetch_add(1, Relaxed);
                }
            }
            Err(Stranger::Unread) => {
                let arp = Arp::parse(bytes);
                self.take_arp(arp, &mut burst.senders.recent);
            }
            Err(Stranger::NotHere) => {
                self.counts.invalid.fetch_add(1, Relaxed);
            }
        }
    }

    /// Answers a question for the address, or notes the answer to one.
    #[cold]
    fn take_arp(&self, arp: Option<Arp>, recent: &mut Recent) {
        let (here, wanted) = (self.here.mac, self.ip);
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
        let mut frames = Frames::new();
        if self.host.device.allocate(&mut frames, 1) {
            frames[0].shorten(ARP_FRAME_BYTES);
            write(frames[0].bytes());
            self.host.device.send(self.host.steering.send_queue(self.number, 0), &mut frames);
        }
    }
}

impl Port for DpdkPort {
    type Burst = DpdkBurst;

    fn burst(&self) -> DpdkBurst {
        DpdkBurst { held: ArrayVec::new(), senders: Senders::default(), host: Arc::clone(&self.host) }
    }

    fn receive_at_most(&self, burst: &mut DpdkBurst, messages_max: usize) -> io::Result<usize> {
        burst.clear();
        if !Arc::ptr_eq(&burst.host, &self.host) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let messages_max = messages_max.min(BURST_MESSAGES);
        // What came by other queues leaves room for this port's own, or the card would drop those.
        while burst.held.len() < messages_max.div_ceil(2)
            && let Some(held) = self.host.inboxes[self.number].pop()
        {
            burst.held.push(held);
        }
        for queue in self.host.receive_queues(self.number) {
            self.receive_from(queue, burst, messages_max);
        }
        if !burst.held.is_empty() {
            self.counts.received.fetch_add(burst.held.len() as u64, Relaxed);
        }
        Ok(burst.held.len())
    }

    fn messages(burst: &mut DpdkBurst) -> impl Iterator<Item = Message<'_>> {
        burst.held.iter_mut().map(|held| {
            let bytes = &mut held.frame.bytes()[held.payload.clone()];
            Message { peer: held.peer, segment_bytes: bytes.len().max(1), bytes }
        })
    }

    fn send(&self, trains: &mut TransmitBurst) -> Sent {
        let frames = trains.trains().map(|(_, bytes, segment_bytes)| segments(bytes.len(), segment_bytes));
        let mut outgoing = Outgoing::by(self, frames.sum());
        for (peer, bytes, segment_bytes) in trains.trains() {
            outgoing.add(peer, &[IoSlice::new(bytes)], segment_bytes);
        }
        trains.clear();
        outgoing.finish()
    }

    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let mut outgoing = Outgoing::by(self, segments(bytes, segment_bytes));
        outgoing.add(peer, pieces, segment_bytes);
        outgoing.finish()
    }

    fn address(&self) -> SocketAddr {
        self.here.address
    }

    fn overruns(&self) -> u64 {
        let CardCounts { ring_full, no_frame, .. } = self.card_counts();
        ring_full + no_frame
    }

    fn card_counts(&self) -> CardCounts {
        // The device has no counts by port.
        let [queue_full, no_frame] = if self.number == 0 { self.host.device.dropped() } else { [0; 2] };
        CardCounts {
            received: self.counts.received.load(Relaxed),
            invalid: self.counts.invalid.load(Relaxed),
            ring_full: queue_full + self.counts.inbox_full.load(Relaxed),
            no_frame,
            send_full: self.counts.send_full.load(Relaxed),
            by_socket: 0,
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn facts(&self) -> PortFacts {
        PortFacts {
            way: Way::Dpdk(self.host.facts()),
            receive_buffer_bytes: self.host.receive_buffer_bytes,
            datagram_bytes_max: Some(self.host.payload_bytes_max()),
            ..PortFacts::default()
        }
    }
}

impl DpdkBurst {
    /// Returns the packets to their pool.
    fn clear(&mut self) {
        let mut frames: Frames = self.held.drain(..).map(|held| held.frame).collect();
        if !frames.is_empty() {
            free(&mut frames);
        }
    }
}

/// Trains that become frames, and leave as bursts.
struct Outgoing<'a> {
    heads: MutexGuard<'a, Heads>,
    /// Frames to be filled.
    spare: Frames,
    /// Frames that are not allocated yet.
    wanted: usize,
    leaving: Leaving<'a>,
}

/// Frames that leave as a burst.
struct Leaving<'a> {
    port: &'a DpdkPort,
    frames: Frames,
    /// The trains of the frames, by number.
    trains: ArrayVec<u64, BURST_MESSAGES>,
    /// The queue of the frames.
    queue: usize,
    /// Trains so far.
    count: u64,
    last_dropped: u64,
    sent: Sent,
}

impl<'a> Outgoing<'a> {
    /// Frames that `port` sends, about `wanted` of them.
    fn by(port: &'a DpdkPort, wanted: usize) -> Self {
        let (frames, trains, sent) = (Frames::new(), ArrayVec::new(), Sent::default());
        let leaving = Leaving { port, frames, trains, queue: 0, count: 0, last_dropped: 0, sent };
        let heads = port.heads.lock().unwrap_or_else(PoisonError::into_inner);
        Self { heads, spare: Frames::new(), wanted, leaving }
    }

    /// Copies a train into frames.
    fn add(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        let Self { heads, spare, wanted, leaving } = self;
        let DpdkPort { host, here, number, .. } = leaving.port;
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let segment_bytes = segment_bytes.clamp(1, left.max(1));
        if packet_bytes(&peer.ip(), segment_bytes) > host.device.mtu_bytes() {
            leaving.sent.too_long += 1;
            return;
        }
        let Some(head) = heads.to(here, peer, |recent| host.resolver.mac_of(recent, peer)) else {
            leaving.sent.refused += 1;
            return;
        };
        leaving.begin(host.steering.send_queue(*number, peer.port()));
        let mut bytes = Bytes::of(pieces);
        while left > 0 {
            let taken = left.min(segment_bytes);
            let frame =
                take_spare(spare, wanted, host).and_then(|frame| fill(frame, head, &mut bytes, taken));
            let Some(frame) = frame else { return leaving.drop_last() };
            leaving.push(frame);
            left -= taken;
        }
    }

    fn finish(mut self) -> Sent {
        free(&mut self.spare);
        self.leaving.finish()
    }
}

impl Leaving<'_> {
    /// Begins a train whose frames leave by this queue.
    fn begin(&mut self, queue: usize) {
        if queue != self.queue {
            self.flush();
            self.queue = queue;
        }
        self.count += 1;
    }

    fn push(&mut self, frame: Frame) {
        if self.frames.is_full() {
            self.flush();
        }
        self.frames.push(frame);
        self.trains.push(self.count);
    }

    /// Lets the frames leave.
    fn flush(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let left = self.port.host.device.send(self.queue, &mut self.frames);
        for train in std::mem::take(&mut self.trains).into_iter().skip(left) {
            self.drop_train(train);
        }
    }

    /// Gives up the train that was begun last.
    fn drop_last(&mut self) {
        // Trains before it may be lost as well, and are counted in order.
        self.flush();
        self.drop_train(self.count);
    }

    /// Counts a train of which a part is lost, once. Numbers of trains only grow.
    fn drop_train(&mut self, train: u64) {
        if train > self.last_dropped {
            self.last_dropped = train;
            self.sent.dropped += 1;
        }
    }

    fn finish(mut self) -> Sent {
        self.flush();
        let Sent { dropped, .. } = self.sent;
        if dropped > 0 {
            self.port.counts.send_full.fetch_add(dropped, Relaxed);
        }
        Sent { trains: self.count - dropped, ..self.sent }
    }
}

/// A frame to be filled. `wanted` more will be asked for; as many are allocated at once if they can be.
#[inline]
fn take_spare(spare: &mut Frames, wanted: &mut usize, host: &Host) -> Option<Frame> {
    if spare.is_empty() {
        let count = (*wanted).clamp(1, spare.capacity());
        if !host.device.allocate(spare, count) && !host.device.allocate(spare, 1) {
            return None;
        }
        *wanted = wanted.saturating_sub(spare.len());
    }
    spare.pop()
}

/// Fills a frame with the next `taken` bytes behind their headers; `None` if it has no room for them.
#[inline]
fn fill(mut frame: Frame, head: &Head, bytes: &mut Bytes<'_>, taken: usize) -> Option<Frame> {
    let begin = head.bytes();
    bytes.copy_to(frame.bytes().get_mut(begin..begin + taken)?);
    let length = head.write(frame.bytes(), taken)?;
    frame.shorten(length);
    Some(frame)
}

/// Segments of a train; none of an empty one.
fn segments(bytes: usize, segment_bytes: usize) -> usize {
    // Most have one, and a division takes its time.
    if bytes <= segment_bytes { bytes.min(1) } else { bytes.div_ceil(segment_bytes.max(1)) }
}
