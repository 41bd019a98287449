//! Powers of ranks, many at a time.

use std::ops::RangeInclusive;

/// Ranks up to this one have their power computed by itself.
const EXACT_MAX: u64 = 1 << 16;
/// Above, a block of ranks is so much shorter than its first one.
const BLOCK_SHIFT: u32 = 10;

/// Calls `visit` with each rank and `rank^-alpha`.
///
/// Long ranges go by blocks: with x = d / r at most 2^-10, (r + d)^-alpha = r^-alpha (1 + x)^-alpha, and the
/// binomial series up to x^5 is off by less than 2^-57 of it for alpha up to 2.
#[inline]
pub(crate) fn powers(ranks: RangeInclusive<u64>, alpha: f64, mut visit: impl FnMut(u64, f64)) {
    let (mut rank, last) = ranks.into_inner();
    let series = binomial(alpha);
    while rank <= last {
        let power = libm::pow(rank as f64, -alpha);
        if rank < EXACT_MAX {
            visit(rank, power);
            rank += 1;
            continue;
        }
        let length = (rank >> BLOCK_SHIFT).min(last - rank + 1);
        let step = 1.0 / rank as f64;
        for offset in 0..length {
            let x = offset as f64 * step;
            visit(rank + offset, power * series.iter().rev().fold(0.0, |sum, term| sum * x + term));
        }
        rank += length;
    }
}

/// An upper bound of the sum of all powers.
pub(crate) fn sum_max(keys: u64, alpha: f64) -> f64 {
    // The integral from 1, which the sum without its first term stays below.
    let keys = keys as f64;
    let near_one = (1.0 - alpha).abs() < 1e-9;
    let integral =
        if near_one { libm::log(keys) } else { (libm::pow(keys, 1.0 - alpha) - 1.0) / (1.0 - alpha) };
    1.0 + integral * (1.0 + 1e-6)
}

/// The first terms of (1 + x)^-alpha.
fn binomial(alpha: f64) -> [f64; 6] {
    let mut terms = [1.0; 6];
    for k in 1..terms.len() {
        terms[k] = terms[k - 1] * (-alpha - (k - 1) as f64) / k as f64;
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_what_they_are_one_by_one() {
        for alpha in [0.0, 0.6, 0.99, 1.0, 1.5, 2.0] {
            for first in [1, EXACT_MAX - 5, 1 << 20, 999_999_937] {
                let mut expected = first;
                powers(first..=first + 3_000, alpha, |rank, power| {
                    assert_eq!(rank, expected);
                    expected += 1;
                    let exact = libm::pow(rank as f64, -alpha);
                    assert!((power / exact - 1.0).abs() < 1e-14, "{rank}^-{alpha}: {power} {exact}");
                });
                assert_eq!(expected, first + 3_001);
            }
        }
    }

    #[test]
    fn the_bound_is_above_the_sum_but_not_far() {
        for alpha in [0.0, 0.5, 0.99, 1.0, 1.01, 2.0] {
            for keys in [1, 2, 100, 100_000] {
                let mut sum = 0.0;
                powers(1..=keys, alpha, |_, power| sum += power);
                let bound = sum_max(keys, alpha);
                assert!(bound >= sum && bound <= sum + 1.0, "{alpha} {keys}: {bound} {sum}");
            }
        }
    }
}
