//! Figures 10 to 14 and 16 of MICA, measured on this machine (MICA §5.2 to §5.5). Figure 15 needs several network cards.

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use minos_workload::{Arrivals, DatagramOptions, Pace, Report, RunConfig, Shape, Workload};

use super::{
    answered,
    devices::Study,
    plots::{Corner, Evidence, Paper, Plot, Scale},
    table::{Cell, Table},
};
use crate::{
    lab::{
        bench::{
            inproc::{TablePoint, measure_table},
            target::Table as Mode,
        },
        calibrate::stats::median,
        contestant::{Contestant, Server, start},
    },
    serve::AccessMode,
};

/// Names and workloads of the paper's data sets.
const ITEMS: [(&str, &str); 3] =
    [("tiny items", "mica-tiny"), ("small items", "mica-small"), ("large items", "mica-large")];
const TINY: &str = "mica-tiny";
/// Items of a data set: more than the caches hold.
const KEYS: u64 = 1 << 19;
/// For servers, which must be filled: fewer.
const SERVED_KEYS: u64 = 1 << 16;
/// Exponents of uniform and of skewed popularity.
const POPULARITIES: [f64; 2] = [0.0, 0.99];
/// Shares of GETs.
const GET_RATIOS: [f64; 2] = [0.5, 0.95];
/// Requests on each connection at a time for the highest throughput.
const PIPELINE: usize = 16;
const CONNECTIONS: u32 = 16;
/// Rates of a curve, as shares of the highest.
const SHARES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.85];
/// Threads of the paper's server.
const THREADS_MAX: usize = 16;

/// Servers, and the names of their lines by popularity.
const SYSTEMS: [(Contestant, [&str; 2]); 3] = [
    (Contestant::Native, ["native uniform", "native skewed"]),
    (Contestant::SizeAware, ["memcached's protocol uniform", "memcached's protocol skewed"]),
    (Contestant::Memcached, ["memcached uniform", "memcached skewed"]),
];
const MODES: [(Mode, [&str; 2]); 2] =
    [(Mode::Cache, ["cache uniform", "cache skewed"]), (Mode::Store, ["store uniform", "store skewed"])];
const ACCESSES: [(AccessMode, [&str; 2]); 3] = [
    (AccessMode::Erew, ["EREW uniform", "EREW skewed"]),
    (AccessMode::Crew, ["CREW uniform", "CREW skewed"]),
    (AccessMode::Crcw, ["CRCW uniform", "CRCW skewed"]),
];

const fn plot(number: &'static str, x: (&'static str, Scale), y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Mica, number, x, y).legend_at(Corner::LowerRight).evidence(Evidence::Measured)
}

/// Throughput of servers, by items and share of GETs.
pub(super) const FIGURE_10: [Plot; 1] = [plot("10", ("GETs %", Scale::Linear), &["operations a CPU second"])
    .panels("items")
    .lines("server")
    .log_y()];
/// Throughput of each thread that owns its partitions.
pub(super) const FIGURE_11: [Plot; 1] =
    [plot("11", ("thread", Scale::Linear), &["uniform", "skewed"]).y_called("operations a CPU second")];
/// Throughput of cache and store within a process.
pub(super) const FIGURE_12: [Plot; 1] =
    [plot("12", ("GETs %", Scale::Linear), &["operations a CPU second"]).lines("table")];
/// Latency against throughput of servers.
pub(super) const FIGURE_13: [Plot; 1] = [plot("13", ("operations a second", Scale::Linear), &["median us"])
    .lines("server")
    .log_y()
    .legend_at(Corner::UpperLeft)];
/// Throughput by threads.
pub(super) const FIGURE_14: [Plot; 1] =
    [plot("14", ("threads", Scale::Log2), &["operations a CPU second"]).lines("GETs %")];
/// Throughput by modes of access.
pub(super) const FIGURE_16: [Plot; 1] =
    [plot("16", ("GETs %", Scale::Linear), &["operations a CPU second"]).lines("access")];

/// Each point is a median of so many.
const ROUNDS: usize = 3;

pub(super) fn figure_10(study: &Study<'_>) -> Result<Table> {
    let mut rows = Vec::new();
    for (items, name) in ITEMS {
        for (contestant, lines) in SYSTEMS {
            let Some(served) = Served::filled(study, contestant, name)? else { continue };
            for (zipf, line) in POPULARITIES.into_iter().zip(lines) {
                for get_ratio in GET_RATIOS {
                    let workload = workload(name, SERVED_KEYS, (zipf, get_ratio), study.seed)?;
                    let [by_processor_time, by_time] = served.medians(&workload)?;
                    let numbers = [100.0 * get_ratio, by_processor_time, by_time];
                    let names = [items, line].map(Cell::Name);
                    rows.push(names.into_iter().chain(numbers.map(Cell::Number)).collect());
                }
            }
        }
    }
    let title = "end to end over loopback, requests of one key".to_owned();
    let columns = vec!["items", "server", "GETs %", "operations a CPU second", "operations a second"];
    Ok(Table { title, columns, rows })
}

pub(super) fn figure_11(study: &Study<'_>) -> Result<Table> {
    let [uniform, skewed] = POPULARITIES.map(|zipf| Case::new(study, (zipf, 0.5), threads_max()));
    let rates = local(study, &[uniform?, skewed?])?;
    let pairs = rates[0].iter().zip(&rates[1]).enumerate();
    let rows = pairs.map(|(thread, (uniform, skewed))| [thread as f64, *uniform, *skewed].map(Cell::Number));
    let title = "tiny items within the process, EREW, 50 % GETs".to_owned();
    let rows = rows.map(Vec::from).collect();
    Ok(Table { title, columns: vec!["thread", "uniform", "skewed"], rows })
}

pub(super) fn figure_12(study: &Study<'_>) -> Result<Table> {
    let kinds = MODES.map(|(mode, lines)| ((mode, AccessMode::Erew), lines));
    by_get_ratio(study, "table", "tiny items within the process, EREW", &kinds)
}

pub(super) fn figure_16(study: &Study<'_>) -> Result<Table> {
    let kinds = ACCESSES.map(|(access, lines)| ((Mode::Cache, access), lines));
    by_get_ratio(study, "access", "tiny items within the process, a cache", &kinds)
}

/// Throughput of tables within the process, by popularity and share of GETs.
fn by_get_ratio(
    study: &Study<'_>,
    column: &'static str,
    what: &str,
    kinds: &[((Mode, AccessMode), [&'static str; 2])],
) -> Result<Table> {
    let threads = threads_max();
    let (mut cases, mut names) = (Vec::new(), Vec::new());
    for &((mode, access), lines) in kinds {
        for (zipf, line) in POPULARITIES.into_iter().zip(lines) {
            for get_ratio in GET_RATIOS {
                cases.push(Case { mode, access, ..Case::new(study, (zipf, get_ratio), threads)? });
                names.push([Cell::Name(line), (100.0 * get_ratio).into()]);
            }
        }
    }
    let rates = local(study, &cases)?.into_iter().map(|rates| rates.iter().sum::<f64>().into());
    let rows = names.into_iter().zip(rates).map(|([line, gets], rate)| vec![line, gets, rate]).collect();
    let title = format!("{what}, {threads} threads");
    Ok(Table { title, columns: vec![column, "GETs %", "operations a CPU second"], rows })
}

pub(super) fn figure_13(study: &Study<'_>) -> Result<Table> {
    let workload = workload(TINY, SERVED_KEYS, (0.0, 0.5), study.seed)?;
    let mut rows = Vec::new();
    for (contestant, _) in SYSTEMS {
        let Some(served) = Served::filled(study, contestant, TINY)? else { continue };
        // Requests of an open loop come one by one.
        let peak = served.run(&workload, Arrivals::Closed { pipeline: 1 })?.operations_per_s;
        for share in SHARES {
            let report = served.run(&workload, Arrivals::Open { rate: peak * share })?;
            let latency = report.latency_us.all;
            let numbers = [report.operations_per_s, latency.p50, latency.p99].map(Cell::Number);
            rows.push([Cell::Name(contestant.name())].into_iter().chain(numbers).collect());
        }
    }
    let title = "tiny items over loopback, 50 % GETs".to_owned();
    Ok(Table { title, columns: vec!["server", "operations a second", "median us", "p99 us"], rows })
}

pub(super) fn figure_14(study: &Study<'_>) -> Result<Table> {
    let (mut cases, mut places) = (Vec::new(), Vec::new());
    for get_ratio in GET_RATIOS {
        for threads in (0..).map(|power| 1 << power).take_while(|&threads| threads <= threads_max()) {
            cases.push(Case::new(study, (POPULARITIES[1], get_ratio), threads)?);
            places.push([100.0 * get_ratio, threads as f64]);
        }
    }
    let rates = local(study, &cases)?.into_iter().map(|rates| rates.iter().sum());
    let rows = places.into_iter().zip(rates).map(|([gets, threads], rate)| vec![gets, threads, rate]);
    let rows = rows.map(|row| row.into_iter().map(Cell::Number).collect()).collect();
    let title = "tiny items within the process, EREW, skewed".to_owned();
    Ok(Table { title, columns: vec!["GETs %", "threads", "operations a CPU second"], rows })
}

fn workload(name: &str, keys: u64, (zipf, get_ratio): (f64, f64), seed: u64) -> Result<Workload> {
    let shape = Shape { keys: Some(keys), zipf: Some(zipf), get_ratio: Some(get_ratio), ..Shape::default() };
    Ok(Workload::open(name, &shape, seed)?)
}

/// Threads on a table within the process.
struct Case {
    mode: Mode,
    access: AccessMode,
    workload: Workload,
    threads: usize,
}

impl Case {
    /// A cache whose partitions are owned.
    fn new(study: &Study<'_>, load: (f64, f64), threads: usize) -> Result<Self> {
        let workload = workload(TINY, KEYS, load, study.seed)?;
        Ok(Self { mode: Mode::Cache, access: AccessMode::Erew, workload, threads })
    }
}

/// Operations of each thread in a second of its processor time, a line for each case. All cases are measured in turn,
/// [`ROUNDS`] times.
fn local(study: &Study<'_>, cases: &[Case]) -> Result<Vec<Vec<f64>>> {
    let cpus = minos_net::allowed_cpus();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let rates = cases.iter().map(|Case { mode, access, workload, threads }| {
            study.bar.tick();
            let (table, access, threads, duration) = (*mode, *access, *threads, study.window);
            measure_table(&TablePoint { table, access, workload, threads, cpus: &cpus, duration })
        });
        rounds.push(rates.collect::<Result<Vec<_>>>()?);
    }
    let medians = |(case, of): (usize, &Case)| {
        let of_thread = |thread: usize| {
            let rates: Vec<f64> = rounds.iter().map(|round: &Vec<Vec<f64>>| round[case][thread]).collect();
            median(&rates)
        };
        (0..of.threads).map(of_thread).collect()
    };
    Ok(cases.iter().enumerate().map(medians).collect())
}

/// Threads that each have a processor: a power of two, as the partitions are, so that all own as many.
fn threads_max() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    1 << processors.clamp(1, THREADS_MAX).ilog2()
}

/// A server with all items of a data set; stopped when dropped.
struct Served<'a> {
    study: &'a Study<'a>,
    contestant: Contestant,
    server: Server,
    cpus: Vec<usize>,
}

impl<'a> Served<'a> {
    /// `None` if the server is not installed.
    fn filled(study: &'a Study<'a>, contestant: Contestant, name: &str) -> Result<Option<Self>> {
        let cpus = minos_net::allowed_cpus();
        let Some(server) = start(contestant, &cpus)? else { return Ok(None) };
        let served = Self { study, contestant, server, cpus };
        let items = workload(name, SERVED_KEYS, (0.0, 1.0), study.seed)?;
        let loaded = minos_workload::load(&served.config(Arrivals::Closed { pipeline: 1 }), &items, |_| {})?;
        ensure!(loaded.errors == 0, "{}: {} items were not stored", contestant.name(), loaded.errors);
        Ok(Some(served))
    }

    /// The highest throughput by the server's processor time, and by time.
    fn medians(&self, workload: &Workload) -> Result<[f64; 2]> {
        let closed = Arrivals::Closed { pipeline: PIPELINE };
        let rounds = (0..ROUNDS).map(|_| self.run(workload, closed)).collect::<Result<Vec<_>>>()?;
        let median_of = |figure: fn(&Report) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
        Ok([
            median_of(|report| report.operations_per_server_cpu_s.unwrap_or(f64::NAN)),
            median_of(|report| report.operations_per_s),
        ])
    }

    fn run(&self, workload: &Workload, arrivals: Arrivals) -> Result<Report> {
        self.study.bar.tick();
        answered(&self.config(arrivals), workload).context(self.contestant.name())
    }

    fn config(&self, arrivals: Arrivals) -> RunConfig {
        let duration = self.study.window;
        RunConfig {
            target: self.server.target.clone(),
            arrivals,
            // With one processor a spinning driver would take it from the server.
            pace: if self.cpus.len() > 1 { Pace::Spin } else { Pace::Sleep },
            duration,
            warmup: duration / 4,
            drain: Duration::from_secs(1),
            threads: 1,
            connections: CONNECTIONS,
            keys_per_get: 1,
            check_contents: false,
            cpus: self.cpus.last().copied().filter(|_| self.cpus.len() > 1).into_iter().collect(),
            server_pid: Some(self.server.pid()),
            receive_buffer: None,
            datagrams: DatagramOptions::default(),
        }
    }
}
