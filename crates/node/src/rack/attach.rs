//! The thread that passes this node's memory to the other nodes of its unit, and attaches theirs.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use minos_engine::{Engine, Mode, ReadOnly};
use minos_net::{Accepted, Listener, Progress, Socket, WAIT_MAX, Wait, pass_file, take_file, wait_readable};

use super::owners::Rack;
use crate::server::Stop;

/// Time until a node that is not attached is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Longest sleep. Streams beyond [`WAIT_MAX`] are not watched, and closed at the next wake-up.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Time that another node has to pass its memory.
const PASS_MAX: Duration = Duration::from_millis(200);

/// The socket at which the node with this socket for commands passes its memory.
pub(crate) fn memory_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".memory");
    name.into()
}

/// Passes memory and attaches it.
pub(crate) struct Attacher<M: Mode> {
    pub(crate) rack: Arc<Rack<M>>,
    pub(crate) store: Arc<Engine<M>>,
    pub(crate) listener: Listener,
    /// This node's memory, to be read only.
    pub(crate) memory: OwnedFd,
    pub(crate) stop: Arc<Stop>,
}

impl<M: Mode> Attacher<M> {
    /// Runs until the server is to stop.
    pub(crate) fn run(self) {
        // Each end holds a stream as long as it lives: its end tells the other.
        let mut served = Vec::new();
        let mut attached: Vec<Attached<M>> = Vec::new();
        let mut missing: Vec<usize> = self.rack.unit().collect();
        while !self.stop.is_requested() {
            self.pass(&mut served);
            self.attach(&mut missing, &mut attached);
            let sleep = if missing.is_empty() { SLEEP_MAX } else { RETRY };
            if self.wait(&attached, &served, sleep).is_err() {
                std::thread::sleep(RETRY);
            }
            served.retain(is_there);
            attached.retain(|one| {
                let is_there = is_there(&one.stream);
                if !is_there {
                    missing.push(one.node);
                    self.note_loss(one);
                }
                is_there
            });
        }
    }

    /// A node is gone. If its memory is a file or at a keeper, the node continues with it when it comes back, and first
    /// says in it that it is not to be read: until then all its items are there. Other memory is not used again.
    fn note_loss(&self, Attached { node, is_file, table, .. }: &Attached<M>) {
        if *is_file || table.is_kept() {
            self.rack.lose(*node, "attached, but its node is gone");
            tracing::warn!(node, "a node of the unit is gone; its items are read on");
        } else {
            self.rack.attach(*node, None, "gone");
            tracing::warn!(node, "a node of the unit is gone, and its items with it");
        }
    }

    /// Passes this node's memory to those who have asked for it.
    fn pass(&self, served: &mut Vec<Socket>) {
        while let Ok(Accepted::Connection(stream)) = self.listener.accept() {
            match pass_file(&stream, self.memory.as_fd()) {
                Ok(()) => served.push(stream),
                Err(error) => tracing::warn!(%error, "this node's memory is not passed"),
            }
        }
    }

    fn attach(&self, missing: &mut Vec<usize>, attached: &mut Vec<Attached<M>>) {
        missing.retain(|&node| match attach(&self.rack, &self.store, node) {
            Ok(one) => {
                self.rack.attach(node, Some(Arc::clone(&one.table)), "attached");
                tracing::info!(node, "the memory of a node of the unit is attached");
                attached.push(one);
                false
            }
            Err(error) => {
                tracing::debug!(node, %error, "the memory of a node of the unit is not attached");
                true
            }
        });
    }

    fn wait(&self, attached: &[Attached<M>], served: &[Socket], sleep: Duration) -> io::Result<bool> {
        let own = [self.listener.as_fd(), self.stop.descriptor()];
        let streams = attached.iter().map(|one| one.stream.as_fd()).chain(served.iter().map(Socket::as_fd));
        let descriptors: Vec<BorrowedFd<'_>> = own.into_iter().chain(streams).take(WAIT_MAX).collect();
        wait_readable(&descriptors, Wait::For(sleep))
    }
}

/// Attaches the memory of a node.
///
/// # Errors
/// The node cannot be reached, or its memory is not one that this node could read.
pub(super) fn attach<M: Mode>(rack: &Rack<M>, store: &Engine<M>, node: usize) -> io::Result<Attached<M>> {
    let other = rack.config.nodes.get(node).ok_or_else(|| io::Error::other("there is no such node"))?;
    let path = other.path().ok_or(io::ErrorKind::Unsupported)?;
    // A node that is stopped accepts nothing: whoever waited for it would see no other node, and no end of the server.
    let stream = UnixStream::from(OwnedFd::from(Socket::connect(&memory_path(path))?));
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PASS_MAX))?;
    let memory = take_file(&stream)?;
    let is_file = File::from(memory.try_clone()?).metadata()?.nlink() > 0;
    let table = ReadOnly::<M>::from_descriptor(memory).map_err(io::Error::other)?;
    if table.hash(b"minos") != store.hash(b"minos") {
        rack.lose(node, "refused: it hashes keys otherwise (--hash-seed)");
        return Err(io::Error::other("it hashes keys otherwise"));
    }
    if table.micro_shards() != rack.config.micro_shards {
        rack.lose(node, "refused: it has other micro-shards (--micro-shards)");
        return Err(io::Error::other("it has other micro-shards"));
    }
    stream.set_nonblocking(true)?;
    let stream = Socket::from_nonblocking(stream.into());
    Ok(Attached { node, stream, table: Arc::new(table), is_file })
}

/// The attached memory of another node.
pub(super) struct Attached<M: Mode> {
    node: usize,
    /// Ends with that node.
    stream: Socket,
    pub(super) table: Arc<ReadOnly<M>>,
    /// The memory is a file, which outlives the node.
    is_file: bool,
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
    use crate::rack::config::RackConfig;

    #[test]
    fn a_node_that_is_stopped_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        let mut config = RackConfig::of_units(0, &[0, 0], 4);
        config.nodes[1].address = Address::Unix(path.clone());
        let rack = Rack::<StoreMode>::new(config, 1);
        let store = Engine::<StoreMode>::create(&StoreConfig::new(8 << 20)).unwrap();
        let _listener = UnixListener::bind(memory_path(&path)).unwrap();
        let (ended, ends) = channel();
        std::thread::spawn(move || {
            // One that passes nothing, and one at which too many wait for that.
            for fills in [false, true] {
                while fills && Socket::connect(&memory_path(&path)).is_ok() {}
                ended.send(attach(&rack, &store, 1).map(drop).unwrap_err().kind()).unwrap();
            }
        });
        for _ in 0..2 {
            let end = ends.recv_timeout(Duration::from_secs(60)).expect("it waits");
            assert_eq!(end, io::ErrorKind::WouldBlock);
        }
    }
}
