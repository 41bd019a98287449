//! What a server's and a client's ports at one memory must do, whichever driver they have.

use std::{
    collections::BTreeSet,
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use crate::{
    Port,
    frame::{ARP_FRAME_BYTES, Arp, End, head_bytes, write_head},
    udp::{BURST_MESSAGES, TransmitBurst},
};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const SERVER_PORT: u16 = 11311;
pub(crate) const CLIENT_PORT: u16 = 40_000;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Lets the client's ports learn the server's hardware address.
pub(crate) fn meet<P: Port>(server: &[P], reach: impl FnOnce() -> io::Result<()> + Send) {
    std::thread::scope(|scope| {
        let asker = scope.spawn(reach);
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
pub(crate) fn received<P: Port>(port: &P, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut burst, mut all, end) = (port.burst(), Vec::new(), Instant::now() + PATIENCE);
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} have come", all.len());
        port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap();
        all.extend(P::messages(&mut burst).map(|message| (message.peer, message.bytes.to_vec())));
    }
    all
}

pub(crate) fn sends<P: Port>(port: &P, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
    let mut trains = TransmitBurst::new();
    assert!(trains.push(peer, bytes, segment_bytes));
    let sent = port.send(&mut trains);
    assert_eq!((sent.trains, trains.len()), (1, 0), "{sent:?}");
}

/// Asks each of four ports from each of three, and answers.
pub(crate) fn all_ask_and_answer<P: Port>(server: &[P], client: &[P]) {
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
}

/// Names each of four queues that share an address, one that is none, and none at all.
pub(crate) fn payloads_name_queues<P: Port>(server: &[P], client: &P) {
    let naming = |queue: u16| [&[0; 6], &queue.to_le_bytes()[..], b"payload"].concat();
    for number in 0..4 {
        sends(client, server[0].address(), &naming(number), 100);
    }
    // A queue that is none, and a payload without a queue.
    sends(client, server[0].address(), &naming(4), 100);
    sends(client, server[0].address(), b"short", 100);
    // All come to one queue, whose port passes them on.
    let mut heard = vec![Vec::new(); 4];
    let (mut burst, end) = (server[0].burst(), Instant::now() + PATIENCE);
    let invalid = || server.iter().map(|port| port.card_counts().invalid).sum::<u64>();
    while heard.iter().any(Vec::is_empty) || invalid() < 2 {
        assert!(Instant::now() < end, "{heard:?}");
        for (port, heard) in server.iter().zip(&mut heard) {
            port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap();
            heard.extend(P::messages(&mut burst).map(|message| message.bytes.to_vec()));
        }
    }
    assert!(heard.iter().zip(0..).all(|(heard, number)| *heard == [naming(number)]), "{heard:?}");
}

/// Threads send and receive at the same time.
pub(crate) fn threads_ask_and_answer<P: Port>(server: &[P], client: &[P]) {
    const EACH: u32 = 2000;
    std::thread::scope(|scope| {
        for port in server {
            scope.spawn(|| {
                let (mut burst, mut echo) = (port.burst(), TransmitBurst::new());
                let (mut count, end) = (0, Instant::now() + PATIENCE);
                while count < EACH {
                    assert!(Instant::now() < end, "{count} of {EACH} have come");
                    count += port.receive_at_most(&mut burst, BURST_MESSAGES).unwrap() as u32;
                    for message in P::messages(&mut burst) {
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

/// Drops and counts what is no sound datagram for the first of a server's ports, and goes on. `inject` sends bytes as they are
/// by a queue.
pub(crate) fn hostile_frames_do_no_harm<P: Port>(
    server: &[P],
    [from, to]: [End; 2],
    mut hostile: Vec<Vec<u8>>,
    inject: impl Fn(usize, &[u8]),
) {
    let written = |from: &End, to: &End| {
        let mut frame = vec![0xa5; head_bytes(&SERVER.into()) + 40];
        write_head(&mut frame, from, to, 40).unwrap();
        frame
    };
    let queue = usize::from(SERVER_PORT) % 2;
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
        inject(queue, frame);
        inject(queue, &sound);
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
        inject(queue, frame);
        inject(queue, &sound);
        // The server still works.
        let heard = received(&server[0], 1);
        assert!(heard.len() < 3 && heard.last().unwrap().1 == [0xa5; 40], "{frame:x?}: {heard:x?}");
    }
    // Spoiled are at most the source, which any host may have, and what the checksum does not cover.
    let invalid = server[0].card_counts().invalid;
    assert!(invalid as usize > hostile.len() * 4 / 5, "{invalid} of {}", hostile.len());
}
