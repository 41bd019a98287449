//! A picture of predictions against measurements.

use std::{ops::Range, path::Path};

use plotters::prelude::*;

use crate::measure::picture::{self, COLORS, Chart, Words};

/// Which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Small,
    Large,
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// A 99th percentile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) design: &'static str,
    pub(super) class: Class,
    pub(super) predicted_us: f64,
    pub(super) measured_us: f64,
}

impl Point {
    /// By which share the prediction is too high.
    pub(super) fn error(&self) -> f64 {
        self.predicted_us / self.measured_us - 1.0
    }
}

const SIZE: (u32, u32) = (720, 640);
/// How far a prediction may be from what was measured.
const BAND: [f64; 2] = [0.75, 1.25];

/// Draws the points as an SVG file at `path`, with the band of predictions that are near enough.
pub(super) fn draw(points: &[Point], path: &Path) -> anyhow::Result<()> {
    let root = picture::canvas(path, SIZE)?;
    let ends = picture::ends(points.iter().flat_map(|point| [point.predicted_us, point.measured_us]));
    // A logarithmic axis has no zero.
    let ends = ends.start.max(0.1)..ends.end;
    let words = Words {
        title: "99th percentiles, predicted and measured, us",
        x: "measured, in each round",
        y: "predicted; the grey band is 25 % to either side",
    };
    let mut chart = picture::chart(&root, words, [ends.clone(), ends.clone()])?;
    draw_band(&mut chart, &ends)?;
    draw_points(&mut chart, points)?;
    picture::name_series(&mut chart)?;
    drop(chart);
    root.present()?;
    Ok(())
}

fn draw_band(chart: &mut Chart<'_, '_>, ends: &Range<f64>) -> anyhow::Result<()> {
    let line = |factor: f64| [ends.start, ends.end].map(|us| (us, us * factor));
    let [low, high] = BAND.map(line);
    chart.draw_series([Polygon::new([low[0], low[1], high[1], high[0]], BLACK.mix(0.08))])?;
    chart.draw_series([PathElement::new(line(1.0), BLACK.mix(0.4))])?;
    Ok(())
}

fn draw_points(chart: &mut Chart<'_, '_>, points: &[Point]) -> anyhow::Result<()> {
    let mut series: Vec<(&str, Class)> = Vec::new();
    for point in points {
        if !series.contains(&(point.design, point.class)) {
            series.push((point.design, point.class));
        }
    }
    for (number, (design, class)) in series.into_iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let own = points.iter().filter(|point| (point.design, point.class) == (design, class));
        let circle = |point: &Point| Circle::new((point.measured_us, point.predicted_us), 4, color.filled());
        chart
            .draw_series(own.map(circle))?
            .label(format!("{design}, {} requests", class.name()))
            .legend(move |(x, y)| Circle::new((x + 6, y), 4, color.filled()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_kind_of_point() {
        let point = |design, class, predicted_us| Point { design, class, predicted_us, measured_us: 100.0 };
        let points = [point("keyhash", Class::Small, 125.0), point("size-aware", Class::Large, 50.0)];
        assert_eq!(points.map(|point| point.error()), [0.25, -0.5]);
        let path = std::env::temp_dir().join(format!("minos-scatter-{}.svg", std::process::id()));
        draw(&points, &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for text in ["keyhash, small requests", "size-aware, large requests", "predicted", "measured"] {
            assert!(picture.contains(text), "{text}");
        }
    }
}
