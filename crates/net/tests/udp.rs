//! Trains of datagrams over loopback: their segments, receivers and counts.

use std::{
    io::IoSlice,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use minos_net::udp::{
    BURST_MESSAGES, ReceiveBurst, Sent, TRAIN_SEGMENTS_MAX, TransmitBurst, UdpOptions, UdpPort,
    steer_by_queue,
};

const FAMILIES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];
const PATIENCE: Duration = Duration::from_secs(10);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn port(text: &str) -> UdpPort {
    UdpPort::bind(address(text), &UdpOptions::default()).unwrap()
}

fn port_with(text: &str, gso: bool, gro: bool) -> UdpPort {
    let port = UdpPort::bind(address(text), &UdpOptions { gso, gro, ..UdpOptions::default() }).unwrap();
    assert_eq!((port.gso(), port.gro()), (gso, gro), "this kernel knows no trains");
    port
}

/// Bytes that differ from segment to segment and within each.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at * 31) as u8).collect()
}

/// The datagrams received, each with its sender, and the number of messages that carried them.
#[derive(Default)]
struct Inbox {
    datagrams: Vec<(SocketAddr, Vec<u8>)>,
    messages: usize,
}

impl Inbox {
    /// Receives until there are `count` datagrams.
    fn receive(port: &UdpPort, burst: &mut ReceiveBurst, count: usize) -> Self {
        let (mut inbox, end) = (Self::default(), Instant::now() + PATIENCE);
        while inbox.datagrams.len() < count {
            assert!(Instant::now() < end, "{} of {count} datagrams arrived", inbox.datagrams.len());
            if port.receive(burst).unwrap() == 0 {
                thread::yield_now();
            }
            for message in burst.messages() {
                inbox.messages += 1;
                let peer = message.peer;
                inbox.datagrams.extend(message.segments().map(|bytes| (peer, bytes.to_vec())));
            }
        }
        inbox
    }

    fn bytes(&self) -> Vec<&[u8]> {
        self.datagrams.iter().map(|(_, bytes)| &bytes[..]).collect()
    }
}

fn send(port: &UdpPort, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) -> Sent {
    let mut burst = TransmitBurst::new();
    assert!(burst.push(peer, bytes, segment_bytes));
    burst.send(port)
}

/// Trains of every length from one port to another, each with a last segment that is full or shorter.
fn trains_keep_their_boundaries(family: &str, gso: bool, gro: bool) {
    let (near, far) = (port_with(family, gso, true), port_with(family, true, gro));
    let mut burst = ReceiveBurst::new();
    for segments in 1..=TRAIN_SEGMENTS_MAX {
        for (segment_bytes, last_bytes) in [(1000, 1000), (1000, 1), (64, 63), (900, 450)] {
            let bytes = pattern((segments - 1) * segment_bytes + last_bytes);
            let sent = send(&near, far.address(), &bytes, segment_bytes);
            assert_eq!(sent, Sent { trains: 1, ..Sent::default() });
            let inbox = Inbox::receive(&far, &mut burst, segments);
            assert_eq!(inbox.bytes(), bytes.chunks(segment_bytes).collect::<Vec<_>>());
            assert!(inbox.datagrams.iter().all(|(peer, _)| *peer == near.address()));
            // With trains on both sides, this shows that they stayed whole.
            assert_eq!(inbox.messages, if gso && gro { 1 } else { segments });
        }
    }
    assert_eq!(near.gso(), gso);
}

#[test]
fn trains_on_both_sides() {
    FAMILIES.iter().for_each(|family| trains_keep_their_boundaries(family, true, true));
}

#[test]
fn trains_that_are_cut_before_the_receiver() {
    FAMILIES.iter().for_each(|family| trains_keep_their_boundaries(family, true, false));
}

#[test]
fn trains_that_leave_in_segments() {
    FAMILIES.iter().for_each(|family| trains_keep_their_boundaries(family, false, false));
    FAMILIES.iter().for_each(|family| trains_keep_their_boundaries(family, false, true));
}

#[test]
fn a_full_burst_leaves_with_one_call_and_arrives_in_order() {
    for gso in [true, false] {
        let (near, far) = (port_with("127.0.0.1:0", gso, true), port("127.0.0.1:0"));
        let (mut out, mut expected) = (TransmitBurst::new(), Vec::new());
        for train in 0..BURST_MESSAGES {
            let bytes = pattern(train * 40 + 1);
            // Different segment sizes, so that no train extends the one before.
            assert!(out.push(far.address(), &bytes, 50 + train));
            expected.extend(bytes.chunks(50 + train).map(<[u8]>::to_vec));
        }
        assert_eq!(out.len(), BURST_MESSAGES);
        assert!(!out.push(far.address(), b"one more", 8));
        assert_eq!(out.send(&near), Sent { trains: BURST_MESSAGES as u64, ..Sent::default() });
        assert!(out.is_empty());
        let inbox = Inbox::receive(&far, &mut ReceiveBurst::new(), expected.len());
        assert_eq!(inbox.bytes(), expected);
    }
}

#[test]
fn a_train_leaves_from_where_it_was_composed() {
    let (near, far, other) = (port("127.0.0.1:0"), port("127.0.0.1:0"), port("127.0.0.1:0"));
    let mut out = TransmitBurst::new();
    let bytes = pattern(250);
    out.buffer().extend_from_slice(&bytes);
    // Datagrams pushed later lie behind these bytes, and must not extend a train that ends elsewhere.
    assert!(out.queue(far.address(), 0..200, 100));
    assert!(out.push(far.address(), &pattern(100), 100));
    out.buffer().extend_from_slice(&bytes);
    for not_there in [200..250, 350..601, 350..350] {
        assert!(!out.queue(other.address(), not_there, 100));
    }
    assert!(out.queue(other.address(), 550..600, 100));
    assert_eq!((out.len(), out.send(&near).trains, out.buffer().len()), (3, 3, 0));
    let mut burst = ReceiveBurst::new();
    let inbox = Inbox::receive(&far, &mut burst, 3);
    assert_eq!(inbox.bytes(), [&bytes[..100], &bytes[100..200], &pattern(100)]);
    assert_eq!(Inbox::receive(&other, &mut burst, 1).bytes(), [&bytes[200..]]);
    out.buffer().resize(70_000, 1);
    assert!(!out.queue(far.address(), 0..6_500, 100), "more segments than a train may have");
    assert!(out.queue(far.address(), 0..6_400, 100));
}

#[test]
fn what_goes_to_one_peer_becomes_one_train() {
    let (near, far, other) = (port("127.0.0.1:0"), port("127.0.0.1:0"), port("127.0.0.1:0"));
    let mut out = TransmitBurst::new();
    for _ in 0..10 {
        assert!(out.push(far.address(), &pattern(100), 100));
    }
    assert_eq!(out.len(), 1);
    assert!(out.push(far.address(), &pattern(30), 100));
    assert_eq!(out.len(), 1);
    // Behind a short segment, for another peer, or with other segments, a new one begins.
    assert!(out.push(far.address(), &pattern(100), 100));
    assert!(out.push(other.address(), &pattern(100), 100));
    assert!(out.push(other.address(), &pattern(90), 90));
    assert_eq!(out.len(), 4);
    assert_eq!(out.send(&near).trains, 4);
    let mut burst = ReceiveBurst::new();
    let lengths = |inbox: Inbox| inbox.datagrams.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>();
    let expected = [[100; 10].as_slice(), &[30, 100]].concat();
    assert_eq!(lengths(Inbox::receive(&far, &mut burst, 12)), expected);
    assert_eq!(lengths(Inbox::receive(&other, &mut burst, 2)), [100, 90]);
}

#[test]
fn a_train_of_more_segments_than_allowed_becomes_several() {
    let (near, far) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let bytes = pattern(10 * (2 * TRAIN_SEGMENTS_MAX + 1) - 3);
    assert_eq!(send(&near, far.address(), &bytes, 10).trains, 3);
    let inbox = Inbox::receive(&far, &mut ReceiveBurst::new(), 2 * TRAIN_SEGMENTS_MAX + 1);
    assert_eq!(inbox.bytes(), bytes.chunks(10).collect::<Vec<_>>());
    assert_eq!(inbox.messages, 3);
}

#[test]
fn pieces_are_cut_where_bytes_would_be() {
    let bytes = pattern(200_000);
    for (family, gso) in FAMILIES.into_iter().zip([true, false]) {
        let (near, far) = (port_with(family, gso, true), port(family));
        for (total, segment_bytes, step) in
            [(9, 4, 2), (64_000, 1000, 333), (200_000, 1448, 1000), (5, 9, 1), (2000, 2000, 2000)]
        {
            let mut pieces = vec![IoSlice::new(&[])];
            for piece in bytes[..total].chunks(step) {
                pieces.extend([IoSlice::new(piece), IoSlice::new(&[])]);
            }
            let sent = near.send_gather(far.address(), &pieces, segment_bytes);
            assert_eq!(sent, Sent { trains: 1, ..Sent::default() });
            let expected: Vec<_> = bytes[..total].chunks(segment_bytes).collect();
            let inbox = Inbox::receive(&far, &mut ReceiveBurst::new(), expected.len());
            assert_eq!(inbox.bytes(), expected);
        }
    }
}

#[test]
fn more_pieces_than_a_train_may_have_are_refused() {
    let (near, far) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let pieces = vec![IoSlice::new(b"x"); 300];
    assert_eq!(near.send_gather(far.address(), &pieces, 1000), Sent { refused: 1, ..Sent::default() });
    assert_eq!(near.send_gather(far.address(), &pieces[..256], 100).trains, 1);
    Inbox::receive(&far, &mut ReceiveBurst::new(), 3);
}

#[test]
fn bytes_of_one_peer_never_show_up_in_the_message_of_another() {
    let far = port("127.0.0.1:0");
    let peers: Vec<UdpPort> = (0..8).map(|_| port("127.0.0.1:0")).collect();
    let marks = |peer: SocketAddr| (peer.port() as u8, (peer.port() >> 8) as u8);
    let (mut out, mut burst) = (TransmitBurst::new(), ReceiveBurst::new());
    for round in 0..200 {
        let mut expected = 0;
        for (index, peer) in peers.iter().enumerate() {
            let (segments, (low, high)) = (1 + (round * 7 + index) % 20, marks(peer.address()));
            assert!(out.push(far.address(), &[low, high].repeat(50 * segments), 100));
            assert_eq!(out.send(peer).trains, 1);
            expected += segments;
        }
        for (peer, bytes) in Inbox::receive(&far, &mut burst, expected).datagrams {
            let (low, high) = marks(peer);
            assert!(bytes.len() == 100 && bytes.chunks(2).all(|mark| mark == [low, high]));
        }
    }
}

#[test]
fn a_full_receive_buffer_drops_and_counts() {
    let options = UdpOptions { receive_buffer_bytes: 4096, ..UdpOptions::default() };
    let far = UdpPort::bind(address("127.0.0.1:0"), &options).unwrap();
    assert!(far.receive_buffer_bytes() < 100_000);
    let near = port("127.0.0.1:0");
    assert_eq!(far.overruns(), 0);
    const COUNT: usize = 1000;
    let taken: u64 = (0..COUNT).map(|_| send(&near, far.address(), &[7; 1000], 1000).trains).sum();
    assert_eq!(taken, COUNT as u64);
    let (mut burst, mut arrived, end) = (ReceiveBurst::new(), 0, Instant::now() + PATIENCE);
    while arrived + (far.overruns() as usize) < COUNT {
        assert!(Instant::now() < end, "{arrived} arrived, {} were dropped", far.overruns());
        arrived += far.receive(&mut burst).unwrap();
    }
    assert!(arrived > 0 && arrived < COUNT);
    assert_eq!(arrived + far.overruns() as usize, COUNT);
    // The next is received again.
    send(&near, far.address(), b"next", 4);
    assert_eq!(Inbox::receive(&far, &mut burst, 1).bytes(), [b"next"]);
}

#[test]
fn what_does_not_fit_its_room_is_dropped_and_counted() {
    let (near, far) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let mut burst = ReceiveBurst::with_slots(4, 100);
    for bytes in [100, 101, 50] {
        send(&near, far.address(), &pattern(bytes), bytes);
    }
    let inbox = Inbox::receive(&far, &mut burst, 2);
    assert_eq!(inbox.bytes(), [&pattern(100)[..], &pattern(50)]);
    let counts = burst.counts();
    assert_eq!((counts.messages, counts.truncated), (2, 1));
}

/// Receives at most `max` messages as soon as there is one.
fn receive_some(port: &UdpPort, burst: &mut ReceiveBurst, max: usize) -> (usize, bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let count = port.receive_at_most(burst, max).unwrap();
        if count > 0 {
            return (count, burst.is_full());
        }
        assert!(Instant::now() < end, "nothing arrives");
    }
}

#[test]
fn a_burst_that_is_full_says_so() {
    let (near, far) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let mut burst = ReceiveBurst::with_slots(1, 100);
    for _ in 0..2 {
        send(&near, far.address(), b"x", 1);
    }
    assert_eq!(receive_some(&far, &mut burst, 32), (1, true));
    assert_eq!(receive_some(&far, &mut burst, 32), (1, true));
    assert_eq!((far.receive(&mut burst).unwrap(), burst.is_full()), (0, false));
    assert_eq!(burst.messages().len(), 0);
    let mut burst = ReceiveBurst::with_slots(2, 100);
    for _ in 0..2 {
        send(&near, far.address(), b"x", 1);
    }
    assert_eq!(receive_some(&far, &mut burst, 1), (1, true));
    assert_eq!(receive_some(&far, &mut burst, 9), (1, false));
}

#[test]
fn a_datagram_longer_than_the_path_takes_is_counted() {
    let (near, far) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let mtu = UdpPort::path_mtu(far.address()).unwrap();
    assert!(mtu >= 1500, "{mtu}");
    let too_long = send(&near, far.address(), &[0; 65_508], 65_508);
    assert_eq!(too_long, Sent { too_long: 1, ..Sent::default() });
    let pieces = [IoSlice::new(&[0; 65_508])];
    assert_eq!(near.send_gather(far.address(), &pieces, 65_508), Sent { too_long: 1, ..Sent::default() });
    assert!(near.gso());
}

#[test]
fn nobody_behind_a_port_harms_no_other() {
    let (near, far) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let gone = port("127.0.0.1:0").address();
    let mut out = TransmitBurst::new();
    for _ in 0..20 {
        assert!(out.push(gone, b"nobody", 6) && out.push(far.address(), b"hello", 5));
        out.send(&near);
    }
    let inbox = Inbox::receive(&far, &mut ReceiveBurst::new(), 20);
    assert!(inbox.bytes().iter().all(|bytes| *bytes == b"hello"));
    assert_eq!(near.receive(&mut ReceiveBurst::new()).unwrap(), 0);
}

#[test]
fn a_peer_of_the_other_family_is_refused() {
    let sent = send(&port("127.0.0.1:0"), address("[::1]:9"), b"x", 1);
    assert_eq!((sent.trains, sent.refused), (0, 1));
}

#[test]
fn ports_in_a_row_and_ports_that_share() {
    let options = UdpOptions::default();
    let row = UdpPort::bind_row(address("127.0.0.1:0"), 8, &options).unwrap();
    let first = row[0].address().port();
    assert!(row.iter().zip(first..).all(|(port, number)| port.address().port() == number));
    // Ports in use are refused, and so is a row beyond the last port.
    assert!(UdpPort::bind_row(row[3].address(), 1, &options).is_err());
    assert!(UdpPort::bind_row(address("127.0.0.1:65534"), 3, &options).is_err());
    let shared = UdpPort::bind_shared(address("127.0.0.1:0"), 4, &options).unwrap();
    assert!(shared.iter().all(|port| port.address() == shared[0].address()));
    assert!(UdpPort::bind(shared[0].address(), &options).is_err());
}

/// Sends datagrams and trains for each of `ports` from many sources; returns how many arrived at the
/// right port, and how many were sent.
fn arrivals(ports: &[UdpPort]) -> (usize, usize) {
    const SOURCES: usize = 16;
    const SEGMENTS: usize = 5;
    let (mut burst, mut right, mut sent) = (ReceiveBurst::new(), 0, 0);
    for _ in 0..SOURCES {
        let near = port(&SocketAddr::new(ports[0].address().ip(), 0).to_string());
        for queue in 0..ports.len() as u16 {
            let mut datagram = [0xaa; 48];
            datagram[6..8].copy_from_slice(&queue.to_le_bytes());
            assert_eq!(send(&near, ports[0].address(), &datagram, 48).trains, 1);
            assert_eq!(send(&near, ports[0].address(), &datagram.repeat(SEGMENTS), 48).trains, 1);
            sent += 1 + SEGMENTS;
        }
    }
    let (mut arrived, end) = (0, Instant::now() + PATIENCE);
    while arrived < sent {
        assert!(Instant::now() < end, "{arrived} of {sent} arrived");
        for (index, port) in ports.iter().enumerate() {
            port.receive(&mut burst).unwrap();
            for message in burst.messages() {
                let is_here = |bytes: &&[u8]| bytes[6..8] == (index as u16).to_le_bytes();
                arrived += message.segments().count();
                right += message.segments().filter(is_here).count();
            }
        }
    }
    (right, sent)
}

#[test]
fn a_datagram_arrives_at_the_port_that_it_names() {
    for family in FAMILIES {
        let ports = UdpPort::bind_shared(address(family), 8, &UdpOptions::default()).unwrap();
        // The control: without the program, a hash of the source deals them.
        let (right, sent) = arrivals(&ports);
        assert!(right < sent / 2, "{right} of {sent} arrived at the right port by chance");
        steer_by_queue(&ports).unwrap();
        let (right, sent) = arrivals(&ports);
        assert_eq!(right, sent);
    }
}

#[test]
fn a_datagram_that_names_no_port_arrives_somewhere() {
    let ports = UdpPort::bind_shared(address("[::1]:0"), 3, &UdpOptions::default()).unwrap();
    steer_by_queue(&ports).unwrap();
    let near = port("[::1]:0");
    let (mut datagram, mut burst) = ([0; 48], ReceiveBurst::new());
    for queue in [3_u16, 255, 256, u16::MAX] {
        datagram[6..8].copy_from_slice(&queue.to_le_bytes());
        assert_eq!(send(&near, ports[0].address(), &datagram, 48).trains, 1);
    }
    let end = Instant::now() + PATIENCE;
    let mut arrived = 0;
    while arrived < 4 {
        assert!(Instant::now() < end, "{arrived} of 4 arrived");
        arrived += ports.iter().map(|port| port.receive(&mut burst).unwrap()).sum::<usize>();
    }
    // Too short to name one: the first gets it.
    assert_eq!(send(&near, ports[0].address(), b"short", 5).trains, 1);
    assert_eq!(Inbox::receive(&ports[0], &mut burst, 1).bytes(), [b"short"]);
}

#[test]
fn ports_that_do_not_share_are_not_steered() {
    let apart = UdpPort::bind_row(address("127.0.0.1:0"), 2, &UdpOptions::default()).unwrap();
    assert!(steer_by_queue(&apart).is_err());
    assert!(steer_by_queue(&apart[..1]).is_err());
}
