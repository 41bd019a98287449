//! Numbers looked up in CSV files.
//!
//! A query is `FILE: [FOLD] COLUMN [where NAME = VALUE, NAME <= VALUE, NAME >= VALUE]`. Without a fold
//! exactly one row must match.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

/// Numbers that differ by a smaller share match: rates in files are measured, not nominal.
const SAME: f64 = 0.01;

/// The reduction of several rows to one number.
#[derive(Clone, Copy)]
enum Fold {
    Only,
    Max,
    Min,
    Mean,
    Median,
    /// The standard deviation.
    Deviation,
    Last,
    Count,
}

const FOLDS: [(&str, Fold); 7] = [
    ("max ", Fold::Max),
    ("min ", Fold::Min),
    ("mean ", Fold::Mean),
    ("median ", Fold::Median),
    ("deviation ", Fold::Deviation),
    ("last ", Fold::Last),
    ("count ", Fold::Count),
];

/// The file that a query reads, relative to the folder of documents.
pub(super) fn file(query: &str) -> Result<&str> {
    let (file, _) = query.split_once(": ").with_context(|| format!("{query:?} names no file"))?;
    Ok(file)
}

/// The evidence that a CSV file names in its first line, such as `simulated`.
pub(super) fn evidence(docs: &Path, file: &str) -> Result<String> {
    let text = read(docs, file)?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("# "));
    let word = line.and_then(|line| line.split(';').next());
    Ok(word.with_context(|| format!("{file} does not say what it is worth"))?.to_owned())
}

/// The number that `query` selects.
pub(super) fn number(docs: &Path, query: &str) -> Result<f64> {
    let (_, wanted) = query.split_once(": ").with_context(|| format!("{query:?} names no file"))?;
    answer(&read(docs, file(query)?)?, wanted).with_context(|| query.to_owned())
}

fn read(docs: &Path, file: &str) -> Result<String> {
    let path = docs.join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn answer(csv: &str, wanted: &str) -> Result<f64> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().context("the file is empty")?.split(',').collect();
    let place = |name: &str| place(name, &columns);
    let (column, conditions) = wanted.split_once(" where ").unwrap_or((wanted, ""));
    let folded = FOLDS.iter().find_map(|(word, fold)| Some((column.strip_prefix(word)?, *fold)));
    let (column, fold) = folded.filter(|_| place(column).is_err()).unwrap_or((column, Fold::Only));
    let column = place(column)?;
    let conditions = self::conditions(conditions, &columns)?;
    let mut values = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        if conditions.iter().all(|holds| holds(&cells)) && !cells[column].is_empty() {
            values.push(cells[column].parse().with_context(|| format!("{line:?} has no number there"))?);
        }
    }
    fold.of(&values)
}

fn place(name: &str, columns: &[&str]) -> Result<usize> {
    let found = columns.iter().position(|column| *column == name);
    found.with_context(|| format!("there is no column {name:?}"))
}

/// A predicate on rows.
pub(super) type Condition = Box<dyn Fn(&[&str]) -> bool>;

/// The conditions on a row, separated by commas; an empty text has none.
pub(super) fn conditions(text: &str, columns: &[&str]) -> Result<Vec<Condition>> {
    let texts = text.split(", ").filter(|text| !text.is_empty());
    texts.map(|text| condition(text, columns)).collect()
}

fn condition(text: &str, columns: &[&str]) -> Result<Condition> {
    for (sign, holds) in [
        (" <= ", (|had, wanted| had <= wanted * (1.0 + SAME)) as fn(f64, f64) -> bool),
        (" >= ", |had, wanted| had >= wanted * (1.0 - SAME)),
        (" = ", |had, wanted| (had - wanted).abs() <= SAME * wanted.abs()),
    ] {
        let Some((name, wanted)) = text.split_once(sign) else { continue };
        let (at, wanted) = (place(name, columns)?, wanted.to_owned());
        return Ok(Box::new(move |cells| match (cells[at].parse(), wanted.parse()) {
            (Ok(had), Ok(wanted)) => holds(had, wanted),
            _ => cells[at] == wanted,
        }));
    }
    bail!("{text:?} is no condition")
}

impl Fold {
    fn of(self, values: &[f64]) -> Result<f64> {
        if let Self::Count = self {
            return Ok(values.len() as f64);
        }
        ensure!(!values.is_empty(), "no row matches");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Ok(match self {
            Self::Only => {
                ensure!(values.len() == 1, "{} rows match, not one", values.len());
                values[0]
            }
            Self::Min => sorted[0],
            Self::Max => sorted[sorted.len() - 1],
            Self::Median => (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0,
            Self::Mean => mean(values.iter().copied()),
            Self::Deviation => {
                let mean_value = mean(values.iter().copied());
                mean(values.iter().map(|value| (value - mean_value).powi(2))).sqrt()
            }
            Self::Last | Self::Count => values[values.len() - 1],
        })
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "# simulated; seed 1\ndesign,Mops,p99 us,max load\n\
                       Minos,0.5001,6,1\nMinos,1,8,2\nHKH,0.499,,3\nHKH,1.02,20,4\n";

    #[test]
    fn a_query_finds_its_number() {
        for (query, number) in [
            ("p99 us where design = Minos, Mops = 0.5", 6.0),
            ("max p99 us where design = Minos", 8.0),
            ("mean p99 us where design = Minos", 7.0),
            ("median p99 us where Mops >= 0.5", 8.0),
            ("deviation p99 us where design = Minos", 1.0),
            ("last Mops where p99 us <= 8", 1.0),
            ("count p99 us where design = HKH", 1.0),
            ("max load where design = HKH, Mops >= 1.02", 4.0),
        ] {
            assert_eq!(answer(CSV, query).unwrap(), number, "{query}");
        }
    }

    #[test]
    fn a_query_that_is_not_clear_is_refused() {
        for (query, why) in [
            ("p99 us where design = Minos", "2 rows match"),
            ("p99 us where design = SHO", "no row matches"),
            ("p99 us where design = HKH, Mops = 0.5", "no row matches"),
            ("p99 where design = SHO", "no column \"p99\""),
            ("p99 us where design", "no condition"),
        ] {
            let message = answer(CSV, query).unwrap_err().to_string();
            assert!(message.contains(why), "{query}: {message}");
        }
    }
}
