//! The configuration of the policy.

use std::{fmt, str::FromStr};

use minos_base::{
    SizeClass, SizeText,
    limits::{PACKET_BYTES, WORKERS_MAX},
};

use crate::{Design, Domains};

/// The default fixed cost of a request under [`Cost::FixedPlusBytes`], in bytes.
///
/// An empty request over kernel TCP takes about as long as copying this many bytes.
const FIXED_BYTES_DEFAULT: u32 = 8192;

/// Most workers that hand off (Minos §5.2).
pub const HANDOFF_WORKERS_MAX: usize = 3;

/// The cost of serving a request, by its size (Minos §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Network packets, at least one; the paper's choice.
    Packets,
    /// Value bytes, at least one.
    Bytes,
    /// A constant, given in bytes that take as long, plus the value bytes.
    FixedPlusBytes {
        /// The constant, in bytes.
        fixed: u32,
    },
}

impl Cost {
    /// Cost of one request of `class`, in the unit of this cost function. Always positive.
    pub fn of(self, class: SizeClass) -> f64 {
        let value_bytes = (class.bytes_min() + class.bytes_max()) / 2;
        let cost = match self {
            Self::Packets => value_bytes.div_ceil(PACKET_BYTES),
            Self::Bytes => value_bytes,
            Self::FixedPlusBytes { fixed } => u64::from(fixed) + value_bytes,
        };
        cost.max(1) as f64
    }

    /// Cost of reading an item of `class` from flash, beside that of its request: about twice as much.
    pub fn of_fetch(self, class: SizeClass) -> f64 {
        2.0 * self.of(class)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets => f.write_str("packets"),
            Self::Bytes => f.write_str("bytes"),
            Self::FixedPlusBytes { .. } => f.write_str("fixed+bytes"),
        }
    }
}

/// Why a cost function could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected packets, bytes or fixed+bytes")]
pub struct ParseCostError;

impl FromStr for Cost {
    type Err = ParseCostError;

    fn from_str(text: &str) -> Result<Self, ParseCostError> {
        match text {
            "packets" => Ok(Self::Packets),
            "bytes" => Ok(Self::Bytes),
            "fixed+bytes" => Ok(Self::FixedPlusBytes { fixed: FIXED_BYTES_DEFAULT }),
            _ => Err(ParseCostError),
        }
    }
}

/// Where small ends and large begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// At the percentile of the sizes seen.
    Auto,
    /// Values of at most this many bytes are small, to the width of a size class.
    Static(u64),
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Static(bytes) => SizeText(*bytes).fmt(f),
        }
    }
}

/// Why a threshold could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto or a number of bytes such as 1500 or 64k")]
pub struct ParseThresholdError;

impl FromStr for Threshold {
    type Err = ParseThresholdError;

    fn from_str(text: &str) -> Result<Self, ParseThresholdError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(|SizeText(bytes)| Self::Static(bytes)).map_err(|_| ParseThresholdError)
    }
}

/// The order in which a large worker serves its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeOrder {
    /// The request with the fewest bytes left first, in slices; each gets a slice within a bounded time.
    Shortest,
    /// The earliest request first, to completion: the paper's order (Minos §3.1).
    Fifo,
}

impl LargeOrder {
    /// The names of all values, as options take them.
    pub const NAMES: &'static [&'static str] = &["shortest", "fifo"];
}

impl FromStr for LargeOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "shortest" => Ok(Self::Shortest),
            "fifo" => Ok(Self::Fifo),
            _ => Err(format!("expected one of {}", Self::NAMES.join(", "))),
        }
    }
}

/// Everything the size-aware policy depends on besides the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlConfig {
    /// Workers to be split into small and large ones: 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Percent of the requests, the smallest ones, that the threshold lets pass as small: above 0,
    /// at most 100.
    pub percentile: f64,
    /// Weight of the latest epoch in the moving average: above 0, at most 1.
    pub alpha: f64,
    /// The cost function of a request.
    pub cost: Cost,
    /// The rule for the largest small size.
    pub threshold: Threshold,
    /// The NUMA domains of the workers, each with at least one of them.
    pub domains: Domains,
}

/// Which choice is out of bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Too few or too many workers.
    #[error("workers: {0} is not allowed; allowed is 1 to {WORKERS_MAX}")]
    Workers(usize),
    /// No percentile.
    #[error("percentile: {0} is not allowed; allowed is above 0, at most 100")]
    Percentile(f64),
    /// No weight.
    #[error("alpha: {0} is not allowed; allowed is above 0, at most 1")]
    Alpha(f64),
    /// No hand-off workers, too many, or no workers left to serve requests.
    #[error(
        "handoff-workers: {handoff} of {workers} workers is not allowed; allowed is 1 to \
         {HANDOFF_WORKERS_MAX}, and fewer than there are workers"
    )]
    HandOff {
        /// Hand-off workers.
        handoff: usize,
        /// All workers.
        workers: usize,
    },
    /// A domain without workers, or a design that is only simulated, in one domain.
    #[error("domains: {design} does not run in these domains of {workers} workers")]
    Domains {
        /// The design.
        design: Design,
        /// All workers.
        workers: usize,
    },
}

impl ControlConfig {
    /// The paper's choices for `workers` in one domain: the 99th percentile, alpha 0.9, packets (Minos §3.1, §5.2).
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            percentile: 99.0,
            alpha: 0.9,
            cost: Cost::Packets,
            threshold: Threshold::Auto,
            domains: Domains::default(),
        }
    }

    /// Checks that every setting is within its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(ConfigError::Workers(self.workers));
        }
        if !(self.percentile > 0.0 && self.percentile <= 100.0) {
            return Err(ConfigError::Percentile(self.percentile));
        }
        if !(self.alpha > 0.0 && self.alpha <= 1.0) {
            return Err(ConfigError::Alpha(self.alpha));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_grow_with_size_and_are_positive() {
        for cost in [Cost::Packets, Cost::Bytes, Cost::FixedPlusBytes { fixed: 100 }] {
            let of = |bytes| cost.of(SizeClass::of(bytes));
            assert!(of(0) >= 1.0, "{cost}");
            assert!(of(100_000) > of(100), "{cost}");
        }
        assert_eq!(Cost::Packets.of(SizeClass::of(100)), 1.0);
        assert_eq!(Cost::Packets.of(SizeClass::of(1448 * 3)), 3.0);
        assert_eq!(Cost::FixedPlusBytes { fixed: 100 }.of(SizeClass::of(7)), 107.0);
    }

    #[test]
    fn choices_read_back_as_they_print() {
        for text in ["packets", "bytes", "fixed+bytes"] {
            assert_eq!(text.parse::<Cost>().unwrap().to_string(), text);
        }
        for text in ["auto", "1500", "64k"] {
            assert_eq!(text.parse::<Threshold>().unwrap().to_string(), text);
        }
        assert_eq!("packet".parse::<Cost>(), Err(ParseCostError));
        assert_eq!("-1".parse::<Threshold>(), Err(ParseThresholdError));
    }

    #[test]
    fn each_choice_is_bounded() {
        let good = ControlConfig::new(2);
        assert_eq!(good.check(), Ok(()));
        let bad = [
            ControlConfig { workers: 0, ..good },
            ControlConfig { workers: WORKERS_MAX + 1, ..good },
            ControlConfig { percentile: 0.0, ..good },
            ControlConfig { percentile: 100.1, ..good },
            ControlConfig { percentile: f64::NAN, ..good },
            ControlConfig { alpha: 0.0, ..good },
            ControlConfig { alpha: 1.1, ..good },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
    }
}
