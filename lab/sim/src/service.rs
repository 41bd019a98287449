//! How long requests take.

use std::{fmt, fs, path::Path};

use crate::{Random, Ticks};

/// Ticks of the mean service time. Rounding to whole ticks is negligible: a request that takes a
/// thousandth of the mean is off by at most 1 in 200000.
const TICKS_A_MEAN: f64 = 1e8;

/// Draws that find the percentile of a distribution.
const PERCENTILE_DRAWS: usize = 200_000;

/// A distribution of service times, in units that are the user's own.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// `large_percent` of the requests take `k`, the others 1 (Minos §2.2).
    Bimodal {
        /// Service time of a large request.
        k: f64,
        /// Percentage of large requests.
        large_percent: f64,
    },
    /// Exponential with mean 1.
    Exponential,
    /// Always 1.
    Deterministic,
    /// Lognormal with mean 1.
    Lognormal {
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// As given: times with their weights.
    Weighted(Vec<(f64, f64)>),
}

/// Why a distribution is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// No factor.
    #[error("k: {0} is not allowed; allowed is 1 to 1000000")]
    K(f64),
    /// No percentage.
    #[error("large-percent: {0} is not allowed; allowed is 0 to 100")]
    LargePercent(f64),
    /// No deviation.
    #[error("sigma: {0} is not allowed; allowed is above 0, at most 4")]
    Sigma(f64),
    /// A file that cannot be read.
    #[error("distribution: {path}: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        error: String,
    },
    /// An invalid line of a file.
    #[error(
        "distribution: line {line}: {text:?} is not allowed; allowed is a service time above 0 and, after a \
         space, its weight, 0 or more (1 if there is none)"
    )]
    Line {
        /// Counted from one.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// Nothing has a weight.
    #[error("distribution: no line has a weight above 0")]
    Empty,
}

impl Distribution {
    /// Reads lines of a service time and a weight; `#` begins a comment.
    pub fn read(path: &Path) -> Result<Self, DistributionError> {
        let unreadable = |error: std::io::Error| DistributionError::Unreadable {
            path: path.display().to_string(),
            error: error.to_string(),
        };
        Self::parse(&fs::read_to_string(path).map_err(unreadable)?)
    }

    /// The same from text.
    pub fn parse(text: &str) -> Result<Self, DistributionError> {
        let mut weighted = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let bad = || DistributionError::Line { line: index + 1, text: line.to_owned() };
            weighted.push(time_and_weight(content).ok_or_else(bad)?);
        }
        let distribution = Self::Weighted(weighted);
        distribution.check().map(|()| distribution)
    }

    /// Checks the parameters.
    pub fn check(&self) -> Result<(), DistributionError> {
        match *self {
            Self::Bimodal { k, .. } if !(1.0..=1e6).contains(&k) => Err(DistributionError::K(k)),
            Self::Bimodal { large_percent, .. } if !(0.0..=100.0).contains(&large_percent) => {
                Err(DistributionError::LargePercent(large_percent))
            }
            Self::Lognormal { sigma } if !(sigma > 0.0 && sigma <= 4.0) => {
                Err(DistributionError::Sigma(sigma))
            }
            Self::Weighted(ref pairs) if !pairs.iter().any(|&(_, weight)| weight > 0.0) => {
                Err(DistributionError::Empty)
            }
            _ => Ok(()),
        }
    }

    /// Its mean, in the user's units.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Bimodal { k, large_percent } => 1.0 + (k - 1.0) * large_percent / 100.0,
            Self::Exponential | Self::Deterministic | Self::Lognormal { .. } => 1.0,
            Self::Weighted(pairs) => {
                let weights: f64 = pairs.iter().map(|&(_, weight)| weight).sum();
                pairs.iter().map(|&(time, weight)| time * weight).sum::<f64>() / weights
            }
        }
    }
}

fn time_and_weight(content: &str) -> Option<(f64, f64)> {
    let mut words = content.split_whitespace();
    let time: f64 = words.next()?.parse().ok()?;
    let weight: f64 = words.next().map_or(Some(1.0), |word| word.parse().ok())?;
    let good = time > 0.0 && time.is_finite() && weight >= 0.0 && weight.is_finite();
    (good && words.next().is_none()).then_some((time, weight))
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bimodal { k, large_percent } => write!(f, "bimodal, {large_percent} % take {k}"),
            Self::Exponential => f.write_str("exponential"),
            Self::Deterministic => f.write_str("deterministic"),
            Self::Lognormal { sigma } => write!(f, "lognormal, sigma {sigma}"),
            Self::Weighted(pairs) => write!(f, "{} times with weights", pairs.len()),
        }
    }
}

/// The service of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its service time.
    pub ticks: Ticks,
    /// True if it counts as large.
    pub large: bool,
}

/// A distribution that can be drawn from, in ticks.
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    draw: Draw,
    ticks_a_unit: f64,
    /// Requests that take longer are large; of a bimodal distribution, those drawn as such.
    small_max: Ticks,
}

#[derive(Clone, Debug)]
enum Draw {
    Bimodal {
        small: Ticks,
        large: Ticks,
        large_share: f64,
    },
    Exponential,
    Deterministic,
    Lognormal {
        sigma: f64,
    },
    /// Walker's aliases: a place is drawn, then one of the two that share it.
    Weighted(Vec<Alias>),
}

#[derive(Clone, Copy, Debug)]
struct Alias {
    own_share: f64,
    own: f64,
    other: f64,
}

impl ServiceTimes {
    /// Prepares `distribution`. Service times above its `large_percentile` count as large, unless the
    /// distribution itself marks large requests.
    pub fn new(distribution: &Distribution, large_percentile: f64) -> Result<Self, DistributionError> {
        distribution.check()?;
        let ticks_a_unit = TICKS_A_MEAN / distribution.mean();
        let draw = match *distribution {
            Distribution::Bimodal { k, large_percent } => Draw::Bimodal {
                small: to_ticks(ticks_a_unit),
                large: to_ticks(k * ticks_a_unit),
                large_share: large_percent / 100.0,
            },
            Distribution::Exponential => Draw::Exponential,
            Distribution::Deterministic => Draw::Deterministic,
            Distribution::Lognormal { sigma } => Draw::Lognormal { sigma },
            Distribution::Weighted(ref pairs) => Draw::Weighted(aliases(pairs)),
        };
        let mut times = Self { draw, ticks_a_unit, small_max: Ticks::MAX };
        if !matches!(times.draw, Draw::Bimodal { .. } | Draw::Deterministic) {
            times.small_max = times.percentile(large_percentile);
        }
        Ok(times)
    }

    /// Draws one.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> Service {
        let units = match &self.draw {
            &Draw::Bimodal { small, large, large_share } => {
                let is_large = random.unit() <= large_share;
                return Service { ticks: if is_large { large } else { small }, large: is_large };
            }
            Draw::Exponential => random.exponential(),
            Draw::Deterministic => 1.0,
            Draw::Lognormal { sigma } => libm::exp(sigma * random.normal() - sigma * sigma / 2.0),
            Draw::Weighted(aliases) => {
                let alias = aliases[random.below(aliases.len())];
                if random.unit() <= alias.own_share { alias.own } else { alias.other }
            }
        };
        let ticks = to_ticks(units * self.ticks_a_unit);
        Service { ticks, large: ticks > self.small_max }
    }

    /// The mean service time.
    pub fn mean_ticks(&self) -> f64 {
        TICKS_A_MEAN
    }

    /// Converts ticks to the user's units.
    pub fn units(&self, ticks: f64) -> f64 {
        ticks / self.ticks_a_unit
    }

    /// By draws of its own: the same for every seed.
    fn percentile(&self, percentile: f64) -> Ticks {
        let mut random = Random::new(0, 0);
        let mut drawn: Vec<_> = (0..PERCENTILE_DRAWS).map(|_| self.draw(&mut random).ticks).collect();
        drawn.sort_unstable();
        let position = (percentile / 100.0 * (PERCENTILE_DRAWS - 1) as f64) as usize;
        drawn[position.min(PERCENTILE_DRAWS - 1)]
    }
}

/// At least one, so that a request takes time.
fn to_ticks(ticks: f64) -> Ticks {
    ((ticks + 0.5) as Ticks).max(1)
}

/// Walker's tables, by Vose's method.
fn aliases(pairs: &[(f64, f64)]) -> Vec<Alias> {
    let total: f64 = pairs.iter().map(|&(_, weight)| weight).sum();
    let mut shares: Vec<f64> = pairs.iter().map(|&(_, weight)| weight / total * pairs.len() as f64).collect();
    let mut table: Vec<Alias> =
        pairs.iter().map(|&(time, _)| Alias { own_share: 1.0, own: time, other: time }).collect();
    let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..pairs.len()).partition(|&i| shares[i] < 1.0);
    while let (Some(&receiver), Some(&giver)) = (poor.last(), rich.last()) {
        poor.pop();
        table[receiver].own_share = shares[receiver];
        table[receiver].other = pairs[giver].0;
        shares[giver] -= 1.0 - shares[receiver];
        if shares[giver] < 1.0 {
            rich.pop();
            poor.push(giver);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn_mean(distribution: &Distribution) -> f64 {
        let times = ServiceTimes::new(distribution, 99.0).unwrap();
        let mut random = Random::new(3, 1);
        let draws = 1_000_000;
        let sum: f64 = (0..draws).map(|_| times.draw(&mut random).ticks as f64).sum();
        times.units(sum / f64::from(draws))
    }

    #[test]
    fn means_are_as_said() {
        for distribution in [
            Distribution::Bimodal { k: 100.0, large_percent: 1.0 },
            Distribution::Exponential,
            Distribution::Deterministic,
            Distribution::Lognormal { sigma: 1.0 },
            Distribution::parse("500 9\n2000 # one\n700 0").unwrap(),
        ] {
            let (had, wanted) = (drawn_mean(&distribution), distribution.mean());
            assert!((had / wanted - 1.0).abs() < 0.01, "{distribution}: {had}, not {wanted}");
        }
    }

    #[test]
    fn weights_are_kept() {
        let distribution = Distribution::parse("1 1\n2 2\n3 3\n4 0").unwrap();
        let times = ServiceTimes::new(&distribution, 60.0).unwrap();
        let mut random = Random::new(4, 1);
        let mut counts = [0u32; 5];
        let mut large = 0;
        for _ in 0..600_000 {
            let service = times.draw(&mut random);
            counts[times.units(service.ticks as f64).round() as usize] += 1;
            large += u32::from(service.large);
        }
        for (time, wanted) in [(1, 100_000), (2, 200_000), (3, 300_000), (4, 0)] {
            assert!(counts[time].abs_diff(wanted) < 2_000, "{time}: {}", counts[time]);
        }
        assert_eq!(large, 0, "nothing is above the largest");
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for text in ["", "0 1", "-1", "a", "1 2 3", "1 -1", "1 0", "inf"] {
            assert!(Distribution::parse(text).is_err(), "{text:?}");
        }
        let error = Distribution::parse("1\nx").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("\"x\""), "{error}");
        for bad in [
            Distribution::Bimodal { k: 0.5, large_percent: 1.0 },
            Distribution::Bimodal { k: 2.0, large_percent: -1.0 },
            Distribution::Lognormal { sigma: f64::NAN },
        ] {
            assert!(bad.check().is_err(), "{bad}");
        }
    }
}
