//! Nodes that are linked by TCP, as on several machines, and those who want to be taken for one.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use minos_net::Socket;
use minos_sealed::{Blocking, Ends, Keys, Purpose};
use minos_testkit::{Client, Server};
use tempfile::TempDir;

use crate::{
    pipelines::compare,
    ports::free_ports,
    up::{PATIENCE, ROOM, Rack, stat},
};

pub(crate) const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const OTHER: &str = "7:10112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const LONG: Duration = Duration::from_secs(30);
/// Handshakes that may be late on a busy machine before one is not.
const TRIES_MAX: usize = 20;

/// Nodes with these peers; `{}` stands for a free port of 127.0.0.1, or a free path.
struct Nodes {
    servers: Vec<Server>,
    /// The port of the first node for the others.
    port: u16,
    began: Instant,
    _folder: TempDir,
}

impl Nodes {
    fn start(peers: &[&str], secrets: &[&str]) -> Self {
        let (folder, began) = (tempfile::tempdir().unwrap(), Instant::now());
        let port = free_ports(peers.len());
        let peer = |(number, peer): (usize, &&str)| {
            let path = folder.path().join(format!("node-{number}"));
            let place = format!("127.0.0.1:{}", port + number as u16);
            peer.replace("{tcp}", &place).replace("{path}", path.to_str().unwrap())
        };
        let list = peers.iter().enumerate().map(peer).collect::<Vec<_>>().join(",");
        let start = |(number, secret): (usize, &&str)| {
            let file = folder.path().join(format!("secret-{number}"));
            std::fs::write(&file, secret).unwrap();
            let number = number.to_string();
            let rack = ["--rack", "r", "--node", &number, "--peers", &list, "--hash-seed", "7"];
            let more = ["--memory", "32m", "--workers", "2", "--rack-secret", file.to_str().unwrap()];
            let options = [&rack[..], &more, &["--rack-timeout", ROOM]].concat();
            Server::minos(Path::new(env!("CARGO_BIN_EXE_minos")), &options).unwrap()
        };
        let servers = secrets.iter().enumerate().map(start).collect();
        Self { servers, port, began, _folder: folder }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    fn client(&self, node: usize) -> Client {
        Client::connect(self.servers[node].address()).unwrap()
    }

    /// A node's log has one line a minute about all whom it has refused.
    fn assert_refusals_are_told(&self, node: usize) {
        let told = || self.servers[node].log().matches("is refused").count() as u64;
        // The counter may change before the log says so.
        let deadline = Instant::now() + PATIENCE;
        while told() == 0 {
            assert!(Instant::now() < deadline, "nothing is told");
        }
        let minutes = self.began.elapsed().as_secs() / 60;
        assert!(told() <= 1 + minutes, "{}", self.servers[node].log());
    }

    /// Where the first node listens for others.
    fn gate(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn knock(&self) -> TcpStream {
        let stream = TcpStream::connect(self.gate()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// A node that knows `secret` and says that it is of `rack`.
    fn call(&self, secret: &str, rack: &str, to: u16) -> std::io::Result<Blocking> {
        let stream = self.knock();
        stream.set_nonblocking(true).unwrap();
        let keys = Keys::new(rack, &[secret.parse().unwrap()]);
        let ends = Ends { purpose: Purpose::Commands, from: 1, to };
        Blocking::connect(Socket::from_nonblocking(stream.into()), &keys, ends, LONG)
    }
}

/// True if the stream works as one of a node.
fn is_served(stream: std::io::Result<Blocking>) -> bool {
    let mut answer = [0; 4];
    stream.is_ok_and(|mut stream| {
        stream.write_all(b"minos-peer 3 r 0 ring\r\nmn\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"MN\r\n"
    })
}

#[test]
fn nodes_linked_by_tcp_answer_as_one_server() {
    compare(&Nodes::start(&["0@{tcp}", "0@{tcp}"], &[SECRET; 2]).addresses(), 3);
}

#[test]
fn nodes_of_both_kinds_answer_as_one_server() {
    // One of them knows the next secret already.
    let both = format!("{SECRET}\n{}\n", OTHER.replace("7:", "8:"));
    let mixed = Nodes::start(&["0@{tcp}", "{path}", "{path}"], &[SECRET, SECRET, &both]);
    compare(&mixed.addresses(), 4);
    let reads = [0, 1].map(|node| stat(&mut mixed.client(node), "remote_hits"));
    assert!(reads[0] == 0 && reads[1] > 0, "{reads:?}");
    let stats = mixed.client(0).stats("rack").unwrap();
    let of = |name: &str| stats.iter().find(|(other, _)| other == name).unwrap().1.as_str();
    assert_eq!((of("node:1:memory"), of("links")), ("on another machine", "sealed"));
    assert_eq!([0, 1, 2].map(|node| stat(&mut mixed.client(node), "peers_refused")), [0; 3]);
}

#[test]
fn unix_sockets_may_be_sealed() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), SECRET).unwrap();
    let rack = Rack::up(3, &["--", "--rack-secret", secret.path().to_str().unwrap()]);
    compare(&rack.nodes.iter().map(|(address, _)| *address).collect::<Vec<_>>(), 5);
    let mut stream = std::os::unix::net::UnixStream::connect(rack.folder.path().join("node-0")).unwrap();
    stream
        .write_all(
            b"minos-peer 3 local 0 coordinator\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\nmn\r\n",
        )
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() && stat(&mut rack.client(0), "peers_refused") == 1);
}

#[test]
fn nodes_with_different_secrets_do_not_serve_each_other() {
    let nodes = Nodes::start(&["0@{tcp}", "0@{tcp}"], &[SECRET, OTHER]);
    let mut client = nodes.client(0);
    let said: Vec<String> = (0..40).map(|key| client.set(&format!("k{key}"), b"x").unwrap()).collect();
    let refused = "SERVER_ERROR node 1 of the rack cannot be reached";
    assert!(said.iter().all(|said| said == "STORED" || said == refused), "{said:?}");
    assert!(said.iter().any(|said| said == refused));
    assert!(stat(&mut nodes.client(1), "peers_refused") > 0);
    nodes.assert_refusals_are_told(1);
}

#[test]
fn strangers_get_only_a_closed_connection() {
    let nodes = Nodes::start(&["0@{tcp}"], &[SECRET]);
    assert!((0..TRIES_MAX).any(|_| is_served(nodes.call(SECRET, "r", 0))));
    assert!(!is_served(nodes.call(OTHER, "r", 0)), "another secret");
    assert!(!is_served(nodes.call(SECRET, "s", 0)), "another rack");
    assert!(!is_served(nodes.call(SECRET, "r", 1)), "another node");
    let plain = b"minos-peer 3 r 0 ring\r\nget a\r\nget a\r\nget a\r\nget a\r\nget a\r\nget a\r\n";
    for bytes in [plain.as_slice(), &[0; 56], b"MNS\x01\x07\x01\x01\0", &[]] {
        let mut stream = nodes.knock();
        let began = Instant::now();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() && began.elapsed() < LONG, "{bytes:?}");
    }
    let mut client = nodes.client(0);
    let count = |name: &str| stat(&mut client, &format!("peers_{name}"));
    let [admitted, refused, late] = ["admitted", "refused", "late"].map(count);
    // On a busy machine also those that are refused else are late.
    assert!(admitted >= 1 && refused + late >= 7 && late >= 2, "{admitted}, {refused}, {late}");
}

#[test]
fn idle_connections_are_bounded_and_keep_no_node_out() {
    let nodes = Nodes::start(&["0@{tcp}"], &[SECRET]);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", nodes.servers[0].pid())).unwrap().count();
    let before = descriptors();
    let mut idle = std::collections::VecDeque::new();
    for number in 0..10_000 {
        idle.push_back(nodes.knock());
        if idle.len() > 600 {
            idle.pop_front();
        }
        if number % 1000 == 999 {
            assert!(is_served(nodes.call(SECRET, "r", 0)), "after {number}");
            assert!(descriptors() <= before + 300, "{}", descriptors());
        }
    }
    let mut client = nodes.client(0);
    assert!(stat(&mut client, "peers_crowded") > 100);
    nodes.assert_refusals_are_told(0);
}
