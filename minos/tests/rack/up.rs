//! Racks that `minos rack up` starts, or that are started node by node as on several machines.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use minos_net::Address;
use minos_node::coordinator::ask_leader;
use minos_proto::native::Secret;
use minos_testkit::Client;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;

use crate::{
    apart::{Apart, Plan},
    keeper::Keeper,
    machines::SECRET,
    ports::free_ports,
};

/// Micro-shards of such a rack.
const MICRO_SHARDS: u32 = 4096;
/// Longest time for anything: nodes may be late on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time for what all nodes and micro-shards have to do.
const ALL_PATIENCE: Duration = Duration::from_secs(300);
/// Time that commands wait for a node, for tests in which none is late on purpose.
pub(crate) const ROOM: &str = "30s";

/// A lease that ends only if a test waits for it: a node without one refuses commands and ends connections.
const LONG_LEASE: &str = "--rack-lease=10s";
/// The default, for tests in which nodes are lost.
pub(crate) const SHORT_LEASE: &str = "--rack-lease=1s";

/// Who looks after the nodes.
enum Host {
    /// `minos rack up`.
    Up(Child, BufReader<ChildStdout>),
    /// The test.
    Apart(Apart),
}

/// The coordinators of a rack.
pub(crate) struct Coordinators {
    at: Vec<Address>,
    /// What they want to be proven, if they listen at addresses.
    secret: Option<Secret>,
}

impl Coordinators {
    /// The answer to a line of the one that leads.
    pub(crate) fn ask(&self, line: &str) -> std::io::Result<String> {
        let secrets = self.secret.as_slice();
        ask_leader(&self.at, (!secrets.is_empty()).then_some(("local", secrets)), line)
    }
}

/// A rack.
pub(crate) struct Rack {
    host: Host,
    /// Address and process of each node.
    pub(crate) nodes: Vec<(SocketAddr, u32)>,
    /// Addresses for native clients, of a rack that serves them.
    pub(crate) native: Vec<SocketAddr>,
    pub(crate) folder: TempDir,
    /// Who keeps the nodes' memory, if their files do not.
    keeper: Option<Keeper>,
}

impl Rack {
    pub(crate) fn up(nodes: usize, options: &[&str]) -> Self {
        Self::up_of(Path::new(env!("CARGO_BIN_EXE_minos")), nodes, options)
    }

    /// A rack of this program.
    pub(crate) fn up_of(program: &Path, nodes: usize, options: &[&str]) -> Self {
        Self::up_in(program, (folder(), None), nodes, options)
    }

    /// A rack whose memory a keeper has.
    pub(crate) fn up_kept(nodes: usize, options: &[&str]) -> Self {
        let folder = folder();
        let keeper = Keeper::start(folder.path(), &[]);
        let option = format!("--keeper={}", keeper.socket.display());
        let options = [&[&*option], options].concat();
        Self::up_in(Path::new(env!("CARGO_BIN_EXE_minos")), (folder, Some(keeper)), nodes, &options)
    }

    fn up_in(
        program: &Path,
        (folder, keeper): (TempDir, Option<Keeper>),
        nodes: usize,
        options: &[&str],
    ) -> Self {
        let mut command = Command::new(program);
        command.args(["rack", "up", "-n", &nodes.to_string(), "--dir"]).arg(folder.path());
        if !options.contains(&"--memory") {
            command.args(["--memory", "32m"]);
        }
        command.args(["--base-port", &free_ports(nodes).to_string(), "--ends-with-parent"]);
        command.args((!options.contains(&SHORT_LEASE)).then_some(LONG_LEASE)).args(options);
        if !options.iter().any(|option| option.starts_with("--rack-timeout")) {
            command.args((!options.contains(&"--")).then_some("--")).args(["--rack-timeout", ROOM]);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let host = Host::Up(process, said);
        let mut rack = Self { host, nodes: Vec::new(), native: Vec::new(), folder, keeper };
        for node in 0..nodes {
            let (number, address, pid) = rack.announced();
            assert_eq!(number, node);
            rack.nodes.push((address, pid));
        }
        rack.wait_until_attached();
        rack
    }

    /// Nodes and a coordinator that know each other by TCP alone.
    pub(crate) fn apart(nodes: usize, timeout: &str) -> Self {
        Self::apart_with(nodes, timeout, LONG_LEASE)
    }

    /// The same with such leases.
    pub(crate) fn apart_with(nodes: usize, timeout: &str, lease: &str) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let keep = format!("--directory {}", folder.path().join("directory").display());
        let plan = Plan { nodes: &vec![0; nodes], keep: &keep, common: lease, ..Plan::new(timeout) };
        Self::planned(folder, &plan)
    }

    /// The same, with a copy of everything in another unit, which a change has reached when it is acknowledged.
    pub(crate) fn apart_with_copies(units: &[u32], timeout: &str) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let keep = format!("--directory {} --copies 2", folder.path().join("directory").display());
        let serve = "--acknowledge copies";
        let plan = Plan { nodes: units, keep: &keep, serve, ..Plan::new(timeout) };
        let rack = Self::planned(folder, &plan);
        rack.wait_until_copied();
        rack
    }

    /// Such a rack with these processes.
    pub(crate) fn planned(folder: TempDir, plan: &Plan) -> Self {
        let (apart, nodes, native) = Apart::start(folder.path(), plan);
        let rack = Self { host: Host::Apart(apart), nodes, native, folder, keeper: None };
        rack.wait_until_attached();
        rack
    }

    /// Where the coordinator of such a rack listens.
    pub(crate) fn apart_at(&self) -> SocketAddr {
        self.processes().at[0]
    }

    /// The processes of such a rack.
    pub(crate) fn processes(&self) -> &Apart {
        let Host::Apart(apart) = &self.host else { panic!("it is on one machine") };
        apart
    }

    pub(crate) fn processes_mut(&mut self) -> &mut Apart {
        let Host::Apart(apart) = &mut self.host else { panic!("it is on one machine") };
        apart
    }

    /// The next node that has started.
    pub(crate) fn announced(&mut self) -> (usize, SocketAddr, u32) {
        assert!(self.announces_within(2 * PATIENCE), "no node has started");
        let Host::Up(_, said) = &mut self.host else { panic!("the test starts nodes again") };
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "the rack has ended");
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let (number, address, pid) = match words[..] {
            ["node", number, "memcached", address, "pid", pid]
            | ["node", number, "memcached", address, "resp", _, "pid", pid] => (number, address, pid),
            ["node", number, "memcached", address, "native", native, "pid", pid] => {
                if self.native.len() == self.nodes.len() {
                    self.native.push(native.parse().unwrap());
                }
                (number, address, pid)
            }
            _ => panic!("{line}"),
        };
        (number.parse().unwrap(), address.parse().unwrap(), pid.parse().unwrap())
    }

    /// True if there is a next node that has started.
    pub(crate) fn has_announced(&self) -> bool {
        self.announces_within(Duration::ZERO)
    }

    fn announces_within(&self, limit: Duration) -> bool {
        let Host::Up(_, said) = &self.host else { panic!("the test starts nodes again") };
        let mut ready = [PollFd::new(said.get_ref(), PollFlags::IN)];
        !said.buffer().is_empty() || poll(&mut ready, Some(&limit.try_into().unwrap())).unwrap() > 0
    }

    /// False once the process of a node has ended.
    pub(crate) fn is_alive(&self, node: usize) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.nodes[node].1));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// What the keeper has.
    pub(crate) fn kept(&self) -> String {
        self.keeper.as_ref().expect("a keeper").list()
    }

    pub(crate) fn client(&self, node: usize) -> Client {
        Client::connect(self.nodes[node].0).unwrap()
    }

    /// Waits until each node reads the memory of all others, and knows where everything is.
    pub(crate) fn wait_until_attached(&self) {
        let deadline = Instant::now() + ALL_PATIENCE;
        for node in 0..self.nodes.len() {
            loop {
                let stats = self.client(node).stats("rack").unwrap();
                let mut memory = stats.iter().filter(|(name, _)| name.ends_with(":memory"));
                let owned = stats.iter().filter(|(name, _)| name.ends_with(":micro_shards"));
                let owned: u32 = owned.map(|(_, count)| count.parse::<u32>().unwrap()).sum();
                if memory.all(|(_, state)| state != "not attached") && owned == MICRO_SHARDS {
                    break;
                }
                assert!(Instant::now() < deadline, "{stats:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Says a line to the coordinator; returns its answer.
    pub(crate) fn operate(&self, line: &str) -> String {
        if let Host::Apart(apart) = &self.host {
            return apart.operate(line);
        }
        insist(|| minos_node::coordinator::ask(&self.coordinator(), None, line), |_| true)
    }

    /// The coordinators, for other threads than that of the test.
    pub(crate) fn coordinators(&self) -> Coordinators {
        match &self.host {
            Host::Up(..) => Coordinators { at: vec![self.coordinator()], secret: None },
            Host::Apart(apart) => {
                let at = apart.at.iter().copied().map(Address::Tcp).collect();
                Coordinators { at, secret: Some(SECRET.parse().unwrap()) }
            }
        }
    }

    /// Where the coordinator of a rack on one machine listens.
    fn coordinator(&self) -> Address {
        Address::Unix(self.folder.path().join("coordinator"))
    }

    /// The micro-shard of a key.
    pub(crate) fn micro_shard(&self, key: &str) -> u32 {
        let place = self.operate(&format!("where {key}"));
        place.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Epoch of the directory in force.
    pub(crate) fn epoch(&self) -> u64 {
        let state = self.operate("status");
        state.lines().next().and_then(|line| line.strip_prefix("epoch ")).unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, node: usize, signal: Signal) {
        let pid = self.nodes[node].1;
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
        // On a busy machine its threads run on for a while.
        let deadline = Instant::now() + PATIENCE;
        while signal == Signal::STOP && !is_stopped(pid) {
            assert!(Instant::now() < deadline, "node {node} does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Signals the process that looks after the nodes, and is their coordinator.
    pub(crate) fn signal_host(&self, signal: Signal) {
        let Host::Up(process, _) = &self.host else { panic!("the test looks after the nodes") };
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// Ends the keeper at once.
    pub(crate) fn kill_keeper(&mut self) {
        drop(self.keeper.take().expect("a keeper"));
    }

    /// Starts another one in its place.
    pub(crate) fn start_keeper(&mut self) {
        self.keeper = Some(Keeper::start(self.folder.path(), &[]));
    }

    /// Stops a node until others have replaced it, or kills it and removes its memory.
    pub(crate) fn lose(&mut self, node: usize, is_stopped: bool) {
        if is_stopped {
            self.signal(node, Signal::STOP);
            std::thread::sleep(Duration::from_millis(1500));
            self.signal(node, Signal::CONT);
        } else {
            std::fs::remove_file(self.folder.path().join(format!("node-{node}.region"))).unwrap();
            self.signal(node, Signal::KILL);
            self.wait_for_restart(node);
        }
    }

    /// Waits until no micro-shard moves or is to move.
    pub(crate) fn wait_until_at_rest(&self) {
        let deadline = Instant::now() + ALL_PATIENCE;
        while !self.operate("status").contains("moves 0\nwaiting 0\n") {
            assert!(Instant::now() < deadline, "{}", self.operate("status"));
            std::thread::yield_now();
        }
    }

    /// Waits until every micro-shard has a copy that may replace its owner's.
    pub(crate) fn wait_until_copied(&self) {
        let deadline = Instant::now() + ALL_PATIENCE;
        while !is_copied(&self.operate("status")) {
            assert!(Instant::now() < deadline, "{}", self.operate("status"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a killed node has been started again.
    pub(crate) fn wait_for_restart(&mut self, node: usize) {
        if let Host::Apart(apart) = &mut self.host {
            self.nodes[node].1 = apart.start_again(node);
            return;
        }
        let (number, address, pid) = self.announced();
        assert_eq!((number, address), (node, self.nodes[node].0));
        self.nodes[node].1 = pid;
    }

    /// The node that owns a key: the one that reads it nowhere else when it is asked.
    pub(crate) fn owner(&self, key: &str) -> usize {
        let reads = |node: usize| {
            let mut client = self.client(node);
            stat(&mut client, "remote_reads") + stat(&mut client, "remote_asked")
        };
        let is_owner = |&node: &usize| {
            let before = reads(node);
            insist(|| self.client(node).get(key), |_| true);
            reads(node) == before
        };
        // An owner without a lease asks others, too.
        insist(|| Ok((0..self.nodes.len()).find(is_owner)), Option::is_some).expect("an owner")
    }

    /// A key that the node owns.
    pub(crate) fn key_of(&self, node: usize) -> String {
        (0..).map(|number| format!("key{number}")).find(|key| self.owner(key) == node).unwrap()
    }
}

/// True if a coordinator says that every micro-shard has a copy that may replace its owner's.
pub(crate) fn is_copied(state: &str) -> bool {
    state.contains(&format!(" followers {MICRO_SHARDS} safe {MICRO_SHARDS}\n"))
}

fn folder() -> TempDir {
    tempfile::tempdir_in(if cfg!(target_os = "linux") { "/dev/shm" } else { "/tmp" }).unwrap()
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('T'))
}

impl Drop for Rack {
    fn drop(&mut self) {
        let Host::Up(process, _) = &mut self.host else { return };
        let _ = kill_process(Pid::from_raw(process.id().cast_signed()).unwrap(), Signal::TERM);
        let _ = process.wait();
    }
}

/// Repeats what fails because a node is late, or lost and not yet replaced.
pub(crate) fn insist<T>(ask: impl FnMut() -> std::io::Result<T>, is_so: impl Fn(&T) -> bool) -> T {
    within(PATIENCE, ask, is_so).expect("an answer")
}

/// As [`insist`]; `None` if it fails for so long.
pub(crate) fn within<T>(
    patience: Duration,
    mut ask: impl FnMut() -> std::io::Result<T>,
    is_so: impl Fn(&T) -> bool,
) -> Option<T> {
    let begin = Instant::now();
    loop {
        match ask() {
            Ok(answer) if is_so(&answer) => return Some(answer),
            _ if begin.elapsed() < patience => std::thread::sleep(Duration::from_millis(2)),
            _ => return None,
        }
    }
}

pub(crate) fn stat(client: &mut Client, name: &str) -> u64 {
    let stats = client.stats("rack").unwrap();
    stats.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| value.parse().unwrap())
}
