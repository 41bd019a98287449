//! The keeper's process: one thread accepts, and each connection has one.

use std::{
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use minos_base::SizeText;
use minos_net::{Address, Listener, Wait, check_user, pass_file, wait_readable};
use rustix::net::{RecvFlags, recv};
use signal_hook::{
    consts::{SIGHUP, TERM_SIGNALS},
    flag,
    low_level::pipe,
};

use super::{
    KeeperArgs,
    memories::{Hold, Memories, Refusal},
    wire::{LINE_BYTES_MAX, Pages, Request, read_line},
};
use crate::serve::memory_of_machine;

/// Time for which a connection may be silent that has no memory, and in which a reply must be taken.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Wait after a failed accept: the process may have run out of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What all connections share.
struct Keeper {
    memories: Mutex<Memories<Holder>>,
    connections: AtomicUsize,
    /// Connections that were refused: too many, or another user's.
    refused: AtomicU64,
}

/// A process that has a memory as long as its connection lives.
#[derive(Clone, Debug)]
struct Holder {
    stream: Arc<UnixStream>,
    pid: u32,
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stream, &other.stream)
    }
}

impl Hold for Holder {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_there(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&self.stream, &mut [0; 1][..], flags), Ok((0, _)) | Err(rustix::io::Errno::CONNRESET))
    }
}

/// Keeps memory until a signal comes.
pub(super) fn run(args: &KeeperArgs) -> anyhow::Result<()> {
    let path = args.listen.as_ref().context("--listen is missing")?;
    let listener = Listener::bind_private(&Address::Unix(path.clone()));
    let listener = listener.with_context(|| format!("--listen {}", path.display()))?;
    let (signalled, signal) = UnixStream::pair()?;
    // The end of a terminal, or of a habit to reload, is no reason to give memory up.
    flag::register(SIGHUP, Arc::default())?;
    for number in TERM_SIGNALS {
        pipe::register(*number, signal.try_clone()?)?;
    }
    let bytes_max =
        args.memory_max.unwrap_or_else(|| SizeText(memory_of_machine().unwrap_or(u64::MAX) >> 20 << 20)).0;
    ensure!(bytes_max > 0, "--memory-max 0: no memory could be kept");
    let keeper = Arc::new(Keeper {
        memories: Mutex::new(Memories::new(bytes_max, args.max_memories.get())),
        connections: AtomicUsize::new(0),
        refused: AtomicU64::new(0),
    });
    // A duplicate, for the standard library; the listener removes the path at its end.
    let door = UnixListener::from(listener.as_fd().try_clone_to_owned()?);
    println!("listening on keeper {}", path.display());
    tracing::info!(memory_max = %SizeText(bytes_max), "keeping");
    while !wait_readable(&[signalled.as_fd()], Wait::No)? {
        wait_readable(&[door.as_fd(), signalled.as_fd()], Wait::For(SLEEP_MAX))?;
        if let Err(error) = keeper.accept(&door, args.max_connections.get())
            && error.kind() != io::ErrorKind::WouldBlock
        {
            tracing::warn!(%error, "no connection can be accepted");
            thread::sleep(ACCEPT_AGAIN);
        }
    }
    for name in keeper.memories().end() {
        tracing::warn!(name, "a running server has this memory: it is lost when that server ends");
    }
    tracing::info!("stopped");
    Ok(())
}

impl Keeper {
    fn memories(&self) -> MutexGuard<'_, Memories<Holder>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, door: &UnixListener, connections_max: usize) -> io::Result<()> {
        let (stream, _) = door.accept()?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let pid = match check_user(stream.as_fd()) {
            Ok(pid) if self.connections.load(Relaxed) < connections_max => pid,
            Ok(_) => {
                self.refuse("too many connections; see --max-connections");
                return reply(&stream, "error the keeper has too many connections; see --max-connections");
            }
            Err(error) => {
                self.refuse(&error.to_string());
                return Ok(());
            }
        };
        self.connections.fetch_add(1, Relaxed);
        let keeper = Arc::clone(self);
        let serve = move || {
            Connection { keeper: &keeper, holder: Holder { stream: Arc::new(stream), pid }, name: None }
                .serve();
            keeper.connections.fetch_sub(1, Relaxed);
        };
        let begun = thread::Builder::new().name("minos-kept".to_owned()).spawn(serve);
        begun.map(drop).inspect_err(|_| {
            self.connections.fetch_sub(1, Relaxed);
        })
    }

    fn refuse(&self, reason: &str) {
        self.refused.fetch_add(1, Relaxed);
        tracing::warn!(reason, "a connection is refused");
    }
}

/// A process that asks, and the name that it has taken.
struct Connection<'a> {
    keeper: &'a Keeper,
    holder: Holder,
    name: Option<String>,
}

impl Connection<'_> {
    fn serve(mut self) {
        let mut line = [0; LINE_BYTES_MAX];
        loop {
            let silence = if self.name.is_some() { None } else { Some(SILENCE_MAX) };
            let stream = Arc::clone(&self.holder.stream);
            let read = stream.set_read_timeout(silence).and_then(|()| read_line(&mut &*stream, &mut line));
            let answered = match read {
                Ok(None) => break,
                Ok(Some(line)) => self.answer(line),
                Err(error) => {
                    let _ = reply(&stream, &format!("error {error}"));
                    break;
                }
            };
            if answered.is_err() {
                break;
            }
        }
        if let Some(name) = &self.name {
            self.keeper.memories().release(name, &self.holder);
            tracing::info!(name, pid = self.holder.pid, "left");
        }
    }

    /// # Errors
    /// The reply cannot be sent.
    fn answer(&mut self, line: &[u8]) -> io::Result<()> {
        let stream = Arc::clone(&self.holder.stream);
        let answer = match Request::parse(line) {
            Some(request) => self.execute(request),
            None => Err("this is no request".to_owned()),
        };
        match answer {
            Ok(Answer::Memory(fd, pages)) => {
                reply(&stream, &format!("memory {pages}"))?;
                pass_file(&*stream, fd.as_fd())
            }
            Ok(Answer::Text(text)) => reply(&stream, &text),
            Err(refusal) => {
                tracing::warn!(refusal, pid = self.holder.pid, "refused");
                reply(&stream, &format!("error {refusal}"))
            }
        }
    }

    fn execute(&mut self, request: Request<'_>) -> Result<Answer, Refusal> {
        let mut memories = self.keeper.memories();
        let mine = || self.name.as_deref().ok_or("take a name first");
        let ok = |()| Answer::Text("ok".to_owned());
        match request {
            Request::Take(name) => {
                if self.name.as_deref().is_some_and(|mine| mine != name) {
                    return Err("a connection has one name".to_owned());
                }
                let found = memories.take(name, self.holder.clone())?;
                let answer = found.map_or(Ok(Answer::Text("none".to_owned())), Answer::memory);
                drop(memories);
                if self.name.is_none() {
                    tracing::info!(name, pid = self.holder.pid, "taken");
                    self.name = Some(name.to_owned());
                }
                answer
            }
            Request::Create { bytes, pages } => {
                Answer::memory((memories.create(mine()?, bytes, pages)?, pages))
            }
            Request::Publish => memories.publish(mine()?).map(ok),
            Request::Remove => {
                memories.remove(mine()?);
                Ok(ok(()))
            }
            Request::List => {
                let connections = self.keeper.connections.load(Relaxed);
                let refused = self.keeper.refused.load(Relaxed);
                let list = memories.list(format_args!("connections {connections}, refused {refused}"));
                Ok(Answer::Text(list + "ok"))
            }
            Request::Drop(name) => memories.forget(name).map(ok),
        }
    }
}

enum Answer {
    Memory(OwnedFd, Pages),
    Text(String),
}

impl Answer {
    /// The memory behind another descriptor, because it is passed when nobody waits for it.
    fn memory((fd, pages): (BorrowedFd<'_>, Pages)) -> Result<Self, Refusal> {
        let fd = fd.try_clone_to_owned().map_err(|error| error.to_string())?;
        Ok(Self::Memory(fd, pages))
    }
}

/// Sends a line.
fn reply(mut stream: &UnixStream, text: &str) -> io::Result<()> {
    stream.write_all(format!("{text}\n").as_bytes())
}
