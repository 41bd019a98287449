//! Charts: a figure's table as lines over two axes, as SVG and as PNG.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use minos_plot::{Axis, Line, Lines, Panel};
use resvg::{tiny_skia, usvg};

use super::{
    plots::Plot,
    table::{Cell, Table},
};

/// Draws `table` into two files.
pub(super) fn draw(plot: &Plot, table: &Table, svg: &Path, png: &Path) -> Result<()> {
    let panels = panels(plot, table)?;
    let title = format!("{}, figure {} ({})", plot.paper.title(), plot.number, plot.evidence);
    let picture = Lines {
        title: &title,
        subtitle: &table.title,
        x: Axis { name: plot.x.0, scale: plot.x.1 },
        y: Axis { name: plot.y_name(), scale: plot.y_scale },
        legend: plot.legend,
        panels: &panels,
    };
    let picture = picture.svg()?;
    fs::write(svg, &picture).with_context(|| svg.display().to_string())?;
    write_pixels(&picture, png)
}

/// Writes an SVG picture as PNG.
pub(super) fn write_pixels(picture: &str, png: &Path) -> Result<()> {
    let pixels = pixels(picture)?.encode_png()?;
    fs::write(png, pixels).with_context(|| png.display().to_string())
}

/// An SVG picture as pixels, with text in an embedded font: the same on every machine.
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

/// The rows as lines, in order.
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
            let line = position(lines, &name, |line| &line.name, |name| Line::joined(name, Vec::new()));
            lines[line].points.push((row[x].number(), value));
        }
    }
    Ok(panels)
}

/// The index of the element called `name`, which is appended if it is missing.
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
        let line = |name: &str, points: &[(f64, f64)]| Line::joined(name, points.into());
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
}
