//! Requests and values over loopback between two threads.

use std::{
    io::IoSlice,
    net::SocketAddr,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use minos_net::udp::{BURST_MESSAGES, ReceiveBurst, TRAIN_BYTES_MAX, TransmitBurst, UdpPort};
use minos_node::native::Egress;
use minos_proto::native::Operation;

use super::{
    Scale,
    cpus::Cpus,
    native::{NativeServer, compose},
    samples::{Stopwatch, Subject},
    sockets::{PACKET_BYTES, open},
    table::{self, Table},
};

/// Time to wait for a reply before the request is sent again.
const REPLY_WITHIN: Duration = Duration::from_secs(1);
/// Requests of a sample that may be lost.
const LOST_MAX: usize = 3;
/// A silence after which a stream has been received completely.
const SILENCE: Duration = Duration::from_millis(20);
/// A silence after which a stream will never begin. Long: the sender may have to wait for a processor.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Replies that leave through a port.
struct Through<'a> {
    burst: TransmitBurst,
    port: &'a UdpPort,
}

impl Egress for Through<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.burst.buffer()
    }

    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        // There is room: see `has_room`.
        let _ = self.burst.queue(peer, train, segment_bytes);
    }

    fn has_room(&mut self) -> bool {
        self.burst.len() + 2 <= BURST_MESSAGES
    }

    fn flush(&mut self) {
        // A lost reply is requested again.
        let _ = self.burst.send(self.port);
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        self.flush();
        let _ = self.port.send_gather(peer, pieces, segment_bytes);
    }
}

/// GETs of 64 bytes, one after another, between two polling threads.
pub(super) struct RoundTrips<'a> {
    table: &'a Table,
    cpus: Cpus,
    times: usize,
    near: UdpPort,
    far: UdpPort,
}

impl<'a> RoundTrips<'a> {
    pub(super) fn new(table: &'a Table, cpus: Cpus, scale: &Scale) -> Result<Self> {
        Ok(Self { table, cpus, times: scale.round_trips, near: open()?, far: open()? })
    }

    /// Serves requests until `stop`.
    fn serve(&self, mut server: NativeServer, stop: &AtomicBool) -> Result<()> {
        let pinned = self.cpus.pin_second();
        let mut into = ReceiveBurst::new();
        let mut through = Through { burst: TransmitBurst::new(), port: &self.far };
        // Relaxed: the flag guards no data.
        while !stop.load(Ordering::Relaxed) {
            if self.far.receive(&mut into)? == 0 {
                self.pause();
                continue;
            }
            let messages = into.messages().map(|message| {
                let bytes: &[u8] = message.bytes;
                (message.peer, bytes, message.segment_bytes)
            });
            server.serve_from(0, messages, &mut through);
            through.flush();
        }
        pinned
    }

    fn pause(&self) {
        if !self.cpus.are_two() {
            thread::yield_now();
        }
    }

    /// Sends requests one after another, each after the reply to the last; the typical nanoseconds of one.
    fn ask(&self, request: &[u8]) -> Result<f64> {
        let pinned = self.cpus.pin_first();
        let (mut into, mut watch, mut lost) = (ReceiveBurst::new(), Stopwatch::default(), 0);
        for _ in 0..self.times {
            while !watch.time(1, || self.ask_once(request, &mut into))? {
                lost += 1;
                ensure!(lost <= LOST_MAX, "loopback does not answer");
            }
        }
        pinned.map(|()| watch.typical_ns())
    }

    /// True if there was a reply in time.
    fn ask_once(&self, request: &[u8], into: &mut ReceiveBurst) -> Result<bool> {
        self.near.send_gather(self.far.address(), &[IoSlice::new(request)], request.len());
        let mut looks = 0u32;
        let asked = Instant::now();
        while self.near.receive(into)? == 0 {
            looks += 1;
            if looks.is_multiple_of(1024) && asked.elapsed() >= REPLY_WITHIN {
                return Ok(false);
            }
            self.pause();
        }
        Ok(true)
    }

    fn request(&self, server: &NativeServer) -> Result<Vec<u8>> {
        let key = table::key(table::Kind::Small, 0);
        let get = Operation::get(1, self.table.engine.hash(&key), &key);
        let mut datagram = Vec::new();
        compose(&mut datagram, server.header(), [get])?;
        Ok(datagram)
    }
}

impl Subject for RoundTrips<'_> {
    fn name(&self) -> &'static str {
        "round trips"
    }

    /// Nanoseconds of a round trip.
    fn sample(&mut self, _place: usize) -> Result<f64> {
        let client = self.near.address();
        // Cookies are the same for all servers of a calibration.
        let request = self.request(&NativeServer::new(self.table, client)?)?;
        let stop = AtomicBool::new(false);
        let this = &*self;
        thread::scope(|scope| {
            let server = scope.spawn(|| this.serve(NativeServer::new(this.table, client)?, &stop));
            let asked = scope.spawn(|| this.ask(&request)).join().expect("no thread panics");
            stop.store(true, Ordering::Relaxed);
            server.join().expect("no thread panics").and(asked)
        })
    }
}

/// A stream of trains from one thread to another.
pub(super) struct Streams {
    cpus: Cpus,
    trains: usize,
    near: UdpPort,
    far: UdpPort,
}

impl Streams {
    pub(super) fn new(cpus: Cpus, scale: &Scale) -> Result<Self> {
        Ok(Self { cpus, trains: scale.trains, near: open()?, far: open()? })
    }

    /// Sends until `stop`.
    fn send(&self, stop: &AtomicBool) -> Result<()> {
        let pinned = self.cpus.pin_first();
        let bytes = vec![b's'; TRAIN_BYTES_MAX / PACKET_BYTES * PACKET_BYTES];
        while !stop.load(Ordering::Relaxed) {
            // Bytes that a full socket rejects are not counted.
            let _ = self.near.send_gather(self.far.address(), &[IoSlice::new(&bytes)], PACKET_BYTES);
            if !self.cpus.are_two() {
                thread::yield_now();
            }
        }
        pinned
    }

    /// Receives as many messages as `trains`; the rate in gigabits a second.
    fn receive(&self) -> Result<f64> {
        let pinned = self.cpus.pin_second();
        let (mut into, mut bytes, mut messages) = (ReceiveBurst::new(), 0, 0);
        let (mut start, mut last) = (None, Instant::now());
        while messages < self.trains || bytes == 0 {
            if self.far.receive(&mut into)? == 0 {
                if last.elapsed() >= SILENCE_MAX {
                    bail!("nothing arrives over loopback");
                }
                continue;
            }
            last = Instant::now();
            messages += into.messages().len();
            // The first messages start the clock and are not counted.
            if start.is_some() {
                bytes += into.messages().map(|message| message.bytes.len()).sum::<usize>();
            }
            start.get_or_insert(last);
        }
        let elapsed = start.map_or(Duration::ZERO, |start| last - start);
        pinned?;
        ensure!(elapsed > Duration::ZERO, "{} trains are too few", self.trains);
        Ok(8.0 * bytes as f64 / elapsed.as_nanos() as f64)
    }

    /// Discards the packets that are still in flight.
    fn drain(&self) -> Result<()> {
        let (mut into, mut last) = (ReceiveBurst::new(), Instant::now());
        while last.elapsed() < SILENCE {
            if self.far.receive(&mut into)? > 0 {
                last = Instant::now();
            }
        }
        Ok(())
    }
}

impl Subject for Streams {
    fn name(&self) -> &'static str {
        "streams"
    }

    /// Gigabits a second.
    fn sample(&mut self, _place: usize) -> Result<f64> {
        let stop = AtomicBool::new(false);
        let this = &*self;
        let received = thread::scope(|scope| {
            let sender = scope.spawn(|| this.send(&stop));
            let received = scope.spawn(|| this.receive()).join().expect("no thread panics");
            stop.store(true, Ordering::Relaxed);
            sender.join().expect("no thread panics").and(received)
        });
        self.drain()?;
        received
    }
}
