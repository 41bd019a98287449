//! Reads and writes of a node's keys while the node is killed and started again.

use std::{
    path::Path,
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use minos_testkit::Client;

use super::{
    Samples,
    rack::{Rack, count_in},
    report::Report,
};

const NODES: usize = 3;
const PORT: u16 = 14_380;
/// The node that is killed, and the node that clients ask.
const KILLED: usize = 0;
const ASKED: usize = 2;
/// Keys of the killed node that are read and written, and other items, of all nodes.
const KEYS: usize = 16;
const ITEMS: usize = 20_000;
const ITEMS_A_BATCH: usize = 100;
const VALUE_BYTES: usize = 100;
/// Time before a kill, in which reads and writes go on and the unit attaches the memory of a node that is back.
const REST: Duration = Duration::from_millis(1500);
/// Time after which `minos rack up` starts a node again, within two looks at it.
const DEAD: Duration = Duration::from_millis(300);
/// Time in which writes must go on.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// The lease of `minos rack up`, and what the goal adds to it.
const GOAL_S: f64 = 1.0 + 0.3;

/// Keys of the killed node, with the last write of each that was acknowledged, and when requests ended well.
struct Traffic {
    keys: Vec<String>,
    acknowledged: Vec<AtomicU64>,
    is_over: AtomicBool,
    reads: Mutex<Vec<Instant>>,
    writes: Mutex<Vec<Instant>>,
    /// Reads that had an error for a reply.
    failed_reads: AtomicU64,
    /// Reads that found less than what was acknowledged before.
    lost: AtomicU64,
}

/// What one kill did.
struct Kill {
    killed: Instant,
    /// When the node's process accepted connections again.
    restarted: Instant,
}

/// Kills a node again and again.
pub(super) fn measure(program: &Path, kills: u32) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "A node that is killed",
        &format!(
            "Measured. {NODES} nodes of one unit and their coordinator on the first processor (`minos rack up`, lease 1 s). Node \
             {KILLED} is killed {kills} times with `kill -9`, under reads and writes of {KEYS} of its keys, {VALUE_BYTES} bytes \
             each, through node {ASKED}: one connection reads batches of all keys, one writes key after key. `rack up` starts \
             the node again after 0.3 s. A gap is the time between two batches of reads that ended well; a write goes on when \
             the first one after the kill is acknowledged. Items are lost if a read, during or after, finds less than what was \
             acknowledged before it, or if one of {ITEMS} other items is missing after a kill. `cargo xtask measure rack-kill`"
        ),
        &["", "wanted", "median", "worst", ""],
    );
    let mut rack = Rack::up(program, "three", PORT, (NODES, NODES))?;
    rack.wait_until_attached(ASKED)?;
    let traffic = Traffic::of(rack.keys_of(KILLED, "kill", KEYS)?);
    store_items(&rack)?;
    let asked = rack.address_of(ASKED);
    let (lost_items, kills) = thread::scope(|scope| {
        let threads = [scope.spawn(|| traffic.read(asked)), scope.spawn(|| traffic.write(asked))];
        let killed = traffic.kill_all(&mut rack, kills);
        traffic.is_over.store(true, Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("clients do not panic"))?;
        killed
    })?;
    ensure!(forwarded(&rack)? > 0, "no write was forwarded");
    report.rows = traffic.rows(&kills, lost_items)?;
    Ok(report)
}

fn value(turn: u64) -> String {
    format!("{turn:0>VALUE_BYTES$}")
}

fn item(number: usize) -> String {
    format!("item{number}")
}

fn store_items(rack: &Rack) -> anyhow::Result<()> {
    let mut client = Client::connect(rack.address_of(ASKED))?;
    for first in (0..ITEMS).step_by(ITEMS_A_BATCH) {
        let items: Vec<_> = (first..first + ITEMS_A_BATCH).map(|at| (item(at), value(at as u64))).collect();
        let said = client.set_many(&items)?;
        ensure!(said.iter().all(|said| said == "STORED"), "{said:?}");
    }
    Ok(())
}

/// Items that a node no longer finds as they were.
fn lost_items(rack: &Rack, node: usize) -> anyhow::Result<u64> {
    let mut client = Client::connect(rack.address_of(node))?;
    let mut lost = 0;
    for first in (0..ITEMS).step_by(ITEMS_A_BATCH) {
        let keys: Vec<_> = (first..first + ITEMS_A_BATCH).map(item).collect();
        let found = client.get_many(&keys)?;
        for (at, found) in (first..).zip(found) {
            lost += u64::from(found.is_none_or(|found| found.value != value(at as u64).as_bytes()));
        }
    }
    Ok(lost)
}

/// Commands that the asked node has forwarded.
fn forwarded(rack: &Rack) -> anyhow::Result<u64> {
    let stats = Client::connect(rack.address_of(ASKED))?.stats("rack")?;
    count_in(&stats, "forwarded").context("no count of forwarded commands")
}

fn push(times: &Mutex<Vec<Instant>>) {
    times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
}

impl Traffic {
    fn of(keys: Vec<String>) -> Self {
        let acknowledged = keys.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            keys,
            acknowledged,
            is_over: AtomicBool::new(false),
            reads: Mutex::default(),
            writes: Mutex::default(),
            failed_reads: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Reads all keys again and again. They are there once each was written.
    fn read(&self, asked: std::net::SocketAddr) -> anyhow::Result<()> {
        let mut client = Client::connect(asked)?;
        while !self.is_over.load(Relaxed) {
            let before: Vec<u64> = self.acknowledged.iter().map(|turn| turn.load(Relaxed)).collect();
            let Ok(found) = client.get_many(&self.keys) else {
                // The replies behind the error are not read.
                self.failed_reads.fetch_add(1, Relaxed);
                client = Client::connect(asked)?;
                continue;
            };
            push(&self.reads);
            for (found, before) in found.iter().zip(before) {
                let turn = found.as_ref().map_or(Some(0), |found| {
                    std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok())
                });
                self.lost.fetch_add(u64::from(turn.is_none_or(|turn: u64| turn < before)), Relaxed);
            }
        }
        Ok(())
    }

    /// Writes one key after the other. Writes that fail have said so, and are not repeated.
    fn write(&self, asked: std::net::SocketAddr) -> anyhow::Result<()> {
        let mut client = Client::connect(asked)?;
        for turn in 1.. {
            for (key, acknowledged) in self.keys.iter().zip(&self.acknowledged) {
                if self.is_over.load(Relaxed) {
                    return Ok(());
                }
                let said = client.set(key, value(turn).as_bytes())?;
                if said == "STORED" {
                    acknowledged.store(turn, Relaxed);
                    push(&self.writes);
                } else if !said.starts_with("SERVER_ERROR") {
                    bail!("a write was answered by {said}");
                }
            }
        }
        Ok(())
    }

    /// Kills the node so many times. Returns the items that were lost, and the kills.
    fn kill_all(&self, rack: &mut Rack, kills: u32) -> anyhow::Result<(u64, Vec<Kill>)> {
        let (mut lost, mut done) = (0, Vec::new());
        for _ in 0..kills {
            thread::sleep(REST);
            let killed = Instant::now();
            let pid = rack.pids()[KILLED].to_string();
            ensure!(Command::new("kill").args(["-9", &pid]).status()?.success(), "cannot kill {pid}");
            rack.wait_for_restart(KILLED)?;
            let restarted = Instant::now();
            while self.first_write_after(killed).is_none() {
                ensure!(killed.elapsed() < BACK_WITHIN, "writes do not go on");
                thread::sleep(Duration::from_millis(1));
            }
            lost += lost_items(rack, KILLED)? + lost_items(rack, ASKED)?;
            done.push(Kill { killed, restarted });
        }
        Ok((lost, done))
    }

    /// When a write was acknowledged that cannot have been before the kill.
    fn first_write_after(&self, killed: Instant) -> Option<Instant> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        // The reply to the last write before may arrive after the kill.
        let after = writes.partition_point(|at| *at <= killed + Duration::from_millis(100));
        writes.get(after).copied()
    }

    fn rows(&self, kills: &[Kill], lost_items: u64) -> anyhow::Result<Vec<Vec<String>>> {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gaps = [Samples::default(), Samples::default()];
        let (mut stops, mut waits) = (Samples::default(), Samples::default());
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        for Kill { killed, restarted } in kills {
            let wrote = self.first_write_after(*killed).context("writes did not go on")?;
            let start = *killed + DEAD;
            // The last one goes on into the rest before the next kill.
            let times = [(*killed, start), (start, wrote + REST / 2)];
            for ((from, to), gaps) in times.into_iter().zip(&mut gaps) {
                gaps.push(ms(longest_gap(&reads, from, to)));
            }
            stops.push(ms(wrote - *killed) / 1e3);
            waits.push(ms(wrote.saturating_duration_since(*restarted)));
        }
        let lost = lost_items + self.lost.load(Relaxed);
        let failed = self.failed_reads.load(Relaxed);
        let row = |name: &str, wanted: &str, cells: [String; 2], is_met: Option<bool>| {
            let met = is_met.map_or("", |is_met| if is_met { "met" } else { "missed" });
            let [median, worst] = cells;
            vec![name.to_owned(), wanted.to_owned(), median, worst, met.to_owned()]
        };
        let cells = |samples: &Samples, decimals: usize| {
            [samples.median(), samples.max()].map(|value| format!("{value:.decimals$}"))
        };
        let count = |count: u64| [String::new(), count.to_string()];
        let (stop, goal) = (cells(&stops, 2), format!("{GOAL_S} s"));
        Ok(vec![
            row("longest gap of reads while the node is dead, ms", "", cells(&gaps[0], 1), None),
            row("while it starts, ms", "", cells(&gaps[1], 1), None),
            row("failed batches of reads", "0", count(failed), Some(failed == 0)),
            row("from the kill until writes go on, s", &goal, stop, Some(stops.max() <= GOAL_S)),
            row("of it after the process accepted connections, ms", "", cells(&waits, 0), None),
            row("lost items", "0", count(lost), Some(lost == 0)),
        ])
    }
}

/// The longest time between two moments that follow each other, of those that touch a span of time.
fn longest_gap(moments: &[Instant], from: Instant, to: Instant) -> Duration {
    let first = moments.partition_point(|at| *at < from).saturating_sub(1);
    let last = (moments.partition_point(|at| *at <= to) + 1).min(moments.len());
    let gaps = moments[first..last].windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_where_it_begins_and_where_it_ends() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let moments = [0, 10, 20, 100, 110, 130].map(at);
        let gap = |from, to| longest_gap(&moments, at(from), at(to)).as_millis();
        assert_eq!([gap(5, 15), gap(15, 50), gap(50, 60), gap(90, 105), gap(105, 115)], [10, 80, 80, 80, 20]);
        assert_eq!(gap(140, 150), 0);
    }
}
