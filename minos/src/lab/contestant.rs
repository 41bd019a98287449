//! Servers to compare: started on free loopback ports, stopped when dropped.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::MetadataExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use minos_workload::Target;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) enum Contestant {
    /// Minos by its datagram protocol.
    Native,
    SizeAware,
    KeyHash,
    Memcached,
    Redis,
}

pub(in crate::lab) struct Server {
    child: Child,
    pub(in crate::lab) target: Target,
}

/// Longest time until a server accepts connections.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// Ports tried before giving up: another process may take a port that was free before the server does.
const PORT_TRIES: usize = 5;

/// Memory for the items, in MiB: several times as much as each workload needs.
const MEMORY_MIB: &str = "512";

impl Contestant {
    pub(in crate::lab) fn name(self) -> &'static str {
        match self {
            Self::Native => "minos native",
            Self::SizeAware => "minos size-aware",
            Self::KeyHash => "minos keyhash",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Native => "minos",
            Self::Redis => "resp",
            Self::SizeAware | Self::KeyHash | Self::Memcached => "memcached",
        }
    }

    fn command(self, port: u16, workers: usize) -> Result<Command> {
        let (port, workers) = (port.to_string(), workers.to_string());
        Ok(match self {
            Self::Native => {
                let mut command = minos("size-aware", &port, &workers)?;
                command.args(["--native", &format!("127.0.0.1:{port}")]);
                command
            }
            Self::SizeAware => minos("size-aware", &port, &workers)?,
            Self::KeyHash => minos("keyhash", &port, &workers)?,
            Self::Memcached => {
                let mut command = Command::new("memcached");
                command.args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", &workers]);
                command.args(["-m", MEMORY_MIB, "-I", "16m"]).stderr(Stdio::null());
                if std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0) {
                    // memcached does not run as root unless told to.
                    command.args(["-u", "root"]);
                }
                command
            }
            Self::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]);
                command.stderr(Stdio::null());
                command
            }
        })
    }
}

fn minos(dispatch: &str, port: &str, workers: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this binary")?);
    command.args(["serve", "--memcached", &format!("127.0.0.1:{port}"), "--workers", workers]);
    command.args(["--memory", &format!("{MEMORY_MIB}m"), "--max-item-size", "16m", "--dispatch", dispatch]);
    command.env("RUST_LOG", "warn");
    Ok(command)
}

/// Starts a server with one worker fewer than there are processors; the last processor is the driver's. `None` if it
/// is not installed.
pub(in crate::lab) fn start(contestant: Contestant, cpus: &[usize]) -> Result<Option<Server>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let Some(mut server) = start_once(contestant, cpus)? else { return Ok(None) };
        match server.wait_until_ready(contestant) {
            Err(_) if tries < PORT_TRIES && server.child.try_wait()?.is_some() => {}
            result => return result.map(|()| Some(server)),
        }
    }
}

/// The same, but the server may not be ready, or end.
fn start_once(contestant: Contestant, cpus: &[usize]) -> Result<Option<Server>> {
    let workers = cpus.len().saturating_sub(1).max(1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    let port = listener.local_addr()?.port();
    drop(listener);
    let mut command = contestant.command(port, workers)?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // With two processors the server gets one and the driver the other; with more the system decides.
    let cpu = if let [first, _] = cpus { Some(*first) } else { None };
    let child = match spawn_on(cpu, command) {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(format!("starting {}", contestant.name())),
    };
    let target = format!("{}://127.0.0.1:{port}", contestant.scheme()).parse()?;
    Ok(Some(Server { child, target }))
}

/// Starts a process that may run on `cpu` only. A child inherits its parent thread's processors, so a
/// short-lived thread starts it.
fn spawn_on(cpu: Option<usize>, mut command: Command) -> io::Result<Child> {
    let starter = thread::spawn(move || {
        if let Some(cpu) = cpu {
            // Where pinning is not permitted the system chooses the processor.
            let _ = minos_net::pin_to(cpu);
        }
        command.spawn()
    });
    starter.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
}

impl Server {
    pub(in crate::lab) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_ready(&mut self, contestant: Contestant) -> Result<()> {
        let begun = Instant::now();
        // A connection would not tell it from another process that took the port first.
        while self.target.server_pid() != Some(self.pid()) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once: {status}", contestant.name());
            }
            if begun.elapsed() > START_TIME_MAX {
                bail!("{} does not accept connections", contestant.name());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_at_once_is_an_error() {
        let child = Command::new("false").spawn().unwrap();
        let target = "memcached://127.0.0.1:1".parse().unwrap();
        let mut server = Server { child, target };
        let error = server.wait_until_ready(Contestant::Memcached).unwrap_err();
        assert!(error.to_string().starts_with("memcached ended at once"), "{error}");
    }

    #[test]
    fn a_server_ends_when_it_is_dropped() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = format!("/proc/{}", child.id());
        drop(Server { child, target: "memcached://127.0.0.1:1".parse().unwrap() });
        assert!(!std::path::Path::new(&process).exists());
    }
}
