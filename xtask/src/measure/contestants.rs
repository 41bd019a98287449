//! The servers under measurement.

use std::path::Path;

use minos_testkit::Server;

/// Memory of each store, in MiB.
const MEMORY_MIB: u32 = 2048;

/// A server under measurement, bound to the first processor.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    scheme: &'static str,
    server: Server,
}

impl Contestant {
    /// What `minos bench --target` takes.
    pub(crate) fn target(&self) -> String {
        format!("{}://{}", self.scheme, self.server.address())
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Memory that the process has in the machine, in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib =
            line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| anyhow::anyhow!("no VmRSS of process {}", self.pid()))
    }
}

/// Minos with one worker and `options`.
pub(crate) fn minos(
    name: &'static str,
    program: &Path,
    cpus: &str,
    options: &[&str],
) -> anyhow::Result<Contestant> {
    let program = program.display().to_string();
    let memory = format!("{MEMORY_MIB}m");
    let server = bound(cpus, |port, _| {
        let address = format!("127.0.0.1:{port}");
        let fixed =
            [&program, "serve", "--memcached", &address, "--memory", &memory, "--max-item-size", "256m"];
        [&fixed, options].concat().iter().map(|text| (*text).to_owned()).collect()
    })?;
    Ok(Contestant { name, scheme: "memcached", server })
}

/// memcached with `threads` threads.
pub(crate) fn memcached(cpus: &str, threads: u32) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, _| {
        let text =
            format!("memcached -l 127.0.0.1 -U 0 -u root -p {port} -t {threads} -m {MEMORY_MIB} -I 16m");
        text.split(' ').map(str::to_owned).collect()
    })?;
    Ok(Contestant { name: "memcached", scheme: "memcached", server })
}

/// Redis without persistence.
pub(crate) fn redis(cpus: &str) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, folder| {
        let text = format!("redis-server --bind 127.0.0.1 --port {port} --appendonly no --save");
        let mut arguments: Vec<_> = text.split(' ').map(str::to_owned).collect();
        arguments.extend([String::new(), "--dir".to_owned(), folder.display().to_string()]);
        arguments
    })?;
    Ok(Contestant { name: "Redis", scheme: "resp", server })
}

fn bound(cpus: &str, command: impl Fn(u16, &Path) -> Vec<String>) -> anyhow::Result<Server> {
    let server = Server::start(Path::new("taskset"), |port, folder| {
        let mut arguments = vec!["-c".to_owned(), cpus.to_owned()];
        arguments.extend(command(port, folder));
        arguments
    })?;
    Ok(server)
}
