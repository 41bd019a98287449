//! Pictures of measurements and simulations as SVG: [`Lines`] over two axes, and groups of [`Bars`].

#![forbid(unsafe_code)]

mod bars;
mod lines;
mod scale;

use plotters::{coord::Shift, prelude::*};

pub use bars::{BarPanel, Bars, Group};
pub use lines::{Axis, Corner, Line, Lines, Panel};
pub use scale::Scale;

const FONT: &str = "sans-serif";

/// Colors of lines and of bars, in turn.
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

/// A part of a picture.
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A picture of this size, as text.
fn picture(size: (u32, u32), draw: impl FnOnce(&Canvas<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(text)
}
