//! Lines over an axis, as SVG and as PNG.

use std::{fs, ops::Range, path::Path};

use anyhow::{Context, Result};
use plotters::{coord::Shift, prelude::*};
use resvg::{tiny_skia, usvg};

use super::{
    plots::{Corner, Plot, Scale},
    table::{Cell, Table},
};

const HEIGHT: u32 = 480;
const COLORS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 77),
    RGBColor(77, 160, 74),
    RGBColor(148, 103, 189),
    RGBColor(230, 150, 40),
    RGBColor(100, 100, 100),
    RGBColor(23, 170, 190),
    RGBColor(140, 86, 75),
];
/// More points than this are drawn without marks.
const MARKS_MAX: usize = 40;
const FONT: &str = "sans-serif";

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Lines over the same axes.
#[derive(Debug, PartialEq)]
struct Panel {
    name: String,
    lines: Vec<Line>,
}

/// Draws `table` into two files.
pub(super) fn draw(plot: &Plot, table: &Table, svg: &Path, png: &Path) -> Result<()> {
    let panels = panels(plot, table)?;
    let size = if panels.len() > 1 { (460 * panels.len() as u32, HEIGHT) } else { (760, HEIGHT) };
    let mut picture = String::new();
    draw_all(&SVGBackend::with_string(&mut picture, size).into_drawing_area(), plot, table, &panels)?;
    fs::write(svg, &picture).with_context(|| svg.display().to_string())?;
    write_pixels(&picture, png)
}

/// Writes an SVG picture as PNG.
pub(super) fn write_pixels(picture: &str, png: &Path) -> Result<()> {
    let pixels = pixels(picture)?.encode_png()?;
    fs::write(png, pixels).with_context(|| png.display().to_string())
}

/// An SVG picture as pixels, with text in a font of our own: the same on every machine, whatever fonts it has.
fn pixels(svg: &str) -> Result<tiny_skia::Pixmap> {
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("a picture without pixels")?;
    resvg::render(&tree, tiny_skia::Transform::default(), &mut pixels.as_mut());
    Ok(pixels)
}

/// The rows as lines, in their order; points in the scale of the axes.
fn panels(plot: &Plot, table: &Table) -> Result<Vec<Panel>> {
    let of = |name: Option<&str>| name.map(|name| table.column(name)).transpose();
    let (panel, series, x) = (of(plot.panel)?, of(plot.series)?, table.column(plot.x.0)?);
    let named = |row: &[Cell], name: Option<&str>, at: Option<usize>| match (name, at.map(|at| row[at])) {
        (Some(name), Some(Cell::Number(number))) => format!("{name} {number}"),
        (Some(_), Some(Cell::Name(name))) => name.to_owned(),
        _ => String::new(),
    };
    let mut panels: Vec<Panel> = Vec::new();
    for row in &table.rows {
        let place = position(
            &mut panels,
            &named(row, plot.panel, panel),
            |panel| &panel.name,
            |name| Panel { name, lines: Vec::new() },
        );
        for y in plot.y {
            let value = row[table.column(y)?].number();
            let name = if plot.y.len() > 1 { (*y).to_owned() } else { named(row, plot.series, series) };
            let lines = &mut panels[place].lines;
            let line = position(lines, &name, |line| &line.name, |name| Line { name, points: Vec::new() });
            lines[line].points.push((plot.x.1.forward(row[x].number()), plot.y_scale.forward(value)));
        }
    }
    Ok(panels)
}

/// Where the one called `name` stands; it is made if there is none.
fn position<T>(
    all: &mut Vec<T>,
    name: &str,
    name_of: impl Fn(&T) -> &String,
    make: impl FnOnce(String) -> T,
) -> usize {
    all.iter().position(|known| name_of(known) == name).unwrap_or_else(|| {
        all.push(make(name.to_owned()));
        all.len() - 1
    })
}

impl Scale {
    fn forward(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log2 => value.log2(),
            Self::Log10 => value.log10(),
        }
    }

    fn back(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log2 => value.exp2(),
            Self::Log10 => 10f64.powf(value),
        }
    }

    /// What an axis shows: all values, from zero or from a whole power on.
    fn range(self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        match self {
            _ if low > high => 0.0..1.0,
            Self::Linear => low.min(0.0)..(high * 1.05).max(f64::MIN_POSITIVE),
            Self::Log2 => low..(high.max(low + 1.0)),
            Self::Log10 => low.floor()..high.ceil().max(low.floor() + 1.0),
        }
    }

    /// How many labels an axis has; those of powers stand at whole ones.
    fn labels(self, range: &Range<f64>) -> usize {
        match self {
            Self::Linear => 8,
            Self::Log2 | Self::Log10 => (range.end - range.start).round() as usize + 1,
        }
    }

    fn label(self, value: f64) -> String {
        let value = (self.back(value) * 1e6).round() / 1e6;
        value.to_string()
    }
}

fn draw_all(root: &Canvas<'_>, plot: &Plot, table: &Table, panels: &[Panel]) -> Result<()> {
    root.fill(&WHITE)?;
    let title = format!("{}, figure {} ({})", plot.paper.title(), plot.number, plot.evidence);
    let inner = root.titled(&title, (FONT, 18))?.titled(&table.title, (FONT, 14))?;
    let points = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let x = plot.x.1.range(points().map(|point| point.0));
    let y = plot.y_scale.range(points().map(|point| point.1));
    for (area, panel) in inner.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        draw_panel(area, plot, panel, x.clone(), y.clone())?;
    }
    Ok(root.present()?)
}

fn draw_panel(area: &Canvas<'_>, plot: &Plot, panel: &Panel, x: Range<f64>, y: Range<f64>) -> Result<()> {
    let ((x_name, x_scale), y_scale) = (plot.x, plot.y_scale);
    let labels = (x_scale.labels(&x), y_scale.labels(&y));
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).x_label_area_size(42).y_label_area_size(68);
    if !panel.name.is_empty() {
        builder.caption(&panel.name, (FONT, 14));
    }
    let mut chart = builder.build_cartesian_2d(x, y)?;
    let (x_label, y_label) = (|value: &f64| x_scale.label(*value), |value: &f64| y_scale.label(*value));
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(labels.0).y_labels(labels.1).max_light_lines(1).light_line_style(WHITE);
    mesh.x_label_formatter(&x_label).y_label_formatter(&y_label);
    mesh.x_desc(x_name).y_desc(plot.y_name());
    mesh.label_style((FONT, 12)).axis_desc_style((FONT, 13)).draw()?;
    for (index, line) in panel.lines.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let points = || line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
        let drawn = chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
        if !line.name.is_empty() {
            drawn
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        if line.points.len() <= MARKS_MAX {
            chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        }
    }
    if panel.lines.len() > 1 {
        let mut legend = chart.configure_series_labels();
        let place = match plot.legend {
            Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
            Corner::UpperRight => SeriesLabelPosition::UpperRight,
            Corner::LowerRight => SeriesLabelPosition::LowerRight,
        };
        legend.position(place).background_style(WHITE.mix(0.8)).label_font((FONT, 12)).draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lines() {
        let plot = &super::super::plots::PLOTS[9];
        let row =
            |zipf: f64, gf: Cell, keys: f64, share: f64| vec![zipf.into(), gf, keys.into(), share.into()];
        let rows = vec![
            row(0.99, 1.0.into(), 1.0, 0.5),
            row(0.99, 1.0.into(), 2.0, 0.6),
            row(0.99, "all".into(), 1.0, 0.4),
            row(0.9, 1.0.into(), 1.0, 0.3),
        ];
        let columns = vec!["zipf", "gf", "keys", "share of the load"];
        let panels = panels(plot, &Table { title: String::new(), columns, rows }).unwrap();
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.into(), points: points.into() };
        let first = vec![line("gf 1", &[(1.0, 0.5), (2.0, 0.6)]), line("all", &[(1.0, 0.4)])];
        let second = vec![line("gf 1", &[(1.0, 0.3)])];
        assert_eq!(
            panels,
            [
                Panel { name: "zipf 0.99".into(), lines: first },
                Panel { name: "zipf 0.9".into(), lines: second }
            ]
        );
    }

    #[test]
    fn axes_hold_all_values() {
        assert_eq!(Scale::Log10.range([0.2, 2.3].into_iter()), 0.0..3.0);
        assert_eq!(Scale::Log2.range([3.0, 6.0, f64::NAN].into_iter()), 3.0..6.0);
        assert_eq!(Scale::Linear.range([2.0, 4.0].into_iter()), 0.0..4.2);
        assert_eq!(Scale::Linear.range(std::iter::empty()), 0.0..1.0);
        assert_eq!(Scale::Log2.label(5.0), "32");
    }
}
