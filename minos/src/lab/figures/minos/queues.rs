//! Figure 2: size-unaware designs, without costs of dispatching (Minos §2.2).

use anyhow::Result;
use minos_sim::queues::{EPOCHS_DEFAULT, Figure2, Spec, figure2};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    Study,
};

pub(super) const PLOT: Plot = Plot::new(Paper::Minos, "2", ("load", Scale::Linear), &["p99"])
    .panels("binding")
    .lines("K")
    .log_y()
    .y_called("p99, in service times of a small request");

/// A run is cheaper than one of servers, and K = 1000 needs more requests for the same precision.
const ARRIVALS_A_REQUEST: u64 = 5;

/// The 99th percentile by load; one request in eight hundred is large and takes K times as long.
pub(super) fn figure_2(study: &Study<'_>) -> Result<Table> {
    let paper = Figure2::paper();
    let (arrivals, seed) = (ARRIVALS_A_REQUEST.saturating_mul(study.requests), study.seed);
    let base = Spec { arrivals, epoch_arrivals: (arrivals / EPOCHS_DEFAULT).max(100), seed, ..paper.base };
    let rows = figure2(&Figure2 { base, ..paper }, || study.bar.tick())?;
    let row = |row: &minos_sim::queues::Figure2Row| {
        let plus_minus = row.plus_minus.unwrap_or(f64::NAN);
        let numbers = [row.load, row.throughput, row.percentile, plus_minus];
        let mut cells = vec![row.model.name().into(), row.k.into()];
        cells.extend(numbers.map(Cell::Number));
        cells
    };
    Ok(Table {
        title: "8 workers, 0.125 % of the requests take K times as long".to_owned(),
        columns: vec!["binding", "K", "load", "throughput", "p99", "+/-"],
        rows: rows.iter().map(row).collect(),
    })
}
