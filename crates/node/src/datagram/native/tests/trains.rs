//! Replies in datagrams, and datagrams in trains.

use minos_proto::native::{Header, Kind, Status, TRAIN_SEGMENTS_MAX, replies};

use super::site::{Client, Site, Train, config, sealed_config};

/// Requests of one GET each, as one message.
fn train_of_gets(client: &mut Client, keys: &[&[u8]]) -> (std::net::SocketAddr, Vec<u8>, usize) {
    let longest = keys.iter().map(|key| key.len()).max().unwrap_or(0);
    let segment_bytes = 48 + (16 + longest).next_multiple_of(8);
    let mut bytes = Vec::new();
    for key in keys {
        let request = client.request(&[client.get(key)]);
        let end = bytes.len() + segment_bytes;
        bytes.extend_from_slice(&request);
        bytes.resize(end, 0);
    }
    (client.peer, bytes, segment_bytes)
}

fn store(site: &mut Site, client: &mut Client, key: &[u8], value_bytes: usize) {
    let value = vec![key[0]; value_bytes];
    let put = client.put(key, &value);
    assert_eq!(client.ask_one(site, put).status, Status::Ok);
}

fn lengths(trains: &[Train]) -> Vec<Vec<usize>> {
    trains.iter().map(|train| train.datagrams().map(<[u8]>::len).collect()).collect()
}

#[test]
fn a_message_of_requests_is_answered_by_a_train() {
    let (mut site, mut client) = Site::with_client(1);
    for (key, bytes) in [(b"a", 100), (b"b", 60), (b"c", 120)] {
        store(&mut site, &mut client, key, bytes);
    }
    let first = client.header.sequence + 1;
    let message = train_of_gets(&mut client, &[b"a", b"b", b"a", b"c", b"c", b"x"]);
    let trains = site.deliver(0, &[message]);
    // 72 bytes of heads, and the value in whole words. A longer datagram begins another train, and one that would
    // be padding for the most part ends its train.
    assert_eq!(lengths(&trains), [vec![176, 176, 176], vec![192, 192, 72]]);
    let datagrams: Vec<_> = trains.iter().flat_map(Train::datagrams).collect();
    for (at, (datagram, key)) in datagrams.iter().zip([b"a", b"b", b"a", b"c", b"c", b"x"]).enumerate() {
        let header = Header::parse(datagram).unwrap();
        assert_eq!((header.kind, header.sequence), (Kind::Reply, first + at as u64));
        let records: Vec<_> = replies(datagram, &header).map(Result::unwrap).collect();
        assert_eq!(records.len(), 1);
        assert!(records[0].value.iter().all(|byte| *byte == key[0]));
        assert_eq!(records[0].status == Status::NotFound, key == b"x");
    }
}

#[test]
fn a_much_shorter_datagram_ends_its_train() {
    let (mut site, mut client) = Site::with_client(1);
    store(&mut site, &mut client, b"a", 1000);
    let message = train_of_gets(&mut client, &[b"a", b"x", b"a", b"a"]);
    let trains = site.deliver(0, &[message]);
    assert_eq!(lengths(&trains), [vec![1072, 72], vec![1072, 1072]]);
}

#[test]
fn trains_are_bounded_and_one_peer_each() {
    let (mut site, mut client) = Site::with_client(1);
    let mut other = Client::stranger();
    other.peer.set_port(41_000);
    other.say_hello(&mut site, minos_proto::native::Flags::NONE).unwrap();
    let keys = [&b"x"[..]; 100];
    let messages = [train_of_gets(&mut client, &keys), train_of_gets(&mut other, &keys[..2])];
    let trains = site.deliver(0, &messages);
    let counts: Vec<_> = trains.iter().map(|train| train.datagrams().count()).collect();
    assert_eq!(counts, [TRAIN_SEGMENTS_MAX, 100 - TRAIN_SEGMENTS_MAX, 2]);
    assert_eq!(trains[2].peer, other.peer);
    store(&mut site, &mut client, b"a", 1300);
    let trains = site.deliver(0, &[train_of_gets(&mut client, &[&b"a"[..]; 60])]);
    let counts: Vec<_> = trains.iter().map(|train| train.datagrams().count()).collect();
    assert_eq!(counts, [65_000 / 1376, 60 - 65_000 / 1376]);
}

#[test]
fn answers_that_grow_are_all_sent() {
    let (mut site, mut client) = Site::with_client(1);
    let keys: Vec<_> = (0..64u8).map(|number| [number]).collect();
    for (key, bytes) in keys.iter().zip((0..).step_by(16)) {
        store(&mut site, &mut client, key, bytes);
    }
    let message = train_of_gets(&mut client, &keys.iter().map(<[u8; 1]>::as_slice).collect::<Vec<_>>());
    // Each begins another train, and a port takes half as many at once.
    assert_eq!(lengths(&site.deliver(0, &[message])).len(), 64);
}

#[test]
fn a_request_whose_answer_does_not_fit_gets_several_datagrams() {
    for config in [config(), sealed_config()] {
        let (mut site, mut client) = Site::with_session(&config, 1);
        let keys: Vec<_> = (0..40u8).map(|number| [number]).collect();
        for (key, bytes) in keys.iter().zip((0..).step_by(17)) {
            store(&mut site, &mut client, key, bytes);
        }
        let gets: Vec<_> = keys.iter().map(|key| client.get(key)).collect();
        let trains = client.send(&mut site, 0, &gets);
        let answers = client.read(&trains);
        assert_eq!(answers.len(), 40);
        for ((answer, key), bytes) in answers.iter().zip(&keys).zip((0..).step_by(17)) {
            assert_eq!(answer.value, vec![key[0]; bytes]);
        }
        let datagrams: Vec<_> = trains.iter().flat_map(Train::datagrams).collect();
        let bytes: usize =
            keys.len() * 24 + (0..40).map(|at| (at * 17usize).next_multiple_of(8)).sum::<usize>();
        // Not more datagrams than are needed if each has room for one more record left over.
        assert!(datagrams.len() <= bytes.div_ceil(1400 - 48 - 16 - 700), "{}", datagrams.len());
    }
}

#[test]
fn the_largest_value_that_fits_fits() {
    for config in [config(), sealed_config()] {
        let (mut site, mut client) = Site::with_session(&config, 1);
        let tag_bytes = if !config.secrets.is_empty() { 16 } else { 0 };
        let fitting = (1400 - 48 - tag_bytes) / 8 * 8 - 24;
        store(&mut site, &mut client, b"a", fitting);
        let answer = client.ask_one(&mut site, client.get(b"a"));
        assert_eq!((answer.status, answer.value.len()), (Status::Ok, fitting));
        store(&mut site, &mut client, b"a", fitting + 1);
        let trains = client.send(&mut site, 0, &[client.get(b"a")]);
        let header = Header::parse(&trains[0].bytes).unwrap();
        let record = replies(&trains[0].bytes, &header).next().unwrap().unwrap();
        assert_eq!(record.status, Status::Large);
        assert!(trains.iter().flat_map(Train::datagrams).all(|datagram| datagram.len() <= 1400));
    }
}
