//! Defects that were once found in a real server, each with the test that keeps them away.

mod common;

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::Shutdown,
    thread,
    time::{Duration, Instant},
};

use common::{Client, TestServer};
use minos_engine::StoreMode;
use minos_node::{
    ServerConfig,
    config::{InvalidOption, PollMode},
};
use minos_sched::Threshold;

const VALUE_BYTES_MAX: u64 = 64 << 20;
/// More than the socket buffers of both sides take.
const HUGE_BYTES: usize = 24 << 20;

impl TestServer {
    fn start(mut config: ServerConfig) -> Self {
        config.value_bytes_max = VALUE_BYTES_MAX;
        Self::with_memory::<StoreMode>(128 << 20, config)
    }
}

impl Client {
    fn say(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        self.line()
    }

    fn set(&mut self, key: &str, bytes: usize) {
        self.send(format!("set {key} 0 0 {bytes}\r\n").as_bytes());
        self.send(&vec![b'v'; bytes]);
        assert_eq!(self.say("\r\n"), "STORED\r\n");
    }

    /// Reads the reply to a `get` of one key.
    fn value(&mut self, bytes: usize) {
        assert!(self.line().starts_with("VALUE "));
        let mut value = vec![0; bytes + 2];
        self.reader.read_exact(&mut value).unwrap();
        assert_eq!(self.line(), "END\r\n");
    }

    fn stats(&mut self, group: &str) -> HashMap<String, String> {
        self.send(format!("stats {group}\r\n").as_bytes());
        let mut stats = HashMap::new();
        loop {
            let line = self.line();
            let Some(stat) = line.strip_prefix("STAT ") else { return stats };
            let (name, value) = stat.trim_end().split_once(' ').unwrap();
            stats.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Reads until the server closes the connection.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        rest
    }
}

fn one_worker() -> ServerConfig {
    let mut config = ServerConfig::new(1);
    config.control.threshold = Threshold::Static(16 << 10);
    config
}

fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    (0..3000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        condition()
    })
}

/// The end of the stream was reported while there were more requests than one visit serves.
#[test]
fn the_end_behind_a_long_burst_is_noticed() {
    let server = TestServer::start(one_worker());
    for round in 0..100 {
        let mut client = server.connect();
        let count = 2400 + round * 20;
        client.send("get x\r\n".repeat(count).as_bytes());
        client.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest().len(), count * "END\r\n".len());
    }
}

/// The end of the stream was reported while the connection was lent out with a large value.
#[test]
fn the_end_behind_a_large_value_is_noticed() {
    let server = TestServer::start(one_worker());
    for round in 0..100 {
        let mut client = server.connect();
        let mut request = format!("set large 0 0 {}\r\n", 100_000 + round).into_bytes();
        request.extend(vec![b'v'; 100_000 + round]);
        request.extend_from_slice(b"\r\nget x\r\n");
        client.send(&request);
        client.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest(), b"STORED\r\nEND\r\n");
    }
}

/// A connection was closed before a reply passed to the poller had been sent.
#[test]
fn replies_leave_before_a_connection_is_closed() {
    let server = TestServer::start(one_worker());
    for _ in 0..20 {
        let mut client = server.connect();
        client.send(b"mn\r\nget x\r\nquit\r\n");
        assert_eq!(client.rest(), b"MN\r\nEND\r\n");
    }
}

/// Replies were queued behind a send, and further replies found no room in the queue.
#[test]
fn a_client_that_reads_late_gets_every_reply() {
    let server = TestServer::start(one_worker());
    server.connect().set("key", 10_000);
    let mut client = server.connect();
    let mut writer = client.reader.get_ref().try_clone().unwrap();
    let count = 3000;
    let sender = thread::spawn(move || {
        for _ in 0..count / 100 {
            writer.write_all("get key\r\n".repeat(100).as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        writer.write_all(b"quit\r\n").unwrap();
    });
    thread::sleep(Duration::from_millis(300));
    (0..count).for_each(|_| client.value(10_000));
    assert!(client.rest().is_empty());
    sender.join().unwrap();
}

/// A transfer that waited for earlier replies to be sent was never given up.
#[test]
fn a_transfer_behind_replies_that_nobody_reads_is_given_up() {
    let mut config = one_worker();
    // A client that sends must not stall on a busy machine.
    config.stall_timeout = Duration::from_secs(10);
    let server = TestServer::start(config);
    let mut other = server.connect();
    other.set("small", 10_000);
    other.set("large", HUGE_BYTES);
    // Bursts of 320 KB, so that for one of the clients the last burst is the first that the kernel does not
    // take.
    let mut deaf: Vec<_> = (0..30).map(|_| server.connect()).collect();
    for (bursts, client) in deaf.iter_mut().enumerate() {
        client.send(&"get small\r\n".repeat(bursts * 32).into_bytes());
        client.send(b"get large\r\n");
    }
    assert!(eventually(|| server.pinned() > 0));
    assert!(eventually(|| server.pinned() == 0), "the item stays pinned");
}

/// A server of a small and a large worker that sleep whenever they can, and a client that keeps the large
/// worker from stealing.
fn one_small_and_one_large(steal: bool) -> (TestServer, Client) {
    let mut config = ServerConfig::new(2);
    config.steal = steal;
    config.poll = PollMode::Sleep;
    config.epoch = Duration::from_millis(300);
    config.control.threshold = Threshold::Static(1000);
    let server = TestServer::start(config);
    let mut client = server.connect();
    client.set("huge", HUGE_BYTES);
    client.set("large", 20_000);
    let is_large = eventually(|| {
        client.send(b"get large\r\n");
        client.value(20_000);
        client.stats("minos").get("worker:1:role").is_some_and(|role| role == "large")
    });
    assert!(is_large);
    (server, client)
}

fn median(mut round: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..21)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// A connection came back to the RX queue of a large worker that no longer polls it, and no worker was woken.
#[test]
fn a_connection_that_comes_home_to_a_busy_large_worker_goes_on() {
    for steal in [true, false] {
        let (server, _first) = one_small_and_one_large(steal);
        // The server's second connection, so it is in the large worker's queue.
        let mut client = server.connect();
        let mut deaf = server.connect();
        deaf.send(b"get huge\r\n");
        assert!(eventually(|| server.pinned() == 1));
        let mut typical = || {
            median(|| {
                client.send(b"get large\r\nmn\r\n");
                client.value(20_000);
                assert_eq!(client.line(), "MN\r\n");
            })
        };
        // Without the wakeup, only the end of a sleep of 100 ms would bring each reply. A busy machine may be as slow, but
        // not for long.
        assert!((0..30).any(|_| typical() < Duration::from_millis(20)), "replies come late");
    }
}

/// A store whose bytes had arrived was executed, but its reply was not sent, because the server was stopping.
#[test]
fn a_stopping_server_answers_the_large_store_it_waited_for() {
    let mut config = one_worker();
    // Beyond the range of the clock.
    config.stop_timeout = Duration::MAX;
    let server = TestServer::start(config);
    let mut client = server.connect();
    client.send(b"set large 0 0 1000000\r\n");
    client.send(&vec![b'v'; 900_000]);
    let mut other = server.connect();
    assert!(eventually(|| other.stats("minos")["receiving_bytes"] != "0"));
    server.server.stop().request();
    thread::sleep(Duration::from_millis(300));
    client.send(&vec![b'v'; 100_000]);
    assert_eq!(client.say("\r\n"), "STORED\r\n");
}

/// The bytes of large values were not counted.
#[test]
fn the_bytes_of_large_values_are_counted() {
    let server = TestServer::start(one_worker());
    let mut client = server.connect();
    client.set("large", 1_000_000);
    client.send(b"get large\r\n");
    client.value(1_000_000);
    let stats = client.stats("");
    let count = |name: &str| stats[name].parse::<usize>().unwrap();
    let request = "set large 0 0 1000000\r\n".len() + 1_000_002 + "get large\r\n".len() + "stats \r\n".len();
    assert_eq!(count("bytes_read"), request);
    let reply = "STORED\r\n".len() + "VALUE large 0 1000000\r\n".len() + 1_000_002 + "END\r\n".len();
    assert_eq!(count("bytes_written"), reply);
}

/// A discarded value kept a worker busy for as long as its bytes came fast enough.
#[test]
fn a_value_that_is_thrown_away_is_received_in_bounded_visits() {
    let server = TestServer::start(one_worker());
    let bytes = 400 << 20;
    let mut client = server.connect();
    client.send(format!("set large 0 0 {bytes}\r\n").as_bytes());
    let chunk = vec![b'v'; 4 << 20];
    (0..bytes / chunk.len()).for_each(|_| client.send(&chunk));
    assert!(client.say("\r\nmn\r\n").contains("too large"));
    assert_eq!(client.line(), "MN\r\n");
    let visits: usize = client.stats("minos")["worker:0:visits"].parse().unwrap();
    assert!(visits >= bytes / (128 << 10), "{visits}");
}

/// The loop ended at once when the server was to stop, and pending sends were lost.
#[test]
fn replies_leave_before_the_server_stops() {
    let mut config = one_worker();
    config.allow_shutdown = true;
    let server = TestServer::start(config);
    let mut client = server.connect();
    client.send(b"mn\r\nget x\r\nshutdown graceful\r\n");
    assert_eq!(client.rest(), b"MN\r\nEND\r\n");
    server.server.join().unwrap();
}

/// The smallest buffer allowed did not hold the longest value that is buffered.
#[test]
fn the_smallest_buffer_holds_the_longest_small_value() {
    let mut config = one_worker();
    config.buffer_bytes_max = 1;
    let Err(InvalidOption::OutOfBounds { min, .. }) = config.check() else { panic!("no lower bound") };
    config.buffer_bytes_max = min as usize;
    let server = TestServer::start(config);
    let mut client = server.connect();
    client.send(b"set key 0 0 16384\r\n");
    thread::sleep(Duration::from_millis(20));
    client.send(&[b'v'; 16384]);
    assert_eq!(client.say("\r\n"), "STORED\r\n");
}

/// Random numbers that are the same each time (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One client's requests for keys of its own, and every byte of the replies.
fn script(client: u64, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    let mut lengths = [None; 4];
    let value_text = |key: u64, bytes: usize| vec![b'a' + ((client + key + bytes as u64) % 26) as u8; bytes];
    let append_value = |replies: &mut Vec<u8>, key: u64, bytes: usize| {
        replies.extend_from_slice(format!("VALUE c{client}k{key} 0 {bytes}\r\n").as_bytes());
        replies.extend_from_slice(&value_text(key, bytes));
        replies.extend_from_slice(b"\r\n");
    };
    for _ in 0..60 {
        let key = random.below(4);
        match random.below(6) {
            0 | 1 => {
                let bytes = [3, 500, 5000, 16_000, 70_000, 300_000][random.below(6) as usize];
                let quiet = random.below(3) == 0;
                let end = if quiet { " noreply" } else { "" };
                requests.extend_from_slice(format!("set c{client}k{key} 0 0 {bytes}{end}\r\n").as_bytes());
                requests.extend_from_slice(&value_text(key, bytes));
                requests.extend_from_slice(b"\r\n");
                lengths[key as usize] = Some(bytes);
                if !quiet {
                    replies.extend_from_slice(b"STORED\r\n");
                }
            }
            2 | 3 => {
                requests.extend_from_slice(format!("get c{client}k{key}\r\n").as_bytes());
                if let Some(bytes) = lengths[key as usize] {
                    append_value(&mut replies, key, bytes);
                }
                replies.extend_from_slice(b"END\r\n");
            }
            4 => {
                requests.extend_from_slice(b"get");
                for key in (0..random.below(40) + 2).map(|key| key % 4) {
                    requests.extend_from_slice(format!(" c{client}k{key}").as_bytes());
                    if let Some(bytes) = lengths[key as usize] {
                        append_value(&mut replies, key, bytes);
                    }
                }
                requests.extend_from_slice(b"\r\n");
                replies.extend_from_slice(b"END\r\n");
            }
            _ => {
                let count = random.below(300) as usize;
                requests.extend_from_slice("mn\r\n".repeat(count).as_bytes());
                replies.extend_from_slice("MN\r\n".repeat(count).as_bytes());
            }
        }
    }
    (requests, replies)
}

/// Sends a script in pieces of any length, reads in pieces of any length, and closes its side.
fn play(server: &TestServer, client: u64, seed: u64) {
    let mut random = Random(seed * 1000 + client + 1);
    let (requests, replies) = script(client, &mut random);
    let mut stream = server.connect().reader.into_inner();
    let mut writer = stream.try_clone().unwrap();
    let quits = random.below(2) == 0;
    let mut sizes = Random(seed + 77 + client);
    let sender = thread::spawn(move || {
        let mut rest = requests.as_slice();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(1 << sizes.below(20)));
            writer.write_all(piece).unwrap();
            rest = more;
            if sizes.below(4) == 0 {
                thread::sleep(Duration::from_micros(sizes.below(300)));
            }
        }
        if quits {
            writer.write_all(b"quit\r\n").unwrap();
        } else {
            writer.shutdown(Shutdown::Write).unwrap();
        }
    });
    let mut received = vec![0; replies.len() + 1];
    let mut end = 0;
    loop {
        let limit = received.len().min(end + (1 << random.below(20)));
        match stream.read(&mut received[end..limit]) {
            Ok(0) => break,
            Ok(bytes) => end += bytes,
            Err(error) => panic!("client {client}, seed {seed}: {error} after {end} of {}", replies.len()),
        }
        if random.below(16) == 0 {
            thread::sleep(Duration::from_micros(random.below(2000)));
        }
    }
    assert!(received[..end] == replies[..], "client {client}, seed {seed}: {end} of {}", replies.len());
    sender.join().unwrap();
}

/// Everything at once, under plans that change all the time: no reply is lost, mixed up or left waiting.
#[test]
fn random_clients_get_exactly_their_replies() {
    let seeds: u64 = std::env::var("SEEDS").map_or(1, |text| text.parse().unwrap());
    for seed in 1..=seeds {
        for workers in [1, 2, 4] {
            for steal in [true, false] {
                let mut config = ServerConfig::new(workers);
                config.steal = steal;
                config.poll = if seed % 2 == 0 { PollMode::Adaptive } else { PollMode::Sleep };
                config.epoch = Duration::from_millis(2);
                config.ring_capacity = 2;
                let server = TestServer::start(config);
                eprintln!("seed {seed}, {workers} workers, steal {steal}");
                // A transfer that keeps a large worker from stealing.
                let mut deaf = server.connect();
                deaf.set("huge", HUGE_BYTES);
                deaf.send(b"get huge\r\n");
                thread::scope(|scope| {
                    for client in 0..8 {
                        let server = &server;
                        scope.spawn(move || play(server, client, seed));
                    }
                });
                drop(deaf);
                assert!(eventually(|| server.pinned() == 0));
            }
        }
    }
}
