//! Time that the hypervisor steals.

use std::fs;

/// Time of all processors since the start of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stolen {
    stolen: u64,
    all: u64,
}

impl Stolen {
    pub(super) fn now() -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in the first two again.
        Ok(Self { stolen: ticks.get(7).copied().unwrap_or(0), all: ticks.iter().take(8).sum() })
    }

    /// Percent of the time since `before` that the hypervisor gave to others although this machine needed it.
    pub(super) fn percent_since(self, before: Self) -> f64 {
        100.0 * (self.stolen - before.stolen) as f64 / (self.all - before.all).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shares() {
        let before = Stolen::now().unwrap();
        let percent = Stolen::now().unwrap().percent_since(before);
        assert!((0.0..=100.0).contains(&percent), "{percent}");
    }
}
