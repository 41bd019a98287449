//! Instructions of a GET of a node's own key, counted by callgrind: the server alone, and as a node of a rack.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use minos_testkit::{Client, Server};

use super::{
    rack::{Rack, count_in},
    report::Report,
};
use crate::command;
use crate::ways::{self, Counts, END_WITHIN, SERVED};

const PORT: u16 = 14_540;
/// GETs sent at a time, each of another key.
const BURSTS: [usize; 2] = [1, 32];
const VALUE: [u8; 32] = [b'v'; 32];
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bursts of a run, and the pause before each, in which a worker under callgrind falls asleep; and that of another run, by
/// which the work that follows the clock is told from that of bursts.
const REQUESTS: u32 = 300;
const PAUSES: [Duration; 2] = [Duration::from_millis(12), Duration::from_millis(36)];
/// Time until a node has taken over all that a coordinator gives it, under callgrind.
const SETTLE: Duration = Duration::from_secs(4);
/// The goal for the tax.
const TAX_MAX_PERCENT: f64 = 3.0;

/// How the server is run. A rack has two nodes of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Static,
    Coordinated,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Alone, "alone"),
    (Way::Static, "node of a rack"),
    (Way::Coordinated, "node of a rack with a coordinator"),
];

/// A process that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only for a process that has exited.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The other processes of a rack.
struct Rest {
    _coordinator: Option<Process>,
    _node: Option<Server>,
}

/// Counts all ways.
pub(super) fn measure(program: &Path) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Instructions of a GET within a rack",
        &format!(
            "Counted by callgrind: instructions of the worker that every burst executes, for a GET of 32 bytes by a \
             key of 16 bytes that the node owns, memcached's protocol over one connection, without those of the kernel. {REQUESTS} \
             bursts, each after a pause, so that the worker has slept; without what follows the clock. The same program in all rows, \
             with memory in a file; a rack has two nodes of one unit. `cargo xtask measure rack-tax`"
        ),
        &["server", "GETs at a time", "instructions a GET", "over alone", "wanted", ""],
    );
    // A rack of the same name and nodes has the same owners.
    let keys = Rack::up(program, "two", PORT, (2, 2))?.keys_of(0, "tax-", BURSTS[1])?;
    let mut alone = [f64::NAN; BURSTS.len()];
    for (way, name) in WAYS {
        for (burst, alone) in BURSTS.into_iter().zip(&mut alone) {
            let keys = &keys[..burst];
            let [quick, slow] = PAUSES.map(|pause| count(program, way, keys, pause));
            let instructions = of_bursts(&quick?, &slow?) / f64::from(REQUESTS) / burst as f64;
            let mut row = vec![name.to_owned(), burst.to_string(), format!("{instructions:.0}")];
            if way == Way::Alone {
                *alone = instructions;
                row.resize(report.columns.len(), "-".to_owned());
            } else {
                let percent = 100.0 * (instructions / *alone - 1.0);
                let met = if percent <= TAX_MAX_PERCENT { "met" } else { "missed" };
                row.extend([
                    format!("{percent:+.1} %"),
                    format!("{TAX_MAX_PERCENT} % or less"),
                    met.to_owned(),
                ]);
            }
            report.rows.push(row);
        }
    }
    Ok(report)
}

/// What a run has counted, and how long its bursts took.
type Run = (Counts, Duration);

/// Instructions of bursts: of those that each burst executes, how often they were executed beyond what follows the clock,
/// by as much as the slower run has more. Those that follow the clock for the most part are left out.
fn of_bursts((quick, time): &Run, (slow, longer): &Run) -> f64 {
    let times = time.as_secs_f64() / (longer.as_secs_f64() - time.as_secs_f64());
    let parts = quick.iter().map(|(key, &count)| {
        let more = slow.get(key).copied().unwrap_or(0) as f64 - count as f64;
        (count as f64 - more * times, more * times)
    });
    let is_step = |&(of_bursts, of_clock): &(f64, f64)| {
        of_bursts >= 0.9 * f64::from(REQUESTS) && of_clock.abs() < of_bursts / 2.0
    };
    parts.filter(is_step).map(|(of_bursts, _)| of_bursts).sum()
}

/// Counts bursts of GETs of these keys after pauses.
fn count(program: &Path, way: Way, keys: &[String], pause: Duration) -> anyhow::Result<Run> {
    let folder = tempfile::Builder::new().prefix("minos-tax-").tempdir_in("/dev/shm")?;
    let _rest = Rest::start(program, way, folder.path())?;
    let (options, mut time) = (format!("{SERVED} {}", options(way, folder.path(), 0)), Duration::ZERO);
    let counts = ways::count_served(program, &options, |server| {
        time = ask(server, way, keys, pause)?;
        Ok(())
    })?;
    Ok((counts, time))
}

/// The options of node 0, which is counted, or of node 1.
fn options(way: Way, folder: &Path, node: usize) -> String {
    let folder = folder.display();
    let mut options = format!("--hash-seed=7 --region={folder}/region-{node}");
    if way != Way::Alone {
        options += &format!(" --rack=local --node={node} --peers={folder}/0,{folder}/1");
    }
    if way == Way::Coordinated {
        options += &format!(" --coordinator={folder}/coordinator");
    }
    options
}

impl Rest {
    fn start(program: &Path, way: Way, folder: &Path) -> anyhow::Result<Self> {
        let coordinator = (way == Way::Coordinated).then(|| coordinate(program, folder)).transpose()?;
        let node = (way != Way::Alone).then(|| {
            let options = format!("{SERVED} {}", options(way, folder, 1));
            Server::minos(program, &options.split(' ').collect::<Vec<_>>())
        });
        Ok(Self { _coordinator: coordinator, _node: node.transpose()? })
    }
}

fn coordinate(program: &Path, folder: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    let path = |name: &str| folder.join(name).display().to_string();
    command.args(["rack", "coordinate", "--rack", "local", "--listen", &path("coordinator")]);
    command.args(["--directory", &path("directory"), "--peers", &[path("0"), path("1")].join(",")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("RUST_LOG", "error");
    Ok(Process(command.spawn().context("cannot start a coordinator")?))
}

/// Stores keys, and reads them in bursts after pauses, which are counted. Returns how long they took.
fn ask(server: &mut Server, way: Way, keys: &[String], pause: Duration) -> anyhow::Result<Duration> {
    let mut client = Client::connect(server.address())?;
    let deadline = Instant::now() + END_WITHIN;
    for key in keys {
        // Without a lease, or the directory of a coordinator, a node refuses.
        while client.set(key, &VALUE)? != "STORED" {
            ensure!(Instant::now() < deadline, "{key} cannot be stored: {}", server.log());
            thread::sleep(LOOK_EVERY);
        }
    }
    let elsewhere = |client: &mut Client| -> anyhow::Result<_> {
        let stats = client.stats("rack")?;
        Ok(["remote_reads", "forwarded"].map(|name| count_in(&stats, name)))
    };
    thread::sleep(SETTLE);
    let before = elsewhere(&mut client)?;
    // What came before does not count.
    command::run(Command::new("callgrind_control").args(["-z", &server.pid().to_string()]))?;
    let began = Instant::now();
    read(&mut client, keys, pause)?;
    let time = began.elapsed();
    // What follows does not count either: statistics look at each micro-shard.
    command::run(Command::new("callgrind_control").args(["-i", "off", &server.pid().to_string()]))?;
    let after = elsewhere(&mut client)?;
    ensure!(before == after, "not all keys are the node's own: {after:?} after {before:?}");
    ensure!((way != Way::Alone) == after[0].is_some(), "the server is not run as it should: {after:?}");
    Ok(time)
}

/// Reads all keys in bursts.
fn read(client: &mut Client, keys: &[String], pause: Duration) -> anyhow::Result<()> {
    let burst: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    for _ in 0..REQUESTS {
        thread::sleep(pause);
        client.send(&burst)?;
        for key in keys {
            client.found()?.with_context(|| format!("{key} is missing"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_clock_is_no_part_of_a_burst() {
        let counts =
            |list: &[u64]| (0..).zip(list).map(|(at, count)| (("minos".to_owned(), at), *count)).collect();
        // A step; one of 32 keys; one of each wake-up; a loop of the clock's; one that hardly any burst executes.
        let quick: Run = (counts(&[300, 9_600, 350, 30_000, 200]), Duration::from_secs(3));
        let slow: Run = (counts(&[300, 9_600, 400, 70_000, 200]), Duration::from_secs(6));
        assert_eq!(of_bursts(&quick, &slow), 300.0 + 9_600.0 + 300.0);
    }
}
