//! Tables of what was measured, in Markdown.

use std::fmt;

use super::Samples;

/// A table with a title and a note on how it came about.
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
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}\n\n{}\n", self.title, self.note)?;
        writeln!(f, "| {} |", self.columns.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(self.columns.len()))?;
        for row in &self.rows {
            writeln!(f, "| {} |", row.join(" | "))?;
        }
        Ok(())
    }
}

/// A median with its spread.
pub(crate) fn cell(samples: &Samples, decimals: usize) -> String {
    let (median, min, max) = (samples.median(), samples.min(), samples.max());
    format!("{median:.decimals$} ({min:.decimals$} to {max:.decimals$})")
}
