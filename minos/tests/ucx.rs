//! Nodes of a unit that read each other's memory by UCX. `cargo xtask ucx` runs these.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use minos_net::Address;
use minos_testkit::{Client, Over, Server};
use ports::free_ports;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[path = "common/ports.rs"]
mod ports;

const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const PROGRAM: &str = env!("CARGO_BIN_EXE_minos");
/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of the owner that readers map.
const MAPPED: &str = "ucx:posix,cma,self";

/// Memory of which the owner's process answers reads.
const ANSWERED: &str = "ucx:tcp,self";
/// No node is without one because the machine is busy.
const LEASE: &str = "20s";
/// As nodes say it.
const AFAR: &str = "read over UCX";

/// Nodes of one unit, which find each other at Unix sockets.
struct Rack {
    nodes: Vec<Server>,
    _folder: TempDir,
}

impl Rack {
    fn start(fabrics: &[&str], options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = |node: usize| folder.path().join(format!("node-{node}")).display().to_string();
        let peers = (0..fabrics.len()).map(place).collect::<Vec<_>>().join(",");
        Self::start_at((&peers, folder), fabrics, options)
    }

    /// Nodes that find each other at addresses, as on several machines, and know a secret.
    fn start_apart(fabrics: &[&str], options: &[&str]) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_ports(fabrics.len()));
        let place = |node: usize| format!("0@127.0.0.1:{}", usize::from(port) + node);
        let peers = (0..fabrics.len()).map(place).collect::<Vec<_>>().join(",");
        let secret = secret_in(&folder);
        let options = [&["--rack-secret", &secret], options].concat();
        Self::start_at((&peers, folder), fabrics, &options)
    }

    fn start_at((peers, folder): (&str, TempDir), fabrics: &[&str], options: &[&str]) -> Self {
        let start = |(node, fabric): (usize, &&str)| {
            let number = node.to_string();
            let rack = ["--rack", "r", "--node", &number, "--peers", peers, "--rack-fabric", fabric];
            let more = ["--hash-seed", "7", "--memory", "32m", "--workers", "2"];
            Server::minos(Path::new(PROGRAM), &[&rack[..], &more, options].concat())
        };
        let nodes: Result<Vec<_>, _> = fabrics.iter().enumerate().map(start).collect();
        Self { nodes: nodes.unwrap_or_else(|error| panic!("{error}")), _folder: folder }
    }

    fn client(&self, node: usize) -> Client {
        Client::connect(self.nodes[node].address()).unwrap()
    }

    /// Waits until each node says that of the memory of each other one.
    fn wait_until(&self, state: &str) {
        for node in 0..self.nodes.len() {
            for other in (0..self.nodes.len()).filter(|&other| other != node) {
                self.wait_until_node_says(node, other, state);
            }
        }
    }

    fn wait_until_node_says(&self, node: usize, other: usize, state: &str) {
        let name = format!("node:{other}:memory");
        let deadline = Instant::now() + PATIENCE;
        while text(&mut self.client(node), &name) != state {
            assert!(Instant::now() < deadline, "{}", self.nodes[node].log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        let pid = self.nodes[node].pid();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('T'))
        };
        while signal == Signal::STOP && !is_stopped() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Keys that the node owns, of which node 0 is not the owner: reading them counts there.
    fn keys_of(&self, node: usize, count: usize) -> Vec<String> {
        let mut client = self.client(node);
        let asked = |client: &mut Client| {
            ["remote_reads", "remote_asked", "fabric_reads"]
                .map(|name| stat(client, name))
                .iter()
                .sum::<u64>()
        };
        let mut is_own = |key: &String| {
            let before = asked(&mut client);
            client.get(key).unwrap();
            asked(&mut client) == before
        };
        (0..).map(|number| format!("key{number}")).filter(|key| is_own(key)).take(count).collect()
    }
}

/// A file with the rack's secret.
fn secret_in(folder: &TempDir) -> String {
    let path = folder.path().join("secret");
    std::fs::write(&path, SECRET).unwrap();
    path.display().to_string()
}

fn text(client: &mut Client, name: &str) -> String {
    let stats = client.stats("rack").unwrap();
    stats.into_iter().find(|(other, _)| other == name).map(|(_, value)| value).unwrap_or_default()
}

fn stat(client: &mut Client, name: &str) -> u64 {
    text(client, name).parse().unwrap_or(0)
}

/// Repeats what fails while a node is late or lost.
fn insist<T>(mut ask: impl FnMut() -> io::Result<T>, is_so: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(answer) if is_so(&answer) => return answer,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Ok(_) if Instant::now() > deadline => panic!("another answer"),
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Writes at each node are seen at once at the others, by single reads, by lines of many keys, and by those of a burst.
fn write_and_read(rack: &Rack, hits: &str) {
    let keys = rack.keys_of(1, 40);
    let (mut owner, mut reader) = (rack.client(1), rack.client(0));
    let before = stat(&mut reader, hits);
    for round in 0..3 {
        for (number, key) in keys.iter().enumerate() {
            let value = format!("value {number} of round {round}");
            let writer = if number % 2 == 0 { &mut owner } else { &mut reader };
            assert_eq!(writer.set(key, value.as_bytes()).unwrap(), "STORED");
            assert_eq!(reader.get(key).unwrap().unwrap().value, value.as_bytes());
        }
        let found = reader.get_many(&keys).unwrap();
        for (number, found) in found.iter().enumerate() {
            let value = format!("value {number} of round {round}");
            assert_eq!(found.as_ref().unwrap().value, value.as_bytes());
        }
        read_burst(&mut reader, &keys, round);
    }
    let read = stat(&mut reader, hits) - before;
    // A worker that has still to meet the other node asks it.
    assert!(read >= 3 * 3 * keys.len() as u64 / 2, "{read} of {} keys", keys.len());
    for key in &keys {
        assert_eq!(owner.ask(&format!("delete {key}")).unwrap(), "DELETED");
        assert!(reader.get(key).unwrap().is_none());
    }
    assert!(reader.get_many(&keys).unwrap().iter().all(Option::is_none));
}

/// Meta commands that are sent at once, and answered in order.
fn read_burst(reader: &mut Client, keys: &[String], round: usize) {
    let lines: String = keys.iter().map(|key| format!("mg {key} s v k\r\nmg none{key} v q\r\n")).collect();
    reader.send(lines + "mn\r\n").unwrap();
    for (number, key) in keys.iter().enumerate() {
        let value = format!("value {number} of round {round}");
        assert_eq!(reader.line().unwrap(), format!("VA {} s{} k{key}", value.len(), value.len()));
        assert_eq!(reader.line().unwrap(), value);
    }
    assert_eq!(reader.line().unwrap(), "MN");
}

#[test]
fn nodes_read_memory_that_they_map() {
    let rack = Rack::start(&[MAPPED; 3], &[]);
    rack.wait_until("attached");
    write_and_read(&rack, "remote_hits");
}

#[test]
fn mapped_memory_of_a_stopped_node_is_read_and_that_of_a_dead_one_is_not() {
    let mut rack = Rack::start(&[MAPPED; 2], &["--rack-timeout", "300ms"]);
    rack.wait_until("attached");
    let key = rack.keys_of(1, 1).remove(0);
    let mut client = rack.client(0);
    insist(|| client.set(&key, b"before"), |said| said == "STORED");
    rack.signal(1, Signal::STOP);
    for _ in 0..100 {
        assert_eq!(client.get(&key).unwrap().unwrap().value, b"before");
    }
    let said = client.set(&key, b"after").unwrap();
    assert!(said.starts_with("SERVER_ERROR node 1 of the rack is late"), "{said}");
    rack.signal(1, Signal::CONT);
    insist(|| client.set(&key, b"after"), |said| said == "STORED");
    die_and_come_back(&mut rack, &key, "attached");
}

#[test]
fn nodes_read_memory_that_they_cannot_map() {
    let rack = Rack::start(&[ANSWERED; 3], &[]);
    rack.wait_until(AFAR);
    write_and_read(&rack, "fabric_hits");
    let mut client = rack.client(0);
    assert!(stat(&mut client, "fabric_misses") > 40 && stat(&mut client, "remote_reads") == 0);
}

#[test]
fn nodes_at_addresses_read_each_other_once_they_have_proven_to_know_the_secret() {
    let mut rack = Rack::start_apart(&[ANSWERED; 2], &["--rack-timeout", "2s"]);
    rack.wait_until(AFAR);
    write_and_read(&rack, "fabric_hits");
    let key = rack.keys_of(1, 1).remove(0);
    die_and_come_back(&mut rack, &key, AFAR);
    let hits = stat(&mut rack.client(0), "fabric_hits");
    insist(|| rack.client(0).get(&key), |_| stat(&mut rack.client(0), "fabric_hits") > hits);
    // One that can be mapped is.
    let rack = Rack::start_apart(&[MAPPED; 2], &[]);
    rack.wait_until("attached");
    write_and_read(&rack, "remote_hits");
}

#[test]
fn clients_of_redis_read_what_is_not_mapped() {
    let mut rack = Rack::start(&[ANSWERED; 2], &["--resp", "127.0.0.1:0"]);
    rack.wait_until(AFAR);
    let keys = rack.keys_of(1, 3);
    let mut owner = rack.client(1);
    keys[..2].iter().for_each(|key| assert_eq!(owner.set(key, b"value").unwrap(), "STORED"));
    insist(|| rack.client(0).get(&keys[0]), |_| stat(&mut rack.client(0), "fabric_hits") > 0);
    let mut stream = TcpStream::connect(rack.nodes[0].resp_address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut ask = |command: &str, reply: &str| {
        stream.write_all(command.as_bytes()).unwrap();
        let mut said = vec![0; reply.len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), reply, "{command}");
    };
    let value = "$5\r\nvalue\r\n";
    ask(&format!("GET {}\r\nGET {}\r\n", keys[0], keys[2]), &format!("{value}$-1\r\n"));
    ask(&format!("MGET {}\r\n", keys.join(" ")), &format!("*3\r\n{value}{value}$-1\r\n"));
    ask(&format!("SET {0} new\r\nGET {0}\r\nDEL {0}\r\n", keys[0]), "+OK\r\n$3\r\nnew\r\n:1\r\n");
    let counts = ["fabric_hits", "fabric_misses"].map(|name| stat(&mut rack.client(0), name));
    assert!(counts.iter().all(|&count| count > 1), "{counts:?}");
}

/// A coordinator of nodes at these places; killed when dropped.
struct Coordinator {
    process: Child,
    at: Address,
}

impl Coordinator {
    fn start(folder: &Path, peers: &str, options: &[&str]) -> Self {
        let place = |name: &str| folder.join(name).display().to_string();
        let (listen, directory) = (place("coordinator"), place("directory"));
        let mut command = Command::new(PROGRAM);
        command.args(["rack", "coordinate", "--rack", "r", "--peers", peers, "--listen", &listen]);
        command.args(["--directory", &directory, "--rack-lease", LEASE]).args(options);
        let process = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self { process, at: Address::Unix(listen.into()) }
    }

    fn ask(&self, line: &str) -> io::Result<String> {
        minos_node::coordinator::ask(&self.at, None, line)
    }

    /// The micro-shard of a key, and its node.
    fn place_of(&self, key: &str) -> (u32, usize) {
        let said = insist(|| self.ask(&format!("where {key}")), |said| said.contains(" node "));
        let words: Vec<&str> = said.split_whitespace().collect();
        (words[1].parse().unwrap(), words[3].parse().unwrap())
    }

    /// Moves the micro-shard of a key to the other one of two nodes.
    fn move_away(&self, key: &str) {
        let (micro_shard, node) = self.place_of(key);
        self.ask(&format!("move {micro_shard} {}", 1 - node)).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.place_of(key).1 == node {
            assert!(Instant::now() < deadline, "it does not move");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With `MINOS_LEFT_OUT=window`, nodes read over the fabric what they could map.
#[test]
fn what_is_read_is_never_older_than_what_was_acknowledged_while_micro_shards_move() {
    const MOVES: usize = 12;
    let (folder, port) = (tempfile::tempdir().unwrap(), free_ports(2));
    let peers = format!("0@127.0.0.1:{port},0@127.0.0.1:{}", port + 1);
    let secret = secret_in(&folder);
    let coordinator = Coordinator::start(folder.path(), &peers, &["--rack-secret", &secret]);
    let listen = coordinator.at.to_string();
    let options = ["--coordinator", &listen, "--rack-lease", LEASE, "--rack-secret", &secret];
    let rack = Rack::start_at((&peers, folder), &[MAPPED; 2], &options);
    let is_afar = std::env::var("MINOS_LEFT_OUT").is_ok_and(|part| part == "window");
    rack.wait_until(if is_afar { AFAR } else { "attached" });
    let (keys, acknowledged) = (["a", "b", "c"], [const { AtomicU64::new(0) }; 3]);
    let mut writer = rack.client(0);
    keys.iter().for_each(|key| _ = insist(|| writer.set(key, b"0"), |said| said == "STORED"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for node in [0, 1, 0, 1] {
            let (mut client, is_over, acknowledged) = (rack.client(node), &is_over, &acknowledged);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    for (key, acknowledged) in keys.iter().zip(acknowledged) {
                        let least = acknowledged.load(SeqCst);
                        // While it changes hands, there may be an error.
                        let Ok(found) = client.get(key) else { continue };
                        let value = found.expect("it is never removed").value;
                        let number: u64 = String::from_utf8(value).unwrap().parse().unwrap();
                        assert!(number >= least, "{number} of {key} after {least}");
                    }
                }
            });
        }
        let (is_over, acknowledged) = (&is_over, &acknowledged);
        scope.spawn(move || {
            for number in 1u64.. {
                let at = number as usize % keys.len();
                if is_over.load(Relaxed) {
                    return;
                }
                insist(|| writer.set(keys[at], number.to_string().as_bytes()), |said| said == "STORED");
                acknowledged[at].store(number, SeqCst);
            }
        });
        let _over = Over(is_over);
        for at in 0..MOVES {
            coordinator.move_away(keys[at % keys.len()]);
            thread::sleep(Duration::from_millis(20));
        }
    });
    let name = if is_afar { "fabric_hits" } else { "remote_hits" };
    let read: u64 = (0..2).map(|node| stat(&mut rack.client(node), name)).sum();
    assert!(read > 0, "nothing was read at the other node");
}

#[test]
fn commands_for_a_key_keep_their_order_around_a_read() {
    let rack = Rack::start(&[ANSWERED; 2], &[]);
    rack.wait_until(AFAR);
    let key = rack.keys_of(1, 1).remove(0);
    let mut client = rack.client(0);
    let large = "x".repeat(3000);
    for round in 0..200 {
        let (old, new) = (format!("old {round}"), format!("new {round}{large}"));
        let set = |value: &str| format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        let get = format!("get {key}\r\n");
        let delete = format!("delete {key}\r\n");
        client.send(set(&old) + &get + &set(&new) + &get + &delete + &get).unwrap();
        assert_eq!(client.line().unwrap(), "STORED");
        assert_eq!(client.found().unwrap().unwrap().value, old.as_bytes());
        assert_eq!(client.line().unwrap(), "STORED");
        assert_eq!(client.found().unwrap().unwrap().value, new.as_bytes());
        assert_eq!(client.line().unwrap(), "DELETED");
        assert!(client.found().unwrap().is_none());
    }
    assert!(stat(&mut client, "fabric_hits") > 200);
}

#[test]
fn reads_beside_a_writer_are_whole_and_never_go_back() {
    const WRITES: u64 = 10_000;
    let rack = Rack::start(&[ANSWERED; 2], &[]);
    rack.wait_until(AFAR);
    let keys = rack.keys_of(1, 4);
    let value = |number: u64| format!("{number:08}").repeat(1 + number as usize % 100).into_bytes();
    let (mut writer, mut readers) = (rack.client(1), [0; 8].map(|node| rack.client(node)));
    keys.iter().for_each(|key| assert_eq!(writer.set(key, &value(0)).unwrap(), "STORED"));
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in &mut readers {
            let keys = &keys;
            scope.spawn(move || {
                let mut latest = [0; 4];
                while !is_over.load(Relaxed) {
                    for (found, latest) in reader.get_many(keys).unwrap().into_iter().zip(&mut latest) {
                        let found = found.expect("it is never removed").value;
                        let number = std::str::from_utf8(&found[..8]).unwrap().parse().unwrap();
                        assert!(found == value(number) && number >= *latest, "{number} after {latest}");
                        *latest = number;
                    }
                }
            });
        }
        let _over = Over(is_over);
        for number in 1..WRITES {
            let key = &keys[number as usize % keys.len()];
            assert_eq!(writer.set(key, &value(number)).unwrap(), "STORED");
        }
    });
    let mut client = rack.client(0);
    let counts = ["fabric_hits", "fabric_retries"].map(|name| stat(&mut client, name));
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn a_node_that_answers_no_reads_is_asked_and_one_that_is_dead_is_left() {
    let mut rack = Rack::start(&[ANSWERED; 2], &["--rack-timeout", "400ms"]);
    rack.wait_until(AFAR);
    let key = rack.keys_of(1, 1).remove(0);
    let mut client = rack.client(0);
    insist(|| client.set(&key, b"before"), |said| said == "STORED");
    // Its worker has met the node.
    insist(|| client.get(&key), |_| stat(&mut rack.client(0), "fabric_hits") > 0);
    rack.signal(1, Signal::STOP);
    client.send(format!("get {key}\r\n")).unwrap();
    let said = client.line().unwrap();
    assert!(said.starts_with("SERVER_ERROR node 1 of the rack is late"), "{said}");
    assert!(stat(&mut client, "fabric_given_up") > 0);
    rack.signal(1, Signal::CONT);
    let hits = stat(&mut client, "fabric_hits");
    // Once the late reads have ended, others begin.
    insist(|| client.get(&key), |_| stat(&mut rack.client(0), "fabric_hits") > hits);
    die_and_come_back(&mut rack, &key, AFAR);
    assert!(stat(&mut rack.client(0), "fabric_hits") > hits);
}

#[test]
fn large_values_are_their_owners() {
    let rack = Rack::start(&[ANSWERED; 2], &[]);
    rack.wait_until(AFAR);
    let (mut owner, mut reader) = (rack.client(1), rack.client(0));
    for key in rack.keys_of(1, 3) {
        for bytes in [4000, 5000, 300_000] {
            assert_eq!(owner.set(&key, &vec![b'v'; bytes]).unwrap(), "STORED");
            assert!(reader.get(&key).unwrap().unwrap().value == vec![b'v'; bytes]);
        }
    }
}

/// A node that is killed loses its memory, which nobody reads any more, and comes back without items.
fn die_and_come_back(rack: &mut Rack, key: &str, state: &str) {
    let mut client = rack.client(0);
    rack.nodes[1].kill().unwrap();
    rack.wait_until_node_says(0, 1, "gone");
    client.send(format!("get {key}\r\n")).unwrap();
    let said = client.line().unwrap();
    assert!(said.starts_with("SERVER_ERROR node 1 of the rack"), "{said}");
    rack.nodes[1].start_again().unwrap();
    rack.wait_until_node_says(0, 1, state);
    assert!(insist(|| client.get(key), |_| true).is_none());
    insist(|| client.set(key, b"again"), |said| said == "STORED");
    assert_eq!(client.get(key).unwrap().unwrap().value, b"again");
}

/// Before, UCX took the signal for a wish to log each of its steps.
#[test]
fn a_hangup_makes_a_node_no_more_talkative() {
    let rack = Rack::start(&[ANSWERED; 2], &[]);
    rack.wait_until(AFAR);
    rack.signal(0, Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while !rack.nodes[0].log().contains("SIGHUP: there is no file to read again") {
        assert!(Instant::now() < deadline, "{}", rack.nodes[0].log());
        thread::sleep(Duration::from_millis(10));
    }
    write_and_read(&rack, "fabric_hits");
    assert!(!rack.nodes[0].log().contains("UCX  DEBUG"), "{}", rack.nodes[0].log());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let rack = ["serve", "--rack", "r", "--node", "0", "--peers", "/tmp/none", "--hash-seed", "1"];
    for (more, reason) in [
        (&["--rack-fabric", "ucx", "--region", "/dev/shm/none"][..], "--rack-fabric ucx: UCX has memory"),
        (&["--rack-fabric", "ucx", "--region", "keeper:/none"], "--rack-fabric ucx: UCX has memory"),
        (&["--rack-fabric", "ucx", "--backing", "memfd"], "--rack-fabric ucx: UCX has memory"),
        (&["--rack-fabric", "ucx", "--flash", "/none:64m"], "--rack-fabric ucx: UCX has memory"),
        (
            &["--rack-fabric", ANSWERED, "--coordinator", "/none"],
            "and --coordinator: micro-shards are copied",
        ),
        (&["--rack-fabric", "ucx:none"], "--rack-fabric ucx:none: UCX cannot"),
        (&["--rack-fabric", "rdma"], "expected mapped, ucx or ucx:TRANSPORTS"),
    ] {
        let output = Command::new(PROGRAM).args(rack).args(more).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(reason), "{more:?}: {text}");
    }
}
