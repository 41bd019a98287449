//! `minos figures`: the figures of the papers, as pictures and as tables.

mod chart;
mod csv;
mod devices;
mod mica;
mod minos;
mod plots;
mod servers;
mod stores;
mod table;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minos_node::settings::parse_time;
use minos_rackmodel::{
    Cache, CacheError, Popularity, PopularitySpec,
    figures::{self, Study},
};
use minos_sim::dispatch::Costs;
use minos_workload::{Report, RunConfig, Workload};

use self::{
    minos::Basis,
    plots::{Evidence, PLOTS, Paper, Plot},
    table::Table,
};
use crate::lab::bench::emit;

/// Windows in which a server may answer nothing, one after another: on a busy machine a short one may be empty.
const EMPTY_MAX: usize = 10;

/// Draw the figures of the papers: SVG, PNG and CSV of each.
///
/// Each is marked as measured or simulated. A figure whose CSV and SVG files exist and were made with the
/// same parameters is not made again, so that an interrupted run can be continued.
#[derive(Args, Debug)]
pub(crate) struct FiguresArgs {
    /// The paper
    #[arg(long, value_enum)]
    paper: Papers,

    /// Only the figure of this number
    #[arg(long, value_name = "NUMBER")]
    figure: Option<String>,

    /// Output folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Requests of each simulation of servers
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    arrivals: u64,

    /// Keys of the dataset
    #[arg(long, value_name = "N", default_value_t = 250_000_000)]
    keys: u64,

    /// Servers
    #[arg(long, value_name = "N", default_value_t = 512)]
    servers: u32,

    /// Requests for many keys, for each point of the vector paper
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    trials: u32,

    /// Measured time of each point: the vector paper's on devices, and MICA's
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_time)]
    window: Duration,

    /// Minos: costs: kernel-bypass, sockets, or a file; the figures for costs other than kernel-bypass are
    /// named after them
    #[arg(long, value_name = "NAME|FILE", default_value = minos::COSTS)]
    costs: String,

    /// Make existing figures again
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Papers {
    /// RackOut (TOCS 2019)
    Rackout,
    /// Using vector interfaces (SoCC'12), figures 3 to 13
    Vector,
    /// Size-aware sharding (NSDI'19)
    Minos,
    /// MICA (NSDI'14), figures 10 to 14 and 16
    Mica,
    /// All that can be drawn
    All,
}

const MICRO_SHARDS_PER_SERVER: u32 = 1_000;
const THREADS: usize = 2;

/// One table of numbers, and its pictures.
struct Job<'a> {
    plots: &'a [Plot],
    /// The suffix of its file names.
    suffix: String,
    /// The parameters that the numbers depend on; the first line of its CSV files.
    parameters: String,
    make: Box<dyn Fn() -> Result<Table> + 'a>,
}

/// Runs the subcommand.
///
/// # Errors
/// A parameter is out of bounds, a measurement fails, or a file cannot be written.
pub(crate) fn run(args: &FiguresArgs) -> Result<()> {
    let papers = args.papers();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {msg}, {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let popularities = Popularities { known: RefCell::default(), bar: &bar };
    let popularity = |spec| popularities.get(spec);
    let (racks, servers) = (args.study(&popularity), args.minos(&bar)?);
    let mut jobs = Vec::new();
    for paper in papers {
        match paper {
            Paper::Rackout => jobs.extend(args.racks(*paper, &racks)),
            Paper::Vector => {
                jobs.extend(args.devices(&bar));
                jobs.extend(args.racks(*paper, &racks));
            }
            Paper::Minos => jobs.extend(args.servers(&servers)?),
            Paper::Mica => jobs.extend(args.tables(&bar)),
        }
    }
    jobs.retain(|job| !args.plots(job).is_empty());
    if jobs.is_empty() {
        bail!("figure: there is no {:?}", args.figure.as_deref().unwrap_or_default());
    }
    fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    args.draw_all(&jobs, &bar)
}

impl FiguresArgs {
    fn papers(&self) -> &'static [Paper] {
        match self.paper {
            Papers::Rackout => &[Paper::Rackout],
            Papers::Vector => &[Paper::Vector],
            Papers::Minos => &[Paper::Minos],
            Papers::Mica => &[Paper::Mica],
            Papers::All => &[Paper::Minos, Paper::Rackout, Paper::Vector, Paper::Mica],
        }
    }

    fn study<'a>(
        &self,
        popularity: &'a dyn Fn(PopularitySpec) -> Result<Popularity, CacheError>,
    ) -> Study<'a> {
        Study {
            keys: self.keys,
            alpha: 0.99,
            servers: self.servers,
            micro_shards_per_server: MICRO_SHARDS_PER_SERVER,
            arrivals: self.arrivals,
            seed: self.seed,
            popularity,
        }
    }

    fn minos<'a>(&'a self, bar: &'a ProgressBar) -> Result<minos::Study<'a>> {
        let costs = Costs::named(&self.costs)?;
        // The name of a file without folder and extension.
        let costs_name = Path::new(&self.costs).file_stem().and_then(OsStr::to_str).unwrap_or("file");
        Ok(minos::Study { costs, costs_name, requests: self.arrivals, seed: self.seed, bar })
    }

    /// The figures of the papers on racks.
    fn racks<'a>(&'a self, paper: Paper, study: &'a Study<'a>) -> impl Iterator<Item = Job<'a>> {
        let Self { seed, arrivals, keys, servers, trials, .. } = self;
        let of_paper = match paper {
            Paper::Vector => format!("trials {trials}; seed {seed}"),
            _ => format!("servers {servers}; keys {keys}; arrivals {arrivals}; seed {seed}"),
        };
        PLOTS.iter().filter(move |plot| plot.paper == paper).map(move |plot| Job {
            plots: slice::from_ref(plot),
            suffix: String::new(),
            parameters: parameters(plot.evidence, &of_paper),
            make: Box::new(move || {
                Ok(match paper {
                    Paper::Vector => figures::figure_13(self.trials, self.seed)?,
                    _ => figures::figure(plot.number, study)?,
                }
                .into())
            }),
        })
    }

    /// The figures of devices, of stores and of servers above them.
    fn devices<'a>(&'a self, bar: &'a ProgressBar) -> [Job<'a>; 9] {
        [
            self.measured(bar, &devices::MODELLED, devices::Study::modelled),
            self.measured(bar, &devices::MEASURED, devices::Study::measured),
            self.measured(bar, &stores::MODELLED, stores::modelled),
            self.measured(bar, &stores::MEASURED, stores::measured),
            self.measured(bar, &servers::FIGURE_3, servers::figure_3),
            self.measured(bar, &servers::FIGURE_9, servers::figure_9),
            self.measured(bar, &servers::FIGURE_10, servers::figure_10),
            self.measured(bar, &servers::FIGURE_11, servers::figure_11),
            self.measured(bar, &servers::FIGURE_12, servers::figure_12),
        ]
    }

    /// The figures of MICA's tables, and of servers on them.
    fn tables<'a>(&'a self, bar: &'a ProgressBar) -> [Job<'a>; 6] {
        [
            self.measured(bar, &mica::FIGURE_10, mica::figure_10),
            self.measured(bar, &mica::FIGURE_11, mica::figure_11),
            self.measured(bar, &mica::FIGURE_12, mica::figure_12),
            self.measured(bar, &mica::FIGURE_13, mica::figure_13),
            self.measured(bar, &mica::FIGURE_14, mica::figure_14),
            self.measured(bar, &mica::FIGURE_16, mica::figure_16),
        ]
    }

    fn measured<'a>(
        &'a self,
        bar: &'a ProgressBar,
        plots: &'static [Plot],
        make: fn(&devices::Study<'a>) -> Result<Table>,
    ) -> Job<'a> {
        let study = devices::Study { window: self.window, seed: self.seed, folder: &self.out, bar };
        let parameters = parameters(plots[0].evidence, &study.parameters());
        Job { plots, suffix: String::new(), parameters, make: Box::new(move || make(&study)) }
    }

    /// The figures of Minos; with other costs, only those that depend on the costs.
    fn servers<'a>(&self, study: &'a minos::Study<'a>) -> Result<Vec<Job<'a>>> {
        let suffix = match study.costs_name {
            minos::COSTS => String::new(),
            name => format!("-{name}"),
        };
        let drawn =
            minos::FIGURES.iter().filter(|figure| suffix.is_empty() || figure.basis == Basis::Servers);
        let job = |figure: &'a minos::Figure| {
            Ok(Job {
                plots: figure.plots,
                suffix: suffix.clone(),
                parameters: parameters(figure.plots[0].evidence, &study.parameters(figure)?),
                make: Box::new(move || (figure.make)(study)),
            })
        };
        drawn.map(job).collect()
    }

    /// The plots that were asked for.
    fn plots<'a>(&self, job: &Job<'a>) -> Vec<&'a Plot> {
        let wanted = |plot: &&Plot| self.figure.as_ref().is_none_or(|number| plot.number == number);
        job.plots.iter().filter(wanted).collect()
    }

    fn draw_all(&self, jobs: &[Job<'_>], bar: &ProgressBar) -> Result<()> {
        bar.set_length(jobs.len() as u64);
        let (mut drawn, mut kept, mut evidence) = (0, 0, BTreeSet::new());
        for job in jobs {
            let plots = self.plots(job);
            evidence.extend(plots.iter().map(|plot| plot.evidence.to_string()));
            let (there, missing): (Vec<_>, Vec<_>) =
                plots.into_iter().partition(|plot| !self.force && self.is_there(job, plot));
            there.iter().try_for_each(|plot| self.draw_pixels(job, plot))?;
            if let Some(first) = missing.first() {
                bar.set_message(first.name());
                self.draw(job, &missing).with_context(|| first.name())?;
            }
            (drawn, kept) = (drawn + missing.len(), kept + there.len());
            bar.inc(1);
        }
        bar.finish_and_clear();
        let evidence: Vec<_> = evidence.into_iter().collect();
        let (out, evidence) = (self.out.display(), evidence.join(" and "));
        Ok(emit(&format!("figures in {out}, {evidence}: {drawn} drawn, {kept} there already"))?)
    }

    fn path(&self, job: &Job<'_>, plot: &Plot, extension: &str) -> PathBuf {
        self.out.join(format!("{}{}.{extension}", plot.name(), job.suffix))
    }

    /// The CSV file is written last: if it is valid, the picture exists.
    fn is_there(&self, job: &Job<'_>, plot: &Plot) -> bool {
        let picture = self.path(job, plot, "svg").is_file();
        picture && csv::begins_with(&self.path(job, plot, "csv"), &job.parameters)
    }

    /// Makes a PNG file from an existing SVG file, unless it exists: git holds only the SVG files.
    fn draw_pixels(&self, job: &Job<'_>, plot: &Plot) -> Result<()> {
        let png = self.path(job, plot, "png");
        if png.is_file() {
            return Ok(());
        }
        let svg = self.path(job, plot, "svg");
        let picture = fs::read_to_string(&svg).with_context(|| svg.display().to_string())?;
        chart::write_pixels(&picture, &png)
    }

    fn draw(&self, job: &Job<'_>, plots: &[&Plot]) -> Result<()> {
        let table = (job.make)()?;
        for plot in plots {
            let csv = self.path(job, plot, "csv");
            remove(&csv)?;
            chart::draw(plot, &table, &self.path(job, plot, "svg"), &self.path(job, plot, "png"))?;
            csv::write(&csv, &job.parameters, &table)?;
        }
        Ok(())
    }
}

fn parameters(evidence: Evidence, of_figure: &str) -> String {
    format!("# {evidence}; minos {}; {of_figure}", env!("CARGO_PKG_VERSION"))
}

/// Removes a file, so that a later run does not find an incomplete figure.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Cached popularities, of this run or of this user.
struct Popularities<'a> {
    known: RefCell<Vec<Popularity>>,
    bar: &'a ProgressBar,
}

impl Popularities<'_> {
    fn get(&self, spec: PopularitySpec) -> Result<Popularity, CacheError> {
        if let Some(known) = self.known.borrow().iter().find(|known| *known.spec() == spec) {
            return Ok(known.clone());
        }
        let progress = |_| self.bar.tick();
        let popularity = match Cache::of_user() {
            Some(cache) => cache.popularity(spec, THREADS, progress)?,
            None => Popularity::exact(spec, THREADS, progress)?,
        };
        self.known.borrow_mut().push(popularity.clone());
        Ok(popularity)
    }
}

/// A run in whose window something was answered.
fn answered(config: &RunConfig, workload: &Workload) -> Result<Report> {
    for _ in 0..EMPTY_MAX {
        let report = minos_workload::run(config, workload, |_| {})?;
        let Report { errors, misses, .. } = report;
        ensure!(errors == 0 && misses == 0, "{errors} errors, {misses} misses");
        if report.operations_per_s > 0.0 {
            return Ok(report);
        }
    }
    bail!("nothing was answered in {EMPTY_MAX} windows of {:?}", config.duration)
}
