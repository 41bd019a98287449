//! A server's and a client's ports in one process, over memif.

use std::{net::Ipv4Addr, os::unix::net::UnixListener, path::Path, time::Instant};

use super::{
    Dpdk, DpdkDevice, DpdkOptions, DpdkPort, Side,
    device::{Device, Frames},
};
use crate::{
    Io, MemifOptions, MemifPort, Port, PortOptions, Source, Way,
    exchange::{
        CLIENT, CLIENT_PORT, PATIENCE, SERVER, SERVER_PORT, all_ask_and_answer, hostile_frames_do_no_harm,
        meet, payloads_name_queues, received, sends, threads_ask_and_answer,
    },
    frame::End,
    neighbours::Recent,
    udp::{BURST_MESSAGES, TransmitBurst},
};

/// The first device's arguments count, and no test knows whether its device is the first.
const MEMORY: &str = "-m1024";
const BUFFER_BYTES: usize = 256 * 2048;

fn ports(device: DpdkDevice, side: Side, wanted: &PortOptions) -> std::io::Result<Vec<DpdkPort>> {
    Dpdk(DpdkOptions { device, side, arguments: vec![MEMORY.to_owned()] }).ports(wanted)
}

fn wanted(address: (Ipv4Addr, u16), count: usize) -> PortOptions {
    PortOptions {
        address: address.into(),
        count,
        shares_address: false,
        receive_buffer_bytes: BUFFER_BYTES,
        source: Source::Sockets,
    }
}

/// Connected ports of a server and of a client.
struct Pair {
    server: Vec<DpdkPort>,
    client: Vec<DpdkPort>,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn of(servers: usize, clients: usize, separates_large: bool, shares_address: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let device = || DpdkDevice::Memif(folder.path().join("memif"));
        let mut of_server = wanted((SERVER, SERVER_PORT), servers);
        of_server.shares_address = shares_address;
        let server = ports(device(), Side::Server { separates_large }, &of_server).unwrap();
        let of_client = wanted((CLIENT, CLIENT_PORT), clients);
        let client = ports(device(), Side::Client { queues: servers }, &of_client).unwrap();
        meet(&server, || client[0].reach(SERVER, PATIENCE));
        Self { server, client, _folder: folder }
    }
}

#[test]
fn datagrams_arrive_at_their_ports_and_answers_at_their_askers() {
    for separates_large in [false, true] {
        let Pair { server, client, .. } = &Pair::of(4, 3, separates_large, false);
        all_ask_and_answer(server, client);
        assert!(matches!(server[0].facts().way, Way::Dpdk(facts) if facts.driver == "net_memif"));
    }
}

/// memif as DPDK speaks it, with the other side of ours.
#[test]
fn dpdk_and_this_crate_understand_each_other() {
    for dpdk_serves in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memif");
        let [of_server, of_client] = [Side::Server { separates_large: true }, Side::Client { queues: 4 }];
        let (at_server, at_client) = (wanted((SERVER, SERVER_PORT), 4), wanted((CLIENT, CLIENT_PORT), 3));
        let dpdk = |side, wanted| ports(DpdkDevice::Memif(path.clone()), side, wanted).unwrap();
        let ours =
            |side, wanted| MemifPort::open_all(&MemifOptions { path: path.clone(), side }, wanted).unwrap();
        if dpdk_serves {
            converse(&dpdk(of_server, &at_server), &ours(of_client, &at_client), |port| {
                port.reach(SERVER, PATIENCE)
            });
        } else {
            converse(&ours(of_server, &at_server), &dpdk(of_client, &at_client), |port| {
                port.reach(SERVER, PATIENCE)
            });
        }
    }
}

/// Asks each port of a server from each of a client's, more often than a ring has places, and answers.
fn converse<S: Port, C: Port>(server: &[S], client: &[C], reach: impl Fn(&C) -> std::io::Result<()> + Sync) {
    let mut burst = server[0].burst();
    meet(server, || reach(&client[0]));
    let mut trains = TransmitBurst::new();
    for round in 0..200_u8 {
        for (asker, port) in client.iter().flat_map(|asker| server.iter().map(move |port| (asker, port))) {
            let question = vec![round; 1 + 7 * usize::from(round)];
            assert!(trains.push(port.address(), &question, question.len()));
            assert_eq!(asker.send(&mut trains).trains, 1);
            let (mut answers, end) = (asker.burst(), Instant::now() + PATIENCE);
            while port.receive_at_most(&mut burst, 1).unwrap() == 0 {
                assert!(Instant::now() < end, "no question");
            }
            for message in S::messages(&mut burst) {
                assert_eq!((message.peer, &message.bytes[..]), (asker.address(), &question[..]));
                assert!(trains.push(message.peer, message.bytes, message.segment_bytes));
            }
            assert_eq!(port.send(&mut trains).trains, 1);
            while asker.receive_at_most(&mut answers, 1).unwrap() == 0 {
                assert!(Instant::now() < end, "no answer");
            }
            assert!(C::messages(&mut answers).all(|message| message.bytes == question));
        }
    }
}

#[test]
fn with_one_port_the_payload_names_the_queue() {
    let Pair { server, client, .. } = &Pair::of(4, 1, false, true);
    payloads_name_queues(server, &client[0]);
}

#[test]
fn threads_may_send_and_receive_at_the_same_time() {
    let Pair { server, client, .. } = &Pair::of(2, 2, false, false);
    threads_ask_and_answer(server, client);
}

#[test]
fn what_cannot_leave_is_counted() {
    let Pair { server, client, .. } = &Pair::of(2, 1, false, false);
    let mut trains = TransmitBurst::new();
    let longest = client[0].facts().datagram_bytes_max.unwrap();
    assert!(trains.push(server[0].address(), &vec![7; longest + 1], longest + 1));
    assert!(trains.push((CLIENT, 7).into(), b"nobody was asked for it", 100));
    let sent = client[0].send(&mut trains);
    assert_eq!((sent.trains, sent.too_long, sent.refused, sent.dropped), (0, 1, 1, 0));
    sends(&client[0], server[0].address(), &vec![7; longest], longest);
    assert_eq!(received(&server[0], 1)[0].1, vec![7; longest]);
    // A ring has less room than these need.
    let (full, whole) = (vec![1; 65_000], TransmitBurst::new());
    trains = whole;
    for _ in 0..BURST_MESSAGES {
        assert!(trains.push(server[0].address(), &full[..64 * 100], 100));
    }
    let sent = client[0].send(&mut trains);
    assert!(sent.dropped > 0 && sent.trains + sent.dropped == BURST_MESSAGES as u64, "{sent:?}");
    assert_eq!(client[0].card_counts().send_full, sent.dropped);
}

/// Sends bytes as they are.
fn inject(device: &Device, queue: usize, bytes: &[u8]) {
    let mut frames = Frames::new();
    assert!(device.allocate(&mut frames, 1));
    frames[0].shorten(bytes.len());
    frames[0].bytes().copy_from_slice(bytes);
    assert_eq!(device.send(queue, &mut frames), 1);
}

#[test]
fn hostile_frames_are_dropped_and_counted() {
    let Pair { server, client, .. } = &Pair::of(2, 1, false, false);
    let device = &client[0].host().device;
    let from = End { mac: device.mac(), address: (CLIENT, CLIENT_PORT).into() };
    let to = End { mac: server[0].host().device.mac(), address: server[0].address() };
    let hostile = vec![vec![], vec![0xff; 13], vec![0; 1500], vec![0xff; 2000]];
    hostile_frames_do_no_harm(server, [from, to], hostile, |queue, frame| inject(device, queue, frame));
    assert_eq!(server[0].host().resolver.mac_of(&mut Recent::default(), (CLIENT, 1).into()), None);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let path = Path::new("/nonexistent/memif");
    let server = Side::Server { separates_large: false };
    let reason = |device: DpdkDevice, side, address: &str| {
        let wanted = PortOptions { address: address.parse().unwrap(), ..wanted((SERVER, SERVER_PORT), 2) };
        ports(device, side, &wanted).unwrap_err().to_string()
    };
    let memif = || DpdkDevice::Memif(path.into());
    assert!(reason(memif(), server, "[::1]:5").contains("IPv4"));
    for address in ["0.0.0.0:5", "127.0.0.1:5", "224.0.0.1:5"] {
        assert!(reason(memif(), server, address).contains("one host's"), "{address}");
    }
    assert!(reason(memif(), server, "10.0.0.1:65534").contains("not so many ports"));
    assert!(reason(memif(), server, "10.0.0.1:5").contains("No such file"));
    assert!(reason(memif(), Side::Client { queues: 2 }, "10.0.0.2:5").contains("DPDK cannot"));
    assert!(reason("net_nothing0".parse().unwrap(), server, "10.0.0.1:5").contains("DPDK cannot"));
}

#[test]
fn a_client_keeps_its_device_for_the_next_ports() {
    let Pair { server, client, _folder } = Pair::of(2, 2, false, false);
    let options = client[0].host().options.clone();
    let open = |count| DpdkPort::open_all(&options, &wanted((CLIENT, CLIENT_PORT), count));
    assert_eq!(open(2).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(client);
    let again = open(2).unwrap();
    meet(&server, || again[0].reach(SERVER, PATIENCE));
    sends(&again[1], server[0].address(), b"still there", 100);
    assert_eq!(received(&server[0], 1), [(again[1].address(), b"still there".to_vec())]);
}

#[test]
fn a_second_server_does_not_take_the_socket_of_one_that_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif");
    // Its process has ended.
    drop(UnixListener::bind(&path).unwrap());
    let open = || {
        let (device, side) = (DpdkDevice::Memif(path.clone()), Side::Server { separates_large: false });
        ports(device, side, &wanted((SERVER, SERVER_PORT), 2))
    };
    let _first = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert!(path.exists());
}

#[test]
fn devices_are_told_apart() {
    for (text, is_memif) in
        [("memif:/run/minos.sock", true), ("net_tap0,iface=tap0", false), ("0000:3b:00.0", false)]
    {
        let Ok(device) = text.parse::<DpdkDevice>();
        assert_eq!(device.to_string(), text);
        assert_eq!(matches!(device, DpdkDevice::Memif(_)), is_memif);
    }
}
