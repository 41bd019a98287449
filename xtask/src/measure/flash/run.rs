//! A long run with ten times more data than memory: throughput, tails of hot and of cold keys, the hit ratio and
//! the bytes written to the device over time, beside extstore.

use std::{fs, path::Path, process::Stdio};

use anyhow::{Context as _, ensure};
use minos_plot::{Axis, Corner, Line, Lines, Panel, Scale};
use serde_json::Value;

use super::{
    Extent, KEY_BYTES,
    client::Loader,
    cold::{LOAD_BYTES_PER_S, pair},
    machine::{Disk, Items, Uncached, bench_command, number},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{contestants::Contestant, driver, report::Report, save};

/// Sizes of values, their percent of all bytes, and of all requests. Small ones are asked for more often.
const GROUPS: [(u64, u64, u64); 4] = [(1000, 25, 50), (100, 5, 30), (10_000, 35, 15), (100_000, 35, 5)];
/// Items to memory.
const DATA_TO_MEMORY: u64 = 10;
/// Requests a second while tails are measured.
const RATE: &str = "8k";
/// The most popular items of the first group, which stay in memory.
const HOT_KEYS: u64 = 1000;
/// Requests a second for these, and for the other items of the first group.
const PROBES: (u32, u32) = (500, 250);
/// Seconds of a step: of the open loop with probes, then of the closed loop.
const OPEN_SECONDS: u32 = 6;
const CLOSED_SECONDS: u32 = 3;
const FIGURES: &[Figure] = &[
    Figure { name: "requests/s", decimals: 0 },
    Figure { name: "hot p50 us", decimals: 0 },
    Figure { name: "hot p99 us", decimals: 0 },
    Figure { name: "cold p50 us", decimals: 0 },
    Figure { name: "cold p99 us", decimals: 0 },
    Figure { name: "found %", decimals: 2 },
    Figure { name: "written for stored", decimals: 2 },
];
/// The panels of the picture: columns of [`FIGURES`].
const PANELS: [usize; 5] = [0, 2, 4, 5, 6];
const NAMES: [&str; 2] = ["extstore", "Minos"];

/// The workloads' files.
struct Workloads {
    main: String,
    probes: String,
}

/// One server's figures over time.
type Series = Vec<(f64, [f64; FIGURES.len()])>;

pub(super) fn measure(program: &Path, extent: &Extent, seconds: u32, out: &Path) -> anyhow::Result<String> {
    let disk = Disk::at(&extent.folder)?;
    let memory_mib = extent.mib / DATA_TO_MEMORY;
    let servers = pair(program, ("0,1", memory_mib), extent.file_mib(), &disk)?;
    let groups = groups(extent.mib << 20);
    for server in &servers {
        for items in &groups {
            Loader::new(server, *items)?.store(LOAD_BYTES_PER_S)?;
        }
    }
    let workloads = workloads(&disk, &groups)?;
    let _uncached = Uncached::keep(disk.file(NAMES[0]));
    let mut series: [Series; 2] = Default::default();
    let mut sheet = Sheet::new(&format!("{memory_mib} MiB of memory"), FIGURES, &NAMES);
    let steps = (seconds / (OPEN_SECONDS + CLOSED_SECONDS)).max(1);
    for step in 1..=steps {
        for (contestant, server) in servers.iter().enumerate() {
            let values = workloads.step(program, server)?;
            sheet.push(contestant, &values);
            series[contestant].push((f64::from(step * (OPEN_SECONDS + CLOSED_SECONDS)), values));
            eprintln!("step {step} of {steps}, {}: {values:.1?}", server.name);
        }
    }
    draw(&series, &out.join("flash-run.svg"))?;
    csv(&series, &out.join("flash-run.csv"))?;
    let mut report = Report::new("Flash over time", &note(extent, seconds), &columns(FIGURES));
    sheet.add_to(&mut report);
    Ok(report.to_string())
}

fn note(extent: &Extent, seconds: u32) -> String {
    format!(
        "Measured. {} MiB of items of 100 B to 100 KB stored at {} MB a second, ten times the memory; 90 % GETs, zipf 0.99; \
         server and driver on two processors; in turn {OPEN_SECONDS} s at {RATE} requests a second, beside probes of the \
         most popular keys (hot) and of any (cold), and {CLOSED_SECONDS} s closed loop (throughput) on 16 connections, \
         {seconds} s a server. The system's cache of extstore's file is emptied ten times a second. Medians of steps (smallest..largest). `cargo xtask measure flash-run --seconds {seconds} \
         --mib {}`\n\n![Over time](flash-run.svg)",
        extent.mib,
        LOAD_BYTES_PER_S / 1e6,
        extent.mib
    )
}

/// The items of each group, numbered one after another.
fn groups(bytes: u64) -> Vec<Items> {
    let mut first = 0;
    let of_group = |(value_bytes, percent, _): (u64, u64, u64)| {
        let keys = (bytes / 100 * percent / value_bytes).max(2 * HOT_KEYS);
        first += keys;
        Items { first: first - keys, keys, key_bytes: KEY_BYTES, value_bytes }
    };
    GROUPS.into_iter().map(of_group).collect()
}

fn workloads(disk: &Disk, groups: &[Items]) -> anyhow::Result<Workloads> {
    let group = |items: &Items, rest: &str| {
        let Items { keys, key_bytes, value_bytes, .. } = items;
        let values = format!("value_bytes = {{ min = {value_bytes}, max = {value_bytes} }}");
        format!("[[stream.group]]\nkeys = {keys}\nkey_bytes = {key_bytes}\n{values}\n{rest}\n")
    };
    let drawn = groups.iter().zip(GROUPS);
    let main = drawn.map(|(items, (_, _, weight))| {
        group(items, &format!("weight = {weight}.0\npopularity = {{ zipf = 0.99 }}"))
    });
    let main = format!("[[stream]]\nget_ratio = 0.9\n{}", main.collect::<String>());
    let stream = |rate: u32, keys: u64, class: &str| {
        let items = Items { keys, ..groups[0] };
        format!(
            "[[stream]]\nrate = {rate}\nconnections = 4\n{}",
            group(&items, &format!("class = \"{class}\""))
        )
    };
    let cold = stream(PROBES.1, groups[0].keys - HOT_KEYS, "large");
    let probes = stream(PROBES.0, HOT_KEYS, "small") + &cold;
    Ok(Workloads { main: disk.toml("main", &main)?, probes: disk.toml("probes", &probes)? })
}

impl Workloads {
    /// One step: the figures of [`FIGURES`].
    fn step(&self, program: &Path, server: &Contestant) -> anyhow::Result<[f64; FIGURES.len()]> {
        let written = written_bytes(server.pid())?;
        let run = |workload: &str, seconds: u32, rate: &str| {
            let arguments = ["--workload", workload, "--rate", rate, "--pace", "due"];
            bench_command(program, server, seconds * 1000, &arguments)
        };
        let mut main = run(&self.main, OPEN_SECONDS, RATE);
        let main = main.env("RUST_LOG", "warn").stdout(Stdio::piped()).spawn()?;
        let probes = driver::json(run(&self.probes, OPEN_SECONDS, RATE))?;
        let open: Value = serde_json::from_slice(&main.wait_with_output()?.stdout)?;
        let closed = driver::json(run(&self.main, CLOSED_SECONDS, "max"))?;
        for result in [&open, &closed, &probes] {
            ensure!(result["errors"] == 0, "{}: {}", server.name, result["errors_by_kind"]);
        }
        // The server's writes include those of the warm-up, a fourth of the time.
        let stored = stored_bytes(&open) + stored_bytes(&closed);
        let written = (written_bytes(server.pid())? - written) as f64 / 1.25;
        let probe = |class, quantile| number(&probes, &["latency_us", class, quantile]);
        Ok([
            number(&closed, &["achieved_rps"]),
            probe("small", "p50"),
            probe("small", "p99"),
            probe("large", "p50"),
            probe("large", "p99"),
            100.0 * (1.0 - number(&open, &["misses"]) / (0.9 * number(&open, &["completed"]))),
            written / stored,
        ])
    }
}

/// Bytes of values that a run of the main workload stored.
fn stored_bytes(result: &Value) -> f64 {
    let mean_bytes: u64 = GROUPS.iter().map(|(value_bytes, _, weight)| value_bytes * weight).sum();
    number(result, &["completed"]) * 0.1 * mean_bytes as f64 / 100.0
}

/// Bytes that a process has had written to devices.
fn written_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(bytes.context("no write_bytes of a process")?.parse()?)
}

/// Draws a panel for each of [`PANELS`], over time.
fn draw(series: &[Series; 2], path: &Path) -> anyhow::Result<()> {
    let panel = |&figure: &usize| {
        let line = |(name, series): (&&str, &Series)| {
            Line::joined(*name, series.iter().map(|(at, values)| (*at, values[figure])).collect())
        };
        Panel { name: FIGURES[figure].name.to_owned(), lines: NAMES.iter().zip(series).map(line).collect() }
    };
    let panels: Vec<Panel> = PANELS.iter().map(panel).collect();
    let picture = Lines {
        title: "Ten times more items than memory, over time",
        subtitle: "",
        x: Axis { name: "seconds", scale: Scale::Linear },
        y: Axis { name: "logarithmic", scale: Scale::Log10 },
        legend: Corner::UpperRight,
        panels: &panels,
    };
    save(&picture.svg()?, path)
}

fn csv(series: &[Series; 2], path: &Path) -> anyhow::Result<()> {
    let names: Vec<_> = ["server", "s"].into_iter().chain(FIGURES.iter().map(|figure| figure.name)).collect();
    let rows = NAMES.iter().zip(series).flat_map(|(name, series)| {
        series.iter().map(move |(at, values)| {
            let values = values.map(|value| format!(",{value:.3}")).concat();
            format!("{name},{at}{values}\n")
        })
    });
    save(&(names.join(",") + "\n" + &rows.collect::<String>()), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_follow_each_other_and_fill_the_bytes() {
        let groups = groups(1 << 30);
        assert_eq!(groups[1].first, groups[0].keys);
        let bytes: u64 = groups.iter().map(|items| items.keys * items.value_bytes).sum();
        assert!((1 << 30) - bytes < 2 << 20, "{bytes}");
        assert_eq!(GROUPS.iter().map(|group| group.1).sum::<u64>(), 100);
        assert_eq!(GROUPS.iter().map(|group| group.2).sum::<u64>(), 100);
    }
}
