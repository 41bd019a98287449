//! A server without sockets, and a client of it.

use std::{
    collections::VecDeque,
    io::IoSlice,
    net::SocketAddr,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{Clock, KeyHash, SizeClass, limits::SLICE_BYTES};
use minos_engine::{Engine, StoreConfig, StoreMode};
use minos_net::udp::BURST_MESSAGES;
use minos_proto::native::{
    Composer, Detail, Flags, Header, Hello, Kind, OpFlags, Opcode, Operation, Reason, ReplyRecord, SealKeys,
    Status, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Welcome, replies,
};
use minos_sched::WorkerId;

use crate::{
    datagram::native::{Egress, Job, NativeSetting, NativeShared, NativeWorker, SizeLimit, Turn},
    server::config::NativeConfig,
};

pub(in crate::datagram::native) const SECRET: &str =
    "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
pub(super) const OTHER_SECRET: &str = "8:102132435465768798a9bacbdcedfe0fefcdab89674523011032547698badcfe";

pub(in crate::datagram::native) fn keys(secret: &str) -> SealKeys {
    SealKeys::of(&secret.parse().expect("a secret"))
}

/// The seed of the store's hash, which must stay secret.
pub(super) const HASH_SEED: u64 = 0x5eed_0f71_2c3d_a68b;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::datagram::native) struct Train {
    pub(super) peer: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) segment_bytes: usize,
}

impl Train {
    pub(in crate::datagram::native) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.segment_bytes)
    }
}

/// Records sent trains and checks their form.
#[derive(Default)]
pub(in crate::datagram::native) struct Wire {
    buffer: Vec<u8>,
    /// Trains in the buffer.
    queued: usize,
    pub(in crate::datagram::native) trains: Vec<Train>,
}

impl Wire {
    fn keep(&mut self, peer: SocketAddr, bytes: Vec<u8>, segment_bytes: usize) {
        let train = Train { peer, bytes, segment_bytes };
        assert!(train.bytes.len() <= TRAIN_BYTES_MAX && train.datagrams().count() <= TRAIN_SEGMENTS_MAX);
        for datagram in train.datagrams() {
            Header::parse(datagram).expect("every segment is a datagram");
        }
        self.trains.push(train);
    }
}

impl Egress for Wire {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        self.queued += 1;
        assert!(self.queued <= BURST_MESSAGES, "a port would drop it");
        let bytes = self.buffer[train].to_vec();
        self.keep(peer, bytes, segment_bytes);
    }

    fn has_room(&mut self) -> bool {
        self.queued + 2 <= BURST_MESSAGES
    }

    fn flush(&mut self) {
        self.queued = 0;
        self.buffer.clear();
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        self.flush();
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.keep(peer, bytes, segment_bytes);
    }
}

/// What a server of so many workers is told besides its configuration.
pub(super) fn setting(workers: u16, base_port: u16, direction_seed: Option<u64>) -> NativeSetting {
    NativeSetting {
        queues: workers,
        base_port,
        value_bytes_max: 1 << 20,
        evicts_from_flash: false,
        holds_replies: false,
        direction_seed,
        entropy: std::array::from_fn(|at| at as u8),
        start: Instant::now(),
    }
}

/// A server of some workers over one store of 8 MiB.
pub(super) struct Site {
    pub(super) store: Arc<Engine<StoreMode>>,
    pub(super) shared: Arc<NativeShared<StoreMode>>,
    pub(super) workers: Vec<NativeWorker<'static, StoreMode>>,
    pub(super) placement: SizeLimit,
    pub(super) now: Instant,
    pub(super) ring_capacity: usize,
    /// True if values are copied to the end before the next message arrives.
    pub(super) copies_at_once: bool,
    ring: VecDeque<(WorkerId, Job)>,
}

pub(super) fn config() -> NativeConfig {
    NativeConfig::new(([127, 0, 0, 1], 7000).into())
}

pub(super) fn sealed_config() -> NativeConfig {
    NativeConfig { secrets: vec![SECRET.parse().expect("a secret")], ..config() }
}

impl Site {
    pub(super) fn new(config: &NativeConfig, workers: u16) -> Self {
        let store_config =
            StoreConfig { value_bytes_max: 1 << 20, hash_seed: HASH_SEED, ..StoreConfig::new(8 << 20) };
        let store = Arc::new(Engine::create(&store_config).expect("that much memory can be had"));
        let setting = setting(workers, 7000, None);
        let shared = NativeShared::new(Arc::clone(&store), Clock::new(), config, &setting);
        Self::over(store, Arc::new(shared), setting.start, |worker| worker)
    }

    /// A server of these parts, whose workers `finish` completes.
    pub(super) fn over(
        store: Arc<Engine<StoreMode>>,
        shared: Arc<NativeShared<StoreMode>>,
        now: Instant,
        finish: impl Fn(NativeWorker<'static, StoreMode>) -> NativeWorker<'static, StoreMode>,
    ) -> Self {
        let worker = |id| finish(NativeWorker::standalone(Arc::clone(&shared), WorkerId(id as u16)));
        Self {
            workers: (0..shared.queues).map(worker).collect(),
            store,
            shared,
            placement: SizeLimit { class_max: SizeClass::MAX, large_worker: None },
            now,
            ring_capacity: 64,
            copies_at_once: true,
            ring: VecDeque::new(),
        }
    }

    /// A server without a secret, and a client that has said hello and has no session.
    pub(super) fn with_client(workers: u16) -> (Self, Client) {
        let mut site = Self::new(&config(), workers);
        let client = Client::of(&mut site);
        (site, client)
    }

    /// A server, and a client with a session.
    pub(super) fn with_session(config: &NativeConfig, workers: u16) -> (Self, Client) {
        let mut site = Self::new(config, workers);
        let client = Client::with_session(&mut site);
        (site, client)
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Delivers these messages to the socket of `queue`, polled by the worker of that number, and returns the
    /// trains sent.
    pub(super) fn deliver(&mut self, queue: usize, messages: &[(SocketAddr, Vec<u8>, usize)]) -> Vec<Train> {
        let mut wire = Wire::default();
        let messages =
            messages.iter().map(|(peer, bytes, segment_bytes)| (*peer, &bytes[..], *segment_bytes));
        let worker = queue % self.workers.len();
        let (ring, capacity) = (&mut self.ring, self.ring_capacity);
        let mut hand_off = |to, job| push(ring, capacity, to, job);
        let (now, placement) = (self.now, &mut self.placement);
        let turn = Turn { now, placement, egress: &mut wire, hand_off: &mut hand_off };
        self.workers[worker].on_messages(queue, messages, turn);
        self.work_off(&mut wire);
        if self.copies_at_once {
            wire.trains.extend(self.copy_slices(usize::MAX));
        }
        wire.trains
    }

    /// Lets each worker copy up to `slices_max` slices of values that have arrived, and returns the trains
    /// sent.
    pub(super) fn copy_slices(&mut self, slices_max: usize) -> Vec<Train> {
        let mut wire = Wire::default();
        let (now, placement) = (self.now, &mut self.placement);
        for worker in &mut self.workers {
            let mut slices = 0;
            while worker.is_copying() && slices < slices_max {
                let mut hand_off = |_, job| Err(job);
                let turn =
                    Turn { now, placement: &mut *placement, egress: &mut wire, hand_off: &mut hand_off };
                worker.advance(SLICE_BYTES, turn);
                slices += 1;
            }
        }
        wire.trains
    }

    fn work_off(&mut self, wire: &mut Wire) {
        while let Some((worker, job)) = self.ring.pop_front() {
            let (ring, capacity) = (&mut self.ring, self.ring_capacity);
            let mut hand_off = |to, job| push(ring, capacity, to, job);
            let (now, placement) = (self.now, &mut self.placement);
            self.workers[worker.index()]
                .on_job(job, Turn { now, placement, egress: wire, hand_off: &mut hand_off });
        }
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let found = self.shared.totals().into_iter().find(|(counter, _)| *counter == name);
        found.expect("there is such a counter").1
    }
}

fn push(ring: &mut VecDeque<(WorkerId, Job)>, capacity: usize, to: WorkerId, job: Job) -> Result<(), Job> {
    if ring.len() >= capacity {
        return Err(job);
    }
    ring.push_back((to, job));
    Ok(())
}

/// A reply that borrows from nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) opcode: Opcode,
    pub(super) status: Status,
    pub(super) request: u32,
    pub(super) item_flags: u32,
    pub(super) cas: u64,
    pub(super) value: Vec<u8>,
}

impl From<ReplyRecord<'_>> for Answer {
    fn from(record: ReplyRecord<'_>) -> Self {
        let ReplyRecord { opcode, status, request, item_flags, cas, value } = record;
        Self { opcode, status, request, item_flags, cas, value: value.to_vec() }
    }
}

pub(super) struct Client {
    pub(super) peer: SocketAddr,
    /// The header of its requests; stamp and sequence count up.
    pub(super) header: Header,
    pub(super) seal: Option<SealKeys>,
    pub(super) welcome: Option<Welcome>,
}

impl Client {
    /// A client without cookie or session.
    pub(super) fn stranger() -> Self {
        let peer = ([127, 0, 0, 1], 40_000).into();
        Self { peer, header: Header::of(Kind::Request), seal: None, welcome: None }
    }

    /// A client that has said hello and has no session.
    pub(super) fn of(site: &mut Site) -> Self {
        let mut client = Self::stranger();
        client.say_hello(site, Flags::NONE).expect("a hello is answered");
        client
    }

    /// A client with a session; sealed if the server is.
    pub(super) fn with_session(site: &mut Site) -> Self {
        let mut client = Self::stranger();
        client.seal = site.shared.seals.is_some().then(|| keys(SECRET));
        client.say_hello(site, Flags::NONE).expect("a hello is answered");
        client.say_hello(site, Flags::OPEN).expect("a hello is answered");
        assert_ne!(client.header.session, 0);
        client
    }

    pub(super) fn hello(&mut self, flags: Flags) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header { kind: Kind::Hello, flags: flags | self.marks(), ..self.header };
        let hello = Hello { nonce: 5, datagram_bytes_max: 1400, window: 32, version_max: 2 };
        hello.compose(&mut out, header, self.seal.as_ref().map(|keys| &keys.to_server));
        out
    }

    pub(super) fn say_hello(&mut self, site: &mut Site, flags: Flags) -> Result<Welcome, Reason> {
        let hello = self.hello(flags);
        let trains = site.deliver(0, &[self.message(hello)]);
        let datagram = &trains[0].bytes;
        let header = Header::parse(datagram).expect("an answer");
        if header.kind == Kind::Refusal {
            return Err(Reason::from_count(header.count));
        }
        let welcome = Welcome::parse(header.body(datagram)).expect("a welcome");
        assert_eq!(welcome.nonce, 5);
        self.header.cookie = welcome.cookie;
        self.header.geometry = welcome.geometry;
        self.header.session = welcome.session;
        self.welcome = Some(welcome);
        Ok(welcome)
    }

    pub(super) fn marks(&self) -> Flags {
        if self.seal.is_some() { Flags::SEALED } else { Flags::NONE }
    }

    pub(super) fn message(&self, datagram: Vec<u8>) -> (SocketAddr, Vec<u8>, usize) {
        let segment_bytes = datagram.len();
        (self.peer, datagram, segment_bytes)
    }

    pub(super) fn request(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.header.sequence += 1;
        self.header.stamp += 1000;
        let mut out = Vec::new();
        let header = Header { flags: self.marks(), ..self.header };
        let mut composer = Composer::begin(&mut out, header, 60_000);
        for operation in operations {
            assert!(composer.push_operation(operation));
        }
        composer.finish_with(self.seal.as_ref().map(|keys| &keys.to_server));
        out
    }

    /// The answers to a request with these operations, sent to its queue.
    pub(super) fn ask(&mut self, site: &mut Site, operations: &[Operation<'_>]) -> Vec<Answer> {
        let queue = usize::from(self.header.queue);
        let trains = self.send(site, queue, operations);
        self.read(&trains)
    }

    /// The trains that answer a request with these operations, sent to the socket of `queue`.
    pub(super) fn send(&mut self, site: &mut Site, queue: usize, operations: &[Operation<'_>]) -> Vec<Train> {
        let request = self.request(operations);
        site.deliver(queue, &[self.message(request)])
    }

    pub(super) fn ask_one(&mut self, site: &mut Site, operation: Operation<'_>) -> Answer {
        let mut answers = self.ask(site, &[operation]);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    /// The records of replies to the last request.
    pub(super) fn read(&self, trains: &[Train]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for datagram in trains.iter().flat_map(Train::datagrams) {
            let header = Header::parse(datagram).expect("an answer");
            assert_eq!(header.kind, Kind::Reply, "{header:?}");
            assert_eq!((header.stamp, header.sequence), (self.header.stamp, self.header.sequence));
            assert!(self.seal.as_ref().is_none_or(|keys| keys.to_client.verify(datagram)));
            assert!(usize::from(header.length) <= 1400);
            answers.extend(replies(datagram, &header).map(|record| Answer::from(record.expect("a record"))));
        }
        answers
    }

    /// The reason in the only answer to a refused datagram; `None` without an answer.
    pub(super) fn refusal(&self, site: &mut Site, datagram: Vec<u8>) -> Option<Reason> {
        let bytes = datagram.len();
        let trains = site.deliver(0, &[self.message(datagram)]);
        let train = trains.first()?;
        assert!(trains.len() == 1 && train.bytes.len() <= bytes);
        let header = Header::parse(&train.bytes).expect("an answer");
        assert_eq!(header.kind, Kind::Refusal);
        Some(Reason::from_count(header.count))
    }

    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        self.welcome.map_or(KeyHash(0), |welcome| welcome.direction(key))
    }

    pub(super) fn get<'a>(&self, key: &'a [u8]) -> Operation<'a> {
        Operation::get(1, self.hash(key), key)
    }

    /// An operation of another kind, with a value.
    pub(super) fn operation<'a>(&self, opcode: Opcode, key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        let detail = Detail { value_bytes: value.len() as u32, ..Detail::default() };
        Operation { opcode, flags: OpFlags::NONE, request: 2, hash: self.hash(key), key, detail, value }
    }

    pub(super) fn put<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        self.operation(Opcode::Put, key, value)
    }
}
