//! The CSV file of a figure.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};

use super::table::{Cell, Table};

/// Writes a table below a line of parameters. The file is written completely or not at all.
pub(super) fn write(path: &Path, parameters: &str, table: &Table) -> Result<()> {
    let beside = path.with_extension("csv.part");
    let written = fs::write(&beside, text(parameters, table)).and_then(|()| fs::rename(&beside, path));
    written.with_context(|| path.display().to_string())
}

/// True if the file exists and was made with these parameters.
pub(super) fn begins_with(path: &Path, parameters: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.lines().next() == Some(parameters))
}

fn text(parameters: &str, table: &Table) -> String {
    let mut text = format!("{parameters}\n{}\n", table.columns.join(","));
    for row in &table.rows {
        // NaN becomes an empty field.
        let cell = |cell: &Cell| match *cell {
            Cell::Number(value) if value.is_nan() => String::new(),
            Cell::Number(value) => significant(value),
            Cell::Name(name) => name.to_owned(),
        };
        let cells: Vec<String> = row.iter().map(cell).collect();
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

/// Six significant digits, more than the precision of a simulation.
fn significant(value: f64) -> String {
    if value.fract() == 0.0 {
        return value.to_string();
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (value, text) in [
            (512.0, "512"),
            (0.05, "0.05"),
            (1.0 / 3.0, "0.333333"),
            (1234.56789, "1234.57"),
            (1e7 + 0.5, "10000000"),
            (0.0, "0"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn a_file_is_known_by_its_parameters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        assert!(!begins_with(&path, "# seed 1"));
        let rows = vec![vec![1.0.into(), f64::NAN.into(), "HKH".into()]];
        let table = Table { title: String::new(), columns: vec!["a", "b", "c"], rows };
        write(&path, "# seed 1", &table).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "# seed 1\na,b,c\n1,,HKH\n");
        assert!(begins_with(&path, "# seed 1") && !begins_with(&path, "# seed 11"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
