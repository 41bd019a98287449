//! A worker's part of the native protocol, without sockets.

use std::{
    hint::black_box,
    io::IoSlice,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use minos_base::{Clock, SizeClass, VALUE_BYTES_MAX, hash_key, limits::SLICE_BYTES};
use minos_engine::StoreMode;
use minos_node::{
    config::NativeConfig,
    native::{Egress, Job, NativeSetting, NativeShared, NativeWorker, SizeLimit, Turn},
};
use minos_proto::native::{
    Composer, DATAGRAM_BYTES_ETHERNET, Detail, Header, Hello, Kind, OpFlags, Opcode, Operation, Status,
    VERSION, Welcome, replies,
};
use minos_sched::WorkerId;
use minos_sim::Random;

use super::{
    Scale,
    samples::{Stopwatch, Subject},
    table::{self, GROUP, KEY_BYTES, SMALL_BYTES, Table},
};

/// Bytes of composed answers after which the buffer is emptied.
const COMPOSED_BYTES_MAX: usize = 512 << 10;

/// The client's address where there is no socket.
pub(super) const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// The end of answers.
#[derive(Debug, Default)]
pub(super) struct Sink {
    composed: Vec<u8>,
    /// Bytes that a driver without gather would have copied for the card; `None` if values are not copied.
    copied: Option<Vec<u8>>,
}

impl Sink {
    /// Values that are sent in place cost nothing: the kernel's copy is measured with the kernel.
    pub(super) fn swallowing() -> Self {
        Self::default()
    }

    /// Values that are sent in place are copied, as by a driver that does not gather.
    pub(super) fn copying() -> Self {
        Self { copied: Some(Vec::new()), ..Self::default() }
    }
}

impl Egress for Sink {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.composed
    }

    fn queue_train(&mut self, _peer: SocketAddr, train: Range<usize>, _segment_bytes: usize) {
        black_box(&self.composed[train]);
    }

    fn has_room(&mut self) -> bool {
        self.composed.len() < COMPOSED_BYTES_MAX
    }

    fn flush(&mut self) {
        self.composed.clear();
    }

    fn send_gather(&mut self, _peer: SocketAddr, pieces: &[IoSlice<'_>], _segment_bytes: usize) {
        if let Some(copied) = &mut self.copied {
            copied.clear();
            pieces.iter().for_each(|piece| copied.extend_from_slice(piece));
        }
        black_box((pieces, &self.copied));
    }
}

/// One worker of a server, without sockets, and a client that knows its cookie.
pub(super) struct NativeServer {
    worker: NativeWorker<'static, StoreMode>,
    placement: SizeLimit,
    /// The time never changes, so that the cookie stays valid.
    now: Instant,
    header: Header,
    peer: SocketAddr,
}

impl NativeServer {
    /// A worker for `table`, and the client at `peer`.
    ///
    /// # Errors
    /// The worker does not accept the client.
    pub(super) fn new(table: &Table, peer: SocketAddr) -> Result<Self> {
        let now = Instant::now();
        let config = NativeConfig {
            // A packet of the simulator.
            datagram_bytes: DATAGRAM_BYTES_ETHERNET,
            transfer_timeout: Duration::from_secs(3600),
            // Its clock does not advance, so that everything is one burst.
            send_burst_bytes: u64::MAX,
            send_client_bytes: u64::MAX,
            ..NativeConfig::new(NOBODY)
        };
        // No one else can send to this server, so the entropy need not be secret.
        let setting = NativeSetting {
            queues: 1,
            base_port: NOBODY.port(),
            value_bytes_max: VALUE_BYTES_MAX,
            evicts_from_flash: false,
            holds_replies: false,
            direction_seed: None,
            entropy: std::array::from_fn(|at| hash_key(&[at as u8], 1).0 as u8),
            start: now,
        };
        let shared = NativeShared::new(Arc::clone(&table.engine), Clock::new(), &config, &setting);
        let worker = NativeWorker::standalone(Arc::new(shared), WorkerId(0));
        // Requests are served where they arrive: the cost of a ring is measured on its own.
        let placement = SizeLimit { class_max: SizeClass::of(VALUE_BYTES_MAX), large_worker: None };
        let mut server = Self { worker, placement, now, header: Header::of(Kind::Request), peer };
        server.say_hello()?;
        Ok(server)
    }

    fn say_hello(&mut self) -> Result<()> {
        let hello = Hello {
            nonce: 1,
            datagram_bytes_max: DATAGRAM_BYTES_ETHERNET as u16,
            window: 32,
            version_max: VERSION.into(),
        };
        let (mut datagram, mut sink) = (Vec::new(), Sink::swallowing());
        hello.compose(&mut datagram, Header::of(Kind::Hello), None);
        self.serve(0, [&datagram], datagram.len(), &mut sink);
        let header = Header::parse(&sink.composed).context("a Welcome")?;
        let welcome = Welcome::parse(header.body(&sink.composed)).context("a Welcome")?;
        self.header.cookie = welcome.cookie;
        self.header.geometry = welcome.geometry;
        Ok(())
    }

    /// The header of this client's requests.
    pub(super) fn header(&self) -> Header {
        self.header
    }

    /// Lets the worker serve messages of segments of `segment_bytes` that arrived at the socket of `queue`.
    pub(super) fn serve<'m>(
        &mut self,
        queue: usize,
        messages: impl IntoIterator<Item = &'m Vec<u8>>,
        segment_bytes: usize,
        egress: &mut impl Egress,
    ) {
        let peer = self.peer;
        self.serve_from(
            queue,
            messages.into_iter().map(|bytes| (peer, bytes.as_slice(), segment_bytes)),
            egress,
        );
    }

    /// As [`NativeServer::serve`], for messages as a socket returns them.
    pub(super) fn serve_from<'m>(
        &mut self,
        queue: usize,
        messages: impl IntoIterator<Item = (SocketAddr, &'m [u8], usize)>,
        egress: &mut impl Egress,
    ) {
        let mut hand_off = |_: WorkerId, job: Job| Err(job);
        let (now, placement) = (self.now, &mut self.placement);
        self.worker.on_messages(queue, messages, Turn { now, placement, egress, hand_off: &mut hand_off });
        while self.worker.is_copying() {
            let placement = &mut self.placement;
            self.worker.advance(SLICE_BYTES, Turn { now, placement, egress, hand_off: &mut hand_off });
        }
    }

    /// Serves one message as [`NativeServer::serve`] does, and returns the time it takes.
    pub(super) fn time(
        &mut self,
        queue: usize,
        message: &Vec<u8>,
        segment_bytes: usize,
        sink: &mut Sink,
    ) -> Duration {
        sink.composed.clear();
        let start = Instant::now();
        self.serve(queue, [message], segment_bytes, sink);
        start.elapsed()
    }

    /// Large stores that are still arriving.
    pub(super) fn transfers_open(&self) -> usize {
        self.worker.transfers_open()
    }
}

/// Status and value of the first reply in `sink`.
pub(super) fn first_reply(sink: &Sink) -> Result<(Status, &[u8])> {
    let header = Header::parse(&sink.composed).context("a reply")?;
    match replies(&sink.composed, &header).next() {
        Some(reply) => reply.map(|record| (record.status, record.value)).context("a reply"),
        None => bail!("an answer without replies"),
    }
}

/// A PUT of `value`, or of a value in fragments that has so many bytes.
pub(super) fn put<'a>(table: &Table, key: &'a [u8], value: Result<&'a [u8], u32>) -> Operation<'a> {
    let get = Operation::get(1, table.engine.hash(key), key);
    let (flags, value_bytes) = match value {
        Ok(_) => (OpFlags::NONE, 0),
        Err(deferred_bytes) => (OpFlags::DEFERRED, deferred_bytes),
    };
    let detail = Detail { value_bytes, ..Detail::default() };
    Operation { opcode: Opcode::Put, flags, detail, value: value.unwrap_or_default(), ..get }
}

/// Composes a datagram of `operations`.
pub(super) fn compose<'o>(
    out: &mut Vec<u8>,
    header: Header,
    operations: impl IntoIterator<Item = Operation<'o>>,
) -> Result<()> {
    out.clear();
    let mut composer = Composer::begin(out, header, DATAGRAM_BYTES_ETHERNET);
    for operation in operations {
        ensure!(composer.push_operation(&operation), "an operation does not fit its datagram");
    }
    composer.finish();
    Ok(())
}

/// The operation of small requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// To read values of 64 bytes.
    Get,
    /// To store them.
    Put,
}

impl Asks {
    fn operation<'k>(self, table: &Table, key: &'k [u8]) -> Operation<'k> {
        match self {
            Self::Get => Operation::get(1, table.engine.hash(key), key),
            Self::Put => put(table, key, Ok(&[b'w'; SMALL_BYTES])),
        }
    }
}

/// The grouping of small requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comes {
    /// A burst of as many datagrams as the place says, one request in each.
    InBursts,
    /// A burst of as many datagrams as the place says, 32 requests in all.
    InVectors,
}

/// Bursts of small requests for random items.
pub(super) struct SmallRequests<'a> {
    name: &'static str,
    table: &'a Table,
    server: NativeServer,
    asks: Asks,
    comes: Comes,
    places: &'static [f64],
    batch: usize,
    random: Random,
    sink: Sink,
    datagrams: Vec<Vec<u8>>,
}

impl<'a> SmallRequests<'a> {
    /// Single requests, in bursts of several lengths.
    pub(super) fn single(
        (name, asks): (&'static str, Asks),
        table: &'a Table,
        scale: &Scale,
        random: Random,
    ) -> Result<Self> {
        Self::new((name, asks, Comes::InBursts), &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0], table, scale, random)
    }

    /// 32 GETs in various numbers of datagrams.
    pub(super) fn vectors(table: &'a Table, scale: &Scale, random: Random) -> Result<Self> {
        // The replies to eight GETs still fit into one datagram.
        let places = &[4.0, 8.0, 16.0, 32.0];
        Self::new(("datagrams without a kernel", Asks::Get, Comes::InVectors), places, table, scale, random)
    }

    fn new(
        (name, asks, comes): (&'static str, Asks, Comes),
        places: &'static [f64],
        table: &'a Table,
        scale: &Scale,
        random: Random,
    ) -> Result<Self> {
        let (server, sink) = (NativeServer::new(table, NOBODY)?, Sink::swallowing());
        let (batch, datagrams) = (scale.batch, Vec::new());
        Ok(Self { name, table, server, asks, comes, places, batch, random, sink, datagrams })
    }

    /// Draws so many datagrams of `operations` each.
    fn draw(&mut self, datagrams: usize, operations: usize) -> Result<()> {
        self.datagrams.resize_with(datagrams, Vec::new);
        let (table, header, asks) = (self.table, self.server.header(), self.asks);
        let mut keys = [[0; KEY_BYTES]; 32];
        for datagram in &mut self.datagrams {
            let keys = &mut keys[..operations];
            keys.fill_with(|| table::key(table::Kind::Small, self.random.below(table.small_items)));
            compose(datagram, header, keys.iter().map(|key| asks.operation(table, key)))?;
        }
        Ok(())
    }
}

impl Subject for SmallRequests<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn places(&self) -> &[f64] {
        self.places
    }

    /// Nanoseconds of a burst.
    fn sample(&mut self, place: usize) -> Result<f64> {
        let width = self.places[place] as usize;
        let (bursts, operations) = match self.comes {
            Comes::InBursts => ((self.batch / width).max(1), 1),
            Comes::InVectors => ((self.batch / 32).max(1), 32 / width),
        };
        self.draw(bursts * width, operations)?;
        let mut watch = Stopwatch::default();
        let (server, sink) = (&mut self.server, &mut self.sink);
        for group in self.datagrams.chunks(GROUP.next_multiple_of(width)) {
            // All datagrams have the same length, as keys and values do.
            let segment_bytes = group[0].len();
            watch.time(group.len() / width, || {
                for burst in group.chunks(width) {
                    sink.composed.clear();
                    server.serve(0, burst, segment_bytes, sink);
                }
            });
        }
        let (status, _) = first_reply(&self.sink)?;
        ensure!(status == Status::Ok, "a request ended with {status:?}");
        Ok(watch.typical_ns())
    }
}
