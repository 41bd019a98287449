//! Groups of bars.

use plotters::{coord::types::RangedCoordf64, prelude::*};

use crate::{COLORS, Canvas, FONT, Scale, picture};

const PANEL_SIZE: (u32, u32) = (1280, 300);
const MARGIN: u32 = 10;
const Y_LABELS: u32 = 56;
const X_LABELS: u32 = 28;
/// Share of a panel's width for the groups; the rest is for the legend.
const GROUPS_SHARE: f64 = 0.86;
/// Share of a panel's height that the number above a bar takes.
const NUMBER_SHARE: f64 = 0.06;

/// A picture of panels one above the other.
#[derive(Clone, Copy, Debug)]
pub struct Bars<'a> {
    /// How heights are spread.
    pub scale: Scale,
    /// The panels, from top to bottom.
    pub panels: &'a [BarPanel],
}

/// Groups of bars that are compared with each other.
#[derive(Clone, Debug)]
pub struct BarPanel {
    /// The title above it.
    pub title: String,
    /// The groups, from left to right.
    pub groups: Vec<Group>,
}

/// Bars side by side.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name below it.
    pub name: String,
    /// The name and the height of each.
    pub bars: Vec<(&'static str, f64)>,
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Bars<'_> {
    /// The picture.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn svg(&self) -> anyhow::Result<String> {
        let count = self.panels.len().max(1);
        picture((PANEL_SIZE.0, PANEL_SIZE.1 * count as u32), |root| {
            let areas = root.split_evenly((count, 1));
            self.panels.iter().zip(&areas).try_for_each(|(panel, area)| self.draw_panel(panel, area))
        })
    }

    fn draw_panel(&self, panel: &BarPanel, area: &Canvas<'_>) -> anyhow::Result<()> {
        let heights = panel.groups.iter().flat_map(|group| &group.bars).map(|(_, height)| *height);
        let y = self.scale.range(heights.map(|height| self.scale.forward(height)));
        let room = NUMBER_SHARE * (y.end - y.start);
        let series = panel.groups.iter().map(|group| group.bars.len()).max().unwrap_or(0);
        let width = (series + 1) as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, (FONT, 18))
            .margin(MARGIN)
            .x_label_area_size(X_LABELS)
            .y_label_area_size(Y_LABELS)
            .build_cartesian_2d(
                0.0..width * panel.groups.len() as f64 / GROUPS_SHARE,
                y.start..y.end + room,
            )?;
        let label = |place: &f64| self.scale.label(*place);
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_labels(0).y_labels(self.scale.labels(&y)).y_label_formatter(&label);
        mesh.label_style((FONT, 13)).draw()?;
        for number in 0..series {
            self.draw_series(&mut chart, panel, number, width)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .label_font((FONT, 13))
            .draw()?;
        draw_group_names(panel, area)
    }

    /// The bar of this number in each group, with its height above it.
    fn draw_series<'a, 'b>(
        &self,
        chart: &mut Chart<'a, 'b>,
        panel: &BarPanel,
        number: usize,
        width: f64,
    ) -> anyhow::Result<()> {
        let color = COLORS[number % COLORS.len()];
        let y = chart.y_range();
        let bar = |(place, group): (usize, &Group)| {
            let (name, height) = *group.bars.get(number)?;
            // NaN is no height.
            let top = self.scale.forward(height).max(y.start);
            Some((name, place as f64 * width + 0.5 + number as f64, height, top))
        };
        let bars: Vec<_> = panel.groups.iter().enumerate().filter_map(bar).collect();
        let name = bars.first().map_or("", |(name, ..)| name);
        let rectangle = |&(_, left, _, top): &(_, f64, f64, f64)| {
            Rectangle::new([(left, y.start), (left + 0.9, top)], color.filled())
        };
        chart
            .draw_series(bars.iter().map(rectangle))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
        let gap = NUMBER_SHARE * (y.end - y.start);
        let label = |&(_, left, height, top): &(_, f64, f64, f64)| {
            Text::new(in_digits(height), (left, top + gap), (FONT, 12))
        };
        chart.draw_series(bars.iter().map(label))?;
        Ok(())
    }
}

/// The height as text, with one digit after the point if it is below 100.
fn in_digits(height: f64) -> String {
    if height < 100.0 { format!("{height:.1}") } else { format!("{height:.0}") }
}

fn draw_group_names(panel: &BarPanel, area: &Canvas<'_>) -> anyhow::Result<()> {
    let (width, height) = area.dim_in_pixel();
    let plot_left = f64::from(MARGIN + Y_LABELS);
    let group_width = (f64::from(width - MARGIN) - plot_left) * GROUPS_SHARE / panel.groups.len() as f64;
    for (number, group) in panel.groups.iter().enumerate() {
        let x = plot_left + group_width * (number as f64 + 0.08);
        let y = height - MARGIN - X_LABELS + 6;
        area.draw(&Text::new(group.name.as_str(), (x as i32, y as i32), (FONT, 12)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_bar_on_each_scale() {
        let group = |name: &str, bars: &[_]| Group { name: name.to_owned(), bars: bars.to_vec() };
        let bars = [("a", 1.5), ("b", 222.5), ("c", f64::NAN)];
        let groups = vec![group("one", &bars), group("two", &[("a", 7.5)])];
        let panels = [BarPanel { title: "items".to_owned(), groups }];
        for scale in [Scale::Linear, Scale::Log10] {
            let picture = Bars { scale, panels: &panels }.svg().unwrap();
            for text in ["1.5", "222", "7.5", "one", "two", "items"] {
                assert!(picture.contains(text), "{scale:?} {text}");
            }
        }
    }
}
