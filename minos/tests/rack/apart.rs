//! Nodes and coordinators that know each other by TCP alone, as on several machines.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_net::{Address, Socket};
use minos_node::coordinator::ask;
use minos_proto::native::Secret;
use minos_sealed::{Blocking, Ends, Keys, Purpose};
use minos_testkit::{Client, Over};
use rustix::process::Signal;

use crate::{
    machines::SECRET,
    ports::free_ports,
    up::{PATIENCE, ROOM, Rack, within},
};

const LONG: Duration = Duration::from_secs(30);
/// The number by which a coordinator is called.
const COORDINATOR: u16 = u16::MAX;

/// The processes of such a rack.
pub(crate) struct Apart {
    coordinators: Vec<Child>,
    nodes: Vec<Child>,
    /// The words that start each coordinator and each node.
    coordinates: Vec<Vec<String>>,
    starts: Vec<Vec<String>>,
    /// Where the coordinators listen; the ports at which nodes find each other follow.
    pub(crate) at: Vec<SocketAddr>,
}

/// Processes of a rack, and options.
pub(crate) struct Plan<'a> {
    /// The unit of each node.
    pub(crate) nodes: &'a [u32],
    pub(crate) coordinators: usize,
    /// Options of each coordinator.
    pub(crate) keep: &'a str,
    /// Options of each node.
    pub(crate) serve: &'a str,
    /// Options of coordinators and nodes.
    pub(crate) common: &'a str,
    /// Time that commands wait for a node.
    pub(crate) timeout: &'a str,
}

impl<'a> Plan<'a> {
    /// One coordinator, and commands that wait for so long.
    pub(crate) fn new(timeout: &'a str) -> Self {
        Self { nodes: &[], coordinators: 1, keep: "", serve: "", common: "", timeout }
    }
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn minos(words: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(words);
    command
}

impl Apart {
    /// Starts the processes; returns them with the addresses of the nodes for clients of both protocols.
    pub(crate) fn start(folder: &Path, plan: &Plan) -> (Self, Vec<(SocketAddr, u32)>, Vec<SocketAddr>) {
        let Plan { nodes: units, coordinators, keep, serve, common, timeout } = *plan;
        let nodes = units.len();
        let secret = folder.join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (links, clients) = (free_ports(coordinators + nodes), free_ports(nodes));
        let native: Vec<SocketAddr> = (0..nodes).map(|_| local(free_ports(8))).collect();
        let link = |node: usize| local(links + (coordinators + node) as u16);
        let peer = |node: usize| format!("{}@{}={}", units[node], link(node), native[node]);
        let peers = (0..nodes).map(peer).collect::<Vec<_>>().join(",");
        let at: Vec<_> = (0..coordinators).map(|number| local(links + number as u16)).collect();
        let common = format!("--rack local --peers {peers} --rack-secret {} {common}", secret.display());
        let words = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let coordinate = |at| words(&format!("rack coordinate --listen {at} {keep} {common}"));
        let coordinates: Vec<_> = at.iter().map(coordinate).collect();
        let called = at.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let start = |node: usize| {
            let (memcached, native) = (local(clients + node as u16), native[node]);
            let region = folder.join(format!("node-{node}.region"));
            words(&format!(
                "serve --node {node} --memcached {memcached} --native {native} --region {} --coordinator {called} \
                 --hash-seed 7 --memory 32m --workers 2 --pin off --poll sleep --ends-with-parent \
                 --rack-timeout {timeout} {serve} {common}",
                region.display()
            ))
        };
        let starts: Vec<_> = (0..nodes).map(start).collect();
        let coordinators = coordinates.iter().map(|words| coordinator(words)).collect();
        let started: Vec<Child> = starts.iter().map(|start| started(start)).collect();
        let addresses = started.iter().enumerate();
        let addresses = addresses.map(|(node, child)| (local(clients + node as u16), child.id())).collect();
        (Self { coordinators, nodes: started, coordinates, starts, at }, addresses, native)
    }

    /// Starts a node again that was killed; returns its process.
    pub(crate) fn start_again(&mut self, node: usize) -> u32 {
        self.nodes[node].wait().unwrap();
        self.nodes[node] = started(&self.starts[node]);
        self.nodes[node].id()
    }

    /// The leading coordinator's answer to a line; an empty one if none leads.
    pub(crate) fn operate(&self, line: &str) -> String {
        // A coordinator has a second for a handshake.
        let ask = || {
            let mut answers = (0..self.at.len()).filter_map(|number| self.ask(number, line).ok());
            Ok(answers.find(|answer| !answer.contains("does not lead")).unwrap_or_default())
        };
        within(PATIENCE, ask, |answer| !answer.is_empty()).unwrap_or_default()
    }

    /// One coordinator's answer to a line.
    pub(crate) fn ask(&self, coordinator: usize, line: &str) -> std::io::Result<String> {
        ask(&Address::Tcp(self.at[coordinator]), Some(("local", &[SECRET.parse().unwrap()])), line)
    }

    /// The process of a coordinator.
    #[cfg(feature = "etcd")]
    pub(crate) fn coordinator(&self, number: usize) -> u32 {
        self.coordinators[number].id()
    }

    /// Kills a coordinator.
    pub(crate) fn kill_coordinator(&mut self, number: usize) {
        self.coordinators[number].kill().unwrap();
        self.coordinators[number].wait().unwrap();
    }

    /// Starts the coordinator, which must end by itself; returns what it says.
    pub(crate) fn coordinate_in_vain(&mut self) -> String {
        let mut command = minos(&self.coordinates[0]);
        let process = &mut self.coordinators[0];
        *process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = within(PATIENCE, || process.try_wait(), Option::is_some).flatten();
        assert!(ended.is_some_and(|status| !status.success()), "the coordinator does not end: {ended:?}");
        std::io::read_to_string(process.stderr.take().unwrap()).unwrap()
    }

    /// Starts a coordinator again that was killed.
    pub(crate) fn coordinate_again(&mut self, number: usize) {
        self.coordinators[number].wait().unwrap();
        self.coordinators[number] = coordinator(&self.coordinates[number]);
    }
}

fn coordinator(words: &[String]) -> Child {
    minos(words).stdout(Stdio::null()).spawn().unwrap()
}

impl Drop for Apart {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().chain(&mut self.coordinators) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Before, it took its part of the ring back, with the items that it had had, and served them beside the node that had newer
/// ones by then.
#[test]
fn a_node_that_is_started_without_its_coordinator_serves_nothing_of_the_rack() {
    let mut rack = Rack::apart(2, ROOM);
    let (key, region) = (rack.key_of(1), rack.folder.path().join("node-1.region"));
    assert_eq!(rack.client(0).set(&key, b"kept").unwrap(), "STORED");
    let mut alone = rack.processes().starts[1].clone();
    let at = alone.iter().position(|word| word == "--coordinator").unwrap();
    alone.drain(at..at + 2);
    rack.signal(1, Signal::TERM);
    rack.processes_mut().nodes[1].wait().unwrap();
    for _ in 0..2 {
        let refused = minos(&alone).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("give --coordinator"), "{said}");
    }
    // Its memory is as it was.
    rack.nodes[1].1 = rack.processes_mut().start_again(1);
    let found = within(PATIENCE, || rack.client(1).get(&key), Option::is_some).flatten();
    assert_eq!(found.unwrap().value, b"kept");
    rack.signal(1, Signal::TERM);
    rack.processes_mut().nodes[1].wait().unwrap();
    // Without it nothing shows what it was, but the others do not take its commands.
    std::fs::remove_file(region).unwrap();
    rack.processes_mut().nodes[1] = started(&alone);
    let mut client = rack.client(1);
    let said: Vec<_> = (0..40).map(|key| client.set(&format!("k{key}"), b"x").unwrap()).collect();
    let is_refused = |said: &String| said.starts_with("SERVER_ERROR node 0 of the rack ");
    assert!(said.iter().all(|said| said == "STORED" || is_refused(said)), "{said:?}");
    assert!(said.iter().any(is_refused), "{said:?}");
    let mut other = rack.client(0);
    assert!((0..40).all(|key| said[key] == "STORED" || other.get(&format!("k{key}")).unwrap().is_none()));
}

/// A node that clients can connect to.
fn started(words: &[String]) -> Child {
    let mut process = minos(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("listening on memcached"));
    thread::spawn(move || lines.for_each(drop));
    process
}

/// Moves the micro-shards of keys to a node, again if one is given up.
pub(crate) fn move_all(rack: &Rack, keys: &[String], to: usize) {
    let deadline = Instant::now() + PATIENCE;
    let is_there = |key: &&String| rack.operate(&format!("where {key}")).ends_with(&format!("node {to}\n"));
    while !keys.iter().all(|key| is_there(&key)) {
        assert!(Instant::now() < deadline, "{}", rack.operate("status"));
        for key in keys.iter().filter(|key| !is_there(key)) {
            rack.operate(&format!("move {} {to}", rack.micro_shard(key)));
        }
        rack.wait_until_at_rest();
    }
}

/// All that a client sees of an item: the line of a meta get, without the exact time to live, and the value.
fn seen(client: &mut Client, key: &str) -> (String, Vec<u8>, i64) {
    let line = client.ask(&format!("mg {key} v c f k s t")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let [first @ .., ttl] = &words[..] else { panic!("{line}") };
    let value = client.exact(words[1].parse::<usize>().unwrap() + 2).unwrap();
    (first.join(" "), value, ttl[1..].parse().unwrap())
}

#[test]
fn items_move_between_machines_byte_for_byte() {
    const SIZES: [usize; 13] =
        [0, 1, 7, 300, 4095, 4096, 16_384, 16_385, 70_000, 131_072, 131_073, 500_000, 1_000_000];
    let rack = Rack::apart(3, ROOM);
    let mut client = rack.client(0);
    let keys: Vec<String> = (0..SIZES.len() * 4).map(|number| format!("item{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let bytes: Vec<u8> = (0..SIZES[number % SIZES.len()]).map(|at| (at * 7 + number) as u8).collect();
        let ttl = if number % 2 == 0 { 0 } else { 5000 };
        let said = client.store(&format!("set {key} {number} {ttl} {}", bytes.len()), &bytes).unwrap();
        assert_eq!(said, "STORED");
    }
    let before: Vec<_> = keys.iter().map(|key| seen(&mut client, key)).collect();
    for to in [1, 2, 0, 1] {
        move_all(&rack, &keys, to);
        assert_eq!(rack.owner(&keys[3]), to);
        for (key, (line, value, ttl)) in keys.iter().zip(&before) {
            let (line_now, value_now, ttl_now) = seen(&mut rack.client(to), key);
            assert!(line_now == *line && value_now == *value, "{key}: {line_now} instead of {line}");
            assert!((ttl - 300..=*ttl).contains(&ttl_now), "{key}: {ttl_now} instead of {ttl}");
        }
    }
}

#[test]
fn what_changes_while_it_moves_between_machines_is_there_afterwards() {
    const COUNTERS: usize = 16;
    let rack = Rack::apart(3, ROOM);
    let keys: Vec<String> = (0..COUNTERS).map(|number| format!("counter{number}")).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (writer, keys) in keys.chunks(COUNTERS / 2).enumerate() {
            let mut client = rack.client(writer);
            let is_over = &is_over;
            scope.spawn(move || {
                keys.iter().for_each(|key| assert_eq!(client.set(key, b"0").unwrap(), "STORED"));
                for count in 1.. {
                    for key in keys {
                        assert_eq!(client.ask(&format!("incr {key} 1")).unwrap(), count.to_string());
                        // What is new at each turn, and gone at the next.
                        let (new, old) = (format!("{key}-{count}"), format!("{key}-{}", count - 1));
                        assert_eq!(client.set(&new, &[b'x'; 20_000]).unwrap(), "STORED");
                        let gone = client.ask(&format!("delete {old}")).unwrap();
                        assert!(gone == "DELETED" || count == 1, "{gone}");
                    }
                    if is_over.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        let _over = Over(&is_over);
        for to in [1, 2, 0, 2, 1, 0] {
            move_all(&rack, &keys, to);
        }
    });
}

/// A stream to the coordinator from a process that knows `secret`.
fn call(at: SocketAddr, secret: &str, rack: &str, ends: Ends) -> std::io::Result<Blocking> {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_nonblocking(true).unwrap();
    let keys = Keys::new(rack, &[secret.parse().unwrap()]);
    Blocking::connect(Socket::from_nonblocking(stream.into()), &keys, ends, LONG)
}

/// What the other end says to a line, until it closes.
fn said(stream: std::io::Result<Blocking>, line: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = stream
        && stream.write_all(line.as_bytes()).is_ok()
    {
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

#[test]
fn strangers_get_nothing_from_the_coordinator() {
    let rack = Rack::apart(1, ROOM);
    let at = rack.apart_at();
    let ends = Ends { purpose: Purpose::Control, from: COORDINATOR - 1, to: COORDINATOR };
    let line = "minos-operator 1\nstatus\n";
    assert!(said(call(at, SECRET, "local", ends), line).starts_with("epoch "));
    let other = SECRET.replace("7:0", "7:1");
    assert_eq!(said(call(at, &other, "local", ends), line), "", "another secret");
    assert_eq!(said(call(at, SECRET, "other", ends), line), "", "another rack");
    assert_eq!(said(call(at, SECRET, "local", Ends { to: 0, ..ends }), line), "", "another number");
    let commands = Ends { purpose: Purpose::Commands, ..ends };
    assert_eq!(said(call(at, SECRET, "local", commands), line), "", "another purpose");
    for bytes in [line.repeat(4).as_bytes(), &[0; 56], b"MNS\x01\x07", &[]] {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (began, mut answer) = (Instant::now(), Vec::new());
        stream.write_all(bytes).unwrap();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() && began.elapsed() < LONG, "{bytes:?}");
    }
    assert!(ask(&Address::Tcp(at), None, "status").is_err());
    let wrong: Secret = other.parse().unwrap();
    let refused = ask(&Address::Tcp(at), Some(("local", &[wrong])), "status").unwrap_err().to_string();
    assert_eq!(refused, "the other end has another --rack-secret, or is of another --rack");
}

#[test]
fn operators_need_the_secret() {
    let rack = Rack::apart(1, ROOM);
    let secret = rack.folder.path().join("secret");
    let run = |options: &str| {
        let line = format!("rack state --coordinator {}{options}", rack.apart_at());
        let output = minos(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let began = Instant::now();
    loop {
        let (is_done, text) = run(&format!(" --rack local --rack-secret {}", secret.display()));
        // A node that is late for its lease is silent for a while.
        if is_done && text.contains("node 0 unit 0 member alive") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{text}");
    }
    assert!(!run("").0);
}
