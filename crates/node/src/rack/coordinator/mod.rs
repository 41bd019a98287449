//! The process that drives a rack's coordinator: it hears the nodes, keeps the directory, and obeys operators. If there are
//! several such processes, one leads and the others stand by.
//!
//! It takes two kinds of streams, told apart by their first line: that of a node, which reports and gets orders, and that
//! of an operator, who writes a line and reads the answer. Over TCP, both must prove to know the rack's secret.

#[cfg(feature = "etcd")]
mod etcd;
mod reign;

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use minos_base::hash_key;
use minos_net::{Address, Io as _, Kernel, Listener};
use minos_proto::native::Secret;
use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};
use minos_sealed::{Keys, Purpose};
use minos_unit::{
    Balancing, Command, Coordinator, Directory, Epoch, Mishaps, Node, Orders, Packet, Policy, Report,
    Standing, Terms,
    control::{Effect, Input},
};
use parking_lot::Mutex;

use super::{
    config::direction_seed,
    frames,
    member::{HELLO_BYTES_MAX, HELLO_MAX, node_hello, terms},
    stream::{self, COORDINATOR, ControlStream},
};
use crate::server::{
    control::Seldom,
    handshakes::{HandshakeBounds, HandshakeCounters, Handshakes, SecretDoor},
};

pub use minos_unit::{COPIES_MAX, Loss, ReadPolicy};
pub use reign::{EtcdConfig, Keep};
use reign::{FileReign, Reign};

/// Longest time without a look at leases and moves.
const TICK: Duration = Duration::from_millis(100);
/// The first line of an operator's stream.
const OPERATOR: &str = "minos-operator 1\n";
/// Most bytes of an operator's line: that of the longest key, each of whose bytes may take three.
const OPERATOR_BYTES_MAX: usize = 1024;
/// Time that the coordinator has to answer an operator.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time between two lines of the log about nodes that are refused.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// What one that stands by answers to operators.
const STANDS_BY: &str = "error: this coordinator does not lead";

/// A rack's coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Name of the rack.
    pub rack: String,
    /// Where nodes and operators find it: a Unix socket, or an address, which needs secrets.
    pub listen: Address,
    /// Secrets, one of which nodes and operators must know over TCP.
    pub secrets: Vec<Secret>,
    /// What keeps the directory.
    pub keep: Keep,
    /// The nodes of a new rack: unit and address for native clients. Later ones are in the directory.
    pub nodes: Vec<(u32, String)>,
    /// Micro-shards of a new rack. The directory of an older one has its own.
    pub micro_shards: u32,
    /// Time for which a node may answer without a word of the coordinator.
    pub lease: Duration,
    /// What becomes of the micro-shards of a dead node.
    pub loss: Loss,
    /// Micro-shards that move, or are copied to followers, at a time.
    pub moves_max: usize,
    /// Copies of each micro-shard, the owner's included: the others are in other units.
    pub copies: u32,
    /// Time between two steps that relieve the busiest node of a hot micro-shard; `None` for none.
    pub relieve: Option<Duration>,
    /// Time after which a move is given up.
    pub move_time_max: Duration,
    /// By what the reads of native clients are balanced within a unit.
    pub reads: ReadPolicy,
    /// Time between two computations of that balance.
    pub reads_interval: Duration,
}

/// Why a coordinator does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The lease is too short or too long.
    #[error("the lease of a node: {0}")]
    Lease(minos_unit::BadTerms),
    /// The nodes make no rack, or what was kept is no directory.
    #[error("{place}: {error}")]
    Directory {
        /// Where the directory is kept.
        place: String,
        /// What is wrong with it.
        error: minos_unit::BadDirectory,
    },
    /// A node knows a later directory.
    #[error(
        "{place}: the directory has epoch {epoch}, and node {node} knows epoch {later}: the directory is older than the rack, or \
         of another one; put the newest back, or remove the memory of all nodes to begin anew"
    )]
    Outdated {
        /// Where the directory is kept.
        place: String,
        /// The epoch of the directory there.
        epoch: Epoch,
        /// Who knows a later one.
        node: u32,
        /// Its epoch.
        later: Epoch,
    },
    /// It cannot be reached at its address.
    #[error("{address}: {error}")]
    Listen {
        /// The address.
        address: Address,
        /// The error.
        error: io::Error,
    },
    /// A file cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// etcd cannot be used as it is named.
    #[error("etcd: {0}")]
    Etcd(String),
}

/// What the coordinator's thread is told.
enum Event {
    /// With the way back to its node, if it is the first of its stream.
    Report(Report, Option<ControlStream>),
    Operator(String, Sender<String>),
    /// This coordinator leads from now on, with the directory of these bytes.
    Elected(Reign, Vec<u8>),
    /// The one that listens there leads.
    #[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "nobody else can lead"))]
    StandsBy(String),
    /// The directory of this epoch is kept, or cannot be.
    Kept(Result<Epoch, CoordinatorError>),
}

/// The way back to a node.
struct Sending {
    stream: ControlStream,
    /// What was sent on it last: a later one is sent as a patch.
    directory: Option<Arc<Directory>>,
}

/// The coordinator while it leads, with its streams.
struct Leading {
    /// Name of the rack.
    rack: String,
    reign: Reign,
    coordinator: Coordinator,
    streams: HashMap<ServerId, Sending>,
    zero: Instant,
    /// The nodes that had a lease at the last look.
    leased: BTreeSet<ServerId>,
    /// Answers to operators that are true once the directory of an epoch is kept.
    answers: Vec<(Epoch, Sender<String>, String)>,
    /// For the log of nodes that get no lease.
    stale: Seldom,
}

/// A process that leads or stands by.
struct Process {
    config: CoordinatorConfig,
    terms: Terms,
    leading: Option<Leading>,
    /// Micro-shards of the directory while this process leads, else zero: for the threads that hear nodes.
    led: Arc<AtomicU32>,
    /// Where the leader listens, if it is another one.
    leader: Option<String>,
    /// Dropped after it leads no more.
    _election: Election,
}

/// Runs a coordinator until `is_over`, which is asked at least each tenth of a second. `begun` is called once it listens, with a
/// directory that it can read if it has that in a file.
///
/// # Errors
/// See [`CoordinatorError`].
pub fn run(
    config: CoordinatorConfig,
    begun: impl FnOnce(),
    is_over: impl Fn() -> bool,
) -> Result<(), CoordinatorError> {
    let terms = terms(config.lease).map_err(CoordinatorError::Lease)?;
    let (sender, events) = channel();
    let led = Arc::<AtomicU32>::default();
    let election = stand(&config, sender.clone())?;
    let _listener = listen(&config, sender, Arc::clone(&led))?;
    begun();
    let mut process = Process { config, terms, leading: None, led, leader: None, _election: election };
    while !is_over() {
        match events.recv_timeout(TICK) {
            Ok(event) => {
                std::iter::once(event).chain(events.try_iter()).try_for_each(|it| process.take(it))?
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        process.tick()?;
    }
    process.step_down();
    Ok(())
}

/// Sends an operator's line to a coordinator; returns its answer. Over TCP, the name of the rack and a secret are needed.
///
/// # Errors
/// The coordinator cannot be reached, does not know the secret, or does not answer within five seconds.
pub fn ask(at: &Address, rack: Option<(&str, &[Secret])>, line: &str) -> io::Result<String> {
    let keys = rack.map(|(name, secrets)| Keys::new(name, secrets));
    let mut stream = ControlStream::connect(at, keys.as_ref(), (stream::OPERATOR, COORDINATOR))?;
    stream.set_receive_max(Some(ANSWER_MAX))?;
    stream.write_all(format!("{OPERATOR}{line}\n").as_bytes())?;
    io::read_to_string(&mut stream)
}

/// As [`ask`], of the coordinator among these that leads.
///
/// # Errors
/// Of the last of them: it cannot be reached, or does not answer.
pub fn ask_leader(at: &[Address], rack: Option<(&str, &[Secret])>, line: &str) -> io::Result<String> {
    let mut last = Err(io::ErrorKind::NotFound.into());
    for address in at {
        last = ask(address, rack, line).and_then(|answer| match answer.as_str() {
            "" => Err(io::Error::other(format!("{address} does not answer"))),
            _ => Ok(answer),
        });
        if last.as_ref().is_ok_and(|answer| !answer.starts_with(STANDS_BY)) {
            break;
        }
    }
    last
}

/// An operator's line that asks where a key is. Its bytes that are no visible ones are percent-encoded, and so are percent
/// signs.
pub fn where_line(key: &[u8]) -> String {
    let mut line = "where ".to_owned();
    for &byte in key {
        if byte.is_ascii_graphic() && byte != b'%' {
            line.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(line, "%{byte:02X}");
        }
    }
    line
}

/// The key of such a line; `None` if it is none.
fn key_of(word: &str) -> Option<Vec<u8>> {
    let mut parts = word.split('%');
    let mut key = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        // A sign would do for a number.
        let digits = Some(code).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        key.push(u8::from_str_radix(digits, 16).ok()?);
        key.extend_from_slice(rest.as_bytes());
    }
    Some(key)
}

/// What stands for election, if there is one.
#[cfg(feature = "etcd")]
type Election = Option<etcd::Candidacy>;
#[cfg(not(feature = "etcd"))]
type Election = Option<std::convert::Infallible>;

/// Stands for election. With a file there is none: the process leads at once.
fn stand(config: &CoordinatorConfig, events: Sender<Event>) -> Result<Election, CoordinatorError> {
    match &config.keep {
        Keep::File(path) => {
            let reign = FileReign::start(path, events.clone())?;
            let kept = match fs::read(path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => new_directory(config)?.encode(),
                Err(error) => return Err(CoordinatorError::Io { path: path.clone(), error }),
            };
            // It says what is wrong with it before anybody calls.
            Directory::decode(&kept).map_err(|error| config.no_directory(error))?;
            // It is received below.
            let _ = events.send(Event::Elected(Reign::File(reign), kept));
            Ok(None)
        }
        #[cfg(feature = "etcd")]
        Keep::Etcd(etcd) => {
            let new = new_directory(config)?.encode();
            etcd::Candidacy::start(etcd, (&config.rack, config.listen.to_string()), new, events).map(Some)
        }
        #[cfg(not(feature = "etcd"))]
        Keep::Etcd(_) => Err(CoordinatorError::Etcd(
            "this program was built without it; `cargo build --release --features etcd` builds it with it"
                .into(),
        )),
    }
}

/// The nodes of the directory in a file, each with its unit; `None` if there is no file.
///
/// # Errors
/// It cannot be read, or is no directory.
pub fn kept_nodes(path: &Path) -> Result<Option<Vec<(u32, u32)>>, CoordinatorError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CoordinatorError::Io { path: path.to_owned(), error }),
    };
    let directory = Directory::decode(&bytes)
        .map_err(|error| CoordinatorError::Directory { place: path.display().to_string(), error })?;
    Ok(Some(directory.nodes().iter().map(|node| (node.id.0, node.unit.0)).collect()))
}

/// The directory of a new rack.
fn new_directory(config: &CoordinatorConfig) -> Result<Directory, CoordinatorError> {
    let node = |(id, (unit, address)): (u32, &(u32, String))| Node {
        id: ServerId(id),
        unit: UnitId(*unit),
        standing: Standing::Member,
        address: address.clone(),
    };
    let micro_shards = MicroShards::new(config.micro_shards.max(1));
    let micro_shards = micro_shards.expect("there is one at least");
    Directory::new(micro_shards, config.copies, (0..).zip(&config.nodes).map(node).collect())
        .map_err(|error| config.no_directory(error))
}

/// A node knows a directory of the later epoch.
struct Outdated {
    epoch: Epoch,
    node: ServerId,
    later: Epoch,
}

impl CoordinatorConfig {
    /// Where the directory is kept.
    fn place(&self) -> String {
        match &self.keep {
            Keep::File(path) => path.display().to_string(),
            Keep::Etcd(etcd) => format!("etcd, {}", etcd.directory(&self.rack)),
        }
    }

    fn no_directory(&self, error: minos_unit::BadDirectory) -> CoordinatorError {
        CoordinatorError::Directory { place: self.place(), error }
    }

    fn outdated(&self, Outdated { epoch, node, later }: Outdated) -> CoordinatorError {
        CoordinatorError::Outdated { place: self.place(), epoch, node: node.0, later }
    }
}

/// Listens; what it hears comes as events, from processes of this user until the listener returned is dropped.
fn listen(
    config: &CoordinatorConfig,
    events: Sender<Event>,
    led: Arc<AtomicU32>,
) -> Result<Option<Listener>, CoordinatorError> {
    let (rack, lease, log) = (config.rack.clone(), config.lease, Mutex::new(Seldom::new(LINE_EVERY)));
    let ears = Arc::new(Ears { rack, lease, events, led, log });
    let listening = match &config.listen {
        Address::Unix(path) => stream::listen_here(path, move |stream| ears.hear(stream)).map(Some),
        Address::Tcp(_) => listen_to_proven(config, ears).map(|()| None),
    };
    listening.map_err(|error| CoordinatorError::Listen { address: config.listen.clone(), error })
}

/// Hears those who prove to know the secret.
fn listen_to_proven(config: &CoordinatorConfig, ears: Arc<Ears>) -> io::Result<()> {
    if config.secrets.is_empty() {
        return Err(io::Error::other("whoever reaches it could move and drop items: a secret is needed"));
    }
    let (listener, keys) = (Listener::bind(&config.listen)?, Keys::new(&config.rack, &config.secrets));
    let door = SecretDoor { keys, purposes: &[Purpose::Control], own: COORDINATOR };
    let mut handshakes = Handshakes::new(vec![listener], door, HandshakeBounds::PEERS, Kernel.poller()?);
    let accept = move || {
        let counters = HandshakeCounters::default();
        let mut turn = || {
            handshakes.sleep(None);
            handshakes
                .turn(&counters, |(sealed, ends), _| ears.hear(ControlStream::sealed(sealed, ends.from)))
        };
        let error = loop {
            if let Err(error) = turn() {
                break error;
            }
        };
        // Those who are heard stay so.
        tracing::error!(%error, "the coordinator cannot accept streams any more");
    };
    thread::Builder::new().name("minos-accept".to_owned()).spawn(accept).map(drop)
}

/// What hears streams, each on a thread.
struct Ears {
    rack: String,
    lease: Duration,
    events: Sender<Event>,
    led: Arc<AtomicU32>,
    /// Of nodes that are refused, which call again soon.
    log: Mutex<Seldom>,
}

impl Ears {
    fn hear(self: &Arc<Self>, stream: io::Result<ControlStream>) {
        let ears = Arc::clone(self);
        let heard = stream.and_then(|stream| {
            let hear = move || {
                if let Err(error) = ears.hear_all(stream) {
                    tracing::debug!(%error, "a stream ends");
                }
            };
            thread::Builder::new().name("minos-heard".to_owned()).spawn(hear)
        });
        if let Err(error) = heard {
            tracing::warn!(%error, "a node is not heard");
        }
    }

    /// Hears one stream until it ends.
    fn hear_all(&self, mut stream: ControlStream) -> io::Result<()> {
        let gone = |_| io::Error::other("the coordinator has ended");
        stream.set_receive_max(Some(HELLO_MAX))?;
        let line = frames::receive_line(&mut stream, HELLO_BYTES_MAX)?;
        if line == OPERATOR {
            let line = frames::receive_line(&mut stream, OPERATOR_BYTES_MAX)?;
            let (sender, answer) = channel();
            self.events.send(Event::Operator(line, sender)).map_err(gone)?;
            let answer = answer.recv().map_err(io::Error::other)?;
            return stream.write_all(answer.as_bytes());
        }
        let micro_shards = self.led.load(Relaxed);
        if micro_shards == 0 {
            // The node tries another one.
            return Ok(());
        }
        let expected = node_hello(&self.rack, micro_shards, self.lease);
        if line != expected {
            self.refuse(line.trim(), expected.trim());
            let lease = humantime::format_duration(self.lease);
            let rack = &self.rack;
            let why = format!(
                "nodes here have --rack {rack}, --micro-shards {micro_shards} and --rack-lease {lease}"
            );
            return frames::refuse(&mut stream, &why);
        }
        stream.set_receive_max(None)?;
        let mut back = Some(stream.try_clone()?);
        loop {
            let report = match frames::receive(&mut stream)? {
                Packet::Report(report) if stream.may_be(report.node.0) => report,
                _ => return Err(io::Error::other("not a report of its node")),
            };
            self.events.send(Event::Report(report, back.take())).map_err(gone)?;
        }
    }

    fn refuse(&self, line: &str, expected: &str) {
        if let Some(times) = self.log.lock().happened(Instant::now()) {
            tracing::warn!(
                line,
                expected,
                times,
                "a node of another rack, or with other micro-shards or another lease"
            );
        }
    }
}

impl Process {
    /// Takes an event, if this process leads; it refuses those of others else.
    fn take(&mut self, event: Event) -> Result<(), CoordinatorError> {
        self.step_down_if_over();
        match (event, &mut self.leading) {
            (Event::Elected(reign, kept), _) => self.lead(reign, &kept)?,
            (Event::StandsBy(leader), _) => self.leader = Some(leader),
            (Event::Kept(Err(error)), _) => return Err(error),
            (event, Some(leading)) => return leading.take(event).map_err(|it| self.config.outdated(it)),
            (Event::Report(_, back), None) => back.iter().for_each(ControlStream::break_off),
            (Event::Operator(_, answer), None) => {
                let leader = self.leader.as_ref().map(|leader| format!("; {leader} does"));
                // An operator who does not wait for the answer gets none.
                let _ = answer.send(format!("{STANDS_BY}{}\n", leader.unwrap_or_default()));
            }
            // Of an earlier reign.
            (Event::Kept(Ok(_)), None) => {}
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), CoordinatorError> {
        self.step_down_if_over();
        let Some(leading) = &mut self.leading else { return Ok(()) };
        leading.tell_of_leases();
        leading.handle(Input::Tick).map_err(|it| self.config.outdated(it))
    }

    /// Begins to lead, as after a restart.
    fn lead(&mut self, reign: Reign, kept: &[u8]) -> Result<(), CoordinatorError> {
        let config = &self.config;
        let directory = Directory::decode(kept).map_err(|error| config.no_directory(error))?;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let policy = Policy {
            loss: config.loss,
            moves_max: config.moves_max,
            move_us_max: micros(config.move_time_max),
            copies: config.copies,
        };
        let balancing = Balancing { policy: config.reads, interval_us: micros(config.reads_interval) };
        let micro_shards = directory.micro_shards().count();
        tracing::info!(epoch = directory.epoch(), "this coordinator leads the rack");
        let coordinator = Coordinator::new(directory, self.terms, policy, 0).with_balancing(balancing, 0);
        let coordinator = match config.relieve {
            Some(interval) => coordinator.with_relief(micros(interval), 0),
            None => coordinator,
        };
        let (rack, streams, zero) = (config.rack.clone(), HashMap::new(), Instant::now());
        let (leased, answers, stale) = (BTreeSet::new(), Vec::new(), Seldom::new(LINE_EVERY));
        self.leading = Some(Leading { rack, reign, coordinator, streams, zero, leased, answers, stale });
        self.leader = None;
        self.led.store(micro_shards, Relaxed);
        Ok(())
    }

    fn step_down_if_over(&mut self) {
        if self.leading.as_ref().is_some_and(|leading| !leading.reign.is_held()) {
            tracing::warn!("this coordinator leads the rack no more");
            self.step_down();
        }
    }

    /// Leads no more. Nodes look for the next leader.
    fn step_down(&mut self) {
        self.led.store(0, Relaxed);
        // The directory may have to be written first before it is dropped.
        let Some(leading) = self.leading.take() else { return };
        leading.streams.values().for_each(|sending| sending.stream.break_off());
    }
}

impl Leading {
    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    /// Takes a report or a command. What they change comes with the next tick.
    fn take(&mut self, event: Event) -> Result<(), Outdated> {
        match event {
            Event::Report(report, back) => {
                let sending = back.map(|stream| (report.node, Sending { stream, directory: None }));
                self.streams.extend(sending);
                let mut effects = Vec::new();
                self.coordinator.hear(self.now_us(), report, &mut effects);
                self.perform(effects)?;
            }
            Event::Operator(line, answer) => {
                let (epoch, text) = self.obey(&line);
                self.answers.push((epoch, answer, text));
                self.answer();
            }
            Event::Kept(Ok(epoch)) => {
                self.handle(Input::Persisted(epoch))?;
                self.answer();
            }
            Event::Kept(Err(_)) | Event::Elected(..) | Event::StandsBy(_) => {}
        }
        Ok(())
    }

    /// Says the answers that are true by now.
    fn answer(&mut self) {
        let kept = self.coordinator.directory().epoch();
        for (_, answer, text) in self.answers.extract_if(.., |(epoch, ..)| *epoch <= kept) {
            // An operator who does not wait for the answer gets none.
            let _ = answer.send(text);
        }
    }

    /// Tells the log which nodes have a lease now, and which have lost it.
    fn tell_of_leases(&mut self) {
        let now_us = self.now_us();
        if self.coordinator.leased(now_us).eq(self.leased.iter().copied()) {
            return;
        }
        let leased: BTreeSet<_> = self.coordinator.leased(now_us).collect();
        for node in leased.difference(&self.leased) {
            tracing::info!(node = node.0, "a node has a lease");
        }
        for node in self.leased.difference(&leased) {
            tracing::warn!(node = node.0, "the lease of a node has run out");
        }
        self.leased = leased;
    }

    /// Gives an input to the state machine, and does what it says.
    fn handle(&mut self, input: Input) -> Result<(), Outdated> {
        let mut effects = Vec::new();
        self.coordinator.handle(self.now_us(), input, &mut effects);
        self.perform(effects)
    }

    fn perform(&mut self, effects: Vec<Effect>) -> Result<(), Outdated> {
        for effect in effects {
            match effect {
                Effect::Persist(directory) => self.reign.keep(&directory),
                Effect::Send(to, orders) => self.send(to, orders),
                Effect::Outdated(node, later) => {
                    return Err(Outdated { epoch: self.coordinator.directory().epoch(), node, later });
                }
                Effect::Stale(node, later) => self.tell_of_stale(node, later),
            }
        }
        Ok(())
    }

    fn tell_of_stale(&mut self, node: ServerId, later: Epoch) {
        if let Some(times) = self.stale.happened(Instant::now()) {
            tracing::error!(
                node = node.0,
                later,
                times,
                "a node gets no lease: its memory is of a later epoch, from before the rack began anew, or of another one; \
                 remove it"
            );
        }
    }

    /// Sends orders. A stream that does not take them ends; its node calls again.
    fn send(&mut self, to: ServerId, mut orders: Orders) {
        let Some(Sending { stream, directory, .. }) = self.streams.get_mut(&to) else { return };
        let mut sent = Ok(());
        if let Some(newest) = orders.directory.clone() {
            if let Some(patch) = directory.as_ref().and_then(|known| newest.patch(known)) {
                orders.directory = None;
                sent = frames::send(stream, &Packet::Patch(patch));
            }
            *directory = Some(newest);
        }
        if sent.and_then(|()| frames::send(stream, &Packet::Orders(orders))).is_err() {
            stream.break_off();
            self.streams.remove(&to);
        }
    }

    /// The answer to an operator's line, and the epoch in which it is true.
    fn obey(&mut self, line: &str) -> (Epoch, String) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["status"] => return (0, self.status()),
            ["where", word] => {
                if let Some(key) = key_of(word) {
                    return (0, self.place(&key));
                }
            }
            _ => {}
        }
        let Some(command) = command(&words) else {
            return (0, format!("error: not a command: {}\n", line.trim()));
        };
        match self.coordinator.command(self.now_us(), command) {
            Ok(epoch) => (epoch.unwrap_or(0), "ok\n".to_owned()),
            Err(refused) => (0, format!("error: {refused}\n")),
        }
    }

    fn place(&self, key: &[u8]) -> String {
        let directory = self.coordinator.directory();
        let hash = hash_key(key, direction_seed(&self.rack));
        let micro_shard = directory.micro_shards().of(hash);
        let node =
            directory.writer(hash).map_or("on its way".to_owned(), |node| format!("node {}", node.id.0));
        format!("micro-shard {} {node}\n", micro_shard.0)
    }

    fn status(&self) -> String {
        let (moves, waiting) = self.coordinator.moves();
        let directory = self.coordinator.directory();
        let mut text = format!("epoch {}\nmoves {moves}\nwaiting {waiting}\n", directory.epoch());
        if self.coordinator.relieved() > 0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "relieved {}", self.coordinator.relieved());
        }
        if directory.copies() > 1 {
            let micro_shards = || directory.micro_shards().iter();
            let wanted: usize = micro_shards().map(|it| directory.wanted(it).count()).sum();
            let safe = self.coordinator.safe_copies();
            // Writing to a string does not fail.
            let _ = writeln!(text, "copies {} followers {wanted} safe {safe}", directory.copies());
        }
        for state in self.coordinator.nodes(self.now_us()) {
            let standing = match state.node.standing {
                Standing::Joining => "joining",
                Standing::Member => "member",
                Standing::Leaving => "leaving",
            };
            let (id, unit) = (state.node.id.0, state.node.unit.0);
            let lease = if state.is_alive { "alive" } else { "silent" };
            let Mishaps { lapses, restarts, failed_copies } = state.mishaps;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "node {id} unit {unit} {standing} {lease} epoch {} micro-shards {} lacking {} lapses {lapses} \
                 restarts {restarts} failed-copies {failed_copies}",
                state.epoch, state.micro_shards, state.lacking
            );
        }
        text
    }
}

/// The command that these words are.
fn command(words: &[&str]) -> Option<Command> {
    let node = |word: &str| word.parse().ok().map(ServerId);
    Some(match words {
        ["move", micro_shard, to] => Command::Move(MicroShard(micro_shard.parse().ok()?), node(to)?),
        ["drain", id] => Command::Drain(node(id)?),
        ["add", id, unit] => Command::Add(node(id)?, UnitId(unit.parse().ok()?), String::new()),
        ["add", id, unit, address] => {
            Command::Add(node(id)?, UnitId(unit.parse().ok()?), (*address).to_owned())
        }
        ["remove", id] => Command::Remove(node(id)?),
        ["balance"] => Command::Balance,
        ["give-up", id] => Command::GiveUp(node(id)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::net::UnixStream, process, sync::atomic::AtomicBool};

    use minos_testkit::Over;

    use super::*;

    #[test]
    fn any_key_comes_as_one_word() {
        for (key, line) in [
            (&b"greeting"[..], "where greeting"),
            (b"a b\n", "where a%20b%0A"),
            (b"100%", "where 100%25"),
            (b"\xff\0", "where %FF%00"),
        ] {
            assert_eq!(where_line(key), line);
            assert_eq!(key_of(&line["where ".len()..]).as_deref(), Some(key));
        }
        let longest = where_line(&[0xff; minos_base::limits::KEY_BYTES_MAX]);
        assert!(longest.len() < OPERATOR_BYTES_MAX);
        for word in ["%", "a%2", "%G0", "%+5", "%\u{e9}"] {
            assert_eq!(key_of(word), None, "{word}");
        }
    }

    fn config(listen: &Path, directory: PathBuf, nodes: usize) -> CoordinatorConfig {
        CoordinatorConfig {
            rack: "r".to_owned(),
            listen: Address::Unix(listen.to_owned()),
            secrets: Vec::new(),
            keep: Keep::File(directory),
            nodes: vec![(0, String::new()); nodes],
            micro_shards: 4,
            lease: Duration::from_secs(1),
            loss: Loss::Never,
            moves_max: 1,
            copies: 1,
            relieve: None,
            move_time_max: Duration::from_secs(1),
            reads: ReadPolicy::default(),
            reads_interval: Duration::from_secs(1),
        }
    }

    /// While a directory is written, as for long on a slow disk, the coordinator answers, but for what the directory is to have.
    /// If it cannot be written, it ends.
    #[test]
    fn it_does_not_wait_for_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let [listen, directory] = ["listen", "directory"].map(|name| folder.path().join(name));
        // The draft: whoever opens it to write waits for a reader.
        let draft = reign::beside(&directory, ".new");
        assert!(process::Command::new("mkfifo").arg(&draft).status().unwrap().success());
        let config = config(&listen, directory.clone(), 2);
        let is_over = AtomicBool::new(false);
        let at = Address::Unix(listen);
        let ended = thread::scope(|scope| {
            let coordinator = scope.spawn(|| run(config, || (), || is_over.load(Relaxed)));
            let over = Over(&is_over);
            while ask(&at, None, "status").is_err() {
                thread::sleep(Duration::from_millis(1));
            }
            let drain = scope.spawn(|| ask(&at, None, "drain 0"));
            // The change is written with the next tick.
            thread::sleep(TICK * 3);
            let status = ask(&at, None, "status");
            // Before any assertion, for which the writer would wait for ever. A pipe cannot be synced.
            let written = fs::read(&draft);
            // Before, it was told that it was done, and that was forgotten.
            assert_eq!(drain.join().unwrap().unwrap(), "");
            assert!(status.unwrap().starts_with("epoch 1\n"));
            assert_eq!(Directory::decode(&written.unwrap()).unwrap().epoch(), 2);
            let ended = coordinator.join().unwrap();
            drop(over);
            ended
        });
        let error = ended.unwrap_err().to_string();
        assert!(error.starts_with(&directory.display().to_string()), "{error}");
    }

    /// Before, it refused all nodes of its rack.
    #[test]
    fn nodes_have_the_micro_shards_of_the_directory_that_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [listen, directory] = ["listen", "directory"].map(|name| folder.path().join(name));
        let config = config(&listen, directory.clone(), 1);
        let kept = new_directory(&CoordinatorConfig { micro_shards: 8, ..config.clone() }).unwrap();
        fs::write(&directory, kept.encode()).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| run(config.clone(), || (), || is_over.load(Relaxed)).unwrap());
            let _over = Over(&is_over);
            let at = Address::Unix(listen.clone());
            while !ask(&at, None, "status").is_ok_and(|said| said.starts_with("epoch ")) {
                thread::sleep(Duration::from_millis(1));
            }
            let said_to = |micro_shards| {
                let mut stream = ControlStream::plain(UnixStream::connect(&listen).unwrap()).unwrap();
                stream.write_all(node_hello("r", micro_shards, config.lease).as_bytes()).unwrap();
                // One that is refused has closed.
                let _ = frames::send(&mut stream, &Packet::Report(report()));
                frames::receive(&mut stream).map(drop).map_err(|error| error.to_string())
            };
            assert_eq!(said_to(8), Ok(()));
            let refused = "refused: nodes here have --rack r, --micro-shards 8 and --rack-lease 1s";
            assert_eq!(said_to(4), Err(refused.to_owned()));
        });
    }

    fn report() -> Report {
        Report {
            node: ServerId(0),
            incarnation: 1,
            sent_us: 1,
            epoch: 0,
            kept: 0,
            withdrawn: Vec::new(),
            lacking: Vec::new(),
            moves: Vec::new(),
            load: None,
            weights: 0,
            heat: Vec::new(),
            sampled: 0,
        }
    }

    /// Before, a chain of errors had it twice.
    #[test]
    fn a_bad_lease_is_said_once() {
        let config = config(Path::new("/dev/null/listen"), "/dev/null/directory".into(), 1);
        let refused = run(CoordinatorConfig { lease: Duration::ZERO, ..config }, || (), || true).unwrap_err();
        assert!(refused.to_string().starts_with("the lease of a node: a lease must be longer"), "{refused}");
        assert!(std::error::Error::source(&refused).is_none());
    }

    /// Before, the file was removed, such as the directory if the two options were mixed up.
    #[test]
    fn a_file_in_the_place_of_its_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [listen, directory] = ["precious", "directory"].map(|name| folder.path().join(name));
        fs::write(&listen, "precious").unwrap();
        let config = config(&listen, directory, 1);
        let began = Cell::new(false);
        let refused = run(config.clone(), || began.set(true), || true).unwrap_err().to_string();
        assert!(!began.get());
        assert!(refused.ends_with("a file that is no socket lies there"), "{refused}");
        assert_eq!(fs::read(&listen).unwrap(), b"precious");
        fs::remove_file(&listen).unwrap();
        // A program that another test begins has a copy of the lock of the directory until it executes.
        while run(config.clone(), || began.set(true), || true).is_err() {}
        assert!(began.get());
        assert!(!listen.exists(), "the socket stays");
    }
}
