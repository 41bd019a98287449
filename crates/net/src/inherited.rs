//! Listening sockets that outlive a program: those that systemd or the program before has opened (`LISTEN_FDS`), and
//! those that the next one gets.

use std::{
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::{self, Command},
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{FdFlags, dup2, fcntl_dupfd_cloexec, fcntl_setfd},
    net::{SocketAddrAny, SocketAddrUnix, getsockname, sockopt},
};

use crate::Address;

/// Number of the first inherited descriptor, as systemd's `sd_listen_fds` has it.
const FIRST: RawFd = 3;
/// Most sockets that are inherited; more are left alone.
const COUNT_MAX: RawFd = 64;
const COUNT_VARIABLE: &str = "LISTEN_FDS";
const PROCESS_VARIABLE: &str = "LISTEN_PID";
/// Set by systemd, not by us: the paths of its Unix sockets are its own.
const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

/// Inherited sockets that no listener has taken yet.
static INHERITED: LazyLock<Mutex<Vec<(Address, OwnedFd)>>> = LazyLock::new(|| Mutex::new(inherited()));
/// The descriptors of this process' listeners.
static LISTENING: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
/// Copies of them for the next program.
static KEPT: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
static IS_KEPT: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The inherited socket that listens on `address`.
pub(crate) fn take(address: &Address) -> Option<OwnedFd> {
    let mut sockets = lock(&INHERITED);
    let at = sockets.iter().position(|(listening, _)| listening == address)?;
    Some(sockets.swap_remove(at).1)
}

/// True if the path of an inherited Unix socket is removed by whoever made it.
pub(crate) fn has_other_owner() -> bool {
    std::env::var_os(NAMES_VARIABLE).is_some()
}

/// The addresses of inherited sockets that no listener has taken.
pub fn unused_sockets() -> Vec<Address> {
    lock(&INHERITED).iter().map(|(address, _)| address.clone()).collect()
}

/// Notes a listener, until [`forget`].
pub(crate) fn note(socket: BorrowedFd<'_>) {
    lock(&LISTENING).push(socket.as_raw_fd());
}

/// To be called before a noted socket is closed.
pub(crate) fn forget(socket: BorrowedFd<'_>) {
    let socket = socket.as_raw_fd();
    lock(&LISTENING).retain(|&noted| noted != socket);
}

/// Keeps the sockets of all present listeners open for the next program: see [`replace_process`]. From now on clients that
/// connect wait until that accepts them.
///
/// # Errors
/// There are too few descriptors.
pub fn keep_listeners() -> io::Result<()> {
    let listening = lock(&LISTENING);
    let copy = |&socket: &RawFd| {
        // SAFETY: a noted socket is open: it is forgotten, under this lock, before it is closed.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        fcntl_dupfd_cloexec(socket, FIRST + COUNT_MAX)
    };
    let copies: Result<Vec<_>, _> = listening.iter().take(COUNT_MAX as usize).map(copy).collect();
    *lock(&KEPT) = copies?;
    IS_KEPT.store(true, Relaxed);
    Ok(())
}

/// True after [`keep_listeners`]: paths of sockets stay.
pub(crate) fn are_kept() -> bool {
    IS_KEPT.load(Relaxed)
}

/// Runs `program` in the place of this one, in the same process, with the kept sockets. To be called as the last thing that
/// a program does. Where that fails, the process ends with a message.
pub fn replace_process(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> ! {
    let kept = std::mem::take(&mut *lock(&KEPT));
    let moved = kept.iter().zip(FIRST..).try_for_each(|(socket, number)| {
        // SAFETY: nothing else of this program runs on that would use a descriptor of this number: it ends here in
        // either case. It is not closed by its drop.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        // Kept sockets have higher numbers than all places.
        dup2(socket, &mut place)
    });
    let error = match moved {
        Ok(()) => Command::new(program)
            .args(arguments)
            .env(COUNT_VARIABLE, kept.len().to_string())
            .env(PROCESS_VARIABLE, process::id().to_string())
            .env_remove(NAMES_VARIABLE)
            .exec(),
        Err(error) => error.into(),
    };
    eprintln!("cannot run {}: {error}", program.display());
    process::exit(1)
}

/// The sockets that were left to this process.
fn inherited() -> Vec<(Address, OwnedFd)> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number(PROCESS_VARIABLE) != Some(process::id()) {
        return Vec::new();
    }
    let count = number(COUNT_VARIABLE).and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    let sockets = (FIRST..FIRST + count.min(COUNT_MAX)).filter_map(|number| {
        // SAFETY: whoever started this process has left these descriptors to it, says the protocol, and this runs once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        Some((prepared(socket.as_fd())?, socket))
    });
    sockets.collect()
}

/// Makes an inherited socket like those that we open, and returns its address; `None` if it listens on none of ours.
fn prepared(socket: BorrowedFd<'_>) -> Option<Address> {
    fcntl_setfd(socket, FdFlags::CLOEXEC).ok()?;
    sockopt::socket_acceptconn(socket).ok().filter(|&listens| listens)?;
    fcntl_setfl(socket, fcntl_getfl(socket).ok()? | OFlags::NONBLOCK).ok()?;
    address_of(getsockname(socket).ok()?)
}

fn address_of(name: SocketAddrAny) -> Option<Address> {
    if let Ok(address) = SocketAddr::try_from(name.clone()) {
        return Some(Address::Tcp(address));
    }
    let name = SocketAddrUnix::try_from(name).ok()?;
    Some(Address::Unix(OsStr::from_bytes(name.path_bytes()?).into()))
}
