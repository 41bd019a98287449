//! Short runs of `minos bench`, and what they print.

use std::process::{Command, Output};

use serde_json::Value;

/// A run of `minos bench`, small and short by these options unless a test overrides them.
pub(crate) struct BriefBench {
    pub(crate) options: &'static [[&'static str; 2]],
}

impl BriefBench {
    pub(crate) fn run(&self, target: &str, arguments: &[&str]) -> Output {
        let brief = self.options.iter().filter(|[option, _]| !arguments.contains(option));
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["bench", "--target", target]).args(arguments).args(brief.flatten());
        command.env("RUST_LOG", "warn").output().unwrap()
    }

    /// The JSON output of a run that must succeed.
    pub(crate) fn json(&self, target: &str, arguments: &[&str]) -> Value {
        let output = self.run(target, &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The error output of a run that must fail and print nothing else.
    pub(crate) fn refusal(&self, target: &str, arguments: &[&str]) -> String {
        let output = self.run(target, arguments);
        assert!(!output.status.success(), "{target} {arguments:?}");
        assert!(output.stdout.is_empty(), "{target} {arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

pub(crate) fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}
