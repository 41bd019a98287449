//! Bad input over real sockets: each limit holds, and the next client is served.

mod common;

use std::{
    io::{Read, Write},
    net::Shutdown,
    thread,
    time::{Duration, Instant},
};

use common::{Wanted, connect, start, start_plain};
use minos_base::seeded;
use minos_testkit::{Client, Server};
use rand::{Rng, RngExt};

/// Asserts that the next client is served.
fn serves_the_next(server: &Server) {
    let mut client = connect(server);
    assert_eq!(client.set("next", b"value").unwrap(), "STORED");
    assert_eq!(client.get("next").unwrap().unwrap().value, b"value");
}

#[test]
fn too_long_a_key() {
    let server = start_plain();
    let mut client = connect(&server);
    let key = "k".repeat(251);
    assert_eq!(client.ask(&format!("get {key}")).unwrap(), "CLIENT_ERROR bad command line format");
    assert_eq!(client.ask(&format!("delete {key}")).unwrap(), "CLIENT_ERROR bad command line format");
    assert_eq!(client.set(&"k".repeat(250), b"longest").unwrap(), "STORED");
    serves_the_next(&server);
}

#[test]
fn too_long_a_line() {
    let server = start_plain();
    let mut client = connect(&server);
    // Neither a newline nor a multi-key get: this cannot become a command.
    let line = vec![b'x'; 100_000];
    client.send(line).ok();
    let said = client.rest().unwrap_or_default();
    assert!(said.is_empty() || said.starts_with(b"CLIENT_ERROR") || said.starts_with(b"ERROR"), "{said:?}");
    serves_the_next(&server);
}

#[test]
fn a_bad_data_chunk() {
    let server = start_plain();
    let mut client = connect(&server);
    client.send("set a 0 0 3\r\nabcdefgh\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "CLIENT_ERROR bad data chunk");
    assert_eq!(client.line().unwrap(), "ERROR");
    assert_eq!(client.get("a").unwrap(), None);
    serves_the_next(&server);
}

#[test]
fn lengths_that_are_none() {
    let server = start_plain();
    let mut client = connect(&server);
    for length in ["-1", "99999999999999999999", "abc"] {
        let line = client.ask(&format!("set a 0 0 {length}")).unwrap();
        assert!(line.starts_with("CLIENT_ERROR"), "{length}: {line}");
    }
    serves_the_next(&server);
}

#[test]
fn too_large_an_object_is_swallowed_to_the_byte() {
    let server = start(Wanted { max_item_size: Some("1m"), ..Wanted::default() });
    let mut client = connect(&server);
    assert_eq!(client.set("a", b"old").unwrap(), "STORED");
    let line = client.set("a", &vec![b'x'; (1 << 20) + 1]).unwrap();
    assert_eq!(line, "SERVER_ERROR object too large for cache");
    // memcached also drops the old value, lest it be taken for the new one.
    assert_eq!(client.get("a").unwrap(), None);
    serves_the_next(&server);
}

/// Few, but enough for memcached's own needs.
const CONNECTIONS: usize = 64;

#[test]
fn more_connections_than_allowed() {
    let server = start(Wanted { max_connections: Some(CONNECTIONS), ..Wanted::default() });
    let mut held: Vec<Client> = Vec::new();
    for _ in 0..CONNECTIONS + 20 {
        held.push(connect(&server));
    }
    let served = held.iter_mut().map(is_served).filter(|&is_served| is_served).count();
    if !common::is_memcached() {
        // memcached lets the other clients wait instead of refusing them.
        assert!((1..=CONNECTIONS).contains(&served), "{served} served");
    }
    drop(held);
    let served_later = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(20));
        is_served(&mut connect(&server))
    });
    assert!(served_later);
}

fn is_served(client: &mut Client) -> bool {
    client.ask("version").is_ok_and(|line| line.starts_with("VERSION "))
}

#[test]
fn a_silent_connection_is_closed() {
    let server = start(Wanted { idle_timeout_s: Some(1), ..Wanted::default() });
    // A client that waits for a processor is silent too.
    let speaks = |client: &mut Client| client.ask("version").is_ok_and(|line| line.starts_with("VERSION"));
    let mut clients = std::iter::repeat_with(|| connect(&server)).take(20);
    let mut client = clients.find_map(|mut client| speaks(&mut client).then_some(client)).unwrap();
    assert_eq!(client.rest().unwrap(), b"");
    assert!(clients.any(|mut client| speaks(&mut client)), "the next client is served");
}

#[test]
fn a_reader_that_does_not_read_holds_up_nobody() {
    let server = start_plain();
    let mut client = connect(&server);
    let large = vec![b'x'; 8 << 20];
    assert_eq!(client.set("large", &large[..(8 << 20) - 300]).unwrap(), expected_for_large());
    let mut deaf: Vec<Client> = (0..8).map(|_| connect(&server)).collect();
    for client in &mut deaf {
        client.send("get large\r\n").unwrap();
    }
    for round in 0..50 {
        serves_the_next(&server);
        assert_eq!(client.set("large", format!("new {round}").as_bytes()).unwrap(), "STORED");
    }
    drop(deaf);
    serves_the_next(&server);
}

/// Stock memcached accepts values up to 1 MiB.
fn expected_for_large() -> &'static str {
    if common::is_memcached() { "SERVER_ERROR object too large for cache" } else { "STORED" }
}

#[test]
fn a_writer_of_one_byte_at_a_time_is_served() {
    let server = start_plain();
    let mut slow = connect(&server);
    for &byte in b"set slow 0 0 5\r\nhello\r\nget slow\r\n" {
        slow.send([byte]).unwrap();
        serves_the_next(&server);
    }
    assert_eq!(slow.line().unwrap(), "STORED");
    assert_eq!(slow.found().unwrap().unwrap().value, b"hello");
}

#[test]
fn a_large_value_that_never_arrives_holds_up_nobody() {
    let server = start_plain();
    let mut slow = connect(&server);
    slow.send("set stuck 0 0 900000\r\n").unwrap();
    slow.send(vec![b'x'; 450_000]).unwrap();
    serves_the_next(&server);
    let mut other = connect(&server);
    assert_eq!(other.set("other", &vec![b'y'; 900_000]).unwrap(), "STORED");
    assert_eq!(other.get("stuck").unwrap(), None);
    drop(slow);
    serves_the_next(&server);
    assert_eq!(other.get("stuck").unwrap(), None);
}

#[test]
fn half_closed_connections_get_their_replies() {
    let server = start_plain();
    let mut client = connect(&server);
    client.send("set a 0 0 1\r\n1\r\nget a\r\n").unwrap();
    client.socket().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest().unwrap(), b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    serves_the_next(&server);
}

#[test]
fn random_bytes_do_no_harm() {
    let mut server = start_plain();
    let mut random = seeded(11);
    for _ in 0..60 {
        let client = connect(&server);
        let mut socket = client.socket();
        let mut bytes = vec![0; random.random_range(1..20_000)];
        random.fill_bytes(&mut bytes);
        socket.write_all(&bytes).ok();
        socket.shutdown(Shutdown::Write).ok();
        // The server may answer anything, but must close.
        let mut said = Vec::new();
        socket.read_to_end(&mut said).ok();
        serves_the_next(&server);
    }
    assert!(server.is_running());
}

#[test]
fn a_long_multi_get_is_answered() {
    let server = start_plain();
    let mut client = connect(&server);
    assert_eq!(client.set("last", b"here").unwrap(), "STORED");
    let keys: String = (0..1_000).map(|key| format!(" missing{key}")).collect();
    client.send(format!("get{keys} last\r\n")).unwrap();
    assert_eq!(client.found().unwrap().unwrap().value, b"here");
}

#[test]
fn it_stops_when_told() {
    let mut server = start_plain();
    let mut idle = connect(&server);
    assert!(idle.ask("version").is_ok());
    let begin = Instant::now();
    let status = server.terminate(Duration::from_secs(30)).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?} after {:?}", begin.elapsed());
}
