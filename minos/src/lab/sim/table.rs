//! Tables of results.

use comfy_table::{Cell, CellAlignment, Table, presets};

/// A table whose first `names` columns hold names and whose other columns hold numbers.
pub(crate) fn table(header: &[&str], names: usize, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let cell = |(column, text): (usize, &str)| {
        let cell = Cell::new(text);
        if column < names { cell } else { cell.set_alignment(CellAlignment::Right) }
    };
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header.iter().copied().enumerate().map(cell));
    for row in rows {
        table.add_row(row.iter().map(String::as_str).enumerate().map(cell));
    }
    table
}

/// Three significant digits.
pub(crate) fn rounded(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    format!("{value:.*}", (2 - magnitude).clamp(0, 6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_as_many_as_are_kept() {
        for (value, text) in
            [(0.0, "0.00"), (0.01234, "0.0123"), (1.5, "1.50"), (98.76, "98.8"), (1234.5, "1234")]
        {
            assert_eq!(rounded(value), text);
        }
    }
}
