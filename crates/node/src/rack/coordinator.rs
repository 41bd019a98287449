//! The process that drives a rack's coordinator: it hears the nodes, keeps the directory on disk, and obeys operators.
//!
//! Its socket takes three kinds of streams, told apart by their first line: that of a node, which reports and gets orders,
//! and that of an operator, who writes a line and reads the answer.

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
use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};
use minos_unit::{
    Balancing, Command, Coordinator, Directory, Node, Orders, Packet, Policy, Report, Standing,
    control::{Effect, Input},
};

use super::{
    config::direction_seed,
    frames,
    member::{HELLO_BYTES_MAX, SEND_MAX, node_hello, terms},
};

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
    /// The Unix socket at which nodes and operators find it.
    pub socket: PathBuf,
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
    /// Micro-shards that move at a time.
    pub moves_max: usize,
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
    /// A file or a socket cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// The file or socket.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// What the coordinator's thread is told.
enum Event {
    Report(Report, UnixStream, u64),
    Operator(String, Sender<String>),
}

/// The way back to a node.
struct Sending {
    stream: UnixStream,
    /// Number of the stream.
    number: u64,
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
    let _ = fs::remove_file(&running.config.socket);
    Ok(())
}

/// Sends an operator's line to a coordinator; returns its answer.
///
/// # Errors
/// The coordinator cannot be reached, or does not answer within five seconds.
pub fn ask(socket: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
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
            Directory::new(micro_shards, 1, (0..).zip(&config.nodes).map(node).collect()).map_err(wrong)
        }
        Err(error) => Err(CoordinatorError::Io { path: path.clone(), error }),
    }
}

/// Opens the socket; what it hears comes as events.
fn listen(config: &CoordinatorConfig) -> Result<Receiver<Event>, CoordinatorError> {
    let path = &config.socket;
    let failed = |error| CoordinatorError::Io { path: path.clone(), error };
    if UnixStream::connect(path).is_ok() {
        return Err(failed(io::Error::new(io::ErrorKind::AddrInUse, "another coordinator is there")));
    }
    let listener = frames::listen_privately(path).map_err(failed)?;
    let (sender, events) = channel();
    let hello = node_hello(&config.rack, config.micro_shards, config.lease);
    let accept = move || {
        for (number, stream) in (0..).zip(listener.incoming().flatten()) {
            let (sender, hello) = (sender.clone(), hello.clone());
            let hear = move || {
                if let Err(error) = hear((stream, number), &hello, &sender) {
                    tracing::debug!(%error, "a stream ends");
                }
            };
            if let Err(error) = thread::Builder::new().name("minos-heard".to_owned()).spawn(hear) {
                tracing::warn!(%error, "a node is not heard");
            }
        }
    };
    // It ends with the process.
    drop(thread::Builder::new().name("minos-accept".to_owned()).spawn(accept).map_err(failed)?);
    Ok(events)
}

/// Hears one stream until it ends.
fn hear((mut stream, number): (UnixStream, u64), hello: &str, events: &Sender<Event>) -> io::Result<()> {
    let gone = |_| io::Error::other("the coordinator has ended");
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
    stream.set_write_timeout(Some(SEND_MAX))?;
    loop {
        let Packet::Report(report) = frames::receive(&mut stream)? else {
            return Err(io::Error::other("not a report"));
        };
        events.send(Event::Report(report, stream.try_clone()?, number)).map_err(gone)?;
    }
}

impl Running {
    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    /// Takes a report or a command. What they change comes with the next tick.
    fn take(&mut self, event: Event) -> Result<(), CoordinatorError> {
        match event {
            Event::Report(report, stream, number) => {
                let known = self.streams.get(&report.node).is_some_and(|known| known.number == number);
                if !known {
                    self.streams.insert(report.node, Sending { stream, number, directory: None });
                }
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
            let _ = stream.shutdown(std::net::Shutdown::Both);
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
        let mut text =
            format!("epoch {}\nmoves {moves}\nwaiting {waiting}\n", self.coordinator.directory().epoch());
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
