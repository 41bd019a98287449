//! A port with faults.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::Mutex,
};

use minos_base::seeded_stream;
use minos_net::{
    CardCounts, Port, PortFacts,
    udp::{Message, Sent, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, TransmitBurst},
};
use rand::{RngExt as _, rngs::StdRng};

use super::{Shared, lock, signal::Signal};
use crate::network::{Counts, Faults, Network, happens};

/// Time that passes with each receive, on the clock of [`PortFaults::network`].
const RECEIVE_NS: u64 = 1000;

/// The faults of a port. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct PortFaults {
    /// The faults of arriving datagrams. A microsecond passes with each receive.
    pub network: Faults,
    /// Share of trains of which only the first segments leave, if any.
    pub in_part: f64,
    /// Share of trains before which the send buffer is full: they and those behind them are dropped.
    pub full: f64,
    /// Share of trains that are sent but reported as too long for their path.
    pub too_long: f64,
    /// Share of trains whose peer cannot be reached.
    pub refused: f64,
}

counts! {
    /// How often each fault has happened.
    pub struct PortCounts {
        /// Arriving datagrams, by fate.
        pub network: Counts,
        /// Trains sent in part.
        pub in_part: u64,
        /// Trains that met a full buffer.
        pub full: u64,
        /// Trains reported as too long.
        pub too_long: u64,
        /// Trains refused.
        pub refused: u64,
    }
}

impl PortFaults {
    /// No faults, and no delay.
    pub fn none() -> Self {
        let network = Faults { delay_ns: 0..=0, ..Faults::none() };
        Self { network, in_part: 0.0, full: 0.0, too_long: 0.0, refused: 0.0 }
    }

    /// Every fault, often. A checksum notices each spoiled datagram, which is then lost.
    pub fn all() -> Self {
        let network = Faults {
            loss: 0.05,
            duplication: 0.1,
            reordering: 0.2,
            held_back_ns_max: 20 * RECEIVE_NS,
            delay_ns: 0..=2 * RECEIVE_NS,
            corruption: 0.02,
            truncation: 0.02,
            ..Faults::none()
        };
        Self { network, in_part: 0.05, full: 0.02, too_long: 0.02, refused: 0.02 }
    }
}

/// A port that carries the datagrams of another with [`PortFaults`].
///
/// Messages come apart into datagrams, pass a faulty [`Network`], and are joined again as UDP_GRO joins them.
/// The descriptor stays readable while datagrams are held back.
#[derive(Debug)]
pub struct FaultyPort<P> {
    inner: P,
    faults: PortFaults,
    arriving: Mutex<Network>,
    leaving: Mutex<Leaving>,
    signal: Signal,
    counts: Shared<PortCounts>,
}

/// Trains on their way out.
#[derive(Debug)]
struct Leaving {
    rng: StdRng,
    trains: TransmitBurst,
}

/// The fate of a train.
#[derive(Default)]
struct Fate {
    /// The bytes that leave.
    leaves: usize,
    /// Its failures, as the port reports them.
    failed: Sent,
    /// True if nothing behind it leaves either.
    is_full: bool,
}

/// Messages that have come through the network.
#[derive(Debug)]
pub struct FaultyBurst<B> {
    inner: B,
    messages: Vec<Arrived>,
}

/// A message: a train of datagrams from one peer.
#[derive(Debug)]
struct Arrived {
    peer: SocketAddr,
    bytes: Vec<u8>,
    segment_bytes: usize,
}

impl<P: Port> FaultyPort<P> {
    /// The twin of `inner`, with random choices from `seed`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(inner: P, faults: PortFaults, seed: u64) -> io::Result<Self> {
        Ok(Self {
            signal: Signal::over(inner.descriptor())?,
            inner,
            arriving: Mutex::new(Network::new(seed, faults.network.clone())),
            leaving: Mutex::new(Leaving { rng: seeded_stream(seed, 1), trains: TransmitBurst::new() }),
            faults,
            counts: Shared::default(),
        })
    }

    /// How often each fault has happened.
    pub fn counts(&self) -> PortCounts {
        *lock(&self.counts)
    }

    pub(super) fn shared_counts(&self) -> Shared<PortCounts> {
        self.counts.clone()
    }

    /// Draws the fate of a train of `bytes` bytes.
    fn fate(&self, rng: &mut StdRng, bytes: usize, segment_bytes: usize) -> Fate {
        let (faults, mut counts) = (&self.faults, lock(&self.counts));
        let segments = bytes.div_ceil(segment_bytes);
        let mut fate = Fate { leaves: bytes, ..Fate::default() };
        if happens(faults.full, rng) {
            counts.full += 1;
            fate = Fate { leaves: 0, is_full: true, ..fate };
            fate.failed.dropped = 1;
        } else if happens(faults.refused, rng) {
            counts.refused += 1;
            fate.leaves = 0;
            fate.failed.refused = 1;
        } else if segments > 1 && happens(faults.in_part, rng) {
            counts.in_part += 1;
            fate.leaves = rng.random_range(0..segments) * segment_bytes;
            fate.failed.dropped = 1;
        } else if happens(faults.too_long, rng) {
            counts.too_long += 1;
            fate.failed.too_long = 1;
        }
        fate
    }
}

impl<P: Port> Port for FaultyPort<P> {
    type Burst = FaultyBurst<P::Burst>;

    fn burst(&self) -> Self::Burst {
        FaultyBurst { inner: self.inner.burst(), messages: Vec::new() }
    }

    fn receive_at_most(&self, burst: &mut Self::Burst, messages_max: usize) -> io::Result<usize> {
        let mut network = lock(&self.arriving);
        let here = self.inner.address();
        self.inner.receive_at_most(&mut burst.inner, messages_max)?;
        for message in P::messages(&mut burst.inner) {
            message.segments().for_each(|datagram| network.send(message.peer, here, datagram));
        }
        burst.messages.clear();
        let until_ns = network.now_ns() + RECEIVE_NS;
        while burst.messages.len() < messages_max
            && let Some(datagram) = network.next_until(until_ns)
        {
            burst.take_in(datagram.from, datagram.bytes);
        }
        lock(&self.counts).network = network.counts();
        self.signal.raise(network.in_flight() > 0)?;
        Ok(burst.messages.len())
    }

    fn messages(burst: &mut Self::Burst) -> impl Iterator<Item = Message<'_>> {
        burst.messages.iter_mut().map(|message| Message {
            peer: message.peer,
            segment_bytes: message.segment_bytes,
            bytes: &mut message.bytes,
        })
    }

    fn send(&self, trains: &mut TransmitBurst) -> Sent {
        let mut leaving = lock(&self.leaving);
        let Leaving { rng, trains: out } = &mut *leaving;
        let (mut sent, mut parts) = (Sent::default(), 0);
        for (index, (peer, bytes, segment_bytes)) in trains.trains().enumerate() {
            let fate = self.fate(rng, bytes.len(), segment_bytes);
            sent += fate.failed;
            if fate.is_full {
                sent.dropped += (trains.len() - index - 1) as u64;
                break;
            }
            parts += u64::from((1..bytes.len()).contains(&fate.leaves));
            let begin = out.buffer().len();
            out.buffer().extend_from_slice(&bytes[..fate.leaves]);
            // Queued, not pushed, so that no two trains become one. One without bytes is not queued.
            let _ = out.queue(peer, begin..begin + fate.leaves, segment_bytes);
        }
        sent += self.inner.send(out);
        sent.trains = sent.trains.saturating_sub(parts);
        trains.clear();
        sent
    }

    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let fate = self.fate(&mut lock(&self.leaving).rng, bytes, segment_bytes.max(1));
        let mut sent = match fate.leaves {
            0 => Sent::default(),
            leaves => self.inner.send_gather(peer, &front(pieces, leaves), segment_bytes),
        };
        if fate.leaves < bytes {
            sent.trains = 0;
        }
        sent += fate.failed;
        sent
    }

    fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    fn overruns(&self) -> u64 {
        self.inner.overruns()
    }

    fn card_counts(&self) -> CardCounts {
        self.inner.card_counts()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.signal.descriptor()
    }

    fn facts(&self) -> PortFacts {
        self.inner.facts()
    }
}

impl<B> FaultyBurst<B> {
    /// Adds a datagram: to the last message if it continues that as a train.
    fn take_in(&mut self, peer: SocketAddr, bytes: Vec<u8>) {
        if let Some(last) = self.messages.last_mut()
            && last.peer == peer
            && (1..=last.segment_bytes).contains(&bytes.len())
            && last.bytes.len().is_multiple_of(last.segment_bytes)
            && last.bytes.len() / last.segment_bytes < TRAIN_SEGMENTS_MAX
            && last.bytes.len() + bytes.len() <= TRAIN_BYTES_MAX
        {
            return last.bytes.extend(bytes);
        }
        self.messages.push(Arrived { peer, segment_bytes: bytes.len().max(1), bytes });
    }
}

/// The first `bytes` bytes of `pieces`.
fn front<'a>(pieces: &'a [IoSlice<'_>], mut bytes: usize) -> Vec<IoSlice<'a>> {
    let cut = |piece: &'a IoSlice<'_>| {
        let taken = piece.len().min(bytes);
        bytes -= taken;
        IoSlice::new(&piece[..taken])
    };
    pieces.iter().map(cut).collect()
}
