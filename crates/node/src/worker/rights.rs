//! What leaves a node of a rack that loses the right to answer, and gets another one.

use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::Arc,
    time::{Duration, Instant},
};

use minos_engine::{ItemMeta, StoreMode};
use minos_net::{Address, Io, Kernel};
use minos_sched::{Threshold, WorkerId};
use tempfile::TempDir;

use super::{
    Worker,
    lockstep::{clients, shared, worker},
};
use crate::{
    ServerConfig,
    rack::{Links, Rack, config},
    server::shared::Shared,
};

/// What a client finds that is not answered.
const CLOSED: &str = "closed";
/// A value that is sent in slices.
const LARGE_BYTES: usize = 50_000;

/// Node 0 of two, which own micro-shards in turn, and the place of the other one.
struct Bench {
    shared: Arc<Shared<StoreMode, Kernel>>,
    other: UnixListener,
    _folder: TempDir,
}

impl Bench {
    fn new(acknowledge: config::Acknowledge) -> Self {
        const MICRO_SHARDS: u32 = 16;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        let other = UnixListener::bind(&path).unwrap();
        let managed = config::Managed {
            coordinators: Vec::new(),
            lease: Duration::from_secs(60),
            acknowledge,
            read_copies: None,
        };
        let mut rack = config::RackConfig::of_units(0, &[0, 1], MICRO_SHARDS);
        (rack.managed, rack.waiting_max, rack.nodes[1].address) = (Some(managed), 10, Address::Unix(path));
        let mut config = ServerConfig::new(1);
        config.control.threshold = Threshold::Static(1000);
        config.rack = Some(rack);
        let bench = Self { shared: shared(config), other, _folder: folder };
        let routes = &bench.rack().routes;
        // The micro-shard of this key is of this node.
        let first = bench.rack().micro_shard(b"large");
        for micro_shard in 0..MICRO_SHARDS {
            let is_here = micro_shard % 2 == first % 2;
            routes.set(micro_shard, u16::from(!is_here), false);
            routes.feed(micro_shard, is_here);
        }
        bench.lease(1);
        bench
    }

    fn rack(&self) -> &Rack<StoreMode> {
        self.shared.rack.as_ref().unwrap()
    }

    /// Gives the node a lease; one of another number does not follow the last one without a gap.
    fn lease(&self, number: u64) {
        let routes = &self.rack().routes;
        routes.hold(number, routes.now_us(Instant::now()) + 60_000_000);
        routes.raise();
    }

    /// A key of a node.
    fn key(&self, node: u16) -> String {
        let mut keys = (0..).map(|number| format!("k{number}"));
        keys.find(|key| self.rack().reader(key.as_bytes()) == node).unwrap()
    }

    /// Its only worker, and a client.
    fn worker(&self) -> (Worker<'_, StoreMode, Kernel>, UnixStream) {
        let mut worker = worker(&self.shared, 0, 0);
        let poller = Kernel.poller().unwrap();
        worker.links = Some(Links::new(poller, &self.rack().config, Instant::now()));
        let client = clients(&self.shared, 0, 1).pop().unwrap();
        client.set_nonblocking(true).unwrap();
        (worker, client)
    }

    /// Lets the followers have all changes.
    fn confirm(&self) {
        self.rack().handing.confirm(u64::MAX);
    }

    /// Answers the first commands that were forwarded to the other node.
    fn answer(&self, reply: &str) {
        let (mut link, _) = self.other.accept().unwrap();
        link.write_all(format!("{reply}MN\r\n").as_bytes()).unwrap();
        // Closed only when the node has closed it.
        std::mem::forget(link);
    }

    fn store_large(&self, key: &str) {
        let store = &self.shared.store;
        let value = vec![b'o'; LARGE_BYTES];
        let mut entry = store.entry(store.hash(key.as_bytes()), key.as_bytes(), 1);
        entry.insert(&[&value], ItemMeta::default()).unwrap();
    }

    fn unanswered(&self) -> u64 {
        self.shared.worker(WorkerId(0)).rack_counters.unanswered.value()
    }
}

/// Takes some turns, the first of which begins under the lease that there is before `within`.
fn turn(worker: &mut Worker<'_, StoreMode, Kernel>, within: impl FnOnce()) {
    worker.read_clock();
    worker.refresh_rack();
    within();
    worker.turn(|_, _| {});
    for _ in 0..20 {
        worker.read_clock();
        worker.refresh_rack();
        worker.turn(|_, _| {});
    }
}

/// What the node has sent.
fn heard(client: &mut UnixStream) -> String {
    let (mut heard, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        match client.read(&mut buffer) {
            Ok(0) => break heard.extend_from_slice(CLOSED.as_bytes()),
            Ok(bytes) => heard.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => break heard.extend_from_slice(CLOSED.as_bytes()),
        }
    }
    String::from_utf8(heard).unwrap()
}

/// Says something to a client's node, which takes some turns.
fn say(worker: &mut Worker<'_, StoreMode, Kernel>, client: &mut UnixStream, words: &str) -> String {
    client.write_all(words.as_bytes()).unwrap();
    turn(worker, || ());
    heard(client)
}

/// Makes a change without a reply, then lets the lease end, or not, and the followers have all changes. Returns what
/// the client hears that says `words` then.
fn after_a_quiet_change(acknowledge: config::Acknowledge, is_over: bool, words: &str) -> String {
    let bench = Bench::new(acknowledge);
    let (mut worker, mut client) = bench.worker();
    let quiet = format!("ms {} 3 q\r\nnew\r\n", bench.key(0));
    assert_eq!(say(&mut worker, &mut client, &quiet), "");
    if is_over {
        bench.lease(2);
    }
    bench.confirm();
    let said = say(&mut worker, &mut client, &words.replace("LOCAL", &bench.key(0)));
    assert_eq!(bench.unanswered(), u64::from(said == CLOSED));
    said
}

#[test]
fn a_change_without_a_reply_is_not_acknowledged_after_the_lease_under_which_it_was_made() {
    use config::Acknowledge::{Copies, Owner};
    let large = format!("set LOCAL 0 0 {LARGE_BYTES}\r\n{}\r\n", "n".repeat(LARGE_BYTES));
    for (words, reply) in
        [("mn\r\n", "MN\r\n"), ("mg LOCAL v\r\n", "VA 3\r\nnew\r\n"), (&large, "STORED\r\n")]
    {
        assert_eq!(after_a_quiet_change(Copies, false, words), reply);
        assert_eq!(after_a_quiet_change(Copies, true, words), CLOSED, "{}", &words[..4]);
        // Such changes may be lost with their owner.
        assert_eq!(after_a_quiet_change(Owner, true, words), reply);
    }
}

#[test]
fn a_change_without_a_reply_is_waited_for_at_another_worker() {
    let bench = Bench::new(config::Acknowledge::Copies);
    let (mut one, mut client) = bench.worker();
    let (mut other, _idle) = bench.worker();
    let quiet = format!("ms {} 3 q\r\nnew\r\n", bench.key(0));
    assert_eq!(say(&mut one, &mut client, &quiet), "");
    assert_eq!(say(&mut other, &mut client, "mn\r\n"), "");
    bench.confirm();
    turn(&mut other, || ());
    assert_eq!(heard(&mut client), "MN\r\n");
}

#[test]
fn the_reply_of_another_node_waits_for_the_changes_before_it() {
    for is_over in [false, true] {
        let bench = Bench::new(config::Acknowledge::Copies);
        let (mut worker, mut client) = bench.worker();
        let words = format!("ms {} 3 q\r\nnew\r\nmg {} v\r\n", bench.key(0), bench.key(1));
        assert_eq!(say(&mut worker, &mut client, &words), "");
        bench.answer("EN\r\n");
        turn(&mut worker, || ());
        assert_eq!(heard(&mut client), "");
        if is_over {
            bench.lease(2);
        }
        bench.confirm();
        turn(&mut worker, || ());
        assert_eq!(heard(&mut client), if is_over { CLOSED } else { "EN\r\n" });
        assert_eq!(bench.unanswered(), u64::from(is_over));
    }
}

#[test]
fn a_forwarded_command_does_not_wait_for_the_changes_of_others() {
    let bench = Bench::new(config::Acknowledge::Copies);
    let (mut worker, mut client) = bench.worker();
    let mut other = clients(&bench.shared, 0, 1).pop().unwrap();
    other.set_nonblocking(true).unwrap();
    let (local, remote) = (bench.key(0), bench.key(1));
    assert_eq!(say(&mut worker, &mut other, &format!("ms {local} 3\r\nnew\r\n")), "");
    assert_eq!(say(&mut worker, &mut client, &format!("ms {remote} 3\r\nnew\r\n")), "");
    bench.answer("HD\r\n");
    turn(&mut worker, || ());
    assert_eq!((heard(&mut client), heard(&mut other)), ("HD\r\n".to_owned(), String::new()));
}

#[test]
fn a_node_without_a_lease_acknowledges_no_flush() {
    const SAID: &str = "SERVER_ERROR this node of the rack has no lease; the command may be done in part\r\n";
    for has_lease in [true, false] {
        let bench = Bench::new(config::Acknowledge::Owner);
        let (mut worker, mut client) = bench.worker();
        if !has_lease {
            bench.rack().routes.hold(2, 0);
        }
        // With one it waits for the other node.
        let expected = if has_lease { "" } else { SAID };
        assert_eq!(say(&mut worker, &mut client, "flush_all\r\n"), expected);
    }
}

/// What a client hears that says `words`, which a turn reads during which the lease ends, or not; then the other node
/// answers what was forwarded, and the client says `more`.
fn read_in_a_turn(is_over: bool, (words, answer, more): (&str, Option<&str>, &str)) -> String {
    let bench = Bench::new(config::Acknowledge::Owner);
    let (mut worker, mut client) = bench.worker();
    bench.store_large("large");
    client.write_all(words.as_bytes()).unwrap();
    turn(&mut worker, || {
        if is_over {
            bench.lease(2);
        }
    });
    answer.filter(|_| !is_over).into_iter().for_each(|answer| bench.answer(answer));
    // The node may have closed the connection.
    drop(client.write_all(more.as_bytes()));
    turn(&mut worker, || ());
    assert_eq!(bench.unanswered(), u64::from(is_over));
    heard(&mut client)
}

#[test]
fn what_a_turn_has_read_does_not_leave_after_its_lease() {
    let bench = Bench::new(config::Acknowledge::Owner);
    let (local, remote) = (bench.key(0), bench.key(1));
    let value = "o".repeat(LARGE_BYTES);
    let around_a_hole = format!("mg {local} v\r\nmg {remote} v\r\n");
    let without_a_reply = format!("mg {local} v q\r\n");
    for (said, reply) in [
        (("get large\r\n", None, ""), format!("VALUE large 0 {LARGE_BYTES}\r\n{value}\r\nEND\r\n")),
        ((&*around_a_hole, Some("EN\r\n"), ""), "EN\r\nEN\r\n".to_owned()),
        ((&*without_a_reply, None, "mn\r\n"), "MN\r\n".to_owned()),
    ] {
        assert_eq!(read_in_a_turn(false, said), reply);
        assert_eq!(read_in_a_turn(true, said), CLOSED, "{}", said.0);
    }
}

#[test]
fn the_end_of_a_large_store_is_not_told_behind_earlier_replies_after_its_lease() {
    for is_over in [false, true] {
        let bench = Bench::new(config::Acknowledge::Owner);
        let (mut worker, mut client) = bench.worker();
        let (key, value) = (bench.key(0), "n".repeat(LARGE_BYTES));
        let words = format!("mg {key} v\r\nset {key} 0 0 {LARGE_BYTES}\r\n");
        assert_eq!(say(&mut worker, &mut client, &(words + &value)), "");
        client.write_all(b"\r\n").unwrap();
        turn(&mut worker, || {
            if is_over {
                bench.lease(2);
            }
        });
        assert_eq!(heard(&mut client), if is_over { CLOSED } else { "EN\r\nSTORED\r\n" });
        assert_eq!(bench.unanswered(), u64::from(is_over));
    }
}
