//! Commands, and the count of their tests.

use std::{
    collections::{BTreeSet, VecDeque},
    env, fmt,
    io::{self, Write},
    mem,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, bail};
use minos_testkit::{SKIPPED, forget_package};

use crate::{
    times::{TestLine, Times, ask_for_times},
    watched::{LINGER_MAX, SILENCE_MAX, Seen, Watched},
};

pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    let named = env::var_os("CARGO_TARGET_DIR");
    root().join(named.as_deref().map_or(Path::new("target"), Path::new))
}

/// Cargo in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    // Else a command builds other things with `cargo xtask` than without.
    forget_package(command.env_remove("RUSTFLAGS"));
    command
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    say(command);
    let status = command.status().with_context(|| format!("cannot run {}", name(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", name(command));
    }
    Ok(())
}

/// Runs a `cargo test` and adds its counts to `totals`, with the commands that repeat failed tests.
pub(crate) fn run_tests(command: &mut Command, totals: &mut Totals) -> anyhow::Result<()> {
    say(command);
    run_tests_quietly(command, totals, &mut io::stdout())
}

/// Runs two `cargo test`s of one build at once, because many tests wait more than they work. Writes the output of the
/// second to `out` after that of the first.
pub(crate) fn run_tests_at_once(
    mut commands: [Command; 2],
    totals: &mut Totals,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let [first, second] = &mut commands;
    let mut beside = Totals { times: totals.times.beside(), ..Totals::default() };
    let mut output = Vec::new();
    let (of_first, of_second) = thread::scope(|scope| {
        let second = scope.spawn(|| run_tests_quietly(second, &mut beside, &mut output));
        (run_tests_quietly(first, totals, out), second.join())
    });
    out.write_all(&output)?;
    totals.add(beside);
    of_first.and(of_second.unwrap_or_else(|_| bail!("the count of the tests panicked")))
}

/// Runs a `cargo test` and writes its output to `out`.
fn run_tests_quietly(command: &mut Command, totals: &mut Totals, out: &mut impl Write) -> anyhow::Result<()> {
    let mut failed = FailedTests::new(command);
    ask_for_times(command);
    let mut watched = Watched::start(command, SILENCE_MAX, LINGER_MAX)
        .with_context(|| format!("cannot run {}", name(command)))?;
    let mut is_running = false;
    loop {
        let line = match watched.next(is_running)? {
            Seen::Line(line) => line,
            Seen::End => break,
            Seen::Hung(said) => {
                writeln!(out, "{said}")?;
                totals.failed += 1;
                totals.failures.push(failed.hung(said));
                bail!("tests hung: {}", name(command));
            }
        };
        writeln!(out, "{line}")?;
        is_running = line.starts_with("running ") || is_running && !line.starts_with("test result: ");
        totals.count(&line);
        totals.times.see(&line);
        totals.see_skipped(&line);
        if let Some(failure) = failed.see(&line) {
            totals.failed += u64::from(!failure.names_tests);
            totals.failures.push(failure);
        }
    }
    let status = watched.wait()?;
    if !status.success() {
        bail!("tests failed: {}", name(command));
    }
    Ok(())
}

/// A program of tests that failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// The command that repeats its failed tests.
    pub(crate) repeat: String,
    /// Its last lines, but for tests that passed.
    said: VecDeque<String>,
    /// False if the program ended before it could name a failed test, as under a sanitizer.
    names_tests: bool,
}

impl Failure {
    /// The failure of a check other than a cargo test.
    pub(crate) fn of(repeat: &str, error: &str) -> Self {
        Self { repeat: repeat.to_owned(), said: [error.to_owned()].into(), names_tests: true }
    }
}

/// Finds the failed tests in the output of a `cargo test`.
struct FailedTests {
    /// Environment and arguments that determine the build.
    cargo: String,
    /// Failed tests of the running program.
    names: Vec<String>,
    /// What it said last.
    said: VecDeque<String>,
}

impl FailedTests {
    /// Lines of a failed program that are worth to be repeated.
    const LAST_LINES: usize = 40;

    fn new(command: &Command) -> Self {
        let arguments: Vec<_> = command.get_args().map(|part| part.to_string_lossy()).collect();
        let mut cargo = format!("{}cargo test", environment(command));
        for (index, argument) in arguments.iter().enumerate().take_while(|(_, argument)| *argument != "--") {
            match &**argument {
                "--release" => cargo.push_str(" --release"),
                "--target" => cargo.extend([" --target ", &arguments[index + 1]]),
                _ => {}
            }
        }
        Self { cargo, names: Vec::new(), said: VecDeque::new() }
    }

    /// Reads a line. Returns the failure once cargo has named the program.
    fn see(&mut self, line: &str) -> Option<Failure> {
        if let Some(TestLine { name, has_failed: true, .. }) = TestLine::parse(line) {
            self.names.push(format!("'{name}'"));
        } else if line.contains(" ... ok") {
            return None;
        } else if line.trim_start().starts_with("Running ") {
            self.said.clear();
        }
        let of_cargo =
            line.trim().strip_prefix("error: ").and_then(|rest| rest.split_once("to rerun pass `"));
        let Some((_, program)) = of_cargo else {
            self.said.push_back(line.to_owned());
            if self.said.len() > Self::LAST_LINES {
                self.said.pop_front();
            }
            return None;
        };
        let names = mem::take(&mut self.names);
        let exact = if names.is_empty() { "" } else { " -- --exact " };
        let program = program.strip_suffix('`')?;
        let repeat = format!("{} {program}{exact}{}", self.cargo, names.join(" "));
        Some(Failure { repeat, said: mem::take(&mut self.said), names_tests: !names.is_empty() })
    }

    /// The failure of a program that was ended because it hung, doing what is `said`.
    fn hung(&mut self, said: String) -> Failure {
        let mut last = mem::take(&mut self.said);
        last.push_back(said);
        Failure { repeat: self.cargo.clone(), said: last, names_tests: false }
    }
}

/// Prints the command, with the variables set for it.
fn say(command: &Command) {
    println!("+ {}{}", environment(command), name(command));
}

/// The variables set for `command`, in the syntax of a shell.
fn environment(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
    set.map(|(key, value)| format!("{}={:?} ", key.to_string_lossy(), value.to_string_lossy())).collect()
}

fn name(command: &Command) -> String {
    let arguments = command.get_args().map(|part| part.to_string_lossy());
    let words: Vec<_> = std::iter::once(command.get_program().to_string_lossy()).chain(arguments).collect();
    words.join(" ")
}

/// Passed and failed tests, over all runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
    /// Those of the passed ones that show nothing on this machine.
    skipped: BTreeSet<String>,
    /// Programs whose tests failed.
    pub(crate) failures: Vec<Failure>,
    pub(crate) times: Times,
}

impl Totals {
    /// Adds the counts of a line of `cargo test`, if it is a summary.
    fn count(&mut self, line: &str) {
        let Some((_, sums)) = line.split_once("test result: ") else { return };
        for part in sums.split([';', '.']) {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    /// Notes the test that says in this line that it shows nothing here.
    fn see_skipped(&mut self, line: &str) {
        // It may come into the line of any test, and of tests that run one by one the thread has no name of its own.
        let before = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
        let said = before.map_or(line, |(_, said)| said).strip_prefix(SKIPPED);
        let Some((thread, _)) = said.and_then(|said| said.split_once(": ")) else { return };
        let name = before.filter(|_| thread == "main").map_or(thread, |(test, _)| test);
        self.skip(&format!("{} {name}", self.times.program()));
    }

    /// Notes what was not tested.
    pub(crate) fn skip(&mut self, name: &str) {
        self.skipped.insert(name.to_owned());
    }

    /// A line of the tests that show nothing on this machine, if there are any.
    fn skipped(&self) -> String {
        let names: Vec<_> = self.skipped.iter().map(String::as_str).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!("{SKIPPED}{}: {}\n", names.len(), names.join(", "))
        }
    }

    /// The totals, behind what was skipped.
    pub(crate) fn summary(&self) -> String {
        format!("{}{self}", self.skipped())
    }

    /// Adds what was counted beside.
    fn add(&mut self, beside: Self) {
        self.passed += beside.passed;
        self.failed += beside.failed;
        self.skipped.extend(beside.skipped);
        self.failures.extend(beside.failures);
        self.times.add(beside.times);
    }

    /// Counts a check other than a cargo test as one test.
    pub(crate) fn count_check(&mut self, has_passed: bool) {
        self.passed += u64::from(has_passed);
        self.failed += u64::from(!has_passed);
    }

    /// True if no test failed.
    pub(crate) fn has_passed(&self) -> bool {
        self.failed == 0
    }

    /// What failed programs said last, and the commands that repeat their tests.
    pub(crate) fn failed(&self) -> String {
        let said = self.failures.iter().flat_map(|failure| &failure.said);
        let repeats = self.failures.iter().map(|failure| &failure.repeat);
        said.chain(repeats).map(|line| format!("{line}\n")).collect()
    }

    /// Writes the totals, the slowest tests, and what failed and was skipped of a tier to files, for scripts.
    pub(crate) fn write(&self, tier: &str) -> anyhow::Result<()> {
        let totals = format!("{self}\n");
        let (slowest, failed) = (self.times.slowest(), self.failed());
        let files =
            [("totals", totals), ("slowest", slowest), ("failed", failed), ("skipped", self.skipped())];
        for (what, text) in files {
            let path = root().join(format!("target/{what}-{tier}.txt"));
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up() {
        let mut totals = Totals::default();
        totals.count(
            "test result: ok. 13 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        totals.count("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out");
        totals.count("test a::b ... ok");
        totals.count_check(true);
        assert_eq!(totals.to_string(), "16 passed, 3 failed");
    }

    #[test]
    fn skipped_tests_are_named_above_the_totals() {
        let of = |line: &str| {
            let running = "     Running tests/rack.rs (target/debug/deps/rack-0123)";
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo '{running}'; echo '{line}'")]);
            command
        };
        let mut totals = Totals::default();
        assert_eq!(totals.summary(), "0 passed, 0 failed");
        let commands = [of("skipped: cut::a: no network: none"), of("test b ... skipped: main: no root")];
        run_tests_at_once(commands, &mut totals, &mut Vec::new()).unwrap();
        // A test may say so more than once, and others may speak of what is skipped.
        for line in ["test c ... skipped: cut::a: no", "test skipped: good ... ok", "the rest is skipped: no"]
        {
            run_tests_quietly(&mut of(line), &mut totals, &mut Vec::new()).unwrap();
        }
        totals.count("test result: ok. 13 passed; 0 failed");
        assert_eq!(totals.summary(), "skipped: 2: rack b, rack cut::a\n13 passed, 0 failed");
    }

    #[test]
    fn tests_that_run_at_once_are_all_counted() {
        let command = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let passed = "echo 'test result: ok. 2 passed; 0 failed'";
        let failed = "echo 'test result: FAILED. 3 passed; 1 failed'; exit 1";
        for (commands, expected) in [
            ([command(passed), command(failed)], "5 passed, 1 failed"),
            ([command(failed), command(passed)], "5 passed, 1 failed"),
        ] {
            let mut totals = Totals::default();
            let mut out = Vec::new();
            assert!(run_tests_at_once(commands, &mut totals, &mut out).is_err());
            assert_eq!(String::from_utf8(out).unwrap().lines().count(), 2);
            assert_eq!(totals.to_string(), expected);
        }
        let mut totals = Totals::default();
        run_tests_at_once([command(passed), command(passed)], &mut totals, &mut Vec::new()).unwrap();
        assert_eq!(totals.to_string(), "4 passed, 0 failed");
    }

    #[test]
    fn a_failure_names_the_command_that_repeats_it() {
        let mut command = Command::new("cargo");
        command
            .args(["test", "--release", "--workspace", "--no-fail-fast", "--", "--target"])
            .env("SEEDS", "7");
        let mut failed = FailedTests::new(&command);
        let lines = [
            "     Running tests/model.rs (target/debug/deps/model-1)",
            "test good ... ok",
            "test deep::bad ... FAILED <0.001s>",
            "test worse - should panic ... FAILED",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            "error: test failed, to rerun pass `-p minos-engine --test model`",
            "error: doctest failed, to rerun pass `-p minos-base --doc`",
            "error: 2 targets failed:",
        ];
        let failures: Vec<_> = lines.iter().filter_map(|line| failed.see(line)).collect();
        let repeats: Vec<_> = failures.iter().map(|failure| &*failure.repeat).collect();
        assert_eq!(
            repeats,
            [
                "SEEDS=\"7\" cargo test --release -p minos-engine --test model -- --exact 'deep::bad' 'worse'",
                "SEEDS=\"7\" cargo test --release -p minos-base --doc",
            ]
        );
        assert_eq!(failures[0].said, [lines[0], lines[2], lines[3], lines[4]]);
    }

    /// A sanitizer ends a program in the middle of a test.
    #[test]
    fn a_program_that_ends_before_its_tests_counts_as_failed() {
        let lines =
            ["test good ... ok", "test bad ... data race", "error: test failed, to rerun pass `--lib`"];
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("cat <<'.'\n{}\n.", lines.join("\n")));
        let mut totals = Totals::default();
        run_tests_quietly(&mut command, &mut totals, &mut Vec::new()).unwrap();
        assert_eq!(totals.to_string(), "0 passed, 1 failed");
        assert_eq!(totals.failed(), "test bad ... data race\ncargo test --lib\n");
    }

    #[test]
    fn a_failing_command_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("/no/such/program")).is_err());
    }
}
