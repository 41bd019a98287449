//! The runs of the gate beside the ordinary tests, each with what must fail beside what must pass.

use std::{
    collections::BTreeSet,
    fs, io,
    path::PathBuf,
    process::{Command, Output},
    sync::Mutex,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};

use crate::{
    command::{Totals, cargo, root, run, run_tests, run_tests_at_once},
    setup,
};

/// Sanitizers need a target of their own, so that build scripts are spared.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The crates with unsafe code below the server, the store, devices and ports.
const UNSAFE_CRATES: &[&str] =
    &["-pminos-sync", "-pminos-region", "-pminos-engine", "-pminos-device", "-pminos-net"];
/// In the names of tests that would touch gigabytes of what a sanitizer keeps beside the memory.
const HUGE_TESTS: &str = "65536";
/// In the names of tests that take half of the sanitizers' time, and run under them at night only.
const NIGHTLY_TESTS: &[&str] = &[
    // One thread, or several that a model takes steps for.
    "model::",
    "remote::tests",
    "chains::",
    "a_reader_survives_any_damage",
    // Threads that read as those of other tests do.
    "crcw_readers_of_an_lru",
    "read_only_readers_of_a_store",
];
/// The server's tests that need nothing but the server. Named within the workspace, because with `-p` dependencies
/// would have other features, and be built once more.
const SERVER_TESTS: [&str; 9] = [
    "test",
    "--workspace",
    "--test",
    "limits",
    "--test",
    "linearizability",
    "--test",
    "product",
    "--no-fail-fast",
];
const FUZZ_TARGETS: [&str; 13] = [
    "memcache_parse",
    "memcache_packet",
    "memcache_execute",
    "memcache_reply",
    "resp_execute",
    "resp_reply",
    "resp_request",
    "native_request",
    "native_reply",
    "native_serve",
    "flash_format",
    "acl_file",
    "frame",
];
/// Instrumentation that libFuzzer steers by, as cargo-fuzz would set it.
const FUZZ_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing";
/// Seconds for each fuzz target at night.
pub(crate) const FUZZ_SECONDS: u32 = 20;

/// Counts a run that is no cargo test as one.
pub(crate) fn checked(totals: &mut Totals, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let result = check();
    totals.count_check(result.is_ok());
    result
}

/// Cargo with a target folder of its own, so that builds of other kinds do not push each other out.
pub(crate) fn cargo_apart(folder: &str, flags: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.env("CARGO_TARGET_DIR", root().join("target").join(folder)).env("RUSTFLAGS", flags);
    command
}

/// The models of the lock, the ring, the versions and the pins, with the controls among them.
pub(crate) fn loom(totals: &mut Totals) -> anyhow::Result<()> {
    let arguments = ["test", "--release", "-p", "minos-sync", "--lib", "loom"];
    run_tests(&mut cargo_apart("loom", "--cfg loom", &arguments), totals)
}

/// A part left out of the program, and the tests that must notice: the file, and the start of their names.
struct Control {
    left_out: &'static str,
    file: &'static str,
    tests: &'static str,
}

const CONTROLS: [Control; 10] = [
    // Readers do not look whether a writer came between. An owner that alone reads has nobody to come between.
    Control { left_out: "version-check", file: "stress", tests: "read" },
    // Workers do not give lent connections back.
    Control {
        left_out: "hand-back",
        file: "role_changes",
        tests: "every_request_is_answered_once_and_in_order",
    },
    // Requests are not handed to the owners of partitions.
    Control { left_out: "owner", file: "role_changes", tests: "only_owners" },
    // Changes are acknowledged before they are durable.
    Control { left_out: "hold", file: "above_flash", tests: "survive_a_power_loss" },
    Control { left_out: "hold", file: "native_above_flash", tests: "survive_a_power_loss" },
    // Followers are told of no changes.
    Control { left_out: "followers", file: "rack", tests: "a_stopped_node_is_replaced" },
    // Nodes tell others of no changes.
    Control { left_out: "telling", file: "rack", tests: "redis::tracking::clients_are_told" },
    // Clients are not told that another node was not heard.
    Control { left_out: "hearing", file: "rack", tests: "redis::tracking::what_a_lost_node" },
    // What changes while a micro-shard is copied is not copied again.
    Control { left_out: "notes", file: "rack_moves", tests: "what_is_written" },
    // Items on flash do not move.
    Control { left_out: "cold", file: "rack", tests: "flash::cold_items_move" },
];

/// Controls that run at a time.
const CONTROLS_AT_ONCE: usize = 2;
/// All of the workspace is built, so that its features, and so its libraries, are those of other tests.
const CONTROLLED: &[&str] = &["test", "--workspace"];
const ALIVE: &str = "no thread of the controls panics";

/// Runs the tests of each control without the part that they are there for: all of them must fail.
pub(crate) fn control() -> anyhow::Result<()> {
    let files: BTreeSet<_> = CONTROLS.iter().map(|control| control.file).collect();
    let files: Vec<_> = files.into_iter().flat_map(|file| ["--test", file]).collect();
    run(cargo(&[CONTROLLED, &files].concat()).arg("--no-run"))?;
    // They wait for servers most of the time. All run even if one passes, so that one run shows every control that does.
    let (left, wrong) = (Mutex::new(CONTROLS.iter()), Mutex::new(Vec::new()));
    let run_some = || {
        while let Some(control) = { left.lock().expect(ALIVE).next() } {
            if let Err(error) = control.must_fail() {
                wrong.lock().expect(ALIVE).push(format!("{error:#}"));
            }
        }
    };
    thread::scope(|scope| (0..CONTROLS_AT_ONCE).for_each(|_| drop(scope.spawn(run_some))));
    let wrong = wrong.into_inner().expect(ALIVE);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

impl Control {
    fn must_fail(&self) -> anyhow::Result<()> {
        let Self { left_out, file, tests } = self;
        let output =
            output(cargo(&[CONTROLLED, &["--test", file, tests]].concat()).env("MINOS_LEFT_OUT", left_out))?;
        let text = text(&output);
        ensure!(
            !output.status.success() && text.contains("test result: FAILED. 0 passed"),
            "the control {left_out} passed, so a test sees nothing:\n{text}"
        );
        println!("without {left_out} the tests of {file} failed, as they must");
        Ok(())
    }
}

/// The arguments that leave out tests with one of these in their names.
fn skip<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["--skip", name]).collect()
}

/// Data races, without [`NIGHTLY_TESTS`].
pub(crate) fn tsan(totals: &mut Totals) -> anyhow::Result<()> {
    tsan_without(NIGHTLY_TESTS, totals)
}

/// The standard library is not built for it, so its own hand-overs are named as harmless.
fn tsan_without(left_out: &[&str], totals: &mut Totals) -> anyhow::Result<()> {
    let options = tsan_options()?;
    let tests = |arguments: &[&str]| {
        let mut command = TSAN.cargo(&[&["test"], TSAN.crates, arguments].concat());
        command.env("TSAN_OPTIONS", &options);
        command
    };
    // All at once, because another choice of crates has other features, and is built once more.
    run(TSAN.crates().args(["--test", "quick", "--no-run"]))?;
    // The last one hands over by the standard library's own scopes alone, the others have one thread and take minutes.
    let skipped = [
        HUGE_TESTS,
        "tests::heap",
        "tests::rebuild",
        "tests::restart",
        "observer::tests",
        "remote::tests",
        "tiered::model",
        "tiered::tests::an_",
        "snapshot::target",
    ];
    let one_by_one = [&["--", "--test-threads=1"], &skip(&skipped)[..], &skip(left_out)].concat();
    let units = ["--lib", "--test", "lanes", "--test", "threads"];
    let both = [&units[..], &["--test", "stress"]].map(|which| tests(&[which, &one_by_one].concat()));
    run_tests_at_once(both, totals, &mut io::stdout())?;
    run_tests(&mut tests(&["--test", "quick", "operations::"]), totals)?;
    let race = ["--lib", "control_a_race", "--", "--ignored"];
    let race = text(&output(&mut tests(&race))?);
    ensure!(race.contains("ThreadSanitizer: data race"), "a race on purpose was not reported:\n{race}");
    Ok(())
}

/// Those of the crates, and those of the server.
pub(crate) fn tsan_and_server(totals: &mut Totals) -> anyhow::Result<()> {
    let of_crates = tsan_without(&[], totals);
    let mut tests = TSAN.server_tests();
    TSAN.test_server(of_crates, tests.env("TSAN_OPTIONS", tsan_options()?), totals)
}

fn tsan_options() -> anyhow::Result<String> {
    Ok(format!("halt_on_error=1 suppressions={}", suppressions()?.display()))
}

/// A sanitizer of the compiler.
struct Sanitizer {
    /// The target folder of its builds.
    folder: &'static str,
    flags: &'static str,
    /// The crates, and their files of tests, that have something to show under it.
    crates: &'static [&'static str],
    tests: &'static [&'static str],
}

/// Tests of one thread would take ten times as long under it, and have nothing to show.
const TSAN: Sanitizer = Sanitizer {
    folder: "tsan",
    flags: "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
    // The tier has no unsafe code, but threads that agree on when a segment may be used again.
    crates: &["-pminos-sync", "-pminos-region", "-pminos-engine", "-pminos-device", "-pminos-tier"],
    tests: &["--test", "stress", "--test", "lanes", "--test", "threads"],
};
const ASAN: Sanitizer = Sanitizer {
    folder: "asan",
    flags: "-Zsanitizer=address",
    crates: UNSAFE_CRATES,
    tests: &["--test", "quick", "--test", "stress", "--test", "lanes"],
};

impl Sanitizer {
    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = cargo_apart(self.folder, self.flags, arguments);
        command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_BUILD_TARGET", TARGET);
        command
    }

    /// The tests of the crates.
    fn crates(&self) -> Command {
        self.cargo(&[&["test"], self.crates, &["--lib"], self.tests].concat())
    }

    /// The build of the server without its laboratory, which would take a minute more. That it can be left out is
    /// among the tests.
    fn server(&self) -> Command {
        self.cargo(&["build", "-p", "minos", "--no-default-features"])
    }

    /// The server's tests, as they are, against [`Self::server`].
    fn server_tests(&self) -> Command {
        let server = root().join("target").join(self.folder).join(TARGET).join("debug/minos");
        let mut command = cargo(&SERVER_TESTS);
        command.env("MINOS_TEST_SERVER", server);
        command
    }

    /// Builds the server and runs its tests, whatever came of those of the crates.
    fn test_server(
        &self,
        of_crates: anyhow::Result<()>,
        tests: &mut Command,
        totals: &mut Totals,
    ) -> anyhow::Result<()> {
        let of_crates =
            of_crates.inspect_err(|error| eprintln!("xtask: {}, the crates: {error:#}", self.folder));
        run(&mut self.server())?;
        run_tests(tests, totals).and(of_crates)
    }
}

/// Suppressions for ThreadSanitizer, which takes one file; the reasons stand in several.
fn suppressions() -> anyhow::Result<PathBuf> {
    let mut text = String::new();
    for name in ["crates/engine/tsan.supp", "xtask/tsan-server.supp"] {
        text.push_str(&fs::read_to_string(root().join(name)).context(name)?);
    }
    let path = root().join("target/tsan.supp");
    fs::write(&path, text)?;
    Ok(path)
}

/// Accesses out of bounds and after the end of what was accessed, without [`NIGHTLY_TESTS`].
pub(crate) fn asan(totals: &mut Totals) -> anyhow::Result<()> {
    asan_without(NIGHTLY_TESTS, totals)
}

fn asan_without(left_out: &[&str], totals: &mut Totals) -> anyhow::Result<()> {
    run_tests(ASAN.crates().args(["--", "--skip", HUGE_TESTS]).args(skip(left_out)), totals)
}

/// Those in the crates, and those in the server.
pub(crate) fn asan_and_server(totals: &mut Totals) -> anyhow::Result<()> {
    let of_crates = asan_without(&[], totals);
    ASAN.test_server(of_crates, &mut ASAN.server_tests(), totals)
}

/// Cargo under AddressSanitizer.
pub(crate) fn cargo_under_asan(arguments: &[&str]) -> Command {
    ASAN.cargo(arguments)
}

/// Each parser, from its seeds on, for `seconds`.
pub(crate) fn fuzz(seconds: u32) -> anyhow::Result<()> {
    let mut build = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", TARGET]);
    // The folder named in fuzz/README.md, wherever the outer build puts its own.
    build.env("CARGO_TARGET_DIR", root().join("fuzz/target"));
    run(build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FUZZ_FLAGS))?;
    for target in FUZZ_TARGETS {
        let found = root().join("fuzz/artifacts").join(target);
        fs::create_dir_all(&found)?;
        let program = root().join("fuzz/target").join(TARGET).join("release").join(target);
        let mut fuzzer = Command::new(program);
        fuzzer.arg(format!("-max_total_time={seconds}")).args(["-max_len=4096", "-timeout=10"]);
        fuzzer.args(["-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"]);
        fuzzer.arg(format!("-artifact_prefix={}/", root().join("fuzz/artifacts").display()));
        run(fuzzer.arg(&found).arg(root().join("fuzz/corpus").join(target)))?;
    }
    Ok(())
}

/// Server and client with a cable between them. Says so where namespaces are forbidden, and then shows nothing.
pub(crate) fn namespaces(totals: &mut Totals) -> anyhow::Result<()> {
    let tests = ["test", "--workspace", "--test", "native_namespaces", "--"];
    // One after another: each has a server and a client of its own.
    run_tests(
        &mut cargo(&[&tests[..], &["--include-ignored", "--nocapture", "--test-threads=1"]].concat()),
        totals,
    )
}

/// Processes killed at random points of their writes to a region, and what is served afterwards.
pub(crate) fn kill(rounds: u64, seed: u64, totals: &mut Totals) -> anyhow::Result<()> {
    let mut tests = cargo(&["test", "--release", "-p", "minos-engine", "--test", "kill"]);
    // The children are among the ignored ones: without orders they do nothing.
    tests.args(["--", "--nocapture", "--include-ignored"]);
    tests.env("MINOS_KILL_ROUNDS", rounds.to_string()).env("MINOS_KILL_SEED", seed.to_string());
    run_tests(&mut tests, totals)
}

/// What is simulated in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Simulated {
    /// The native protocol over a network
    Native,
    /// The log on flash
    Flash,
    /// The store above it
    Tier,
    /// A rack: nodes, coordinator, moves and copies
    Rack,
}

/// Runs of these parts, or of all, from `seed` on.
pub(crate) fn simulate(
    parts: &[Simulated],
    (seeds, seed): (u64, u64),
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let parts = if parts.is_empty() { <Simulated as clap::ValueEnum>::value_variants() } else { parts };
    let end = seed.saturating_add(seeds);
    parts.iter().try_for_each(|part| {
        (seed..end).step_by(SEEDS_AT_ONCE as usize).try_for_each(|seed| {
            let seeds = SEEDS_AT_ONCE.min(end - seed);
            let mut tests = match part {
                Simulated::Native => native_simulation(seeds, seed),
                Simulated::Flash => flash_simulation(seeds, seed),
                // A run of this one is as long as fifty of the others.
                Simulated::Tier => tier_simulation(seeds.div_ceil(50), seed),
                Simulated::Rack => rack_simulation(seeds, seed),
            };
            run_tests(&mut tests, totals)
        })
    })
}

/// Runs of a test that take minutes: one that is silent for longer counts as hung.
const SEEDS_AT_ONCE: u64 = 10_000;

/// Clients and servers of the native protocol, and a network that loses, repeats, delays and corrupts.
fn native_simulation(seeds: u64, seed: u64) -> Command {
    let mut tests = cargo(&["test", "--release", "-p", "minos-node", "--test", "native_simulation"]);
    tests.args(["--", "--nocapture"]);
    tests.env("MINOS_SIMULATION_SEEDS", seeds.to_string()).env("MINOS_SIMULATION_SEED", seed.to_string());
    tests
}

/// A store and a cache above a device that loses power and fails.
fn tier_simulation(seeds: u64, seed: u64) -> Command {
    let mut tests = cargo(&["test", "--release", "-p", "minos-tier", "--test", "power"]);
    tests.env("MINOS_TIER_SEEDS", seeds.to_string()).env("MINOS_TIER_SEED", seed.to_string());
    tests
}

/// A rack whose nodes die, move and come back. Of `seeds` the eight tests make 5.75 runs each: some take every second
/// or fourth.
fn rack_simulation(seeds: u64, seed: u64) -> Command {
    let mut tests = cargo(&["test", "--release", "-p", "minos-unit", "--lib", "--"]);
    tests.args(RACKS).env("MINOS_UNIT_SEEDS", seeds.to_string()).env("MINOS_UNIT_SEED", seed.to_string());
    tests
}

/// Ten thousand runs of it, built as the quick tests are, which make a tenth of them.
pub(crate) fn racks(totals: &mut Totals) -> anyhow::Result<()> {
    let mut tests = cargo(&["test", "--workspace", "--lib", "--"]);
    run_tests(tests.args(RACKS).env("MINOS_UNIT_SEEDS", "1740"), totals)
}

/// The racks of which no safeguard is switched off, as the controls' are.
const RACKS: [&str; 3] = ["simulation::a_", "simulation::an_", "simulation::followers_"];

/// A log on a disk that loses power, fails and lies.
fn flash_simulation(seeds: u64, seed: u64) -> Command {
    let mut tests = cargo(&["test", "--release", "-p", "minos-flash", "--lib", "simulation"]);
    tests.env("MINOS_FLASH_SEEDS", seeds.to_string()).env("MINOS_FLASH_SEED", seed.to_string());
    tests
}

/// Counts for the tests of [`more`], twice those of the gate or more.
const MORE: [(&str, &str); 8] = [
    ("MINOS_KILLS", "200"),
    ("MINOS_RACK_COPIES", "12"),
    ("MINOS_RACK_KILLS", "24"),
    ("MINOS_RACK_LOSSES", "8"),
    ("MINOS_RACK_MOVES", "12"),
    ("MINOS_RACK_STOPS", "12"),
    ("MINOS_ROLE_CHANGES_SEEDS", "6"),
    ("MINOS_SIMULATION_SEEDS", "1000"),
];

/// Tests of the gate with more kills, losses of nodes, changes of roles, and seeds.
pub(crate) fn more(totals: &mut Totals) -> anyhow::Result<()> {
    let files = ["flash_kills", "native_simulation", "rack", "role_changes"];
    let files = files.iter().flat_map(|file| ["--test", file]);
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    run_tests(tests.args(files).envs(MORE), totals)
}

/// Sequences that were never tried before, against memcached, role changes under load, the log on flash and a rack, until
/// the time is over.
pub(crate) fn soak(minutes: u64, totals: &mut Totals) -> anyhow::Result<()> {
    setup::install()?;
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).context("before 1970")?.as_secs() * 1000;
    const SEQUENCES: u64 = 1000;
    const ROLE_CHANGES_SEEDS: u64 = 20;
    while Instant::now() < end {
        let mut tests =
            cargo(&["test", "-p", "minos", "--test", "differential", "--test", "linearizability"]);
        tests.env("MINOS_DIFFERENTIAL_SEED", seed.to_string());
        tests.env("MINOS_DIFFERENTIAL_SEQUENCES", SEQUENCES.to_string());
        run_tests(&mut tests, totals)?;
        let mut tests = cargo(&["test", "-p", "minos-node", "--test", "role_changes"]);
        tests.env("MINOS_ROLE_CHANGES_SEED", seed.to_string());
        tests.env("MINOS_ROLE_CHANGES_SEEDS", ROLE_CHANGES_SEEDS.to_string());
        run_tests(&mut tests, totals)?;
        run_tests(&mut flash_simulation(SEQUENCES, seed), totals)?;
        run_tests(&mut rack_simulation(SEQUENCES, seed), totals)?;
        seed += SEQUENCES;
    }
    println!("{}", totals.summary());
    Ok(())
}

fn output(command: &mut Command) -> anyhow::Result<Output> {
    match command.output() {
        Ok(output) => Ok(output),
        Err(error) => bail!("cannot run cargo: {error}"),
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of node whose types ThreadSanitizer is to let be.
    fn named(suppressions: &str) -> Vec<PathBuf> {
        let modules = suppressions.lines().filter_map(|line| line.strip_prefix("race:minos_node::"));
        let path = |module: &str| module.rsplit_once("::").map_or("", |(path, _)| path).replace("::", "/");
        modules.map(|module| root().join(format!("crates/node/src/{}.rs", path(module)))).collect()
    }

    #[test]
    fn suppressions_name_files_that_are_there() {
        let text = fs::read_to_string(root().join("xtask/tsan-server.supp")).unwrap();
        let files = named(&text);
        assert!(files.len() > 1 && files.iter().all(|file| file.exists()), "{files:?}");
        // A control: the path of a file that was moved.
        assert!(!named("race:minos_node::registry::Regist")[0].exists());
    }
}
