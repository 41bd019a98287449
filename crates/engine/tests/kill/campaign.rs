//! Rounds that start a child, kill it, reopen its data and check the values.

use std::{
    collections::BTreeMap,
    fmt, fs,
    marker::PhantomData,
    path::{Path, PathBuf},
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    child::{Log, Orders, Phase},
    script::{key_bytes, keys, mix},
    subject::{Restart, Subject},
    verdict::{Baseline, History},
};

/// Steps that no child completes before it is killed.
const STEPS_ENDLESS: u64 = 1 << 40;
/// Steps of a child that closes by itself.
const STEPS_OF_CLOSING: u64 = 300;
/// Time after which a child that has not reached its place counts as stuck. No result depends on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The phase in which to kill a child, and the delay after it is reached, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Plan {
    phase: Phase,
    delay_us: u64,
}

impl Plan {
    fn new(random: u64) -> Self {
        let (phase, most_us) = match random % 16 {
            0..2 => (Phase::Opening, 2000),
            2..11 => (Phase::Running, 6000),
            11..14 => (Phase::Closing, 2000),
            _ => (Phase::Closed, 1),
        };
        // Makes long and short delays equally frequent.
        let most_us = most_us >> (mix(random) % 7);
        Self { phase, delay_us: mix(random + 1) % (most_us + 1) }
    }

    fn steps(self) -> u64 {
        if self.phase > Phase::Running { STEPS_OF_CLOSING } else { STEPS_ENDLESS }
    }
}

/// Allows one campaign at a time: a child just forked by another one would briefly hold the lock on the file
/// that this one opens.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test has children.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: u64,
    /// Rounds by the child's phase when it ended and the result of reopening.
    pub(crate) ends: BTreeMap<String, u64>,
    /// Threads that were killed within a step.
    pub(crate) cut_steps: u64,
    /// Correct values served.
    pub(crate) served: u64,
    /// Values of these served from tables that had not been closed.
    pub(crate) served_unclosed: u64,
    /// Values that were not served although they were not deleted.
    pub(crate) lost: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, ends, cut_steps, served, served_unclosed, lost } = self;
        write!(f, "{rounds} rounds, {cut_steps} steps cut short, {served} values served and right, ")?;
        write!(f, "{served_unclosed} of them after a kill, {lost} lost; {ends:?}")
    }
}

/// The rounds of one subject, each on the data that the previous one left.
pub(crate) struct Campaign<S> {
    folder: TempDir,
    seed: u64,
    baseline: Baseline,
    tally: Tally,
    subject: PhantomData<S>,
}

impl<S: Subject> Campaign<S> {
    /// Creates a campaign, on a file system in memory if there is one.
    pub(crate) fn new(seed: u64) -> Self {
        let shared = Path::new("/dev/shm");
        let folder = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        Self {
            folder: folder.unwrap(),
            seed,
            baseline: Baseline::new(),
            tally: Tally::default(),
            subject: PhantomData,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("region")
    }

    pub(crate) fn run(mut self, rounds: u64) -> Result<Tally, String> {
        let _alone = alone();
        for round in 1..=rounds {
            self.round(round).map_err(|error| format!("{} round {round}: {error}", S::NAME))?;
        }
        Ok(self.tally)
    }

    fn round(&mut self, round: u64) -> Result<(), String> {
        let random = mix(self.seed ^ mix(round));
        if random >> 60 == 0 {
            self.begin_anew();
        }
        let log = self.live_and_die(round, Plan::new(random))?;
        let (subject, restart) = S::open(&self.path())?;
        let baseline = self.inspect(round, &log, &subject, &restart)?;
        subject.check()?;
        subject.close();
        self.baseline = baseline;
        self.tally.rounds += 1;
        *self.tally.ends.entry(format!("{:?}, {restart:?}", log.phase())).or_default() += 1;
        Ok(())
    }

    fn begin_anew(&mut self) {
        let path = self.path();
        // The path may be a file, a folder, or missing.
        drop(fs::remove_file(&path));
        drop(fs::remove_dir_all(&path));
        self.baseline.clear();
    }

    fn live_and_die(&self, round: u64, plan: Plan) -> Result<Log, String> {
        let path = self.folder.path().join("log");
        let log = Log::create(&path);
        let orders = Orders { subject: S::NAME, path: self.path(), log: path, round, steps: plan.steps() };
        let mut child = orders.spawn();
        let reached = reach(&log, plan, &mut child);
        if reached.is_ok() && plan.phase < Phase::Closed {
            wait_us(plan.delay_us);
            // The child may have just ended by itself.
            drop(child.kill());
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        reached.map_err(|error| format!("{error}, the child ended with {status}"))?;
        Ok(log)
    }

    /// Checks all keys; returns the values found.
    fn inspect(&mut self, round: u64, log: &Log, subject: &S, restart: &Restart) -> Result<Baseline, String> {
        let (phase, progress) = (log.phase(), log.progress());
        self.tally.cut_steps += progress.iter().filter(|progress| progress.is_in_step).count() as u64;
        let history = History::new(round, &self.baseline, &progress);
        let is_closed = phase == Phase::Closed || *restart == Restart::Clean && phase == Phase::Closing;
        let mut there = Baseline::new();
        for key in keys() {
            let last = history.last(key);
            let must_be_there = last.is_some() && !history.may_be_deleted(key);
            let Some(value) = subject.get(&key_bytes(key)) else {
                if is_closed && !S::EVICTS && must_be_there {
                    return Err(format!("key {key} is missing after a clean close"));
                }
                self.tally.lost += u64::from(must_be_there);
                continue;
            };
            let is_right = if is_closed && last.as_ref() != Some(&value) {
                Err(format!("key {key} has not its last value after a clean close"))
            } else {
                history.check(key, &value)
            };
            is_right.map_err(|error| format!("{error}; {phase:?}, {restart:?}, {progress:?}"))?;
            self.tally.served += 1;
            self.tally.served_unclosed += u64::from(!is_closed);
            there.insert(key, value);
        }
        is_plausible(phase, restart).map(|()| there)
    }
}

/// Checks that `restart` is a possible result of reopening after an end in `phase`.
fn is_plausible(phase: Phase, restart: &Restart) -> Result<(), String> {
    let may_be = match phase {
        Phase::Starting | Phase::Opening | Phase::Closing => true,
        Phase::Running => *restart != Restart::Clean,
        Phase::Closed => *restart == Restart::Clean,
    };
    if may_be { Ok(()) } else { Err(format!("ended {phase:?} and was opened as {restart:?}")) }
}

/// Waits until the child has reached the planned place.
fn reach(log: &Log, plan: Plan, child: &mut Child) -> Result<(), String> {
    let begin = Instant::now();
    while log.phase() < plan.phase {
        if child.try_wait().is_ok_and(|status| status.is_some()) && log.phase() < plan.phase {
            return Err(format!("the child came only to {:?}", log.phase()));
        }
        if begin.elapsed() > PATIENCE {
            drop(child.kill());
            return Err(format!("the child is stuck in {:?}", log.phase()));
        }
        thread::yield_now();
    }
    Ok(())
}

/// Waits more precisely than a sleep.
fn wait_us(us: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
