//! The font of all pictures.

use plotters::style::{FontStyle, register_font};

/// Makes text the same on every machine, whatever fonts it has. To be called before anything is drawn.
pub(in crate::measure) fn register() {
    // A font that cannot be read shows when the first text is drawn.
    let _ = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
}
