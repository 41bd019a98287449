//! A picture of latency against throughput, both logarithmic: the median, and the 99th percentile.

use std::path::Path;

use plotters::prelude::*;

use crate::measure::picture::{self, Area, Chart, Words};

/// A curve: operations a second and microseconds.
pub(in crate::measure) struct Line {
    pub(in crate::measure) name: &'static str,
    pub(in crate::measure) p50: Vec<(f64, f64)>,
    pub(in crate::measure) p99: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (1200, 480);
const COLORS: [RGBColor; 6] = [
    RGBColor(158, 202, 225),
    RGBColor(66, 146, 198),
    RGBColor(8, 81, 156),
    RGBColor(8, 30, 80),
    RGBColor(44, 140, 60),
    RGBColor(214, 96, 77),
];

/// Draws the lines as an SVG file at `path`.
pub(in crate::measure) fn draw(lines: &[Line], path: &Path) -> anyhow::Result<()> {
    let root = picture::canvas(path, SIZE)?;
    let panels = root.split_evenly((1, 2));
    draw_panel(&panels[0], "median", lines, |line| &line.p50)?;
    draw_panel(&panels[1], "99th percentile", lines, |line| &line.p99)?;
    root.present()?;
    Ok(())
}

fn draw_panel(
    area: &Area<'_>,
    title: &str,
    lines: &[Line],
    points: fn(&Line) -> &Vec<(f64, f64)>,
) -> anyhow::Result<()> {
    let all = || lines.iter().flat_map(points);
    let ranges = [picture::ends(all().map(|point| point.0)), picture::ends(all().map(|point| point.1))];
    let title = format!("Latency against throughput, {title}");
    let words = Words { title: &title, x: "operations a second", y: "microseconds" };
    let mut chart = picture::chart(area, words, ranges)?;
    draw_lines(&mut chart, lines, points)?;
    picture::name_series(&mut chart)
}

fn draw_lines(
    chart: &mut Chart<'_, '_>,
    lines: &[Line],
    points: fn(&Line) -> &Vec<(f64, f64)>,
) -> anyhow::Result<()> {
    for (number, line) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let path = points(line);
        chart.draw_series(path.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
        chart
            .draw_series([PathElement::new(path.clone(), color.stroke_width(2))])?
            .label(line.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_line_and_survives_an_empty_one() {
        let line = |name, p50| Line { name, p50, p99: Vec::new() };
        let lines = [line("width 1", vec![(1e5, 20.0), (2e5, 35.0)]), line("width 64", Vec::new())];
        let path = std::env::temp_dir().join(format!("minos-native-{}.svg", std::process::id()));
        draw(&lines, &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for text in ["width 1", "width 64", "median", "99th percentile"] {
            assert!(picture.contains(text), "{text}");
        }
    }
}
