//! The tests in three tiers: the quick ones, the gate before each change, and the nightly ones, which take an hour.

use std::{collections::BTreeSet, fs, io, time::Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{
    clients,
    command::{Failure, Totals, cargo, root, run, run_tests, run_tests_at_once},
    deny, instructions, setup, smoke,
    suites::{self, checked},
    tidy,
};

/// Test targets that take too long for the quick tier, by name: with them it would take longer than three minutes, or
/// eight with its build. A new target belongs to the quick tier.
const LONG: [&str; 22] = [
    "above_flash",
    "bench_inproc",
    "defects",
    "domains",
    "faulty_io",
    "flash_kills",
    "idle",
    "kill",
    "memif",
    "modes",
    "native_simulation",
    "power",
    "programs",
    "rack",
    "rack_moves",
    "resp_above_flash",
    "resp_differential",
    "restart",
    "role_changes",
    "stress",
    "tracking",
    "transfers",
];

/// Those of them that run beside all others: they wait for servers most of the time, and take as long.
const WAITING: [&str; 2] = ["rack", "restart"];

/// Test targets that are not run before each change: simulators, models and figures, and what compares times.
const NIGHTLY: [&str; 9] = [
    "bench_demo",
    "cache_model",
    "closed_forms",
    "designs",
    "driver",
    "figures",
    "large_requests",
    "over_time",
    "studies",
];

struct Part {
    name: &'static str,
    /// The properties that it tests.
    shows: &'static str,
    /// The command that runs it alone.
    repeat: &'static str,
    /// The folder of its own builds, below that of the project.
    builds: Option<&'static str>,
    run: fn(&mut Totals) -> anyhow::Result<()>,
}

const QUICK: [Part; 3] = [
    Part {
        name: "tidy",
        shows: "paths in docs, the direction of dependencies, lengths of functions",
        repeat: "cargo xtask tidy",
        builds: None,
        run: |totals| checked(totals, || tidy::run(false, false)),
    },
    Part {
        name: "tests",
        shows: "the quick tests of all crates",
        repeat: "cargo xtask test",
        builds: None,
        run: run_quick_tests,
    },
    Part {
        name: "examples",
        shows: "the examples in the crates' documentation",
        repeat: "cargo test --workspace --doc",
        builds: None,
        run: |totals| run_tests(&mut cargo(&["test", "--workspace", "--no-fail-fast", "--doc"]), totals),
    },
];

const GATE: [Part; 9] = [
    Part {
        name: "long",
        shows: "the long tests of all crates",
        repeat: "cargo xtask gate",
        builds: None,
        run: run_long_tests,
    },
    Part {
        name: "racks",
        shows: "ten thousand racks in virtual time",
        repeat: "cargo xtask simulate rack --seeds 1740",
        builds: None,
        run: suites::racks,
    },
    Part {
        name: "namespaces",
        shows: "server and client with a cable between them",
        repeat: "cargo xtask namespaces",
        builds: None,
        run: suites::namespaces,
    },
    Part {
        name: "python",
        shows: "the client for Python",
        repeat: "cargo xtask clients",
        builds: Some("target/python"),
        run: clients::python,
    },
    Part {
        name: "loom",
        shows: "models of locks, rings and versions",
        repeat: "cargo xtask loom",
        builds: Some("target/loom"),
        run: suites::loom,
    },
    Part {
        name: "control",
        shows: "tests that must fail without a part of the program",
        repeat: "cargo xtask control",
        builds: None,
        run: |totals| checked(totals, suites::control),
    },
    Part {
        name: "instructions",
        shows: "instructions of the engine's and the client's operations",
        repeat: "cargo xtask instructions",
        builds: None,
        run: |totals| checked(totals, instructions::compare),
    },
    Part {
        name: "tsan",
        shows: "data races",
        repeat: "cargo xtask tsan",
        builds: Some("target/tsan"),
        run: suites::tsan,
    },
    Part {
        name: "asan",
        shows: "accesses out of bounds",
        repeat: "cargo xtask asan",
        builds: Some("target/asan"),
        run: suites::asan,
    },
];

const NIGHTLY_PARTS: [Part; 7] = [
    Part {
        name: "deny",
        shows: "licences, sources and advisories of the dependencies",
        repeat: "cargo xtask deny",
        builds: None,
        run: |totals| checked(totals, deny::check),
    },
    Part {
        name: "smoke",
        shows: "the release build, driven by its own bench",
        repeat: "cargo xtask smoke",
        builds: None,
        run: |totals| checked(totals, smoke::run),
    },
    Part {
        name: "nightly",
        shows: "simulators, models and figures",
        repeat: "cargo xtask nightly",
        builds: None,
        run: run_nightly_tests,
    },
    Part {
        name: "more",
        shows: "more kills, losses and seeds than in the gate",
        repeat: "cargo xtask nightly",
        builds: None,
        run: suites::more,
    },
    Part {
        name: "tsan",
        shows: "data races, also in the server and in tests that take long",
        repeat: "cargo xtask tsan",
        builds: Some("target/tsan"),
        run: suites::tsan_and_server,
    },
    Part {
        name: "asan",
        shows: "accesses out of bounds, also in the server and in tests that take long",
        repeat: "cargo xtask asan",
        builds: Some("target/asan"),
        run: suites::asan_and_server,
    },
    Part {
        name: "fuzz",
        shows: "parsers, from their seeds on",
        repeat: "cargo xtask fuzz",
        builds: Some("fuzz/target"),
        run: |totals| checked(totals, || suites::fuzz(suites::FUZZ_SECONDS)),
    },
];

/// Runs the quick tier.
pub(crate) fn test(totals: &mut Totals) -> anyhow::Result<()> {
    run_all("test", &QUICK, false, totals)
}

/// Runs the gate: what must hold before each change, beside the quick tier. If it `is_lean`, a part's own builds are
/// removed behind it.
pub(crate) fn gate(is_lean: bool, totals: &mut Totals) -> anyhow::Result<()> {
    run_all("gate", &GATE, is_lean, totals)
}

/// Runs what both leave out.
pub(crate) fn nightly(is_lean: bool, totals: &mut Totals) -> anyhow::Result<()> {
    run_all("nightly", &NIGHTLY_PARTS, is_lean, totals)
}

/// Runs all parts, even after a failure, so that one run shows every fault.
fn run_all(tier: &str, parts: &[Part], is_lean: bool, totals: &mut Totals) -> anyhow::Result<()> {
    setup::install()?;
    let begin = Instant::now();
    let mut took = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let (number, of, seconds) = (index + 1, parts.len(), begin.elapsed().as_secs());
        println!("\n=== {number} of {of}: {}, {} ({totals}, {seconds} s)", part.name, part.shows);
        let (known, begin) = (totals.failures.len(), Instant::now());
        totals.times.begin_part(part.name);
        if let Err(error) = (part.run)(totals) {
            eprintln!("xtask: {}: {error:#}", part.name);
            if totals.failures.len() == known {
                totals.failures.push(Failure::of(part.repeat, &format!("{error:#}")));
            }
        }
        took.push((part.name, begin.elapsed().as_secs()));
        if is_lean {
            remove_builds(part)?;
        }
    }
    totals.write(tier)?;
    println!("\nThe slowest tests:\n{}\nThe parts:", totals.times.slowest());
    took.iter().for_each(|(name, seconds)| println!("{seconds:6} s  {name}"));
    println!("{:6} s  all of {tier}\n{}", begin.elapsed().as_secs(), totals.summary());
    ensure!(totals.failures.is_empty(), "what failed, and how to repeat it:\n{}", totals.failed());
    Ok(())
}

fn remove_builds(part: &Part) -> anyhow::Result<()> {
    let Some(builds) = part.builds else { return Ok(()) };
    match fs::remove_dir_all(root().join(builds)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context(builds),
        _ => Ok(()),
    }
}

/// A file of integration tests, by the name of its package and its own.
type Target = (String, String);

/// The files of integration tests of all crates, without those that `cargo xtask ucx` runs.
fn test_targets() -> anyhow::Result<Vec<Target>> {
    let output =
        cargo(&["metadata", "--no-deps", "--format-version=1"]).output().context("cannot run cargo")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| Some(value["name"].as_str()?.to_owned());
    let of_package = |package: Value| {
        let needs_ucx = |target: &Value| list(&target["required-features"]).contains(&"ucx".into());
        let is_test = |target: &Value| target["kind"][0] == "test" && !needs_ucx(target);
        let tests = list(&package["targets"]).into_iter().filter(is_test);
        let targets: Vec<_> = tests.filter_map(|target| Some((name(&package)?, name(&target)?))).collect();
        targets
    };
    Ok(list(&metadata["packages"]).into_iter().flat_map(of_package).collect())
}

/// Builds the quick tests, then runs those of the program, which wait for servers, beside all others.
fn run_quick_tests(totals: &mut Totals) -> anyhow::Result<()> {
    let targets = test_targets()?;
    let [others, program] = quick_tests(&targets);
    build_and_run([[UNITS, &others].concat(), program], totals)
}

/// Builds the long tests, then runs [`WAITING`] beside all others.
fn run_long_tests(totals: &mut Totals) -> anyhow::Result<()> {
    build_and_run(long_tests(), totals)
}

fn run_nightly_tests(totals: &mut Totals) -> anyhow::Result<()> {
    let chosen = NIGHTLY.into_iter().flat_map(|name| ["--test", name]);
    run_tests(&mut cargo(&[TESTS, &chosen.collect::<Vec<_>>()].concat()), totals)
}

/// Builds what both arguments choose, then runs both at once. All of the workspace is built, so that its features, and
/// so its libraries, are always the same.
fn build_and_run(chosen: [Vec<&str>; 2], totals: &mut Totals) -> anyhow::Result<()> {
    run(cargo(&[TESTS, &chosen.concat()].concat()).arg("--no-run"))?;
    run_tests_at_once(chosen.map(|chosen| cargo(&[TESTS, &chosen].concat())), totals, &mut io::stdout())
}

const TESTS: &[&str] = &["test", "--workspace", "--no-fail-fast"];

/// The arguments that choose the tests within the sources.
const UNITS: &[&str] = &["--lib", "--bins", "--examples"];

/// The arguments that choose those of `targets` that are not long: the other crates', and the program's.
fn quick_tests(targets: &[Target]) -> [Vec<&str>; 2] {
    [false, true].map(|is_program| {
        let quick = targets.iter().filter(|(package, target)| {
            let is_quick = !LONG.contains(&target.as_str()) && !NIGHTLY.contains(&target.as_str());
            (package == "minos") == is_program && is_quick
        });
        // Crates have targets of the same name.
        let names: BTreeSet<_> = quick.map(|(_, target)| target.as_str()).collect();
        names.into_iter().flat_map(|name| ["--test", name]).collect()
    })
}

/// The arguments that choose the long tests but [`WAITING`], and those.
fn long_tests() -> [Vec<&'static str>; 2] {
    [false, true].map(|waits| {
        let names = LONG.into_iter().filter(|name| WAITING.contains(name) == waits);
        names.flat_map(|name| ["--test", name]).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test targets that arguments of cargo name.
    fn named<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        let pairs = arguments.windows(2).filter(|pair| pair[0] == "--test");
        pairs.map(|pair| pair[1]).collect()
    }

    #[test]
    fn every_test_target_is_run_once() {
        let targets = test_targets().unwrap();
        assert!(targets.len() > LONG.len() + NIGHTLY.len());
        let ([others, program], long) = (quick_tests(&targets), long_tests().concat());
        let (others, program) = (named(&others), named(&program));
        let long = [&named(&long)[..], &NIGHTLY].concat();
        for (package, target) in &targets {
            let (name, is_program) = (target.as_str(), package == "minos");
            let quick = if is_program { &program } else { &others };
            assert!(quick.contains(&name) != long.contains(&name), "{name}");
            // Cargo runs every target of a name.
            let has_name = |list: &[&str]| list.contains(&name);
            assert!(!(has_name(&others) && has_name(&program)), "{name}");
        }
        for name in long {
            assert_eq!(targets.iter().filter(|(_, target)| target == name).count(), 1, "{name}");
        }
    }
}
