//! A CSV file as a table.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};

use super::claims::shown;

/// All rows of a file below `docs`, numbers with three digits that count.
pub(super) fn table(docs: &Path, file: &str) -> Result<String> {
    let path = docs.join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let header = lines.next().with_context(|| format!("{file} is empty"))?.replace(',', " | ");
    let rule = "---|".repeat(header.split(" | ").count());
    let mut table = format!("| {header} |\n|{rule}\n");
    for line in lines {
        let cell = |cell: &str| cell.parse().map_or_else(|_| cell.to_owned(), shown);
        let cells: Vec<_> = line.split(',').map(cell).collect();
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    Ok(table)
}
