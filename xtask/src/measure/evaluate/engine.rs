//! The engine within one process, by the number of threads (MICA §5, figure 13).

use std::process::Command;

use anyhow::ensure;

use super::machine::Driver;
use crate::measure::{
    Samples, driver,
    report::{Report, cell},
};

const KEYS: &str = "4000000";
/// Popularity and share of GETs.
const MIXES: [(&str, &str, &str); 2] =
    [("zipf 0.99, 95 % GET", "0.99", "0.95"), ("uniform, 50 % GET", "0", "0.5")];
const ACCESS: [&str; 3] = ["erew", "crew", "crcw"];

struct Case {
    threads: usize,
    mix: usize,
    access: &'static str,
    mops: Samples,
}

/// Each thread has a processor of its own, up to all of the machine.
pub(super) fn measure(driver: &Driver<'_>, rounds: u32) -> anyhow::Result<Report> {
    let processors = driver.machine.processors;
    let threads = (0..).map(|power| 1 << power).take_while(|&threads| threads < processors);
    let threads: Vec<usize> = threads.chain([processors]).collect();
    let mut cases = Vec::new();
    for &threads in &threads {
        for mix in 0..MIXES.len() {
            let case = |access| Case { threads, mix, access, mops: Samples::default() };
            cases.extend(ACCESS.map(case));
        }
    }
    for round in 0..rounds {
        eprintln!("engine: round {} of {rounds}", round + 1);
        cases.iter_mut().try_for_each(|case| case.round(driver))?;
    }
    Ok(report(&cases, &threads))
}

impl Case {
    fn round(&mut self, driver: &Driver<'_>) -> anyhow::Result<()> {
        let (_, zipf, gets) = MIXES[self.mix];
        let pins: Vec<_> = (0..self.threads).map(|cpu| cpu.to_string()).collect();
        let text = format!(
            "bench --json --target inproc://store --workload mica-tiny --keys {KEYS} --zipf {zipf} --get-ratio {gets} \
             --access {} --threads {} --pin {} --warmup 100ms --duration {}ms",
            self.access,
            self.threads,
            pins.join(","),
            driver.millis
        );
        let mut command = Command::new(driver.program);
        let result = driver::json({
            command.args(text.split_whitespace());
            command
        })?;
        ensure!(result["errors"] == 0, "{} errors: {text}", result["errors"]);
        self.mops.push(result["engine"]["mops"].as_f64().unwrap_or(f64::NAN));
        Ok(())
    }
}

fn report(cases: &[Case], threads: &[usize]) -> Report {
    let mut report = Report::new(
        "The engine by threads",
        &format!(
            "Million operations a second of all threads together within one process, {KEYS} items of 8 + 8 bytes, bursts of 32 \
             drawn and hashed beforehand, a store. A thread has a processor of its own. In the last column, the most threads over \
             as many single ones."
        ),
        &["keys", "table"],
    );
    report.columns.extend(threads.iter().map(|threads| format!("{threads}")));
    report.columns.push("scaling".to_owned());
    for (mix, (name, ..)) in MIXES.iter().enumerate() {
        for access in ACCESS {
            let row: Vec<_> = cases.iter().filter(|case| (case.mix, case.access) == (mix, access)).collect();
            let mut cells = vec![(*name).to_owned(), access.to_owned()];
            cells.extend(row.iter().map(|case| cell(&case.mops, 1)));
            if let [first, .., last] = row[..] {
                let scaling = last.mops.median() / first.mops.median() / last.threads as f64;
                cells.push(format!("{scaling:.2}"));
            }
            report.rows.push(cells);
        }
    }
    report
}
