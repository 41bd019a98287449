//! The same server with datagrams from the queues of its end of the cable, through AF_XDP.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    process::Stdio,
    time::{Duration, Instant},
};

use minos_net::frame::{End as LinkEnd, head_bytes, write_head};
use minos_testkit::skip;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use super::{
    NATIVE_PORT, SECONDS, SERVED_TCP, Served, at, client, client_at, network,
    network::{CABLE, End, Network, Path, SERVER},
    work,
};

const BY_CARD: &str = "datagrams come from the card's queues";
const BY_SOCKETS: &str = "UDP sockets are used instead";
/// Runs a program without any privilege.
const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
/// The test that acts inside a namespace, and the variable that names its act.
const ACTOR_TEST: &str = "xdp::actor_inside";
const ACT: &str = "MINOS_NAMESPACE_ACT";
const DONE: &str = "the act is done";
/// Time for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(20);

const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const ETHERNET_BYTES: usize = 14;
/// Port of the packets that are made here.
const SOURCE_PORT: u16 = 4000;
/// Hostile packets of each kind.
const ROUNDS: usize = 200;

/// A cable and a server that takes datagrams from its queues; `None`, with the reason, where that is not permitted.
fn served(path: Path, host: &str, more: &[&str]) -> Option<(Network, Served)> {
    let network = network(path)?;
    let served = start(&network, host, more);
    let log = served.log();
    if log.contains(BY_SOCKETS) && log.contains("CAP_NET_ADMIN") {
        skip(format!("no AF_XDP without privileges: {log}"));
        return None;
    }
    assert!(log.contains(BY_CARD), "{log}");
    Some((network, served))
}

fn start(network: &Network, host: &str, more: &[&str]) -> Served {
    start_through(&[], network, host, SERVED_TCP, more)
}

/// At its own TCP port, through `launcher`.
fn start_through(launcher: &[&str], network: &Network, host: &str, tcp: u16, more: &[&str]) -> Served {
    let tcp = format!("--memcached=0.0.0.0:{tcp}");
    Served::start_with(network, host, 1448, launcher, &[&["--port=xdp", &tcp], more].concat())
}

/// Runs this program again in a namespace, for one act.
fn act(network: &Network, end: End, name: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = network.command(end, &program.to_string_lossy());
    command.args([ACTOR_TEST, "--exact", "--ignored", "--nocapture"]).env(ACT, name);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    assert!(output.status.success() && said.contains(DONE), "{name}: {said}");
    said
}

/// A counter of the server, as `stats minos` has it.
fn counted(network: &Network, name: &str) -> u64 {
    let said = act(network, End::Server, "stats");
    let line =
        said.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {said}")).trim().parse().unwrap()
}

/// Waits until a counter is above `bound`.
fn wait_until_above(network: &Network, name: &str, bound: u64) {
    let end = Instant::now() + PATIENCE;
    while counted(network, name) <= bound {
        assert!(Instant::now() < end, "{name} stays below {bound}");
    }
}

fn works(network: &Network, end: End, host: &str) {
    let said = client_at(end, network, host, 1448, SECONDS).unwrap_or_else(|said| panic!("{host}: {said}"));
    assert!(said.contains(work::DONE), "the client did not work: {said}");
}

/// True if a program works on the server's end of the cable.
fn has_program(network: &Network) -> bool {
    network.inside(End::Server, "ip", &["-details", "link", "show", CABLE]).contains("prog/xdp")
}

#[test]
#[ignore = "does nothing by itself; acts inside a namespace for the others"]
fn actor_inside() {
    match std::env::var(ACT).as_deref() {
        Ok("stats") => print_stats(),
        Ok("kernel") => use_the_kernel(),
        Ok("hostile") => send_hostile_packets(),
        Ok("fragments") => send_fragments(),
        Ok(other) => panic!("{other} is no act"),
        Err(_) => return,
    }
    println!("{DONE}");
}

/// All sizes of values over both address families, with fewer, as many and more queues than workers. The device deals
/// datagrams to queues by their addresses, so that most come by another queue than that of the worker's number.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_card_with_queues() {
    for queues in [1, 2, 4] {
        for host in SERVER {
            let Some((network, _served)) = served(Path { queues, ..Path::PLAIN }, host, &[]) else { return };
            works(&network, End::Client, host);
            assert!(counted(&network, "native_card_received") > 1000);
            assert_eq!(counted(&network, "native_card_invalid"), 0);
            // Nearly all answers leave by the card, too.
            assert!(counted(&network, "native_card_by_socket") < 10);
        }
    }
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_card_and_a_single_port() {
    for host in SERVER {
        let single = ["--native-single-port"];
        let Some((network, _served)) = served(Path { queues: 2, ..Path::PLAIN }, host, &single) else {
            return;
        };
        works(&network, End::Client, host);
        assert!(counted(&network, "native_card_received") > 1000);
        assert_eq!(counted(&network, "native_misdirected"), 0);
    }
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_card_that_loses_packets() {
    let path = Path { queues: 2, has_offload: false, lost_permille: 30, ..Path::PLAIN };
    let Some((network, _served)) = served(path, SERVER[0], &[]) else { return };
    works(&network, End::Client, SERVER[0]);
    assert!(network.lost() > 10);
}

/// The loopback device carries what this host sends to its own address: the UDP sockets serve it.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn clients_on_the_same_host_are_served() {
    let Some((network, _served)) = served(Path::PLAIN, SERVER[0], &[]) else { return };
    works(&network, End::Server, SERVER[0]);
    assert_eq!(counted(&network, "native_card_received"), 0);
    works(&network, End::Client, SERVER[0]);
    assert!(counted(&network, "native_card_received") > 1000);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn the_kernels_traffic_is_not_touched() {
    let Some((network, _served)) = served(Path { queues: 2, ..Path::PLAIN }, SERVER[0], &[]) else { return };
    act(&network, End::Client, "kernel");
    assert_eq!(counted(&network, "native_card_received"), 0);
    // A fragment is the kernel's, which joins them for the UDP socket.
    let datagrams = counted(&network, "native_datagrams_in");
    act(&network, End::Client, "fragments");
    wait_until_above(&network, "native_datagrams_in", datagrams);
    assert_eq!(counted(&network, "native_card_received"), 0);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn hostile_packets_are_counted_and_not_answered() {
    let Some((network, _served)) = served(Path { queues: 2, ..Path::PLAIN }, SERVER[0], &[]) else { return };
    act(&network, End::Client, "hostile");
    // If one of the three kinds passed, there would be fewer. Some may have found no room on the cable.
    wait_until_above(&network, "native_card_invalid", 2 * ROUNDS as u64);
    works(&network, End::Client, SERVER[0]);
    act(&network, End::Client, "kernel");
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_killed_server_leaves_no_program() {
    let Some((network, served)) = served(Path::PLAIN, SERVER[0], &[]) else { return };
    assert!(has_program(&network));
    // Killed, without a word to it.
    drop(served);
    assert!(!has_program(&network));
    let _served = start(&network, SERVER[0], &[]);
    works(&network, End::Client, SERVER[0]);
}

/// The load generator from and to its own end's queues; without privileges it must say so, and not use sockets.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn cards_at_both_ends() {
    for host in SERVER {
        let Some((network, _served)) = served(Path { queues: 2, ..Path::PLAIN }, host, &[]) else { return };
        let bench = |launcher: &[&str]| {
            let program = crate::common::program();
            let program = program.to_string_lossy();
            let words = [launcher, &[&*program]].concat();
            let mut command = network.command(End::Client, words[0]);
            command.args(&words[1..]).args([
                "bench",
                "--target",
                &format!("minos+xdp://{}", at(host)),
                "--load",
            ]);
            command.args(["--keys=1000", "--large-keys=10", "--large-percent=1", "--rate=2000", "--json"]);
            command.args(["--threads=2", "--connections=3", "--warmup=100ms", "--duration=500ms"]);
            command.output().unwrap()
        };
        let output = bench(&[]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {said}"));
        assert!(number("completed") > 100 && number("errors") == 0, "{said}");
        assert!(counted(&network, "native_card_received") > 1000);
        let refused = bench(&UNPRIVILEGED);
        let reason = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && reason.contains("CAP_NET_ADMIN"), "{reason}");
    }
}

/// What a card, another server or missing privileges forbid is said, and sockets serve.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn sockets_serve_where_the_card_cannot() {
    let Some((jumbo, _first)) = instead(Path { mtu: 9000, ..Path::PLAIN }, &[], "MTU of cable, 9000") else {
        return;
    };
    works(&jumbo, End::Client, SERVER[0]);
    drop((_first, jumbo));
    let Some((network, _served)) = instead(Path::PLAIN, &UNPRIVILEGED, "CAP_NET_ADMIN") else { return };
    works(&network, End::Client, SERVER[0]);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_second_server_uses_sockets() {
    let Some((network, _served)) = served(Path::PLAIN, SERVER[0], &[]) else { return };
    let second = start_through(&[], &network, SERVER[1], SERVED_TCP + 1, &[]);
    assert!(second.log().contains(BY_SOCKETS), "{}", second.log());
    works(&network, End::Client, SERVER[1]);
    client(&network, SERVER[0], 1448, SECONDS).unwrap();
}

/// A server that must say this reason and use sockets.
fn instead(path: Path, launcher: &[&str], reason: &str) -> Option<(Network, Served)> {
    let network = network(path)?;
    let served = start_through(launcher, &network, SERVER[0], SERVED_TCP, &[]);
    let log = served.log();
    assert!(log.contains(BY_SOCKETS) && log.contains(reason), "{log}");
    assert!(!has_program(&network));
    Some((network, served))
}

fn print_stats() {
    let mut stream = TcpStream::connect(("127.0.0.1", SERVED_TCP)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"stats minos\r\nquit\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    println!("{text}");
}

/// An echo, a large value over TCP, and a datagram to a port that is closed.
fn use_the_kernel() {
    echo();
    let mut stream = TcpStream::connect((SERVER_IP, SERVED_TCP)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let value = vec![b'v'; 1_000_000];
    stream.write_all(format!("set k 0 0 {}\r\n", value.len()).as_bytes()).unwrap();
    stream.write_all(&value).unwrap();
    stream.write_all(b"\r\nget k\r\nquit\r\n").unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert!(said.starts_with(b"STORED\r\nVALUE k 0 1000000\r\n") && said.len() > value.len());
    // The kernel, and not this server, answers that nobody is there.
    let socket = UdpSocket::bind((CLIENT_IP, 0)).unwrap();
    socket.connect((SERVER_IP, NATIVE_PORT + 100)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(b"anybody?").unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

/// Sends an ICMP echo and waits for its reply.
fn echo() {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::ICMP)).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Type 8, and the complement of the sum of all.
    let request = [8, 0, 0xf7, 0xfe, 0, 1, 0, 0];
    socket.send_to(&request, (SERVER_IP, 0)).unwrap();
    let mut packet = [0; 128];
    while socket.recv(&mut packet).unwrap() < 28 || packet[20] != 0 {}
}

/// A socket that sends whole IPv4 packets.
fn raw() -> rustix::fd::OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW)).unwrap()
}

fn send_raw(socket: &rustix::fd::OwnedFd, packet: &[u8]) {
    sendto(socket, packet, SendFlags::empty(), &SocketAddr::from((SERVER_IP, 0))).unwrap();
}

/// An IPv4 packet to a port of the server.
fn packet(from: Ipv4Addr, queue: u16, payload: &[u8]) -> Vec<u8> {
    let end = |address: (Ipv4Addr, u16)| LinkEnd { mac: [2; 6], address: address.into() };
    let begin = head_bytes(&SERVER_IP.into());
    let mut frame = vec![0; begin + payload.len()];
    frame[begin..].copy_from_slice(payload);
    write_head(&mut frame, &end((from, SOURCE_PORT)), &end((SERVER_IP, NATIVE_PORT + queue)), payload.len())
        .unwrap();
    frame.split_off(ETHERNET_BYTES)
}

/// Packets with wrong lengths and checksums and without a source, and well-formed ones with nonsense from others.
fn send_hostile_packets() {
    let (socket, udp) = (raw(), 20);
    let answers = UdpSocket::bind((CLIENT_IP, SOURCE_PORT)).unwrap();
    answers.set_nonblocking(true).unwrap();
    for round in 0..ROUNDS {
        let payload: Vec<u8> = (0..round * 7).map(|at| (at * round) as u8).collect();
        let queue = (round % 4) as u16;
        let mut wrong = packet(CLIENT_IP, queue, &payload);
        wrong[udp + 6] ^= 0x55;
        send_raw(&socket, &wrong);
        let mut long = packet(CLIENT_IP, queue, &payload);
        long[udp + 4] = 0xff;
        send_raw(&socket, &long);
        send_raw(&socket, &packet(Ipv4Addr::new(224, 0, 0, 1), queue, &payload));
        send_raw(&socket, &packet(Ipv4Addr::new(10, 77, 0, 99), queue, &payload));
        assert_eq!(answers.recv(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

/// Sends datagrams in two fragments each.
fn send_fragments() {
    for round in 0..ROUNDS as u16 {
        let mut whole = packet(CLIENT_IP, 0, &[0x4d; 256]);
        whole[4..6].copy_from_slice(&(round + 1).to_be_bytes());
        let (head, data) = whole.split_at(20);
        for (fragment, bytes) in [(0x2000_u16, &data[..128]), (128 / 8, &data[128..])] {
            let mut part = [head, bytes].concat();
            part[6..8].copy_from_slice(&fragment.to_be_bytes());
            send_raw(&raw(), &part);
        }
    }
}
