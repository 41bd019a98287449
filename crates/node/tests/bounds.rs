//! Bounds on the cost of a client: replies that it does not read, values that it does not send, protocols
//! that are not served.

mod common;

use std::{
    io::{ErrorKind, Read, Write},
    thread,
    time::Duration,
};

use common::{Client, TestServer};
use minos_engine::{CacheMode, StoreMode};
use minos_node::ServerConfig;

/// Bytes of a value that is copied into replies.
const VALUE_BYTES: usize = 16_000;
/// Further connections, for `stats conns` to list.
const OTHERS: usize = 100;

fn start(config: ServerConfig) -> TestServer {
    TestServer::with_memory::<StoreMode>(64 << 20, config)
}

impl Client {
    /// The lines of a reply up to the one that is `END`, without it.
    fn lines(&mut self) -> Vec<String> {
        std::iter::repeat_with(|| self.line()).take_while(|line| line != "END\r\n").collect()
    }

    /// The sum of the counter `name` in `stats minos` over all workers.
    fn metric(&mut self, name: &str) -> u64 {
        self.send(b"stats minos\r\n");
        let lines = self.lines();
        let values = lines.iter().filter_map(|line| {
            let (key, value) = line.trim_end().strip_prefix("STAT ")?.split_once(' ')?;
            (key == name || key.rsplit(':').next() == Some(name)).then(|| value.parse::<u64>().unwrap())
        });
        values.sum()
    }

    /// Waits until `name` is more than 0, and returns it.
    fn metric_soon(&mut self, name: &str) -> u64 {
        let values = std::iter::repeat_with(|| {
            thread::sleep(Duration::from_millis(5));
            self.metric(name)
        });
        values.take(4000).find(|&value| value > 0).unwrap_or_else(|| panic!("{name} stays 0"))
    }
}

/// Requests, and how often each is sent at once: sockets cannot hold all the replies.
fn requests() -> [(String, usize); 6] {
    let line_of_keys = format!("get{}\r\n", " k".repeat(60));
    [
        ("get k\r\n".to_owned(), 2000),
        (line_of_keys, 60),
        ("gat 0 k\r\n".to_owned(), 2000),
        ("mg k v\r\n".to_owned(), 2000),
        ("stats conns\r\n".to_owned(), 2000),
        ("stats minos\r\n".to_owned(), 8000),
    ]
}

#[test]
fn replies_that_nobody_reads_are_bounded() {
    for (request, times) in requests() {
        let server = start(ServerConfig::new(1));
        let others: Vec<Client> = (0..OTHERS).map(|_| server.connect()).collect();
        let mut watcher = server.connect();
        watcher.send(format!("set k 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)).as_bytes());
        assert_eq!(watcher.line(), "STORED\r\n");
        let mut deaf = server.connect();
        deaf.send(request.repeat(times).as_bytes());
        let kept = watcher.metric_soon("kept_bytes_max");
        let bound = ServerConfig::new(1).buffer_bytes_max as u64;
        assert!(kept <= bound, "{kept} bytes are kept of replies to {request:?}");
        assert_eq!(server.pinned(), 0, "what is copied is held by nobody");
        drop(others);
    }
}

#[test]
fn a_small_bound_holds_and_no_reply_is_lost() {
    let mut config = ServerConfig::new(1);
    config.buffer_bytes_max = 32 << 10;
    let server = start(config);
    let mut client = server.connect();
    client.send(format!("set k 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)).as_bytes());
    assert_eq!(client.line(), "STORED\r\n");
    let (line, times) = (format!("get{}\r\n", " k".repeat(60)), 60);
    let mut late = server.connect();
    late.send(line.repeat(times).as_bytes());
    assert!(client.metric_soon("kept_bytes_max") <= 32 << 10);
    let one = format!("VALUE k 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)).repeat(60) + "END\r\n";
    let mut reply = vec![0; one.len()];
    for _ in 0..times {
        late.reader.read_exact(&mut reply).unwrap();
        assert!(reply == one.as_bytes());
    }
    late.reader.get_mut().write_all(b"mn\r\n").unwrap();
    assert_eq!(late.line(), "MN\r\n");
}

#[test]
fn connections_are_told_in_pieces_and_all() {
    let mut config = ServerConfig::new(2);
    // The smallest slice allowed.
    config.slice_bytes = 4 << 10;
    let server = start(config);
    let mut others: Vec<Client> = (0..OTHERS).map(|_| server.connect()).collect();
    for client in &mut others {
        client.send(b"mn\r\n");
        assert_eq!(client.line(), "MN\r\n");
    }
    let mut client = server.connect();
    client.send(b"get a\r\nstats conns\r\nget b\r\nstats conns\r\n");
    for _ in 0..2 {
        assert_eq!(client.line(), "END\r\n");
        let lines = client.lines();
        let of_addresses = lines.iter().filter(|line| line.contains(":addr 127.0.0.1:"));
        let names: std::collections::BTreeSet<_> = of_addresses.collect();
        assert_eq!((names.len(), lines.len()), (OTHERS + 1, 4 * (OTHERS + 1)));
    }
    client.send(b"mn\r\n");
    assert_eq!(client.line(), "MN\r\n");
}

/// The bound on values that are arriving, and the length of one value.
const RECEIVE_BYTES: u64 = 8 << 20;
const LARGE_BYTES: usize = 1 << 20;

/// Reads until the server closes the connection.
fn rest(client: &mut Client) -> String {
    let mut bytes = Vec::new();
    match client.reader.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8(bytes).unwrap(),
    }
}

#[test]
fn half_sent_values_take_no_more_than_their_share() {
    let server = TestServer::with_memory::<CacheMode>(64 << 20, ServerConfig::new(1));
    let mut client = server.connect();
    let items = 40_000;
    for chunk in (0..items).collect::<Vec<_>>().chunks(1000) {
        let sets = |n: &usize| format!("set key{n} 0 0 100 noreply\r\n{}\r\n", "x".repeat(100));
        client.send(chunk.iter().map(sets).collect::<String>().as_bytes());
    }
    client.send(b"mn\r\n");
    assert_eq!(client.line(), "MN\r\n");
    // Twice as much as the whole memory.
    let mut half: Vec<Client> = (0..128).map(|_| server.connect()).collect();
    for client in &mut half {
        client.send(format!("set half 0 0 {LARGE_BYTES}\r\nbegun").as_bytes());
    }
    let admitted = RECEIVE_BYTES / LARGE_BYTES as u64;
    let values =
        std::iter::repeat_with(|| (client.metric("receiving_bytes"), client.metric("receiving_refused")));
    let mut values = values.inspect(|_| thread::sleep(Duration::from_millis(5)));
    assert!(values.by_ref().take(4000).any(|(_, refused)| refused == 128 - admitted));
    assert_eq!(values.next().unwrap().0, RECEIVE_BYTES);
    drop(values);
    client.send((0..items).map(|n| format!("mg key{n} k q\r\n")).collect::<String>().as_bytes());
    client.send(b"mn\r\n");
    let found = std::iter::repeat_with(|| client.line()).take_while(|line| line != "MN\r\n").count();
    assert!(found >= items * 9 / 10, "{found} of {items} are left");
    drop(half);
    // Their memory is released, and values are accepted again.
    assert!((0..4000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        client.metric("receiving_bytes") == 0
    }));
}

#[test]
fn a_refused_value_is_swallowed_and_said() {
    let mut config = ServerConfig::new(2);
    config.receive_memory_bytes = Some(1);
    let server = start(config);
    let mut first = server.connect();
    first.send(format!("set first 0 0 {LARGE_BYTES}\r\n").as_bytes());
    let mut second = server.connect();
    assert_eq!(second.metric_soon("receiving_bytes"), LARGE_BYTES as u64);
    let value = "s".repeat(LARGE_BYTES);
    for (head, refusal) in [("set second 0 0 ", true), ("ms second ", true), ("set second 0 0 ", false)] {
        let noreply = if refusal { "" } else { " noreply" };
        second.send(format!("{head}{LARGE_BYTES}{noreply}\r\n").as_bytes());
        // Sent in pieces, so that the value is not complete at once.
        second.send(format!("{value}\r\nmn\r\n").as_bytes());
        if refusal {
            assert_eq!(second.line(), "SERVER_ERROR out of memory storing object\r\n");
        }
        assert_eq!(second.line(), "MN\r\n");
    }
    first.send(format!("{value}\r\n").as_bytes());
    assert_eq!(first.line(), "STORED\r\n");
    second.send(format!("set second 0 0 {LARGE_BYTES}\r\n{value}\r\n").as_bytes());
    assert_eq!(second.line(), "STORED\r\n");
}

#[test]
fn a_drip_is_closed() {
    let mut config = ServerConfig::new(1);
    config.stall_timeout = Duration::from_secs(1);
    config.rate_min = 1 << 30;
    let server = start(config);
    let (mut drip, mut watcher) = (server.connect(), server.connect());
    drip.send(format!("set drip 0 0 {LARGE_BYTES}\r\n").as_bytes());
    let is_closed = (0..12_000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        drip.reader.get_mut().write_all(b"d").is_err()
    });
    assert!(is_closed, "it may drip for ever");
    assert_eq!(watcher.metric("large_slow") + watcher.metric("large_stalled"), 1);
    assert_eq!(watcher.metric("receiving_bytes"), 0);
}

#[test]
fn the_first_byte_decides_for_the_binary_protocol() {
    let server = start(ServerConfig::new(2));
    let mut text = server.connect();
    let noop = b"\x80\x0a\0\0\0\0\0\0\0\0\0\0name\0\0\0\0\0\0\0\0";
    let mut binary = server.connect();
    // Its first byte alone, and the rest in two pieces.
    for piece in [&noop[..1], &noop[1..20], &noop[20..]] {
        binary.send(piece);
    }
    let mut reply = [0; 24];
    binary.reader.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[..2], b"\x81\x0a");
    // It stays with the protocol, in which this is no packet.
    binary.send(b"get a\r\n");
    assert_eq!(rest(&mut binary), "");
    assert_eq!(text.metric("binary_connections"), 1);
    // After the first byte it is a byte like any other.
    text.send(b"\x80\x80\r\n");
    assert_eq!(text.line(), "ERROR\r\n");
}

#[test]
fn a_line_that_uses_a_visit_up_is_followed_by_the_rest() {
    let server = start(ServerConfig::new(1));
    let mut client = server.connect();
    // Lines with about as many keys as a visit has requests, with more requests in the same burst.
    let line = |keys: usize| format!("get{}\r\n", " k".repeat(keys));
    for keys in [127, 128, 256, 511, 512, 513] {
        client.send(format!("{}mn\r\nmn\r\n", line(keys)).as_bytes());
        assert_eq!([client.line(), client.line(), client.line()], ["END\r\n", "MN\r\n", "MN\r\n"]);
    }
}
