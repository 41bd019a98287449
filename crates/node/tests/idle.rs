//! A server that nobody asks anything sleeps, and is in time for all that comes then.

mod common;
mod flash_rig;

use std::{
    fs,
    io::Read as _,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use common::{Client, TestServer};
use flash_rig::Rig;
use minos_device::faulty::{Faults, Twin};
use minos_engine::{CacheMode, StoreMode};
use minos_node::{Server, ServerConfig, StatsGroup};
use minos_sched::Threshold;
use minos_tier::{Durability, Options};

/// Wake-ups in a second that a server of two workers may need: each rests for five seconds, and the control thread for
/// longer. One that naps wakes ten times, on each worker.
const FEW: u64 = 3;
const SECOND: Duration = Duration::from_secs(1);
/// Far more than a worker spins before it sleeps.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time until a server rests.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than the socket buffers of both sides take.
const HUGE_BYTES: usize = 24 << 20;
/// A segment of flash.
const SEGMENT_BYTES: u32 = 256 << 10;

/// Servers are in this process, so that one at a time runs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config() -> ServerConfig {
    let mut config = ServerConfig::new(2);
    config.value_bytes_max = 2 * HUGE_BYTES as u64;
    config
}

/// Wake-ups so far of all threads of servers.
fn wake_ups() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let of_server = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let is_server = status.starts_with("Name:\tminos-");
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        is_server.then(|| switches.trim().parse::<u64>().unwrap())
    });
    of_server.sum()
}

fn wake_ups_in_a_second() -> u64 {
    let before = wake_ups();
    thread::sleep(SECOND);
    wake_ups() - before
}

/// Waits until the server rests.
fn rest() {
    let begun = Instant::now();
    while wake_ups_in_a_second() > FEW {
        assert!(begun.elapsed() < PATIENCE, "the server does not rest");
    }
}

/// Waits until a server has no item, which wakes none of its threads.
fn wait_until_empty(server: &TestServer) {
    let items = || {
        let mut items = String::new();
        server.server.operator().stats(StatsGroup::General, &mut |name, value| {
            if name == "curr_items" {
                items = value.to_string();
            }
        });
        items
    };
    let begun = Instant::now();
    while items() != "0" {
        assert!(begun.elapsed() < PATIENCE / 2, "{} items are left", items());
        thread::sleep(PAUSE);
    }
}

/// Waits until a server uses at most so many bytes, which wakes none of its threads.
fn wait_until_used(server: &Server, bytes_max: u64) {
    let used = || {
        let mut used = 0;
        server.operator().stats(StatsGroup::Slabs, &mut |name, value| {
            if name == "total_malloced" {
                used = value.to_string().parse().unwrap();
            }
        });
        used
    };
    let begun = Instant::now();
    while used() > bytes_max {
        assert!(begun.elapsed() < PATIENCE / 2, "{} bytes are used", used());
        thread::sleep(PAUSE);
    }
}

/// What several runs took, in order: on a busy machine one may take longer than the server needs.
fn times(mut run: impl FnMut() -> Duration) -> [Duration; 3] {
    let mut times = [(); 3].map(|()| run());
    times.sort();
    times
}

impl Client {
    fn say(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        self.line()
    }

    fn set(&mut self, key: &str, ttl_s: u32, bytes: usize) {
        self.send(format!("set {key} 0 {ttl_s} {bytes}\r\n").as_bytes());
        self.send(&vec![b'v'; bytes]);
        assert_eq!(self.say("\r\n"), "STORED\r\n");
    }

    fn stat(&mut self, group: &str, name: &str) -> u64 {
        self.send(format!("stats {group}\r\n").as_bytes());
        let lines: Vec<_> =
            std::iter::from_fn(|| Some(self.line()).filter(|line| line != "END\r\n")).collect();
        let value = lines.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        value.unwrap_or_else(|| panic!("no {name} in {lines:?}")).trim().parse().unwrap()
    }
}

#[test]
fn it_wakes_seldom() {
    let _alone = alone();
    let server = TestServer::with_memory::<CacheMode>(64 << 20, config());
    rest();
    let mut clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.set(&format!("key-{number}"), 0, 100);
    }
    rest();
    // The control: what wakes it is counted. Between requests it gets the time to fall asleep.
    let before = wake_ups();
    for _ in 0..20 {
        assert_eq!(clients[0].say("get no\r\n"), "END\r\n");
        thread::sleep(PAUSE);
    }
    assert!(wake_ups() >= before + 10, "wake-ups are not counted");
    rest();
}

#[test]
fn it_does_not_rest_while_a_transfer_is_under_way() {
    let _alone = alone();
    let server = TestServer::with_memory::<StoreMode>(256 << 20, config());
    let mut client = server.connect();
    client.set("huge", 0, HUGE_BYTES);
    rest();
    assert_eq!(server.pinned(), 0);
    // Its client reads nothing, for which it has bounded time.
    client.send(b"get huge\r\n");
    thread::sleep(SECOND);
    // On a busy machine a worker may wait for seconds until it wakes.
    let awake = (0..15).filter(|_| wake_ups_in_a_second() > FEW).take(3);
    assert_eq!(awake.count(), 3, "the server rests");
    let mut value = vec![0; HUGE_BYTES];
    assert!(client.line().starts_with("VALUE"));
    client.reader.read_exact(&mut value).unwrap();
    rest();
}

#[test]
fn a_busy_one_seldom_looks_for_items_that_do_not_expire() {
    let _alone = alone();
    let server = TestServer::with_memory::<StoreMode>(64 << 20, ServerConfig::new(1));
    let mut client = server.connect();
    client.set("key", 0, 10);
    let mut sweeps_in = |time: Duration| {
        let (before, begun) = (client.stat("minos", "worker:0:sweeps"), Instant::now());
        while begun.elapsed() < time {
            assert_eq!(client.say("touch no 10\r\n"), "NOT_FOUND\r\n");
        }
        (client.stat("minos", "worker:0:sweeps") - before, begun.elapsed().as_millis() as u64)
    };
    assert!(sweeps_in(SECOND).0 > 0, "the control: slices are counted");
    let (sweeps, millis) = sweeps_in(2 * SECOND);
    // One is due each 5 ms.
    assert!(sweeps < millis / 5 / 4, "{sweeps} in {millis} ms");
}

#[test]
fn the_first_request_after_a_rest_has_the_time() {
    let _alone = alone();
    // Another worker could wake in between, and be the one that answers.
    let server = TestServer::with_memory::<CacheMode>(64 << 20, ServerConfig::new(1));
    let mut client = server.connect();
    client.set("long", 1000, 10);
    rest();
    client.set("short", 3, 10);
    // The worker rests from before its expiry until after it.
    thread::sleep(4 * SECOND);
    assert_eq!(client.say("get short\r\n"), "END\r\n");
    assert!(client.say("get long\r\n").starts_with("VALUE"));
}

#[test]
fn what_expires_in_a_rest_leaves_memory() {
    let _alone = alone();
    let server = TestServer::with_memory::<StoreMode>(64 << 20, config());
    let mut client = server.connect();
    (0..100).for_each(|number| client.set(&format!("key-{number}"), 4, 10));
    // Its expiry, and the longest rest of a worker. A request would wake one.
    thread::sleep((4 + 6) * SECOND);
    wait_until_empty(&server);
}

#[test]
fn a_delayed_flush_comes_in_time() {
    let _alone = alone();
    let server = TestServer::with_memory::<StoreMode>(64 << 20, config());
    let mut client = server.connect();
    client.set("key", 0, 10);
    rest();
    assert_eq!(client.say("flush_all 4\r\n"), "OK\r\n");
    // A request in between would wake the control thread, which rests for longer than this waits.
    thread::sleep(4 * SECOND);
    wait_until_empty(&server);
    assert_eq!(client.say("get key\r\n"), "END\r\n");
}

#[test]
fn control_sees_the_burst_that_ends_a_rest() {
    let _alone = alone();
    let mut config = config();
    config.control.threshold = Threshold::Auto;
    let server = TestServer::with_memory::<StoreMode>(64 << 20, config);
    let mut client = server.connect();
    rest();
    let rounds = (0..10).filter(|_| {
        let epoch = client.stat("minos", "epoch");
        (0..100).for_each(|number| client.set(&format!("key-{number}"), 0, 10));
        thread::sleep(2 * SECOND);
        // The end of an epoch may have parted the burst, and on a busy machine many may.
        let seen = client.stat("minos", "epoch") - epoch;
        eprintln!("{seen} epochs");
        rest();
        (1..=2).contains(&seen)
    });
    assert_eq!(rounds.take(2).count(), 2);
}

#[test]
fn it_stops_at_once() {
    let _alone = alone();
    let took = times(|| {
        let server = TestServer::with_memory::<StoreMode>(64 << 20, config());
        let _client = server.connect();
        rest();
        let begun = Instant::now();
        server.server.stop().request();
        server.server.join().unwrap();
        begun.elapsed()
    });
    // A rest lasts for five seconds, so that hardly all of these were about to end.
    assert!(took[0] < SECOND, "{took:?}");
}

#[test]
fn silent_connections_are_closed_in_time() {
    let _alone = alone();
    let mut config = config();
    config.idle_timeout = Some(2 * SECOND);
    let server = TestServer::with_memory::<StoreMode>(64 << 20, config);
    let took = times(|| {
        let mut client = server.connect();
        let begun = Instant::now();
        assert_eq!(client.say("get no\r\n"), "END\r\n");
        assert_eq!(client.line(), "");
        begun.elapsed()
    });
    // The third second after that of the request has begun.
    assert!(took[0] > 2 * SECOND && took[0] < 3 * SECOND + SECOND / 2, "{took:?}");
}

#[test]
fn it_gives_back_what_is_beyond_a_lower_limit() {
    let _alone = alone();
    let server = TestServer::with_memory::<CacheMode>(64 << 20, config());
    let mut client = server.connect();
    // As many as memory has room for: few buckets, and many segments.
    (0..16_000).for_each(|number| client.set(&number.to_string(), 0, 3500));
    rest();
    server.server.operator().change(&[("memory", "24m")]).unwrap();
    wait_until_used(&server.server, 24 << 20);
    // It rests again.
    rest();
    client.set("large", 0, 1 << 20);
}

/// A server above flash.
fn above(twin: &Twin, options: &Options) -> Rig {
    flash_rig::format(&twin.device(), SEGMENT_BYTES);
    let mut config = config();
    config.value_bytes_max = 64 << 10;
    // The scrubber wakes the keeper now and then.
    let options = Options { scrub_bytes_s: Some(0), ..*options };
    Rig::on(&twin.device(), 16 << 20, &options, config)
}

fn twin() -> Twin {
    Twin::over(flash_rig::device(SEGMENT_BYTES), Faults::none(), 1)
}

#[test]
fn it_rests_above_a_lower_limit_while_flash_takes_nothing() {
    let _alone = alone();
    // More than both have room for, and than memory has.
    let store = (Options::store(Durability::None), 60_000);
    for ((options, items), is_gone) in [(store, false), (store, true), ((Options::cache(), 20_000), true)] {
        let twin = twin();
        let rig = above(&twin, &options);
        let mut client = common::connect(&rig.server);
        let mut set = |number| client.say(&format!("set {number} 0 0 1000\r\n{}\r\n", "v".repeat(1000)));
        let refusal = (0..items).map(&mut set).find(|reply| reply != "STORED\r\n");
        assert_eq!(refusal.is_some(), options.is_lossless, "{refusal:?}");
        if is_gone {
            twin.cut_power();
        }
        rig.server.operator().change(&[("memory", "8m")]).unwrap();
        if !options.is_lossless {
            wait_until_used(&rig.server, 8 << 20);
        }
        rest();
    }
}

#[test]
fn it_rests_when_flash_has_gone_that_was_to_keep_changes() {
    let _alone = alone();
    for durability in [Durability::Interval(100), Durability::Flush] {
        let twin = twin();
        let rig = above(&twin, &Options::store(durability));
        let mut client = common::connect(&rig.server);
        client.set("key", 0, 10);
        twin.cut_power();
        client.send(b"set key 0 0 5\r\nvalue\r\n");
        rest();
    }
}
