//! Clients of the binary protocol in a rack: the same packets come back whoever owns the key.

use minos_testkit::{Answer, Packet, PacketClient};
use rustix::process::Signal;

use crate::up::{Rack, insist};

/// A key for each node of `rack`, with bytes that no line of the text protocol can have in every second one.
fn keys(rack: &Rack) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..rack.nodes.len()).map(|node| rack.key_of(node).into_bytes()).collect();
    keys.extend((0..8).map(|number| format!("odd \r\n{number}").into_bytes()));
    keys
}

fn client(rack: &Rack, node: usize) -> PacketClient {
    PacketClient::connect(rack.nodes[node].0).unwrap()
}

/// Status, flags, key and value of a reply.
fn parts(answer: &Answer) -> (u16, &[u8], &[u8], &[u8]) {
    (answer.status, &answer.extras, &answer.key, &answer.value)
}

#[test]
fn packets_do_the_same_from_any_node() {
    let rack = Rack::up(3, &[]);
    let mut clients: Vec<PacketClient> = (0..3).map(|node| client(&rack, node)).collect();
    let seven = &7_u32.to_be_bytes()[..];
    for key in &keys(&rack) {
        for node in 0..3 {
            let [mut here, mut there] = [node, (node + 1) % 3].map(|node| client(&rack, node));
            let mut ask = |packet: Packet| here.ask(&packet).unwrap();
            // From nothing to an item.
            assert_eq!(parts(&ask(Packet::of(0x00, key))), (1, &[][..], &[][..], &b"Not found"[..]));
            assert_eq!(parts(&ask(Packet::of(0x0c, key))), (1, &[][..], &key[..], &[][..]));
            assert_eq!(ask(Packet::of(0x04, key)).status, 1);
            assert_eq!(ask(Packet::touch(0x1c, key, 0)).status, 1);
            assert_eq!(ask(Packet::store(0x03, key, "5", 7, 0)).value, b"Not found");
            assert_eq!(ask(Packet { value: b"x".to_vec(), ..Packet::of(0x0e, key) }).value, b"Not stored.");
            assert_eq!(ask(Packet::count(0x05, key, 1, 0, u32::MAX)).status, 1);
            let added = ask(Packet::store(0x02, key, "5", 7, 0));
            assert_eq!((added.status, added.cas == 0), (0, false));
            assert_eq!(ask(Packet::store(0x02, key, "5", 7, 0)).value, b"Data exists for key.");
            // Counts and joins.
            let counted = ask(Packet::count(0x05, key, 6, 0, 0));
            assert_eq!((counted.status, &counted.value[..]), (0, &11_u64.to_be_bytes()[..]));
            assert_eq!(ask(Packet { value: b"00".to_vec(), ..Packet::of(0x0e, key) }).status, 0);
            let got = there.ask(&Packet::of(0x0c, key)).unwrap();
            assert_eq!(parts(&got), (0, seven, &key[..], &b"1100"[..]));
            // CAS uniques are the owner's.
            let late = Packet { cas: counted.cas, ..Packet::store(0x01, key, "late", 7, 0) };
            assert_eq!(there.ask(&late).unwrap().status, 2);
            let stored =
                there.ask(&Packet { cas: got.cas, ..Packet::store(0x01, key, "text", 7, 0) }).unwrap();
            assert_eq!(stored.status, 0);
            assert_eq!(ask(Packet::count(0x06, key, 1, 0, 0)).status, 6);
            let touched = ask(Packet::touch(0x1c, key, 1000));
            assert_eq!(parts(&touched), (0, seven, &[][..], &[][..]));
            let touched = ask(Packet::touch(0x23, key, 0));
            assert_eq!(parts(&touched), (0, seven, &key[..], &b"text"[..]));
            assert_eq!(touched.cas, stored.cas);
            assert_eq!(ask(Packet { cas: 1, ..Packet::of(0x04, key) }).status, 2);
            assert_eq!(ask(Packet { cas: stored.cas, ..Packet::of(0x04, key) }).status, 0);
            let made = there.ask(&Packet::count(0x06, key, 1, 33, 1000)).unwrap();
            assert_eq!((made.status, &made.value[..]), (0, &33_u64.to_be_bytes()[..]));
            assert_eq!(ask(Packet::of(0x00, key)).value, b"33");
            assert_eq!(ask(Packet::new(0x08)).status, 0);
        }
    }
    // In one pipeline, in order, and the quiet ones in silence.
    let keys = keys(&rack);
    let mut bytes: Vec<u8> =
        keys.iter().flat_map(|key| Packet::store(0x11, key, key, 0, 0).bytes()).collect();
    bytes.extend(keys.iter().flat_map(|key| Packet::of(0x0d, key).bytes()));
    bytes.extend(keys.iter().flat_map(|key| Packet::of(0x14, key).bytes()));
    bytes.extend(keys.iter().flat_map(|key| Packet::of(0x09, key).bytes()));
    bytes.extend(Packet::new(0x0a).bytes());
    clients[1].send(bytes).unwrap();
    for key in &keys {
        assert_eq!(&clients[1].answer().unwrap().unwrap().value, key);
    }
    assert_eq!(clients[1].answer().unwrap().unwrap().opcode, 0x0a);
}

#[test]
fn large_packets_pass_between_nodes() {
    let rack = Rack::up(2, &[]);
    let mut clients = [client(&rack, 0), client(&rack, 1)];
    for bytes in [3000, 60_000, 1_000_000] {
        let value: Vec<u8> = (0..bytes).map(|at| (at % 253) as u8).collect();
        for (number, key) in keys(&rack).iter().enumerate() {
            let stored = Packet::store(0x01, key, &value, 1, 0);
            assert_eq!(clients[number % 2].ask(&stored).unwrap().status, 0);
            for client in &mut clients {
                assert!(client.ask(&Packet::of(0x0c, key)).unwrap().value == value);
            }
        }
    }
    // Too large: the old value goes, wherever it is, and nothing else is said.
    for key in &keys(&rack) {
        let large = Packet::store(0x01, key, vec![0x80; 9_000_000], 0, 0);
        clients[0].send([large.bytes(), Packet::of(0x00, key).bytes()].concat()).unwrap();
        assert_eq!(clients[0].answer().unwrap().unwrap().value, b"Too large.");
        assert_eq!(clients[0].answer().unwrap().unwrap().status, 1);
    }
}

#[test]
fn failures_of_other_nodes_are_packets() {
    let rack = Rack::up(3, &["--", "--rack-timeout", "300ms"]);
    let key = rack.key_of(1);
    let mut client = client(&rack, 0);
    // No line of the text protocol has room for these bytes in base64.
    let owners: Vec<u16> = (0..8)
        .map(|number| {
            let long = format!("{number}{}", " ".repeat(200));
            let store = Packet::store(0x01, long, "value", 0, 0);
            // On a busy machine another node may be late.
            insist(|| client.ask(&store), |answer| !answer.value.ends_with(b"the command may be done")).status
        })
        .collect();
    assert!(owners.contains(&0) && owners.contains(&0x84), "{owners:?}");
    rack.signal(1, Signal::STOP);
    let late = client.ask(&Packet { opaque: 5, ..Packet::store(0x11, &key, "value", 0, 0) }).unwrap();
    assert_eq!((late.status, late.opaque), (0x84, 5));
    assert_eq!(late.value, b"node 1 of the rack is late; the command may be done");
    rack.signal(1, Signal::CONT);
}
