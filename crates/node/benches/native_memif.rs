//! GETs a second that one core serves by the native protocol over memif.
//!
//! `cargo bench -p minos-node --bench native_memif -- [--width N] [--items N] [--window N] [--seconds N]
//! [--cpus A,B]`
//!
//! A client must not be slower than the server. This one composes its requests once, with the client's core, which compares
//! the values that come. Then it sends them again and again, and counts the answers and those that found no item.
//!
//! With `--alone`, the client and the server's part without its worker are this thread's. It prints the time of a GET in short
//! rounds, of which some are undisturbed on a shared machine.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{Clock, SizeClass};
use minos_client::{Config, OPERATIONS_MAX, Outcome, Request, Verb, core::Core};
use minos_engine::{Engine, ItemMeta, Put, StoreConfig, StoreMode};
use minos_net::{
    MemifBurst, MemifOptions, MemifPort, Port, PortOptions, Side, Source, pin_to,
    udp::{BURST_MESSAGES, TRAIN_SEGMENTS_MAX, TransmitBurst},
};
use minos_node::{
    Server, ServerConfig,
    config::{NativeConfig, PollMode},
    native::{ENTROPY_BYTES, Egress, NativeSetting, NativeShared, NativeWorker, SizeLimit, Turn},
};
use minos_proto::native::{Header, Kind, Status, replies};
use minos_sched::WorkerId;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 11311;
const CLIENT_PORT: u16 = 40_000;
/// A port for small replies and one for large ones.
const PORTS: usize = 2;
const BUFFER_BYTES: usize = 4 << 20;
const MEMORY_BYTES: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(30);
/// Silence after which what is under way is lost.
const SILENCE: Duration = Duration::from_millis(200);
const ROUNDS: usize = 3;
/// The time whose fastest one is shown.
const PART: Duration = Duration::from_millis(5);
/// Requests composed ahead.
const REQUESTS: usize = 16 << 10;

/// What to measure.
struct Plan {
    /// GETs of a datagram.
    width: usize,
    items: u64,
    /// Datagrams under way at a time.
    window: usize,
    seconds: u64,
    cpus: [usize; 2],
}

/// The server's process; killed when dropped.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| value(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let cpus: Vec<usize> = value("--cpus")
        .map(|text| text.split(',').filter_map(|cpu| cpu.parse().ok()).collect())
        .unwrap_or_default();
    let width = number("--width", 1).max(1);
    let plan = Plan {
        width: width as usize,
        items: number("--items", 1 << 20),
        // Answers that wait while this thread stands still count in the next part of the time: a few hundredths of it.
        window: number("--window", (2048 / width).clamp(BURST_MESSAGES as u64, 512)) as usize,
        seconds: number("--seconds", 2),
        cpus: [cpus.first().copied().unwrap_or(0), cpus.get(1).copied().unwrap_or(1)],
    };
    let result = match value("--serve") {
        Some(path) => serve(Path::new(&path), &plan),
        None if arguments.iter().any(|argument| argument == "--alone") => measure_alone(&plan),
        None => measure(&plan),
    };
    result.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn memif(path: &Path, side: Side) -> MemifOptions {
    MemifOptions { path: path.to_owned(), side }
}

fn ports(path: &Path, side: Side, address: (Ipv4Addr, u16), count: usize) -> io::Result<Vec<MemifPort>> {
    let wanted = PortOptions {
        address: address.into(),
        count,
        shares_address: false,
        receive_buffer_bytes: BUFFER_BYTES,
        source: Source::Sockets,
    };
    MemifPort::open_all(&memif(path, side), &wanted)
}

fn client_port(path: &Path) -> io::Result<MemifPort> {
    let ports = ports(path, Side::Client { queues: PORTS }, (CLIENT, CLIENT_PORT), 1)?;
    ports.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The key of an item, which is its value too.
fn key(item: u64) -> [u8; 8] {
    item.to_be_bytes()
}

/// A store with all items.
fn filled(items: u64, clock: &Clock) -> io::Result<Arc<Engine<StoreMode>>> {
    let store = Engine::<StoreMode>::create(&StoreConfig::new(MEMORY_BYTES)).map_err(io::Error::other)?;
    let now = clock.seconds_at(Instant::now());
    for item in 0..items {
        let (key, mut is_full) = (key(item), false);
        let put = Put { hash: store.hash(&key), key: &key, value: &key, meta: ItemMeta::default() };
        store.put_many(&[put], now, |_, stored| is_full = stored.is_err());
        if is_full {
            return Err(io::Error::other("there is no room for all items"));
        }
    }
    Ok(Arc::new(store))
}

fn serve(path: &Path, plan: &Plan) -> io::Result<()> {
    // All threads that it starts run there.
    pin_to(plan.cpus[0])?;
    let mut config = ServerConfig::new(1);
    let mut native = NativeConfig::new((SERVER, PORT).into());
    native.receive_buffer_bytes = BUFFER_BYTES;
    native.source = Source::Memif(memif(path, Side::Server { separates_large: false }));
    (config.native, config.poll, config.pin) = (Some(native), PollMode::Busy, false);
    let store = filled(plan.items, &config.clock)?;
    let _server = Server::start(config, store).map_err(io::Error::other)?;
    println!("serving");
    loop {
        std::thread::park();
    }
}

fn measure(plan: &Plan) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("memif");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve").arg(&path).arg("--cpus").arg(plan.cpus[0].to_string());
    command.arg("--items").arg(plan.items.to_string()).stdout(Stdio::piped());
    let mut served = Served(command.spawn()?);
    // It says one line once it serves.
    let mut said = served.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    io::Read::read_exact(&mut said, &mut [0; 1])?;
    let port = client_port(&path)?;
    pin_to(plan.cpus[1])?;
    port.reach(SERVER, PATIENCE)?;
    let requests = Requests::compose(&port, plan, || Ok(()))?;
    for _ in 0..ROUNDS {
        let Round { replies, gets, missed, lost, fastest, .. } = round(&port, plan, &requests)?;
        let rate = |gets: u64, time: Duration| gets as f64 / time.as_secs_f64() / 1e6;
        let (whole, part) = (rate(gets, Duration::from_secs(plan.seconds)), rate(fastest, PART));
        println!(
            "{whole:.2} M GETs/s of width {}, {part:.2} in the fastest {PART:?}; {replies} replies, {missed} without an item, {lost} lost",
            plan.width
        );
    }
    Ok(())
}

/// Datagrams that ask, all of one length, and where they go.
struct Requests {
    to: SocketAddr,
    bytes: Vec<u8>,
    datagram_bytes: usize,
}

impl Requests {
    /// Composes them, sends each once and compares the values that come. Calls `serve` while it waits.
    fn compose(port: &MemifPort, plan: &Plan, mut serve: impl FnMut() -> io::Result<()>) -> io::Result<Self> {
        let begun = Instant::now();
        let now_ns = || begun.elapsed().as_nanos() as u64;
        let config = Config::new().timeout(PATIENCE).operations_max(OPERATIONS_MAX);
        let mut core = Core::new(config, (SERVER, PORT).into(), 1, 0).map_err(io::Error::other)?;
        let (mut burst, mut trains) = (port.burst(), TransmitBurst::new());
        let mut requests = Self { to: (SERVER, PORT).into(), bytes: Vec::new(), datagram_bytes: 0 };
        // Spread over all items, none near the one before.
        let mut items = (0..).map(|at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % plan.items);
        let mut composed = 0;
        while composed < REQUESTS {
            let is_known = core.directory().is_some();
            let asked: Vec<u64> = items.by_ref().take(if is_known { plan.width } else { 1 }).collect();
            for &item in &asked {
                let request = Request::new(Verb::Get, key(item)).tag(item);
                core.submit(request, now_ns()).map_err(|_| io::Error::other("too many at a time"))?;
            }
            let mut left = asked.len();
            while left > 0 {
                while let Some(train) = core.poll_transmit(now_ns()) {
                    if is_known {
                        requests.add(train.to, train.bytes)?;
                        composed += 1;
                    }
                    let _ = trains.push(train.to, train.bytes, train.segment_bytes);
                }
                port.send(&mut trains);
                serve()?;
                port.receive_at_most(&mut burst, BURST_MESSAGES)?;
                for message in MemifPort::messages(&mut burst) {
                    core.receive(message.peer, message.bytes, message.segment_bytes, now_ns());
                }
                core.on_timer(now_ns());
                while let Some(completion) = core.poll_completion() {
                    match completion.result {
                        Ok(Outcome::Value(value)) if value.bytes == key(completion.tag) => left -= 1,
                        other => return Err(io::Error::other(format!("item {}: {other:?}", completion.tag))),
                    }
                }
            }
        }
        Ok(requests)
    }

    fn add(&mut self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        if self.bytes.is_empty() {
            (self.to, self.datagram_bytes) = (to, datagram.len());
        }
        if (to, datagram.len()) != (self.to, self.datagram_bytes) {
            return Err(io::Error::other("a request was sent twice, or does not fit a datagram"));
        }
        self.bytes.extend_from_slice(datagram);
        Ok(())
    }

    /// At most so many of them, from a place on; the place behind them.
    fn some(&self, at: usize, count: usize) -> (&[u8], usize) {
        let end = self.bytes.len().min(at + count * self.datagram_bytes);
        (&self.bytes[at..end], if end == self.bytes.len() { 0 } else { end })
    }
}

/// What came back within the time.
#[derive(Default)]
struct Round {
    replies: u64,
    gets: u64,
    missed: u64,
    /// Requests without a reply.
    lost: u64,
    /// GETs of the fastest part of the time, in which no other process had the processors.
    fastest: u64,
}

impl Round {
    /// Counts the replies of a burst.
    fn count(&mut self, burst: &mut MemifBurst) -> usize {
        let before = self.replies;
        for message in MemifPort::messages(burst) {
            for datagram in message.bytes.chunks(message.segment_bytes) {
                let Ok(header) = Header::parse(datagram) else { continue };
                if header.kind == Kind::Reply {
                    let found = |reply: &Result<_, _>| matches!(reply, Ok(reply) if is_hit(reply));
                    let found = replies(datagram, &header).filter(found).count() as u64;
                    self.replies += 1;
                    self.gets += u64::from(header.count);
                    self.missed += u64::from(header.count) - found;
                }
            }
        }
        (self.replies - before) as usize
    }
}

fn is_hit(reply: &minos_proto::native::ReplyRecord<'_>) -> bool {
    reply.status == Status::Ok && reply.value.len() == key(0).len()
}

fn round(port: &MemifPort, plan: &Plan, requests: &Requests) -> io::Result<Round> {
    let (mut burst, mut trains) = (port.burst(), TransmitBurst::new());
    let (mut at, mut under_way, mut round, mut before) = (0, 0, Round::default(), 0);
    let (begun, time) = (Instant::now(), Duration::from_secs(plan.seconds));
    let (mut heard, mut part_begun) = (begun, begun);
    loop {
        let now = Instant::now();
        if now - begun >= time {
            return Ok(round);
        }
        if now - part_begun >= PART {
            // A part during which this thread stood still is longer.
            let is_whole = now - part_begun < PART + PART / 50;
            round.fastest = round.fastest.max(if is_whole { round.gets - before } else { 0 });
            (part_begun, before) = (now, round.gets);
        }
        let count = TRAIN_SEGMENTS_MAX.min(plan.window - under_way);
        if count >= BURST_MESSAGES.min(plan.window) {
            let (bytes, next) = requests.some(at, count);
            // The first ones have room.
            let _ = trains.push(requests.to, bytes, requests.datagram_bytes);
            port.send(&mut trains);
            under_way += bytes.len() / requests.datagram_bytes;
            at = next;
        }
        port.receive_at_most(&mut burst, BURST_MESSAGES)?;
        let replies = round.count(&mut burst);
        under_way = under_way.saturating_sub(replies);
        if replies > 0 {
            heard = now;
        } else if now - heard > SILENCE {
            round.lost += under_way as u64;
            (under_way, heard) = (0, now);
        }
    }
}

/// The server's part of the protocol, and its port.
struct Site {
    ports: Vec<MemifPort>,
    worker: NativeWorker<'static, StoreMode>,
    burst: MemifBurst,
    egress: PortEgress,
}

/// Composes answers, which leave at the end of a burst.
struct PortEgress(TransmitBurst);

impl Egress for PortEgress {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.0.buffer()
    }

    fn queue_train(&mut self, peer: SocketAddr, train: std::ops::Range<usize>, segment_bytes: usize) {
        assert!(self.0.queue(peer, train, segment_bytes), "a burst of small answers has room");
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn flush(&mut self) {
        // Whoever has the burst sends it.
    }

    fn send_gather(&mut self, _: SocketAddr, _: &[io::IoSlice<'_>], _: usize) {
        // No value is large.
    }
}

impl Site {
    fn open(path: &Path, plan: &Plan) -> io::Result<Self> {
        let ports = ports(path, Side::Server { separates_large: false }, (SERVER, PORT), PORTS)?;
        let clock = Clock::new();
        let store = filled(plan.items, &clock)?;
        let setting = NativeSetting {
            queues: 1,
            base_port: PORT,
            value_bytes_max: 1 << 20,
            evicts_from_flash: false,
            holds_replies: false,
            direction_seed: None,
            entropy: [7; ENTROPY_BYTES],
            start: Instant::now(),
        };
        let shared = NativeShared::new(store, clock, &NativeConfig::new((SERVER, PORT).into()), &setting);
        let worker = NativeWorker::standalone(Arc::new(shared), WorkerId(0));
        let (burst, egress) = (ports[0].burst(), PortEgress(TransmitBurst::new()));
        Ok(Self { ports, worker, burst, egress })
    }

    /// Serves a burst that has come, as a worker does.
    fn serve(&mut self) -> io::Result<()> {
        let Self { ports, worker, burst, egress } = self;
        let now = Instant::now();
        if ports[0].receive_at_most(burst, BURST_MESSAGES)? > 0 {
            let messages = MemifPort::messages(burst).map(|message| {
                let bytes: &[u8] = message.bytes;
                (message.peer, bytes, message.segment_bytes)
            });
            let mut placement = SizeLimit { class_max: SizeClass::of(u64::MAX), large_worker: None };
            let turn = Turn { now, placement: &mut placement, egress, hand_off: &mut |_, job| Err(job) };
            worker.on_messages(0, messages, turn);
            ports[0].send(&mut egress.0);
        }
        Ok(())
    }
}

fn measure_alone(plan: &Plan) -> io::Result<()> {
    const ROUND: usize = 50;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("memif");
    let mut site = Site::open(&path, plan)?;
    let port = client_port(&path)?;
    pin_to(plan.cpus[0])?;
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| port.reach(SERVER, PATIENCE));
        while !asker.is_finished() {
            site.serve()?;
            // The question comes by the other one's queue.
            site.ports[1].receive_at_most(&mut site.burst, 1)?;
        }
        asker.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })?;
    let requests = Requests::compose(&port, plan, || site.serve())?;
    let (mut burst, mut trains) = (port.burst(), TransmitBurst::new());
    let (begun, mut rounds, mut at, mut all) = (Instant::now(), Vec::new(), 0, Round::default());
    while begun.elapsed() < Duration::from_secs(plan.seconds) || rounds.is_empty() {
        let (mut serving, before) = (Duration::ZERO, all.gets);
        for _ in 0..ROUND {
            let (bytes, next) = requests.some(at, BURST_MESSAGES);
            let _ = trains.push(requests.to, bytes, requests.datagram_bytes);
            port.send(&mut trains);
            at = next;
            let begun = Instant::now();
            site.serve()?;
            serving += begun.elapsed();
            port.receive_at_most(&mut burst, BURST_MESSAGES)?;
            all.count(&mut burst);
        }
        rounds.push(serving.as_nanos() as f64 / (all.gets - before).max(1) as f64);
    }
    rounds.sort_by(f64::total_cmp);
    let [fastest, usual] = [rounds[0], rounds[rounds.len() / 2]];
    println!(
        "{fastest:.1} ns of the server for a GET of width {}, {usual:.1} ns in the middle of {} rounds; {} replies, {} without an item",
        plan.width,
        rounds.len(),
        all.replies,
        all.missed
    );
    Ok(())
}
