//! Figure 9: the load of each worker, in requests and in packets (Minos §6.5).

use anyhow::Result;
use minos_sim::dispatch::{Design, Mix, Outcome, WorkerLoad};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    Study,
};

pub(super) const PLOTS: [Plot; 2] = [plot("9a", &["requests %"]), plot("9b", &["packets %"])];

const fn plot(number: &'static str, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Minos, number, ("worker", Scale::Linear), y).lines("p_L %").log_y()
}

/// Low, medium and high load by large requests.
const LARGE_PERCENTS: [f64; 3] = [0.0625, 0.25, 0.75];
/// Share of the highest rate; the paper does not state its own.
const LOAD: f64 = 0.8;

/// Each worker's share of all requests and of all packets, under Minos.
pub(super) fn figure_9(study: &Study<'_>) -> Result<Table> {
    let mut rows = Vec::new();
    for large_percent in LARGE_PERCENTS {
        let mix = Mix { large_percent, ..Mix::PAPER };
        let spec = study.spec(Design::SizeAware, LOAD * study.most(mix)?, mix);
        let outcomes = study.run_all(&[spec])?;
        rows.extend(outcomes.iter().flat_map(|outcome| loads(large_percent, outcome)));
    }
    let title = study.title("load of each worker of Minos at 0.8 of its highest rate");
    Ok(Table { title, columns: vec!["p_L %", "worker", "requests %", "packets %", "busy %"], rows })
}

/// A row for each worker.
fn loads(large_percent: f64, outcome: &Outcome) -> impl Iterator<Item = Vec<Cell>> {
    let sum = |of: fn(&WorkerLoad) -> u64| outcome.workers.iter().map(of).sum::<u64>().max(1) as f64;
    let (requests, packets) = (sum(|worker| worker.requests), sum(|worker| worker.packets));
    outcome.workers.iter().enumerate().map(move |(index, worker)| {
        let numbers = [
            large_percent,
            index as f64,
            100.0 * worker.requests as f64 / requests,
            100.0 * worker.packets as f64 / packets,
            100.0 * worker.busy,
        ];
        numbers.map(Cell::Number).to_vec()
    })
}
