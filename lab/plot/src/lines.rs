//! Lines over two axes.

use std::ops::Range;

use plotters::prelude::*;

use crate::{COLORS, Canvas, FONT, Scale, picture};

const HEIGHT: u32 = 480;
/// Width of a picture of one panel, and of each of several.
const WIDTH_ALONE: u32 = 760;
const WIDTH: u32 = 460;
/// More points than this are drawn without marks.
const MARKS_MAX: usize = 40;

/// A picture of panels beside each other that share their axes.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The title above all panels.
    pub title: &'a str,
    /// The subtitle below it; may be empty.
    pub subtitle: &'a str,
    /// The horizontal axis.
    pub x: Axis<'a>,
    /// The vertical axis.
    pub y: Axis<'a>,
    /// The place of the legend.
    pub legend: Corner,
    /// The panels, from left to right.
    pub panels: &'a [Panel],
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// The name of the quantity.
    pub name: &'a str,
    /// Its scale.
    pub scale: Scale,
}

/// A place for the legend.
#[derive(Clone, Copy, Debug)]
pub enum Corner {
    /// At the top, left.
    UpperLeft,
    /// At the top, right.
    UpperRight,
    /// At the bottom, right.
    LowerRight,
}

/// Lines over the same axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The title above it; may be empty.
    pub name: String,
    /// The lines. Those with the same name have the same color.
    pub lines: Vec<Line>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend; may be empty.
    pub name: String,
    /// Points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// True if a line is drawn through the points.
    pub is_joined: bool,
}

impl Line {
    /// A line through points.
    pub fn joined(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, is_joined: true }
    }
}

impl Lines<'_> {
    /// The picture.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn svg(&self) -> anyhow::Result<String> {
        let width = if self.panels.len() > 1 { WIDTH * self.panels.len() as u32 } else { WIDTH_ALONE };
        picture((width, HEIGHT), |root| self.draw(root))
    }

    fn draw(&self, root: &Canvas<'_>) -> anyhow::Result<()> {
        let mut inner = root.titled(self.title, (FONT, 18))?;
        if !self.subtitle.is_empty() {
            inner = inner.titled(self.subtitle, (FONT, 14))?;
        }
        let points = || self.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        let (x, y) = (self.x.scale, self.y.scale);
        let x = x.range(points().map(|point| x.forward(point.0)));
        let y = y.range(points().map(|point| y.forward(point.1)));
        for (area, panel) in inner.split_evenly((1, self.panels.len().max(1))).iter().zip(self.panels) {
            self.draw_panel(area, panel, x.clone(), y.clone())?;
        }
        Ok(())
    }

    fn draw_panel(
        &self,
        area: &Canvas<'_>,
        panel: &Panel,
        x: Range<f64>,
        y: Range<f64>,
    ) -> anyhow::Result<()> {
        let (x_scale, y_scale) = (self.x.scale, self.y.scale);
        let labels = (x_scale.labels(&x), y_scale.labels(&y));
        let mut builder = ChartBuilder::on(area);
        builder.margin(10).x_label_area_size(42).y_label_area_size(68);
        if !panel.name.is_empty() {
            builder.caption(&panel.name, (FONT, 14));
        }
        let mut chart = builder.build_cartesian_2d(x, y)?;
        let (x_label, y_label) = (|place: &f64| x_scale.label(*place), |place: &f64| y_scale.label(*place));
        let mut mesh = chart.configure_mesh();
        mesh.x_labels(labels.0).y_labels(labels.1).max_light_lines(1).light_line_style(WHITE);
        mesh.x_label_formatter(&x_label).y_label_formatter(&y_label);
        mesh.x_desc(self.x.name).y_desc(self.y.name);
        mesh.label_style((FONT, 12)).axis_desc_style((FONT, 13)).draw()?;
        for line in &panel.lines {
            let color = panel.color_of(line);
            let places = line.points.iter().map(|&(x, y)| (x_scale.forward(x), y_scale.forward(y)));
            let places: Vec<_> = places.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
            if !line.is_joined || places.len() <= MARKS_MAX {
                chart.draw_series(places.iter().map(|&place| Circle::new(place, 3, color.filled())))?;
            }
            if line.is_joined {
                let drawn = chart.draw_series(LineSeries::new(places, color.stroke_width(2)))?;
                if !line.name.is_empty() {
                    drawn
                        .label(&line.name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
                }
            }
        }
        if panel.lines.len() > 1 {
            let mut legend = chart.configure_series_labels();
            let place = match self.legend {
                Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
                Corner::UpperRight => SeriesLabelPosition::UpperRight,
                Corner::LowerRight => SeriesLabelPosition::LowerRight,
            };
            legend.position(place).background_style(WHITE.mix(0.8)).label_font((FONT, 12)).draw()?;
        }
        Ok(())
    }
}

impl Panel {
    fn color_of(&self, line: &Line) -> RGBColor {
        let first = self.lines.iter().position(|other| other.name == line.name);
        COLORS[first.unwrap_or_default() % COLORS.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(panels: &[Panel]) -> String {
        let axis = |name| Axis { name, scale: Scale::Log10 };
        let (x, y) = (axis("operations a second"), axis("microseconds"));
        Lines { title: "Latency", subtitle: "of all", x, y, legend: Corner::UpperLeft, panels }.svg().unwrap()
    }

    fn panel(name: &str, lines: Vec<Line>) -> Panel {
        Panel { name: name.to_owned(), lines }
    }

    #[test]
    fn a_picture_has_every_line_and_survives_an_empty_one() {
        let line = Line::joined("width 1", vec![(1e5, 20.0), (2e5, f64::NAN), (3e5, 35.0)]);
        let picture = svg(&[
            panel("median", vec![line, Line::joined("width 64", Vec::new())]),
            panel("99th percentile", Vec::new()),
        ]);
        for text in ["Latency", "of all", "width 1", "width 64", "median", "99th percentile", "microseconds"]
        {
            assert!(picture.contains(text), "{text}");
        }
        assert!(!picture.contains("NaN"));
    }

    #[test]
    fn points_have_the_color_of_the_line_with_their_name() {
        let points = Line { is_joined: false, ..Line::joined("FIFO", vec![(1.0, 2.0)]) };
        let lines = vec![Line::joined("FIFO", vec![(1.0, 1.0), (2.0, 2.0)]), Line::joined("LRU", Vec::new())];
        let panel = panel("", [lines, vec![points]].concat());
        assert_eq!(panel.color_of(&panel.lines[2]), panel.color_of(&panel.lines[0]));
        assert_ne!(panel.color_of(&panel.lines[1]), panel.color_of(&panel.lines[0]));
        assert_eq!(svg(&[panel]).matches("<circle").count(), 3);
    }
}
