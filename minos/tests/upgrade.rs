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

use minos_testkit::{Client, Over, Server};
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

fn pid(server: &Server) -> Pid {
    Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap()
}

#[test]
fn nobody_is_refused_while_a_new_program_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let region = folder.path().join("region").to_str().unwrap().to_owned();
    let socket = folder.path().join("socket");
    let unix = format!("--memcached=unix:{}", socket.display());
    let others =
        ["resp", "admin"].map(|name| format!("--{name}=unix:{}", folder.path().join(name).display()));
    let options = ["--memory=64m", "--workers=2", "--region", &region, &unix, &others[0], &others[1]];
    let server = Server::minos(Path::new(MINOS), &options).unwrap();
    let address = server.address();
    assert_eq!(ask(address, SET), stored());
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
        let _stopping = Over(&stop);
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
    assert_eq!(ask(address, GET), found());
    assert!(!server.log().contains("panicked"), "{}", server.log());
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "the control: without a server clients are refused");
}

/// Waits until the server's log has this text so many times.
fn wait_for(server: &Server, text: &str, times: usize) {
    let begun = Instant::now();
    while server.log().matches(text).count() < times {
        assert!(begun.elapsed() < PATIENCE, "{text}: {}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
}

const SET: &str = "set k 0 0 1\r\nv\r\nquit\r\n";
const GET: &str = "get k\r\nquit\r\n";

fn stored() -> Outcome {
    Outcome::Answered("STORED\r\n".to_owned())
}

fn found() -> Outcome {
    Outcome::Answered("VALUE k 0 1\r\nv\r\nEND\r\n".to_owned())
}

#[test]
fn a_table_is_made_empty_by_the_first_program_alone() {
    let folder = tempfile::tempdir().unwrap();
    let flash = format!("--flash={}:64m", folder.path().join("flash").display());
    let server =
        Server::minos(Path::new(MINOS), &["--memory=64m", "--flash-format", "--stop-timeout=60s", &flash])
            .unwrap();
    assert_eq!(ask(server.address(), SET), stored());
    kill_process(pid(&server), Signal::USR2).unwrap();
    wait_for(&server, "serving", 2);
    assert_eq!(ask(server.address(), GET), found());
}

#[test]
fn signals_while_it_stops_for_an_upgrade_cost_no_item() {
    let folder = tempfile::tempdir().unwrap();
    let region = format!("--region={}", folder.path().join("region").display());
    let options = ["--memory=256m", "--max-item-size=64m", "--stop-timeout=10s", &region];
    let mut server = Server::minos(Path::new(MINOS), &options).unwrap();
    let address = server.address();
    let mut client = Client::connect(address).unwrap();
    assert_eq!(client.set("large", &vec![0; 40 << 20]).unwrap(), "STORED");
    // The server waits for a client that does not read its reply, of more than sockets hold.
    let hold = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"get large\r\n").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    assert_eq!(ask(address, SET), stored());
    let held = hold();
    for said in ["stopping signal=12", "stopping already"] {
        kill_process(pid(&server), Signal::USR2).unwrap();
        wait_for(&server, said, 1);
    }
    drop(held);
    wait_for(&server, "serving", 2);
    assert_eq!(ask(address, GET), found());
    let held = hold();
    kill_process(pid(&server), Signal::USR2).unwrap();
    wait_for(&server, "stopping signal=12", 2);
    kill_process(pid(&server), Signal::TERM).unwrap();
    wait_for(&server, "no new program will be started", 1);
    drop(held);
    let begun = Instant::now();
    while server.is_running() {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
    server.start_again().unwrap();
    assert_eq!(ask(address, GET), found());
}

#[test]
fn what_the_next_program_cannot_serve_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [region, file] = ["region", "minos.toml"].map(|name| folder.path().join(name));
    std::fs::write(&file, "memory = \"64m\"\n").unwrap();
    let options = ["--config", file.to_str().unwrap(), "--region", region.to_str().unwrap()];
    let server = Server::minos(Path::new(MINOS), &options).unwrap();
    assert_eq!(ask(server.address(), SET), stored());
    let unfit = [
        ("memory = 64x", "--config"),
        ("memory = \"32m\"", "`memory` has changed"),
        ("memory = \"64m\"\nengine = \"store\"", "`engine` has changed"),
        ("memory = \"64m\"\npartitions = 2", "`partitions` has changed"),
        ("memory = \"64m\"\nlarge-reserve = \"10m\"", "`large-reserve` has changed"),
        // The reserve has room for one such value.
        ("memory = \"64m\"\nmax-item-size = \"16m\"", "`max-item-size` has changed"),
        ("memory = \"64m\"\nworkers = 0", "workers: 0 is not allowed"),
        ("memory = \"64m\"\nhandoff-workers = 64\ndispatch = \"handoff\"", "handoff-workers: 64 of"),
        ("memory = \"64m\"\nepoch = \"0s\"", "--epoch: 0 is not allowed"),
        ("memory = \"64m\"\nmax-buffer = \"1k\"", "--max-buffer: 1024 is not allowed"),
        ("memory = \"64m\"\nmax-connections = 0", "--max-connections: 0 is not allowed"),
        ("memory = \"64m\"\npercentile = 200", "percentile: 200 is not allowed"),
        ("memory = \"64m\"\nadmin = \"0.0.0.0:1\"", "--admin 0.0.0.0:1"),
        ("memory = \"64m\"\nadmin = \"tls:127.0.0.1:1\"", "needs --tls-cert"),
    ];
    for (text, reason) in unfit {
        std::fs::write(&file, text).unwrap();
        kill_process(pid(&server), Signal::USR2).unwrap();
        wait_for(&server, reason, 1);
        assert_eq!(ask(server.address(), GET), found());
    }
}

#[test]
fn a_server_without_a_region_refuses() {
    let server = Server::minos(Path::new(MINOS), &["--memory=64m"]).unwrap();
    let address = server.address();
    assert_eq!(ask(address, SET), stored());
    kill_process(pid(&server), Signal::USR2).unwrap();
    wait_for(&server, "needs --region or --flash", 1);
    assert_eq!(ask(address, GET), found());
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
    let outcome = ask(address, SET);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(outcome, stored());
}

#[test]
fn the_path_of_systemds_socket_stays_after_an_upgrade_and_ours_does_not() {
    // Not all that start a server so name the sockets; nor need those be open that they count.
    for passed in ["LISTEN_FDS=1 LISTEN_FDNAMES=x", "LISTEN_FDS=1", "LISTEN_FDS=9 LISTEN_FDNAMES=own"] {
        path_stays(passed);
    }
}

fn path_stays(passed: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [theirs, ours, region, log] =
        ["theirs", "ours", "region", "log"].map(|name| folder.path().join(name));
    let listener = std::os::unix::net::UnixListener::bind(&theirs).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &format!("LISTEN_PID=$$ {passed} exec \"$0\" serve --memory 64m \"$@\" 3<&0")])
        .arg(MINOS)
        .args([&theirs, &ours].map(|path| format!("--memcached=unix:{}", path.display())))
        .args(["--region", region.to_str().unwrap()])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let process = Pid::from_child(&child);
    let has_served = |times| {
        let begun = Instant::now();
        while std::fs::read_to_string(&log).unwrap().matches("serving").count() < times {
            assert!(begun.elapsed() < PATIENCE, "{passed}: {}", std::fs::read_to_string(&log).unwrap());
            thread::sleep(Duration::from_millis(10));
        }
    };
    let say = |path: &Path| {
        let mut stream = UnixStream::connect(path).unwrap();
        let mut reply = String::new();
        stream.write_all(b"version\r\nquit\r\n").unwrap();
        stream.read_to_string(&mut reply).map(|_| reply).unwrap_or_default()
    };
    has_served(1);
    kill_process(process, Signal::USR2).unwrap();
    has_served(2);
    assert!([&theirs, &ours].iter().all(|path| say(path).starts_with("VERSION")));
    kill_process(process, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((theirs.exists(), ours.exists()), (true, false), "{passed}");
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
