//! Statistics of repeated measurements.

use std::ops::{Add, Mul, Sub};

/// A figure and its spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figure {
    /// The median.
    pub(super) value: f64,
    /// The median absolute deviation from it.
    pub(super) deviation: f64,
}

impl Figure {
    /// The figure of repeated measurements.
    pub(super) fn of(samples: &[f64]) -> Self {
        let value = median(samples);
        let deviations: Vec<f64> = samples.iter().map(|sample| (sample - value).abs()).collect();
        Self { value, deviation: median(&deviations) }
    }

    /// A figure without a spread.
    pub(super) fn exact(value: f64) -> Self {
        Self { value, deviation: 0.0 }
    }

    /// The figure, but at least `least`: a measurement that was subtracted may have been too large.
    pub(super) fn at_least(self, least: f64) -> Self {
        Self { value: self.value.max(least), ..self }
    }

    /// The deviation in percent of the figure; zero if the figure is zero.
    pub(super) fn spread_percent(self) -> f64 {
        if self.value == 0.0 { 0.0 } else { 100.0 * self.deviation / self.value.abs() }
    }
}

impl Add for Figure {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, deviation: self.deviation.hypot(other.deviation) }
    }
}

impl Sub for Figure {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { value: self.value - other.value, deviation: self.deviation.hypot(other.deviation) }
    }
}

impl Mul<f64> for Figure {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self { value: self.value * factor, deviation: self.deviation * factor.abs() }
    }
}

/// A line through measurements at several places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// The cost of one more.
    pub(super) slope: Figure,
    /// The cost of none.
    pub(super) intercept: Figure,
    /// The share of the medians' variance that the line explains: R^2.
    pub(super) r_squared: f64,
}

impl Line {
    /// A line through the medians of `samples`, which holds the samples of each of `places`, as many at each.
    /// Its deviation is that of the lines through the samples of single rounds.
    pub(super) fn through(places: &[f64], samples: &[Vec<f64>]) -> Self {
        let at = |heights: &dyn Fn(&[f64]) -> f64| -> Vec<(f64, f64)> {
            places.iter().zip(samples).map(|(&x, samples)| (x, heights(samples))).collect()
        };
        let medians = at(&|samples| median(samples));
        let (slope, intercept) = theil_sen(&medians);
        let rounds = samples.iter().map(Vec::len).min().unwrap_or(0);
        let each: Vec<(f64, f64)> =
            (0..rounds).map(|round| theil_sen(&at(&|samples| samples[round]))).collect();
        let deviation = |of: &dyn Fn(&(f64, f64)) -> f64| {
            Figure::of(&each.iter().map(of).collect::<Vec<f64>>()).deviation
        };
        Self {
            slope: Figure { value: slope, deviation: deviation(&|line| line.0) },
            intercept: Figure { value: intercept, deviation: deviation(&|line| line.1) },
            r_squared: r_squared(&medians, slope, intercept),
        }
    }
}

/// The median; the mean of the two middle values if their number is even, 0 if there are none.
pub(in crate::lab) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Slope and intercept by Theil and Sen: the median of the slopes between any two points, and the median of
/// the intercepts with that slope. A single outlier changes neither much.
fn theil_sen(points: &[(f64, f64)]) -> (f64, f64) {
    let mut slopes = Vec::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let others = points[index + 1..].iter().filter(|other| other.0 != *x);
        slopes.extend(others.map(|other| (other.1 - y) / (other.0 - x)));
    }
    let slope = median(&slopes);
    let rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    (slope, median(&rests))
}

fn r_squared(points: &[(f64, f64)], slope: f64, intercept: f64) -> f64 {
    let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64;
    let squares = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(|point| of(point).powi(2)).sum::<f64>();
    let all = squares(&|(_, y)| y - mean);
    let left = squares(&|(x, y)| y - slope * x - intercept);
    if all == 0.0 { 1.0 } else { 1.0 - left / all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_do_not_follow_what_lies_far_off() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        let figure = Figure::of(&[10.0, 11.0, 9.0, 10.0, 1e9]);
        assert_eq!(figure, Figure { value: 10.0, deviation: 1.0 });
        assert_eq!(figure.spread_percent(), 10.0);
    }

    #[test]
    fn a_slope_is_found_again_in_spite_of_noise() {
        let places = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        // Each round is off by up to 2 ns, and at one place a round in three is far too long.
        let noise = |round: usize, place: usize| ((7 * round + 3 * place) % 5) as f64 - 2.0;
        let sample = |place: usize, round: usize| {
            let stalled = if place == 3 && round.is_multiple_of(3) { 1e6 } else { 0.0 };
            500.0 + 70.0 * places[place] + noise(round, place) + stalled
        };
        let samples: Vec<Vec<f64>> =
            (0..places.len()).map(|place| (0..15).map(|round| sample(place, round)).collect()).collect();
        let line = Line::through(&places, &samples);
        assert!((line.slope.value - 70.0).abs() < 0.2, "{line:?}");
        assert!((line.intercept.value - 500.0).abs() < 3.0, "{line:?}");
        assert!(line.r_squared > 0.999 && line.slope.spread_percent() < 10.0, "{line:?}");
    }

    #[test]
    fn what_is_put_together_deviates_by_more() {
        let (a, b) = (Figure { value: 10.0, deviation: 3.0 }, Figure { value: 2.0, deviation: 4.0 });
        assert_eq!(a + b, Figure { value: 12.0, deviation: 5.0 });
        assert_eq!((b - a).at_least(0.0), Figure { value: 0.0, deviation: 5.0 });
        assert_eq!(b * -2.0, Figure { value: -4.0, deviation: 8.0 });
        assert_eq!(Figure::exact(0.0).spread_percent(), 0.0);
    }
}
