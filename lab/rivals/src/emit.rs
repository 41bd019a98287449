//! Printing a report, and the names of the machine in it.

use anyhow::Context;
use serde_json::Value;
use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

/// Prints a report, or its JSON, and writes it to a file if there is one.
pub(crate) fn emit(text: &str, json: Option<&Value>, out: Option<&Path>) -> anyhow::Result<()> {
    let shown = json.map_or_else(|| text.to_owned(), |json| format!("{json:#}"));
    // Not `println`, which panics on a closed pipe: reserved pages would never be released.
    writeln!(io::stdout(), "{shown}").context("standard output")?;
    out.map_or(Ok(()), |path| fs::write(path, text).with_context(|| path.display().to_string()))
}

/// The processor's name.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    format!("{}, model {}", of("model name"), of("model\t"))
}

/// The kernel's version.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().into())
}
