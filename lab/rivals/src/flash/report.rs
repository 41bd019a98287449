//! Tables and JSON.

use super::{
    job::{Outcome, Peer, Work},
    options::FlashOptions,
    peers::Key,
};
use crate::emit::{emit, kernel, processor};
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The measurements of one contestant with one kind of work.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) peer: Peer,
    pub(super) value_bytes: usize,
    pub(super) work: Work,
    /// One for each round.
    pub(super) outcomes: Vec<Outcome>,
}

impl Cell {
    /// Median, least and greatest of a figure; of an even number the lower median.
    fn spread(&self, figure: impl Fn(&Outcome) -> f64) -> [f64; 3] {
        let mut figures: Vec<f64> = self.outcomes.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        let last = figures.len().saturating_sub(1);
        [at(last / 2), at(0), at(last)]
    }

    /// Sum over all rounds.
    fn sum(&self, count: impl Fn(&Outcome) -> u64) -> f64 {
        self.outcomes.iter().map(count).sum::<u64>() as f64
    }

    /// Bytes read from the device for each byte that gets asked for; NaN without gets.
    fn read_amplification(&self) -> f64 {
        self.sum(|outcome| outcome.read_bytes) / (self.sum(|outcome| outcome.gets) * self.item_bytes())
    }

    /// Bytes written to the device for each byte that was stored; NaN without puts.
    fn write_amplification(&self) -> f64 {
        self.sum(|outcome| outcome.written_bytes) / (self.sum(|outcome| outcome.puts) * self.item_bytes())
    }

    fn item_bytes(&self) -> f64 {
        (size_of::<Key>() + self.value_bytes) as f64
    }

    fn found_percent(&self) -> f64 {
        100.0 * self.sum(|outcome| outcome.found) / self.sum(|outcome| outcome.gets)
    }

    /// Most memory until the end of this work.
    fn peak_mib(&self) -> f64 {
        self.outcomes.iter().map(|outcome| outcome.peak_bytes).max().unwrap_or(0) as f64 / f64::from(1 << 20)
    }

    fn row(&self) -> String {
        let [rate, least, greatest] = self.spread(Outcome::rate);
        let [processor, processor_least, processor_greatest] = self.spread(Outcome::processor_us);
        let of_puts =
            if self.sum(|outcome| outcome.puts) > 0.0 { self.write_amplification() } else { f64::NAN };
        let of_gets =
            if self.sum(|outcome| outcome.gets) > 0.0 { self.read_amplification() } else { f64::NAN };
        format!(
            "| {} | {rate:.0} ({least:.0}..{greatest:.0}) | {processor:.1} \
             ({processor_least:.1}..{processor_greatest:.1}) | {} | {} | {} | {:.0} |",
            self.peer.name(),
            shown(of_gets, 2),
            shown(of_puts, 2),
            shown(self.found_percent(), 2),
            self.peak_mib(),
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.peer.name(),
            "value_bytes": self.value_bytes,
            "work": self.work.to_string(),
            "keys_per_s": self.spread(Outcome::rate),
            "processor_us_per_key": self.spread(Outcome::processor_us),
            "read_amplification": self.read_amplification(),
            "write_amplification": self.write_amplification(),
            "found_percent": self.found_percent(),
            "peak_mib": self.peak_mib(),
            "rounds": self.outcomes,
        })
    }
}

/// A figure, or a dash if there is none.
fn shown(figure: f64, digits: usize) -> String {
    if figure.is_finite() { format!("{figure:.digits$}") } else { "-".to_owned() }
}

/// All measurements of one run.
#[derive(Debug)]
pub(super) struct Report {
    head: String,
    cells: Vec<Cell>,
}

impl Report {
    /// An empty report, with a head that describes run and machine.
    pub(super) fn new(options: &FlashOptions) -> Self {
        let sizes: Vec<_> = options
            .value_bytes()
            .map(|bytes| format!("{} items of {} + {bytes} bytes", options.items(bytes), size_of::<Key>()))
            .collect();
        let head = format!(
            "{}; {} MiB of memory for each contestant; {} rounds of {} s. Medians (least..greatest).\n\
             Read and written: bytes of the device for each byte asked for or stored.\n\n\
             - Processor: {}, {} of them; Linux {}\n",
            sizes.join(", "),
            options.memory_bytes() >> 20,
            options.rounds,
            options.seconds,
            processor(),
            std::thread::available_parallelism().map_or(0, usize::from),
            kernel(),
        );
        Self { head, cells: Vec::new() }
    }

    /// Adds a measurement, and shows it on standard error.
    pub(super) fn add(&mut self, cell: Cell) {
        eprintln!("{} bytes, {}: {}", cell.value_bytes, cell.work, cell.row());
        self.cells.push(cell);
    }

    /// Prints the report, and writes it to a file if one was named.
    pub(super) fn write(&self, options: &FlashOptions) -> Result<()> {
        let cells: Vec<_> = self.cells.iter().map(Cell::to_json).collect();
        let json = json!({ "about": self.head, "results": cells });
        emit(&self.to_markdown(), options.json.then_some(&json), options.out.as_deref())
    }

    fn to_markdown(&self) -> String {
        let mut text = self.head.clone();
        let mut last = None;
        for cell in &self.cells {
            let title = (cell.value_bytes, cell.work);
            if last.replace(title) != Some(title) {
                let _ = write!(
                    text,
                    "\n## {} bytes, {}\n\n| | keys a second | CPU us a key | read | written | found % | peak MiB |\n\
                     |---|---:|---:|---:|---:|---:|---:|\n",
                    cell.value_bytes, cell.work
                );
            }
            let _ = writeln!(text, "{}", cell.row());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(work: Work, outcomes: Vec<Outcome>) -> Cell {
        Cell { peer: Peer::Fjall, value_bytes: 1016, work, outcomes }
    }

    #[test]
    fn rows_have_medians_and_amplification() {
        let outcome = |seconds: f64| Outcome {
            seconds,
            processor_s: 0.001,
            gets: 90,
            found: 45,
            puts: 10,
            read_bytes: 90 * 4096,
            written_bytes: 10 * 3072,
            peak_bytes: 5 << 20,
        };
        let mixed = cell(Work::Mixed { width: 2 }, vec![outcome(1.0), outcome(0.5), outcome(2.0)]);
        let row = "| fjall | 100 (50..200) | 10.0 (10.0..10.0) | 4.00 | 3.00 | 50.00 | 5 |";
        assert_eq!(mixed.row(), row);
        let load = cell(Work::Load, vec![Outcome { gets: 0, found: 0, ..outcome(1.0) }]);
        assert_eq!(load.row(), "| fjall | 10 (10..10) | 100.0 (100.0..100.0) | - | 3.00 | - | 5 |");
        let report = Report { head: String::new(), cells: vec![load, mixed.clone(), mixed] };
        let text = report.to_markdown();
        assert_eq!(text.matches("## ").count(), 2, "{text}");
        assert_eq!(text.matches(row).count(), 2, "{text}");
    }
}
