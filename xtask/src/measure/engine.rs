//! Operations a second of a table within one process: modes of access, data sets, mixes and threads (MICA
//! figure 12), and the gain from prefetching, SIMD and huge pages (MICA §5.5).

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;
use minos_plot::{BarPanel, Bars, Group, Scale};
use serde_json::Value;

use super::{
    Samples, driver,
    report::{Report, cell},
    save,
};
use crate::command;

pub(super) struct Extent {
    pub(super) rounds: u32,
    pub(super) seconds: u32,
    /// Items of each data set, if not its default.
    pub(super) keys: Option<u64>,
    /// All data sets, or tiny items only.
    pub(super) is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    data_set: &'static str,
    is_zipf: bool,
    get_percent: u32,
    threads: u32,
}

/// A table, with the options of `minos bench` that make it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Variant {
    name: &'static str,
    target: &'static str,
    options: &'static [&'static str],
    has_simd: bool,
}

/// The measurements of one table under one load.
struct Case {
    load: Load,
    variant: Variant,
    mops: Samples,
    cpu_ns: Samples,
}

const DATA_SETS: [&str; 3] = ["tiny", "small", "large"];
const CACHE: &str = "inproc://cache";

/// The modes of access; CREW is the base of comparisons.
const ACCESS: [Variant; 3] = [
    Variant { name: "erew", target: CACHE, options: &["--access", "erew"], has_simd: true },
    Variant { name: "crew", target: CACHE, options: &["--access", "crew"], has_simd: true },
    Variant { name: "crcw", target: CACHE, options: &["--access", "crcw"], has_simd: true },
];
const BASE: Variant = ACCESS[1];

/// CREW without one feature, with narrower bursts, or in the other mode.
const ABLATIONS: [Variant; 8] = [
    Variant { name: "no prefetching", options: &["--access", "crew", "--prefetch-depth", "1"], ..BASE },
    Variant { name: "bursts of 2", options: &["--access", "crew", "--prefetch-depth", "2"], ..BASE },
    Variant { name: "bursts of 4", options: &["--access", "crew", "--prefetch-depth", "4"], ..BASE },
    Variant { name: "bursts of 8", options: &["--access", "crew", "--prefetch-depth", "8"], ..BASE },
    Variant { name: "bursts of 16", options: &["--access", "crew", "--prefetch-depth", "16"], ..BASE },
    Variant { name: "no SIMD", has_simd: false, ..BASE },
    Variant { name: "pages of 4 KiB", options: &["--access", "crew", "--backing", "small-pages"], ..BASE },
    Variant { name: "store", target: "inproc://store", ..BASE },
];

struct Programs<'a> {
    usual: &'a Path,
    without_simd: PathBuf,
}

/// Takes the measurements, and draws a picture.
pub(super) fn measure(program: &Path, extent: &Extent, out: &Path) -> anyhow::Result<Report> {
    let programs = Programs { usual: program, without_simd: build_without_simd()? };
    let mut cases = cases(extent.is_full);
    for round in 1..=extent.rounds {
        eprintln!("round {round} of {}, {} cases", extent.rounds, cases.len());
        for case in &mut cases {
            let result = programs.bench(case, extent)?;
            case.mops.push(result["engine"]["mops"].as_f64().unwrap_or(f64::NAN));
            case.cpu_ns.push(result["server_cpu_us_per_op"].as_f64().unwrap_or(f64::NAN) * 1000.0);
        }
    }
    let picture = Bars { scale: Scale::Linear, panels: &panels(&cases) }.svg()?;
    save(&picture, &out.join("engine.svg"))?;
    Ok(report(&cases, extent))
}

/// All cases of a round, in order.
fn cases(is_full: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for data_set in DATA_SETS.into_iter().take(if is_full { DATA_SETS.len() } else { 1 }) {
        for (is_zipf, get_percent, threads) in mixes() {
            let load = Load { data_set, is_zipf, get_percent, threads };
            let ablations = if load.has_ablations() { &ABLATIONS[..] } else { &[] };
            cases.extend(ACCESS.iter().chain(ablations).map(|&variant| Case::new(load, variant)));
        }
    }
    cases
}

/// Combinations of popularity, share of GETs and threads.
fn mixes() -> impl Iterator<Item = (bool, u32, u32)> {
    let mixes = |is_zipf| [(is_zipf, 95, 1), (is_zipf, 50, 1), (is_zipf, 95, 2), (is_zipf, 50, 2)];
    [true, false].into_iter().flat_map(mixes)
}

impl Load {
    fn has_ablations(&self) -> bool {
        self.data_set == DATA_SETS[0] && self.get_percent == 95 && self.threads == 1
    }

    fn popularity(&self) -> &'static str {
        if self.is_zipf { "zipf 0.99" } else { "uniform" }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.threads == 1 { "1 thread" } else { "2 threads" };
        write!(f, "{} {} %, {threads}", if self.is_zipf { "zipf" } else { "uniform" }, self.get_percent)
    }
}

impl Case {
    fn new(load: Load, variant: Variant) -> Self {
        Self { load, variant, mops: Samples::default(), cpu_ns: Samples::default() }
    }

    fn arguments(&self, extent: &Extent) -> Vec<String> {
        let Load { data_set, is_zipf, get_percent, threads } = self.load;
        let mut text = format!(
            "bench --json --target {} --workload mica-{data_set} --zipf {} --get-ratio {} --threads {threads} --pin {} \
             --warmup 300ms --duration {}s {}",
            self.variant.target,
            if is_zipf { "0.99" } else { "0" },
            f64::from(get_percent) / 100.0,
            if threads == 1 { "0" } else { "0,1" },
            extent.seconds,
            self.variant.options.join(" "),
        );
        if let Some(keys) = extent.keys {
            text.push_str(&format!(" --keys {keys}"));
        }
        text.split_whitespace().map(str::to_owned).collect()
    }
}

impl Programs<'_> {
    fn bench(&self, case: &Case, extent: &Extent) -> anyhow::Result<Value> {
        let program = if case.variant.has_simd { self.usual } else { &self.without_simd };
        let arguments = case.arguments(extent);
        let mut command = Command::new(program);
        command.args(&arguments);
        let result = driver::json(command)?;
        ensure!(result["errors"] == 0, "{} errors with {arguments:?}", result["errors"]);
        // On a machine without SIMD, the two programs do not differ.
        let simd = result["engine"]["simd"].as_bool();
        ensure!(case.variant.has_simd || simd == Some(false), "{} has SIMD", program.display());
        Ok(result)
    }
}

/// Builds Minos as if the processor had no instructions to compare a bucket's tags at once.
fn build_without_simd() -> anyhow::Result<PathBuf> {
    let target = command::target().join("no-simd");
    let mut build = command::cargo(&["build", "--release", "--package", "minos"]);
    build.env("RUSTFLAGS", "--cfg minos_no_simd").env("CARGO_TARGET_DIR", &target);
    command::run(&mut build)?;
    Ok(target.join("release/minos"))
}

fn report(cases: &[Case], extent: &Extent) -> Report {
    let keys = extent.keys.map_or_else(String::new, |keys| format!(" --keys {keys}"));
    let full = if extent.is_full { " --full" } else { "" };
    let mut report = Report::new(
        "The engine within one process",
        &format!(
            "Measured. Millions of operations a second of all threads together, closed loop, in bursts of 32 drawn and \
             hashed beforehand; each value read is compared with what was stored. Median (smallest..largest) of {} \
             interleaved rounds of {} s. Tiny items have 8 + 8 bytes, small ones 16 + 64, large ones 128 + 1024. Each \
             thread has its own processor. A cache unless it says store; CREW unless it says otherwise. `cargo xtask measure engine --rounds {} --seconds {}{keys}{full}`",
            extent.rounds, extent.seconds, extent.rounds, extent.seconds
        ),
        &["items", "keys", "GETs", "threads", "table", "Mops/s", "CPU ns an operation", "ratio to crew"],
    );
    for case in cases {
        let Load { data_set, get_percent, threads, .. } = case.load;
        let base = cases.iter().find(|base| base.load == case.load && base.variant == BASE);
        let ratio = base.map_or(f64::NAN, |base| case.mops.median() / base.mops.median());
        report.rows.push(vec![
            data_set.to_owned(),
            case.load.popularity().to_owned(),
            format!("{get_percent} %"),
            threads.to_string(),
            case.variant.name.to_owned(),
            cell(&case.mops, 1),
            cell(&case.cpu_ns, 1),
            format!("{ratio:.2}"),
        ]);
    }
    report
}

/// One panel for each data set, and one for the ablations.
fn panels(cases: &[Case]) -> Vec<BarPanel> {
    let mut panels: Vec<BarPanel> = DATA_SETS
        .into_iter()
        .map(|data_set| {
            let is_shown = |case: &&Case| case.load.data_set == data_set && ACCESS.contains(&case.variant);
            panel(format!("{data_set} items"), cases.iter().filter(is_shown))
        })
        .collect();
    let is_compared = |variant: &Variant| *variant == BASE || ABLATIONS.contains(variant);
    let is_shown = |case: &&Case| case.load.has_ablations() && is_compared(&case.variant);
    panels.push(panel("tiny items, CREW with something left out".to_owned(), cases.iter().filter(is_shown)));
    panels.retain(|panel| !panel.groups.is_empty());
    panels
}

/// A group of bars for each load.
fn panel<'a>(title: String, cases: impl Iterator<Item = &'a Case>) -> BarPanel {
    let title = format!("{title}: Mops/s (higher is better)");
    let mut panel = BarPanel { title, groups: Vec::new() };
    for case in cases {
        let (name, bar) = (case.load.to_string(), (case.variant.name, case.mops.median()));
        match panel.groups.last_mut().filter(|group| group.name == name) {
            Some(group) => group.bars.push(bar),
            None => panel.groups.push(Group { name, bars: vec![bar] }),
        }
    }
    panel
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { rounds: 1, seconds: 2, keys: Some(5), is_full: false };

    /// Cases whose figures equal their numbers, from 1.
    fn measured(is_full: bool) -> Vec<Case> {
        let mut cases = cases(is_full);
        for (number, case) in (1u32..).zip(&mut cases) {
            case.mops.push(f64::from(number));
            case.cpu_ns.push(50.0);
        }
        cases
    }

    #[test]
    fn every_case_is_a_row_and_is_compared_with_crew() {
        for (is_full, rows) in [(false, 24 + 16), (true, 72 + 16)] {
            let cases = measured(is_full);
            let report = report(&cases, &EXTENT);
            assert_eq!(report.rows.len(), rows);
            assert!(report.rows.iter().filter(|row| row[4] == "crew").all(|row| row[7] == "1.00"));
            assert!(report.rows.iter().all(|row| row[7] != "NaN"));
        }
    }

    #[test]
    fn arguments_say_what_the_row_says() {
        let case =
            Case::new(Load { data_set: "small", is_zipf: false, get_percent: 50, threads: 2 }, ABLATIONS[0]);
        let text = case.arguments(&EXTENT).join(" ");
        for part in
            ["--workload mica-small", "--zipf 0 ", "--get-ratio 0.5", "--pin 0,1", "--keys 5", "depth 1"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn bars_are_grouped_by_load() {
        let panels = panels(&measured(true));
        let shape: Vec<_> =
            panels.iter().map(|panel| (panel.groups.len(), panel.groups[0].bars.len())).collect();
        assert_eq!(shape, [(8, 3), (8, 3), (8, 3), (2, 9)]);
        assert_eq!(panels[0].groups[0].name, "zipf 95 %, 1 thread");
        assert_eq!(super::panels(&measured(false)).len(), 2);
    }
}
