//! The report of a device.

use std::{collections::BTreeMap, fmt, time::Duration};

use comfy_table::{Cell, Table};
use minos_device::{Device, Facts, Geometry};
use minos_workload::{DriverShare, Latencies, LatencyReport, Quantiles, Report};
use serde::Serialize;

use super::{Plan, driver::Tally};
use crate::lab::bench::{
    table::{kinds, micros, number, numbers_table},
    team::Times,
};

/// The common report, and the figures of a device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    /// All latencies count as small.
    #[serde(flatten)]
    pub(super) common: Report,
    device: Figures,
}

/// The figures of a device.
#[derive(Debug, Serialize)]
struct Figures {
    driver: String,
    /// True if the page cache is bypassed.
    direct: bool,
    why_threads: Option<String>,
    why_buffered: Option<String>,
    /// Lanes whose buffers the kernel maps with each request, and the reason.
    unregistered_lanes: usize,
    why_unregistered: Option<String>,
    capacity_bytes: u64,
    in_flight_max: u32,
    request_bytes: usize,
    width: usize,
    depth: usize,
    threads: usize,
    iops: f64,
    mb_per_s: f64,
    reads: u64,
    writes: u64,
    /// Not among the requests.
    flushes: u64,
    flush_latency_us: Quantiles,
    vectors: u64,
    /// Requests that found the device full and were submitted again.
    refused: u64,
    /// Processor time of this process, the driver included.
    cpu_us_per_request: f64,
    user_us_per_request: f64,
    system_us_per_request: f64,
    iops_per_core: f64,
}

impl DeviceReport {
    pub(super) fn of(plan: &Plan<'_>, device: &Device, tallies: &[Tally], spent: Times) -> Self {
        let common = common(plan, tallies);
        let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
        let Facts { driver, why_threads, why_buffered, .. } = device.facts();
        let Geometry { capacity_bytes, in_flight_max, .. } = *device.geometry();
        let us = |time: Duration| rounded(time.as_secs_f64() * 1e6 / common.completed.max(1) as f64);
        let cpu_us = us(spent.0 + spent.1);
        let iops = common.achieved_rps;
        let device = Figures {
            driver: driver.to_string(),
            direct: why_buffered.is_none(),
            why_threads,
            why_buffered,
            unregistered_lanes: tallies.iter().filter(|tally| tally.why_unregistered.is_some()).count(),
            why_unregistered: tallies.iter().find_map(|tally| tally.why_unregistered.clone()),
            capacity_bytes,
            in_flight_max,
            request_bytes: plan.load.work.request_bytes,
            width: plan.load.work.width,
            depth: plan.load.work.depth,
            threads: plan.load.threads,
            iops,
            mb_per_s: rounded(iops * plan.load.work.request_bytes as f64 / 1e6),
            reads: sum(|tally| tally.reads),
            writes: sum(|tally| tally.writes),
            flushes: sum(|tally| tally.flushes),
            flush_latency_us: flush_latencies(tallies),
            vectors: sum(|tally| tally.vectors),
            refused: sum(|tally| tally.refused),
            cpu_us_per_request: cpu_us,
            user_us_per_request: us(spent.0),
            system_us_per_request: us(spent.1),
            iops_per_core: if cpu_us > 0.0 { (1e6 / cpu_us).round() } else { 0.0 },
        };
        Self { common, device }
    }
}

fn common(plan: &Plan<'_>, tallies: &[Tally]) -> Report {
    let completed: u64 = tallies.iter().map(|tally| tally.reads + tally.writes).sum();
    let (mut latencies, mut lags, mut errors_by_kind) =
        (Latencies::new(), Latencies::new(), BTreeMap::<String, u64>::new());
    for tally in tallies {
        latencies.merge(&tally.latencies);
        lags.merge(&tally.lags);
        for (kind, count) in &tally.errors {
            *errors_by_kind.entry(kind.clone()).or_default() += count;
        }
    }
    let achieved_rps = (completed as f64 / plan.load.window.duration.as_secs_f64()).round();
    let all = latencies.quantiles();
    Report {
        offered_rps: plan.rate.unwrap_or(achieved_rps),
        achieved_rps,
        completed,
        errors: errors_by_kind.values().sum(),
        lost: tallies.iter().map(|tally| tally.lost).sum(),
        server_cpu_us_per_op: None,
        operations_per_s: achieved_rps,
        operations_per_server_cpu_s: None,
        latency_us: LatencyReport { all, small: all, large: Quantiles::default(), octaves: Vec::new() },
        errors_by_kind,
        misses: 0,
        driver: DriverShare {
            send_lag_us: lags.quantiles(),
            receive_lag_us: Quantiles::default(),
            kernel_stamped: 0.0,
            busy: None,
            sending: None,
            long_turns: None,
        },
        duration_s: plan.load.window.duration.as_secs_f64(),
        target: plan.target.to_string(),
        workload: "random".to_owned(),
        seed: plan.load.seed,
    }
}

fn flush_latencies(tallies: &[Tally]) -> Quantiles {
    let mut latencies = Latencies::new();
    tallies.iter().for_each(|tally| latencies.merge(&tally.flush_latencies));
    latencies.quantiles()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { common, device } = self;
        let Figures { request_bytes, driver, width, depth, threads, .. } = device;
        let cache = if device.direct { "" } else { ", buffered" };
        writeln!(
            f,
            "random {request_bytes} bytes on {}, {driver}{cache}, width {width}, depth {depth}, {threads} threads, \
             {} s, seed {}",
            common.target, common.duration_s, common.seed
        )?;
        for reason in [&device.why_threads, &device.why_buffered].into_iter().flatten() {
            writeln!(f, "{reason}")?;
        }
        if let Some(why) = &device.why_unregistered {
            let lanes = device.unregistered_lanes;
            writeln!(f, "{lanes} lanes map their buffers with each request: {why}")?;
        }
        self.write_rates(f)?;
        write!(f, "\n{}", latencies(&common.latency_us.all, &device.flush_latency_us))?;
        let lags = &common.driver.send_lag_us;
        if lags.count > 0 {
            let (p50, p99) = (micros(lags.p50), micros(lags.p99));
            write!(f, "\nof that the driver: submitted late by p50 {p50} p99 {p99} us")?;
        }
        Ok(())
    }
}

impl DeviceReport {
    fn write_rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { common, device } = self;
        let share = 100.0 * device.reads as f64 / common.completed.max(1) as f64;
        write!(
            f,
            "{:.0} IOPS, {:.1} MB/s, {share:.0} % reads, CPU {:.2} us a request ({:.2} user, {:.2} system), \
             {:.0} IOPS a core",
            device.iops,
            device.mb_per_s,
            device.cpu_us_per_request,
            device.user_us_per_request,
            device.system_us_per_request,
            device.iops_per_core
        )?;
        if common.errors + common.lost > 0 {
            write!(
                f,
                "\nerrors {} ({}), lost {}",
                common.errors,
                kinds(&common.errors_by_kind),
                common.lost
            )?;
        }
        if device.refused > 0 {
            write!(
                f,
                "\n{} requests found the device full: it takes {}",
                device.refused, device.in_flight_max
            )?;
        }
        Ok(())
    }
}

fn latencies(all: &Quantiles, flushes: &Quantiles) -> Table {
    let mut table = numbers_table(&["latency, us", "p50", "p90", "p99", "p99.9", "p99.99", "max", "count"]);
    let rows = [("all", all), ("flushes", flushes)];
    for (name, row) in rows.into_iter().filter(|(name, row)| *name == "all" || row.count > 0) {
        let Quantiles { p50, p90, p99, p999, p9999, max, count, .. } = *row;
        let mut cells = vec![Cell::new(name)];
        cells.extend([p50, p90, p99, p999, p9999, max].map(|us| number(micros(us))));
        cells.push(number(count.to_string()));
        table.add_row(cells);
    }
    table
}
