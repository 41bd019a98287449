//! Damage to single bytes of a region's file after a clean close.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use crate::{
    campaign::alone,
    script::{Script, THREADS, key_bytes, keys, mix},
    subject::{Restart, Subject},
    verdict::{Baseline, History, Progress},
};

/// Steps of each thread's script before the region is closed.
const STEPS: u64 = 1500;
const ROUND: u64 = 1;

/// The results of opening damaged regions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    /// Refused.
    pub(crate) refused: u64,
    /// Opened without the data.
    pub(crate) emptied: u64,
    /// Opened, with only correct values.
    pub(crate) harmless: u64,
    /// Opened, and served a value that was never written.
    pub(crate) served_wrong: u64,
}

/// Closes a filled region, changes a byte below `bytes_max`, and checks the values served then; repeats this
/// `rounds` times.
pub(crate) fn damage<S: Subject>(seed: u64, rounds: u64, bytes_max: u64) -> Outcomes {
    let _alone = alone();
    let mut outcomes = Outcomes::default();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        let path = folder.path().join(format!("{round}"));
        fill::<S>(&path);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let random = mix(seed ^ mix(round));
        let at = random % file.metadata().unwrap().len().min(bytes_max);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << (random >> 60 & 7))], at).unwrap();
        drop(file);
        match S::open(&path) {
            Err(_) => outcomes.refused += 1,
            Ok((_, Restart::New | Restart::Emptied { .. })) => outcomes.emptied += 1,
            Ok((subject, _)) if serves_right(&subject) => outcomes.harmless += 1,
            Ok(_) => outcomes.served_wrong += 1,
        }
        std::fs::remove_file(&path).unwrap();
    }
    outcomes
}

fn fill<S: Subject>(path: &Path) {
    let subject = S::open(path).unwrap().0;
    for thread in 0..THREADS {
        let script = Script { round: ROUND, thread };
        (0..STEPS).for_each(|number| subject.execute(ROUND, &script.step(number)));
    }
    subject.close();
}

fn serves_right<S: Subject>(subject: &S) -> bool {
    let (baseline, progress) = (Baseline::new(), Progress { done: STEPS, is_in_step: false });
    let history = History::new(ROUND, &baseline, &[progress; THREADS as usize]);
    keys().all(|key| subject.get(&key_bytes(key)).is_none_or(|value| history.check(key, &value).is_ok()))
}
