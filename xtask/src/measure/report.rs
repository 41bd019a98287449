//! Tables of measurements, in Markdown and, if they are long, as CSV.

use std::{fmt, path::Path};

use super::{Samples, save};

/// A table with a title and a note on its origin.
pub(crate) struct Report {
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Report {
    pub(crate) fn new(title: &str, note: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { title: title.to_owned(), note: note.to_owned(), columns, rows: Vec::new() }
    }

    /// Writes the rows as CSV, for a table that is too long for a page.
    pub(crate) fn write_csv(&self, path: &Path) -> anyhow::Result<()> {
        // Cells with a comma are quoted; no cell contains a quote.
        let quoted = |cell: &String| if cell.contains(',') { format!("\"{cell}\"") } else { cell.clone() };
        let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
        save(&std::iter::once(&self.columns).chain(&self.rows).map(line).collect::<String>(), path)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}\n\n{}\n", self.title, self.note)?;
        writeln!(f, "|{}|", self.columns.join("|"))?;
        writeln!(f, "|{}", "---|".repeat(self.columns.len()))?;
        for row in &self.rows {
            writeln!(f, "|{}|", row.join("|"))?;
        }
        Ok(())
    }
}

/// A median with its spread.
pub(crate) fn cell(samples: &Samples, decimals: usize) -> String {
    let (median, min, max) = (samples.median(), samples.min(), samples.max());
    format!("{median:.decimals$} ({min:.decimals$}..{max:.decimals$})")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_long_table_is_a_csv_file() {
        let mut report = Report::new("title", "note", &["load", "p_L, %"]);
        report.rows.push(vec!["0.2".to_owned(), "9 (8..21)".to_owned()]);
        let path = std::env::temp_dir().join(format!("minos-report-{}.csv", std::process::id()));
        report.write_csv(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(text, "load,\"p_L, %\"\n0.2,9 (8..21)\n");
    }
}
