//! An upgrade: no client is refused, and no item is lost.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Server};
use rustix::process::{Pid, Signal, kill_process};

const MINOS: &str = env!("CARGO_BIN_EXE_minos");
const UPGRADES: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// How a request on a new connection ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    Answered(String),
    /// The server ended while it had the connection.
    Closed,
}

/// Asks on a new connection. Panics if nobody accepts it.
fn ask(address: SocketAddr, request: &str) -> Outcome {
    let mut stream = TcpStream::connect(address).expect("nobody is refused");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reply = String::new();
    let said = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut reply));
    match said {
        Ok(1..) => Outcome::Answered(reply),
        // The end of a process resets the connections that it has accepted.
        Ok(0) | Err(_) => Outcome::Closed,
    }
}

/// Sets the flag at its end, also that by a panic, for which other threads would wait.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn pid(server: &Server) -> Pid {
    Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap()
}

#[test]
fn nobody_is_refused_while_a_new_program_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let region = folder.path().join("region").to_str().unwrap().to_owned();
    let socket = folder.path().join("socket");
    let unix = format!("--memcached=unix:{}", socket.display());
    let options = ["--memory=64m", "--workers=2", "--region", &region, &unix];
    let server = Server::minos(Path::new(MINOS), &options).unwrap();
    let address = server.address();
    assert_eq!(ask(address, "set k 0 0 1\r\nv\r\nquit\r\n"), Outcome::Answered("STORED\r\n".to_owned()));
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        if let Outcome::Answered(reply) = ask(address, "get k\r\nquit\r\n") {
                            assert_eq!(reply, "VALUE k 0 1\r\nv\r\nEND\r\n");
                            answered.fetch_add(1, Relaxed);
                        }
                        UnixStream::connect(&socket).expect("nobody is refused");
                    }
                })
            })
            .collect();
        let _stopping = Stopping(&stop);
        for _ in 0..UPGRADES {
            let (begun, replies) = (Instant::now(), answered.load(Relaxed));
            while answered.load(Relaxed) < replies + 20 {
                assert!(begun.elapsed() < PATIENCE && clients.iter().all(|client| !client.is_finished()));
                thread::sleep(Duration::from_millis(1));
            }
            // It ends with the program that has accepted it.
            let mut witness = Client::connect(address).unwrap();
            witness.ask("version").unwrap();
            kill_process(pid(&server), Signal::USR2).unwrap();
            assert_eq!(witness.rest().unwrap(), b"");
        }
    });
    assert_eq!(
        ask(address, "get k\r\nquit\r\n"),
        Outcome::Answered("VALUE k 0 1\r\nv\r\nEND\r\n".to_owned())
    );
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "the control: without a server clients are refused");
}

#[test]
fn a_server_without_a_region_refuses() {
    let server = Server::minos(Path::new(MINOS), &["--memory=64m"]).unwrap();
    let address = server.address();
    assert_eq!(ask(address, "set k 0 0 1\r\nv\r\nquit\r\n"), Outcome::Answered("STORED\r\n".to_owned()));
    kill_process(pid(&server), Signal::USR2).unwrap();
    let begun = Instant::now();
    while !server.log().contains("needs --region or --flash") {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
    let reply = Outcome::Answered("VALUE k 0 1\r\nv\r\nEND\r\n".to_owned());
    assert_eq!(ask(address, "get k\r\nquit\r\n"), reply);
}

/// systemd's protocol: descriptors from 3 on, for this process.
#[test]
fn a_socket_that_systemd_opened_is_used() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=x exec \"$0\" serve --memory 64m --memcached \"$1\" 3<&0"])
        .args([MINOS, &address.to_string()])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .spawn()
        .unwrap();
    let outcome = ask(address, "set k 0 0 1\r\nv\r\nquit\r\n");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(outcome, Outcome::Answered("STORED\r\n".to_owned()));
}

/// The configuration of the package, with other places.
#[test]
fn the_configuration_of_the_package_is_valid() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/minos.toml");
    let server = Server::start(Path::new(MINOS), |port, folder| {
        let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let address = format!("127.0.0.1:{port}");
        let arguments =
            ["serve", "--config", file.to_str().unwrap(), "--memcached", &address, "--memory=64m"];
        let places = [format!("--region={}", place("region")), format!("--admin=unix:{}", place("admin"))];
        arguments.map(str::to_owned).into_iter().chain(places).collect()
    });
    assert!(matches!(ask(server.unwrap().address(), "version\r\nquit\r\n"), Outcome::Answered(_)));
}
