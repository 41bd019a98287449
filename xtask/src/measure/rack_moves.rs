//! How long writes wait while their micro-shard moves from node to node.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use minos_testkit::Client;

use super::{
    Samples,
    rack::{self, Rack},
    report::{Report, cell},
};

/// Keys of the micro-shard; a batch writes each once.
const KEYS: usize = 16;
const VALUE_BYTES: usize = 100;
const MOVES: usize = 200;
const PORT: u16 = 14_360;
/// Time between a move and the next.
const REST: Duration = Duration::from_millis(20);
/// Time between two looks whether a move has ended. Each takes 0.2 ms of the nodes' processor.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time that a move may take.
const MOVE_MAX: Duration = Duration::from_secs(20);

/// A batch of writes: when its replies were complete, and how long that took.
type Batch = (Instant, Duration);

/// Writes as fast as one connection can into one micro-shard, which moves meanwhile. With `spread`, each node has a
/// processor of so many.
pub(super) fn measure(program: &Path, spread: Option<usize>) -> anyhow::Result<Report> {
    let place = if spread.is_some() { "each on a processor of its own" } else { "on the first processor" };
    let mut report = Report::new(
        "Writes into a micro-shard that moves",
        &format!(
            "Measured. Three nodes of one unit {place}; one client writes batches of {KEYS} keys of one \
             micro-shard, {VALUE_BYTES} bytes each, through node 2, while the micro-shard moves {MOVES} times between nodes \
             0 and 1. The longest batch during each move is its stall. `cargo xtask measure rack-moves`"
        ),
        &["writes a second", "batch, ms", "stall, ms: median", "p99", "longest"],
    );
    let rack = Rack::up(program, "three", PORT, (3, 3))?;
    spread.map_or(Ok(()), |processors| rack::spread(rack.pids(), processors))?;
    let (micro_shard, keys) = keys(&rack)?;
    let (is_over, batches) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let moves = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&rack, &keys, &is_over, &batches));
        let moves = move_it(&rack, &micro_shard, &writer);
        is_over.store(true, Relaxed);
        let written = writer.join().expect("the writer does not panic");
        written.and(moves)
    })?;
    let batches = batches.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.rows.push(row(&batches, &moves)?);
    Ok(report)
}

/// A micro-shard and keys of it.
fn keys(rack: &Rack) -> anyhow::Result<(String, Vec<String>)> {
    let of = |key: &str| -> anyhow::Result<String> {
        let place = rack.ask_coordinator(&format!("where {key}"))?;
        Ok(place.split(' ').nth(1).context("no micro-shard")?.to_owned())
    };
    let micro_shard = of("move0")?;
    let mut keys = Vec::new();
    for key in (0..).map(|number| format!("move{number}")) {
        if of(&key)? == micro_shard {
            keys.push(key);
        }
        if keys.len() == KEYS {
            break;
        }
    }
    Ok((micro_shard, keys))
}

fn write(
    rack: &Rack,
    keys: &[String],
    is_over: &AtomicBool,
    batches: &Mutex<Vec<Batch>>,
) -> anyhow::Result<()> {
    let mut client = Client::connect(rack.address_of(2))?;
    let mut turn = 0;
    let value = |turn: u64| format!("{turn:0>VALUE_BYTES$}");
    while !is_over.load(Relaxed) {
        turn += 1;
        let items: Vec<_> = keys.iter().map(|key| (key.clone(), value(turn))).collect();
        let began = Instant::now();
        let said = client.set_many(&items)?;
        let ended = Instant::now();
        ensure!(said.iter().all(|said| said == "STORED"), "{said:?}");
        batches.lock().unwrap_or_else(PoisonError::into_inner).push((ended, ended - began));
    }
    let found = client.get_many(keys)?;
    let is_right = |found: &Option<minos_testkit::Found>| {
        found.as_ref().is_some_and(|found| found.value == value(turn).as_bytes())
    };
    ensure!(found.iter().all(is_right), "a write was lost");
    Ok(())
}

/// When each move began and ended.
fn move_it<T>(
    rack: &Rack,
    micro_shard: &str,
    writer: &thread::ScopedJoinHandle<'_, T>,
) -> anyhow::Result<Vec<(Instant, Instant)>> {
    thread::sleep(Duration::from_millis(500));
    let mut moves = Vec::new();
    for to in (0..MOVES).map(|at| at % 2) {
        let began = Instant::now();
        rack.ask_coordinator(&format!("move {micro_shard} {to}"))?;
        loop {
            let place = rack.ask_coordinator("where move0")?;
            if place.ends_with(&format!("node {to}\n")) {
                break;
            }
            ensure!(began.elapsed() < MOVE_MAX && !writer.is_finished(), "the move does not end: {place}");
            thread::sleep(LOOK_EVERY);
        }
        moves.push((began, Instant::now()));
        thread::sleep(REST);
    }
    Ok(moves)
}

fn row(batches: &[Batch], moves: &[(Instant, Instant)]) -> anyhow::Result<Vec<String>> {
    let (first, last) = batches.first().zip(batches.last()).context("nothing was written")?;
    let rate = (batches.len() * KEYS) as f64 / (last.0 - first.0).as_secs_f64();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (mut usual, mut stalls) = (Samples::default(), Vec::new());
    batches.iter().for_each(|batch| usual.push(ms(batch.1)));
    for (began, ended) in moves {
        // A batch that waits for the new owner may end a little later.
        let is_during = |batch: &&Batch| batch.0 > *began && batch.0 - batch.1 < *ended + REST / 2;
        stalls.push(batches.iter().filter(is_during).map(|batch| ms(batch.1)).fold(0.0, f64::max));
    }
    stalls.sort_by(f64::total_cmp);
    let at = |part: f64| format!("{:.2}", stalls[((stalls.len() - 1) as f64 * part).round() as usize]);
    Ok(vec![format!("{rate:.0}"), cell(&usual, 2), at(0.5), at(0.99), at(1.0)])
}
