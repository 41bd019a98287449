//! The process that drives a rack's coordinator: it hears the nodes, keeps the directory on disk, and obeys operators.
//!
//! It takes two kinds of streams, told apart by their first line: that of a node, which reports and gets orders, and that
//! of an operator, who writes a line and reads the answer. Over TCP, both must prove to know the rack's secret.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
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
    Balancing, Command, Coordinator, Directory, Node, Orders, Packet, Policy, Report, Standing,
    control::{Effect, Input},
};

use super::{
    config::direction_seed,
    frames,
    member::{HELLO_BYTES_MAX, HELLO_MAX, node_hello, terms},
    stream::{self, COORDINATOR, ControlStream},
};
use crate::server::handshakes::{GateCounters, Handshakes};

pub use minos_unit::{Loss, ReadPolicy};

/// Longest time without a look at leases and moves.
const TICK: Duration = Duration::from_millis(100);
/// The first line of an operator's stream.
const OPERATOR: &str = "minos-operator 1\n";
/// Time that the coordinator has to answer an operator.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A rack's coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Name of the rack.
    pub rack: String,
    /// Where nodes and operators find it: a Unix socket, or an address, which needs secrets.
    pub listen: Address,
    /// Secrets, one of which nodes and operators must know over TCP.
    pub secrets: Vec<Secret>,
    /// The file that keeps the directory.
    pub directory: PathBuf,
    /// The nodes of a new rack: unit and address for native clients. Later ones come from the file.
    pub nodes: Vec<(u32, String)>,
    /// Micro-shards of a new rack; those of the nodes.
    pub micro_shards: u32,
    /// Time for which a node may answer without a word of the coordinator.
    pub lease: Duration,
    /// What becomes of the micro-shards of a dead node.
    pub loss: Loss,
    /// Micro-shards that move, or are copied to followers, at a time.
    pub moves_max: usize,
    /// Copies of each micro-shard, the owner's included: the others are in other units.
    pub copies: u32,
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
    Lease(#[from] minos_unit::BadTerms),
    /// The nodes make no rack, or the file is no directory.
    #[error("{path}: {error}")]
    Directory {
        /// The file that keeps the directory.
        path: PathBuf,
        /// What is wrong with it.
        error: minos_unit::BadDirectory,
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
}

/// What the coordinator's thread is told.
enum Event {
    /// With the way back to its node, if it is the first of its stream.
    Report(Report, Option<ControlStream>),
    Operator(String, Sender<String>),
}

/// The way back to a node.
struct Sending {
    stream: ControlStream,
    /// What was sent on it last: a later one is sent as a patch.
    directory: Option<Arc<Directory>>,
}

/// The coordinator with its streams.
struct Running {
    config: CoordinatorConfig,
    coordinator: Coordinator,
    streams: HashMap<ServerId, Sending>,
    zero: Instant,
}

/// Runs a coordinator until `is_over`, which is asked at least each tenth of a second.
///
/// # Errors
/// See [`CoordinatorError`].
pub fn run(config: CoordinatorConfig, is_over: impl Fn() -> bool) -> Result<(), CoordinatorError> {
    let terms = terms(config.lease)?;
    let policy = Policy {
        loss: config.loss,
        moves_max: config.moves_max,
        move_us_max: u64::try_from(config.move_time_max.as_micros()).unwrap_or(u64::MAX),
        copies: config.copies,
    };
    let (directory, zero) = (directory(&config)?, Instant::now());
    let events = listen(&config)?;
    let interval_us = u64::try_from(config.reads_interval.as_micros()).unwrap_or(u64::MAX);
    let balancing = Balancing { policy: config.reads, interval_us };
    let coordinator = Coordinator::new(directory, terms, policy, 0).with_balancing(balancing, 0);
    let mut running = Running { coordinator, streams: HashMap::new(), zero, config };
    while !is_over() {
        match events.recv_timeout(TICK) {
            Ok(event) => {
                std::iter::once(event).chain(events.try_iter()).try_for_each(|it| running.take(it))?
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        running.handle(Input::Tick)?;
    }
    if let Address::Unix(path) = &running.config.listen {
        let _ = fs::remove_file(path);
    }
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

/// The directory on disk, or a new one.
fn directory(config: &CoordinatorConfig) -> Result<Directory, CoordinatorError> {
    let path = &config.directory;
    let wrong = |error| CoordinatorError::Directory { path: path.clone(), error };
    match fs::read(path) {
        Ok(bytes) => Directory::decode(&bytes).map_err(wrong),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let node = |(id, (unit, address)): (u32, &(u32, String))| Node {
                id: ServerId(id),
                unit: UnitId(*unit),
                standing: Standing::Member,
                address: address.clone(),
            };
            let micro_shards = MicroShards::new(config.micro_shards.max(1));
            let micro_shards = micro_shards.expect("there is one at least");
            Directory::new(micro_shards, config.copies, (0..).zip(&config.nodes).map(node).collect())
                .map_err(wrong)
        }
        Err(error) => Err(CoordinatorError::Io { path: path.clone(), error }),
    }
}

/// Listens; what it hears comes as events.
fn listen(config: &CoordinatorConfig) -> Result<Receiver<Event>, CoordinatorError> {
    let (sender, events) = channel();
    let hello = node_hello(&config.rack, config.micro_shards, config.lease);
    let ears = Ears { hello, events: sender };
    let listening = match &config.listen {
        Address::Unix(path) => listen_here(path, ears),
        Address::Tcp(_) => listen_to_proven(config, ears),
    };
    listening.map_err(|error| CoordinatorError::Listen { address: config.listen.clone(), error })?;
    Ok(events)
}

/// Hears the processes of this user.
fn listen_here(path: &Path, ears: Ears) -> io::Result<()> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another coordinator is there"));
    }
    let listener = frames::listen_privately(path)?;
    // It ends with the process.
    let accept = move || {
        listener.incoming().flatten().for_each(|stream| ears.hear(ControlStream::plain(stream)));
    };
    thread::Builder::new().name("minos-accept".to_owned()).spawn(accept).map(drop)
}

/// Hears those who prove to know the secret.
fn listen_to_proven(config: &CoordinatorConfig, ears: Ears) -> io::Result<()> {
    if config.secrets.is_empty() {
        return Err(io::Error::other("whoever reaches it could move and drop items: a secret is needed"));
    }
    let (listener, keys) = (Listener::bind(&config.listen)?, Keys::new(&config.rack, &config.secrets));
    let here: (&[Purpose], u16) = (&[Purpose::Control], COORDINATOR);
    let mut handshakes = Handshakes::new((listener, keys), here, Kernel.poller()?);
    let accept = move || {
        let counters = GateCounters::default();
        let mut turn = || {
            handshakes.sleep(None);
            handshakes.turn(&counters, |sealed, ends| ears.hear(ControlStream::sealed(sealed, ends.from)))
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
    hello: String,
    events: Sender<Event>,
}

impl Ears {
    fn hear(&self, stream: io::Result<ControlStream>) {
        let (hello, events) = (self.hello.clone(), self.events.clone());
        let heard = stream.and_then(|stream| {
            let hear = move || {
                if let Err(error) = hear(stream, &hello, &events) {
                    tracing::debug!(%error, "a stream ends");
                }
            };
            thread::Builder::new().name("minos-heard".to_owned()).spawn(hear)
        });
        if let Err(error) = heard {
            tracing::warn!(%error, "a node is not heard");
        }
    }
}

/// Hears one stream until it ends.
fn hear(mut stream: ControlStream, hello: &str, events: &Sender<Event>) -> io::Result<()> {
    let gone = |_| io::Error::other("the coordinator has ended");
    stream.set_receive_max(Some(HELLO_MAX))?;
    let line = frames::receive_line(&mut stream, HELLO_BYTES_MAX)?;
    if line == OPERATOR {
        let line = frames::receive_line(&mut stream, HELLO_BYTES_MAX)?;
        let (sender, answer) = channel();
        events.send(Event::Operator(line, sender)).map_err(gone)?;
        let answer = answer.recv().map_err(io::Error::other)?;
        return stream.write_all(answer.as_bytes());
    }
    if line != hello {
        let (line, expected) = (line.trim(), hello.trim());
        tracing::warn!(line, expected, "a node of another rack, or with other micro-shards or another lease");
        return Ok(());
    }
    stream.set_receive_max(None)?;
    let mut back = Some(stream.try_clone()?);
    loop {
        let report = match frames::receive(&mut stream)? {
            Packet::Report(report) if stream.may_be(report.node.0) => report,
            _ => return Err(io::Error::other("not a report of its node")),
        };
        events.send(Event::Report(report, back.take())).map_err(gone)?;
    }
}

impl Running {
    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    /// Takes a report or a command. What they change comes with the next tick.
    fn take(&mut self, event: Event) -> Result<(), CoordinatorError> {
        match event {
            Event::Report(report, back) => {
                let sending = back.map(|stream| (report.node, Sending { stream, directory: None }));
                self.streams.extend(sending);
                let mut effects = Vec::new();
                self.coordinator.hear(self.now_us(), report, &mut effects);
                self.perform(effects).map(drop)
            }
            Event::Operator(line, answer) => {
                // An operator who does not wait for the answer gets none.
                let _ = answer.send(self.obey(&line));
                Ok(())
            }
        }
    }

    /// Gives an input to the state machine, and does what it says.
    fn handle(&mut self, input: Input) -> Result<(), CoordinatorError> {
        let mut next = Some(input);
        while let Some(input) = next {
            let mut effects = Vec::new();
            self.coordinator.handle(self.now_us(), input, &mut effects);
            next = self.perform(effects)?;
        }
        Ok(())
    }

    /// Does what the state machine says; returns what it is to be told then.
    fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<Input>, CoordinatorError> {
        let mut next = None;
        for effect in effects {
            match effect {
                Effect::Persist(directory) => {
                    let path = &self.config.directory;
                    persist(path, &directory.encode())
                        .map_err(|error| CoordinatorError::Io { path: path.clone(), error })?;
                    next = Some(Input::Persisted(directory.epoch()));
                }
                Effect::Send(to, orders) => self.send(to, orders),
            }
        }
        Ok(next)
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

    /// The answer to an operator's line.
    fn obey(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["status"] => return self.status(),
            ["where", key] => return self.place(key),
            _ => {}
        }
        let Some(command) = command(&words) else {
            return format!("error: not a command: {}\n", line.trim());
        };
        match self.coordinator.command(command) {
            Ok(()) => "ok\n".to_owned(),
            Err(refused) => format!("error: {refused}\n"),
        }
    }

    fn place(&self, key: &str) -> String {
        let directory = self.coordinator.directory();
        let hash = hash_key(key.as_bytes(), direction_seed(&self.config.rack));
        let micro_shard = directory.micro_shards().of(hash);
        let node =
            directory.writer(hash).map_or("on its way".to_owned(), |node| format!("node {}", node.id.0));
        format!("micro-shard {} {node}\n", micro_shard.0)
    }

    fn status(&self) -> String {
        let (moves, waiting) = self.coordinator.moves();
        let directory = self.coordinator.directory();
        let mut text = format!("epoch {}\nmoves {moves}\nwaiting {waiting}\n", directory.epoch());
        if directory.copies() > 1 {
            let micro_shards = || directory.micro_shards().iter();
            let wanted: usize = micro_shards().map(|it| directory.wanted(it).count()).sum();
            let safe = micro_shards().flat_map(|it| directory.followers(it)).filter(|it| it.is_safe).count();
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
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "node {id} unit {unit} {standing} {lease} epoch {} micro-shards {} lacking {}",
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

/// Replaces the file by these bytes: after a crash it has the old or the new ones.
fn persist(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
