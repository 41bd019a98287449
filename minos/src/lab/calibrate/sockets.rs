//! The kernel's costs of datagrams over loopback.

use std::{
    io::IoSlice,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use minos_net::udp::{ReceiveBurst, TransmitBurst, UdpOptions, UdpPort};

use super::{
    Scale,
    samples::{Stopwatch, Subject},
};

/// Bytes of a packet of the simulator.
pub(super) const PACKET_BYTES: usize = 1448;
/// Bytes of a datagram whose bytes cost next to nothing.
const SMALL_BYTES: usize = 64;
/// Ports that are received from in turn, so that one clock read serves several calls.
const PORTS: usize = 8;
/// Attempts at a round that a busy machine delivers late.
const TRIES: usize = 100;

/// Opens a port on loopback.
pub(super) fn open() -> Result<UdpPort> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    UdpPort::bind(address, &UdpOptions::default()).context("a UDP port on loopback")
}

/// Sending and receiving ports.
struct Ports {
    near: UdpPort,
    far: Vec<UdpPort>,
    out: TransmitBurst,
    into: ReceiveBurst,
}

impl Ports {
    fn open() -> Result<Self> {
        let far = (0..PORTS).map(|_| open()).collect::<Result<_>>()?;
        Ok(Self { near: open()?, far, out: TransmitBurst::new(), into: ReceiveBurst::new() })
    }

    /// Receives all pending datagrams, and returns their number.
    fn drain(&mut self) -> Result<usize> {
        let mut datagrams = 0;
        for port in &self.far {
            while port.receive(&mut self.into)? > 0 {
                datagrams += self.into.messages().map(|message| message.segments().len()).sum::<usize>();
            }
        }
        Ok(datagrams)
    }
}

/// The meaning of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// As many datagrams of 64 bytes as the place says, in one call.
    Datagrams,
    /// A train of as many segments as the place says, each a packet.
    Segments,
    /// A datagram of as many bytes as the place says.
    Bytes,
}

impl Load {
    fn places(self) -> &'static [f64] {
        match self {
            Self::Datagrams => &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            Self::Segments => &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 44.0],
            Self::Bytes => &[64.0, 1024.0, 2048.0, 4096.0, 8192.0],
        }
    }
}

pub(super) struct Sends {
    name: &'static str,
    load: Load,
    ports: Ports,
    calls: usize,
    bytes: Vec<u8>,
}

impl Sends {
    pub(super) fn new(name: &'static str, load: Load, scale: &Scale) -> Result<Self> {
        Ok(Self {
            name,
            load,
            ports: Ports::open()?,
            calls: scale.calls,
            bytes: vec![b's'; 64 * PACKET_BYTES],
        })
    }

    /// One call: its time, and the number of datagrams it sent.
    fn call(&mut self, place: f64, turn: usize) -> Result<(Duration, usize)> {
        let amount = place as usize;
        if self.load == Load::Datagrams {
            return self.burst(amount);
        }
        let Ports { near, far, .. } = &mut self.ports;
        let (bytes, segment_bytes) = match self.load {
            Load::Bytes => (amount, amount),
            _ => (amount * PACKET_BYTES, PACKET_BYTES),
        };
        let (peer, pieces) = (far[turn % PORTS].address(), [IoSlice::new(&self.bytes[..bytes])]);
        let start = Instant::now();
        let sent = near.send_gather(peer, &pieces, segment_bytes);
        let elapsed = start.elapsed();
        if sent.trains != 1 {
            bail!("a train was not taken: {sent:?}");
        }
        Ok((elapsed, bytes / segment_bytes))
    }

    fn burst(&mut self, datagrams: usize) -> Result<(Duration, usize)> {
        let Ports { near, far, out, .. } = &mut self.ports;
        out.buffer().extend_from_slice(&self.bytes[..datagrams * SMALL_BYTES]);
        let start = Instant::now();
        for datagram in 0..datagrams {
            let place = datagram * SMALL_BYTES..(datagram + 1) * SMALL_BYTES;
            if !out.queue(far[datagram % PORTS].address(), place, SMALL_BYTES) {
                bail!("there was no room for {datagrams} datagrams");
            }
        }
        let sent = out.send(near);
        let elapsed = start.elapsed();
        if sent.trains != datagrams as u64 {
            bail!("{datagrams} datagrams were not taken: {sent:?}");
        }
        Ok((elapsed, datagrams))
    }
}

impl Subject for Sends {
    fn name(&self) -> &'static str {
        self.name
    }

    fn places(&self) -> &[f64] {
        self.load.places()
    }

    /// Nanoseconds of a call.
    fn sample(&mut self, place: usize) -> Result<f64> {
        let place = self.places()[place];
        let mut watch = Stopwatch::default();
        for call in 0..self.calls {
            watch.note(self.call(place, call)?.0, 1);
            // Empties the receive buffers: sending to a full socket would cost less.
            self.ports.drain()?;
        }
        Ok(watch.typical_ns())
    }
}

pub(super) struct Receives {
    name: &'static str,
    load: Load,
    sends: Sends,
    calls: usize,
}

impl Receives {
    pub(super) fn new(name: &'static str, load: Load, scale: &Scale) -> Result<Self> {
        Ok(Self { name, load, sends: Sends::new(name, load, scale)?, calls: scale.calls })
    }

    /// Receives once at each port and notes the times; true if everything had arrived.
    fn round(&mut self, place: f64, watch: &mut Stopwatch) -> Result<bool> {
        self.sends.ports.drain()?;
        let mut awaited = 0;
        for turn in 0..PORTS {
            awaited += self.fill(place, turn)?;
        }
        let Ports { far, into, .. } = &mut self.sends.ports;
        let (mut times, mut datagrams) = ([Duration::ZERO; PORTS], 0);
        for (port, time) in far.iter().zip(&mut times) {
            let start = Instant::now();
            port.receive(into)?;
            *time = start.elapsed();
            datagrams += into.messages().map(|message| message.segments().len()).sum::<usize>();
        }
        let has_all = datagrams == awaited;
        if has_all {
            times.iter().for_each(|&time| watch.note(time, 1));
        }
        Ok(has_all)
    }

    /// Sends the datagrams that one call is to receive at the port of this turn; returns their number.
    fn fill(&mut self, place: f64, turn: usize) -> Result<usize> {
        if self.load != Load::Datagrams {
            return Ok(self.sends.call(place, turn)?.1);
        }
        let mut sent = 0;
        let Sends { ports: Ports { near, far, .. }, bytes, .. } = &mut self.sends;
        while sent < place as usize {
            let peer = far[turn].address();
            if near.send_gather(peer, &[IoSlice::new(&bytes[..SMALL_BYTES])], SMALL_BYTES).trains == 0 {
                bail!("a datagram was not taken");
            }
            sent += 1;
        }
        Ok(sent)
    }
}

impl Subject for Receives {
    fn name(&self) -> &'static str {
        self.name
    }

    fn places(&self) -> &[f64] {
        self.load.places()
    }

    /// Nanoseconds of a call.
    fn sample(&mut self, place: usize) -> Result<f64> {
        let place = self.places()[place];
        let (mut watch, mut rounds) = (Stopwatch::default(), 0);
        for _ in 0..TRIES + self.calls.div_ceil(PORTS) {
            rounds += usize::from(self.round(place, &mut watch)?);
            if rounds * PORTS >= self.calls {
                return Ok(watch.typical_ns());
            }
        }
        bail!("loopback does not deliver what was sent to it")
    }
}

pub(super) struct EmptyReceives {
    ports: Ports,
    batch: usize,
}

impl EmptyReceives {
    pub(super) fn new(scale: &Scale) -> Result<Self> {
        Ok(Self { ports: Ports::open()?, batch: scale.batch })
    }
}

impl Subject for EmptyReceives {
    fn name(&self) -> &'static str {
        "looks at an empty socket"
    }

    /// Nanoseconds of a poll.
    fn sample(&mut self, _place: usize) -> Result<f64> {
        let Ports { far, into, .. } = &mut self.ports;
        let mut watch = Stopwatch::default();
        for _ in 0..self.batch.div_ceil(PORTS) {
            let received = watch.time(PORTS, || {
                far.iter().try_fold(0, |sum, port| port.receive(into).map(|messages| sum + messages))
            })?;
            if received > 0 {
                bail!("somebody else sends to the ports of the calibration");
            }
        }
        Ok(watch.typical_ns())
    }
}
