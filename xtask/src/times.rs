//! The times of tests.
//!
//! libtest prints them with an unstable option. The variable that allows it is set for the test programs
//! only: set for cargo, it would make build scripts run again, and so rebuild most dependencies.

use std::{env::consts::ARCH, fmt::Write, process::Command};

/// The number of slowest tests shown.
const SHOWN: usize = 10;

/// Makes the tests that `command` runs print their times. Documentation tests cannot.
pub(crate) fn ask_for_times(command: &mut Command) {
    let has = |wanted: &str| command.get_args().any(|argument| argument == wanted);
    let (has_examples, has_dashes) = (has("--doc"), has("--"));
    if has_examples {
        return;
    }
    let runner = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", ARCH.to_uppercase());
    command.env(runner, "env RUSTC_BOOTSTRAP=1");
    if !has_dashes {
        command.arg("--");
    }
    command.args(["-Zunstable-options", "--report-time"]);
}

/// A line of a test program about one test.
#[derive(Debug, PartialEq)]
pub(crate) struct TestLine<'a> {
    pub(crate) name: &'a str,
    pub(crate) has_failed: bool,
    /// Seconds, if the test ran and printed them.
    seconds: Option<f64>,
}

impl<'a> TestLine<'a> {
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let (name, result) = line.trim().strip_prefix("test ")?.split_once(" ... ")?;
        // The text after the dash is the expected panic.
        let name = name.split(" - should panic").next().unwrap_or(name);
        let seconds = result.split_once('<').and_then(|(_, time)| time.strip_suffix("s>")?.parse().ok());
        Some(Self { name, has_failed: result.starts_with("FAILED"), seconds })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    part: &'static str,
    program: String,
    tests: Vec<(f64, String)>,
}

impl Times {
    /// The program that runs.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    pub(crate) fn begin_part(&mut self, name: &'static str) {
        self.part = name;
    }

    /// No times yet of the same part.
    pub(crate) fn beside(&self) -> Self {
        Self { part: self.part, ..Self::default() }
    }

    pub(crate) fn add(&mut self, beside: Self) {
        self.tests.extend(beside.tests);
    }

    /// Adds the time in a line of `cargo test`, if there is one.
    pub(crate) fn see(&mut self, line: &str) {
        if let Some(program) = program(line) {
            program.clone_into(&mut self.program);
        }
        if let Some(TestLine { name, seconds: Some(seconds), .. }) = TestLine::parse(line) {
            self.tests.push((seconds, format!("{}: {} {name}", self.part, self.program)));
        }
    }

    /// A line for each of the slowest tests, in seconds.
    pub(crate) fn slowest(&self) -> String {
        let mut tests = self.tests.clone();
        tests.sort_by(|one, other| other.0.total_cmp(&one.0));
        tests.iter().take(SHOWN).fold(String::new(), |mut lines, (seconds, name)| {
            let _ = writeln!(lines, "{seconds:8.1} s  {name}");
            lines
        })
    }
}

/// The program that cargo starts: `Running tests/model.rs (target/debug/deps/model-0123)` is `model`.
fn program(line: &str) -> Option<&str> {
    let (_, path) = line.trim().strip_prefix("Running ")?.split_once('(')?;
    Some(path.trim_end_matches(')').rsplit('/').next()?.rsplit_once('-')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first() {
        let mut times = Times::default();
        times.begin_part("tests");
        let running =
            |name: &str| format!("     Running tests/{name}.rs (target/debug/deps/{name}-0123abcd)");
        times.see(&running("model"));
        times.see("test deep::good ... ok <0.250s>");
        times.see("test deep::ignored ... ignored");
        times.see(&running("role_changes"));
        times.see("test bad ... FAILED <61.000s>");
        (0..SHOWN).for_each(|_| times.see("test short ... ok <0.000s>"));
        let lines = times.slowest();
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), SHOWN);
        assert_eq!(
            lines[..2],
            ["    61.0 s  tests: role_changes bad", "     0.2 s  tests: model deep::good"]
        );
    }

    #[test]
    fn times_are_asked_for_behind_the_dashes() {
        let arguments = |given: &[&str]| {
            let mut command = Command::new("cargo");
            ask_for_times(command.args(given));
            command
                .get_args()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let asked = "-Zunstable-options --report-time";
        assert_eq!(arguments(&["test"]), format!("test -- {asked}"));
        assert_eq!(arguments(&["test", "--", "--skip", "a"]), format!("test -- --skip a {asked}"));
        assert_eq!(arguments(&["test", "--doc"]), "test --doc");
    }
}
