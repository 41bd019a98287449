use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ends() -> (SocketAddr, SocketAddr) {
    (address("10.0.0.1:1"), address("10.0.0.2:2"))
}

/// Sends `count` numbered datagrams, a microsecond apart, and takes out all that arrives.
fn carry(network: &mut Network, count: u32) -> Vec<Datagram> {
    let (from, to) = ends();
    let mut arrived = Vec::new();
    for number in 0..count {
        network.send(from, to, &number.to_le_bytes());
        let until_ns = network.now_ns() + 1000;
        arrived.extend(std::iter::from_fn(|| network.next_until(until_ns)));
    }
    arrived.extend(std::iter::from_fn(|| network.next_until(u64::MAX)));
    arrived
}

fn everything() -> Faults {
    Faults {
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.1,
        held_back_ns_max: 100_000,
        delay_ns: 1000..=50_000,
        corruption: 0.1,
        truncation: 0.1,
        unnoticed: 0.5,
        datagram_bytes_max: 1500,
    }
}

#[test]
fn a_link_without_faults_is_a_delay() {
    let mut network = Network::new(1, Faults::none());
    let arrived = carry(&mut network, 100);
    for (number, datagram) in (0..100u32).zip(&arrived) {
        assert_eq!(datagram.bytes, number.to_le_bytes());
        assert_eq!(datagram.at_ns, 1000 * u64::from(number) + 20_000);
    }
    assert_eq!(network.counts(), Counts { sent: 100, delivered: 100, ..Counts::default() });
    assert_eq!((network.in_flight(), network.next_at_ns()), (0, None));
}

#[test]
fn a_seed_tells_everything() {
    let run = |seed| {
        let mut network = Network::new(seed, everything());
        (carry(&mut network, 1000), network.counts())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn every_fault_happens_about_as_often_as_it_should() {
    let mut network = Network::new(1, everything());
    let arrived = carry(&mut network, 10_000);
    let Counts { sent, delivered, lost, duplicated, reordered, caught, spoiled, oversized } =
        network.counts();
    assert_eq!((sent, oversized, delivered), (10_000, 0, arrived.len() as u64));
    assert_eq!(sent + duplicated, delivered + lost + caught);
    assert!((900..1100).contains(&duplicated), "{duplicated}");
    assert!((1000..1200).contains(&lost), "{lost}");
    // Flipped or cut, half of them noticed.
    assert!((850..1050).contains(&caught) && (850..1050).contains(&spoiled), "{caught} {spoiled}");
    assert!((800..1000).contains(&reordered), "{reordered}");
    let numbers: Vec<_> =
        arrived.iter().filter_map(|datagram| datagram.bytes.as_slice().try_into().ok()).collect();
    assert!(!numbers.is_sorted_by_key(|&bytes| u32::from_le_bytes(bytes)));
    assert!(arrived.is_sorted_by_key(|datagram| datagram.at_ns));
}

#[test]
fn links_have_faults_of_their_own() {
    let (one, other) = ends();
    let mut network = Network::new(1, Faults::none());
    let cut = Faults { loss: 1.0, ..Faults::none() };
    let exchange = |network: &mut Network| {
        network.send(one, other, b"there");
        network.send(other, one, b"back");
        std::iter::from_fn(|| network.next_until(u64::MAX)).map(|datagram| datagram.bytes).collect::<Vec<_>>()
    };
    network.set_link(one.ip(), other.ip(), cut.clone());
    assert_eq!(exchange(&mut network), [b"back"]);
    network.set_faults(cut);
    network.set_link(one.ip(), other.ip(), Faults::none());
    assert_eq!(exchange(&mut network), [b"there"]);
    network.reset_link(one.ip(), other.ip());
    assert!(exchange(&mut network).is_empty());
}

#[test]
fn what_is_too_large_is_not_carried() {
    let (from, to) = ends();
    let mut network = Network::new(1, Faults { datagram_bytes_max: 100, ..Faults::none() });
    network.send(from, to, &[0; 100]);
    network.send(from, to, &[0; 101]);
    assert_eq!(network.next_until(u64::MAX).map(|datagram| datagram.bytes.len()), Some(100));
    assert_eq!((network.next_until(u64::MAX), network.counts().oversized), (None, 1));
}

#[test]
fn time_moves_to_where_one_looks() {
    let (from, to) = ends();
    let mut network = Network::new(1, Faults::none());
    network.send(from, to, b"1");
    assert_eq!((network.next_until(19_999), network.now_ns()), (None, 19_999));
    network.send(from, to, b"2");
    network.drop_flights_to(address("10.0.0.3:1").ip());
    assert_eq!(network.next_until(u64::MAX).map(|datagram| datagram.at_ns), Some(20_000));
    network.drop_flights_to(to.ip());
    assert_eq!((network.next_until(u64::MAX), network.counts().lost), (None, 1));
    assert_eq!(network.now_ns(), 20_000);
}
