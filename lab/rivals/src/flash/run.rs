//! The process of a contestant: jobs come by standard input.

use super::{
    job::{Job, Outcome, Plan, Run},
    peers::{self, Key, Store},
    usage::{Usage, peak_bytes},
};
use crate::workload::{Ranks, key, load_order};
use anyhow::{Context, Result, ensure};
use minos_base::seeded_stream;
use rand::{RngExt, rngs::StdRng};
use rustix::{
    fs::{Advice, fadvise, syncfs},
    process::{Signal, set_parent_process_death_signal},
};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

/// Keys of a vector while all items are stored.
const LOAD_WIDTH: usize = 32;
/// Byte of a value between its key and its end.
const FILLING: u8 = b'm';

/// Works on jobs until standard input ends.
pub(crate) fn serve() -> Result<()> {
    // A process that stands still would outlive its parent.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut lines = io::stdin().lines();
    let plan: Plan = serde_json::from_str(&lines.next().context("no plan came")??)?;
    fs::create_dir_all(&plan.folder)?;
    let mut store = peers::open(&plan)?;
    for line in lines {
        let outcome = match serde_json::from_str(&line?)? {
            Job::Load => load(store.as_mut(), &plan)?,
            Job::Run(run) => {
                forget_pages(&plan.folder)?;
                Loop::new(store.as_mut(), &plan, run).measure()?
            }
        };
        writeln!(io::stdout(), "{}", serde_json::to_string(&outcome)?)?;
    }
    Ok(())
}

/// The value of a key: it begins and ends with the key.
fn value(key: &Key, bytes: usize) -> Vec<u8> {
    let mut value = vec![FILLING; bytes];
    value[..key.len()].copy_from_slice(key);
    value[bytes - key.len()..].copy_from_slice(key);
    value
}

fn is_value(key: &Key, value: &[u8], bytes: usize) -> bool {
    value.len() == bytes && value.starts_with(key) && value.ends_with(key)
}

/// Stores all items, and waits until nothing is written any more.
fn load(store: &mut dyn Store, plan: &Plan) -> Result<Outcome> {
    let before = Usage::now()?;
    let mut all = load_order(plan.items);
    for _ in 0..plan.items.div_ceil(LOAD_WIDTH as u64) {
        let keys: Vec<Key> = all.by_ref().take(LOAD_WIDTH).collect();
        put(store, &keys, plan.value_bytes)?;
    }
    store.settle()?;
    outcome(&before, Outcome { puts: plan.items, ..Outcome::default() })
}

fn put(store: &mut dyn Store, keys: &[Key], value_bytes: usize) -> Result<()> {
    let items: Vec<_> = keys.iter().map(|key| (*key, value(key, value_bytes))).collect();
    store.put_many(&items)
}

/// The counts, and what was used for them since `before`.
fn outcome(before: &Usage, counts: Outcome) -> Result<Outcome> {
    let after = Usage::now()?;
    Ok(Outcome {
        seconds: (after.at - before.at).as_secs_f64(),
        processor_s: after.processor_s - before.processor_s,
        read_bytes: after.read_bytes - before.read_bytes,
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        peak_bytes: peak_bytes()?,
        ..counts
    })
}

/// Takes a contestant's files out of the kernel's memory, for those that do not bypass it.
fn forget_pages(folder: &Path) -> Result<()> {
    syncfs(File::open(folder)?)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_pages(&entry.path())?;
        } else if let (true, Ok(file)) = (kind.is_file(), File::open(entry.path())) {
            // A file that is gone already was an old one of a compaction.
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// A closed loop of vectors.
struct Loop<'a> {
    store: &'a mut dyn Store,
    run: Run,
    value_bytes: usize,
    ranks: Ranks,
    random: StdRng,
    counts: Outcome,
}

impl<'a> Loop<'a> {
    fn new(store: &'a mut dyn Store, plan: &Plan, run: Run) -> Self {
        let ranks = Ranks::new(run.mix.popularity, plan.items);
        let random = seeded_stream(run.seed, run.width as u64);
        Self { store, run, value_bytes: plan.value_bytes, ranks, random, counts: Outcome::default() }
    }

    /// Runs for a quarter of the time, then for the time that counts.
    fn measure(mut self) -> Result<Outcome> {
        self.until(Duration::from_secs_f64(self.run.seconds / 4.0))?;
        self.counts = Outcome::default();
        let before = Usage::now()?;
        self.until(Duration::from_secs_f64(self.run.seconds))?;
        outcome(&before, self.counts)
    }

    fn until(&mut self, duration: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < duration {
            let keys: Vec<Key> =
                (0..self.run.width).map(|_| key(self.ranks.draw(&mut self.random))).collect();
            if self.random.random_range(0..100) < self.run.mix.get_percent {
                self.get(&keys)?;
            } else {
                put(self.store, &keys, self.value_bytes)?;
                self.counts.puts += keys.len() as u64;
            }
        }
        Ok(())
    }

    fn get(&mut self, keys: &[Key]) -> Result<()> {
        let (value_bytes, mut found, mut wrong) = (self.value_bytes, 0, 0);
        self.store.get_many(keys, &mut |at, value| {
            found += 1;
            wrong += u64::from(!is_value(&keys[at], value, value_bytes));
        })?;
        ensure!(wrong == 0, "{wrong} of {} values are not what was stored", keys.len());
        self.counts.gets += keys.len() as u64;
        self.counts.found += found;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flash::job::Peer,
        workload::{Mix, Popularity},
    };
    use std::collections::HashMap;

    /// A table in memory, which may damage what it returns.
    #[derive(Default)]
    struct Table {
        items: HashMap<Key, Vec<u8>>,
        damages: bool,
        loses: bool,
    }

    impl Store for Table {
        fn get_many(&mut self, keys: &[Key], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
            for (at, key) in keys.iter().enumerate() {
                let mut value = self.items[key].clone();
                value[0] ^= u8::from(self.damages);
                if !(self.loses && at == 0) {
                    found(at, &value);
                }
            }
            Ok(())
        }

        fn put_many(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
            self.items.extend(items.iter().cloned());
            Ok(())
        }

        fn settle(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn loaded() -> (Table, Plan) {
        let plan = Plan {
            peer: Peer::MinosStore,
            folder: "unused".into(),
            items: 1000,
            value_bytes: 64,
            memory_bytes: 0,
        };
        let mut table = Table::default();
        let outcome = load(&mut table, &plan).expect("a table");
        assert_eq!((outcome.puts, table.items.len()), (1000, 1000));
        (table, plan)
    }

    fn measured(table: &mut Table, plan: &Plan) -> Result<Outcome> {
        let mix = Mix { popularity: Popularity::Zipf, get_percent: 90 };
        Loop::new(table, plan, Run { mix, width: 4, seconds: 0.05, seed: 1 }).measure()
    }

    #[test]
    fn gets_and_puts_are_counted() {
        let (mut table, plan) = loaded();
        let outcome = measured(&mut table, &plan).expect("no damage");
        assert!(outcome.found == outcome.gets && outcome.puts > 0 && outcome.gets > outcome.puts);
        assert!(outcome.seconds >= 0.05 && outcome.rate() > 0.0);
        table.loses = true;
        let outcome = measured(&mut table, &plan).expect("no damage");
        assert_eq!(outcome.found, outcome.gets / 4 * 3);
    }

    #[test]
    fn a_wrong_value_is_an_error() {
        let (mut table, plan) = loaded();
        table.damages = true;
        let error = measured(&mut table, &plan).expect_err("damaged");
        assert!(error.to_string().contains("4 of 4 values"), "{error}");
    }
}
