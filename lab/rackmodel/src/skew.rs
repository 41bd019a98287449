//! The skew of requests over servers and units, and its cost (RackOut §2.2, §4.1).

/// The sum of each unit of `gf` servers.
pub fn unit_shares(shares: &[f64], gf: u32) -> Vec<f64> {
    shares.chunks(gf as usize).map(|unit| unit.iter().sum()).collect()
}

/// The index of the greatest share, the first of equal ones.
pub fn hottest(shares: &[f64]) -> usize {
    (0..shares.len()).rev().max_by(|&a, &b| shares[a].total_cmp(&shares[b])).unwrap_or(0)
}

/// The traffic of the hottest unit over the average one; with a `gf` of one, the shard skew.
pub fn rack_skew(shares: &[f64], gf: u32) -> f64 {
    let units = unit_shares(shares, gf);
    let sum: f64 = units.iter().sum();
    units[hottest(&units)] * units.len() as f64 / sum
}

/// The load of the hottest unit of `gf` over that of the hottest server (RackOut §4).
pub fn unit_over_server(shares: &[f64], gf: u32) -> f64 {
    let units = unit_shares(shares, gf);
    units[hottest(&units)] / shares[hottest(shares)]
}

/// Equation 1, with writes: the speed-up of units of `gf` over single servers, if reads and writes take the
/// same time at all servers, and only reads can be spread.
pub fn ideal_speedup(shares: &[f64], gf: u32, write_share: f64) -> f64 {
    let load = |unit: &[f64]| {
        let reads = unit.iter().sum::<f64>() * (1.0 - write_share) / f64::from(gf);
        unit.iter().map(move |share| reads + write_share * share).fold(0.0, f64::max)
    };
    let straggler = shares.chunks(gf as usize).map(load).fold(0.0, f64::max);
    shares[hottest(shares)] / straggler
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [f64; 4] = [0.4, 0.2, 0.3, 0.1];

    #[test]
    fn by_hand() {
        assert!((rack_skew(&SHARES, 1) - 1.6).abs() < 1e-12);
        assert!((rack_skew(&SHARES, 2) - 1.2).abs() < 1e-12);
        assert!((rack_skew(&SHARES, 4) - 1.0).abs() < 1e-12);
        assert!((unit_over_server(&SHARES, 2) - 1.5).abs() < 1e-12);
        assert_eq!((hottest(&SHARES), hottest(&[1.0, 1.0])), (0, 0));
    }

    #[test]
    fn the_ideal_speedup_without_writes_is_the_ratio_of_the_skews() {
        for gf in [1, 2, 4] {
            let ratio = rack_skew(&SHARES, 1) / rack_skew(&SHARES, gf);
            assert!((ideal_speedup(&SHARES, gf, 0.0) - ratio).abs() < 1e-12);
            assert!((ideal_speedup(&SHARES, gf, 1.0) - 1.0).abs() < 1e-12);
        }
        // Half of 0.6 spread over two, and half of 0.4 where it lies: 0.15 + 0.2.
        assert!((ideal_speedup(&SHARES, 2, 0.5) - 0.4 / 0.35).abs() < 1e-12);
    }
}
