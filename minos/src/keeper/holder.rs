//! A process whose memory a keeper keeps, and the commands of an operator.

use std::{
    fmt,
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use minos_engine::MemoryKeeper;
use minos_net::{check_user, take_file};

use super::wire::{LINE_BYTES_MAX, Pages, read_line};

/// Time that a keeper has for a reply. Long, because it may have much memory to empty.
const REPLY_MAX: Duration = Duration::from_secs(60);
/// Time that it has to show that it is there.
const SIGN_MAX: Duration = Duration::from_secs(5);

/// One memory of a keeper, which this process has as long as the value lives.
pub(crate) struct Holder {
    socket: PathBuf,
    name: String,
    /// What messages call it.
    full_name: PathBuf,
    /// Those of new memory.
    pages: Pages,
    stream: Mutex<Option<UnixStream>>,
}

impl Holder {
    /// Asks nobody yet.
    pub(crate) fn new(socket: &Path, name: &str, full_name: String, pages: Pages) -> Self {
        let (socket, name, full_name) = (socket.to_owned(), name.to_owned(), full_name.into());
        Self { socket, name, full_name, pages, stream: Mutex::new(None) }
    }

    /// Calls with the stream to the keeper.
    fn on_stream<T>(&self, call: impl FnOnce(&mut UnixStream) -> Result<T, String>) -> Result<T, String> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = match &mut *stream {
            Some(stream) => stream,
            none => none.insert(
                connect(&self.socket).map_err(|error| format!("its keeper cannot be asked: {error}"))?,
            ),
        };
        call(stream)
    }

    /// Has the name alone from now on.
    fn take(&self, stream: &mut UnixStream) -> Result<Option<OwnedFd>, String> {
        let reply = ask(stream, &format!("take {}", self.name))?;
        self.memory(stream, &reply)
    }

    /// The descriptor that follows a reply, if one does.
    fn memory(&self, stream: &UnixStream, reply: &str) -> Result<Option<OwnedFd>, String> {
        match reply.strip_prefix("memory ").map(str::parse::<Pages>) {
            Some(Ok(pages)) => {
                let fd = take_file(stream).map_err(|error| format!("its keeper passes nothing: {error}"))?;
                match pages {
                    found if found == self.pages => Ok(Some(fd)),
                    found => Err(format!("its keeper has it in {found}, but {} is asked for", self.pages)),
                }
            }
            None if reply == "none" => Ok(None),
            _ => Err(strange(reply)),
        }
    }
}

impl MemoryKeeper for Holder {
    fn name(&self) -> &Path {
        &self.full_name
    }

    fn open(&self) -> Result<Option<OwnedFd>, String> {
        self.on_stream(|stream| self.take(stream))
    }

    fn create(&self, bytes: u64) -> Result<OwnedFd, String> {
        self.on_stream(|stream| {
            self.take(stream)?;
            let reply = ask(stream, &format!("create {bytes} {}", self.pages))?;
            self.memory(stream, &reply)?.ok_or_else(|| strange(&reply))
        })
    }

    fn publish(&self) -> Result<(), String> {
        self.on_stream(|stream| command(stream, "publish"))
    }

    fn remove(&self) -> Result<(), String> {
        self.on_stream(|stream| command(stream, "remove"))
    }

    fn end(&self) -> io::Result<OwnedFd> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(stream.try_clone()?.into())
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holder").field(&self.full_name).finish()
    }
}

/// Prints what a keeper has.
pub(super) fn list(socket: &Path) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for line in listed(&mut connected(socket)?)? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A line for each memory, and one of sums.
fn listed(stream: &mut UnixStream) -> anyhow::Result<Vec<String>> {
    let mut line = ask(stream, "list").map_err(anyhow::Error::msg)?;
    let mut lines = Vec::new();
    while line != "ok" {
        lines.push(line);
        line = next_line(stream).map_err(anyhow::Error::msg)?;
    }
    Ok(lines)
}

/// True if a keeper has a memory of this name.
///
/// # Errors
/// It is not there, or does not reply within a few seconds.
pub(crate) fn has_memory(socket: &Path, name: &str) -> anyhow::Result<bool> {
    let mut stream = connected(socket)?;
    stream.set_read_timeout(Some(SIGN_MAX))?;
    let lines = listed(&mut stream)?;
    Ok(lines
        .split_last()
        .is_some_and(|(_, memories)| memories.iter().any(|line| line.split(' ').next() == Some(name))))
}

/// Asks a keeper whether it is there and does what it is asked.
///
/// # Errors
/// It is not, or does not reply within a few seconds.
pub(crate) fn check_keeper(socket: &Path) -> anyhow::Result<()> {
    let mut stream = connected(socket)?;
    stream.set_read_timeout(Some(SIGN_MAX))?;
    ask(&mut stream, "list").map_err(anyhow::Error::msg)?;
    Ok(())
}

/// Lets a keeper forget a memory.
pub(super) fn drop_memory(socket: &Path, name: &str) -> anyhow::Result<()> {
    match command(&mut connected(socket)?, &format!("drop {name}")) {
        Ok(()) => Ok(()),
        Err(said) => bail!("{name}: {said}"),
    }
}

fn connected(socket: &Path) -> anyhow::Result<UnixStream> {
    connect(socket).with_context(|| format!("--keeper {}", socket.display()))
}

/// A stream to a keeper of the same user.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    use std::os::fd::AsFd as _;
    let stream = UnixStream::connect(socket)?;
    check_user(stream.as_fd())?;
    stream.set_read_timeout(Some(REPLY_MAX))?;
    stream.set_write_timeout(Some(REPLY_MAX))?;
    Ok(stream)
}

fn command(stream: &mut UnixStream, line: &str) -> Result<(), String> {
    let reply = ask(stream, line)?;
    if reply == "ok" { Ok(()) } else { Err(strange(&reply)) }
}

/// The first line of the reply.
fn ask(stream: &mut UnixStream, line: &str) -> Result<String, String> {
    let sent = stream.write_all(format!("{line}\n").as_bytes());
    sent.map_err(|error| format!("its keeper cannot be asked: {error}"))?;
    next_line(stream)
}

fn next_line(stream: &mut UnixStream) -> Result<String, String> {
    let mut line = [0; LINE_BYTES_MAX];
    let line = read_line(stream, &mut line).map_err(|error| format!("its keeper does not reply: {error}"))?;
    let line = line.ok_or("its keeper has closed the connection")?;
    let text = String::from_utf8_lossy(line).into_owned();
    match text.strip_prefix("error ") {
        Some(said) => Err(said.to_owned()),
        None => Ok(text),
    }
}

fn strange(reply: &str) -> String {
    format!("its keeper replies {reply:?}")
}
