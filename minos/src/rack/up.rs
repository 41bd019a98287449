//! `minos rack up`: the nodes of a rack as processes of this machine.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::{
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use minos_base::SizeText;
use minos_net::Address;
use minos_node::{
    config::NODES_MAX,
    coordinator::{self, COPIES_MAX, CoordinatorConfig, CoordinatorError, Keep, Loss, ReadPolicy},
    settings::parse_time,
};

use signal_hook::{
    consts::{SIGHUP, TERM_SIGNALS},
    flag,
};

use super::{
    coordinate::{MOVE_TIME, MOVES, check_wishes},
    end_with_parent,
};
use crate::serve::random_seed;

/// Name of such a rack, and of its coordinator's socket.
const NAME: &str = "local";
const COORDINATOR: &str = "coordinator";
/// Its directory.
const DIRECTORY: &str = "directory";
/// The seed of its key hash.
const SEED: &str = "hash-seed";
/// What `minos serve` takes by default.
const MICRO_SHARDS: u32 = 4096;
const READS_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that a node has to start.
const START_MAX: Duration = Duration::from_secs(30);
/// Time after the end of a node until it is started again, and after it could not be.
const REST: Duration = Duration::from_millis(300);
const LONG_REST: Duration = Duration::from_secs(3);
/// Time that the nodes have to stop.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Start a rack on this machine, its nodes and its coordinator, and run until a signal comes. A node that ends is started
/// again, with the items that it had.
#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Nodes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    nodes: usize,
    /// Nodes of a unit, which read each other's memory [default: all]
    #[arg(long, value_name = "N")]
    unit_size: Option<usize>,
    /// Port of node 0 for memcached clients, on 127.0.0.1; node I is at the I-th behind it
    #[arg(long, value_name = "P", default_value_t = 11311)]
    base_port: u16,
    /// Port of node 0 for Redis' clients, on 127.0.0.1; node I is at the I-th behind it
    #[arg(long, value_name = "P")]
    resp: Option<u16>,
    /// Serve native clients, too, from this port on [default port: that of --base-port]; each node takes two ports for
    /// each worker
    #[arg(long, value_name = "P", num_args = 0..=1)]
    native: Option<Option<u16>>,
    /// Memory of each node
    #[arg(long, value_name = "SIZE", default_value = "64m")]
    memory: SizeText,
    /// Nodes that have micro-shards at first; the others can be added. Of a rack that is in --dir: nodes that it lacks run, too
    /// [default: all]
    #[arg(long, value_name = "N")]
    members: Option<usize>,
    /// Copies of each micro-shard, as for `minos rack coordinate`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(COPIES_MAX)))]
    copies: u32,
    /// Time for which a node answers without a word of the coordinator, as for `minos rack coordinate`
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    rack_lease: Duration,
    /// Flash below each node's memory, as for `minos serve`: DIR/node-I.flash, or the path with I in place of each {}. The
    /// nodes are stores then (--engine store)
    #[arg(long, value_name = "DIR|PATTERN[:SIZE]", requires = "dir")]
    flash: Option<String>,
    /// Relieve the busiest node of hot micro-shards so often, as for `minos rack coordinate`
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    relieve: Option<Duration>,
    /// Worker threads of each node
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Folder for sockets and memory [default: a new one on tmpfs, removed at the end]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Socket of a `minos keeper` that keeps the nodes' memory, instead of files in --dir
    #[arg(long, value_name = "PATH", requires = "dir")]
    keeper: Option<PathBuf>,
    /// End when the process ends that has started this one
    #[arg(long, hide = true)]
    ends_with_parent: bool,
    /// More options of `minos serve` for each node
    #[arg(last = true)]
    options: Vec<String>,
}

impl UpArgs {
    /// Where native clients find a node; `None` if they are not served.
    fn native(&self, node: usize) -> Option<SocketAddr> {
        let port = usize::from(self.native?.unwrap_or(self.base_port)) + 2 * self.workers * node;
        // In range, as `check_native` has found.
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16)))
    }

    /// Nodes of a unit, if each copy can lie in a unit of its own.
    fn checked_unit_size(&self) -> anyhow::Result<usize> {
        let unit_size = self.unit_size.unwrap_or(self.nodes);
        ensure!(unit_size > 0, "--unit-size: 0 is not allowed");
        let (copies, units) = (self.copies as usize, self.nodes.div_ceil(unit_size));
        ensure!(
            copies <= units,
            "--copies {copies}: each is in another unit, and there are {units}; --unit-size makes more"
        );
        Ok(unit_size)
    }

    /// Looks whether the nodes are those that the rack had last time in this folder.
    fn check_kept(&self, folder: &Path, unit_size: usize) -> anyhow::Result<()> {
        let Some(kept) = coordinator::kept_nodes(&folder.join(DIRECTORY))? else { return Ok(()) };
        let (nodes, folder) = (self.nodes, folder.display());
        for (node, unit) in &kept {
            let as_usize = |number: u32| number as usize;
            ensure!(
                as_usize(*node) < nodes,
                "-n {nodes}: the rack in {folder} has a node {node}; start it with -n {} at least, and `minos rack drain` \
                 and `remove` the node first",
                node + 1
            );
            ensure!(
                as_usize(*unit) == as_usize(*node) / unit_size,
                "--unit-size {unit_size}: node {node} of the rack in {folder} is in unit {unit}; start it with the \
                 --unit-size of last time, or a new rack in another --dir"
            );
        }
        let new = (0..nodes).find(|&node| kept.iter().all(|(known, _)| *known as usize != node));
        if let (Some(node), None) = (new, self.members) {
            bail!(
                "-n {nodes}: the rack in {folder} has no node {node}; start it with --members {} too, and then \
                 `minos rack add {node} {} --coordinator {folder}/{COORDINATOR}`",
                kept.len(),
                node / unit_size
            );
        }
        Ok(())
    }

    /// Looks whether all nodes' ports for native clients exist.
    fn check_native(&self) -> anyhow::Result<()> {
        let Some(native) = self.native else { return Ok(()) };
        let first = native.unwrap_or(self.base_port);
        let ports = self.nodes.saturating_mul(self.workers).saturating_mul(2);
        ensure!(
            first > 0 && ports <= usize::from(u16::MAX - first) + 1,
            "--native {first}: no port is left for the last node"
        );
        Ok(())
    }
}

/// The rack that is up.
struct Up<'a> {
    args: &'a UpArgs,
    /// Where this program was when it started: a newer one may be there when a node is started again.
    program: PathBuf,
    folder: Folder,
    peers: String,
    nodes: Vec<Node>,
}

/// A node's process.
struct Node {
    process: Child,
    /// When it is to be started again, if it has ended.
    due: Option<Instant>,
}

/// A folder, removed at the end if it was made for this rack.
struct Folder {
    path: PathBuf,
    is_own: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_own {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Runs a rack until a signal comes.
pub(super) fn run(args: &UpArgs) -> anyhow::Result<()> {
    if args.ends_with_parent {
        end_with_parent(rustix::process::Signal::TERM)?;
    }
    ensure!((1..=NODES_MAX).contains(&args.nodes), "-n {}: expected 1 to {NODES_MAX}", args.nodes);
    ensure!(
        usize::from(args.base_port.max(args.resp.unwrap_or(0))) + args.nodes <= usize::from(u16::MAX),
        "--base-port {}: no port is left for the last node",
        args.base_port
    );
    args.check_native()?;
    check_wishes(args.members, args.nodes, args.relieve)?;
    let unit_size = args.checked_unit_size()?;
    let stop = std::sync::Arc::default();
    // A terminal that is closed sends SIGHUP.
    for signal in TERM_SIGNALS.iter().chain(&[SIGHUP]) {
        flag::register(*signal, std::sync::Arc::clone(&stop))?;
    }
    let folder = folder(args)?;
    args.check_kept(&folder.path, unit_size)?;
    let peer = |node: usize| {
        let path = folder.path.join(format!("node-{node}"));
        let native = args.native(node).map(|address| format!("={address}")).unwrap_or_default();
        format!("{}@{}{native}", node / unit_size, path.display())
    };
    let peers = (0..args.nodes).map(peer).collect::<Vec<_>>().join(",");
    keep_seed(&folder.path)?;
    let coordinator = coordinate(args, &folder.path, unit_size)?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut up = Up { args, program, folder, peers, nodes: Vec::new() };
    let result = up.run(&stop, coordinator);
    up.stop();
    result
}

/// Starts the coordinator, in this process. It ends with it.
fn coordinate(
    args: &UpArgs,
    folder: &Path,
    unit_size: usize,
) -> anyhow::Result<JoinHandle<CoordinatorError>> {
    let node = |node: usize| {
        let address = args.native(node).map(|address| address.to_string()).unwrap_or_default();
        ((node / unit_size) as u32, address)
    };
    let config = CoordinatorConfig {
        rack: NAME.to_owned(),
        listen: Address::Unix(folder.join(COORDINATOR)),
        secrets: Vec::new(),
        keep: Keep::File(folder.join(DIRECTORY)),
        nodes: (0..args.members.unwrap_or(args.nodes)).map(node).collect(),
        micro_shards: MICRO_SHARDS,
        lease: args.rack_lease,
        // A node that ends is started again, with its items.
        loss: Loss::Never,
        moves_max: MOVES,
        copies: args.copies,
        relieve: args.relieve,
        move_time_max: MOVE_TIME,
        reads: ReadPolicy::default(),
        reads_interval: READS_INTERVAL,
    };
    let listen = config.listen.clone();
    let run = move || match coordinator::run(config, || eprintln!("coordinator {listen}"), || false) {
        Ok(()) => unreachable!("it is never over"),
        Err(error) => error,
    };
    Ok(thread::Builder::new().name("minos-coordinator".to_owned()).spawn(run)?)
}

fn folder(args: &UpArgs) -> anyhow::Result<Folder> {
    let (path, is_own) = match &args.dir {
        Some(dir) => (dir.clone(), false),
        None => {
            let tmpfs = Path::new("/dev/shm");
            let parent = if tmpfs.is_dir() { tmpfs.to_owned() } else { std::env::temp_dir() };
            (parent.join(format!("minos-rack-{}", std::process::id())), true)
        }
    };
    fs::DirBuilder::new()
        .recursive(!is_own)
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    let path = path.canonicalize()?;
    Ok(Folder { path, is_own })
}

/// Keeps the seed of the key hash, which all nodes share, also when the rack is started again.
fn keep_seed(folder: &Path) -> anyhow::Result<()> {
    let (path, new) = (folder.join(SEED), folder.join("hash-seed.new"));
    let seed: u64 = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().with_context(|| format!("{} holds no number", path.display()))?,
        Err(_) => random_seed(),
    };
    let write = || {
        // Who knows the seed finds keys that collide. Earlier versions let others read it.
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        write!(file, "{seed}")?;
        fs::rename(&new, &path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

impl Up<'_> {
    fn run(
        &mut self,
        stop: &std::sync::atomic::AtomicBool,
        coordinator: JoinHandle<CoordinatorError>,
    ) -> anyhow::Result<()> {
        let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
        for node in 0..self.args.nodes {
            let process = self.start(node)?;
            self.nodes.push(Node { process, due: None });
        }
        while !is_over() {
            thread::sleep(LOOK_EVERY);
            if coordinator.is_finished() {
                let Ok(error) = coordinator.join() else { bail!("the coordinator has panicked") };
                return Err(error).context("the coordinator has ended");
            }
            for node in 0..self.nodes.len() {
                if !is_over() {
                    self.look_after(node);
                }
            }
        }
        Ok(())
    }

    /// Starts a node again some time after its end. The others go on where that fails: their items may be nowhere else.
    fn look_after(&mut self, node: usize) {
        let now = Instant::now();
        match self.nodes[node].due {
            None => {
                if let Ok(Some(status)) = self.nodes[node].process.try_wait() {
                    eprintln!("node {node} ended ({status}); it is started again");
                    self.nodes[node].due = Some(now + REST);
                }
            }
            Some(due) if due <= now => match self.start(node) {
                Ok(process) => self.nodes[node] = Node { process, due: None },
                Err(error) => {
                    eprintln!("{error:#}; it is tried again");
                    self.nodes[node].due = Some(Instant::now() + LONG_REST);
                }
            },
            Some(_) => {}
        }
    }

    /// Starts a node, and prints its address once it can be reached.
    fn start(&self, node: usize) -> anyhow::Result<Child> {
        let UpArgs { base_port, memory, workers, options, .. } = self.args;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, base_port + node as u16));
        let folder = &self.folder.path;
        let mut command = Command::new(&self.program);
        command.args(["serve", "--rack", NAME, "--node", &node.to_string(), "--peers", &self.peers]);
        command.args(["--memcached", &address.to_string()]);
        let mut seed = OsString::from("--hash-seed=file:");
        seed.push(folder.join(SEED));
        command.arg(seed);
        command.args(["--memory", &memory.to_string(), "--workers", &workers.to_string()]);
        let native = self.args.native(node);
        command.args(native.map(|address| format!("--native={address}")));
        let resp = self.args.resp.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port + node as u16)));
        command.args(resp.map(|address| format!("--resp={address}")));
        command.arg("--coordinator").arg(folder.join(COORDINATOR));
        command.arg("--rack-lease").arg(format!("{}ms", self.args.rack_lease.as_millis()));
        command.arg("--region").arg(self.region(node));
        if let Some(flash) = &self.args.flash {
            command.args(["--engine", "store", "--flash", &flash_of(flash, node)]);
        }
        command.args(["--pin", "off", "--poll", "sleep", "--ends-with-parent"]).args(options);
        // A terminal's Ctrl-C is for this process, which stops the nodes: they would take two signals for haste.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().context("cannot start a node")?;
        let Err(error) = wait_for_address(&mut process) else {
            let mut out = std::io::stdout().lock();
            write!(out, "node {node} memcached {address} ")?;
            native.map_or(Ok(()), |address| write!(out, "native {address} "))?;
            resp.map_or(Ok(()), |address| write!(out, "resp {address} "))?;
            writeln!(out, "pid {}", process.id())?;
            out.flush()?;
            return Ok(process);
        };
        let _ = process.kill();
        let _ = process.wait();
        Err(error.context(format!("node {node} does not start")))
    }

    /// Where a node's memory is kept.
    fn region(&self, node: usize) -> OsString {
        match &self.args.keeper {
            None => self.folder.path.join(format!("node-{node}.region")).into(),
            Some(keeper) => {
                let mut place = OsString::from("keeper:");
                place.push(keeper);
                place.push(format!("=node-{node}"));
                place
            }
        }
    }

    fn stop(&mut self) {
        let mut running: Vec<&mut Child> = self.nodes.iter_mut().map(|node| &mut node.process).collect();
        running.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
        for process in &running {
            terminate(process.id());
        }
        let deadline = Instant::now() + STOP_MAX;
        while !running.is_empty() && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
            running.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
        }
        for process in running {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Where a node's flash is, with its size.
fn flash_of(flash: &str, node: usize) -> String {
    if flash.contains("{}") {
        return flash.replace("{}", &node.to_string());
    }
    let is_size = |size: &&str| size.parse::<SizeText>().is_ok();
    match flash.rsplit_once(':').filter(|(_, size)| is_size(size)) {
        Some((folder, size)) => format!("{folder}/node-{node}.flash:{size}"),
        None => format!("{flash}/node-{node}.flash"),
    }
}

/// Asks a process to stop.
fn terminate(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Waits until a node has printed its first address. What it prints later nobody reads: it prints nothing more.
fn wait_for_address(process: &mut Child) -> anyhow::Result<()> {
    let out = process.stdout.take().context("no output")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(out).lines();
        let first = lines.next();
        let _ = sender.send(first);
        // Its pipe must not be closed as long as it may write.
        lines.for_each(drop);
    });
    match receiver.recv_timeout(START_MAX) {
        Ok(Some(Ok(line))) if line.starts_with("listening on memcached") => Ok(()),
        Ok(_) => bail!("it has ended; its messages say why"),
        Err(_) => bail!("it cannot be reached after {} s", START_MAX.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_flash_of_its_own() {
        assert_eq!(flash_of("/a:4g", 2), "/a/node-2.flash:4g");
        assert_eq!(flash_of("/a:b", 2), "/a:b/node-2.flash");
        assert_eq!(flash_of("/dev/nvme{}n1", 2), "/dev/nvme2n1");
        assert_eq!(flash_of("/a{}/f{}:1g", 0), "/a0/f0:1g");
    }
}
