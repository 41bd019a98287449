//! Processor time of a GET within a rack: from the node's own memory, from another node's, or forwarded.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use minos_client::{Config, blocking};
use minos_testkit::Client;

use super::{
    Samples,
    driver::{self, Measurement, ON_THE_SECOND, Pace, WARMUP_MS},
    report::{Report, cell},
};

const WORKLOAD: &str = "xtask/workloads/get32.toml";
const PIPELINES: [&str; 2] = ["1", "16"];
const NODES: usize = 8;
/// Linux counts a process' times in hundredths of a second, on every machine.
const US_A_TICK: f64 = 10_000.0;
/// Nodes that start and end at the same time warn of each other.
const LOG: &str = "warn,minos_node::rack::attach=error";
/// Time in which nodes attach the memory of their unit, and show clients a directory.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The first port of each rack, apart from each other.
const PORTS: [u16; 3] = [14_300, 14_320, 14_340];

/// A rack under measurement, all of whose nodes are bound to the first processor until they are spread.
pub(super) struct Rack {
    name: &'static str,
    process: Child,
    /// What it prints: a line for each start of a node.
    said: Lines<BufReader<ChildStdout>>,
    pids: Vec<u32>,
    port: u16,
}

impl Rack {
    pub(super) fn up(
        program: &Path,
        name: &'static str,
        port: u16,
        size: (usize, usize),
    ) -> anyhow::Result<Self> {
        Self::up_with(program, name, port, size, &["--memory", "256m"])
    }

    /// Starts nodes, in units of a size, with more options of `minos rack up`.
    pub(super) fn up_with(
        program: &Path,
        name: &'static str,
        port: u16,
        (nodes, unit_size): (usize, usize),
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program).args(["rack", "up", "--ends-with-parent"]);
        command.args(["-n", &nodes.to_string(), "--unit-size", &unit_size.to_string()]);
        command.args(["--base-port", &port.to_string()]).args(options).env("RUST_LOG", LOG);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(process.stdout.take().context("its output is not read")?).lines();
        let mut rack = Self { name, process, said, pids: Vec::new(), port };
        for _ in 0..nodes {
            let pid = rack.started()?;
            rack.pids.push(pid);
        }
        Ok(rack)
    }

    /// Waits for the next start of a node. Returns its process.
    fn started(&mut self) -> anyhow::Result<u32> {
        let line = self.said.next().with_context(|| format!("{} has ended", self.name))??;
        let pid = line.rsplit(' ').next().and_then(|pid| pid.parse().ok());
        pid.with_context(|| format!("not a node: {line}"))
    }

    /// Waits until a node that was killed has been started again.
    pub(super) fn wait_for_restart(&mut self, node: usize) -> anyhow::Result<()> {
        self.pids[node] = self.started()?;
        Ok(())
    }

    fn target(&self) -> String {
        format!("memcached://{}", self.address())
    }

    /// Where a node is found by native or by memcached's clients. Native ports are two a node.
    pub(super) fn target_of(&self, scheme: &str, node: usize) -> String {
        let step = if scheme == "minos" { 2 } else { 1 };
        format!("{scheme}://127.0.0.1:{}", usize::from(self.port) + step * node)
    }

    /// What its coordinator replies to a line.
    pub(super) fn ask_coordinator(&self, line: &str) -> anyhow::Result<String> {
        let socket = format!("/dev/shm/minos-rack-{}/coordinator", self.process.id());
        let mut stream = UnixStream::connect(socket).context("the coordinator")?;
        stream.write_all(format!("minos-operator 1\n{line}\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The processes of the nodes.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// The address of the first node.
    pub(super) fn address(&self) -> SocketAddr {
        self.address_of(0)
    }

    /// The address of a node for memcached's clients.
    pub(super) fn address_of(&self, node: usize) -> SocketAddr {
        ([127, 0, 0, 1], self.port + node as u16).into()
    }

    /// The process of the first node.
    pub(super) fn pid(&self) -> u32 {
        self.pids[0]
    }

    /// So many keys of a node, which end in twelve digits.
    pub(super) fn keys_of(&self, node: usize, name: &str, count: usize) -> anyhow::Result<Vec<String>> {
        let (mut keys, owner) = (Vec::new(), format!("node {node}\n"));
        for key in (0..).map(|number| format!("{name}{number:012}")) {
            if keys.len() == count {
                break;
            }
            if self.ask_coordinator(&format!("where {key}"))?.ends_with(&owner) {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// A native client that knows the owners.
    pub(super) fn client(&self) -> anyhow::Result<blocking::Client> {
        let address = self.target_of("minos", 0);
        let mut client = blocking::Client::connect(&address, Config::new())?;
        let deadline = Instant::now() + READY_WITHIN;
        while client.rack().is_none() {
            ensure!(Instant::now() < deadline, "{address} shows no directory");
            // It is asked for along with operations.
            client.get("any")?;
        }
        Ok(client)
    }

    /// Waits until a node reads the memory of all others.
    pub(super) fn wait_until_attached(&self, node: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let mut client =
                Client::connect(self.address_of(node)).with_context(|| format!("node {node}"))?;
            let stats = client.stats("rack")?;
            if stats.iter().filter(|(_, value)| value == "attached").count() == self.pids.len() - 1 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "node {node} does not attach all others' memory");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads that a node has found in others' memory.
    pub(super) fn remote_hits(&self, node: usize) -> anyhow::Result<u64> {
        let stats = Client::connect(self.address_of(node))?.stats("rack")?;
        count_in(&stats, "remote_hits").context("no remote_hits")
    }

    /// Clock ticks of user and system time of all nodes.
    fn ticks(&self) -> anyhow::Result<u64> {
        self.pids.iter().map(|&pid| ticks(pid)).sum()
    }

    /// Microseconds of all nodes for a GET that the first one was asked.
    fn cost_us(&self, program: &Path, (millis, draw): (u32, u32), pipeline: &str) -> anyhow::Result<f64> {
        let measurement = Measurement {
            target: &self.target(),
            server_pid: self.pids[0],
            threads: ON_THE_SECOND,
            pace: Pace::Spin,
            drain: "100ms",
            warmup_ms: WARMUP_MS,
            millis,
            draw,
            arguments: &["--workload", WORKLOAD, "--rate", "max", "--pipeline", pipeline],
        };
        let before = (self.ticks()?, self.gets()?);
        let result = measurement.run(program)?;
        Pace::Spin.pause(millis);
        ensure!(result["errors"] == 0, "{}: {}", self.name, result["errors_by_kind"]);
        let after = (self.ticks()?, self.gets()?);
        Ok((after.0 - before.0) as f64 * US_A_TICK / (after.1 - before.1) as f64)
    }

    /// GETs that the first node has answered, wherever the keys were, and forwarded ones.
    fn gets(&self) -> anyhow::Result<u64> {
        let mut client = Client::connect(self.address())?;
        let own = count_in(&client.stats("")?, "cmd_get").context("no cmd_get")?;
        Ok(own + count_in(&client.stats("rack")?, "forwarded").unwrap_or(0))
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        // It stops its nodes and removes their memory.
        Command::new("kill").arg(self.process.id().to_string()).status().ok();
        self.process.wait().ok();
    }
}

/// Gives each process a processor of its own, of so many, in turn.
pub(super) fn spread(pids: &[u32], processors: usize) -> anyhow::Result<()> {
    for (at, pid) in pids.iter().enumerate() {
        let mut command = Command::new("taskset");
        command.args(["-a", "-c", "-p", &(at % processors).to_string(), &pid.to_string()]);
        let status = command.stdout(Stdio::null()).status()?;
        ensure!(status.success(), "{command:?} ended with {status}");
    }
    Ok(())
}

/// A counter among statistics.
pub(super) fn count_in(stats: &[(String, String)], name: &str) -> Option<u64> {
    stats.iter().find(|(other, _)| other == name).and_then(|(_, value)| value.parse().ok())
}

fn ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may have spaces.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    Ok(field(11).zip(field(12)).context("no times in stat")?).map(|(user, system)| user + system)
}

/// GETs of 32 bytes on 16 connections to one node, closed loop.
pub(super) fn measure(program: &Path, rounds: u32, millis: u32) -> anyhow::Result<Report> {
    let racks = [
        Rack::up(program, "a rack of one", PORTS[0], (1, 1))?,
        Rack::up(program, "eight, one unit", PORTS[1], (NODES, NODES))?,
        Rack::up(program, "eight, units of one", PORTS[2], (NODES, 1))?,
    ];
    for rack in &racks {
        driver::load(program, &rack.target(), &["--workload", WORKLOAD])?;
    }
    let mut report = Report::new(
        "Processor time of a GET in a rack",
        &format!(
            "Measured. Microseconds of user and system time of all nodes for a GET of 32 bytes that one of them is asked, \
             16 connections, closed loop, all nodes on one processor; median (smallest..largest) of {rounds} interleaved \
             rounds of {millis} ms. Of eight nodes, seven eighths of the keys belong to others: they are read in their \
             memory within a unit, and forwarded between units. The ratio of a key of another node to one of its own \
             follows from both. `cargo xtask measure rack`"
        ),
        &["rack", "pipeline", "us a GET", "ratio", "a key of another node"],
    );
    for pipeline in PIPELINES {
        let mut samples = vec![Samples::default(); racks.len()];
        for round in 0..rounds {
            for (rack, samples) in racks.iter().zip(&mut samples) {
                samples.push(rack.cost_us(program, (millis, round), pipeline)?);
            }
        }
        let own = samples[0].median();
        for (rack, samples) in racks.iter().zip(&samples) {
            let ratio = samples.median() / own;
            let others = (NODES as f64 * ratio - 1.0) / (NODES - 1) as f64;
            let others = if rack.pids.len() == 1 { "-".to_owned() } else { format!("{others:.2}") };
            let us = cell(samples, 2);
            report.rows.push(vec![
                rack.name.to_owned(),
                pipeline.to_owned(),
                us,
                format!("{ratio:.2}"),
                others,
            ]);
        }
    }
    Ok(report)
}
