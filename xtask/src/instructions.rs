//! Instructions of each operation of the engine and of the client's core, counted by callgrind and compared with
//! a record.
//!
//! Unlike times, they are the same on a busy machine. They do not include cache misses.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{
    command::{root, run},
    suites::cargo_apart,
};

const RECORD: &str = "xtask/instructions.txt";
const HEAD: &str = "\
# Instructions of one operation on 8 + 8 bytes: mode, access mode, operation. The hash of the key is not in them.
# In those of the client's core it is; these go from the request to its outcome, without system calls.
# Kept by `cargo xtask instructions --bless`; more than 5 % above this fails. Who raises a number gives a reason
# (`--bless --raise --reason TEXT`), which stands above it from then on.
";
/// The tolerated increase over the record, in percent.
const TOLERANCE_PERCENT: f64 = 5.0;
/// The target instruction set, fixed so that the record does not depend on the machine.
pub(crate) const FLAGS: &str = "-C target-cpu=x86-64-v3";
/// The function to which callgrind limits its counts.
const FUNCTION: &str = "*measured_operations";
/// The empty loop, which is subtracted from all other counts.
const NOTHING: &str = "nothing";

/// The crates whose bench `instructions` is counted.
const CRATES: [&str; 2] = ["minos-engine", "minos-client"];

/// How to treat the record.
#[derive(clap::Args, Debug)]
pub(crate) struct InstructionsOptions {
    /// Record counts that are lower or new
    #[arg(long)]
    bless: bool,
    /// With --bless: record higher counts too
    #[arg(long, requires = "bless", requires = "reason")]
    raise: bool,
    /// Reason why they are higher
    #[arg(long, requires = "raise")]
    reason: Option<String>,
}

/// Counts, and compares with the record, or updates it.
pub(crate) fn check(options: &InstructionsOptions) -> anyhow::Result<()> {
    let counted = count()?;
    let path = root().join(RECORD);
    let mut record =
        if path.exists() { Record::parse(&fs::read_to_string(&path)?)? } else { Record::default() };
    let faults = record.faults(&counted);
    show(&record, &counted);
    if options.bless {
        if options.raise || !faults.iter().any(|fault| fault.is_more) {
            record.bless(&counted, options.reason.as_deref());
            return fs::write(&path, record.to_text()).context(RECORD);
        }
        bail!("{}\nto write that down: --bless --raise --reason TEXT", texts(&faults));
    }
    ensure!(
        faults.is_empty(),
        "{}\nmake it less; or, if it is worth it: cargo xtask instructions --bless --raise --reason TEXT",
        texts(&faults)
    );
    Ok(())
}

/// Compares only, as in the tests.
pub(crate) fn compare() -> anyhow::Result<()> {
    check(&InstructionsOptions { bless: false, raise: false, reason: None })
}

/// Instructions of one operation, by its name.
pub(crate) type Counts = BTreeMap<String, f64>;

fn count() -> anyhow::Result<Counts> {
    let mut counts = Counts::new();
    for name in CRATES {
        counts.append(&mut count_crate(name)?);
    }
    Ok(counts)
}

fn count_crate(name: &str) -> anyhow::Result<Counts> {
    count_program(&build(name, &[])?, |_| ())
}

/// The counts of a program, which runs with what `prepare` sets.
pub(crate) fn count_program(program: &str, prepare: impl FnOnce(&mut Command)) -> anyhow::Result<Counts> {
    let folder = root().join("target/instructions/counts");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let names = folder.join("names");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind"]);
    valgrind.arg(format!("--callgrind-out-file={}", folder.join("part").display()));
    valgrind.args([format!("--toggle-collect={FUNCTION}"), format!("--dump-after={FUNCTION}")]);
    prepare(&mut valgrind);
    run(valgrind.arg(program).stdout(fs::File::create(&names)?))?;
    // One part for each name, in order.
    let summaries = (1..).map(|part| summary(&folder.join(format!("part.{part}"))));
    per_operation(&fs::read_to_string(names)?, summaries)
}

/// Instructions in one part of callgrind's output.
fn summary(path: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary:"));
    line.and_then(|count| count.trim().parse().ok()).with_context(|| format!("no sum in {}", path.display()))
}

/// Subtracts the empty loop, and divides by the number of operations.
fn per_operation(
    names: &str,
    summaries: impl Iterator<Item = anyhow::Result<u64>>,
) -> anyhow::Result<Counts> {
    let mut counts = Counts::new();
    for (line, summary) in names.lines().zip(summaries) {
        let (name, operations) = line.split_once(' ').with_context(|| format!("no number in {line:?}"))?;
        counts.insert(name.to_owned(), summary? as f64 / operations.parse::<f64>()?);
    }
    let nothing = counts.remove(NOTHING).context("the empty loop is missing")?;
    ensure!(!counts.is_empty(), "nothing was counted");
    for (name, count) in &mut counts {
        *count = ((*count - nothing) * 10.0).round() / 10.0;
        ensure!(*count > 0.0, "{name} takes no instructions: it was not counted");
    }
    Ok(counts)
}

/// Builds the program that runs the operations of a crate; returns its path.
pub(crate) fn build(name: &str, options: &[&str]) -> anyhow::Result<String> {
    let arguments = ["build", "--release", "-p", name, "--bench", "instructions"];
    let mut cargo = cargo_apart("instructions", FLAGS, &[&arguments[..], options].concat());
    run(&mut cargo)?;
    // The same command again builds nothing, but prints the path of the program.
    let output = cargo.arg("--message-format=json").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = messages.filter_map(|message| Some(message["executable"].as_str()?.to_owned())).next_back();
    program.context("cargo names no program")
}

/// Prints every count beside the recorded one.
fn show(record: &Record, counted: &Counts) {
    for (name, &count) in counted {
        match record.0.get(name) {
            Some(kept) => {
                let change = 100.0 * (count / kept.count - 1.0);
                println!("{name:28} {count:8.1}  {:8.1} written down, {change:+.1} %", kept.count);
            }
            None => println!("{name:28} {count:8.1}  not written down"),
        }
    }
}

struct Fault {
    /// True if it takes more than is allowed; false if the record does not fit.
    is_more: bool,
    text: String,
}

fn texts(faults: &[Fault]) -> String {
    faults.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// The recorded counts by name.
#[derive(Debug, Default, PartialEq)]
struct Record(BTreeMap<String, Kept>);

#[derive(Debug, Default, PartialEq)]
struct Kept {
    count: f64,
    /// The reason of each increase so far.
    reasons: Vec<String>,
}

impl Record {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (mut kept, mut reasons) = (BTreeMap::new(), Vec::new());
        for line in text.strip_prefix(HEAD).unwrap_or(text).lines() {
            if let Some(reason) = line.strip_prefix("# ") {
                reasons.push(reason.to_owned());
                continue;
            }
            let count = line.split_once(' ').and_then(|(name, count)| Some((name, count.parse().ok()?)));
            let (name, count) = count.with_context(|| format!("{RECORD}: {line:?}"))?;
            kept.insert(name.to_owned(), Kept { count, reasons: std::mem::take(&mut reasons) });
        }
        Ok(Self(kept))
    }

    fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (name, Kept { count, reasons }) in &self.0 {
            reasons.iter().for_each(|reason| text.push_str(&format!("# {reason}\n")));
            text.push_str(&format!("{name} {count:.1}\n"));
        }
        text
    }

    /// Counts that are too high, not recorded, or no longer taken.
    fn faults(&self, counted: &Counts) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (name, count) in counted {
            match self.0.get(name) {
                None => faults.push(Fault { is_more: false, text: format!("{name} is not written down") }),
                Some(kept) if *count > kept.count * (1.0 + TOLERANCE_PERCENT / 100.0) => {
                    let text = format!("{name} takes {count:.1} instructions, {:.1} are allowed", kept.count);
                    faults.push(Fault { is_more: true, text });
                }
                Some(_) => {}
            }
        }
        let gone = self.0.keys().filter(|name| !counted.contains_key(*name));
        faults
            .extend(gone.map(|name| Fault { is_more: false, text: format!("{name} is no longer counted") }));
        faults
    }

    /// Records new counts. An increase within the tolerance is not recorded, lest counts creep up.
    fn bless(&mut self, counted: &Counts, reason: Option<&str>) {
        self.0.retain(|name, _| counted.contains_key(name));
        for (name, &count) in counted {
            let kept = self.0.entry(name.clone()).or_insert(Kept { count, reasons: Vec::new() });
            if let Some(reason) = reason.filter(|_| count > kept.count) {
                kept.reasons.push(format!("from {:.1} to {count:.1}: {reason}", kept.count));
                kept.count = count;
            }
            kept.count = kept.count.min(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, f64)]) -> Counts {
        list.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn what_takes_more_is_noticed() {
        let record = Record::parse("a 100.0\nb 10.0\n").unwrap();
        assert!(record.faults(&counts(&[("a", 105.0), ("b", 1.0)])).is_empty());
        assert_eq!(texts(&record.faults(&counts(&[("a", 105.1), ("b", 10.0)]))).lines().count(), 1);
        // One is no longer counted, the other was never recorded.
        let faults = record.faults(&counts(&[("a", 100.0), ("c", 1.0)]));
        assert!(faults.len() == 2 && faults.iter().all(|fault| !fault.is_more));
    }

    #[test]
    fn raising_keeps_its_reasons() {
        let mut record = Record::default();
        record.bless(&counts(&[("a", 100.0), ("b", 10.0)]), None);
        record.bless(&counts(&[("a", 104.0), ("b", 9.0)]), None);
        assert_eq!(record.to_text(), format!("{HEAD}a 100.0\nb 9.0\n"));
        record.bless(&counts(&[("a", 120.0), ("b", 9.0)]), Some("it counts hits"));
        let text = format!("{HEAD}# from 100.0 to 120.0: it counts hits\na 120.0\nb 9.0\n");
        assert_eq!(record.to_text(), text);
        assert_eq!(Record::parse(&text).unwrap(), record);
        assert!(Record::parse("a\n").is_err());
    }

    #[test]
    fn the_empty_loop_is_taken_off() {
        let sums = || [200, 4_200, 300].map(Ok).into_iter();
        let counted = per_operation("nothing 100\na.get 100\nb.get 100\n", sums()).unwrap();
        assert_eq!(counted, counts(&[("a.get", 40.0), ("b.get", 1.0)]));
        // Nothing to subtract, nothing counted, or a case without a count.
        assert!(per_operation("a.get 100\nb.get 100\n", sums()).is_err());
        assert!(per_operation("nothing 100\n", sums()).is_err());
        assert!(per_operation("nothing 100\na.get 100\n", [200, 200].map(Ok).into_iter()).is_err());
    }
}
