//! Admission: which clients are served, and that others get no more bytes than they sent.

use minos_proto::native::{
    Detail, Flags, HEADER_BYTES, Header, Hello, Kind, Opcode, Operation, Reason, SealKeys, Status, VERSION,
    WelcomeFlags, version_of,
};
use proptest::prelude::*;

use crate::server::config::NativeConfig;

use super::site::{Client, OTHER_SECRET, SECRET, Site, config, keys, sealed_config};

#[test]
fn a_hello_tells_what_a_client_must_know() {
    let mut site = Site::new(&config(), 3);
    let mut client = Client::stranger();
    let welcome = client.say_hello(&mut site, Flags::NONE).unwrap();
    assert_eq!((welcome.queues, welcome.base_port), (3, 7000));
    assert_eq!(welcome.datagram_bytes_max, 1400, "the smaller of both");
    assert_eq!(1 << welcome.partition_bits, site.store.partitions());
    assert_eq!((welcome.session, welcome.value_bytes_max), (0, 1 << 20));
    assert!(!welcome.flags.contains(WelcomeFlags::CACHE) && !welcome.flags.contains(WelcomeFlags::SEALED));
    assert_ne!(welcome.cookie, 0);
    assert_eq!(site.counter("native_hellos"), 1);
}

#[test]
fn a_session_is_only_for_who_shows_a_cookie() {
    let mut site = Site::new(&config(), 1);
    let mut client = Client::stranger();
    assert_eq!(client.say_hello(&mut site, Flags::OPEN).unwrap().session, 0);
    let session = client.say_hello(&mut site, Flags::OPEN).unwrap().session;
    assert_ne!(session, 0);
    assert_eq!(client.say_hello(&mut site, Flags::OPEN).unwrap().session, session, "the same nonce");
}

#[test]
fn an_answer_echoes_its_request() {
    let (mut site, mut client) = Site::with_client(1);
    let trains = client.send(&mut site, 0, &[client.get(b"k")]);
    let header = Header::parse(&trains[0].bytes).unwrap();
    assert_eq!((header.stamp, header.sequence), (client.header.stamp, client.header.sequence));
    assert_eq!((header.geometry, header.flags), (client.header.geometry, Flags::NONE));
    client.header.geometry ^= 1 << 20;
    let trains = client.send(&mut site, 0, &[client.get(b"k")]);
    let header = Header::parse(&trains[0].bytes).unwrap();
    assert_ne!(header.geometry, client.header.geometry, "tells of another directory");
    site.shared.drain();
    let trains = client.send(&mut site, 0, &[client.get(b"k")]);
    assert!(Header::parse(&trains[0].bytes).unwrap().flags.contains(Flags::DRAINING));
}

#[test]
fn another_largest_value_is_another_geometry() {
    let (mut site, mut client) = Site::with_client(1);
    site.shared.set_value_bytes_max(5000);
    let trains = client.send(&mut site, 0, &[client.get(b"k")]);
    let header = Header::parse(&trains[0].bytes).unwrap();
    assert_ne!(header.geometry, client.header.geometry);
    let welcome = client.say_hello(&mut site, Flags::NONE).unwrap();
    assert_eq!((welcome.value_bytes_max, welcome.geometry), (5000, header.geometry));
}

#[test]
fn a_cookie_gets_old() {
    let (mut site, mut client) = Site::with_client(1);
    site.pass(60);
    let request = client.request(&[client.get(b"k")]);
    let trains = site.deliver(0, &[client.message(request.clone())]);
    assert!(Header::parse(&trains[0].bytes).unwrap().flags.contains(Flags::RENEW));
    site.pass(60);
    assert_eq!(client.refusal(&mut site, request.clone()), Some(Reason::Cookie));
    client.say_hello(&mut site, Flags::NONE).unwrap();
    assert_eq!(client.ask(&mut site, &[client.get(b"k")]).len(), 1);
    client.peer.set_port(1);
    let elsewhere = client.request(&[client.get(b"k")]);
    assert_eq!(client.refusal(&mut site, elsewhere), Some(Reason::Cookie));
    assert_eq!(site.counter("native_refused_cookie"), 2);
}

#[test]
fn the_segments_of_a_message_show_a_cookie_each() {
    let (mut site, mut client) = Site::with_client(1);
    let good = client.request(&[client.get(b"k")]);
    let cookie = std::mem::replace(&mut client.header.cookie, 5);
    let bad = client.request(&[client.get(b"k")]);
    client.header.cookie = cookie;
    let other = client.request(&[client.get(b"k")]);
    let message = (client.peer, [good.clone(), bad, other].concat(), good.len());
    let kinds: Vec<_> = site
        .deliver(0, &[message])
        .iter()
        .flat_map(|train| {
            train.datagrams().map(|datagram| Header::parse(datagram).unwrap().kind).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Refusal).count(), 1);
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Reply).count(), 2);
}

#[test]
fn what_cannot_be_read_is_refused_and_never_answered_to_a_server() {
    let (mut site, mut client) = Site::with_client(1);
    let request = client.request(&[client.get(b"k")]);
    let changed = |at: usize, byte: u8| {
        let mut changed = request.clone();
        changed[at] = byte;
        changed
    };
    assert_eq!(client.refusal(&mut site, changed(2, 9)), Some(Reason::Version));
    assert_eq!(client.refusal(&mut site, changed(3, 99)), Some(Reason::Malformed));
    assert_eq!(client.refusal(&mut site, changed(8, 0)), Some(Reason::Malformed), "length");
    assert_eq!(client.refusal(&mut site, changed(10, 200)), Some(Reason::Malformed), "count");
    assert_eq!(client.refusal(&mut site, changed(48 + 2, 251)), Some(Reason::Malformed), "key length");
    assert_eq!(client.refusal(&mut site, changed(0, b'x')), None);
    for kind in [Kind::Reply, Kind::Welcome, Kind::Refusal, Kind::Data, Kind::Ack] {
        assert_eq!(client.refusal(&mut site, changed(3, kind as u8)), None, "{kind:?}");
    }
    for length in 0..HEADER_BYTES {
        assert_eq!(client.refusal(&mut site, request[..length].to_vec()), None);
    }
    let hello = client.hello(Flags::NONE);
    assert_eq!(client.refusal(&mut site, hello[..255].to_vec()), Some(Reason::Malformed));
    let trains = site.deliver(0, &[client.message(changed(2, 9))]);
    assert_eq!(version_of(&trains[0].bytes), Some(VERSION));
}

#[test]
fn operations_before_a_malformed_one_are_executed() {
    let (mut site, mut client) = Site::with_client(1);
    let put = client.put(b"k", b"v");
    let mut request = client.request(&[put, client.get(b"k")]);
    let second = 48 + (put.bytes()).next_multiple_of(8);
    request[second + 2] = 0;
    let trains = site.deliver(0, &[client.message(request)]);
    let kinds: Vec<_> = trains.iter().map(|train| Header::parse(&train.bytes).unwrap().kind).collect();
    assert_eq!(kinds.len(), 2);
    assert!(kinds.contains(&Kind::Reply) && kinds.contains(&Kind::Refusal));
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).value, b"v");
}

#[test]
fn with_a_secret_only_sealed_datagrams_are_served_and_once() {
    let (mut site, mut client) = Site::with_session(&sealed_config(), 1);
    assert!(client.welcome.unwrap().flags.contains(WelcomeFlags::SEALED));
    assert_eq!(client.ask_one(&mut site, client.put(b"k", b"v")).status, Status::Ok);
    let request = client.request(&[client.get(b"k")]);
    let trains = site.deliver(0, &[client.message(request.clone())]);
    assert_eq!(client.read(&trains)[0].value, b"v");
    assert_eq!(client.refusal(&mut site, request.clone()), Some(Reason::Replayed));

    let mut fresh = client.request(&[client.get(b"k")]);
    fresh[60] ^= 1;
    assert_eq!(client.refusal(&mut site, fresh), Some(Reason::Seal));
    let session = std::mem::replace(&mut client.header.session, 1 << 40);
    let foreign = client.request(&[client.get(b"k")]);
    assert_eq!(client.refusal(&mut site, foreign), Some(Reason::Session));
    client.header.session = session;
    client.seal = None;
    let open = client.request(&[client.get(b"k")]);
    assert_eq!(client.refusal(&mut site, open), Some(Reason::Seal));
    let mut outsider = Client::stranger();
    assert_eq!(outsider.say_hello(&mut site, Flags::NONE), Err(Reason::Seal));
    outsider.seal = Some(keys(OTHER_SECRET));
    assert_eq!(outsider.say_hello(&mut site, Flags::NONE), Err(Reason::Seal));
}

#[test]
fn while_a_secret_is_replaced_both_are_served() {
    let secrets = [SECRET, OTHER_SECRET].map(|secret| secret.parse().unwrap()).to_vec();
    let mut site = Site::new(&NativeConfig { secrets, ..config() }, 1);
    for (secret, port) in [(SECRET, 1), (OTHER_SECRET, 2)] {
        let mut client = Client::stranger();
        client.peer.set_port(port);
        client.seal = Some(keys(secret));
        client.say_hello(&mut site, Flags::NONE).unwrap();
        client.say_hello(&mut site, Flags::OPEN).unwrap();
        // The client checks that the answer is sealed under the same secret.
        assert_eq!(client.ask_one(&mut site, client.put(b"k", b"v")).status, Status::Ok);
    }
}

/// If any refusal were sealed, a client with a wrong tag could have the server seal any session and number.
#[test]
fn a_refusal_is_sealed_for_who_knows_the_secret_only() {
    let (mut site, mut client) = Site::with_session(&sealed_config(), 1);
    let is_sealed = |site: &mut Site, client: &Client, datagram: Vec<u8>| {
        let trains = site.deliver(0, &[client.message(datagram)]);
        let header = Header::parse(&trains[0].bytes).unwrap();
        assert_eq!(header.kind, Kind::Refusal);
        assert_eq!(header.is_sealed(), keys(SECRET).to_client.verify(&trains[0].bytes));
        header.is_sealed()
    };
    client.header.cookie = 0;
    let request = client.request(&[client.get(b"k")]);
    let mut forged = request.clone();
    forged[16] ^= 1;
    assert!(is_sealed(&mut site, &client, request));
    assert!(!is_sealed(&mut site, &client, forged));
    client.seal = Some(keys(OTHER_SECRET));
    let of_another_secret = client.request(&[client.get(b"k")]);
    assert!(!is_sealed(&mut site, &client, of_another_secret));
}

#[test]
fn an_answer_sent_back_is_no_request() {
    let (mut site, mut client) = Site::with_session(&sealed_config(), 1);
    let keys = client.seal.take().unwrap();
    let reversed = keys.to_client.clone();
    client.seal = Some(SealKeys { to_server: reversed, ..keys });
    let request = client.request(&[client.get(b"k")]);
    assert_eq!(client.refusal(&mut site, request), Some(Reason::Seal));
}

#[test]
fn without_a_secret_a_seal_cannot_be_judged() {
    let mut site = Site::new(&config(), 1);
    let mut client = Client::stranger();
    client.seal = Some(keys(SECRET));
    assert_eq!(client.say_hello(&mut site, Flags::NONE), Err(Reason::Seal));
}

/// Datagrams of strangers: noise, noise behind a header, and whole ones of which some bytes were changed.
fn strange_datagram() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..400);
    let headed =
        (noise.clone(), any::<[u8; 2]>(), any::<u16>()).prop_map(|(mut bytes, [version, kind], length)| {
            bytes.resize(bytes.len().max(48), 0);
            let length = if length % 3 == 0 { length } else { bytes.len() as u16 };
            bytes[..2].copy_from_slice(b"Mn");
            bytes[2] = if version < 250 { VERSION } else { version };
            bytes[3] = kind % 10;
            bytes[8..10].copy_from_slice(&length.to_le_bytes());
            bytes
        });
    let changed = (
        any::<prop::sample::Index>(),
        any::<bool>(),
        prop::collection::vec((0..600usize, any::<u8>()), 0..3),
    )
        .prop_map(|(which, is_hello, changes)| {
            let mut bytes = whole_datagram(which.index(16), is_hello);
            for (at, byte) in changes {
                let length = bytes.len();
                bytes[at % length] = byte;
            }
            bytes
        });
    prop_oneof![noise, headed, changed]
}

fn whole_datagram(which: usize, is_hello: bool) -> Vec<u8> {
    let mut stranger = Client::stranger();
    if is_hello {
        let mut out = Vec::new();
        let hello = Hello { nonce: 1, datagram_bytes_max: 1400, window: 32, version_max: 1 };
        hello.compose(&mut out, Header { kind: Kind::Hello, flags: Flags::OPEN, ..stranger.header }, None);
        return out;
    }
    let opcode = Opcode::from_byte([1, 2, 0x10, 0x16, 0x19, 0x20, 0x21, 0x7f][which % 8]);
    let detail = Detail { value_bytes: 8, ..Detail::default() };
    let operation = Operation { detail, ..stranger.operation(opcode, b"a key", &[1; 8]) };
    stranger.header.cookie = which as u64;
    stranger.request(&[operation])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn strangers_get_no_more_bytes_than_they_send(
        datagrams in prop::collection::vec(strange_datagram(), 1..6),
        is_sealed in any::<bool>(),
        queue in 0..4usize,
    ) {
        let config = if is_sealed { sealed_config() } else { config() };
        let mut site = Site::new(&config, 2);
        let stranger = Client::stranger();
        for datagram in datagrams {
            let bytes_in = datagram.len();
            let trains = site.deliver(queue, &[stranger.message(datagram)]);
            let bytes_out: usize = trains.iter().map(|train| train.bytes.len()).sum();
            prop_assert!(bytes_out <= bytes_in);
        }
        prop_assert_eq!(site.store.stats().items, 0);
        prop_assert_eq!(site.shared.sessions().totals().open, 0);
    }

    #[test]
    fn nothing_that_a_client_sends_breaks_the_server(
        changes in prop::collection::vec((0..2000usize, any::<u8>()), 0..6),
        opcodes in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u64>()), 1..10),
    ) {
        let (mut site, mut client) = Site::with_session(&config(), 2);
        let operations: Vec<_> = opcodes.iter().map(|&(opcode, flags, operand)| {
            let mut operation = client.operation(Opcode::from_byte(opcode), b"key", b"12345678");
            operation.flags.0 = flags;
            operation.detail.operand = operand;
            operation.detail.once = operand as u32;
            operation
        }).collect();
        let mut request = client.request(&operations);
        let cookie = request[24..32].to_vec();
        for (at, byte) in changes {
            let length = request.len();
            request[at % length] = byte;
        }
        request[24..32].copy_from_slice(&cookie);
        site.deliver(0, &[client.message(request)]);
        prop_assert_eq!(site.store.check(), Ok(()));
        prop_assert_eq!(client.ask(&mut site, &[client.get(b"other")]).len(), 1);
    }
}
