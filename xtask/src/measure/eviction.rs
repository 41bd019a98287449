//! Hit ratios of the cache's policies beside exact simulations.

use std::{fs, path::Path, process::Stdio};

use anyhow::{Context, ensure};
use minos_plot::{Axis, Corner, Line, Lines, Panel, Scale};

use super::{report::Report, save};
use crate::command::cargo;

/// One line of the output of the engine's example.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    /// Memory of the cache in percent of the size of all items.
    memory_percent: f64,
    /// Average content of the log, in percent of all items.
    log_percent: f64,
    policy: String,
    /// True for the engine, false for a simulation.
    is_engine: bool,
    hit_percent: f64,
}

/// Runs the example, stores its output, and draws it.
pub(super) fn measure(out: &Path) -> anyhow::Result<Report> {
    let text = run_example()?;
    fs::write(out.join("eviction.csv"), &text)?;
    let samples = parse(&text)?;
    draw(&samples, &out.join("eviction.svg"))?;
    Ok(report(&samples))
}

fn run_example() -> anyhow::Result<String> {
    let mut example =
        cargo(&["run", "--release", "--quiet", "-p", "minos-engine", "--example", "hit_ratios"]);
    let output = example.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the example ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn parse(text: &str) -> anyhow::Result<Vec<Sample>> {
    let samples: anyhow::Result<Vec<_>> = text
        .lines()
        .skip(1)
        .map(|line| sample(line).with_context(|| format!("not a sample: {line:?}")))
        .collect();
    let samples = samples?;
    ensure!(!samples.is_empty(), "there are no samples");
    Ok(samples)
}

fn sample(line: &str) -> Option<Sample> {
    let [memory_percent, log_percent, policy, source, hit_percent] = line.split(',').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    Some(Sample {
        memory_percent: memory_percent.parse().ok()?,
        log_percent: log_percent.parse().ok()?,
        policy: policy.to_owned(),
        is_engine: source == "engine",
        hit_percent: hit_percent.parse().ok()?,
    })
}

/// The names of the policies in order of appearance.
fn policies(samples: &[Sample]) -> Vec<&str> {
    let mut policies: Vec<&str> = Vec::new();
    for sample in samples {
        if !policies.contains(&sample.policy.as_str()) {
            policies.push(&sample.policy);
        }
    }
    policies
}

/// Draws lines for simulations and points for the engine.
fn draw(samples: &[Sample], path: &Path) -> anyhow::Result<()> {
    let line = |policy: &str, is_engine: bool| {
        let own = samples.iter().filter(|sample| is_of(sample, (policy, is_engine)));
        let points = own.map(|sample| (sample.log_percent, sample.hit_percent)).collect();
        Line { is_joined: !is_engine, ..Line::joined(policy, points) }
    };
    let lines = policies(samples).into_iter().flat_map(|policy| [line(policy, false), line(policy, true)]);
    let picture = Lines {
        title: "Hit ratio: lines are exact simulations, points the engine",
        subtitle: "",
        x: Axis { name: "size of the log in percent of all items, logarithmic", scale: Scale::Log10 },
        y: Axis { name: "hits in percent", scale: Scale::Linear },
        legend: Corner::LowerRight,
        panels: &[Panel { name: String::new(), lines: lines.collect() }],
    };
    save(&picture.svg()?, path)
}

/// A row for each size of the cache.
fn report(samples: &[Sample]) -> Report {
    let columns: Vec<(&str, bool)> = policies(samples)
        .into_iter()
        .flat_map(|policy| [(policy, false), (policy, true)])
        .filter(|column| samples.iter().any(|sample| is_of(sample, *column)))
        .collect();
    let names = columns
        .iter()
        .map(|(policy, is_engine)| format!("{policy}, {}", if *is_engine { "engine" } else { "simulated" }));
    let names: Vec<String> = std::iter::once("memory, % of all items".to_owned()).chain(names).collect();
    let mut report = Report::new(
        "Hit ratios",
        "Run and simulated. Percent of GETs that hit, filled on misses: 100 000 items with keys of 8 and values of 64 \
         to 319 bytes, Zipf 0.99, 2 million requests, the first quarter not counted. The simulators count bytes, \
         without segments or a lossy index; each gets the engine's average log bytes, without the index. LRU by \
         reinsertion (MICA §4.3.1) leaves copies that take room in the log: it loses more than it gains over FIFO. \
         Reinserting only the older half (approximate LRU) leaves few. The engine moves nothing before the first \
         eviction, the simulators do, which shows where nearly all items fit. `cargo xtask measure eviction`",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut sizes: Vec<f64> = samples.iter().map(|sample| sample.memory_percent).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    for size in sizes {
        let cell = |column: &(&str, bool)| {
            let sample =
                samples.iter().find(|sample| sample.memory_percent == size && is_of(sample, *column));
            sample.map_or_else(String::new, |sample| format!("{:.1}", sample.hit_percent))
        };
        report.rows.push(std::iter::once(format!("{size}")).chain(columns.iter().map(cell)).collect());
    }
    report
}

fn is_of(sample: &Sample, (policy, is_engine): (&str, bool)) -> bool {
    sample.policy == policy && sample.is_engine == is_engine
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "memory_percent,log_percent,policy,source,hit_percent\n\
        2,1.5,FIFO,simulated,40.0\n2,1.5,FIFO,engine,39.4\n2,1.5,CLOCK,simulated,44.0\n\
        12,10,FIFO,simulated,60.25\n";

    #[test]
    fn samples_become_rows() {
        let report = report(&parse(TEXT).unwrap());
        assert_eq!(report.columns[1..], ["FIFO, simulated", "FIFO, engine", "CLOCK, simulated"]);
        assert_eq!(report.rows, [["2", "40.0", "39.4", "44.0"], ["12", "60.2", "", ""]]);
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        assert!(parse("head\n").is_err());
        assert!(parse("head\n1,1,FIFO,engine\n").is_err() && parse("head\n1,1,FIFO,engine,much\n").is_err());
    }

    #[test]
    fn a_picture_is_drawn() {
        let path = std::env::temp_dir().join(format!("minos-eviction-{}.svg", std::process::id()));
        draw(&parse(TEXT).unwrap(), &path).unwrap();
        let picture = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(picture.contains("<svg") && picture.contains("CLOCK"));
    }
}
