//! What the machine itself takes: gaps in a loop that only reads the clock, and time stolen by the hypervisor.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// Processors that are measured on.
const PROCESSORS: usize = 2;
/// How long the loop reads the clock.
const LENGTH: Duration = Duration::from_millis(100);
/// A gap above this is none of the loop's own.
const GAP_MIN: Duration = Duration::from_micros(20);
const LONG_GAP_MIN: Duration = Duration::from_micros(200);

/// Gaps on all processors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps {
    /// Above 20 us.
    pub(super) count: u32,
    /// Above 200 us.
    pub(super) long: u32,
    pub(super) longest_us: f64,
    /// Share of the time.
    pub(super) share: f64,
}

impl Gaps {
    /// Reads the clock on as many threads as there are processors.
    pub(super) fn measure() -> Self {
        let each: Vec<Self> = thread::scope(|scope| {
            let threads: Vec<_> = (0..PROCESSORS).map(|_| scope.spawn(Self::of_one)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let sum = each.iter().fold(Self::default(), |sum, one| Self {
            count: sum.count + one.count,
            long: sum.long + one.long,
            longest_us: sum.longest_us.max(one.longest_us),
            share: sum.share + one.share,
        });
        Self { share: sum.share / each.len().max(1) as f64, ..sum }
    }

    fn of_one() -> Self {
        let (start, mut gaps, mut lost) = (Instant::now(), Self::default(), Duration::ZERO);
        let mut last = start;
        while last - start < LENGTH {
            let now = Instant::now();
            let gap = now - last;
            if gap >= GAP_MIN {
                gaps.count += 1;
                gaps.long += u32::from(gap >= LONG_GAP_MIN);
                gaps.longest_us = gaps.longest_us.max(gap.as_secs_f64() * 1e6);
                lost += gap;
            }
            last = now;
        }
        gaps.share = lost.as_secs_f64() / LENGTH.as_secs_f64();
        gaps
    }
}

/// Time of all processors since the machine started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stolen {
    stolen: u64,
    all: u64,
}

impl Stolen {
    /// So far.
    pub(super) fn now() -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in the first two again.
        Ok(Self { stolen: ticks.get(7).copied().unwrap_or(0), all: ticks.iter().take(8).sum() })
    }

    /// Percent of the time since `before` that the hypervisor gave to others while somebody here wanted it.
    pub(super) fn percent_since(self, before: Self) -> f64 {
        100.0 * (self.stolen - before.stolen) as f64 / (self.all - before.all).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_shares_are_shares() {
        let before = Stolen::now().unwrap();
        let gaps = Gaps::measure();
        let percent = Stolen::now().unwrap().percent_since(before);
        assert!((0.0..=100.0).contains(&percent), "{percent}");
        // A last gap may reach beyond the end.
        assert!(gaps.share >= 0.0 && gaps.long <= gaps.count, "{gaps:?}");
        assert_eq!(gaps.count > 0, gaps.longest_us > 0.0, "{gaps:?}");
    }
}
