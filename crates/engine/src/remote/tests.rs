//! Whatever a remote read answers was true, and the owner's, at some instant while it ran: over a simulated fabric
//! whose lines are of different instants, and over mapped memory beside the real engine.

mod history;
mod mapped;
mod simulated;

use super::{Completion, Fabric, Range, RemoteRead, RemoteSketch, RemoteTable, Safeguard, Step, without};
use crate::{cache_mode::CacheMode, store_mode::StoreMode};
use history::History;
use mapped::Beside;
use minos_base::{Seconds, seeded_stream};
use rand::{Rng, RngExt};
use simulated::{Ground, Simulated};

const NOW: Seconds = 5;
const MICRO_SHARD: u32 = 3;
const PEER: usize = 0;
/// Reads under way at a time.
const READERS: u64 = 4;
/// Attempts after which a reader asks the owner.
const ATTEMPTS_MAX: u32 = 4;

/// A fabric, and an owner that changes the memory behind it.
trait Rig: Fabric {
    /// The instant after all that was done.
    fn now(&self) -> u64;
    fn keys(&self) -> usize;
    fn key(&self, number: usize) -> [u8; 8];
    fn history(&self) -> &History;

    /// Ends the reads that can end, after the owner has done something.
    fn ended(&mut self) -> Vec<(u64, Option<Vec<u64>>)> {
        let mut ended = Vec::new();
        self.poll(|Completion { token, words }| ended.push((token, words.map(<[u64]>::to_vec))));
        ended
    }

    /// Reads while nobody else does.
    fn read_alone(&mut self, range: Range) -> Vec<u64> {
        self.read(PEER, &[range], u64::MAX);
        loop {
            if let Some((_, words)) = self.ended().pop() {
                return words.unwrap();
            }
        }
    }

    fn attach(&mut self) -> RemoteTable {
        let header = self.read_alone(RemoteSketch::HEADER);
        let sketch = RemoteSketch::of(&header).unwrap();
        let saved = self.read_alone(sketch.saved_range());
        sketch.table(&saved).unwrap()
    }
}

/// How often each answer was given.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    found: u64,
    missing: u64,
    retried: u64,
    asked: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.missing += other.missing;
        self.retried += other.retried;
        self.asked += other.asked;
    }
}

/// A reader, and what it reads.
#[derive(Default)]
struct Reader {
    read: RemoteRead,
    key: usize,
    began: u64,
    attempts: u32,
}

/// What happened to a read with a step.
enum Outcome {
    UnderWay,
    Ended(Option<Option<Vec<u8>>>),
}

/// Reads random keys; an error if an answer was true at no instant.
fn read_all(rig: &mut impl Rig, reads: u64, random: &mut impl Rng) -> Result<Counts, String> {
    let (mut table, mut counts) = (rig.attach(), Counts::default());
    let mut readers: Vec<Reader> = (0..READERS).map(|_| Reader::default()).collect();
    for (reader, token) in readers.iter_mut().zip(0..) {
        begin(rig, &table, (reader, token), random);
    }
    while counts.found + counts.missing + counts.asked < reads {
        for (token, words) in rig.ended() {
            let reader = &mut readers[token as usize];
            let Outcome::Ended(answer) =
                go_on(rig, &mut table, (reader, token), &words.unwrap(), &mut counts)
            else {
                continue;
            };
            if let Some(answer) = answer {
                let (times, key) = (reader.began..=rig.now(), reader.key);
                if !rig.history().held(times.clone(), key, answer.as_deref()) {
                    return Err(format!("{answer:?} for key {key} was true at no instant of {times:?}"));
                }
            }
            begin(rig, &table, (reader, token), random);
        }
    }
    Ok(counts)
}

fn begin(
    rig: &mut impl Rig,
    table: &RemoteTable,
    (reader, token): (&mut Reader, u64),
    random: &mut impl Rng,
) {
    (reader.key, reader.began, reader.attempts) = (random.random_range(0..rig.keys()), rig.now(), 0);
    let key = rig.key(reader.key);
    let Step::Need(ranges) = reader.read.begin(table, MICRO_SHARD, &key, NOW) else {
        panic!("nothing was read yet")
    };
    rig.read(PEER, ranges, token);
}

fn go_on(
    rig: &mut impl Rig,
    table: &mut RemoteTable,
    (reader, token): (&mut Reader, u64),
    words: &[u64],
    counts: &mut Counts,
) -> Outcome {
    match reader.read.step(table, words) {
        Step::Need(ranges) => {
            rig.read(PEER, ranges, token);
            return Outcome::UnderWay;
        }
        Step::Found => {
            counts.found += 1;
            let mut value = Vec::new();
            reader.read.copy_value_to(&mut value);
            return Outcome::Ended(Some(Some(value)));
        }
        Step::Missing => {
            counts.missing += 1;
            return Outcome::Ended(Some(None));
        }
        Step::Retry if reader.attempts < ATTEMPTS_MAX => {}
        Step::Retry | Step::AskOwner => {
            counts.asked += 1;
            return Outcome::Ended(None);
        }
    }
    (counts.retried, reader.attempts) = (counts.retried + 1, reader.attempts + 1);
    let Step::Need(ranges) = reader.read.again(table) else { return Outcome::Ended(None) };
    rig.read(PEER, ranges, token);
    Outcome::UnderWay
}

/// Reads beside an owner for each of some seeds.
fn run<R: Rig>(new: impl Fn(u64) -> R, (seeds, reads): (u64, u64)) -> Result<Counts, String> {
    let mut sum = Counts::default();
    for seed in 0..seeds {
        let counts = read_all(&mut new(seed), reads, &mut seeded_stream(seed, 1));
        sum += counts.map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(sum)
}

fn all_answers_are_given(counts: Counts, least: u64) {
    let Counts { found, missing, retried, asked } = counts;
    assert!([found, missing, retried, asked].into_iter().all(|count| count >= least), "{counts:?}");
}

#[test]
fn answers_over_a_simulated_fabric_were_true() {
    for ground in [Ground::of_store(), Ground::of_cache()] {
        let counts = run(|seed| Simulated::new(&ground, seed), (40, 2000)).unwrap();
        println!("{counts:?}");
        all_answers_are_given(counts, 1000);
    }
}

#[test]
fn answers_beside_the_engine_were_true() {
    let counts = run(Beside::<StoreMode>::new, (8, 5000)).unwrap();
    println!("{counts:?}");
    all_answers_are_given(counts, 100);
    let counts = run(Beside::<CacheMode>::new, (3, 3000)).unwrap();
    println!("{counts:?}");
    all_answers_are_given(counts, 100);
}

#[test]
fn without_a_safeguard_answers_were_never_true() {
    let (store, cache) = (Ground::of_store(), Ground::of_cache());
    for safeguard in
        [Safeguard::Owner, Safeguard::Version, Safeguard::LogHead, Safeguard::Buckets, Safeguard::LastRound]
    {
        let ground = if safeguard == Safeguard::LogHead { &cache } else { &store };
        // Each index splits once.
        let extent = if safeguard == Safeguard::Buckets { (2000, 300) } else { (40, 2000) };
        let result = without(Some(safeguard), || run(|seed| Simulated::new(ground, seed), extent));
        println!("without {safeguard:?}: {}", result.as_ref().unwrap_err());
    }
    // Rounds are of one instant there, and every change has a version.
    let result = without(Some(Safeguard::Version), || run(Beside::<StoreMode>::new, (8, 5000)));
    println!("beside the engine: {}", result.as_ref().unwrap_err());
}

#[test]
fn any_words_are_survived() {
    any_words_of(&mut Beside::<StoreMode>::new(1));
    any_words_of(&mut Beside::<CacheMode>::new(1));
}

fn any_words_of(rig: &mut impl Rig) {
    let mut table = rig.attach();
    let (mut random, mut read) = (seeded_stream(2, 0), RemoteRead::default());
    let needed = |step: Step<'_>| match step {
        Step::Need(ranges) => Some(ranges.iter().map(|range| range.words).sum::<usize>()),
        _ => None,
    };
    for number in 0..20_000 {
        let key = rig.key(number % rig.keys());
        let mut need = needed(read.begin(&table, MICRO_SHARD, &key, NOW));
        while let Some(count) = need {
            let small = random.random_range(0..3) > 0;
            // A word that names the key's tag, or an owner, leads farther.
            let tag = u64::from(table.hash(&key).tag()) << 48;
            let mut word = |_| {
                let any = random.next_u64();
                if small { any % 66 + 64 } else { any >> 16 | tag }
            };
            let mut words: Vec<u64> = (0..count).map(&mut word).collect();
            words[0] = words[0] & !3 | 1;
            need = needed(read.step(&mut table, &words));
        }
    }
}

#[test]
fn any_header_is_survived() {
    any_header_of(&mut Beside::<StoreMode>::new(1));
    any_header_of(&mut Beside::<CacheMode>::new(1));
}

fn any_header_of(rig: &mut impl Rig) {
    let header = rig.read_alone(RemoteSketch::HEADER);
    let saved = rig.read_alone(RemoteSketch::of(&header).unwrap().saved_range());
    let (mut refused, mut opened) = (0, 0);
    let mut open = |header: &[u64], saved: &[u64]| {
        let sketch = RemoteSketch::of(header);
        match sketch.filter(|sketch| sketch.saved_range().words > 0).and_then(|sketch| sketch.table(saved)) {
            Some(mut table) => {
                let mut read = RemoteRead::default();
                _ = read.begin(&table, MICRO_SHARD, b"key", NOW);
                _ = read.step(&mut table, &[64, 0]);
                opened += 1;
            }
            None => refused += 1,
        }
    };
    let changed = |words: &[u64], at: usize, value: u64| {
        let mut words = words.to_vec();
        words[at] = value;
        words
    };
    for at in 0..saved.len().max(14) {
        for bit in 0..64 {
            let old = header[at];
            for value in [old ^ 1 << bit, 1 << bit, !0 << bit, old.wrapping_add(1 << bit)] {
                open(&changed(&header, at, value), &saved);
            }
            if at < saved.len() {
                open(&header, &changed(&saved, at, saved[at] ^ 1 << bit));
                open(&header, &changed(&saved, at, !0 << bit));
            }
        }
    }
    assert!(refused > 500 && opened > 100, "{refused} refused, {opened} opened");
}
