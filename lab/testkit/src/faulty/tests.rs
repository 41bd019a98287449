use std::{
    io::IoSlice,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use minos_net::{
    Epoll, Interest, Poller, Port, Progress, Ready, Socket, Token, Wait,
    udp::{ReceiveBurst, Sent, TransmitBurst, UdpOptions, UdpPort},
    wait_readable,
};

use super::*;

const SOCKETS: u64 = 8;
const ROUNDS: usize = 500;

fn pair() -> (Socket, Socket) {
    let (near, far) = UnixStream::pair().unwrap();
    let socket = |stream: UnixStream| {
        stream.set_nonblocking(true).unwrap();
        Socket::from_nonblocking(OwnedFd::from(stream))
    };
    (socket(near), socket(far))
}

/// The tokens reported for one byte sent to each of several sockets, round after round; ends a round when all
/// have been reported or the descriptor is no longer readable.
fn reports(faults: PollerFaults, seed: u64) -> (Vec<Vec<Ready>>, PollerCounts) {
    let pairs: Vec<_> = (0..SOCKETS).map(|_| pair()).collect();
    let mut poller = FaultyPoller::new(Epoll::open().unwrap(), faults, seed).unwrap();
    for (token, (near, _)) in (0..).zip(&pairs) {
        poller.add(Token(token), near.as_fd(), Interest::Read).unwrap();
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        pairs.iter().for_each(|(_, far)| assert_eq!(far.send(b"x"), Progress::Bytes(1)));
        let (mut reported, mut ready) = (Vec::new(), Vec::new());
        while wait_readable(&[poller.descriptor()], Wait::No).unwrap() {
            ready.clear();
            poller.poll(&mut ready, 4, Wait::No).unwrap();
            assert!(ready.len() <= 4);
            reported.extend_from_slice(&ready);
        }
        pairs.iter().for_each(|(near, _)| assert_eq!(near.receive(&mut [0; 8]), Progress::Bytes(1)));
        rounds.push(reported);
    }
    (rounds, poller.counts())
}

fn reports_all(round: &[Ready]) -> bool {
    (0..SOCKETS).all(|token| round.iter().any(|ready| ready.token == Token(token) && ready.readable))
}

#[test]
fn a_poller_without_faults_reports_as_its_twin() {
    let (rounds, counts) = reports(PollerFaults::none(), 1);
    assert!(rounds.iter().all(|round| round.len() == SOCKETS as usize && reports_all(round)));
    let reported = ROUNDS as u64 * SOCKETS;
    assert_eq!(counts, PollerCounts { reported, ..PollerCounts::default() });
}

#[test]
fn each_fault_of_a_poller_happens_and_no_event_is_lost() {
    let (rounds, counts) = reports(PollerFaults::permitted(), 1);
    assert!(rounds.iter().all(|round| reports_all(round)));
    let PollerCounts { reported, spurious, held_back, reordered, fewer, early_hangups, lost } = counts;
    assert!(
        [reported, spurious, held_back, reordered, fewer, early_hangups].iter().all(|&count| count > 100)
    );
    assert_eq!(lost, 0);
    assert!(rounds.iter().flatten().any(|ready| ready.hangup));
    assert_eq!(reports(PollerFaults::permitted(), 1), (rounds, counts), "a seed tells everything");
}

#[test]
fn a_poller_that_loses_events_is_found_out() {
    let (rounds, counts) = reports(PollerFaults { lost: 0.1, ..PollerFaults::none() }, 1);
    assert!(counts.lost > 0 && !rounds.iter().all(|round| reports_all(round)));
}

#[test]
fn an_event_of_a_removed_socket_is_not_reported() {
    let faults = PollerFaults { held_back: 1.0, ..PollerFaults::none() };
    let mut poller = FaultyPoller::new(Epoll::open().unwrap(), faults, 1).unwrap();
    let (near, far) = pair();
    poller.add(Token(1), near.as_fd(), Interest::Read).unwrap();
    assert_eq!(far.send(b"x"), Progress::Bytes(1));
    let mut ready = Vec::new();
    poller.poll(&mut ready, 4, Wait::No).unwrap();
    assert!(ready.is_empty());
    poller.remove(Token(1), near.as_fd());
    for _ in 0..faults.held_back_polls_max + 2 {
        poller.poll(&mut ready, 4, Wait::No).unwrap();
    }
    assert!(ready.is_empty() && !wait_readable(&[poller.descriptor()], Wait::No).unwrap());
}

fn udp() -> UdpPort {
    UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap()
}

/// Sends numbered datagrams in trains of four to a faulty port; returns them as they arrive.
fn arrivals(faults: PortFaults, seed: u64) -> (Vec<Vec<u8>>, PortCounts) {
    let (near, far) = (udp(), FaultyPort::new(udp(), faults, seed).unwrap());
    let (mut trains, mut burst, mut arrived) = (TransmitBurst::new(), far.burst(), Vec::new());
    for train in 0..ROUNDS as u32 {
        let bytes: Vec<u8> = (4 * train..4 * train + 4).flat_map(u32::to_le_bytes).collect();
        assert!(trains.push(far.address(), &bytes, 4));
        assert_eq!(trains.send(&near).trains, 1);
        // The last one waits until none is held back.
        let is_last = train as usize == ROUNDS - 1;
        while wait_readable(&[far.descriptor()], Wait::No).unwrap() {
            far.receive_at_most(&mut burst, 3).unwrap();
            let messages = FaultyPort::<UdpPort>::messages(&mut burst);
            messages.for_each(|message| arrived.extend(message.segments().map(<[u8]>::to_vec)));
            if !is_last {
                break;
            }
        }
    }
    (arrived, far.counts())
}

fn numbers() -> Vec<Vec<u8>> {
    (0..4 * ROUNDS as u32).map(|number| number.to_le_bytes().to_vec()).collect()
}

#[test]
fn a_port_without_faults_carries_everything() {
    let (arrived, counts) = arrivals(PortFaults::none(), 1);
    assert_eq!(arrived, numbers());
    assert_eq!((counts.network.sent, counts.network.delivered), (4 * ROUNDS as u64, 4 * ROUNDS as u64));
}

#[test]
fn each_fault_of_arriving_datagrams_happens() {
    let (arrived, counts) = arrivals(PortFaults::all(), 1);
    let network = counts.network;
    assert_eq!(network.sent + network.duplicated, network.delivered + network.lost + network.caught);
    let counted = [network.lost, network.duplicated, network.reordered, network.caught];
    assert!(counted.iter().all(|&count| count > 20), "{network:?}");
    assert_eq!(arrived.len() as u64, network.delivered);
    assert!(!arrived.is_sorted_by_key(|bytes| u32::from_le_bytes(bytes.as_slice().try_into().unwrap())));
    assert_eq!(arrivals(PortFaults::all(), 1), (arrived, counts), "a seed tells everything");
}

#[test]
fn a_datagram_may_come_spoiled() {
    let mut faults = PortFaults::none();
    (faults.network.truncation, faults.network.unnoticed) = (0.5, 1.0);
    let (arrived, counts) = arrivals(faults, 1);
    assert!(counts.network.spoiled > 100);
    assert!(arrived.iter().any(|bytes| bytes.len() < 4));
}

/// What a burst of three trains of three segments, and one train of pieces, becomes.
fn departures(faults: PortFaults) -> (Sent, Vec<Vec<u8>>, PortCounts) {
    let (near, far) = (FaultyPort::new(udp(), faults, 1).unwrap(), udp());
    let mut trains = TransmitBurst::new();
    for bytes in [b"aabbc", b"ddeef", b"gghhi"] {
        assert!(trains.push(far.address(), bytes, 2));
    }
    let mut sent = near.send(&mut trains);
    assert!(trains.is_empty());
    sent += near.send_gather(far.address(), &[IoSlice::new(b"jjk"), IoSlice::new(b"kl")], 2);
    let (mut burst, mut arrived) = (ReceiveBurst::new(), Vec::new());
    while far.receive(&mut burst).unwrap() > 0 {
        burst.messages().for_each(|message| arrived.extend(message.segments().map(<[u8]>::to_vec)));
    }
    (sent, arrived, near.counts())
}

#[test]
fn each_fault_of_leaving_trains_happens() {
    let (sent, arrived, _) = departures(PortFaults::none());
    let all = ["aa", "bb", "c", "dd", "ee", "f", "gg", "hh", "i", "jj", "kk", "l"].map(|text| text.into());
    assert_eq!((sent, arrived), (Sent { trains: 4, ..Sent::default() }, all.to_vec()));

    let (sent, arrived, counts) = departures(PortFaults { refused: 1.0, ..PortFaults::none() });
    assert_eq!((sent, counts.refused), (Sent { refused: 4, ..Sent::default() }, 4));
    assert!(arrived.is_empty());

    let (sent, arrived, counts) = departures(PortFaults { full: 1.0, ..PortFaults::none() });
    assert_eq!((sent, counts.full), (Sent { dropped: 4, ..Sent::default() }, 2));
    assert!(arrived.is_empty());

    let (sent, arrived, counts) = departures(PortFaults { too_long: 1.0, ..PortFaults::none() });
    assert_eq!((sent, counts.too_long), (Sent { trains: 4, too_long: 4, ..Sent::default() }, 4));
    assert_eq!(arrived, all);

    let (sent, arrived, counts) = departures(PortFaults { in_part: 1.0, ..PortFaults::none() });
    assert_eq!((sent, counts.in_part), (Sent { dropped: 4, ..Sent::default() }, 4));
    assert!(arrived.len() < all.len() && arrived.iter().all(|bytes| all.contains(bytes)));
}
