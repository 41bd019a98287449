//! The servers under measurement.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use minos_testkit::{Client, Server};

use super::plan::Plan;

/// Memory of each store, in MiB.
const MEMORY_MIB: u32 = 2048;
/// Threads of extstore that read its file: with one, its default, one read is under way at a time.
const EXT_THREADS: u32 = 8;
/// Longest time until a server has written what memory holds.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// A server under measurement, bound to the first processor.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    scheme: &'static str,
    is_minos: bool,
    server: Server,
}

impl Contestant {
    /// The value of `minos bench --target`.
    pub(crate) fn target(&self) -> String {
        self.target_in(self.scheme)
    }

    /// The same for another protocol that the server speaks at the same address.
    pub(crate) fn target_in(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.server.address())
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The value of `minos bench --target` for the native protocol at a port of its own.
    pub(crate) fn native_target(&mut self) -> anyhow::Result<String> {
        Ok(format!("minos://{}", self.server.native_address()?))
    }

    /// Asks it to end, so that everything is on its device, and waits.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let status = self.server.terminate(STOPPED_WITHIN)?.context("the server does not end")?;
        anyhow::ensure!(status.success(), "the server ended with {status}:\n{}", self.log());
        Ok(())
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        self.server.log()
    }

    /// The plan in force; none for a server other than Minos.
    pub(crate) fn plan(&self) -> anyhow::Result<Option<Plan>> {
        if !self.is_minos {
            return Ok(None);
        }
        Ok(Plan::of(&Client::connect(self.address())?.stats("minos")?))
    }

    /// Resident memory of the process, in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib =
            line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| anyhow::anyhow!("no VmRSS of process {}", self.pid()))
    }

    /// Items that it holds.
    pub(crate) fn items(&self) -> anyhow::Result<u64> {
        if self.scheme == "resp" {
            let port = self.address().port().to_string();
            let said = Command::new("redis-cli").args(["-p", &port, "dbsize"]).output()?.stdout;
            return Ok(String::from_utf8(said)?.trim().parse()?);
        }
        let stats = Client::connect(self.address())?.stats("")?;
        let items = stats.iter().find(|(name, _)| name == "curr_items").context("no curr_items")?;
        Ok(items.1.parse()?)
    }
}

/// Caches with their defaults and this much memory.
pub(crate) fn caches(program: &Path, memory_mib: u32) -> anyhow::Result<[Contestant; 3]> {
    let start = |name, scheme, command: &dyn Fn(u16) -> String| {
        let server = bound("0", |port, _| command(port).split(' ').map(str::to_owned).collect())?;
        anyhow::Ok(Contestant { name, scheme, is_minos: name == "Minos", server })
    };
    let program = program.display();
    Ok([
        start("Minos", "memcached", &|port| {
            format!("{program} serve --memcached 127.0.0.1:{port} --workers 1 --memory {memory_mib}m")
        })?,
        start("memcached", "memcached", &|port| {
            format!("memcached -l 127.0.0.1 -u root -p {port} -t 1 -m {memory_mib}")
        })?,
        start("Redis", "resp", &|port| {
            format!(
                "redis-server --bind 127.0.0.1 --port {port} --appendonly no --save --maxmemory {memory_mib}mb \
                 --maxmemory-policy allkeys-lru"
            )
        })?,
    ])
}

pub(crate) fn minos(
    name: &'static str,
    program: &Path,
    cpus: &str,
    options: &[&str],
) -> anyhow::Result<Contestant> {
    minos_at(name, program, cpus, |address| [&["--memcached", address], options].concat().join(" "))
}

/// Minos above the flash device `file`, of which it makes a table if it is new.
pub(crate) fn minos_above_flash(
    program: &Path,
    (cpus, memory_mib): (&str, u64),
    file: &str,
    options: &[&str],
) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, _| {
        let text = format!(
            "serve --memcached 127.0.0.1:{port} --memory {memory_mib}m --flash {file} --max-item-size 512k"
        );
        let options = options.iter().map(|&option| option.to_owned());
        let own = text.split(' ').map(str::to_owned).chain(options);
        std::iter::once(program.display().to_string()).chain(own).collect()
    })?;
    Ok(Contestant { name: "Minos", scheme: "memcached", is_minos: true, server })
}

/// memcached whose values leave memory for `file`, with its size behind a colon.
pub(crate) fn extstore(
    (cpus, memory_mib): (&str, u64),
    threads: u32,
    file: &str,
) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, _| {
        let text = format!(
            "memcached -l 127.0.0.1 -U 0 -u root -p {port} -t {threads} -m {memory_mib} -o \
             ext_path={file},ext_threads={EXT_THREADS}"
        );
        text.split(' ').map(str::to_owned).collect()
    })?;
    Ok(Contestant { name: "extstore", scheme: "memcached", is_minos: false, server })
}

/// Minos with `options`, whose native protocol has the same address as memcached's.
pub(crate) fn minos_native(
    name: &'static str,
    program: &Path,
    cpus: &str,
    options: &[&str],
) -> anyhow::Result<Contestant> {
    minos_at(name, program, cpus, |address| {
        [&["--memcached", address, "--native", address], options].concat().join(" ")
    })
}

/// Minos with `options`, measured by Redis' protocol.
pub(crate) fn minos_resp(program: &Path, cpus: &str, options: &[&str]) -> anyhow::Result<Contestant> {
    let contestant = minos_at("Minos, RESP", program, cpus, |address| {
        [&["--memcached", "127.0.0.1:0", "--resp", address], options].concat().join(" ")
    })?;
    // Its plan is asked for by memcached's protocol.
    Ok(Contestant { scheme: "resp", is_minos: false, ..contestant })
}

fn minos_at(
    name: &'static str,
    program: &Path,
    cpus: &str,
    options: impl Fn(&str) -> String,
) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, _| {
        let mut arguments = vec![program.display().to_string()];
        arguments.extend(serve_arguments(&options(&format!("127.0.0.1:{port}"))));
        arguments
    })?;
    Ok(Contestant { name, scheme: "memcached", is_minos: true, server })
}

/// The arguments of `minos`; `options` are separated by spaces.
fn serve_arguments(options: &str) -> Vec<String> {
    let text = format!("serve --memory {MEMORY_MIB}m --max-item-size 256m {options}");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Minos without TCP; stopped when dropped.
pub(crate) struct NativeOnly {
    child: Child,
    /// Its output, kept open while the server runs.
    said: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl NativeOnly {
    /// Starts Minos with `options`, and waits until it accepts datagrams.
    pub(crate) fn start(program: &Path, cpus: &str, options: &[&str]) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = format!("--memcached 127.0.0.1:0 --native {address} {}", options.join(" "));
        let mut command = Command::new("taskset");
        command.args(["-c", cpus]).arg(program).args(serve_arguments(&options));
        command.env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let said = BufReader::new(child.stdout.take().context("the server's output is not read")?);
        let mut server = Self { child, said, address };
        server.address = server.wait_for_address()?;
        Ok(server)
    }

    /// The address that it prints once it accepts datagrams.
    fn wait_for_address(&mut self) -> anyhow::Result<SocketAddr> {
        for line in self.said.by_ref().lines() {
            if let Some(address) = line?.strip_prefix("listening on native ") {
                return Ok(address.parse()?);
            }
        }
        bail!("the server ended with {} before it was ready", self.child.wait()?)
    }

    /// The value of `minos bench --target`.
    pub(crate) fn target(&self) -> String {
        format!("minos://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for NativeOnly {
    fn drop(&mut self) {
        // Both calls fail only for a process that has exited.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn memcached(cpus: &str, threads: u32) -> anyhow::Result<Contestant> {
    memcached_at(cpus, threads, |_| 0)
}

/// memcached with `threads` threads, which accepts datagrams at the same port.
pub(crate) fn memcached_with_datagrams(cpus: &str, threads: u32) -> anyhow::Result<Contestant> {
    memcached_at(cpus, threads, |port| port)
}

fn memcached_at(cpus: &str, threads: u32, udp_port: fn(u16) -> u16) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, _| {
        let udp_port = udp_port(port);
        let text = format!(
            "memcached -l 127.0.0.1 -U {udp_port} -u root -p {port} -t {threads} -m {MEMORY_MIB} -I 16m"
        );
        text.split(' ').map(str::to_owned).collect()
    })?;
    Ok(Contestant { name: "memcached", scheme: "memcached", is_minos: false, server })
}

/// Redis without persistence.
pub(crate) fn redis(cpus: &str) -> anyhow::Result<Contestant> {
    redis_at(cpus, |port| format!("--port {port}"))
}

/// The same with `threads` threads for its clients, which read requests, too.
pub(crate) fn redis_with_threads(cpus: &str, threads: u32) -> anyhow::Result<Contestant> {
    redis_at(cpus, |port| format!("--port {port} --io-threads {threads} --io-threads-do-reads yes"))
}

/// The same, over TLS alone.
pub(crate) fn redis_over_tls(cpus: &str, cert: &str, key: &str) -> anyhow::Result<Contestant> {
    redis_at(cpus, |port| {
        format!(
            "--port 0 --tls-port {port} --tls-cert-file {cert} --tls-key-file {key} --tls-ca-cert-file {cert} \
             --tls-auth-clients no"
        )
    })
}

fn redis_at(cpus: &str, options: impl Fn(u16) -> String) -> anyhow::Result<Contestant> {
    let server = bound(cpus, |port, folder| {
        let text = format!("redis-server --bind 127.0.0.1 {} --appendonly no --save", options(port));
        let mut arguments: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        arguments.extend([String::new(), "--dir".to_owned(), folder.display().to_string()]);
        arguments
    })?;
    Ok(Contestant { name: "Redis", scheme: "resp", is_minos: false, server })
}

/// A server bound to processors, whose command is made for a port and a folder of its own.
pub(crate) fn bound(cpus: &str, command: impl Fn(u16, &Path) -> Vec<String>) -> anyhow::Result<Server> {
    let server = Server::start(Path::new("taskset"), |port, folder| {
        let mut arguments = vec!["-c".to_owned(), cpus.to_owned()];
        arguments.extend(command(port, folder));
        arguments
    })?;
    Ok(server)
}
