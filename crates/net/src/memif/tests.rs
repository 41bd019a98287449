//! A server's and a client's ports in one process.

use std::{
    net::Ipv4Addr,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    time::Instant,
};

use super::{MemifOptions, MemifPort};
use crate::{
    Port, PortOptions, Side, Source, Way,
    exchange::{
        CLIENT, CLIENT_PORT, PATIENCE, SERVER, SERVER_PORT, all_ask_and_answer, hostile_frames_do_no_harm,
        meet, payloads_name_queues, received, sends, threads_ask_and_answer,
    },
    frame::End,
    udp::{BURST_MESSAGES, TransmitBurst},
};

/// The smallest rings.
const BUFFER_BYTES: usize = 256 * 2112;

fn wanted(address: (Ipv4Addr, u16), count: usize) -> PortOptions {
    PortOptions {
        address: address.into(),
        count,
        shares_address: false,
        receive_buffer_bytes: BUFFER_BYTES,
        source: Source::Sockets,
    }
}

fn ports(path: &Path, side: Side, wanted: &PortOptions) -> std::io::Result<Vec<MemifPort>> {
    MemifPort::open_all(&MemifOptions { path: path.to_owned(), side }, wanted)
}

fn server_at(path: &Path, count: usize, separates_large: bool) -> std::io::Result<Vec<MemifPort>> {
    ports(path, Side::Server { separates_large }, &wanted((SERVER, SERVER_PORT), count))
}

fn client_at(path: &Path, queues: usize, count: usize) -> std::io::Result<Vec<MemifPort>> {
    ports(path, Side::Client { queues }, &wanted((CLIENT, CLIENT_PORT), count))
}

/// Connected ports of a server and of a client.
struct Pair {
    server: Vec<MemifPort>,
    client: Vec<MemifPort>,
    folder: tempfile::TempDir,
}

impl Pair {
    fn of(servers: usize, clients: usize, separates_large: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memif");
        let server = server_at(&path, servers, separates_large).unwrap();
        let client = client_at(&path, servers, clients).unwrap();
        meet(&server, || client[0].reach(SERVER, PATIENCE));
        Self { server, client, folder }
    }
}

#[test]
fn datagrams_arrive_at_their_ports_and_answers_at_their_askers() {
    for separates_large in [false, true] {
        let Pair { server, client, folder } = &Pair::of(4, 3, separates_large);
        all_ask_and_answer(server, client);
        let path = folder.path().join("memif");
        assert!(matches!(server[0].facts().way, Way::Memif(facts)
            if facts.path == path && facts.queues == 4 && facts.memory_bytes > 8 * BUFFER_BYTES as u64));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn with_one_port_the_payload_names_the_queue_and_any_queue_of_the_memory_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif");
    let side = Side::Server { separates_large: false };
    let of_server = PortOptions { shares_address: true, ..wanted((SERVER, SERVER_PORT), 4) };
    let server = ports(&path, side, &of_server).unwrap();
    let client = client_at(&path, 4, 1).unwrap();
    meet(&server, || client[0].reach(SERVER, PATIENCE));
    payloads_name_queues(&server, &client[0]);
}

#[test]
fn a_client_with_one_queue_reaches_all_ports() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif");
    let server = server_at(&path, 4, true).unwrap();
    let client = client_at(&path, 1, 2).unwrap();
    meet(&server, || client[0].reach(SERVER, PATIENCE));
    for (asker, port) in client.iter().flat_map(|asker| server.iter().map(move |port| (asker, port))) {
        sends(asker, port.address(), b"question", 100);
        assert_eq!(received(port, 1), [(asker.address(), b"question".to_vec())]);
        sends(port, asker.address(), b"answer", 100);
        assert_eq!(received(asker, 1), [(port.address(), b"answer".to_vec())]);
    }
    // Whoever looks passes on what is another's.
    sends(&client[0], server[3].address(), b"stray", 100);
    let mut burst = server[0].burst();
    assert_eq!(server[0].receive_at_most(&mut burst, BURST_MESSAGES).unwrap(), 0);
    assert_eq!(received(&server[3], 1).len(), 1);
}

#[test]
fn threads_may_send_and_receive_at_the_same_time() {
    let Pair { server, client, .. } = &Pair::of(2, 2, false);
    threads_ask_and_answer(server, client);
}

#[test]
fn what_cannot_leave_is_counted() {
    let Pair { server, client, .. } = &Pair::of(2, 1, false);
    let mut trains = TransmitBurst::new();
    let longest = client[0].facts().datagram_bytes_max.unwrap();
    assert!(trains.push(server[0].address(), &vec![7; longest + 1], longest + 1));
    assert!(trains.push((CLIENT, 7).into(), b"nobody was asked for it", 100));
    let sent = client[0].send(&mut trains);
    assert_eq!((sent.trains, sent.too_long, sent.refused, sent.dropped), (0, 1, 1, 0));
    sends(&client[0], server[0].address(), &vec![7; longest], longest);
    assert_eq!(received(&server[0], 1)[0].1, vec![7; longest]);
    // A ring has less room than these need.
    for _ in 0..BURST_MESSAGES {
        assert!(trains.push(server[0].address(), &[1; 64 * 100], 100));
    }
    let sent = client[0].send(&mut trains);
    assert_eq!((sent.trains, sent.dropped), (256 / 64, BURST_MESSAGES as u64 - 256 / 64));
    assert_eq!(client[0].card_counts().send_full, sent.dropped);
    assert_eq!(received(&server[0], 256).len(), 256);
    sends(&client[0], server[0].address(), b"there is room again", 100);
}

/// Sends bytes as they are.
fn inject(client: &MemifPort, queue: usize, bytes: &[u8]) {
    let mut queue = client.link().outgoing(queue);
    let queue = queue.as_mut().unwrap();
    assert!(queue.push([bytes, b""]));
    queue.show();
}

#[test]
fn hostile_frames_are_dropped_and_counted() {
    let Pair { server, client, .. } = &Pair::of(2, 1, false);
    let from = End { mac: super::port::CLIENT_MAC, address: (CLIENT, CLIENT_PORT).into() };
    let to = End { mac: super::port::SERVER_MAC, address: server[0].address() };
    let hostile = vec![vec![], vec![0xff; 13], vec![0; 1500], vec![0xff; 2048], vec![0xff; 2112]];
    hostile_frames_do_no_harm(server, [from, to], hostile, |queue, frame| inject(&client[0], queue, frame));
}

#[test]
fn a_client_that_leaves_makes_room_for_the_next() {
    let Pair { server, client, folder } = Pair::of(2, 1, false);
    let path = folder.path().join("memif");
    let refused = client_at(&path, 2, 1).unwrap_err().to_string();
    assert!(refused.contains("another process is connected"), "{refused}");
    // It leaves while a burst of its frames is held.
    sends(&client[0], server[0].address(), b"the last one", 100);
    let mut burst = server[0].burst();
    while server[0].receive_at_most(&mut burst, BURST_MESSAGES).unwrap() == 0 {}
    drop(client);
    assert!(MemifPort::messages(&mut burst).all(|message| message.bytes == b"the last one"));
    let end = Instant::now() + PATIENCE;
    let again = loop {
        match client_at(&path, 2, 1) {
            Ok(ports) => break ports,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    meet(&server, || again[0].reach(SERVER, PATIENCE));
    sends(&again[0], server[0].address(), b"another", 100);
    assert_eq!(received(&server[0], 1), [(again[0].address(), b"another".to_vec())]);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif");
    let server = Side::Server { separates_large: false };
    let reason = |path: &Path, side, address: &str| {
        let wanted = PortOptions { address: address.parse().unwrap(), ..wanted((SERVER, SERVER_PORT), 2) };
        ports(path, side, &wanted).unwrap_err().to_string()
    };
    assert!(reason(&path, server, "[::1]:5").contains("IPv4"));
    for address in ["0.0.0.0:5", "127.0.0.1:5", "224.0.0.1:5"] {
        assert!(reason(&path, server, address).contains("one host's"), "{address}");
    }
    assert!(reason(&path, server, "10.0.0.1:65534").contains("not so many ports"));
    assert!(reason(Path::new("/nonexistent/memif"), server, "10.0.0.1:5").contains("No such file"));
    // Its process has ended.
    drop(UnixListener::bind(&path).unwrap());
    let _first = server_at(&path, 2, false).unwrap();
    assert_eq!(server_at(&path, 2, false).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let few = reason(&path, Side::Client { queues: 4 }, "10.0.0.2:5");
    assert!(few.contains("fewer queues") && few.contains("memif"), "{few}");
}
