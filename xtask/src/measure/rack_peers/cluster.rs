//! Redis Cluster and Valkey Cluster: eight masters without replicas.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use minos_testkit::{Client, Server};

use super::{MEMORY_MIB, NODES, keys::VALUE_BYTES};
use crate::measure::contestants;

/// Slots of a cluster, of which each node gets an equal range.
const SLOTS: usize = 1 << 14;
/// Time in which the nodes meet.
const READY_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STARTS_MAX: u32 = 5;

/// The servers, bound to the first processor.
pub(super) struct Cluster {
    servers: Vec<Server>,
}

impl Cluster {
    /// Starts the servers, gives each its slots and lets them meet.
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let servers = (0..NODES).map(|_| start(program)).collect::<anyhow::Result<Vec<_>>>()?;
        let cluster = Self { servers };
        for node in 0..NODES {
            let slots = SLOTS / NODES;
            let (first, last) = (node * slots, (node + 1) * slots - 1);
            let mut client = cluster.client(node)?;
            order(&mut client, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            order(&mut client, &format!("CLUSTER SET-CONFIG-EPOCH {}", node + 1))?;
        }
        let mut first = cluster.client(0)?;
        for server in &cluster.servers[1..] {
            order(&mut first, &format!("CLUSTER MEET 127.0.0.1 {}", server.address().port()))?;
        }
        (0..NODES).try_for_each(|node| cluster.wait_until_ready(node))?;
        Ok(cluster)
    }

    fn client(&self, node: usize) -> anyhow::Result<Client> {
        Ok(Client::connect(self.servers[node].address())?)
    }

    fn wait_until_ready(&self, node: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut client = self.client(node)?;
        loop {
            let info = ask_text(&mut client, "CLUSTER INFO")?;
            if info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{NODES}")) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the nodes of the cluster do not meet: {info}");
            thread::sleep(LOOK_EVERY);
        }
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }

    pub(super) fn target(&self, node: usize) -> String {
        format!("resp://{}", self.servers[node].address())
    }

    /// GETs that each node has executed.
    pub(super) fn gets(&self) -> anyhow::Result<Vec<u64>> {
        let gets = |node| {
            let stats = ask_text(&mut self.client(node)?, "INFO commandstats")?;
            let calls = stats.split_once("cmdstat_get:calls=").map_or("0", |(_, calls)| calls);
            let digits = calls.split(|at: char| !at.is_ascii_digit()).next().unwrap_or_default();
            digits.parse().with_context(|| format!("no count of GETs: {stats}"))
        };
        (0..NODES).map(gets).collect()
    }

    /// Sends a GET of each key to the node of its slot.
    pub(super) fn read<'k>(&self, keys: impl Iterator<Item = &'k str>) -> anyhow::Result<()> {
        let mut clients = (0..NODES).map(|node| self.client(node)).collect::<anyhow::Result<Vec<_>>>()?;
        for key in keys {
            let value = ask(&mut clients[owner(key)], &format!("GET {key}"))?;
            ensure!(value.len() == VALUE_BYTES, "{key}: {}", String::from_utf8_lossy(&value));
        }
        Ok(())
    }
}

/// Starts a server. It accepts connections before it has the port for other nodes, and ends if somebody else has that.
fn start(program: &Path) -> anyhow::Result<Server> {
    for _ in 1..STARTS_MAX {
        let server = start_once(program)?;
        let answer = Client::connect(server.address()).map_err(Into::into);
        match answer.and_then(|mut client| ask_text(&mut client, "PING")) {
            Ok(_) => return Ok(server),
            Err(error) => eprintln!("once more, as a server did not start ({error:#}):\n{}", server.log()),
        }
    }
    start_once(program)
}

fn start_once(program: &Path) -> anyhow::Result<Server> {
    contestants::bound("0", |port, folder| {
        let text = format!(
            "{} --bind 127.0.0.1 --port {port} --cluster-enabled yes --appendonly no --maxmemory {MEMORY_MIB}mb \
             --maxmemory-policy allkeys-lru --dir {} --save",
            program.display(),
            folder.display()
        );
        text.split(' ').map(str::to_owned).chain([String::new()]).collect()
    })
}

/// The reply to a command: a line, or what is behind its length.
fn ask(client: &mut Client, command: &str) -> anyhow::Result<Vec<u8>> {
    client.send(format!("{command}\r\n"))?;
    let line = client.line()?;
    let Some(length) = line.strip_prefix('$') else { return Ok(line.into_bytes()) };
    let length: usize = length.parse().with_context(|| format!("{command}: nothing there"))?;
    let mut bytes = client.exact(length + 2)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn ask_text(client: &mut Client, command: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(ask(client, command)?)?)
}

fn order(client: &mut Client, command: &str) -> anyhow::Result<()> {
    let said = ask_text(client, command)?;
    ensure!(said == "+OK", "{command}: {said}");
    Ok(())
}

/// The node of a key's slot. No key has a hash tag.
pub(in crate::measure) fn owner(key: &str) -> usize {
    let slot = usize::from(crc16(key.as_bytes())) % SLOTS;
    slot / (SLOTS / NODES)
}

/// CRC-16/XMODEM, which the cluster's specification names.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    let step = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ POLYNOMIAL };
    bytes.iter().fold(0, |crc, &byte| (0..8).fold(crc ^ u16::from(byte) << 8, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // By `CLUSTER KEYSLOT foo`: 12182.
        assert_eq!(usize::from(crc16(b"foo")) % SLOTS, 12_182);
        assert_eq!(owner("foo"), 5);
    }
}
