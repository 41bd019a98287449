//! Wake-ups and processor time of servers that nobody asks anything.

use std::{any::Any, fs, net::SocketAddr, path::Path, process, thread, time::Duration};

use anyhow::Context as _;
use minos_testkit::Client;

use super::{
    contestants::{self, Contestant},
    rack::Rack,
    report::Report,
};

/// The first port of the rack, apart from those of the figure `rack`.
const PORT: u16 = 14_360;
const NODES: usize = 2;
/// Clients of each server that stay connected and silent.
const CLIENTS: usize = 16;
const ITEMS: usize = 1000;
const VALUE: [u8; 100] = [b'v'; 100];
/// Time until a server rests: workers first look for expired items once more.
const SETTLE: Duration = Duration::from_secs(20);

/// A server, and what keeps it running.
struct Subject {
    name: &'static str,
    pid: u32,
    _clients: Vec<Client>,
    /// Ends with a drop.
    _runs: Box<dyn Any>,
}

/// What the threads of a process have counted.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    wake_ups: u64,
    pub(super) cpu_ns: u64,
}

/// All servers rest side by side for `seconds`.
pub(super) fn measure(program: &Path, seconds: u32, disk: &Path) -> anyhow::Result<Report> {
    let folder = disk.join(format!("idle-{}", process::id()));
    fs::create_dir_all(&folder)?;
    let measured = measure_in(program, seconds, &folder);
    fs::remove_dir_all(&folder)?;
    let mut report = Report::new(
        "An idle server",
        &format!(
            "Measured over {seconds} s, after {} s of silence. Wake-ups (voluntary context switches) and processor time \
             of all threads. Two workers; {CLIENTS} clients have stored {ITEMS} items and stay connected, but for the \
             first row. `cargo xtask measure idle`",
            SETTLE.as_secs()
        ),
        &["server", "wake-ups a second", "CPU us a second"],
    );
    report.rows = measured?;
    Ok(report)
}

fn measure_in(program: &Path, seconds: u32, folder: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let subjects = subjects(program, folder)?;
    thread::sleep(SETTLE);
    let counts =
        || subjects.iter().map(|subject| Counts::of(subject.pid)).collect::<anyhow::Result<Vec<_>>>();
    let before = counts()?;
    thread::sleep(Duration::from_secs(seconds.into()));
    let rows = subjects.iter().zip(before).zip(counts()?).map(|((subject, before), after)| {
        let a_second = |counted: u64| counted as f64 / f64::from(seconds);
        let wake_ups = a_second(after.wake_ups - before.wake_ups);
        let cpu_us = a_second(after.cpu_ns - before.cpu_ns) / 1000.0;
        vec![subject.name.to_owned(), format!("{wake_ups:.1}"), format!("{cpu_us:.0}")]
    });
    Ok(rows.collect())
}

fn subjects(program: &Path, folder: &Path) -> anyhow::Result<Vec<Subject>> {
    const WORKERS: [&str; 2] = ["--workers", "2"];
    let plain = |name| contestants::minos(name, program, "0,1", &WORKERS);
    let above_flash = |file: &str, options: &[&str]| {
        let file = format!("{}:256m", folder.join(file).display());
        contestants::minos_above_flash(program, ("0,1", 128), &file, &[&WORKERS, options].concat())
    };
    let durable = ["--engine", "store", "--durability", "interval"];
    let rack = Rack::up(program, "rack", PORT, (NODES, NODES))?;
    let node = (rack.address(), rack.pid());
    Ok(vec![
        Subject::alone("without a client", plain("plain")?, 0)?,
        Subject::alone("plain", plain("plain")?, CLIENTS)?,
        Subject::alone(
            "`--native`",
            contestants::minos_native("native", program, "0,1", &WORKERS)?,
            CLIENTS,
        )?,
        Subject::alone("`--flash`, a cache", above_flash("cache", &[])?, CLIENTS)?,
        Subject::alone("the same, `--scrub-rate 0`", above_flash("still", &["--scrub-rate", "0"])?, CLIENTS)?,
        Subject::alone(
            "`--flash`, a store, `--durability interval`",
            above_flash("store", &durable)?,
            CLIENTS,
        )?,
        Subject::new("a node of a rack", node, Box::new(rack), CLIENTS)?,
    ])
}

impl Subject {
    fn alone(name: &'static str, server: Contestant, clients: usize) -> anyhow::Result<Self> {
        let place = (server.address(), server.pid());
        Self::new(name, place, Box::new(server), clients)
    }

    fn new(
        name: &'static str,
        (address, pid): (SocketAddr, u32),
        runs: Box<dyn Any>,
        clients: usize,
    ) -> anyhow::Result<Self> {
        let mut connected = (0..clients).map(|_| Client::connect(address)).collect::<Result<Vec<_>, _>>()?;
        for (number, client) in (0..ITEMS).zip((0..clients).cycle()) {
            connected[client].set(&format!("key-{number}"), &VALUE)?;
        }
        Ok(Self { name, pid, _clients: connected, _runs: runs })
    }
}

impl Counts {
    /// Those of the threads that process `pid` has now.
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        let mut counts = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let folder = thread?.path();
            let status = fs::read_to_string(folder.join("status"))?;
            let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let wake_ups: Option<u64> = switches.and_then(|text| text.trim().parse().ok());
            // Nanoseconds on a processor come first.
            let times = fs::read_to_string(folder.join("schedstat"))?;
            let cpu_ns: Option<u64> = times.split(' ').next().and_then(|text| text.parse().ok());
            let (wake_ups, cpu_ns) = wake_ups.zip(cpu_ns).context("no counts of a thread")?;
            counts = Self { wake_ups: counts.wake_ups + wake_ups, cpu_ns: counts.cpu_ns + cpu_ns };
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        process::{Command, Stdio},
    };

    use super::*;

    /// A process of its own: threads of other tests end at any time.
    #[test]
    fn sleeps_and_work_of_a_process_are_counted() {
        const SCRIPT: &str =
            "echo; read x; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.001; done; echo; read x";
        let mut shell = Command::new("sh");
        let mut shell =
            shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        from.read_exact(&mut [0]).unwrap();
        let before = Counts::of(shell.id()).unwrap();
        to.write_all(b"\n").unwrap();
        from.read_exact(&mut [0]).unwrap();
        let after = Counts::of(shell.id()).unwrap();
        drop(to);
        shell.wait().unwrap();
        assert!(after.wake_ups >= before.wake_ups + 10 && after.cpu_ns > before.cpu_ns);
    }
}
