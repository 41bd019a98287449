//! Figure 1: the service time of a GET by the size of its item, measured on this machine.

use anyhow::Result;

use super::{
    super::{
        plots::{Evidence, Paper, Plot, Scale},
        table::{Cell, Table},
    },
    Study,
};
use crate::lab::calibrate::service_times;

pub(super) const PLOT: Plot =
    Plot::new(Paper::Minos, "1", ("value bytes", Scale::Log10), &["us"]).log_y().evidence(Evidence::Measured);

/// The worker's part of a GET, from the datagram that arrived to the composed datagrams.
pub(super) fn figure_1(study: &Study<'_>) -> Result<Table> {
    let times = service_times(|| study.bar.tick())?;
    let row = |numbers: [f64; 3]| numbers.map(Cell::Number).to_vec();
    let rows = times.iter().map(|time| row([time.bytes, time.ns / 1e3, time.deviation_ns / 1e3])).collect();
    let title = "service time of a GET in one worker, without a kernel, values copied once".to_owned();
    Ok(Table { title, columns: vec!["value bytes", "us", "deviation us"], rows })
}
