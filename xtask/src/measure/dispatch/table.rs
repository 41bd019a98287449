//! One case, measured on every server.

use super::{
    designs::{Contest, KEYHASH, SIZE_AWARE},
    runner::{Case, Runner, Sample, Series},
};
use crate::measure::Samples;

pub(super) struct Row {
    pub(super) name: &'static str,
    /// HKH with the same number of workers.
    keyhash: &'static str,
    pub(super) series: Series,
}

pub(super) struct Table<'a> {
    case: &'static str,
    arguments: Vec<&'a str>,
    pub(super) rows: Vec<Row>,
}

impl<'a> Table<'a> {
    pub(super) fn new(case: &'static str, arguments: Vec<&'a str>, contests: &[Contest]) -> Self {
        let row = |contest: &Contest| Row {
            name: contest.name,
            keyhash: contest.keyhash(),
            series: Series::default(),
        };
        Self { case, arguments, rows: contests.iter().map(row).collect() }
    }

    /// Measures every server once.
    pub(super) fn round(
        &mut self,
        runner: &mut Runner<'_>,
        contests: &[Contest],
        round: u32,
    ) -> anyhow::Result<()> {
        for (contest, row) in contests.iter().zip(&mut self.rows) {
            let case = Case { name: self.case, round };
            row.series.0.push(runner.measure(contest, case, &self.arguments)?);
        }
        Ok(())
    }

    fn series(&self, name: &str) -> Option<&Series> {
        self.rows.iter().find(|row| row.name == name).map(|row| &row.series)
    }

    /// The figure of a row relative to HKH with the same number of workers, round by round.
    pub(super) fn to_keyhash(&self, row: &Row, figure: impl Fn(&Sample) -> f64) -> Samples {
        self.series(row.keyhash).map_or_else(Samples::default, |keyhash| row.series.ratio(keyhash, figure))
    }

    /// The figure of size-aware sharding relative to HKH, both with two workers, round by round.
    pub(super) fn size_aware_to_keyhash(&self, figure: impl Fn(&Sample) -> f64) -> Samples {
        let both = self.series(SIZE_AWARE.name).zip(self.series(KEYHASH.name));
        both.map_or_else(Samples::default, |(ours, theirs)| ours.ratio(theirs, figure))
    }
}
