//! Readers beside an owner that changes what they read, to test any [`Fabric`]: each answer must have been true, and the
//! owner's, at some instant while the read ran.

mod beside;
mod history;

use super::{Completion, Fabric, Range, RemoteRead, RemoteSketch, RemoteTable, Step};
pub use beside::Beside;
pub use history::{History, Truth};
use minos_base::{Seconds, seeded_stream};
use rand::{Rng, RngExt};

/// The table's time, which stands still.
pub const NOW: Seconds = 5;
/// The micro-shard of all keys that are read.
pub const MICRO_SHARD: u32 = 3;
/// The peer that is read.
pub const PEER: usize = 0;
/// Reads under way at a time.
const READERS: u64 = 4;
/// Attempts after which a reader asks the owner.
const ATTEMPTS_MAX: u32 = 4;

/// A fabric, and an owner that changes the memory behind it.
pub trait Rig: Fabric {
    /// The instant after all that was done.
    fn now(&self) -> u64;
    /// Number of keys that are read.
    fn keys(&self) -> usize;
    /// The key of a number.
    fn key(&self, number: usize) -> [u8; 8];
    /// What was true when.
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

    /// The table that is read, before anything was learned of its indexes.
    fn attach(&mut self) -> RemoteTable {
        let header = self.read_alone(RemoteSketch::HEADER);
        let sketch = RemoteSketch::of(&header).unwrap();
        let saved = self.read_alone(sketch.saved_range());
        sketch.table(&saved).unwrap()
    }
}

/// How often each answer was given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Values.
    pub found: u64,
    /// Misses.
    pub missing: u64,
    /// Attempts after the first of a read.
    pub retried: u64,
    /// Reads that ended with the owner's name.
    pub asked: u64,
}

impl Counts {
    /// # Panics
    /// Some answer was given less often than that.
    pub fn are_at_least(self, least: u64) {
        let Self { found, missing, retried, asked } = self;
        assert!([found, missing, retried, asked].into_iter().all(|count| count >= least), "{self:?}");
    }
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

/// Reads random keys.
///
/// # Errors
/// An answer was true at no instant.
pub fn read_all(rig: &mut impl Rig, reads: u64, random: &mut impl Rng) -> Result<Counts, String> {
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

/// As [`read_all`], for each of some seeds.
///
/// # Errors
/// As [`read_all`].
pub fn run<R: Rig>(new: impl Fn(u64) -> R, (seeds, reads): (u64, u64)) -> Result<Counts, String> {
    let mut sum = Counts::default();
    for seed in 0..seeds {
        let counts = read_all(&mut new(seed), reads, &mut seeded_stream(seed, 1));
        sum += counts.map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(sum)
}
