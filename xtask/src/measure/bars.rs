//! A picture of panels of grouped bars, each on a scale from zero.

use std::path::Path;

use plotters::{coord::types::RangedCoordf64, prelude::*};

use super::picture::{self, Area};

/// Groups of bars that are compared with each other.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) groups: Vec<Group>,
}

/// Bars side by side.
pub(super) struct Group {
    pub(super) name: String,
    /// The name and the height of each.
    pub(super) bars: Vec<(&'static str, f64)>,
}

const PANEL_SIZE: (u32, u32) = (1280, 300);
const MARGIN: u32 = 10;
const Y_LABELS: u32 = 56;
const X_LABELS: u32 = 28;
/// Share of a panel's width that groups take; the rest is the legend's.
const GROUPS_SHARE: f64 = 0.86;
const COLORS: [RGBColor; 5] = [
    RGBColor(158, 202, 225),
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 77),
    RGBColor(44, 140, 60),
    RGBColor(180, 140, 200),
];

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the panels one above the other, as an SVG file at `path`.
pub(super) fn draw(panels: &[Panel], path: &Path) -> anyhow::Result<()> {
    let size = (PANEL_SIZE.0, PANEL_SIZE.1 * panels.len() as u32);
    let root = picture::canvas(path, size)?;
    for (panel, area) in panels.iter().zip(root.split_evenly((panels.len(), 1))) {
        draw_panel(panel, &area)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(panel: &Panel, area: &Area<'_>) -> anyhow::Result<()> {
    let heights = panel.groups.iter().flat_map(|group| &group.bars).map(|(_, height)| *height);
    let highest = heights.fold(0.1, f64::max);
    let series = panel.groups.iter().map(|group| group.bars.len()).max().unwrap_or(0);
    let width = (series + 1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: Mops/s (higher is better)", panel.title), ("sans-serif", 18))
        .margin(MARGIN)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(0.0..width * panel.groups.len() as f64 / GROUPS_SHARE, 0.0..highest * 1.12)?;
    chart.configure_mesh().disable_x_mesh().x_labels(0).label_style(("sans-serif", 13)).draw()?;
    for number in 0..series {
        draw_series(&mut chart, panel, number, width)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    draw_group_names(panel, area)
}

/// The bar of this number in each group, with its height above it.
fn draw_series<'a, 'b>(
    chart: &mut Chart<'a, 'b>,
    panel: &Panel,
    number: usize,
    width: f64,
) -> anyhow::Result<()> {
    let color = COLORS[number % COLORS.len()];
    let bar = |(place, group): (usize, &Group)| {
        let (name, height) = *group.bars.get(number)?;
        Some((name, place as f64 * width + 0.5 + number as f64, height))
    };
    let bars: Vec<_> = panel.groups.iter().enumerate().filter_map(bar).collect();
    let name = bars.first().map_or("", |(name, ..)| name);
    let rectangle = |&(_, left, height): &(_, f64, f64)| {
        Rectangle::new([(left, 0.0), (left + 0.9, height)], color.filled())
    };
    chart
        .draw_series(bars.iter().map(rectangle))?
        .label(name)
        .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    let gap = chart.y_range().end * 0.06;
    let label = |&(_, left, height): &(_, f64, f64)| {
        Text::new(format!("{height:.1}"), (left, height + gap), ("sans-serif", 12))
    };
    chart.draw_series(bars.iter().map(label))?;
    Ok(())
}

fn draw_group_names(panel: &Panel, area: &Area<'_>) -> anyhow::Result<()> {
    let (width, height) = area.dim_in_pixel();
    let plot_left = f64::from(MARGIN + Y_LABELS);
    let group_width = (f64::from(width - MARGIN) - plot_left) * GROUPS_SHARE / panel.groups.len() as f64;
    for (number, group) in panel.groups.iter().enumerate() {
        let x = plot_left + group_width * (number as f64 + 0.08);
        let y = height - MARGIN - X_LABELS + 6;
        area.draw(&Text::new(group.name.as_str(), (x as i32, y as i32), ("sans-serif", 12)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_bar() {
        let group = |name: &str, bars: &[_]| Group { name: name.to_owned(), bars: bars.to_vec() };
        let groups = vec![group("one", &[("a", 1.5), ("b", 22.5)]), group("two", &[("a", 7.5)])];
        let panels = [Panel { title: "items".to_owned(), groups }];
        let path = std::env::temp_dir().join(format!("minos-bars-{}.svg", std::process::id()));
        draw(&panels, &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for text in ["1.5", "22.5", "7.5", "one", "two", "items"] {
            assert!(picture.contains(text), "{text}");
        }
    }
}
