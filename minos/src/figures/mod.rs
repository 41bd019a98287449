//! `minos figures`: the figures of the papers, as pictures and as numbers.

mod chart;
mod csv;
mod plots;

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minos_rackmodel::{
    Cache, CacheError, Popularity, PopularitySpec,
    figures::{self, Figure, Study},
};

use self::plots::{Paper, Plot};
use crate::bench::emit;

/// Draw the figures of the papers: SVG, PNG and CSV of each.
///
/// All of them are simulated, and say so. A figure whose CSV file is there and was made with the same
/// parameters is not made again, so that a run that was interrupted goes on where it was.
#[derive(Args, Debug)]
pub(crate) struct FiguresArgs {
    /// Whose figures
    #[arg(long, value_enum)]
    paper: Papers,

    /// The folder that they are left in
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// What everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Requests of each simulation
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

    /// Make those again that are there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Papers {
    /// RackOut (TOCS 2019)
    Rackout,
    /// Using vector interfaces (SoCC'12), what is simulated there
    Vector,
    /// Not there yet
    Minos,
    /// Not there yet
    Mica,
    /// All that are there
    All,
}

const MICRO_SHARDS_PER_SERVER: u32 = 1_000;
const THREADS: usize = 2;

/// Runs the subcommand.
///
/// # Errors
/// The paper's figures are not there yet, a parameter is out of bounds, or a file cannot be written.
pub(crate) fn run(args: &FiguresArgs) -> Result<()> {
    let plots = args.plots()?;
    fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    chart::register_fonts()?;
    let bar = ProgressBar::with_draw_target(Some(plots.len() as u64), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {msg}, {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let popularities = Popularities { known: RefCell::default(), bar: &bar };
    let popularity = |spec| popularities.get(spec);
    let study = args.study(&popularity);
    let mut drawn = 0;
    for plot in &plots {
        bar.set_message(plot.name());
        if args.force || !args.is_there(plot) {
            args.draw(plot, &study).with_context(|| plot.name())?;
            drawn += 1;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let kept = plots.len() - drawn;
    Ok(emit(&format!("figures in {}, simulated: {drawn} drawn, {kept} there already", args.out.display()))?)
}

impl FiguresArgs {
    fn plots(&self) -> Result<Vec<&'static Plot>> {
        let papers: &[Paper] = match self.paper {
            Papers::Rackout => &[Paper::Rackout],
            Papers::Vector => &[Paper::Vector],
            Papers::All => &[Paper::Rackout, Paper::Vector],
            Papers::Minos => bail!("the figures of minos are not there yet; rackout and vector are"),
            Papers::Mica => bail!("the figures of mica are not there yet; rackout and vector are"),
        };
        Ok(plots::PLOTS.iter().filter(|plot| papers.contains(&plot.paper)).collect())
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

    fn path(&self, plot: &Plot, extension: &str) -> PathBuf {
        self.out.join(format!("{}.{extension}", plot.name()))
    }

    /// What the numbers of a figure hang on; the first line of its CSV file.
    fn parameters(&self, plot: &Plot) -> String {
        let Self { seed, arrivals, keys, servers, trials, .. } = self;
        let of_paper = match plot.paper {
            Paper::Rackout => {
                format!("servers {servers}; keys {keys}; arrivals {arrivals}; seed {seed}")
            }
            Paper::Vector => format!("trials {trials}; seed {seed}"),
        };
        format!("# simulated; minos {}; {of_paper}", env!("CARGO_PKG_VERSION"))
    }

    /// The CSV file is written last, so that where it is right, the pictures are.
    fn is_there(&self, plot: &Plot) -> bool {
        let pictures = ["svg", "png"].iter().all(|extension| self.path(plot, extension).is_file());
        pictures && csv::begins_with(&self.path(plot, "csv"), &self.parameters(plot))
    }

    fn draw(&self, plot: &Plot, study: &Study<'_>) -> Result<()> {
        let figure = match plot.paper {
            Paper::Rackout => figures::figure(plot.number, study)?,
            Paper::Vector => figures::figure_13(self.trials, self.seed)?,
        };
        let csv = self.path(plot, "csv");
        remove(&csv)?;
        chart::draw(plot, &figure, &self.path(plot, "svg"), &self.path(plot, "png"))?;
        csv::write(&csv, &self.parameters(plot), &figure)
    }
}

/// What is only half right must not be found by a later run.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Popularities that were used before, in this run or by this user.
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

/// Where the column called `name` stands.
fn column(figure: &Figure, name: &str) -> Result<usize> {
    let found = figure.columns.iter().position(|column| *column == name);
    found.with_context(|| format!("figure {} has no column {name:?}", figure.figure))
}
