//! A server's and a client's ports in one process.

use std::{
    collections::BTreeSet,
    io::IoSlice,
    net::{Ipv4Addr, SocketAddr},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    time::{Duration, Instant},
};

use super::{MemifOptions, MemifPort};
use crate::{
    Port, PortOptions, Side, Source, Way,
    frame::{ARP_FRAME_BYTES, Arp, End, head_bytes, write_head},
    udp::{BURST_MESSAGES, TransmitBurst},
};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SERVER_PORT: u16 = 11311;
const CLIENT_PORT: u16 = 40_000;
const PATIENCE: Duration = Duration::from_secs(60);
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
        meet(&server, &client);
        Self { server, client, folder }
    }
}

/// Lets the client's ports learn the server's hardware address.
fn meet(server: &[MemifPort], client: &[MemifPort]) {
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| client[0].reach(SERVER, PATIENCE));
        // It answers while it looks for datagrams.
        let mut burst = server[0].burst();
        while !asker.is_finished() {
            for port in server {
                port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap();
            }
        }
        asker.join().unwrap().unwrap();
    });
}

/// The next `count` datagrams at a port, with their senders.
fn received(port: &MemifPort, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut burst, mut all, end) = (port.burst(), Vec::new(), Instant::now() + PATIENCE);
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} have come", all.len());
        port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap();
        all.extend(MemifPort::messages(&mut burst).map(|message| (message.peer, message.bytes.to_vec())));
    }
    all
}

fn sends(port: &MemifPort, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
    let mut trains = TransmitBurst::new();
    assert!(trains.push(peer, bytes, segment_bytes));
    let sent = port.send(&mut trains);
    assert_eq!((sent.trains, trains.len()), (1, 0), "{sent:?}");
}

#[test]
fn datagrams_arrive_at_their_ports_and_answers_at_their_askers() {
    for separates_large in [false, true] {
        let Pair { server, client, folder } = &Pair::of(4, 3, separates_large);
        for (asker, port) in (0..3).flat_map(|asker| (0..4).map(move |port| (asker, port))) {
            let question: Vec<u8> = (0..100 + port as u8).collect();
            sends(&client[asker], server[port].address(), &question, 100);
            let heard = received(&server[port], if port == 0 { 1 } else { 2 });
            assert!(heard.iter().all(|(peer, _)| *peer == client[asker].address()));
            assert!(heard.iter().flat_map(|(_, bytes)| bytes).eq(&question));
            let answer = [IoSlice::new(b"an"), IoSlice::new(b""), IoSlice::new(b"swer")];
            assert_eq!(server[port].send_gather(client[asker].address(), &answer, 4).trains, 1);
            let answers = received(&client[asker], 2);
            let from = server[port].address();
            assert_eq!(answers, [(from, b"answ".to_vec()), (from, b"er".to_vec())]);
        }
        assert_eq!(server.iter().map(|port| port.card_counts().received).sum::<u64>(), 3 * (1 + 2 + 2 + 2));
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
    meet(&server, &client);
    let naming = |queue: u16| [&[0; 6], &queue.to_le_bytes()[..], b"payload"].concat();
    // Two of them, and a queue that is none, and a payload without a queue.
    for payload in
        [&[naming(0), naming(1), naming(2), naming(3), naming(4)][..], &[b"short".to_vec()]].concat()
    {
        sends(&client[0], server[0].address(), &payload, 100);
    }
    // All come to one queue, whose port passes them on.
    let mut heard = vec![Vec::new(); 4];
    let (mut burst, end) = (server[0].burst(), Instant::now() + PATIENCE);
    let invalid = || server.iter().map(|port| port.card_counts().invalid).sum::<u64>();
    while heard.iter().any(Vec::is_empty) || invalid() < 2 {
        assert!(Instant::now() < end, "{heard:?}");
        for (port, heard) in server.iter().zip(&mut heard) {
            port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap();
            heard.extend(MemifPort::messages(&mut burst).map(|message| message.bytes.to_vec()));
        }
    }
    assert!(heard.iter().zip(0..).all(|(heard, number)| *heard == [naming(number)]), "{heard:?}");
}

#[test]
fn a_client_with_one_queue_reaches_all_ports() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif");
    let server = server_at(&path, 4, true).unwrap();
    let client = client_at(&path, 1, 2).unwrap();
    meet(&server, &client);
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
    const EACH: u32 = 2000;
    let Pair { server, client, .. } = &Pair::of(2, 2, false);
    std::thread::scope(|scope| {
        for port in server {
            scope.spawn(|| {
                let (mut burst, mut echo) = (port.burst(), TransmitBurst::new());
                let (mut count, end) = (0, Instant::now() + PATIENCE);
                while count < EACH {
                    assert!(Instant::now() < end, "{count} of {EACH} have come");
                    count += port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap() as u32;
                    for message in MemifPort::messages(&mut burst) {
                        assert!(echo.push(message.peer, message.bytes, message.segment_bytes));
                    }
                    port.send(&mut echo);
                }
            });
        }
        for port in client {
            scope.spawn(|| {
                let mut missing: BTreeSet<[u8; 5]> = BTreeSet::new();
                for round in 0..EACH {
                    let [a, b, c, d] = round.to_le_bytes();
                    for (target, to) in server.iter().zip(0..) {
                        // One half of what each server waits for.
                        if round % 2 == 0 {
                            sends(port, target.address(), &[a, b, c, d, to], 100);
                            missing.insert([a, b, c, d, to]);
                        }
                    }
                    while missing.len() > 100 || round + 1 == EACH && !missing.is_empty() {
                        for (_, bytes) in received(port, 1) {
                            assert!(missing.remove(&bytes[..]), "{bytes:?}");
                        }
                    }
                }
            });
        }
    });
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
    assert!(queue.push(bytes));
    queue.show();
}

#[test]
fn hostile_frames_are_dropped_and_counted() {
    let Pair { server, client, .. } = &Pair::of(2, 1, false);
    let from = End { mac: super::port::CLIENT_MAC, address: (CLIENT, CLIENT_PORT).into() };
    let to = End { mac: super::port::SERVER_MAC, address: server[0].address() };
    let written = |from: &End, to: &End| {
        let mut frame = vec![0xa5; head_bytes(&SERVER.into()) + 40];
        write_head(&mut frame, from, to, 40).unwrap();
        frame
    };
    let queue = usize::from(SERVER_PORT) % 2;
    let mut hostile = vec![vec![], vec![0xff; 13], vec![0; 1500], vec![0xff; 2048], vec![0xff; 2112]];
    // Each byte spoiled, each length.
    let sound = written(&from, &to);
    for at in 0..sound.len() {
        let mut spoiled = sound.clone();
        spoiled[at] ^= 0x55;
        hostile.push(spoiled);
        hostile.push(sound[..at].to_vec());
    }
    // Another host, other ports, and a source that is many.
    let other = |address: SocketAddr| written(&from, &End { address, ..to });
    let foreign = [
        other((CLIENT, SERVER_PORT).into()),
        other((SERVER, 2).into()),
        other((SERVER, 65_535).into()),
        written(&from, &End { mac: [2; 6], ..to }),
        written(&End { address: ([224, 0, 0, 1], 5).into(), ..from }, &to),
    ];
    for (frame, count) in foreign.iter().zip(1..) {
        inject(&client[0], queue, frame);
        inject(&client[0], queue, &sound);
        assert_eq!(received(&server[0], 1).len(), 1);
        assert_eq!(server[0].card_counts().invalid, count);
    }
    // An answer that nobody asked for, and a question for another.
    let mut arp = vec![0; ARP_FRAME_BYTES];
    Arp::write_reply(&mut arp, from.mac, CLIENT, (to.mac, SERVER));
    hostile.push(arp.clone());
    Arp::write_request(&mut arp, from.mac, CLIENT, CLIENT);
    hostile.push(arp);
    for frame in &hostile {
        inject(&client[0], queue, frame);
        inject(&client[0], queue, &sound);
        // The server still works.
        let heard = received(&server[0], 1);
        assert!(heard.len() < 3 && heard.last().unwrap().1 == [0xa5; 40], "{frame:x?}: {heard:x?}");
    }
    // Spoiled are at most the source, which any host may have, and what the checksum does not cover.
    let invalid = server[0].card_counts().invalid;
    assert!(invalid as usize > hostile.len() * 4 / 5, "{invalid} of {}", hostile.len());
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
    meet(&server, &again);
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
