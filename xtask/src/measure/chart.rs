//! A picture of grouped bars on a logarithmic scale.

use std::path::Path;

use plotters::{
    coord::{combinators::LogCoord, types::RangedCoordf64},
    prelude::*,
};

use super::picture::{self, COLORS};

/// One bar.
pub(super) struct Bar {
    pub(super) group: &'static str,
    pub(super) series: &'static str,
    pub(super) value: f64,
}

const SIZE: (u32, u32) = (960, 420);

/// Draws `bars`, whose groups each hold the same series, as an SVG file at `path`.
pub(super) fn draw(bars: &[Bar], path: &Path) -> anyhow::Result<()> {
    let series: Vec<_> =
        bars.iter().take_while(|bar| bar.group == bars[0].group).map(|bar| bar.series).collect();
    let groups: Vec<_> = bars.iter().step_by(series.len().max(1)).map(|bar| bar.group).collect();
    let highest = bars.iter().map(|bar| bar.value).fold(100.0, f64::max);
    let width = series.len() as f64 + 1.0;
    let root = picture::canvas(path, SIZE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("p99 of small requests (lower is better)", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..width * groups.len() as f64, (10.0..highest * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc("microseconds, logarithmic")
        .label_style(("sans-serif", 14))
        .draw()?;
    draw_bars(&mut chart, bars, &series, width)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .draw()?;
    for (index, group) in groups.iter().enumerate() {
        let x = 76 + ((index as f64 + 0.3) * f64::from(SIZE.0 - 100) / groups.len() as f64) as i32;
        root.draw(&Text::new(*group, (x, SIZE.1 as i32 - 36), ("sans-serif", 15)))?;
    }
    root.present()?;
    Ok(())
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, LogCoord<f64>>>;

/// The bars, each with its value above it; `width` is that of a group.
fn draw_bars<'a>(
    chart: &mut Chart<'a>,
    bars: &[Bar],
    series: &[&'static str],
    width: f64,
) -> anyhow::Result<()> {
    for (index, name) in series.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let own = bars.iter().enumerate().filter(|(_, bar)| bar.series == *name);
        let rectangles = own.map(|(position, bar)| {
            let left = (position / series.len()) as f64 * width + 0.5 + index as f64;
            Rectangle::new([(left, 10.0), (left + 0.9, bar.value.max(10.0))], color.filled())
        });
        chart
            .draw_series(rectangles)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    for (position, bar) in bars.iter().enumerate() {
        let left = (position / series.len()) as f64 * width + 0.5 + (position % series.len()) as f64;
        let label =
            Text::new(format!("{:.0}", bar.value), (left + 0.1, bar.value * 1.25), ("sans-serif", 13));
        chart.draw_series([label])?;
    }
    Ok(())
}
