//! Readers of an owner in another process: no lie, no torn value, nothing older than what was read before, no miss of
//! what lasts.

use super::{
    fabric,
    owner::{KEYS, KEYS_LASTING, Owner, turn_of},
};
use minos_engine::remote::{
    Completion, Fabric, Range, RemoteRead, RemoteSketch, RemoteTable, Step,
    rig::{MICRO_SHARD, NOW, PEER},
};
use minos_fabric::ucx::Way;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Reads under way at a time.
const READERS: u64 = 32;
/// Time for reads that find something.
const PATIENCE: Duration = Duration::from_secs(120);
const READS: u64 = 200_000;
/// Reads of an owner that must answer them itself.
const READS_TWO_SIDED: u64 = 2000;
/// Attempts after which a reader asks the owner.
const ATTEMPTS_MAX: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    found: u64,
    missing: u64,
    retried: u64,
    asked: u64,
    wrong: u64,
}

/// A reader, and the lowest turn that it may find.
#[derive(Default)]
struct Reader {
    read: RemoteRead,
    key: u64,
    least: u64,
    attempts: u32,
}

/// Some reads over a fabric, of keys in turn.
struct Reading<'a, F> {
    fabric: &'a mut F,
    table: RemoteTable,
    /// The latest turn that was found, by key.
    latest: Vec<u64>,
    begun: u64,
    counts: Counts,
}

impl<'a, F: Fabric> Reading<'a, F> {
    fn new(fabric: &'a mut F) -> Self {
        let header = one(fabric, RemoteSketch::HEADER);
        let sketch = RemoteSketch::of(&header).unwrap();
        let saved = one(fabric, sketch.saved_range());
        let table = sketch.table(&saved).unwrap();
        Self { fabric, table, latest: vec![0; KEYS as usize], begun: 0, counts: Counts::default() }
    }

    fn begin(&mut self, reader: &mut Reader, token: u64) {
        self.begun += 1;
        (reader.key, reader.attempts) = (self.begun % KEYS, 0);
        reader.least = self.latest[reader.key as usize];
        let key = reader.key.to_le_bytes();
        let Step::Need(ranges) = reader.read.begin(&self.table, MICRO_SHARD, &key, NOW) else {
            panic!("nothing was read yet")
        };
        self.fabric.read(PEER, ranges, token);
    }

    /// True if the read has ended.
    fn go_on(&mut self, reader: &mut Reader, token: u64, words: &[u64]) -> bool {
        match reader.read.step(&mut self.table, words) {
            Step::Need(ranges) => {
                self.fabric.read(PEER, ranges, token);
                return false;
            }
            Step::Found => {
                let mut found = Vec::new();
                reader.read.copy_value_to(&mut found);
                self.found(reader, &found);
            }
            Step::Missing => {
                self.counts.missing += 1;
                self.counts.wrong += u64::from(reader.key >= KEYS_LASTING);
            }
            Step::Retry if reader.attempts < ATTEMPTS_MAX => {
                (reader.attempts, self.counts.retried) = (reader.attempts + 1, self.counts.retried + 1);
                if let Step::Need(ranges) = reader.read.again(&self.table) {
                    self.fabric.read(PEER, ranges, token);
                    return false;
                }
                self.counts.asked += 1;
            }
            Step::Retry | Step::AskOwner => self.counts.asked += 1,
        }
        true
    }

    fn found(&mut self, reader: &Reader, found: &[u8]) {
        self.counts.found += 1;
        match turn_of(reader.key, found).filter(|&turn| turn >= reader.least) {
            Some(turn) => {
                let latest = &mut self.latest[reader.key as usize];
                *latest = turn.max(*latest);
            }
            None => self.counts.wrong += 1,
        }
    }

    fn read(&mut self, reads: u64) -> Counts {
        self.counts = Counts::default();
        let mut readers: Vec<Reader> = (0..READERS).map(|_| Reader::default()).collect();
        readers.iter_mut().zip(0..).for_each(|(reader, token)| self.begin(reader, token));
        let mut under_way = READERS;
        while under_way > 0 {
            for (token, words) in ended(self.fabric) {
                let reader = &mut readers[token as usize];
                if !self.go_on(reader, token, &words) {
                    continue;
                }
                let Counts { found, missing, asked, .. } = self.counts;
                if found + missing + asked + under_way > reads {
                    under_way -= 1;
                } else {
                    self.begin(reader, token);
                }
            }
        }
        self.counts
    }
}

fn ended(fabric: &mut impl Fabric) -> Vec<(u64, Vec<u64>)> {
    let mut ended = Vec::new();
    fabric.poll(|Completion { token, words }| ended.push((token, words.unwrap().to_vec())));
    ended
}

fn one(fabric: &mut impl Fabric, range: Range) -> Vec<u64> {
    fabric.read(PEER, &[range], u64::MAX);
    loop {
        if let Some((_, words)) = ended(fabric).pop() {
            return words;
        }
    }
}

#[test]
fn answers_beside_another_process_are_true() {
    for way in [Way::Get, Way::Load] {
        let mut owner = Owner::start();
        let mut fabric = fabric(&owner.advertisement, way);
        let is_one_sided = fabric.is_mapped(PEER);
        let mut reading = Reading::new(&mut fabric);
        let (reads, begun) = (if is_one_sided { READS } else { READS_TWO_SIDED }, Instant::now());
        // On a busy machine all may meet a writer that has no processor.
        loop {
            let counts = reading.read(reads);
            println!("{way:?} {counts:?}");
            assert_eq!(counts.wrong, 0, "{counts:?}");
            if [counts.found, counts.missing, counts.retried].into_iter().all(|count| count > 100) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{counts:?}");
        }
        if !is_one_sided {
            continue;
        }
        // Its memory stays, with what it had begun.
        owner.kill();
        let counts = reading.read(1000);
        println!("killed: {counts:?}");
        assert_eq!(counts.wrong, 0, "{counts:?}");
        assert!(counts.found + counts.asked > 0);
    }
}

/// A control: the second look shows what the first one did.
#[test]
fn a_fabric_that_repeats_the_first_look_is_found() {
    let owner = Owner::start();
    let mut fabric = Repeating { inner: fabric(&owner.advertisement, Way::Get), looks: HashMap::new() };
    let counts = Reading::new(&mut fabric).read(READS);
    println!("{counts:?}");
    assert!(counts.wrong > 0, "{counts:?}");
}

/// By token: the ranges of a look, what it showed, and whether it is shown again.
type Looks = HashMap<u64, (Vec<Range>, Vec<u64>, bool)>;

struct Repeating<F> {
    inner: F,
    looks: Looks,
}

impl<F: Fabric> Fabric for Repeating<F> {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        let is_look = ranges.len() == 3;
        match self.looks.get_mut(&token) {
            Some((seen, words, is_again)) if is_look && seen == ranges && !words.is_empty() => {
                *is_again = true
            }
            _ if is_look => _ = self.looks.insert(token, (ranges.to_vec(), Vec::new(), false)),
            _ => {}
        }
        self.inner.read(peer, ranges, token);
    }

    fn poll(&mut self, mut done: impl FnMut(Completion<'_>)) {
        let looks = &mut self.looks;
        self.inner.poll(|Completion { token, words }| {
            let is_look = |ranges: &[Range]| {
                words
                    .is_some_and(|words| words.len() == ranges.iter().map(|range| range.words).sum::<usize>())
            };
            match looks.remove(&token) {
                Some((_, seen, true)) => return done(Completion { token, words: Some(&seen) }),
                Some((ranges, seen, false)) if seen.is_empty() && is_look(&ranges) => {
                    let seen = words.unwrap_or_default().to_vec();
                    looks.insert(token, (ranges, seen, false));
                }
                Some(look) => _ = looks.insert(token, look),
                None => {}
            }
            done(Completion { token, words });
        });
    }
}
