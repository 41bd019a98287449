//! Numbers and ranges in the notation of the command line.

/// Two numbers with `..` between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Range {
    /// The numbers from the first to the last, `step` apart.
    pub(super) fn points(self, step: f64) -> Vec<f64> {
        let steps = ((self.to - self.from) / step + 1e-9).floor().max(0.0) as usize;
        // Rounded, so that 0.1 + 0.2 prints as 0.3.
        let rounded = |value: f64| (value * 1e9).round() / 1e9;
        (0..=steps).map(|index| rounded(self.from + step * index as f64)).collect()
    }
}

/// `0.1..0.9`, or with suffixes.
pub(crate) fn parse_range(text: &str) -> Result<Range, String> {
    let range = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (number(from)?, number(to)?);
        (from < to).then_some(Range { from, to })
    });
    range.ok_or_else(|| "expected two numbers, the lower one first, such as 0.1..0.9".to_owned())
}

/// `10m`, `200k`, `5000`.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    let count = number(text).filter(|number| number.fract() == 0.0 && (0.0..1e15).contains(number));
    count.map(|number| number as u64).ok_or_else(|| "expected a number such as 5000, 200k or 10m".to_owned())
}

pub(super) fn parse_number(text: &str) -> Result<f64, String> {
    number(text).ok_or_else(|| "expected a number such as 0.5, 200k or 2.25m".to_owned())
}

/// A finite number, with the suffix `k`, `m` or none.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, factor) = match (text.strip_suffix('k'), text.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1e3),
        (_, Some(digits)) => (digits, 1e6),
        _ => (text.as_str(), 1.0),
    };
    digits.parse::<f64>().ok().map(|number| number * factor).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_ranges() {
        assert_eq!(parse_count("10M"), Ok(10_000_000));
        assert_eq!(parse_count("2.5k"), Ok(2_500));
        for text in ["", "m", "-1", "0.5", "1g", "nan"] {
            assert!(parse_count(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_range("0.1..0.9"), Ok(Range { from: 0.1, to: 0.9 }));
        for text in ["0.1", "0.9..0.1", "..", "a..b"] {
            assert!(parse_range(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_range_includes_its_ends() {
        let points = Range { from: 0.1, to: 0.9 }.points(0.1);
        assert_eq!(points, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
        assert_eq!(Range { from: 1.0, to: 2.0 }.points(5.0), [1.0]);
    }
}
