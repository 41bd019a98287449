//! Large values through a real server: every design, every poller, one worker and several.

mod common;

use std::{
    io::{Read, Write},
    thread,
    time::Duration,
};

use common::{Client, TestServer};
use minos_engine::{CacheMode, Mode, StoreMode};
use minos_node::{
    ServerConfig,
    config::{Design, LargeOrder},
};

/// Every combination under test, each a running server.
fn each_server(mut test: impl FnMut(&str, &TestServer)) {
    for dispatch in Design::SERVED {
        for workers in [1, 3] {
            if workers == 1 && dispatch == Design::HandOff {
                continue;
            }
            let mut config = ServerConfig::new(workers);
            config.dispatch = dispatch;
            config.value_bytes_max = 32 << 20;
            // Plans change all the time, and so do the roles of the workers.
            config.epoch = Duration::from_millis(2);
            let name = format!("{dispatch}, {workers} workers");
            test(&format!("cache, {name}"), &TestServer::in_mode::<CacheMode>(config.clone()));
            test(&format!("store, {name}"), &TestServer::in_mode::<StoreMode>(config));
        }
    }
}

impl TestServer {
    fn in_mode<M: Mode>(config: ServerConfig) -> Self {
        Self::with_memory::<M>(256 << 20, config)
    }

    fn start(config: ServerConfig) -> Self {
        Self::in_mode::<StoreMode>(config)
    }

    /// True once no item is pinned any more; waits a while for that.
    fn all_is_unpinned(&self) -> bool {
        (0..6000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            self.pinned() == 0
        })
    }
}

impl Client {
    fn set(&mut self, key: &str, value: &[u8]) {
        self.send(&set_request(key, value));
        assert_eq!(self.line(), "STORED\r\n");
    }

    fn value(&mut self, key: &str, bytes: usize) -> Vec<u8> {
        assert_eq!(self.line(), format!("VALUE {key} 0 {bytes}\r\n"));
        let mut value = vec![0; bytes + 2];
        self.reader.read_exact(&mut value).unwrap();
        assert_eq!(value.split_off(bytes), b"\r\n");
        value
    }

    fn get(&mut self, key: &str, expected: &[u8]) {
        self.send(format!("get {key}\r\n").as_bytes());
        assert!(self.value(key, expected.len()) == expected, "other bytes in {key}");
        assert_eq!(self.line(), "END\r\n");
    }
}

fn set_request(key: &str, value: &[u8]) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
    request
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed) as u8).collect()
}

#[test]
fn values_of_all_sizes_come_back_as_they_were() {
    each_server(|name, server| {
        eprintln!("{name}");
        let mut client = server.connect();
        for bytes in [0, 1, 100, 4096, 16 << 10, (16 << 10) + 1, 65_536, 300_000, 5 << 20, 20 << 20] {
            let value = pattern(bytes, 7);
            client.set("key", &value);
            client.get("key", &value);
        }
    });
}

#[test]
fn replies_keep_the_order_of_the_requests() {
    each_server(|name, server| {
        eprintln!("{name}");
        let (small, large) = (pattern(20, 1), pattern(700_000, 2));
        let mut client = server.connect();
        client.set("s", &small);
        client.set("l", &large);
        // Small and large values, reads and writes, and a line of keys with a large value in its middle, in
        // one burst.
        let mut burst = b"get s\r\nget l\r\nget s\r\n".to_vec();
        burst.extend_from_slice(&set_request("l2", &large));
        burst.extend_from_slice(b"get s l none l2 s\r\nmg l v\r\nget s\r\n");
        let mut writer = client.reader.get_ref().try_clone().unwrap();
        let sender = thread::spawn(move || writer.write_all(&burst).unwrap());
        let expect = |client: &mut Client, keys: &[(&str, &[u8])]| {
            for (key, value) in keys {
                assert!(client.value(key, value.len()) == *value, "{name}: {key}");
            }
            assert_eq!(client.line(), "END\r\n");
        };
        expect(&mut client, &[("s", &small)]);
        expect(&mut client, &[("l", &large)]);
        expect(&mut client, &[("s", &small)]);
        assert_eq!(client.line(), "STORED\r\n");
        expect(&mut client, &[("s", &small), ("l", &large), ("l2", &large), ("s", &small)]);
        assert_eq!(client.line(), "VA 700000\r\n");
        let mut value = vec![0; large.len() + 2];
        client.reader.read_exact(&mut value).unwrap();
        assert!(value[..large.len()] == large[..]);
        expect(&mut client, &[("s", &small)]);
        sender.join().unwrap();
    });
}

#[test]
fn a_value_that_is_overwritten_while_it_is_sent_stays_whole() {
    each_server(|name, server| {
        eprintln!("{name}");
        let (old, new) = (pattern(8 << 20, 3), pattern(8 << 20, 4));
        let (mut reader, mut writer) = (server.connect(), server.connect());
        writer.set("key", &old);
        reader.send(b"get key\r\n");
        assert_eq!(reader.line(), format!("VALUE key 0 {}\r\n", old.len()));
        // The socket holds less than the value, so that the item is pinned now.
        writer.set("key", &new);
        writer.send(b"delete key\r\n");
        assert_eq!(writer.line(), "DELETED\r\n");
        writer.set("key", &new);
        let mut value = vec![0; old.len()];
        reader.reader.read_exact(&mut value).unwrap();
        assert!(value == old, "{name}");
        assert_eq!((reader.line().as_str(), reader.line().as_str()), ("\r\n", "END\r\n"));
        writer.get("key", &new);
    });
}

#[test]
fn a_client_that_neither_reads_nor_writes_on_holds_up_nobody() {
    each_server(|name, server| {
        eprintln!("{name}");
        let large = pattern(16 << 20, 5);
        let mut other = server.connect();
        other.set("large", &large);
        let mut deaf = server.connect();
        deaf.send(b"get large\r\nget large\r\n");
        let mut slow = server.connect();
        slow.send(b"set slow 0 0 1000000\r\nabc");
        for round in 0..20 {
            let value = pattern(500_000, round);
            other.set("mine", &value);
            other.get("mine", &value);
            other.set("small", b"x");
            other.get("small", b"x");
        }
        drop((deaf, slow));
        // Values pinned by the broken connections are released.
        assert!(server.all_is_unpinned(), "{name}: pins are left");
    });
}

#[test]
fn many_clients_while_roles_change() {
    each_server(|name, server| {
        eprintln!("{name}");
        thread::scope(|scope| {
            for thread in 0..6 {
                scope.spawn(move || {
                    let mut client = server.connect();
                    for round in 0..60 {
                        let bytes = [10, 900, 3000, 20_000, 70_000, 400_000][(thread * 7 + round) % 6];
                        let value = pattern(bytes, thread);
                        let key = format!("key-{thread}-{}", round % 5);
                        client.set(&key, &value);
                        client.get(&key, &value);
                    }
                });
            }
        });
        // The last pin ends after the last byte of the last reply.
        assert!(server.all_is_unpinned(), "{name}: pins are left");
    });
}

#[test]
fn a_full_ring_leaves_requests_at_their_source() {
    let mut config = ServerConfig::new(2);
    config.ring_capacity = 2;
    config.large_order = LargeOrder::Fifo;
    config.control.threshold = minos_sched::Threshold::Static(1000);
    let server = TestServer::start(config);
    let value = pattern(200_000, 9);
    server.connect().set("large", &value);
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"get large\r\n");
    }
    for client in &mut clients {
        assert!(client.value("large", value.len()) == value);
        assert_eq!(client.line(), "END\r\n");
    }
}
