//! Tables and JSON.

use crate::{
    emit::{emit, kernel, processor},
    options::{Options, Preset},
    pages,
    probe::LIMIT_NAME,
    rounds::Samples,
    workload::{Mix, Popularity},
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One contestant with one mix on a number of threads.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) name: String,
    /// Threads that ran at once.
    pub(crate) threads: usize,
    pub(crate) mix: Mix,
    pub(crate) samples: Samples,
}

/// All measurements of one run.
#[derive(Debug)]
pub(crate) struct Report {
    head: String,
    cells: Vec<Cell>,
    threads: Vec<usize>,
    mixes: Vec<Mix>,
}

impl Report {
    /// An empty report, with a head that describes the run and the machine.
    pub(crate) fn new(options: &Options) -> Self {
        let (key_bytes, value_bytes) = options.sizes();
        let preset = match options.preset {
            Preset::Tiny => "Tiny",
            Preset::Small => "Small",
            Preset::Large => "Large",
        };
        let head = format!(
            "{preset} items: {} of {key_bytes} + {value_bytes} bytes; {} operations of each thread in each of {} rounds;\n\
             batches of {}; keys are hashed for Minos {}.\n\n- Processor: {}, {} of them; Linux {}\n\
             - Backing of Minos: {}; glibc's tunables: {}\n",
            options.items(),
            options.operations(),
            options.rounds,
            options.batch,
            if options.hashes_inline() { "within the time that is measured" } else { "beforehand" },
            processor(),
            std::thread::available_parallelism().map_or(0, usize::from),
            kernel(),
            options.backing(),
            std::env::var("GLIBC_TUNABLES").unwrap_or_else(|_| "none".to_owned()),
        );
        Self { head, cells: Vec::new(), threads: options.threads.clone(), mixes: options.mixes() }
    }

    /// Records the pages of the process, after everything is loaded for `threads`.
    pub(crate) fn note_pages(&mut self, threads: usize) -> anyhow::Result<()> {
        Ok(writeln!(
            self.head,
            "- Memory of all contestants together, {threads} threads: {}",
            pages::in_use()?
        )?)
    }

    /// Adds a measurement, and shows it on standard error.
    pub(crate) fn add(&mut self, cell: Cell) {
        let (low, high) = cell.samples.spread();
        eprintln!(
            "{} thread(s), {}: {:7.2} ({low:.2}-{high:.2}) M/s  {:6.2} % hits  {}",
            cell.threads,
            mix_text(cell.mix),
            cell.samples.median(),
            100.0 * cell.samples.hit_ratio(),
            cell.name,
        );
        self.cells.push(cell);
    }

    /// Prints the report, and writes it to a file if one was named.
    pub(crate) fn write(&self, options: &Options) -> anyhow::Result<()> {
        let json = options.json.then(|| self.to_json());
        emit(&self.to_markdown(), json.as_ref(), options.out.as_deref())
    }

    fn to_markdown(&self) -> String {
        let mut text = self.head.clone();
        for &threads in &self.threads {
            let count = if threads == 1 { "One thread".to_owned() } else { format!("{threads} threads") };
            let _ =
                write!(text, "\n## {count}\n\nMillion operations a second: median (smallest..largest).\n\n");
            self.table(&mut text, threads, |cell| {
                let (low, high) = cell.samples.spread();
                let lost = 100.0 * (1.0 - cell.samples.hit_ratio());
                let lost = if lost > 0.0 { format!(", {lost:.1} % missed") } else { String::new() };
                format!("{:.1} ({low:.1}..{high:.1}{lost})", cell.samples.median())
            });
            if self.cells.iter().any(|cell| cell.name == LIMIT_NAME) {
                let _ = write!(text, "\nIn percent of the limit ({LIMIT_NAME}).\n\n");
                self.table(&mut text, threads, |cell| {
                    let share = self.limit(cell).map(|limit| 100.0 * cell.samples.median() / limit);
                    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}"))
                });
            }
        }
        text
    }

    fn table(&self, text: &mut String, threads: usize, show: impl Fn(&Cell) -> String) {
        let titles: Vec<_> = self.mixes.iter().map(|&mix| mix_text(mix)).collect();
        let _ = writeln!(text, "| | {} |\n|---|{}", titles.join(" | "), "---:|".repeat(titles.len()));
        let of_threads = || self.cells.iter().filter(|cell| cell.threads == threads);
        for row in of_threads().filter(|cell| Some(&cell.mix) == self.mixes.first()) {
            let row_cells = of_threads().filter(|cell| cell.name == row.name);
            let shown: Vec<_> = row_cells.map(&show).collect();
            let _ = writeln!(text, "| {} | {} |", row.name, shown.join(" | "));
        }
    }

    /// The machine's limit under the conditions of `cell`, in million operations a second.
    fn limit(&self, cell: &Cell) -> Option<f64> {
        let is_beside = |other: &&Cell| {
            other.name == LIMIT_NAME && other.threads == cell.threads && other.mix == cell.mix
        };
        self.cells.iter().find(is_beside).map(|limit| limit.samples.median())
    }

    fn to_json(&self) -> Value {
        let cells = self.cells.iter().map(|cell| {
            json!({
                "name": cell.name,
                "threads": cell.threads,
                "popularity": popularity_text(cell.mix.popularity),
                "get_percent": cell.mix.get_percent,
                "mops": cell.samples.mops,
                "median_mops": cell.samples.median(),
                "hit_ratio": cell.samples.hit_ratio(),
                "share_of_limit": self.limit(cell).map(|limit| cell.samples.median() / limit),
            })
        });
        json!({ "about": self.head, "results": cells.collect::<Vec<_>>() })
    }
}

fn mix_text(mix: Mix) -> String {
    format!("{}, {} % GET", popularity_text(mix.popularity), mix.get_percent)
}

fn popularity_text(popularity: Popularity) -> &'static str {
    match popularity {
        Popularity::Zipf => "zipf 0.99",
        Popularity::Uniform => "uniform",
    }
}
