//! Servers as child processes on free loopback ports.

use std::{
    fs,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::sockets::{is_free, listens};

/// How long a server may take until it accepts connections. Long, because a sanitizer build on a
/// busy machine is slow; a healthy server needs milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Ports for servers: below the ephemeral ports of kernels, and above those of racks, whose nodes have ports in a row
/// (`minos/tests/common/ports.rs`).
const PORTS: Range<u16> = 18_000..32_000;
/// Ports tried before giving up. A port that was free may be taken before the server binds it.
const PORT_TRIES: usize = 5;

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The binary is not there or cannot be run.
    #[error("cannot run {program}: {source}; `cargo xtask setup` installs what the tests need")]
    Run {
        /// The program.
        program: PathBuf,
        /// Why it could not.
        source: io::Error,
    },
    /// The server ended before it accepted a connection.
    #[error("{program} ended with {status} before it was ready; it said:\n{log}")]
    Ended {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// Its output so far.
        log: String,
    },
    /// The server accepted no connection in time, or did not say where it takes datagrams.
    #[error("{program} was not ready within {READY_WITHIN:?}; it said:\n{log}")]
    NotReady {
        /// The program.
        program: PathBuf,
        /// Its output so far.
        log: String,
    },
    /// No free port, or no temporary folder.
    #[error("cannot prepare a server: {0}")]
    Prepare(#[from] io::Error),
}

/// A server on a free loopback port; killed when dropped.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Server {
    /// Stock memcached with `options` beside those for address and folder.
    pub fn memcached(options: &[&str]) -> Result<Self, StartError> {
        Self::start(Path::new("memcached"), |port, _| {
            // -U 0: no UDP. -u root is needed where tests run as root, and ignored elsewhere.
            let mut arguments = texts(&["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
            arguments.extend(texts(options));
            arguments
        })
    }

    /// Stock Redis without persistence, with `options` beside those for address and folder.
    pub fn redis(options: &[&str]) -> Result<Self, StartError> {
        Self::start(Path::new("redis-server"), |port, folder| {
            let port = port.to_string();
            let folder = folder.to_string_lossy().into_owned();
            let place = ["--bind", "127.0.0.1", "--port", &port, "--dir", &folder];
            let mut arguments = texts(&place);
            arguments.extend(texts(&["--save", "", "--appendonly", "no"]));
            arguments.extend(texts(options));
            arguments
        })
    }

    /// An etcd of one server. It keeps what it has when it is started again.
    pub fn etcd() -> Result<Self, StartError> {
        Self::start(Path::new("etcd"), |port, folder| {
            let clients = format!("http://127.0.0.1:{port}");
            // It has no peers.
            let peers = "http://127.0.0.1:0";
            let place =
                ["--data-dir", &folder.join("data").to_string_lossy(), "--name", "one"].map(str::to_owned);
            let clients = ["--listen-client-urls", &clients, "--advertise-client-urls", &clients];
            let peers = ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers];
            let cluster = ["--initial-cluster", "one=http://127.0.0.1:0"];
            [place.to_vec(), texts(&clients), texts(&peers), texts(&cluster)].concat()
        })
    }

    /// The `minos` binary at `program` with `options` beside those for address and folder.
    pub fn minos(program: &Path, options: &[&str]) -> Result<Self, StartError> {
        Self::start(program, |port, _| {
            let mut arguments = texts(&["serve", "--memcached", &format!("127.0.0.1:{port}")]);
            arguments.extend(texts(options));
            arguments
        })
    }

    /// Runs `program` with the arguments that `arguments` returns for a free port and a folder of its own.
    /// Returns when it accepts connections.
    pub fn start(program: &Path, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Result<Self, StartError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::start_once(program, &arguments) {
                Err(StartError::Ended { log, .. })
                    if tries < PORT_TRIES && log.to_ascii_lowercase().contains("address already in use") => {}
                result => return result,
            }
        }
    }

    fn start_once(program: &Path, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Result<Self, StartError> {
        let folder = TempDir::with_prefix("minos-test-")?;
        let address = free_address()?;
        let arguments = arguments(address.port(), folder.path());
        let child = spawn(program, &arguments, folder.path())?;
        let mut server = Self { program: program.to_owned(), arguments, child, address, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        self.wait_until(|server| {
            // A connection alone may be one to another process that took the port first.
            let is_ready =
                TcpStream::connect(server.address).is_ok() && listens(server.pid(), server.address.port());
            is_ready.then_some(())
        })
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// As the system calls.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts it again at the same address and in the same folder, once it has ended. Its log begins anew.
    ///
    /// # Errors
    /// It ended, or accepts no connection in time.
    pub fn start_again(&mut self) -> Result<(), StartError> {
        self.child = spawn(&self.program, &self.arguments, self.folder.path())?;
        self.wait_until_ready()
    }

    /// Calls `look` repeatedly until it returns a value, the server ends or its time is over.
    fn wait_until<T>(&mut self, look: impl Fn(&Self) -> Option<T>) -> Result<T, StartError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let seen = look(self);
            // Checked after `look`: it may have ended meanwhile.
            if let Some(status) = self.child.try_wait()? {
                return Err(StartError::Ended { program: self.program.clone(), status, log: self.log() });
            }
            if let Some(seen) = seen {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                return Err(StartError::NotReady { program: self.program.clone(), log: self.log() });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The printed address where Minos, started with `--native` and port 0, takes datagrams.
    ///
    /// # Errors
    /// It ended, or did not say so in time.
    pub fn native_address(&mut self) -> Result<SocketAddr, StartError> {
        self.printed_address("native")
    }

    /// The same for `--resp` and connections.
    ///
    /// # Errors
    /// It ended, or did not say so in time.
    pub fn resp_address(&mut self) -> Result<SocketAddr, StartError> {
        self.printed_address("resp")
    }

    fn printed_address(&mut self, protocol: &str) -> Result<SocketAddr, StartError> {
        self.wait_until(|server| {
            server.log().split_inclusive('\n').find_map(|line| address_in(line, protocol))
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its folder, empty but for its log; gone when the server is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read(self.folder.path().join("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// True if it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end (SIGTERM) and waits; `None` when it has not ended within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.try_wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either call fails only for a process that has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            // The server's output helps to understand a failing test.
            writeln!(io::stderr(), "--- the server at {} said:\n{}", self.address, self.log()).ok();
        }
    }
}

/// Runs `program` in `folder`, where its output goes to a file.
fn spawn(program: &Path, arguments: &[String], folder: &Path) -> Result<Child, StartError> {
    let log = fs::File::create(folder.join("log"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().map_err(|source| StartError::Run { program: program.to_owned(), source })
}

/// A loopback address where nothing listened a moment ago, and that no recent call in this process returned.
///
/// The kernel does not pick the port: it could give the same port to the next server or to a connection
/// before this server has bound it, and a connection to such a port may even connect to itself.
fn free_address() -> io::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(101);
    for _ in PORTS {
        let next = first.wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = PORTS.start + (next % PORTS.len() as u32) as u16;
        // memcached may take datagrams at the same port, and ends without it after it has listened.
        if is_free(port)? {
            return Ok((Ipv4Addr::LOCALHOST, port).into());
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The address of the native protocol in a line of Minos' output; `None` for an incomplete line.
fn address_in(line: &str, protocol: &str) -> Option<SocketAddr> {
    let rest = line.strip_prefix("listening on ")?.strip_prefix(protocol)?;
    rest.strip_prefix(' ')?.strip_suffix('\n')?.parse().ok()
}

fn texts(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_missing_binary_is_named() {
        let error = Server::minos(Path::new("/no/such/minos"), &[]).unwrap_err();
        assert!(matches!(error, StartError::Run { .. }));
        assert!(error.to_string().contains("/no/such/minos"), "{error}");
    }

    #[test]
    fn a_server_that_ends_at_once_says_why() {
        let error =
            Server::start(Path::new("sh"), |_, _| texts(&["-c", "echo no luck; exit 3"])).unwrap_err();
        assert!(matches!(error, StartError::Ended { .. }));
        assert!(error.to_string().contains("no luck"), "{error}");
    }

    /// The loser of a race for a port: another process listens where it should.
    #[test]
    fn a_foreign_server_at_its_address_is_not_taken_for_it() {
        let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = TempDir::new().unwrap();
        let arguments = texts(&["-c", "sleep 0.1; echo it came too late; exit 3"]);
        let child = spawn(Path::new("sh"), &arguments, folder.path()).unwrap();
        let address = foreign.local_addr().unwrap();
        let mut server = Server { program: "sh".into(), arguments, child, address, folder };
        let error = server.wait_until_ready().unwrap_err();
        assert!(error.to_string().contains("it came too late"), "{error}");
    }

    #[test]
    fn a_port_is_free_for_datagrams_too() {
        let last = free_address().unwrap().port();
        let held: Vec<_> = (last + 1..last + 21)
            .filter_map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .collect();
        let free = free_address().unwrap();
        assert!(held.iter().all(|held| held.local_addr().unwrap() != free), "{free}");
    }

    #[test]
    fn memcached_ends_when_asked() {
        let mut server = Server::memcached(&[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(server.is_running());
        let status = server.terminate(Duration::from_secs(60)).unwrap();
        assert!(status.is_some() && !server.is_running());
    }

    #[test]
    fn redis_is_gone_when_dropped() {
        let server = Server::redis(&[]).unwrap_or_else(|error| panic!("{error}"));
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}
