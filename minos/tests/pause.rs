//! CLIENT PAUSE beside Redis': who waits, who goes on, and what nobody may change meanwhile.

mod common;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use common::redis;
use minos_testkit::{Client, Over, Server};

/// A wait in which a reply that may come at once would have come nearly always. Only a fault can be missed by it.
const SILENCE: Duration = Duration::from_millis(40);

fn minos() -> (Server, SocketAddr) {
    common::start_with_resp(&["--memory=64m"])
}

fn client(server: &Server) -> Client {
    Client::connect(server.address()).unwrap()
}

/// The lines of the reply that begins with `first`.
fn whole(client: &mut Client, first: String) -> Vec<String> {
    let parts = match first.split_at(1) {
        ("$", length) => usize::from(length != "-1"),
        ("*", count) => count.parse().unwrap_or(0),
        _ => 0,
    };
    let is_text = first.starts_with('$');
    let mut lines = vec![first];
    for _ in 0..parts {
        let line = client.line().unwrap();
        lines.extend(if is_text { vec![line] } else { whole(client, line) });
    }
    lines
}

/// The next line, if one comes soon.
fn soon(client: &mut Client) -> Option<String> {
    client.socket().set_read_timeout(Some(SILENCE)).unwrap();
    let line = client.line().ok();
    client.socket().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    line
}

/// What one asks another about pauses, and what says nothing but an error or OK.
const ANSWERED: [&str; 21] = [
    "client pause",
    "client pause x",
    "client pause -1",
    "client pause 1.5",
    "client pause x bad",
    "client pause 1 bad",
    "client pause 1 write more",
    "CLIENT PAUSE 99999999999999999999",
    "client unpause",
    "client unpause x",
    "client pause 0",
    "client unblock",
    "client unblock x",
    "client unblock 1",
    "client unblock x bad",
    "client unblock 1 bad",
    "client unblock 1 TIMEOUT",
    "client unblock 7 error",
    "client unblock 7 error more",
    "client no-evict on",
    "client no-evict maybe",
];

#[test]
fn pauses_are_answered_like_redis() {
    let (rival, (subject, _)) = (redis(), minos());
    let mut sides = [client(&rival), client(&subject)];
    for line in ANSWERED {
        let [left, right] = sides.each_mut().map(|side| side.ask(line).unwrap());
        assert_eq!(left, right, "{line}");
    }
}

/// Commands during a pause of writes. Behind `!`, one that waits, and another connection ends the pause.
const WRITES: [&str; 22] = [
    "get a",
    "!set a 1",
    "get a",
    "exists a b",
    "bad",
    "incr",
    "!incr n",
    "!expire a 100",
    "!getex a",
    "touch a",
    "!flushall x y",
    "multi",
    "!set a 2",
    "!exec",
    "multi",
    "get a",
    "exec",
    "exec",
    "wait 0 0",
    "client getname",
    "ping",
    "!del a",
];

/// The reply to each of `commands`, and whether it waited. A reply that need not wait may come as late as it likes.
fn during(server: &Server, mode: &str, commands: &[&str]) -> Vec<String> {
    let (mut operator, mut client) = (client(server), client(server));
    let mut told = Vec::new();
    for command in commands {
        assert_eq!(operator.ask(&format!("client pause 1000000 {mode}")).unwrap(), "+OK");
        client.send(format!("{}\r\n", command.trim_start_matches('!'))).unwrap();
        let first = if command.starts_with('!') { soon(&mut client) } else { client.line().ok() };
        assert_eq!(operator.ask("client unpause").unwrap(), "+OK", "{command}");
        let waits = if first.is_none() { "waits" } else { "goes on" };
        let first = first.unwrap_or_else(|| client.line().unwrap());
        told.push(format!("{command}: {waits} {:?}", whole(&mut client, first)));
    }
    told
}

#[test]
fn writes_wait_like_those_of_redis() {
    let (rival, (subject, _)) = (redis(), minos());
    let [left, right] = [&rival, &subject].map(|server| during(server, "write", &WRITES));
    assert_eq!(left, right);
    let waited = left.iter().filter(|line| line.contains(": waits")).count();
    assert_eq!(waited, 8, "the control: {left:?}");
}

#[test]
fn a_pause_ends_by_itself_and_keeps_the_order() {
    for server in [redis(), minos().0] {
        let (mut operator, mut waiting) = (client(&server), client(&server));
        assert_eq!(operator.ask("client pause 200 write").unwrap(), "+OK");
        assert_eq!(operator.ask("client pause 10 all").unwrap(), "+OK", "it becomes stricter, not shorter");
        waiting.send("get a\r\nset a 1\r\nget a\r\nping\r\n").unwrap();
        let lines: Vec<_> = (0..5).map(|_| waiting.line().unwrap()).collect();
        assert_eq!(lines, ["$-1", "+OK", "$1", "1", "+PONG"]);
        assert_eq!(operator.ask("ping").unwrap(), "+PONG");
    }
}

#[test]
fn other_protocols_go_on_and_large_values_wait() {
    let (server, memcached) = minos();
    let (mut operator, mut waiting) = (client(&server), client(&server));
    let mut memcached = Client::connect(memcached).unwrap();
    assert_eq!(operator.ask("client pause 1000000").unwrap(), "+OK");
    let value = "v".repeat(3 << 20);
    waiting.send(format!("*3\r\n$3\r\nset\r\n$1\r\na\r\n${}\r\n", value.len())).unwrap();
    assert_eq!(soon(&mut waiting), None);
    assert_eq!(memcached.set("b", b"1").unwrap(), "STORED");
    assert!(memcached.get("a").unwrap().is_none());
    // Redis' own client cannot end a pause of all commands.
    assert_eq!(operator.ask("client unpause").unwrap(), "+OK");
    waiting.send(format!("{value}\r\n")).unwrap();
    assert_eq!(waiting.line().unwrap(), "+OK");
    assert_eq!(memcached.get("a").unwrap().unwrap().value.len(), value.len());
}

/// A client that is gone does not keep its connection until the pause ends.
#[test]
fn clients_that_wait_may_leave() {
    let (server, memcached) = minos();
    let mut operator = client(&server);
    assert_eq!(operator.ask("client pause 1000000 write").unwrap(), "+OK");
    let mut memcached = Client::connect(memcached).unwrap();
    let mut open = || -> usize {
        memcached.send("stats\r\n").unwrap();
        let lines: Vec<_> =
            std::iter::from_fn(|| memcached.line().ok().filter(|line| line != "END")).collect();
        lines.iter().find_map(|line| line.strip_prefix("STAT curr_connections ")?.parse().ok()).unwrap()
    };
    let before = open();
    let mut leaving: Vec<_> = (0..20).map(|_| client(&server)).collect();
    leaving.iter_mut().for_each(|client| client.send("set a 1\r\n".repeat(5000)).unwrap());
    assert_eq!(soon(&mut leaving[0]), None);
    drop(leaving);
    let begun = Instant::now();
    while open() > before {
        assert!(begun.elapsed() < Duration::from_secs(60), "they are still there");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Behind the reply to CLIENT PAUSE no write of Redis' clients changes anything, whichever worker serves it.
#[test]
fn nothing_changes_behind_the_reply() {
    let (server, _) = minos();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut writer = client(&server);
                while !is_over.load(Relaxed) {
                    writer.send("incr n\r\n".repeat(50)).unwrap();
                    (0..50).for_each(|_| assert!(writer.line().unwrap().starts_with(':')));
                }
            });
        }
        let over = Over(&is_over);
        let mut operator = client(&server);
        let mut count = || {
            assert!(operator.ask("get n").unwrap().starts_with('$'));
            operator.line().unwrap()
        };
        let mut other = client(&server);
        other.ask("set n 0").unwrap();
        let mut last = String::new();
        for round in 0..60 {
            assert_eq!(other.ask("client pause 1000000 write").unwrap(), "+OK");
            let counts = [(); 40].map(|()| count());
            assert!(counts.iter().all(|count| *count == counts[0]), "round {round}: {counts:?}");
            assert_eq!(other.ask("client unpause").unwrap(), "+OK");
            let begun = Instant::now();
            while count() == counts[0] {
                assert!(begun.elapsed() < Duration::from_secs(30), "round {round}: nobody goes on");
            }
            assert_ne!(counts[0], last);
            last.clone_from(&counts[0]);
        }
        drop(over);
        other.ask("client unpause").unwrap();
    });
}
