//! Minos and Redis get the same random commands, and every reply is compared.
//!
//! Both versions of the protocol, commands one by one and pipelined, in pieces of any size, on two connections, so that
//! MULTI and WATCH are disturbed. What differs on purpose is in `docs/redis.md` and not among these commands.

#[path = "../common/mod.rs"]
mod common;

mod cold;
mod commands;
mod wire;

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{self, Child, Stdio},
    time::Instant,
};

use minos_base::seeded;
use minos_testkit::{Client, Server, number_from};
use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process};

use commands::{Batch, Command, Comparison, sequence};
use wire::{Connection, Reply, array};

/// Sequences of commands in each version of the protocol.
const SEQUENCES: u64 = 120;

fn redis() -> Server {
    Server::redis(&["--databases", "1", "--slowlog-log-slower-than", "-1"])
        .unwrap_or_else(|error| panic!("{error}"))
}

fn minos(options: &[&str]) -> Server {
    let arguments = |port: u16, _: &std::path::Path| {
        let resp = format!("127.0.0.1:{port}");
        let fixed = [
            "serve",
            "--memcached=127.0.0.1:0",
            "--resp",
            &resp,
            "--workers=2",
            "--memory=256m",
            "--pin=off",
        ];
        // Redis logs no slow command either.
        let max = ["--max-buffer=64m", "--slow-threshold=1h"];
        fixed.iter().chain(&max).chain(options).map(|&word| word.to_owned()).collect()
    };
    Server::start(&common::program(), arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Two connections to one server, or to two nodes of a rack, both in the same version of the protocol.
struct Side {
    connections: [Connection; 2],
}

impl Side {
    fn new(addresses: [SocketAddr; 2], version: &str) -> Self {
        let mut connections = addresses.map(Connection::open);
        for connection in &mut connections {
            connection.say(&["hello", version]);
        }
        connections[0].say(&["flushall"]);
        Self { connections }
    }

    /// Sends a batch, and returns its replies as far as they come.
    fn exchange(&mut self, batch: &Batch, piece_bytes: usize) -> Vec<Option<Reply>> {
        let connection = &mut self.connections[batch.connection];
        if let [command] = batch.commands.as_slice()
            && command.words[0] == b"SCAN-ALL"
        {
            return vec![scan_all(connection)];
        }
        let bytes: Vec<u8> = batch.commands.iter().flat_map(|command| array(&command.words)).collect();
        connection.send(&bytes, piece_bytes);
        batch.commands.iter().map(|_| connection.reply()).collect()
    }
}

/// The keys of a whole scan, each once.
fn scan_all(connection: &mut Connection) -> Option<Reply> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Elements(_, elements) = connection.say(&["scan", &cursor, "count", "1000"]) else {
            return None;
        };
        // Within MULTI, it is queued.
        let [Reply::Bulk(next), Reply::Elements(_, found)] = elements.as_slice() else { return None };
        for key in found {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            return Some(Reply::Elements(b'*', keys));
        }
    }
}

/// A change to Minos' replies before they are compared.
type Alteration = fn(&mut Reply);

/// Commands that remove items. A watched key that had none, then one, and has none again, is unchanged for Minos only.
const REMOVING: [&[u8]; 9] =
    [b"flushall", b"del", b"unlink", b"getdel", b"rename", b"renamenx", b"expire", b"expireat", b"pexpireat"];

/// Runs a sequence against both, whose connections go to these addresses. Calls `before` with the number of each batch.
fn run(
    addresses: [[SocketAddr; 2]; 2],
    version: &str,
    (seed, batches): (u64, &[Batch]),
    alter: Alteration,
    mut before: impl FnMut(usize),
) -> Result<(), String> {
    let (mut random, begun) = (seeded(seed), Instant::now());
    let mut sides = addresses.map(|address| Side::new(address, version));
    // The comparisons of the commands that wait for EXEC, a list for each connection.
    let mut queued: [Vec<Comparison>; 2] = Default::default();
    let mut has_removed = false;
    for (number, batch) in batches.iter().enumerate() {
        before(number);
        let piece_bytes = *[3, 50, 5000].get(random.random_range(0..6_usize)).unwrap_or(&usize::MAX);
        let [left, mut right] = sides.each_mut().map(|side| side.exchange(batch, piece_bytes));
        right.iter_mut().flatten().for_each(alter);
        for (command, (left, right)) in batch.commands.iter().zip(left.into_iter().zip(right)) {
            let queued = &mut queued[batch.connection];
            let comparison = of_command(command, &left, queued);
            has_removed |= REMOVING.contains(&&*command.words[0]);
            let is_absent_again = has_removed && command.words[0] == b"exec" && left == Some(Reply::Null);
            if is_absent_again || is_accepted(command, &left, &right) {
                // What follows may differ too.
                return Ok(());
            }
            if !is_same(&left, &right, (&comparison, begun)) {
                let said = command.words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
                return Err(format!(
                    "batch {number}: {said}\n  Redis {}\n  Minos {}",
                    told(&left),
                    told(&right)
                ));
            }
            if left.is_none() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// True for the differences that are wanted: the bound of LCS is lower, sums of decimal numbers are exact, and a rack refuses
/// some transactions.
fn is_accepted(command: &Command, left: &Option<Reply>, right: &Option<Reply>) -> bool {
    match (command.words[0].as_slice(), left, right) {
        // Keys of several nodes of a rack.
        (b"exec", _, Some(Reply::Error(text))) => text.starts_with("CROSSSLOT") || text.contains(" rack"),
        (b"lcs", _, Some(Reply::Error(text))) => text.contains("Insufficient memory"),
        (b"exec", Some(Reply::Elements(_, left)), Some(Reply::Elements(_, right))) => {
            // Its numbers are strings, as those of INCRBYFLOAT are.
            let [lcs, sum] =
                ["lcs", "incrbyfloat"].map(|name| Command { words: vec![name.into()], ..command.clone() });
            let accepts = |(left, right): (&Reply, &Reply)| {
                let (left, right) = (Some(left.clone()), Some(right.clone()));
                is_accepted(&lcs, &left, &right) || is_accepted(&sum, &left, &right)
            };
            left.len() == right.len() && left.iter().zip(right).any(accepts)
        }
        (b"incrbyfloat", Some(Reply::Bulk(left)), Some(Reply::Bulk(right))) => {
            let number = String::from_utf8_lossy(left).parse::<f64>();
            left != right && number.is_ok_and(|number| number.abs() > 1e12)
        }
        _ => false,
    }
}

/// How to compare the replies to a command: those to EXEC are compared as those to its commands.
fn of_command(command: &Command, left: &Option<Reply>, queued: &mut Vec<Comparison>) -> Vec<Comparison> {
    if *left == Some(Reply::Simple("QUEUED".to_owned())) {
        queued.push(command.comparison);
        return vec![Comparison::Exact];
    }
    match command.words[0].as_slice() {
        b"exec" => [&[Comparison::Exact], std::mem::take(queued).as_slice()].concat(),
        b"discard" | b"reset" => {
            queued.clear();
            vec![Comparison::Exact]
        }
        _ => vec![command.comparison],
    }
}

/// Compares replies to commands of a sequence that has begun then.
fn is_same(
    left: &Option<Reply>,
    right: &Option<Reply>,
    (comparisons, begun): (&[Comparison], Instant),
) -> bool {
    let (Some(left), Some(right)) = (left, right) else { return left == right };
    match (comparisons, left, right) {
        ([_, inner @ ..], Reply::Elements(kind, left), Reply::Elements(other, right))
            if !inner.is_empty() =>
        {
            let pairs = left.iter().zip(right).zip(inner);
            let each = |((left, right), &comparison): ((&Reply, &Reply), _)| {
                is_alike(left, right, (comparison, begun))
            };
            kind == other && left.len() == right.len() && left.len() == inner.len() && { pairs }.all(each)
        }
        ([comparison, ..], left, right) => is_alike(left, right, (*comparison, begun)),
        ([], ..) => false,
    }
}

fn is_alike(left: &Reply, right: &Reply, (comparison, begun): (Comparison, Instant)) -> bool {
    match (comparison, left, right) {
        (Comparison::Any, _, _) => std::mem::discriminant(left) == std::mem::discriminant(right),
        (Comparison::About(most), Reply::Integer(left), Reply::Integer(right)) if *left > 0 && *right > 0 => {
            // On a busy machine a command may reach one of them seconds later. `most` is at least one of these.
            let most = most * (1 + begun.elapsed().as_secs() as i64);
            // Minos' latest expiry is 34 years after its start.
            (left - right).abs() <= most || *left > 1 << 52 && *right > 1 << 30
        }
        (Comparison::Unordered, Reply::Elements(_, left), Reply::Elements(_, right)) => {
            left.len() == right.len() && left.iter().all(|reply| right.contains(reply))
        }
        _ => left == right,
    }
}

fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned();
    if word.len() > 40 { format!("{text:?}… ({})", word.len()) } else { format!("{text:?}") }
}

fn told(reply: &Option<Reply>) -> String {
    let text = match reply {
        Some(Reply::Bulk(bytes)) => shown(bytes),
        other => format!("{other:?}"),
    };
    text.chars().take(600).collect()
}

/// Compares the replies to many sequences. Says every difference, and the first one with a short sequence.
fn compare(options: &[&str], version: &str) {
    let (rival, subject) = (redis(), minos(options));
    let addresses = [rival.address(), subject.address()].map(|address| [address; 2]);
    let first = number_from("MINOS_DIFFERENTIAL_SEED", 1);
    let mut differences = Vec::new();
    for seed in first..first + SEQUENCES {
        let batches = sequence(seed);
        let Err(found) = run(addresses, version, (seed, &batches), |_| {}, |_| {}) else { continue };
        differences.push(match differences.is_empty() {
            true => shortened(addresses, version, (seed, batches), found),
            false => format!("seed {seed}, {found}"),
        });
    }
    assert!(differences.is_empty(), "RESP{version}, {options:?}:\n{}", differences.join("\n"));
}

/// The sequence without the commands that the difference does not need, and the difference.
fn shortened(
    addresses: [[SocketAddr; 2]; 2],
    version: &str,
    (seed, mut batches): (u64, Vec<Batch>),
    mut found: String,
) -> String {
    let mut places: Vec<_> = batches
        .iter()
        .enumerate()
        .flat_map(|(at, batch)| (0..batch.commands.len()).map(move |inner| (at, inner)))
        .collect();
    while let Some((at, inner)) = places.pop() {
        let mut fewer = batches.clone();
        fewer[at].commands.remove(inner);
        if let Err(difference) = run(addresses, version, (seed, &fewer), |_| {}, |_| {}) {
            (batches, found) = (fewer, difference);
        }
    }
    let lines = batches.iter().filter(|batch| !batch.commands.is_empty()).map(|batch| {
        let commands: Vec<_> = batch.commands.iter().map(said).collect();
        format!("  {}: {}", batch.connection, commands.join("; "))
    });
    format!("seed {seed}\n{}\n{found}", lines.collect::<Vec<_>>().join("\n"))
}

fn said(command: &Command) -> String {
    command.words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn minos_answers_like_redis() {
    for options in common::ENGINES {
        compare(options, "2");
    }
}

/// Two nodes of a rack.
struct Rack {
    process: Child,
    nodes: [SocketAddr; 2],
    /// Addresses for memcached's clients.
    memcached: [SocketAddr; 2],
}

impl Rack {
    /// A rack with these options, whose nodes have others besides.
    fn up(options: &[&str], of_nodes: &[&str]) -> Self {
        let first = common::ports::free_ports(4);
        let mut command = process::Command::new(common::program());
        // A node that loses its lease ends connections.
        command.args(["rack", "up", "-n2", "--ends-with-parent", "--rack-lease=10s"]).args(options);
        command.arg(format!("--base-port={first}")).arg(format!("--resp={}", first + 2));
        command.args(["--", "--rack-timeout=60s", "--max-buffer=64m", "--slow-threshold=1h"]).args(of_nodes);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let [memcached, nodes] =
            [0, 2].map(|from| [from, from + 1].map(|port| SocketAddr::from(([127, 0, 0, 1], first + port))));
        let rack = Self { process, nodes, memcached };
        assert_eq!(lines.take(2).count(), 2, "the rack does not start");
        rack
    }

    /// Items that were read from flash.
    fn cold_reads(&self) -> u64 {
        let of_node = |node| cold::reads(&mut Client::connect(node).unwrap());
        self.memcached.into_iter().map(of_node).sum()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(Pid::from_raw(self.process.id().cast_signed()).unwrap(), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Commands for two keys that cannot be divided, and for all keys, which a rack refuses.
const UNDIVIDED: [&[u8]; 7] = [b"rename", b"renamenx", b"copy", b"lcs", b"msetnx", b"keys", b"randomkey"];

/// The sequence of a seed, of the commands that a rack takes.
fn divisible_sequence(seed: u64) -> Vec<Batch> {
    let mut batches = sequence(seed);
    batches.iter_mut().for_each(|batch| {
        batch.commands.retain(|command| !UNDIVIDED.contains(&&*command.words[0].to_ascii_lowercase()));
    });
    batches
}

#[test]
fn minos_answers_like_redis_in_a_rack() {
    let rival = redis();
    for (options, version) in [(&[][..], "2"), (&["--unit-size=1"], "3")] {
        let rack = Rack::up(&[&["--memory=64m"], options].concat(), &[]);
        let sides = [[rival.address(); 2], rack.nodes];
        let differences: Vec<String> = (1..=SEQUENCES / 2)
            .filter_map(|seed| {
                let found = run(sides, version, (seed, &divisible_sequence(seed)), |_| {}, |_| {}).err()?;
                Some(format!("seed {seed}, {found}"))
            })
            .collect();
        assert!(differences.is_empty(), "RESP{version}, {options:?}:\n{}", differences.join("\n"));
    }
}

/// Commands, each of which is executed, refused, or fails.
const COUNTED: [&str; 40] = [
    "set k word",
    "get k",
    "get",
    "incr k",
    "incr n",
    "set k v bad",
    "setex k 0 v",
    "set big {large}",
    "set big {large} ex",
    "setex big 0 {large}",
    "getrange k a b",
    "expire k soon",
    "mset a",
    "mset a b c",
    "object encoding",
    "config",
    "config get",
    "config bogus",
    "bogus",
    "auth word",
    "hello 9",
    "exec",
    "multi",
    "multi",
    "discard",
    "multi",
    "get",
    "exec",
    "multi",
    "incr k",
    "get k",
    "exec",
    "watch",
    "watch k",
    "client reply skip",
    "incr k",
    "client reply bogus",
    "del k n",
    "exists",
    "echo",
];

/// Calls of each command, those that were rejected and those that failed.
fn counted(client: &mut Connection) -> Vec<String> {
    let Reply::Bulk(text) = client.say(&["info", "commandstats"]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("cmdstat_"));
    // Times differ.
    let fields = |line: &str| {
        line.split([':', ',']).filter(|field| !field.starts_with("usec")).collect::<Vec<_>>().join(" ")
    };
    let mut counted: Vec<_> = lines.map(fields).collect();
    counted.sort();
    counted
}

#[test]
fn commands_are_counted_as_in_redis() {
    let [redis, minos] = [redis(), minos(&[])].map(|server| {
        let mut client = Connection::open(server.address());
        let large = "x".repeat(1_000_000);
        let word = |word: &str| word.replace("{large}", &large).into_bytes();
        for line in COUNTED {
            client.send(&array(&line.split(' ').map(word).collect::<Vec<_>>()), usize::MAX);
        }
        // One says that there is none to the next.
        (2..COUNTED.len()).for_each(|_| drop(client.reply().expect("a reply")));
        counted(&mut client)
    });
    assert_eq!(minos, redis);
}

/// Longest argument above flash: memory is small.
const WORD_BYTES_MAX: usize = 20_000;
const COLD_SEQUENCES: u64 = 6;
/// Batches after which all keys are on flash alone.
const COLD_EVERY: usize = 2;

/// The difference that `run` finds. On a busy machine flash may be behind for longer than a command waits, and the commands
/// behind that find another state than Redis': all begin again then.
fn found_with_memory(mut run: impl FnMut() -> Result<(), String>) -> Option<String> {
    const ATTEMPTS: usize = 10;
    let is_behind =
        |found: &Option<String>| found.as_ref().is_some_and(|found| found.contains("Error(\"OOM"));
    let found = (0..ATTEMPTS).map(|_| run().err()).find(|found| !is_behind(found));
    found.unwrap_or_else(|| Some(format!("{ATTEMPTS} times no memory")))
}

#[test]
fn minos_answers_like_redis_in_a_rack_above_flash() {
    let rival = redis();
    for (unit, version) in [("--unit-size=2", "2"), ("--unit-size=1", "3")] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let [dir, flash] =
            ["--dir=", "--flash="].map(|option| format!("{option}{}", folder.path().display()));
        let options = [unit, "--memory", cold::MEMORY, &dir, &format!("{flash}:64m")];
        let rack = Rack::up(&options, &["--max-item-size=64k"]);
        let sides = [[rival.address(); 2], rack.nodes];
        let mut pushers = rack.nodes.map(Connection::open);
        let (mut differences, mut reads) = (Vec::new(), 0);
        for seed in 1..=COLD_SEQUENCES {
            let mut batches = divisible_sequence(seed);
            let commands = batches.iter_mut().flat_map(|batch| &mut batch.commands);
            commands.flat_map(|command| &mut command.words).for_each(|word| word.truncate(WORD_BYTES_MAX));
            let mut since = rack.cold_reads();
            let mut between = |number: usize| {
                if number.is_multiple_of(COLD_EVERY) {
                    reads += rack.cold_reads() - since;
                    cold::push_out(&mut pushers[number % 2]);
                    since = rack.cold_reads();
                }
            };
            let found = found_with_memory(|| run(sides, version, (seed, &batches), |_| {}, &mut between));
            differences.extend(found.map(|found| format!("seed {seed}, {found}")));
        }
        assert!(differences.is_empty(), "RESP{version}, {unit}:\n{}", differences.join("\n"));
        assert!(reads >= 2 * COLD_SEQUENCES, "the control: {reads} items were read from flash");
    }
}

#[test]
fn minos_answers_like_redis_in_resp3() {
    compare(&["--threshold=1000"], "3");
}

/// Commands in turn, most of them with arguments that random ones hardly have.
const FIXED: &str = include_str!("fixed.txt");

/// The commands of [`FIXED`] to which the replies differ.
fn differing(addresses: [SocketAddr; 2], version: &str) -> Vec<String> {
    let mut connections = addresses.map(Connection::open);
    for connection in &mut connections {
        connection.say(&["hello", version]);
        connection.say(&["flushall"]);
    }
    let (mut differences, begun) = (Vec::new(), Instant::now());
    for line in FIXED.lines() {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "\"\"" { "" } else { word }).collect();
        let [redis, minos] = connections.each_mut().map(|connection| connection.say(&words));
        let comparison = if words[0] == "TTL" { Comparison::About(1) } else { Comparison::Exact };
        if !is_alike(&redis, &minos, (comparison, begun)) {
            differences.push(format!("{line}\n  Redis {redis:?}\n  Minos {minos:?}"));
        }
    }
    differences
}

#[test]
fn commands_with_odd_arguments_are_answered_alike() {
    let (redis, minos) = (redis(), minos(&[]));
    for version in ["2", "3"] {
        let differences = differing([redis.address(), minos.address()], version);
        assert!(differences.is_empty(), "RESP{version}:\n{}", differences.join("\n"));
    }
    let other = Server::redis(&["--databases", "2"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        differing([redis.address(), other.address()], "2").iter().any(|line| line.starts_with("SELECT 1"))
    );
}

#[test]
fn altered_replies_are_found() {
    let alterations: [(&str, Alteration); 4] = [
        ("another number", |reply| {
            if let Reply::Integer(number @ 1..) = reply {
                *number += 5000;
            }
        }),
        ("a byte of a value", |reply| {
            if let Reply::Bulk(bytes) = reply {
                bytes.iter_mut().take(1).for_each(|byte| *byte ^= 1);
            }
        }),
        ("a word of an error", |reply| {
            if let Reply::Error(text) = reply {
                *text = text.replace("syntax", "Syntax");
            }
        }),
        ("one element too few", |reply| {
            if let Reply::Elements(_, elements) = reply {
                elements.pop();
            }
        }),
    ];
    let (left, right) = (redis(), redis());
    let addresses = [left.address(), right.address()].map(|address| [address; 2]);
    for (what, alter) in alterations {
        let is_found =
            (1..40).any(|seed| run(addresses, "2", (seed, &sequence(seed)), alter, |_| {}).is_err());
        assert!(is_found, "not found: {what}");
    }
    for seed in 1..20 {
        run(addresses, "2", (seed, &sequence(seed)), |_| {}, |_| {}).unwrap();
    }
}
