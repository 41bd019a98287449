//! Random commands over few keys.

use std::time::{SystemTime, UNIX_EPOCH};

use minos_base::seeded;
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom as _};

/// How two replies to a command are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Exact,
    /// Numbers that tell the time may differ by this much.
    About(i64),
    /// Elements have no order.
    Unordered,
    /// Only whether there is a reply.
    Any,
}

#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) comparison: Comparison,
}

/// Commands that one connection sends at once.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) connection: usize,
    pub(crate) commands: Vec<Command>,
}

const KEYS: [&str; 5] = ["k1", "k2", "k3", "key:4", "a"];
/// Commands of a sequence.
const COMMANDS: usize = 80;
const BATCH_MAX: usize = 12;

/// The batches of a seed.
pub(crate) fn sequence(seed: u64) -> Vec<Batch> {
    let mut random = seeded(seed);
    let mut batches = Vec::new();
    let mut left = COMMANDS;
    while left > 0 {
        let count = if random.random_bool(0.4) { 1 } else { random.random_range(1..=BATCH_MAX.min(left)) };
        left -= count.min(left);
        let connection = usize::from(random.random_bool(0.25));
        let commands = (0..count).map(|_| command(&mut random)).collect();
        batches.push(Batch { connection, commands });
    }
    batches
}

fn key(random: &mut StdRng) -> String {
    (*KEYS.choose(random).unwrap()).to_owned()
}

fn value(random: &mut StdRng) -> Vec<u8> {
    match random.random_range(0..24) {
        0..8 => random.random_range(-20..200_i64).to_string().into_bytes(),
        8..10 => ["", "0", "-0", "01", " 1", "9223372036854775807", "-9223372036854775808", "3.0e3", "x"]
            .choose(random)
            .unwrap()
            .as_bytes()
            .to_vec(),
        10..12 => ["1.5", "-0.25", "10.5", ".5", "3."].choose(random).unwrap().as_bytes().to_vec(),
        12..20 => letters(random, 12),
        20..22 => (0..random.random_range(0..40)).map(|_| random.random()).collect(),
        22 => letters(random, 30_000),
        _ if random.random_bool(0.2) => vec![random.random(); random.random_range(100_000..600_000)],
        _ => letters(random, 300),
    }
}

fn letters(random: &mut StdRng, bytes_max: usize) -> Vec<u8> {
    (0..random.random_range(0..bytes_max)).map(|_| random.random_range(b'a'..=b'd')).collect()
}

/// No number, or one at the end of the range.
fn odd(random: &mut StdRng) -> String {
    let odd = [
        "",
        "x",
        "1.5",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "-0",
        "007",
        "-7",
    ];
    (*odd.choose(random).unwrap()).to_owned()
}

fn number(random: &mut StdRng) -> String {
    if random.random_ratio(1, 12) { odd(random) } else { random.random_range(-30..60_i64).to_string() }
}

/// A time to live: long, past, or none. What would expire in the meantime is another test's.
fn ttl(random: &mut StdRng, unit: i64) -> String {
    match random.random_range(0..8) {
        0 => odd(random),
        1 => (random.random_range(-5..=0) * unit).to_string(),
        _ => (random.random_range(100..10_000) * unit).to_string(),
    }
}

fn unix(random: &mut StdRng, unit: i64) -> String {
    if random.random_ratio(1, 8) { odd(random) } else { later(random, unit) }
}

/// As `unix`, but never past: until it is looked at, a key that is set so counts in Redis.
fn later(random: &mut StdRng, unit: i64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    ((now_s + random.random_range(100..10_000)) * unit).to_string()
}

/// A command of these words; each of them is a word, or stands for one.
fn of(random: &mut StdRng, form: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    for word in form.split_whitespace() {
        words.push(match word {
            "KEY" => key(random).into_bytes(),
            "VALUE" => value(random),
            "NUMBER" => number(random).into_bytes(),
            "TTL" => ttl(random, 1).into_bytes(),
            "PTTL" => ttl(random, 1000).into_bytes(),
            "UNIX" => unix(random, 1).into_bytes(),
            "LATER" => later(random, 1).into_bytes(),
            "PLATER" => later(random, 1000).into_bytes(),
            "PUNIX" => unix(random, 1000).into_bytes(),
            "FLOAT" => (random.random_range(-40..40_i32) as f64 / 8.0).to_string().into_bytes(),
            "BIT" => random.random_range(0..3_u8).to_string().into_bytes(),
            "OFFSET" => random.random_range(0..200_u32).to_string().into_bytes(),
            "PATTERN" => ["*", "k*", "k[12]", "?", "key:\\4", "[^k]*", "nothing"]
                .choose(random)
                .unwrap()
                .as_bytes()
                .to_vec(),
            word => word.as_bytes().to_vec(),
        });
    }
    words
}

/// Forms of commands whose replies are the same to the byte.
const EXACT: &[&str] = &[
    "get KEY",
    "get KEY",
    "get KEY",
    "set KEY VALUE",
    "set KEY VALUE",
    "SET KEY VALUE",
    "setnx KEY VALUE",
    "setex KEY TTL VALUE",
    "psetex KEY PTTL VALUE",
    "getset KEY VALUE",
    "getdel KEY",
    "getex KEY",
    "getex KEY persist",
    "getex KEY ex TTL",
    "getex KEY px PTTL",
    "getex KEY exat UNIX",
    "getex KEY pxat PUNIX",
    "getex KEY ex",
    "getex KEY nx",
    "mget KEY KEY KEY",
    "mget KEY",
    "mset KEY VALUE KEY VALUE",
    "mset KEY",
    "mset KEY VALUE KEY",
    "msetnx KEY VALUE KEY VALUE",
    "append KEY VALUE",
    "append KEY VALUE",
    "strlen KEY",
    "getrange KEY NUMBER NUMBER",
    "substr KEY NUMBER NUMBER",
    "setrange KEY OFFSET VALUE",
    "setrange KEY NUMBER VALUE",
    "incr KEY",
    "decr KEY",
    "incrby KEY NUMBER",
    "decrby KEY NUMBER",
    "incrbyfloat KEY FLOAT",
    "incrbyfloat KEY x",
    "lcs KEY KEY len",
    "setbit KEY OFFSET BIT",
    "setbit KEY NUMBER BIT",
    "getbit KEY OFFSET",
    "getbit KEY NUMBER",
    "bitcount KEY",
    "bitcount KEY NUMBER NUMBER",
    "bitcount KEY NUMBER NUMBER bit",
    "bitcount KEY NUMBER NUMBER byte",
    "bitcount KEY NUMBER",
    "bitcount KEY 1 2 bad",
    "set KEY VALUE nx",
    "set KEY VALUE xx",
    "set KEY VALUE get",
    "set KEY VALUE xx get",
    "set KEY VALUE nx get",
    "set KEY VALUE keepttl",
    "set KEY VALUE ex TTL",
    "set KEY VALUE px PTTL get",
    "set KEY VALUE exat LATER",
    "set KEY VALUE pxat PLATER nx",
    "set KEY VALUE nx xx",
    "set KEY VALUE ex",
    "set KEY VALUE ex 10 px 10",
    "set KEY VALUE bad",
    "set KEY",
    "get",
    "get KEY KEY",
    "del KEY",
    "del KEY KEY KEY",
    "unlink KEY",
    "exists KEY KEY KEY",
    "touch KEY KEY",
    "expire KEY TTL",
    "pexpire KEY PTTL",
    "expireat KEY UNIX",
    "pexpireat KEY PUNIX",
    "expire KEY TTL nx",
    "expire KEY TTL xx",
    "expire KEY TTL gt",
    "expire KEY TTL lt",
    "expire KEY TTL xx gt",
    "expire KEY TTL nx xx",
    "expire KEY TTL gt lt",
    "expire KEY TTL bad",
    "persist KEY",
    "type KEY",
    "rename KEY KEY",
    "renamenx KEY KEY",
    "copy KEY KEY",
    "copy KEY KEY replace",
    "copy KEY KEY db 0",
    "copy KEY KEY db 1",
    "copy KEY KEY db",
    "dbsize",
    "ping",
    "ping VALUE",
    "ping a b",
    "echo VALUE",
    "echo",
    "select 0",
    "select 77",
    "select x",
    "swapdb 0 1",
    "swapdb x 1",
    "swapdb 0 0",
    "swapdb 0 x",
    "wait 0 0",
    "wait x 0",
    "wait 0 x",
    "wait 0 -1",
    "multi",
    "multi",
    "exec",
    "exec",
    "exec",
    "discard",
    "watch KEY",
    "watch KEY KEY",
    "unwatch",
    "foo",
    "foo VALUE bar",
    "getfoo KEY",
    "client",
    "client foo",
    "client getname",
    "client setname x",
    "client setname",
    "client getredir",
    "client reply on",
    "client reply bad",
    "client no-evict off",
    "config",
    "config foo",
    "object",
    "object foo KEY",
    "object refcount missing",
    "object freq missing",
    "slowlog len",
    "latency latest",
    "latency reset",
    "hello 9",
    "hello x",
    "hello 2 bad",
    "auth a",
    "auth a b",
    "auth a b c",
    "scan x",
    "scan 0 count 0",
    "scan 0 count x",
    "scan 0 bad 1",
    "scan 0 match",
    "command getkeys get a",
    "command getkeys mset a 1 b 2",
    "command getkeys ping",
    "command getkeys foo bar",
    "memory usage missing",
    "flushall bad",
    "reset",
];

/// Forms of commands whose replies tell the time, and by how much they may differ.
const ABOUT: &[(&str, i64)] =
    &[("ttl KEY", 1), ("pttl KEY", 3000), ("expiretime KEY", 1), ("pexpiretime KEY", 3000), ("ttl KEY", 1)];

fn command(random: &mut StdRng) -> Command {
    let (form, comparison) = match random.random_range(0..100) {
        0..12 => {
            let (form, most) = *ABOUT.choose(random).unwrap();
            (form, Comparison::About(most))
        }
        12..14 => ("keys PATTERN", Comparison::Unordered),
        14..16 => ("SCAN-ALL", Comparison::Unordered),
        16 => ("randomkey", Comparison::Any),
        17 => ("flushall", Comparison::Exact),
        18 => ("lcs KEY KEY idx", Comparison::Exact),
        19 => ("lcs KEY KEY idx withmatchlen minmatchlen 2", Comparison::Exact),
        20 => ("lcs KEY KEY", Comparison::Exact),
        21 => ("time", Comparison::Any),
        _ => (*EXACT.choose(random).unwrap(), Comparison::Exact),
    };
    Command { words: of(random, form), comparison }
}
