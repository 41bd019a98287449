//! A picture of latency against throughput, both logarithmic: the median, and the 99th percentile.

use std::path::Path;

use minos_plot::{Axis, Corner, Lines, Panel, Scale};

use crate::measure::save;

/// A curve: operations a second and microseconds.
pub(in crate::measure) struct Line {
    pub(in crate::measure) name: &'static str,
    pub(in crate::measure) p50: Vec<(f64, f64)>,
    pub(in crate::measure) p99: Vec<(f64, f64)>,
}

/// Draws the lines as an SVG file at `path`.
pub(in crate::measure) fn draw(lines: &[Line], path: &Path) -> anyhow::Result<()> {
    let panel = |name: &str, points: fn(&Line) -> &Vec<(f64, f64)>| {
        let line = |line: &Line| minos_plot::Line::joined(line.name, points(line).clone());
        Panel { name: name.to_owned(), lines: lines.iter().map(line).collect() }
    };
    let panels = [panel("median", |line| &line.p50), panel("99th percentile", |line| &line.p99)];
    let picture = Lines {
        title: "Latency against throughput",
        subtitle: "",
        x: Axis { name: "operations a second", scale: Scale::Log10 },
        y: Axis { name: "microseconds", scale: Scale::Log10 },
        legend: Corner::UpperLeft,
        panels: &panels,
    };
    save(&picture.svg()?, path)
}
