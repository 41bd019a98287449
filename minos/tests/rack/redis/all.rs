//! Commands for all nodes, some of which are not there.

use std::io::ErrorKind;

use rustix::process::Signal;

use super::{Connection, Reply, keys::keys, list, ok, pairs, rack, say_with, scanned};
use crate::up::{PATIENCE, SHORT_LEASE, insist, stat, within};

const KEYS: usize = 300;

#[test]
fn a_node_that_has_left_the_rack_need_not_be_there() {
    let (rack, nodes) = rack(3, &["--unit-size", "1", "--", "--rack-timeout", "5s"]);
    let mut clients: Vec<_> = nodes.iter().map(|node| Connection::open(*node)).collect();
    assert_eq!(say_with(&mut clients[0], "mset", &pairs(&list("k", KEYS))), ok());
    assert_eq!(rack.operate("drain 1"), "ok\n");
    insist(|| Ok(stat(&mut rack.client(0), "node:1:micro_shards")), |left| *left == 0);
    insist(|| Ok(rack.operate("remove 1")), |said| said == "ok\n");
    rack.signal(1, Signal::STOP);
    // Once the others have heard of it.
    for node in [0, 2] {
        insist(|| Ok(clients[node].say(&["dbsize"])), |said| *said == Reply::Integer(KEYS as i64));
        assert_eq!(scanned(&mut clients[node]).len(), KEYS);
        assert_eq!(keys(&mut clients[node], "*").len(), KEYS);
    }
    assert_eq!(rack.client(0).ask("flush_all").unwrap(), "OK");
    assert_eq!(clients[0].say(&["dbsize"]), Reply::Integer(0));
    assert_eq!(clients[2].say(&["flushall"]), ok());
    rack.signal(1, Signal::CONT);
}

/// Before, it found no keys, as if there were none.
#[test]
fn a_node_without_a_lease_finds_nothing_out_about_all_keys() {
    let (rack, nodes) = rack(2, &[SHORT_LEASE]);
    let mut client = Connection::open(nodes[0]);
    insist(|| Ok(say_with(&mut client, "mset", &pairs(&list("k", KEYS)))), |said| *said == ok());
    rack.signal_host(Signal::STOP);
    let commands = [&["keys", "*"][..], &["dbsize"], &["scan", "0"], &["scan", "1"], &["randomkey"]];
    let refused = Reply::Error("ERR this node of the rack has no lease".to_owned());
    let said = commands.map(|command| {
        // Until the leases end they are answered. One that is found as its lease ends is not: the connection ends.
        let lists_none = |said: &Reply| matches!(said, Reply::Elements(_, keys) if keys.is_empty());
        let mut ask = || {
            client.ask(command).ok_or_else(|| {
                client = Connection::open(nodes[0]);
                ErrorKind::ConnectionReset.into()
            })
        };
        within(PATIENCE, &mut ask, |said| *said == refused || lists_none(said))
    });
    rack.signal_host(Signal::CONT);
    assert_eq!(said, [(); 5].map(|()| Some(refused.clone())));
    insist(|| Ok(client.say(&["dbsize"])), |said| *said == Reply::Integer(KEYS as i64));
}

#[test]
fn a_flush_goes_on_past_a_node_that_is_late() {
    const SAID: &str = "node 1 of the rack is late; the command may be done in part";
    let (rack, nodes) = rack(3, &["--unit-size", "1", "--", "--rack-timeout", "500ms"]);
    let mut client = Connection::open(nodes[0]);
    let keys = [0, 1, 2].map(|node| rack.key_of(node));
    for is_redis in [false, true] {
        for key in &keys {
            insist(|| Ok(client.say(&["set", key, "value"])), |said| *said == ok());
        }
        rack.signal(1, Signal::STOP);
        if is_redis {
            assert_eq!(client.say(&["flushall"]), Reply::Error(format!("ERR {SAID}")));
        } else {
            assert_eq!(rack.client(0).ask("flush_all").unwrap(), format!("SERVER_ERROR {SAID}"));
        }
        for key in [&keys[0], &keys[2]] {
            // On a busy machine another node may be late too.
            let said = insist(|| Ok(client.say(&["exists", key])), |said| !matches!(said, Reply::Error(_)));
            assert_eq!(said, Reply::Integer(0), "{key}");
        }
        rack.signal(1, Signal::CONT);
    }
}
