//! Running programs and counting tests.

use std::{
    fmt,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Cargo in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    // What the outer cargo set for xtask must not reach the inner one.
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("RUSTFLAGS");
    command
}

/// Runs `command` to its end.
///
/// # Errors
/// It could not be run, or did not end well.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    say(command);
    let status = command.status().with_context(|| format!("cannot run {}", name(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", name(command));
    }
    Ok(())
}

/// Runs a `cargo test` and adds what it counted to `totals`.
///
/// # Errors
/// It could not be run, or did not end well.
pub(crate) fn run_tests(command: &mut Command, totals: &mut Totals) -> anyhow::Result<()> {
    say(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", name(command)))?;
    let output = child.stdout.take().context("no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        totals.count(&line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("tests failed: {}", name(command));
    }
    Ok(())
}

/// Shows what is run, with the environment that matters.
fn say(command: &Command) {
    let set = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
    let environment: Vec<String> =
        set.map(|(key, value)| format!("{}={:?} ", key.to_string_lossy(), value.to_string_lossy())).collect();
    println!("+ {}{}", environment.concat(), name(command));
}

fn name(command: &Command) -> String {
    let arguments = command.get_args().map(|part| part.to_string_lossy());
    let words: Vec<_> = std::iter::once(command.get_program().to_string_lossy()).chain(arguments).collect();
    words.join(" ")
}

/// Tests that passed and failed, over all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
}

impl Totals {
    /// Adds what a line of `cargo test` says, if it is one that sums up.
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

    /// A check that is no cargo test counts as one.
    pub(crate) fn count_check(&mut self, has_passed: bool) {
        self.passed += u64::from(has_passed);
        self.failed += u64::from(!has_passed);
    }

    /// Where the last run's totals stand, for scripts.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let path = root().join("target/test-totals.txt");
        std::fs::write(&path, format!("{self}\n")).with_context(|| path.display().to_string())
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
    fn a_failing_command_is_an_error() {
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("/no/such/program")).is_err());
    }
}
