//! The numbers of a figure.

use anyhow::{Context, Result};
use minos_rackmodel::figures::Figure;

/// Rows under names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// What the figure shows.
    pub(super) title: String,
    /// What each column holds.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Number(f64),
    /// What a line or a panel is called.
    Name(&'static str),
}

impl Table {
    /// Where the column called `name` stands.
    pub(super) fn column(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|column| *column == name);
        found.with_context(|| format!("the figure has no column {name:?}"))
    }
}

impl Cell {
    /// No number where there is a name.
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
