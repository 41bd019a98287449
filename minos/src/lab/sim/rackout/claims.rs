//! The papers' claims beside the simulated numbers.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use minos_rackmodel::targets::Target;
use serde::Serialize;

use super::{
    super::table::{rounded, table},
    Printed, RackoutArgs,
};
use crate::lab::bench::{emit, emit_json};

#[derive(Serialize)]
struct Targets {
    targets: Vec<Target>,
}

/// Prints the claims, and writes their numbers to the file that was named, if any.
pub(super) fn print(targets: Vec<Target>, parameters: &str, args: &RackoutArgs) -> Result<()> {
    if let Some(path) = &args.csv {
        write(path, parameters, &targets)?;
    }
    let seed = args.source.seed;
    if args.json {
        return Ok(emit_json(&Printed { evidence: "simulated", seed, content: Targets { targets } })?);
    }
    let header = ["claim", "where", "paper", "here", "off %", "5 to 95 % of datasets"];
    let text = table(&header, 2, targets.iter().map(row));
    Ok(emit(&format!("simulated: {parameters}\n{text}"))?)
}

fn row(target: &Target) -> Vec<String> {
    let number = |value: f64| if value.is_nan() { "-".to_owned() } else { rounded(value) };
    let mut off = if target.off.is_nan() { "-".into() } else { format!("{:+.1}", target.off * 100.0) };
    off.push_str(if target.fitted { " fitted" } else { "" });
    let others = target
        .others
        .map_or_else(String::new, |others| format!("{} to {}", rounded(others.p5), rounded(others.p95)));
    let names = [target.claim, target.paper].map(str::to_owned);
    names.into_iter().chain([number(target.theirs), number(target.ours), off, others]).collect()
}

fn write(path: &Path, parameters: &str, targets: &[Target]) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("# simulated; minos {version}; {parameters}\nkey,paper,here,p5,median,p95\n");
    for Target { key, theirs, ours, others, .. } in targets {
        let numbers = others.map_or([f64::NAN; 3], |others| [others.p5, others.median, others.p95]);
        let cell = |value: f64| if value.is_nan() { String::new() } else { format!("{value:.6}") };
        let [p5, median, p95] = numbers.map(cell);
        text.push_str(&format!("{key},{theirs},{},{p5},{median},{p95}\n", cell(*ours)));
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use minos_rackmodel::targets::Spread;

    use super::*;

    #[test]
    fn a_file_has_a_line_for_each_claim() {
        let others = Some(Spread { p5: 0.9, median: 1.0, p95: 1.1 });
        let one = Target {
            key: "a",
            claim: "A, b",
            paper: "§1",
            theirs: 2.0,
            ours: 1.0,
            off: -0.5,
            fitted: false,
            others,
        };
        let two = Target { key: "c", ours: f64::NAN, others: None, ..one.clone() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claims.csv");
        write(&path, "seed 1", &[one, two]).unwrap();
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("# simulated; minos "));
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            ["key,paper,here,p5,median,p95", "a,2,1.000000,0.900000,1.000000,1.100000", "c,2,,,,"]
        );
    }
}
