//! A CSV file as a table.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};

use super::{claims::shown, query};

/// Rows of a file below `docs`, all or those of `FILE where NAME = VALUE`; numbers with three significant
/// digits.
pub(super) fn table(docs: &Path, wanted: &str) -> Result<String> {
    let (file, conditions) = wanted.split_once(" where ").unwrap_or((wanted, ""));
    let path = docs.join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<_> = lines.next().with_context(|| format!("{file} is empty"))?.split(',').collect();
    let conditions = query::conditions(conditions, &columns)?;
    let mut table = format!("|{}|\n|{}\n", columns.join("|"), "---|".repeat(columns.len()));
    for line in lines {
        let cells: Vec<_> = line.split(',').collect();
        if conditions.iter().all(|holds| holds(&cells)) {
            let cell = |cell: &&str| cell.parse().map_or_else(|_| (*cell).to_owned(), shown);
            let _ = writeln!(table, "|{}|", cells.iter().map(cell).collect::<Vec<_>>().join("|"));
        }
    }
    Ok(table)
}
