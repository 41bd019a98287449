//! The numbers of a figure.

use anyhow::{Context, Result};
use minos_rackmodel::figures::Figure;

/// Rows below column names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// The title of the figure.
    pub(super) title: String,
    /// The name of each column.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Number(f64),
    /// The name of a line or a panel.
    Name(&'static str),
}

impl Table {
    /// The index of the column called `name`.
    pub(super) fn column(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|column| *column == name);
        found.with_context(|| format!("the figure has no column {name:?}"))
    }
}

impl Cell {
    /// The number, or NaN for a name.
    pub(super) fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            Self::Name(_) => f64::NAN,
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&'static str> for Cell {
    fn from(name: &'static str) -> Self {
        Self::Name(name)
    }
}

impl From<Figure> for Table {
    fn from(figure: Figure) -> Self {
        let rows = figure.rows.into_iter().map(|row| row.into_iter().map(Cell::Number).collect());
        Self { title: figure.title.to_owned(), columns: figure.columns, rows: rows.collect() }
    }
}
