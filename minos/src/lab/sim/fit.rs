//! `minos sim fit`.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use minos_sim::dispatch::{Costs, Fitted, fit, residuals};

use super::{
    numbers::parse_count,
    table::{rounded, table},
};
use crate::lab::bench::emit;

const HEADER: [&str; 7] = ["cost", "value", "fitted", "target", "paper", "here", "residual %"];

/// Fit the unmeasured costs to the paper's numbers, and print the residuals.
///
/// Only per_request_ns and network_ns are fitted; the other costs stay as they are. The columns "here" and
/// "residual" are those of the given costs, not of the fitted ones.
#[derive(Args, Debug)]
pub(crate) struct FitArgs {
    /// kernel-bypass, figure-1, sockets, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "kernel-bypass")]
    costs: String,

    /// Requests of a run, such as 500k or 2m
    #[arg(long, value_name = "N", default_value = "400k", value_parser = parse_count)]
    requests: u64,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Also write the table to a CSV file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &FitArgs) -> Result<()> {
    let FitArgs { requests, seed, .. } = *args;
    let costs = Costs::named(&args.costs)?;
    let fitted = fit(&costs, requests, seed)?;
    let values = [fitted.per_request_ns, fitted.network_ns];
    let residuals = residuals(&costs, requests, seed)?;
    let rows: Vec<_> = residuals.iter().zip(values).map(|(one, value)| row(one, value)).collect();
    let parameters =
        format!("simulated; minos {}; requests {requests}; seed {seed}", env!("CARGO_PKG_VERSION"));
    if let Some(out) = &args.out {
        let mut text = format!("# {parameters}\n{}\n", HEADER.join(","));
        for row in &rows {
            let _ = writeln!(text, "{}", row.join(","));
        }
        fs::write(out, text).with_context(|| out.display().to_string())?;
    }
    Ok(emit(&format!("{parameters}\n{}", table(&HEADER, 1, rows)))?)
}

fn row(one: &Fitted, fitted: f64) -> Vec<String> {
    vec![
        one.cost.to_owned(),
        rounded(one.value),
        rounded(fitted),
        one.target.to_owned(),
        rounded(one.paper),
        rounded(one.here),
        format!("{:+.1}", 100.0 * one.residual()),
    ]
}
