//! The scale of an axis.

use std::ops::Range;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero on.
    Linear,
    /// Each mark is twice the last.
    Log2,
    /// Each mark is ten times the last.
    Log10,
}

impl Scale {
    /// Where a value lies along the axis.
    pub(crate) fn forward(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log2 => value.log2(),
            Self::Log10 => value.log10(),
        }
    }

    fn back(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log2 => value.exp2(),
            Self::Log10 => 10f64.powf(value),
        }
    }

    /// The range of an axis that shows all `places`. A linear one includes zero; that of `Log10` begins and
    /// ends at whole powers.
    pub(crate) fn range(self, places: impl Iterator<Item = f64>) -> Range<f64> {
        let (low, high) = places
            .filter(|place| place.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| (low.min(place), high.max(place)));
        match self {
            _ if low > high => 0.0..1.0,
            Self::Linear => low.min(0.0)..(high * 1.05).max(f64::MIN_POSITIVE),
            Self::Log2 => low..(high.max(low + 1.0)),
            Self::Log10 => low.floor()..high.ceil().max(low.floor() + 1.0),
        }
    }

    /// The number of labels of an axis; those of powers are at whole powers.
    pub(crate) fn labels(self, range: &Range<f64>) -> usize {
        match self {
            Self::Linear => 8,
            Self::Log2 | Self::Log10 => (range.end - range.start).round() as usize + 1,
        }
    }

    /// The label at a place along the axis.
    pub(crate) fn label(self, place: f64) -> String {
        let value = (self.back(place) * 1e6).round() / 1e6;
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values() {
        assert_eq!(Scale::Log10.range([0.2, 2.3].into_iter()), 0.0..3.0);
        assert_eq!(Scale::Log2.range([3.0, 6.0, f64::NAN].into_iter()), 3.0..6.0);
        assert_eq!(Scale::Linear.range([2.0, 4.0].into_iter()), 0.0..4.2);
        assert_eq!(Scale::Linear.range(std::iter::empty()), 0.0..1.0);
        assert_eq!(Scale::Log2.label(5.0), "32");
    }
}
