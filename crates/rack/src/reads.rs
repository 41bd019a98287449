//! The choice of the server of a unit that reads (RackOut §4, §5.2).

use crate::BadParameter;

/// The probability of each of a unit's servers to be chosen for a read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadDistribution {
    probabilities: Vec<f64>,
    alias: Alias,
}

impl ReadDistribution {
    /// RackOut_static: the same probability for all.
    ///
    /// # Errors
    /// The unit has no server.
    pub fn uniform(gf: usize) -> Result<Self, BadParameter> {
        if gf == 0 {
            return Err(BadParameter::new("gf", gf, "1 or more"));
        }
        Self::new(vec![1.0 / gf as f64; gf])
    }

    /// By weights, which need not sum to one.
    ///
    /// # Errors
    /// A weight is negative or not finite, or none is above zero.
    pub fn new(weights: Vec<f64>) -> Result<Self, BadParameter> {
        let alias = Alias::new(&weights)?;
        let sum: f64 = weights.iter().sum();
        Ok(Self { probabilities: weights.iter().map(|weight| weight / sum).collect(), alias })
    }

    /// For each server of the unit; they sum to one.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// The server within the unit, chosen by 64 random bits.
    #[inline]
    pub fn pick(&self, random: u64) -> usize {
        self.alias.pick(random)
    }
}

/// Draws an index by weights in constant time (Walker's alias method, as Vose builds it).
#[derive(Clone, Debug, PartialEq)]
pub struct Alias {
    /// Per index: the threshold of 2^32 below which the index itself is drawn, and the index drawn otherwise.
    columns: Vec<(u64, u32)>,
}

impl Alias {
    /// From weights, which need not sum to one.
    ///
    /// # Errors
    /// A weight is negative or not finite, or none is above zero.
    pub fn new(weights: &[f64]) -> Result<Self, BadParameter> {
        if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
            return Err(BadParameter::new("weight", weight, "0 or more"));
        }
        let sum: f64 = weights.iter().sum();
        if sum <= 0.0 {
            return Err(BadParameter::new("weights", format_args!("{weights:?}"), "one above 0 at least"));
        }
        let scale = weights.len() as f64 / sum;
        Ok(Self { columns: columns(weights.iter().map(|weight| weight * scale).collect()) })
    }

    /// An index, by 64 random bits.
    #[inline]
    pub fn pick(&self, random: u64) -> usize {
        let index = (((random >> 32) * self.columns.len() as u64) >> 32) as usize;
        let (threshold, other) = self.columns[index];
        if (random & 0xffff_ffff) < threshold { index } else { other as usize }
    }
}

/// The columns for weights whose mean is one.
fn columns(mut left: Vec<f64>) -> Vec<(u64, u32)> {
    let whole = (1u64 << 32) as f64;
    let mut columns: Vec<(u64, u32)> = (0..left.len()).map(|index| (1 << 32, index as u32)).collect();
    let (mut below, mut above): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|&i| left[i] < 1.0);
    while let (Some(&poor), Some(&rich)) = (below.last(), above.last()) {
        below.pop();
        columns[poor] = ((left[poor] * whole).round() as u64, rich as u32);
        left[rich] -= 1.0 - left[poor];
        if left[rich] < 1.0 {
            above.pop();
            below.push(rich);
        }
    }
    // Columns that rounding left over are nearly full, unless their index has no weight at all.
    for index in below.into_iter().filter(|&index| left[index] < 0.5) {
        let heaviest = (0..left.len()).max_by(|&a, &b| left[a].total_cmp(&left[b])).unwrap_or(index);
        columns[index] = (0, heaviest as u32);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exact probability of each index.
    fn drawn(alias: &Alias) -> Vec<f64> {
        let mut drawn = vec![0.0; alias.columns.len()];
        let column = 1.0 / alias.columns.len() as f64;
        for (index, (threshold, other)) in alias.columns.iter().enumerate() {
            let own = *threshold as f64 / (1u64 << 32) as f64;
            drawn[index] += column * own;
            drawn[*other as usize] += column * (1.0 - own);
        }
        drawn
    }

    #[test]
    fn indices_are_drawn_by_their_weights() {
        for weights in [vec![1.0], vec![1.0, 3.0], vec![0.0, 2.0, 6.0, 0.0], vec![0.1; 10], vec![5.0, 0.0]] {
            let sum: f64 = weights.iter().sum();
            let drawn = drawn(&Alias::new(&weights).unwrap());
            for (drawn, weight) in drawn.iter().zip(&weights) {
                assert!((drawn - weight / sum).abs() < 1e-9, "{weights:?}: {drawn}");
            }
        }
    }

    #[test]
    fn who_has_no_weight_is_never_drawn() {
        let alias = Alias::new(&[0.0, 1.0, 0.0]).unwrap();
        assert!((0..3u64).all(|index| alias.pick((index * (u64::MAX / 3)) & !0xffff_ffff) == 1));
    }

    #[test]
    fn weights_out_of_bounds_are_named() {
        for weights in [vec![], vec![0.0, 0.0], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY]] {
            let fault = Alias::new(&weights).unwrap_err().to_string();
            assert!(fault.starts_with("weight") && fault.contains("allowed is"), "{fault}");
        }
        assert!(ReadDistribution::uniform(0).unwrap_err().to_string().starts_with("gf: 0 is not allowed"));
    }
}
