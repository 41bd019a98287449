//! Samples of several contestants, compared round by round.

use crate::measure::{
    Samples,
    report::{Report, cell},
};

/// The name and the unit of a figure, and its decimals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) decimals: usize,
}

/// The samples of all contestants in all rounds: the first contestant is the one that others are compared with.
pub(super) struct Sheet {
    title: String,
    figures: &'static [Figure],
    contestants: Vec<String>,
    /// By contestant, by figure, by round.
    samples: Vec<Vec<Vec<f64>>>,
}

impl Sheet {
    pub(super) fn new(title: &str, figures: &'static [Figure], contestants: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            figures,
            contestants: contestants.iter().map(|&name| name.to_owned()).collect(),
            samples: vec![vec![Vec::new(); figures.len()]; contestants.len()],
        }
    }

    /// Adds a round of a contestant: a value of each figure.
    pub(super) fn push(&mut self, contestant: usize, values: &[f64]) {
        for (samples, value) in self.samples[contestant].iter_mut().zip(values) {
            samples.push(*value);
        }
    }

    /// Median and spread of a figure of a contestant.
    fn cell(&self, contestant: usize, figure: usize) -> String {
        let of_all = &self.samples[contestant][figure];
        if of_all.is_empty() { "-".to_owned() } else { cell(&sorted(of_all), self.figures[figure].decimals) }
    }

    /// Median and spread of the ratios to the first contestant in the same round.
    fn ratio(&self, contestant: usize, figure: usize) -> String {
        if contestant == 0 {
            return "1".to_owned();
        }
        let [base, these] = [0, contestant].map(|number| &self.samples[number][figure]);
        let ratios: Vec<f64> = these.iter().zip(base).map(|(this, base)| this / base).collect();
        if ratios.iter().all(|ratio| ratio.is_finite()) { cell(&sorted(&ratios), 2) } else { "-".to_owned() }
    }

    /// Appends a row a contestant; `report` has the columns of [`columns`].
    pub(super) fn add_to(&self, report: &mut Report) {
        for (contestant, name) in self.contestants.iter().enumerate() {
            let figures = (0..self.figures.len())
                .flat_map(|figure| [self.cell(contestant, figure), self.ratio(contestant, figure)]);
            let title = if contestant == 0 { self.title.clone() } else { String::new() };
            report.rows.push([title, name.clone()].into_iter().chain(figures).collect());
        }
    }
}

/// The columns of a table of figures, each with the ratio to the first contestant.
pub(super) fn columns(figures: &'static [Figure]) -> Vec<&'static str> {
    let of_figures = figures.iter().flat_map(|figure| [figure.name, "ratio"]);
    ["what", "who"].into_iter().chain(of_figures).collect()
}

fn sorted(values: &[f64]) -> Samples {
    let mut samples = Samples::default();
    values.iter().for_each(|&value| samples.push(value));
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        const FIGURES: &[Figure] = &[Figure { name: "reads", decimals: 0 }];
        let mut sheet = Sheet::new("case", FIGURES, &["fio", "Minos"]);
        // The machine was twice as fast in the second round.
        for (fio, minos) in [(100.0, 90.0), (200.0, 180.0), (100.0, 95.0)] {
            sheet.push(0, &[fio]);
            sheet.push(1, &[minos]);
        }
        let mut report = Report::new("title", "note", &columns(FIGURES));
        sheet.add_to(&mut report);
        assert_eq!(report.rows[1][3], "0.90 (0.90..0.95)");
        assert_eq!(report.rows[0], ["case", "fio", "100 (100..200)", "1"]);
        assert_eq!(report.rows[1][..2], ["", "Minos"]);
    }
}
