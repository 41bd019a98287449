//! The highest rate that a condition allows.

/// Ratio of two rates that are tried one after the other until the condition changes.
const STEP: f64 = 1.25;
const STEPS_MAX: u32 = 8;
/// Halvings of the last step, after which the rate is known to 3 %.
const HALVINGS: u32 = 3;

/// The highest rate at which `is_within`, searched up and down from `start`. Zero if there is none within reach.
pub(in crate::measure) fn highest_rate(
    start: f64,
    mut is_within: impl FnMut(f64) -> anyhow::Result<bool>,
) -> anyhow::Result<f64> {
    let (mut within, mut beyond) = if is_within(start)? { (start, None) } else { (0.0, Some(start)) };
    for _ in 0..STEPS_MAX {
        let rate = match beyond {
            None => within * STEP,
            Some(beyond) if within == 0.0 => beyond / STEP,
            Some(_) => break,
        };
        if is_within(rate)? { within = rate } else { beyond = Some(rate) }
    }
    let Some(mut beyond) = beyond.filter(|_| within > 0.0) else { return Ok(within) };
    for _ in 0..HALVINGS {
        let rate = (within * beyond).sqrt();
        if is_within(rate)? { within = rate } else { beyond = rate }
    }
    Ok(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_found_from_both_sides() {
        for start in [20.0, 95.0, 100.0, 105.0, 500.0] {
            let found = highest_rate(start, |rate| Ok(rate <= 100.0)).unwrap();
            assert!((97.0..=100.0).contains(&found), "{start}: {found}");
        }
        assert_eq!(highest_rate(10.0, |_| Ok(false)).unwrap(), 0.0);
    }
}
