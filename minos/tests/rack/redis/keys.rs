//! KEYS of all nodes.

use rustix::process::Signal;

use super::{Connection, Reply, bulk, list, ok, pairs, rack, say_with};
use crate::up::insist;

/// The keys that match a pattern, in order.
pub(super) fn keys(client: &mut Connection, pattern: &str) -> Vec<String> {
    listed(&client.say(&["keys", pattern]))
}

/// The keys in a reply, in order.
fn listed(said: &Reply) -> Vec<String> {
    let Reply::Elements(b'*', found) = said else { panic!("no keys: {said:?}") };
    let text = |key: &Reply| match key {
        Reply::Bulk(key) => String::from_utf8(key.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut found: Vec<String> = found.iter().map(text).collect();
    found.sort();
    found
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

#[test]
fn keys_are_those_of_all_nodes() {
    const KEYS: usize = 3000;
    for options in [&[][..], &["--unit-size", "1"]] {
        let (_rack, nodes) = rack(3, options);
        let mut clients: Vec<_> = nodes.iter().map(|node| Connection::open(*node)).collect();
        let all = list("k", KEYS);
        assert_eq!(say_with(&mut clients[0], "mset", &pairs(&all)), ok());
        for client in &mut clients {
            assert_eq!(keys(client, "*"), sorted(all.clone()));
            let some = all.iter().filter(|key| key.starts_with("k1")).cloned();
            assert_eq!(keys(client, "k1*"), sorted(some.collect()));
            assert_eq!(keys(client, "none"), [""; 0]);
            // Behind others in one burst, and before them.
            client.send(b"SET k0 1\r\nKEYS k0\r\nGET k0\r\nDEL k0\r\nKEYS k0\r\nSET k0 2\r\n", usize::MAX);
            let replies: Vec<_> = (0..6).map(|_| client.reply().unwrap()).collect();
            let [one, none] = [vec![bulk("k0")], vec![]].map(|keys| Reply::Elements(b'*', keys));
            let expected = [ok(), one, bulk("1"), Reply::Integer(1), none, ok()];
            assert_eq!(replies, expected);
        }
    }
}

#[test]
fn keys_are_listed_as_far_as_there_is_room_for_them() {
    let (_rack, nodes) = rack(2, &["--unit-size=1", "--", "--max-buffer=32k"]);
    let mut client = Connection::open(nodes[0]);
    for key in list("k", 5000) {
        client.say(&["set", &key, "1"]);
    }
    assert_eq!(keys(&mut client, "k?").len(), 10);
    let said = client.say(&["keys", "*"]);
    assert!(matches!(&said, Reply::Error(text) if text.contains("--max-buffer")), "{said:?}");
    assert_eq!(keys(&mut client, "k12*").len(), 111);
}

#[test]
fn keys_of_a_node_that_is_late_are_an_error() {
    let (rack, nodes) = rack(2, &["--", "--rack-timeout=300ms"]);
    let mut client = Connection::open(nodes[0]);
    // On a busy machine the node may be late by itself, here and at the end.
    insist(|| Ok(say_with(&mut client, "mset", &pairs(&list("k", 20)))), |said| *said == ok());
    rack.signal(1, Signal::STOP);
    let late = Reply::Error("ERR node 1 of the rack is late; the command may be done".to_owned());
    assert_eq!(client.say(&["keys", "*"]), late);
    // As with other commands, those who want no reply get none.
    client.send(b"CLIENT REPLY SKIP\r\nKEYS *\r\nPING\r\n", usize::MAX);
    assert_eq!(client.reply(), Some(Reply::Simple("PONG".to_owned())));
    rack.signal(1, Signal::CONT);
    let said = insist(|| Ok(client.say(&["keys", "*"])), |said| matches!(said, Reply::Elements(..)));
    assert_eq!(listed(&said), sorted(list("k", 20)));
}

#[test]
fn copies_are_not_listed_and_moved_keys_once() {
    let (rack, nodes) = rack(2, &["--unit-size=1", "--copies=2"]);
    let all = list("k", 200);
    let mut clients: Vec<_> = nodes.iter().map(|node| Connection::open(*node)).collect();
    assert_eq!(say_with(&mut clients[0], "mset", &pairs(&all)), ok());
    rack.wait_until_copied();
    assert_eq!(clients[0].say(&["dbsize"]), Reply::Integer(400), "the control: there are copies");
    for client in &mut clients {
        assert_eq!(keys(client, "*"), sorted(all.clone()));
    }
    for (at, key) in all.iter().enumerate().step_by(10) {
        rack.operate(&format!("move {} {}", rack.micro_shard(key), at / 10 % 2));
    }
    rack.wait_until_at_rest();
    for client in &mut clients {
        // Nodes hear of the last move one after another.
        insist(|| Ok(keys(client, "*")), |found| *found == sorted(all.clone()));
    }
}
