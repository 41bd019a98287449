//! The process that is killed, and its record of progress.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use crate::{
    script::{Script, THREADS},
    subject::Subject,
    verdict::Progress,
};

/// The environment variable with a child's orders.
const ORDERS: &str = "MINOS_KILL_CHILD";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Starting,
    Opening,
    Running,
    Closing,
    Closed,
}

const PHASES: [Phase; 5] = [Phase::Starting, Phase::Opening, Phase::Running, Phase::Closing, Phase::Closed];

/// A file of words that outlives the child: its phase, and a word for each thread. With n steps done the word
/// is 2n, and 2n + 1 within the next step.
///
/// One system call writes a word, before and after each step.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn create(path: &Path) -> Self {
        let log =
            Self(File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap());
        (0..=THREADS).for_each(|word| log.write(word, 0));
        log
    }

    fn write(&self, word: u64, value: u64) {
        self.0.write_all_at(&value.to_le_bytes(), word * 8).unwrap();
    }

    fn read(&self, word: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, word * 8).unwrap();
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn phase(&self) -> Phase {
        PHASES[self.read(0) as usize % PHASES.len()]
    }

    fn enter(&self, phase: Phase) {
        self.write(0, phase as u64);
    }

    pub(crate) fn progress(&self) -> Vec<Progress> {
        let of = |word| Progress { done: word / 2, is_in_step: word % 2 == 1 };
        (1..=THREADS).map(|thread| of(self.read(thread))).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) subject: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) round: u64,
    /// Steps of each thread before it closes.
    pub(crate) steps: u64,
}

impl Orders {
    pub(crate) fn spawn(&self) -> Child {
        let Self { subject, path, log, round, steps } = self;
        let orders = format!("{subject} {round} {steps} {} {}", path.display(), log.display());
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(ORDERS, orders)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// Runs the child's orders if they are for `S`.
pub(crate) fn obey<S: Subject>() {
    let orders = std::env::var(ORDERS).unwrap_or_default();
    let words: Vec<_> = orders.split(' ').collect();
    let [subject, round, steps, path, log] = words[..] else { return };
    if subject == S::NAME {
        live::<S>(Path::new(path), Path::new(log), round.parse().unwrap(), steps.parse().unwrap());
    }
}

fn live<S: Subject>(path: &Path, log: &Path, round: u64, steps: u64) {
    let log = Log(File::options().read(true).write(true).open(log).unwrap());
    log.enter(Phase::Opening);
    let (subject, _) = S::open(path).unwrap();
    log.enter(Phase::Running);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (subject, log) = (&subject, &log);
            scope.spawn(move || work(subject, log, Script { round, thread }, steps));
        }
    });
    log.enter(Phase::Closing);
    subject.close();
    log.enter(Phase::Closed);
}

fn work<S: Subject>(subject: &S, log: &Log, script: Script, steps: u64) {
    for number in 0..steps {
        let step = script.step(number);
        log.write(script.thread + 1, number * 2 + 1);
        subject.execute(script.round, &step);
        log.write(script.thread + 1, number * 2 + 2);
    }
}
