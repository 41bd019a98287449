//! The streams on which a node talks to the coordinator and to other nodes. What is lost is said again.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs, io,
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    thread,
    time::Duration,
};

use minos_rack::ServerId;
use minos_unit::{Directory, Message, Packet, Report};

use super::Event;
use crate::{
    rack::{
        config::{Managed, RackConfig, RackNode},
        frames,
    },
    server::Stop,
};

/// Time that the other end of a stream has to take a packet.
pub(crate) const SEND_MAX: Duration = Duration::from_millis(200);
/// Time after which a stream that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// Most bytes of the first line of a stream.
pub(crate) const HELLO_BYTES_MAX: usize = 256;

/// The socket at which the node with this socket for commands hears other nodes.
fn control_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".control");
    name.into()
}

/// The first line to the coordinator.
pub(crate) fn node_hello(rack: &str, micro_shards: u32, lease: Duration) -> String {
    format!("minos-node 1 {rack} {micro_shards} {}\n", lease.as_micros())
}

/// A node's streams.
pub(super) struct Transport {
    rack: String,
    /// Of the nodes on this machine.
    paths: Vec<Option<PathBuf>>,
    peers: HashMap<ServerId, UnixStream>,
    id: ServerId,
    coordinator: Arc<Mutex<Option<UnixStream>>>,
    /// Removed at the end.
    listens_at: PathBuf,
}

impl Transport {
    /// The streams of a node; `events` gets what arrives.
    ///
    /// # Errors
    /// The node's socket cannot be made.
    pub(super) fn new(
        config: &RackConfig,
        managed: &Managed,
        stop: Arc<Stop>,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let path = |node: &RackNode| node.path().map(control_path);
        let paths: Vec<_> = config.nodes.iter().map(path).collect();
        let listens_at = paths[config.node].clone().ok_or(io::ErrorKind::Unsupported)?;
        // Nobody else has this node's lock on its socket for commands.
        let listener = frames::listen_privately(&listens_at)?;
        let coordinator = Arc::default();
        let calling = Calling {
            path: managed.coordinator.clone(),
            hello: node_hello(&config.name, config.micro_shards, managed.lease),
            stream: Arc::clone(&coordinator),
            events: events.clone(),
            stop,
        };
        let rack = config.name.clone();
        let name = |name: &str| thread::Builder::new().name(name.to_owned());
        // They end with the process: they hold nothing that must be given back.
        drop(name("minos-peers").spawn(move || hear_peers(&listener, &rack, &events))?);
        drop(name("minos-orders").spawn(move || calling.run())?);
        let id = ServerId(config.node as u32);
        Ok(Self { rack: config.name.clone(), paths, peers: HashMap::new(), id, coordinator, listens_at })
    }

    /// Sends a message to a node, unless it cannot be reached.
    pub(super) fn send(&mut self, to: ServerId, message: Message) {
        let packet = Packet::Message(self.id, message);
        // A stream may have ended since it was used last.
        for _ in 0..2 {
            let stream = match self.peers.remove(&to) {
                Some(stream) => Ok(stream),
                None => self.call(to),
            };
            let Ok(mut stream) = stream else { return };
            if frames::send(&mut stream, &packet).is_ok() {
                self.peers.insert(to, stream);
                return;
            }
        }
    }

    fn call(&self, to: ServerId) -> io::Result<UnixStream> {
        let path = self.paths.get(to.0 as usize).and_then(Option::as_ref).ok_or(io::ErrorKind::NotFound)?;
        let mut stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(SEND_MAX))?;
        stream.write_all(peer_hello(&self.rack).as_bytes())?;
        Ok(stream)
    }

    /// Sends a report to the coordinator, unless it cannot be reached.
    pub(super) fn report(&mut self, report: Report) {
        let mut stream = self.coordinator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &mut *stream
            && frames::send(open, &Packet::Report(report)).is_err()
        {
            *stream = None;
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.listens_at);
    }
}

fn peer_hello(rack: &str) -> String {
    format!("minos-control 1 {rack}\n")
}

/// Takes in the streams of other nodes, each with a thread that hears it.
fn hear_peers(listener: &UnixListener, rack: &str, events: &Sender<Event>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let (expected, events) = (peer_hello(rack), events.clone());
        let hear = move || {
            let line = frames::receive_line(&mut stream, HELLO_BYTES_MAX);
            if line.is_ok_and(|line| line == expected) {
                pass_on(&mut stream, &events);
            }
        };
        if let Err(error) = thread::Builder::new().name("minos-peer".to_owned()).spawn(hear) {
            tracing::warn!(%error, "another node is not heard");
        }
    }
}

/// Passes on what comes, until the stream ends or nobody listens.
fn pass_on(stream: &mut UnixStream, events: &Sender<Event>) {
    while let Ok(packet) = frames::receive(stream) {
        if events.send(Event::Packet(packet)).is_err() {
            return;
        }
    }
}

/// The thread that calls the coordinator, and hears it.
struct Calling {
    path: PathBuf,
    hello: String,
    stream: Arc<Mutex<Option<UnixStream>>>,
    events: Sender<Event>,
    stop: Arc<Stop>,
}

impl Calling {
    fn run(self) {
        let mut was_there = true;
        while !self.stop.is_requested() {
            match self.call() {
                Ok(mut stream) => {
                    tracing::info!("the coordinator of the rack is there");
                    was_there = true;
                    self.hear(&mut stream);
                    *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                Err(error) if was_there => {
                    tracing::warn!(%error, path = %self.path.display(), "the coordinator of the rack cannot be reached");
                    was_there = false;
                }
                Err(_) => {}
            }
            thread::sleep(RETRY);
        }
    }

    /// Passes on the orders that come, with the directories that patches make.
    fn hear(&self, stream: &mut UnixStream) {
        let mut directory: Option<Arc<Directory>> = None;
        while let Ok(packet) = frames::receive(stream) {
            let packet = match packet {
                Packet::Patch(patch) => {
                    let Some(Ok(next)) = directory.as_ref().map(|known| known.patched(&patch)) else {
                        return;
                    };
                    directory = Some(Arc::new(next));
                    continue;
                }
                Packet::Orders(mut orders) => {
                    match &orders.directory {
                        Some(whole) => directory = Some(Arc::clone(whole)),
                        None => orders.directory = directory.clone().filter(|it| it.epoch() == orders.epoch),
                    }
                    Packet::Orders(orders)
                }
                other => other,
            };
            if self.events.send(Event::Packet(packet)).is_err() {
                return;
            }
        }
    }

    fn call(&self) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_write_timeout(Some(SEND_MAX))?;
        stream.write_all(self.hello.as_bytes())?;
        let heard = stream.try_clone()?;
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        Ok(heard)
    }
}
