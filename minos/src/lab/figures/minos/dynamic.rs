//! Figure 10: the share of large requests changes (Minos §6.6).

use anyhow::Result;
use minos_sim::dispatch::{Mix, Outcome, Spec};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    EPOCH_REQUESTS_MIN, MINOS, STEALING, STEALING_APART, Study,
};

pub(super) const PLOTS: [Plot; 2] = [plot("10a", &["p99 us"]).log_y(), plot("10b", &["large workers"])];

const fn plot(number: &'static str, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Minos, number, ("epoch", Scale::Linear), y).lines("design")
}

/// p_L in percent, one after the other.
const PHASES: [f64; 7] = [0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125];
/// Epochs of a phase: 20 of the paper's epochs make its 20 seconds.
const PHASE_EPOCHS: u32 = 20;
/// Share of the highest rate under the most large requests.
const LOAD: f64 = 0.9;
/// A rate at which large replies still fit the link of the kernel-bypass costs; the paper's 2.25 Mops would
/// fill it.
const RATE_MAX: f64 = 2e6;

/// Latencies by epoch, for HKH+WS without and with a TX queue for large replies, and for Minos.
pub(super) fn figure_10(study: &Study<'_>) -> Result<Table> {
    let windows = PHASES.len() as u32 * PHASE_EPOCHS;
    let epoch_requests = (study.requests / u64::from(windows)).max(EPOCH_REQUESTS_MIN);
    let most = study.most(Mix { large_percent: 0.75, ..Mix::PAPER })?;
    let rate = (LOAD * most).min(RATE_MAX);
    let dynamic = |spec| Spec {
        requests: epoch_requests * u64::from(windows),
        warmup_percent: 0.0,
        epoch_requests,
        phases: PHASES.to_vec(),
        windows,
        ..spec
    };
    let designs = [STEALING, STEALING_APART, MINOS];
    let specs: Vec<_> = designs.iter().flat_map(|design| study.specs(design, rate, Mix::PAPER)).collect();
    let outcomes = study.run_all(&specs.into_iter().map(dynamic).collect::<Vec<_>>())?;
    let named = designs.iter().zip(&outcomes);
    let rows = named.flat_map(|(design, outcome)| epochs(design.name, outcome, windows as usize)).collect();
    let workload = format!("p_L from 0.125 to 0.75 % and back in steps of 20 epochs, {:.2} Mops", rate / 1e6);
    let title = study.title(&workload);
    Ok(Table { title, columns: vec!["design", "epoch", "p_L %", "p99 us", "large workers"], rows })
}

/// A row for each epoch. The time after the last request was sent is left out.
fn epochs(name: &'static str, outcome: &Outcome, windows: usize) -> Vec<Vec<Cell>> {
    let row = |(index, window): (usize, &minos_sim::dispatch::Window)| {
        let large_percent = PHASES[index / PHASE_EPOCHS as usize];
        let p99_us = window.percentile_us.unwrap_or(f64::NAN);
        // HKH+WS has no workers for large requests only.
        let large_workers = if name == MINOS.name { window.large_workers as f64 } else { f64::NAN };
        let numbers = [(index + 1) as f64, large_percent, p99_us, large_workers];
        [Cell::Name(name)].into_iter().chain(numbers.map(Cell::Number)).collect()
    };
    outcome.windows.iter().take(windows).enumerate().map(row).collect()
}
