//! What pictures of latencies have in common: both axes logarithmic, names in a corner, one palette.

use std::{ops::Range, path::Path};

use plotters::{
    coord::{Shift, combinators::LogCoord},
    prelude::*,
};

/// Colors of kinds, of which there are few.
pub(super) const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(158, 202, 225), RGBColor(214, 96, 77), RGBColor(244, 165, 130)];

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

/// A chart's words.
#[derive(Clone, Copy)]
pub(super) struct Words<'w> {
    pub(super) title: &'w str,
    pub(super) x: &'w str,
    pub(super) y: &'w str,
}

/// A white SVG file at `path` to draw on.
pub(super) fn canvas(path: &Path, size: (u32, u32)) -> anyhow::Result<Area<'_>> {
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    Ok(root)
}

/// From a little below the least to a little above the most, which counts as 1 at least.
pub(super) fn ends(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) =
        values.fold((f64::MAX, 1.0), |(least, most), value| (value.min(least), value.max(most)));
    (least.min(most) / 1.5)..(most * 1.5)
}

/// A chart with its mesh.
pub(super) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    words: Words<'_>,
    [x, y]: [Range<f64>; 2],
) -> anyhow::Result<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .caption(words.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    let whole = |value: &f64| format!("{value:.0}");
    chart
        .configure_mesh()
        .x_desc(words.x)
        .y_desc(words.y)
        .light_line_style(WHITE)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .label_style(("sans-serif", 13))
        .draw()?;
    Ok(chart)
}

/// Writes the names of the series into the upper left corner.
pub(super) fn name_series<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>) -> anyhow::Result<()> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}
