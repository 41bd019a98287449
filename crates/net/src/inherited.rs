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
/// A name for each socket.
const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";
/// The names that we give: of sockets that we have made, and of those that systemd has, whose paths are its own.
const OWN: &str = "own";
const ANOTHERS: &str = "anothers";
/// Set for the next program.
const UPGRADE_VARIABLE: &str = "MINOS_UPGRADE_PID";

/// Inherited sockets that no listener has taken yet.
static INHERITED: LazyLock<Mutex<Vec<Inherited>>> = LazyLock::new(|| Mutex::new(inherited()));
/// The descriptors of this process' listeners, true for those that this program or one before has made.
static LISTENING: Mutex<Vec<(RawFd, bool)>> = Mutex::new(Vec::new());
/// Copies of them for the next program.
static KEPT: Mutex<Vec<(OwnedFd, bool)>> = Mutex::new(Vec::new());
static IS_KEPT: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket that was left to this process.
pub(crate) struct Inherited {
    pub(crate) socket: OwnedFd,
    address: Address,
    /// True if a program before has made it, whose place this one has taken.
    pub(crate) is_own: bool,
}

/// The inherited socket that listens on `address`.
pub(crate) fn take(address: &Address) -> Option<Inherited> {
    let mut sockets = lock(&INHERITED);
    let at = sockets.iter().position(|socket| socket.address == *address)?;
    Some(sockets.swap_remove(at))
}

/// True if listening sockets were left to this process that no listener has taken.
pub fn has_unused_sockets() -> bool {
    !lock(&INHERITED).is_empty()
}

/// Closes the sockets of a program before that no listener has taken. Returns the addresses of others that none has taken.
pub fn close_unused_sockets() -> Vec<Address> {
    let mut sockets = lock(&INHERITED);
    sockets.retain(|socket| !socket.is_own);
    sockets.iter().map(|socket| socket.address.clone()).collect()
}

/// True if this program has taken the place of another one: see [`replace_process`].
pub fn is_upgrade() -> bool {
    std::env::var(UPGRADE_VARIABLE).is_ok_and(|number| number == process::id().to_string())
}

/// Notes a listener, until [`forget`].
pub(crate) fn note(socket: BorrowedFd<'_>, is_own: bool) {
    lock(&LISTENING).push((socket.as_raw_fd(), is_own));
}

/// To be called before a noted socket is closed.
pub(crate) fn forget(socket: BorrowedFd<'_>) {
    let socket = socket.as_raw_fd();
    lock(&LISTENING).retain(|&(noted, _)| noted != socket);
}

/// Keeps the sockets of all present listeners open for the next program: see [`replace_process`]. From now on clients that
/// connect wait until that accepts them.
///
/// # Errors
/// There are too few descriptors.
pub fn keep_listeners() -> io::Result<()> {
    let listening = lock(&LISTENING);
    let copy = |&(socket, is_own): &(RawFd, bool)| {
        // SAFETY: a noted socket is open: it is forgotten, under this lock, before it is closed.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        rustix::io::Result::Ok((fcntl_dupfd_cloexec(socket, FIRST + COUNT_MAX)?, is_own))
    };
    let copies: Result<Vec<_>, _> = listening.iter().take(COUNT_MAX as usize).map(copy).collect();
    *lock(&KEPT) = copies?;
    IS_KEPT.store(true, Relaxed);
    Ok(())
}

/// Undoes [`keep_listeners`]. Paths of Unix sockets whose listeners have ended meanwhile stay, until the next start takes
/// them over.
pub fn release_listeners() {
    IS_KEPT.store(false, Relaxed);
    lock(&KEPT).clear();
}

/// True after [`keep_listeners`]: paths of sockets stay.
pub(crate) fn are_kept() -> bool {
    IS_KEPT.load(Relaxed)
}

/// Runs `program` in the place of this one, in the same process, with the kept sockets. To be called as the last thing that
/// a program does: no other thread may open, close or use a descriptor any more. Where that fails, the process ends with a
/// message. SIGHUP and SIGUSR2 are ignored until the new program handles them.
pub fn replace_process(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> ! {
    let kept = std::mem::take(&mut *lock(&KEPT));
    for signal in [libc::SIGHUP, libc::SIGUSR2] {
        // SAFETY: ignoring a signal runs no code of ours. It cannot fail for these.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let moved = kept.iter().zip(FIRST..).try_for_each(|((socket, _), number)| {
        // SAFETY: the caller is the last that uses a descriptor of this number: this program ends here in either case. It is
        // not closed by its drop.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        // Kept sockets have higher numbers than all places.
        dup2(socket, &mut place)
    });
    let names: Vec<_> = kept.iter().map(|(_, is_own)| if *is_own { OWN } else { ANOTHERS }).collect();
    let error = match moved {
        Ok(()) => Command::new(program)
            .args(arguments)
            .env(COUNT_VARIABLE, kept.len().to_string())
            .env(PROCESS_VARIABLE, process::id().to_string())
            .env(NAMES_VARIABLE, names.join(":"))
            .env(UPGRADE_VARIABLE, process::id().to_string())
            .exec(),
        Err(error) => error.into(),
    };
    eprintln!("cannot run {}: {error}", program.display());
    process::exit(1)
}

/// The sockets that were left to this process.
fn inherited() -> Vec<Inherited> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number(PROCESS_VARIABLE) != Some(process::id()) {
        return Vec::new();
    }
    let count = number(COUNT_VARIABLE).and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    let names = std::env::var(NAMES_VARIABLE).unwrap_or_default();
    // Programs of ours before these names gave none. Without an upgrade no socket is ours, however it is named.
    let is_upgrade = is_upgrade();
    let names = names.split(':').filter(|name| !name.is_empty()).chain(std::iter::repeat(OWN));
    let numbers = (FIRST..FIRST + count.min(COUNT_MAX)).zip(names).filter(|(number, _)| is_left(*number));
    let sockets = numbers.filter_map(|(number, name)| {
        // SAFETY: whoever started this process has left this open descriptor to it, says the protocol, and this runs once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        Some(Inherited { address: prepared(socket.as_fd())?, socket, is_own: is_upgrade && name == OWN })
    });
    sockets.collect()
}

/// True if a descriptor of this number is open, and not one that this process has opened itself: those would not have
/// outlived the start of a program.
fn is_left(number: RawFd) -> bool {
    // SAFETY: this only asks for a flag; it fails for a number that no descriptor has.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
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
