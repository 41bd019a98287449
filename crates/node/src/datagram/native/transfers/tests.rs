//! Large transfers without sockets: sent datagrams are recorded, and time is simulated.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{Clock, Exptime, KeyHash, SizeClass, StoreKind};
use minos_engine::{Engine, Get, StoreConfig, StoreMode};
use minos_proto::native::{
    AckHead, AckState, DataHead, Detail, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, FragmentRange, Grant,
    Header, Kind, Malformed, OpFlags, Opcode, Operation, RANGES_MAX, Secret, Status, replies,
};

use minos_sched::WorkerId;
use siphasher::sip::SipHasher24;

use super::*;
use crate::watch::Probe;
use crate::{
    datagram::native::{
        AnswerTo, Seals, Sessions, SizeLimit,
        sessions::SessionsConfig,
        tests::site::{SECRET, Train, Wire, keys},
        worker::Nobody,
    },
    ops::{Context, StoreOperation, counters::Counters},
};

const WORKER: WorkerId = WorkerId(3);

const TIMEOUT: Duration = Duration::from_secs(5);

/// A worker's transfers over a store, and a client's view of what they send.
struct Bench {
    store: Arc<Engine<StoreMode>>,
    clock: Clock,
    counters: Counters,
    sessions: Sessions,
    bounds: Arc<TransferBounds>,
    transfers: Transfers<StoreMode>,
    now: Instant,
    is_draining: bool,
    wire: Wire,
}

/// A reply as a client keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: Status,
    request: u32,
    cas: u64,
    value: Vec<u8>,
}

impl Answer {
    fn grant(&self) -> Grant {
        assert!(matches!(self.status, Status::Granted | Status::Large), "{self:?}");
        Grant::parse(&self.value).unwrap()
    }
}

fn peer(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn value_of(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed) as u8).collect()
}

impl Bench {
    fn new() -> Self {
        Self::with(1 << 20, false)
    }

    /// Transfers, and the address of a client without a session.
    fn with_peer() -> (Self, AnswerTo) {
        let bench = Self::new();
        let to = bench.to(1, 0);
        (bench, to)
    }

    fn with(transfer_memory: u64, is_sealed: bool) -> Self {
        let limits =
            TransferLimits { bytes_max: transfer_memory, source_bytes_max: transfer_memory, source_max: 4 };
        Self::with_limits(limits, is_sealed)
    }

    fn with_limits(limits: TransferLimits, is_sealed: bool) -> Self {
        let bounds = Arc::new(TransferBounds::new(limits));
        let secrets: Vec<Secret> = is_sealed.then(|| SECRET.parse().unwrap()).into_iter().collect();
        let config = TransfersConfig {
            queue: 7,
            window: 32,
            timeout: TIMEOUT,
            seals: Seals::of(&secrets).map(Arc::new),
            budget: BudgetBounds { burst_bytes: 150_000, client_bytes: 100_000 },
            names: SipHasher24::new_with_key(&[4; 16]),
        };
        Self {
            store: Arc::new(
                Engine::create(&StoreConfig { value_bytes_max: 4 << 20, ..StoreConfig::new(64 << 20) })
                    .unwrap(),
            ),
            clock: Clock::new(),
            counters: Counters::default(),
            sessions: Sessions::new(SessionsConfig { sessions_max: 1024, per_address_max: 64 }, &[3; 16]),
            transfers: Transfers::new(config, Arc::clone(&bounds), Arc::default()),
            bounds,
            now: Instant::now(),
            is_draining: false,
            wire: Wire::default(),
        }
    }

    fn to(&self, port: u16, session: u64) -> AnswerTo {
        let (flags, secret) =
            if self.transfers.config.seals.is_some() { (Flags::SEALED, 7) } else { (Flags::NONE, 0) };
        let header = Header { session, flags, secret, ..Header::of(Kind::Reply) };
        AnswerTo { peer: peer(port), header, datagram_bytes_max: 1448, number: 0 }
    }

    /// Calls the transfers with a worker's environment.
    fn fetch(&mut self, to: &AnswerTo, fetch: &Operation<'_>) {
        let sent =
            self.call(|transfers, around, sent| transfers.fetch(around.cx, to, fetch, around.now, sent));
        assert_eq!(sent, Ok(()), "nothing is on flash");
    }

    fn call<R>(
        &mut self,
        run: impl FnOnce(&mut Transfers<StoreMode>, &Around<'_, '_, StoreMode, SizeLimit>, &mut Wire) -> R,
    ) -> R {
        let mut placement = SizeLimit { class_max: SizeClass::of(1 << 30), large_worker: None };
        let probe = Probe::off();
        let cx = Context {
            store: &self.store,
            clock: &self.clock,
            now: self.clock.seconds(),
            counters: &self.counters,
            placement: &mut placement,
            admin: &Nobody,
            prefixes: None,
            fetched: None,
            rack: None,
            probe: &probe,
            holes: crate::rack::Holes::default(),
        };
        let around = Around {
            cx: &cx,
            sessions: &self.sessions,
            worker: WORKER,
            now: self.now,
            is_draining: self.is_draining,
            holds_replies: false,
        };
        run(&mut self.transfers, &around, &mut self.wire)
    }

    /// Requests a store and returns the answer.
    fn begin(&mut self, to: &AnswerTo, asked: &Operation<'_>) -> Answer {
        self.request(to, asked, None);
        self.answer()
    }

    fn request(&mut self, to: &AnswerTo, asked: &Operation<'_>, permit: Option<Permit>) {
        let kind = match asked.opcode {
            Opcode::Add => StoreKind::Add,
            Opcode::Append => StoreKind::Append,
            Opcode::Compare => StoreKind::Compare,
            _ => StoreKind::Set,
        };
        let store = StoreOperation {
            kind,
            flags: asked.detail.item_flags,
            life: Exptime(0).into(),
            unique: asked.detail.operand,
            invalidate: false,
            key_is_base64: false,
            takes_old: false,
        };
        let begun =
            self.call(|transfers, around, sent| transfers.begin(around, to, (asked, store), permit, sent));
        begun.expect("no other worker begins stores");
    }

    /// Begins the stores whose turn has come, as a burst does at its end.
    fn admit_waiting(&mut self) {
        while let Some((Waiter { handed, .. }, permit)) = self.bounds.admit_next(self.now) {
            self.request(&handed.to, &handed.operation(), Some(permit));
        }
    }

    fn asks<'k>(&self, opcode: Opcode, key: &'k [u8], value_bytes: usize) -> Operation<'k> {
        Operation {
            opcode,
            flags: OpFlags::DEFERRED,
            detail: Detail { value_bytes: value_bytes as u32, ..Detail::default() },
            ..Operation::get(11, self.store.hash(key), key)
        }
    }

    /// Sends fragment `index` of `value`, without its bytes if it only asks.
    fn fragment(&mut self, to: &AnswerTo, grant: &Grant, index: u32, value: &[u8], flags: Flags) {
        let range = grant.fragments().unwrap().range(index).filter(|_| !value.is_empty());
        let mut body = vec![0; FRAGMENT_HEAD_BYTES];
        FragmentHead { transfer: grant.transfer, index }.write(body.first_chunk_mut().unwrap());
        body.extend_from_slice(&value[range.unwrap_or_default()]);
        let taken = self.call(|transfers, around, sent| transfers.fragment(around, to, flags, &body, sent));
        assert_eq!(taken, Ok(()));
        while self.transfers.is_copying() {
            self.call(|transfers, around, sent| transfers.advance(around, usize::MAX, sent));
        }
    }

    /// The datagrams that were sent since the last call, one by one.
    fn sent(&mut self) -> Vec<(Header, Vec<u8>)> {
        let trains = std::mem::take(&mut self.wire.trains);
        let datagrams = trains.iter().flat_map(Train::datagrams);
        datagrams.map(|datagram| (Header::parse(datagram).unwrap(), datagram.to_vec())).collect()
    }

    /// Sends these fragments of `value`.
    fn fragments(
        &mut self,
        to: &AnswerTo,
        grant: &Grant,
        indexes: impl IntoIterator<Item = u32>,
        value: &[u8],
    ) {
        indexes.into_iter().for_each(|index| self.fragment(to, grant, index, value, Flags::NONE));
    }

    /// The one reply that was sent.
    fn answer(&mut self) -> Answer {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let (header, datagram) = sent.remove(0);
        answer_in(&header, &datagram)
    }

    /// The acknowledgement that was sent, and the reply behind it if there is one.
    fn acknowledgement(&mut self) -> (AckHead, Vec<(u32, u32)>, Option<Answer>) {
        let sent = self.sent();
        let (header, datagram) = &sent[0];
        assert_eq!(header.kind, Kind::Ack);
        let (head, missing) = AckHead::parse(header.body(datagram)).unwrap();
        let missing = missing.map(|range| (range.first, range.count)).collect();
        (head, missing, sent.get(1).map(|(header, datagram)| answer_in(header, datagram)))
    }

    /// Stores `value` by fragments and returns the outcome.
    fn put(&mut self, to: &AnswerTo, asked: &Operation<'_>, value: &[u8]) -> Answer {
        let grant = self.begin(to, asked).grant();
        self.fragments(to, &grant, (0..count(&grant)).rev(), value);
        self.acknowledgement().2.unwrap()
    }

    fn stored(&self, key: &[u8]) -> Option<Vec<u8>> {
        let get = Get { hash: self.store.hash(key), key };
        let item = self.store.pin(get.hash, get.key, self.clock.seconds())?;
        Some(item.value().to_vec())
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.transfers.on_tick(self.now);
        self.admit_waiting();
    }

    fn used_bytes(&self) -> u64 {
        self.store.stats().used_bytes
    }
}

fn count(grant: &Grant) -> u32 {
    grant.fragments().unwrap().count()
}

fn answer_in(header: &Header, datagram: &[u8]) -> Answer {
    assert_eq!((header.kind, header.count), (Kind::Reply, 1));
    let record = replies(datagram, header).next().unwrap().unwrap();
    let value = record.value.to_vec();
    Answer { status: record.status, request: record.request, cas: record.cas, value }
}

#[test]
fn a_value_arrives_in_any_order_and_more_than_once() {
    let (mut bench, to) = Bench::with_peer();
    let value = value_of(300_001, 1);
    let asked = bench.asks(Opcode::Put, b"key", value.len());
    let grant = bench.begin(&to, &asked).grant();
    assert_eq!((grant.queue, grant.window, grant.value_bytes), (7, 32, 300_001));
    let count = count(&grant);
    let order = (0..count).filter(|i| i % 2 == 0).chain((0..count).rev());
    bench.fragments(&to, &grant, order, &value);
    let (head, missing, answer) = bench.acknowledgement();
    assert_eq!((head.state, head.received, missing.len()), (AckState::Done, count, 0));
    let answer = answer.unwrap();
    assert_eq!((answer.status, answer.request), (Status::Ok, 11));
    assert!(answer.cas > 0);
    assert!(bench.stored(b"key").unwrap() == value);
    assert_eq!((bench.transfers.open, bench.bounds.bytes()), (0, 0));
}

#[test]
fn an_acknowledgement_names_what_is_missing_and_the_outcome_is_told_again() {
    let (mut bench, to) = Bench::with_peer();
    let value = value_of(10_000, 1);
    let asked = bench.asks(Opcode::Put, b"key", value.len());
    let grant = bench.begin(&to, &asked).grant();
    assert_eq!(count(&grant), 8);
    bench.fragments(&to, &grant, [0, 1, 4, 5, 7], &value);
    assert!(bench.sent().is_empty(), "nobody asked");
    bench.fragment(&to, &grant, 7, &value, Flags::ACK_WANTED);
    let (head, missing, answer) = bench.acknowledgement();
    assert_eq!((head.state, head.received, answer), (AckState::Open, 5, None));
    assert_eq!(missing, [(2, 2), (6, 1)]);
    bench.fragments(&to, &grant, [2, 3, 6], &value);
    let first = bench.acknowledgement();
    bench.fragment(&to, &grant, 3, &value, Flags::NONE);
    assert!(bench.sent().is_empty());
    bench.fragment(&to, &grant, 0, &[], Flags::ACK_WANTED);
    assert_eq!(bench.acknowledgement(), first);
    bench.pass(TIMEOUT + Duration::from_millis(1));
    bench.fragment(&to, &grant, 0, &[], Flags::ACK_WANTED);
    let answer = bench.answer();
    assert_eq!((answer.status, answer.cas), (Status::Gone, grant.transfer));
}

#[test]
fn a_large_value_is_fetched_window_by_window() {
    let keys = keys(SECRET);
    for is_sealed in [false, true] {
        let mut bench = Bench::with(1 << 20, is_sealed);
        let to = bench.to(1, 0);
        let value = value_of(200_000, 3);
        let asked = bench.asks(Opcode::Put, b"key", value.len());
        let cas = bench.put(&to, &asked, &value).cas;
        let hash = asked.hash;
        bench.call(|transfers, around, sent| {
            let item = around.cx.store.pin(hash, b"key", around.cx.now).unwrap();
            transfers.send_first(&to, (Opcode::Get, 5), &item, around.now, sent);
        });
        let mut sent = bench.sent();
        let (header, datagram) = sent.remove(0);
        let answer = answer_in(&header, &datagram);
        let (grant, fragments) = (answer.grant(), answer.grant().fragments().unwrap());
        assert_eq!((answer.cas, answer.request, sent.len()), (cas, 5, 32));
        let mut received = vec![None; fragments.count() as usize];
        loop {
            for (at, (header, datagram)) in sent.iter().enumerate() {
                assert_eq!(keys.to_client.verify(datagram), is_sealed);
                let (head, bytes) = DataHead::parse(header.body(datagram)).unwrap();
                assert_eq!((head.cas, head.value_bytes), (cas, 200_000));
                // One in five is lost.
                if at % 5 != 2 {
                    received[head.index as usize] = Some(bytes.to_vec());
                }
            }
            let mut ranges = Vec::new();
            let missing = (0..fragments.count()).filter(|&index| received[index as usize].is_none());
            push_all(&mut ranges, missing.take(RANGES_MAX));
            if ranges.is_empty() {
                break;
            }
            let fetch = fetch(hash, cas, &ranges);
            bench.pass(Duration::from_nanos(1));
            bench.fetch(&to, &fetch);
            sent = bench.sent();
            assert!(!sent.is_empty() && sent.len() <= usize::from(grant.window));
        }
        assert!(received.into_iter().flatten().flatten().eq(value));
    }
}

/// A request for `ranges` of the value under `key` with this CAS unique.
fn fetch(hash: KeyHash, cas: u64, ranges: &[u8]) -> Operation<'_> {
    let detail = Detail { operand: cas, ..Detail::default() };
    Operation { opcode: Opcode::Fetch, detail, value: ranges, ..Operation::get(5, hash, b"key") }
}

fn push_all(out: &mut Vec<u8>, indexes: impl Iterator<Item = u32>) {
    minos_proto::native::push_ranges(out, indexes.map(|first| FragmentRange { first, count: 1 }));
}

#[test]
fn a_window_of_another_value_is_not_sent() {
    let (mut bench, to) = Bench::with_peer();
    let asked = bench.asks(Opcode::Put, b"key", 50_000);
    let old = bench.put(&to, &asked, &value_of(50_000, 1)).cas;
    let new = bench.put(&to, &asked, &value_of(50_000, 2)).cas;
    for (operand, expected) in [(old, 0), (new, 1), (new + 1, 0)] {
        let mut ranges = Vec::new();
        push_all(&mut ranges, 3..4);
        bench.fetch(&to, &fetch(asked.hash, operand, &ranges));
        let sent = bench.sent();
        let data = sent.iter().filter(|(header, _)| header.kind == Kind::Data).count();
        assert_eq!((sent.len(), data), (1, expected), "{operand}");
    }
}

#[test]
fn silence_gives_the_memory_back() {
    let (mut bench, to) = Bench::with_peer();
    let before = bench.used_bytes();
    let asked = bench.asks(Opcode::Put, b"key", 500_000);
    let grant = bench.begin(&to, &asked).grant();
    assert!(bench.used_bytes() >= before + 500_000);
    let value = value_of(500_000, 1);
    for index in 0..10 {
        bench.pass(TIMEOUT / 2);
        let window = u32::from(grant.window);
        bench.fragments(&to, &grant, index * window..(index + 1) * window, &value);
    }
    assert_eq!(bench.transfers.open, 1);
    bench.pass(TIMEOUT + Duration::from_millis(1));
    assert_eq!((bench.transfers.open, bench.bounds.bytes(), bench.used_bytes()), (0, 0, before));
    bench.fragment(&to, &grant, 10, &value, Flags::ACK_WANTED);
    assert_eq!(bench.acknowledgement().2.unwrap().status, Status::TimedOut);
    assert_eq!(bench.stored(b"key"), None);
}

#[test]
fn few_fragments_or_none_do_not_keep_the_memory() {
    for has_bytes in [false, true] {
        let (mut bench, to) = Bench::with_peer();
        let value = value_of(500_000, 1);
        let asked = bench.asks(Opcode::Put, b"key", value.len());
        let grant = bench.begin(&to, &asked).grant();
        for index in 0..6 {
            let bytes = if has_bytes { &value[..] } else { &[] };
            bench.fragment(&to, &grant, index, bytes, Flags::NONE);
            bench.pass(TIMEOUT / 4);
        }
        assert_eq!((bench.transfers.open, bench.bounds.bytes()), (0, 0), "with bytes: {has_bytes}");
    }
}

#[test]
fn an_address_leaves_memory_to_others() {
    let limits = TransferLimits { bytes_max: 1 << 20, source_bytes_max: 1 << 18, source_max: 4 };
    let mut bench = Bench::with_limits(limits, false);
    let greedy = bench.to(1, 0);
    let other = AnswerTo { peer: ([10, 0, 0, 2], 1).into(), ..greedy };
    let mut statuses = Vec::new();
    for (to, request) in [(&greedy, 1), (&greedy, 2), (&greedy, 3), (&other, 1)] {
        let asked = Operation { request, ..bench.asks(Opcode::Put, b"key", 100_000) };
        statuses.push(bench.begin(to, &asked).status);
    }
    assert_eq!(statuses, [Status::Granted, Status::Granted, Status::Busy, Status::Granted]);
}

/// Sends the answer to a GET of `key` from `to`; true if the first window came with it.
fn first_window(bench: &mut Bench, to: &AnswerTo, key: &[u8]) -> bool {
    let hash = bench.store.hash(key);
    bench.call(|transfers, around, sent| {
        let item = around.cx.store.pin(hash, key, around.cx.now).unwrap();
        transfers.send_first(to, (Opcode::Get, 5), &item, around.now, sent);
    });
    let sent = bench.sent();
    let grant = answer_in(&sent[0].0, &sent[0].1).grant();
    assert_eq!(grant.first_follows, sent.len() > 1);
    grant.first_follows
}

#[test]
fn one_client_does_not_fill_a_burst() {
    let (mut bench, to) = Bench::with_peer();
    let value = value_of(200_000, 3);
    let asked = bench.asks(Opcode::Put, b"key", value.len());
    let cas = bench.put(&to, &asked, &value).cas;
    let windows: Vec<bool> = (0..250).map(|_| first_window(&mut bench, &to, b"key")).collect();
    let window_bytes = 32 * 1368;
    assert_eq!(windows.iter().filter(|follows| **follows).count(), 100_000 / window_bytes);
    let other = AnswerTo { peer: ([10, 0, 0, 2], 1).into(), ..to };
    assert!(first_window(&mut bench, &other, b"key"));
    assert!(!first_window(&mut bench, &other, b"key"), "the burst is full");
    assert_eq!(bench.transfers.counters.windows_deferred.value(), 249);
    // A requested window must wait as well, and its refusal says so.
    let mut ranges = Vec::new();
    push_all(&mut ranges, 0..32);
    let fetch = fetch(asked.hash, cas, &ranges);
    let ask = |bench: &mut Bench| {
        bench.fetch(&to, &fetch);
        bench.sent()
    };
    let sent = ask(&mut bench);
    assert_eq!((sent.len(), answer_in(&sent[0].0, &sent[0].1).status), (1, Status::Busy));
    bench.pass(Duration::from_nanos(1));
    assert_eq!(ask(&mut bench).len(), 32);
}

#[test]
fn bounds_are_kept_and_said() {
    let (mut bench, to) = Bench::with_peer();
    let status = |bench: &mut Bench, to: &AnswerTo, request: u32, bytes: usize| {
        let asked = Operation { request, ..bench.asks(Opcode::Put, b"key", bytes) };
        bench.begin(to, &asked).status
    };
    assert_eq!(status(&mut bench, &to, 1, 5 << 20), Status::TooLarge);
    assert_eq!(status(&mut bench, &to, 1, 0), Status::BadRequest);
    assert_eq!(status(&mut bench, &to, 1, 600_000), Status::Granted);
    let [greedy, other] = [2, 3].map(|host| AnswerTo { peer: ([10, 0, 0, host], 1).into(), ..to });
    assert_eq!(status(&mut bench, &greedy, 2, 600_000), Status::Busy);
    for request in 3..6 {
        assert_eq!(status(&mut bench, &to, request, 10_000), Status::Granted);
    }
    let other_port = bench.to(2, 0);
    assert_eq!(status(&mut bench, &other_port, 6, 10_000), Status::Busy, "a source is an address");
    assert_eq!(status(&mut bench, &other, 6, 10_000), Status::Granted);
    bench.is_draining = true;
    assert_eq!(status(&mut bench, &other, 7, 10_000), Status::Busy);
}

#[test]
fn a_full_store_says_so() {
    let mut bench = Bench::with(1 << 30, false);
    let to = bench.to(1, 0);
    let value = value_of(4 << 20, 1);
    let statuses: Vec<_> = (0..20)
        .map(|number| {
            let key = format!("key-{number}");
            let asked = bench.asks(Opcode::Put, key.as_bytes(), value.len());
            match bench.begin(&to, &asked) {
                answer if answer.status == Status::Granted => {
                    let grant = answer.grant();
                    bench.fragments(&to, &grant, 0..count(&grant), &value);
                    bench.acknowledgement().2.unwrap().status
                }
                answer => answer.status,
            }
        })
        .collect();
    assert!(statuses.contains(&Status::Ok) && statuses.ends_with(&[Status::NoMemory]), "{statuses:?}");
    assert_eq!(bench.bounds.bytes(), 0);
}

#[test]
fn a_request_that_comes_again_has_the_same_transfer_until_something_arrived() {
    let (mut bench, to) = Bench::with_peer();
    let asked = bench.asks(Opcode::Put, b"key", 10_000);
    let first = bench.begin(&to, &asked).grant();
    assert_eq!(bench.begin(&to, &asked).grant(), first);
    let longer = bench.asks(Opcode::Put, b"key", 10_001);
    assert_ne!(bench.begin(&to, &longer).grant().transfer, first.transfer);
    let elsewhere = bench.to(2, 0);
    assert_ne!(bench.begin(&elsewhere, &asked).grant().transfer, first.transfer);
    // Fragments of another client at this address must not get into this one's value.
    bench.fragment(&to, &first, 0, &value_of(10_000, 1), Flags::NONE);
    assert_ne!(bench.begin(&to, &asked).grant().transfer, first.transfer);
}

/// Before the fix, it began a store that rested until its time-out, and held its memory and a place of its address.
#[test]
fn a_late_copy_of_a_request_begins_nothing() {
    let (mut bench, to) = Bench::with_peer();
    let at = |sequence| AnswerTo { header: Header { sequence, ..to.header }, ..to };
    let value = value_of(10_000, 1);
    let asked = bench.asks(Opcode::Put, b"key", value.len());
    let grant = bench.begin(&at(5), &asked).grant();
    assert_eq!(bench.begin(&at(4), &asked).grant(), grant, "nothing has arrived yet");
    bench.fragment(&at(7), &grant, 0, &value, Flags::NONE);
    bench.request(&at(6), &asked, None);
    assert_eq!((bench.transfers.open, bench.sent().len()), (1, 0));
    bench.fragments(&at(8), &grant, 1..count(&grant), &value);
    assert_eq!(bench.acknowledgement().2.unwrap().status, Status::Ok);
    bench.request(&at(6), &asked, None);
    assert_eq!((bench.transfers.open, bench.sent().len()), (0, 0));
    // A client that begins anew under the same number has sent nothing of this value.
    assert_ne!(bench.begin(&at(9), &asked).grant().transfer, grant.transfer);
}

#[test]
fn nobody_else_can_send_into_a_transfer() {
    let (mut bench, to) = Bench::with_peer();
    let value = value_of(10_000, 1);
    let asked = bench.asks(Opcode::Put, b"key", value.len());
    let grant = bench.begin(&to, &asked).grant();
    let stranger = bench.to(2, 0);
    bench.fragments(&stranger, &grant, 0..8, &value_of(10_000, 2));
    let guessed = Grant { transfer: grant.transfer ^ 0x100, ..grant };
    bench.fragment(&to, &guessed, 0, &value, Flags::NONE);
    assert!(bench.sent().is_empty());
    bench.fragments(&to, &grant, 0..8, &value);
    assert_eq!(bench.acknowledgement().2.unwrap().status, Status::Ok);
    assert!(bench.stored(b"key").unwrap() == value);
}

#[test]
fn a_client_without_a_secret_may_get_a_session_meanwhile_and_one_with_may_not() {
    for is_sealed in [false, true] {
        let expected = if is_sealed { Status::Gone } else { Status::Ok };
        let mut bench = Bench::with(1 << 20, is_sealed);
        let value = value_of(1000, 1);
        let (before, after) = (bench.to(1, 3), bench.to(1, 4));
        let asked = bench.asks(Opcode::Put, b"key", value.len());
        let grant = bench.begin(&before, &asked).grant();
        bench.fragment(&after, &grant, 0, &value, Flags::ACK_WANTED);
        let sent = bench.sent();
        let (header, datagram) = sent.last().unwrap();
        assert_eq!(answer_in(header, datagram).status, expected);
    }
}

#[test]
fn fragments_of_another_length_are_malformed() {
    let (mut bench, to) = Bench::with_peer();
    let asked = bench.asks(Opcode::Put, b"key", 10_000);
    let grant = bench.begin(&to, &asked).grant();
    for (index, bytes) in
        [(0, 1), (0, grant.fragment_bytes as usize + 1), (7, 1384), (8, 1384), (u32::MAX, 1)]
    {
        let mut body = vec![0; FRAGMENT_HEAD_BYTES + bytes];
        FragmentHead { transfer: grant.transfer, index }.write(body.first_chunk_mut().unwrap());
        let taken = bench
            .call(|transfers, around, sent| transfers.fragment(around, &to, Flags::ACK_WANTED, &body, sent));
        assert_eq!(taken, Err(Malformed::Body), "{index} {bytes}");
    }
    let short =
        bench.call(|transfers, around, sent| transfers.fragment(around, &to, Flags::NONE, &[0; 15], sent));
    assert!(short.is_err());
}

#[test]
fn conditions_are_judged_when_all_has_arrived() {
    let (mut bench, to) = Bench::with_peer();
    let (old, new) = (value_of(20_000, 1), value_of(30_000, 2));
    let put = bench.asks(Opcode::Put, b"key", old.len());
    let add = bench.asks(Opcode::Add, b"key", new.len());
    let grant = bench.begin(&to, &add).grant();
    let cas = bench.put(&to, &put, &old).cas;
    bench.fragments(&to, &grant, 0..count(&grant), &new);
    assert_eq!(bench.acknowledgement().2.unwrap().status, Status::NotStored);
    let compare = |operand, request| {
        let asked = bench.asks(Opcode::Compare, b"key", new.len());
        Operation { request, detail: Detail { operand, ..asked.detail }, ..asked }
    };
    let (wrong, right) = (compare(cas + 1, 21), compare(cas, 22));
    assert_eq!(bench.put(&to, &wrong, &new).status, Status::Exists);
    assert_eq!(bench.put(&to, &right, &new).status, Status::Ok);
    let append = bench.asks(Opcode::Append, b"key", old.len());
    assert_eq!(bench.put(&to, &append, &old).status, Status::Ok);
    assert!(bench.stored(b"key").unwrap() == [new, old].concat());
}

fn once(operation: Operation<'_>, once: u32) -> Operation<'_> {
    let detail = Detail { once, ..operation.detail };
    Operation { flags: OpFlags::DEFERRED | OpFlags::ONCE, detail, ..operation }
}

#[test]
fn what_is_to_happen_once_happens_once() {
    let mut bench = Bench::new();
    let session = bench.sessions.open(peer(1), 1, bench.now).unwrap();
    let to = bench.to(1, session);
    let part = value_of(20_000, 1);
    let put = bench.asks(Opcode::Put, b"key", part.len());
    bench.put(&to, &put, &part);
    let asked = bench.asks(Opcode::Append, b"key", part.len());
    let append = once(asked, 1);
    let grant = bench.begin(&to, &append).grant();
    bench.fragment(&to, &grant, 0, &part, Flags::NONE);
    assert_eq!(bench.begin(&to, &append).status, Status::InProgress);
    bench.fragments(&to, &grant, 1..count(&grant), &part);
    let done = bench.acknowledgement().2.unwrap();
    assert_eq!(done.status, Status::Ok);
    assert_eq!(bench.begin(&to, &append), done);
    assert_eq!(bench.stored(b"key").unwrap().len(), 2 * part.len());
    let unknown = bench.to(1, session ^ 1);
    assert_eq!(bench.begin(&unknown, &append).status, Status::NoSession);
}

#[test]
fn what_timed_out_may_be_tried_again() {
    let mut bench = Bench::new();
    let session = bench.sessions.open(peer(1), 1, bench.now).unwrap();
    let to = bench.to(1, session);
    let value = value_of(20_000, 1);
    let asked = bench.asks(Opcode::Add, b"key", value.len());
    let add = once(asked, 9);
    let grant = bench.begin(&to, &add).grant();
    bench.fragment(&to, &grant, 0, &value, Flags::NONE);
    bench.pass(TIMEOUT + Duration::from_millis(1));
    assert_eq!(bench.put(&to, &add, &value).status, Status::Ok);
    assert_eq!(bench.sessions.totals().in_progress, 0);
}

#[test]
fn memory_returns_after_any_sequence() {
    use minos_base::seeded;
    use rand::RngExt;
    for seed in 0..20 {
        let mut random = seeded(seed);
        let mut bench = Bench::new();
        let before = bench.used_bytes();
        let mut grants = Vec::new();
        for request in 0..400 {
            let to = bench.to(random.random_range(1..4), 0);
            // Smaller values would leave an arena to their partition.
            let bytes = random.random_range(5_000..200_000);
            let value = value_of(bytes, request);
            match random.random_range(0..10) {
                0..3 => {
                    let asked =
                        Operation { request: request as u32, ..bench.asks(Opcode::Put, b"key", bytes) };
                    let answer = bench.begin(&to, &asked);
                    if answer.status == Status::Granted {
                        grants.push((to, answer.grant(), value));
                    }
                }
                3 => bench.pass(TIMEOUT / 3),
                _ => {
                    let Some(at) = grants.len().checked_sub(1) else { continue };
                    let (to, grant, value) = grants[random.random_range(0..=at)].clone();
                    let count = count(&grant);
                    for _ in 0..count {
                        bench.fragment(&to, &grant, random.random_range(0..count), &value, Flags::NONE);
                    }
                    bench.sent();
                }
            }
        }
        bench.pass(TIMEOUT + Duration::from_millis(1));
        bench.store.entry(bench.store.hash(b"key"), b"key", bench.clock.seconds()).remove();
        assert_eq!((bench.transfers.open, bench.bounds.bytes()), (0, 0));
        assert_eq!(bench.used_bytes(), before, "seed {seed}");
    }
}
