//! The thread that passes this node's memory to the other nodes of its unit, and attaches theirs.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt, net::UnixStream},
    },
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_engine::{Engine, Mode, ReadOnly};
#[cfg(feature = "ucx")]
use minos_fabric::ucx::UcxMemory;
use minos_net::{Accepted, Listener, Progress, Socket, WAIT_MAX, Wait, pass_file, take_file, wait_readable};

#[cfg(feature = "ucx")]
use super::fabric::{self, Advertisement};
use super::{
    config::{RackConfig, RackFabric},
    owners::Rack,
};
use crate::{
    server::{Stop, control::Seldom},
    tcp::connection::Stream,
};

/// Time until a node that is not attached is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Time between two lines of the log about memory that is not passed.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Longest sleep. Streams beyond [`WAIT_MAX`] are not watched, and closed at the next wake-up.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Time that another node has to pass its memory.
const PASS_MAX: Duration = Duration::from_millis(200);

/// This node's memory, to be read only, as it is passed to others.
pub(crate) enum Passed {
    /// It is mapped by a descriptor.
    Descriptor(OwnedFd),
    /// It is read by UCX.
    #[cfg(feature = "ucx")]
    Ucx(Arc<UcxMemory>),
}

impl Passed {
    /// The memory of a node's table.
    ///
    /// # Errors
    /// It cannot be read by others.
    pub(crate) fn of<M: Mode>(store: &Engine<M>, fabric: &RackFabric) -> io::Result<Self> {
        match fabric {
            RackFabric::Mapped => store.descriptor_to_read().map(Self::Descriptor),
            #[cfg(feature = "ucx")]
            RackFabric::Ucx(memory) => Ok(Self::Ucx(Arc::clone(memory))),
        }
    }

    /// As other nodes read it.
    ///
    /// # Errors
    /// This process cannot map it once more.
    pub(super) fn table<M: Mode>(self) -> io::Result<ReadOnly<M>> {
        match self {
            Self::Descriptor(memory) => ReadOnly::from_descriptor(memory).map_err(io::Error::other),
            #[cfg(feature = "ucx")]
            Self::Ucx(memory) => fabric::own_table(&memory),
        }
    }

    fn pass(&self, stream: &Socket) -> io::Result<()> {
        match self {
            Self::Descriptor(memory) => pass_file(stream, memory.as_fd()),
            #[cfg(feature = "ucx")]
            Self::Ucx(memory) => fabric::pass(stream, memory),
        }
    }
}

/// Passes memory and attaches it.
pub(crate) struct Attacher<M: Mode> {
    pub(crate) rack: Arc<Rack<M>>,
    pub(crate) store: Arc<Engine<M>>,
    /// For nodes of this machine.
    pub(crate) listener: Option<Listener>,
    pub(crate) memory: Passed,
    pub(crate) stop: Arc<Stop>,
}

impl<M: Mode> Attacher<M> {
    /// Runs until the server is to stop.
    pub(crate) fn run(self) {
        // Each end holds a stream as long as it lives: its end tells the other.
        let (mut served, mut log) = (Vec::new(), Seldom::new(LINE_EVERY));
        let mut attached: Vec<Attached<M>> = Vec::new();
        let mut missing: Vec<Missing> = self.rack.unit().map(Missing::new).collect();
        while !self.stop.is_requested() {
            self.pass(&mut served, &mut log);
            self.attach(&mut missing, &mut attached);
            let sleep = if missing.is_empty() { SLEEP_MAX } else { RETRY };
            if self.wait(&attached, &served, sleep).is_err() {
                std::thread::sleep(RETRY);
            }
            served.retain(is_there);
            attached.retain_mut(|one| {
                let is_there = one.stream.receive(&mut [0]) == Progress::Blocked;
                if !is_there {
                    missing.push(Missing::new(one.node));
                    self.note_loss(one);
                }
                is_there
            });
        }
    }

    /// A node is gone. If its memory is a file or at a keeper, the node continues with it when it comes back, and first
    /// says in it that it is not to be read: until then all its items are there. Other memory is not used again.
    fn note_loss(&self, Attached { node, is_file, memory, .. }: &Attached<M>) {
        if *is_file || memory.table().is_some_and(|table| table.is_kept()) {
            self.rack.lose(*node, "attached, but its node is gone");
            tracing::warn!(node, "a node of the unit is gone; its items are read on");
        } else {
            self.rack.attach(*node, None, "gone");
            tracing::warn!(node, "a node of the unit is gone, and its items with it");
        }
    }

    /// Passes this node's memory to those who have asked for it.
    fn pass(&self, served: &mut Vec<Socket>, log: &mut Seldom) {
        let Some(listener) = &self.listener else { return };
        while let Ok(Accepted::Connection(stream)) = listener.accept() {
            match self.memory.pass(&stream) {
                Ok(()) => served.push(stream),
                Err(error) => {
                    // Who has not got it asks again soon.
                    if let Some(times) = log.happened(Instant::now()) {
                        tracing::warn!(%error, times, "this node's memory is not passed");
                    }
                }
            }
        }
    }

    fn attach(&self, missing: &mut Vec<Missing>, attached: &mut Vec<Attached<M>>) {
        missing.retain_mut(|it| match attach(&self.rack, &self.store, it.node) {
            Ok(one) => {
                let node = it.node;
                match &one.memory {
                    Memory::Mapped(table) => self.rack.attach(node, Some(Arc::clone(table)), "attached"),
                    #[cfg(feature = "ucx")]
                    Memory::Afar(said) => self.rack.attach_afar(node, Arc::clone(said)),
                }
                tracing::info!(node, "the memory of a node of the unit is attached");
                attached.push(one);
                false
            }
            Err(error) => {
                it.say(&error);
                true
            }
        });
    }

    fn wait(&self, attached: &[Attached<M>], served: &[Socket], sleep: Duration) -> io::Result<bool> {
        let own = self.listener.iter().map(Listener::as_fd).chain([self.stop.descriptor()]);
        let streams = attached.iter().map(|one| one.stream.as_fd()).chain(served.iter().map(Socket::as_fd));
        let descriptors: Vec<BorrowedFd<'_>> = own.chain(streams).take(WAIT_MAX).collect();
        wait_readable(&descriptors, Wait::For(sleep))
    }
}

/// Attaches the memory of a node.
///
/// # Errors
/// The node cannot be reached, or its memory is not one that this node could read.
pub(super) fn attach<M: Mode>(rack: &Rack<M>, store: &Engine<M>, node: usize) -> io::Result<Attached<M>> {
    let Held { stream, memory, is_file } = match rack.config.memory_path(node) {
        Some(path) => take_here(&rack.config.fabric, &path)?,
        None => take_there(&rack.config, node)?,
    };
    if memory.table().is_some_and(|table| table.hash(b"minos") != store.hash(b"minos")) {
        rack.lose(node, "refused: it hashes keys otherwise (--hash-seed)");
        return Err(io::Error::other("it hashes keys otherwise"));
    }
    if memory.table().is_some_and(|table| table.micro_shards() != rack.config.micro_shards) {
        rack.lose(node, "refused: it has other micro-shards (--micro-shards)");
        return Err(io::Error::other("it has other micro-shards"));
    }
    Ok(Attached { node, stream, memory, is_file })
}

/// What a node passes at a Unix socket.
fn take_here<M: Mode>(fabric: &RackFabric, path: &Path) -> io::Result<Held<M>> {
    // A node that is stopped accepts nothing: whoever waited for it would see no other node, and no end of the server.
    let stream = UnixStream::from(OwnedFd::from(Socket::connect(path)?));
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PASS_MAX))?;
    let (memory, is_file) = match fabric {
        RackFabric::Mapped => {
            let memory = take_file(&stream)?;
            let is_file = File::from(memory.try_clone()?).metadata()?.nlink() > 0;
            let table = ReadOnly::from_descriptor(memory).map_err(io::Error::other)?;
            (Memory::Mapped(Arc::new(table)), is_file)
        }
        #[cfg(feature = "ucx")]
        RackFabric::Ucx(own) => (Advertisement::take(&stream)?.memory(own)?, false),
    };
    stream.set_nonblocking(true)?;
    let stream = Stream::Plain(Socket::from_nonblocking(stream.into()));
    Ok(Held { stream, memory, is_file })
}

/// What a node passes that is found at an address, where it must prove to be one.
fn take_there<M: Mode>(config: &RackConfig, _node: usize) -> io::Result<Held<M>> {
    match &config.fabric {
        RackFabric::Mapped => Err(io::ErrorKind::Unsupported.into()),
        #[cfg(feature = "ucx")]
        RackFabric::Ucx(own) => {
            let (said, stream) = Advertisement::ask(config, _node, PASS_MAX)?;
            let stream = Stream::Sealed(Box::new(stream));
            Ok(Held { stream, memory: said.memory(own)?, is_file: false })
        }
    }
}

/// What a node has passed.
struct Held<M: Mode> {
    stream: Stream,
    memory: Memory<M>,
    is_file: bool,
}

/// The memory of another node.
pub(super) enum Memory<M: Mode> {
    Mapped(Arc<ReadOnly<M>>),
    /// It is read without being mapped.
    #[cfg(feature = "ucx")]
    Afar(Arc<Advertisement>),
}

impl<M: Mode> Memory<M> {
    /// The table, if it is mapped.
    pub(super) fn table(&self) -> Option<&Arc<ReadOnly<M>>> {
        match self {
            Self::Mapped(table) => Some(table),
            #[cfg(feature = "ucx")]
            Self::Afar(_) => None,
        }
    }
}

/// The attached memory of another node.
pub(super) struct Attached<M: Mode> {
    node: usize,
    /// Ends with that node.
    stream: Stream,
    pub(super) memory: Memory<M>,
    /// It is a file, which outlives the node.
    is_file: bool,
}

/// A node whose memory is not attached.
struct Missing {
    node: usize,
    /// Why it is refused, as it was said last.
    said: String,
}

impl Missing {
    fn new(node: usize) -> Self {
        Self { node, said: String::new() }
    }

    /// Says why it is not attached. It is tried often: the same refusal is said once, and that a node is not there at all
    /// is no news.
    fn say(&mut self, error: &io::Error) {
        let (node, text) = (self.node, error.to_string());
        let is_refused = matches!(
            error.kind(),
            io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied
        );
        if is_refused && text != self.said {
            tracing::warn!(node, %error, "the memory of a node of the unit is not attached");
            self.said = text;
        } else {
            tracing::debug!(node, %error, "the memory of a node of the unit is not attached");
        }
    }
}

/// False once the other end has closed. It sends nothing.
fn is_there(stream: &Socket) -> bool {
    stream.receive(&mut [0]) == Progress::Blocked
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, sync::mpsc::channel};

    use minos_engine::{StoreConfig, StoreMode};
    use minos_net::Address;

    use super::*;

    #[test]
    fn a_node_that_is_stopped_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = RackConfig::of_units(0, &[0, 0], 4);
        config.nodes[1].address = Address::Unix(folder.path().join("1"));
        let path = config.memory_path(1).unwrap();
        let rack = Rack::<StoreMode>::new(config, 1);
        let store = Engine::<StoreMode>::create(&StoreConfig::new(8 << 20)).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        let (ended, ends) = channel();
        std::thread::spawn(move || {
            // One that passes nothing, and one at which too many wait for that.
            for fills in [false, true] {
                while fills && Socket::connect(&path).is_ok() {}
                ended.send(attach(&rack, &store, 1).map(drop).unwrap_err().kind()).unwrap();
            }
        });
        for _ in 0..2 {
            let end = ends.recv_timeout(Duration::from_secs(60)).expect("it waits");
            assert_eq!(end, io::ErrorKind::WouldBlock);
        }
    }
}
