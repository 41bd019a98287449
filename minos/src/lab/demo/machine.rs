//! Other load on the machine during a measurement.

use std::fs;

use anyhow::{Context, Result};
use minos_workload::Report;
use serde::Serialize;

/// Share of the processors' time taken by other programs, above which a measurement is doubtful.
const OTHERS_MAX: f64 = 0.05;
/// Share of the processors' time taken by other virtual machines, above which a measurement is doubtful.
const STOLEN_MAX: f64 = 0.02;

/// Time of the processors so far, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    all: u64,
    busy: u64,
    stolen: u64,
    /// Of the busy ones, those of driver and server.
    ours: u64,
}

impl Ticks {
    /// The ticks now; `server` is the measured process.
    pub(super) fn now(server: u32) -> Result<Self> {
        let read = |path: String| fs::read_to_string(&path).context(path);
        let [driver, server] = [std::process::id(), server].map(|pid| read(format!("/proc/{pid}/stat")));
        Ok(Self::of(&read("/proc/stat".to_owned())?, &[driver?, server?]))
    }

    /// Reads the kernel's tables of the machine and of processes.
    fn of(machine: &str, processes: &[String]) -> Self {
        let numbers = |text: &str| text.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in the first two again.
        let machine: Vec<u64> = numbers(machine.lines().next().unwrap_or_default());
        let at = |index: usize| machine.get(index + 1).copied().unwrap_or(0);
        let ours = processes.iter().map(|process| {
            // A name in brackets may hold blanks; the 14th and 15th columns are user and system time.
            let columns: Vec<u64> = numbers(process.rsplit(')').next().unwrap_or_default());
            columns.iter().skip(11).take(2).sum::<u64>()
        });
        let stolen = at(7);
        let busy = [0, 1, 2, 5, 6].map(at).iter().sum();
        Self { all: busy + at(3) + at(4) + stolen, busy, stolen, ours: ours.sum() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Disturbance {
    /// Share of the processors' time that other programs had, 0 to 1.
    others: f64,
    /// Share of the processors' time that the hypervisor gave to other virtual machines, 0 to 1.
    stolen: f64,
    /// Times that the driver's processor was lost for longer than a millisecond.
    long_turns: u64,
}

impl Disturbance {
    /// The disturbance between two moments; `report` adds the driver's own observations.
    pub(super) fn between(before: Ticks, after: Ticks, report: &Report) -> Self {
        let share = |ticks: u64| ticks as f64 / (after.all - before.all).max(1) as f64;
        let busy = after.busy - before.busy;
        Self {
            others: share(busy.saturating_sub(after.ours - before.ours)),
            stolen: share(after.stolen - before.stolen),
            long_turns: report.driver.long_turns.unwrap_or(0),
        }
    }

    /// True if the measurement may show something other than the server.
    pub(super) fn is_notable(self) -> bool {
        self.others > OTHERS_MAX || self.stolen > STOLEN_MAX || self.long_turns > 0
    }

    /// The worst of each kind.
    pub(super) fn worst(self, other: Self) -> Self {
        Self {
            others: self.others.max(other.others),
            stolen: self.stolen.max(other.stolen),
            long_turns: self.long_turns.max(other.long_turns),
        }
    }
}

impl std::fmt::Display for Disturbance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { others, stolen, long_turns } = self;
        let (others, stolen) = (100.0 * others, 100.0 * stolen);
        write!(
            f,
            "other programs had up to {others:.0} % of the processors, other machines {stolen:.0} %, "
        )?;
        write!(f, "and the driver stood still up to {long_turns} times in a round")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  100 0 100 1000 0 0 0 10 0 0\ncpu0 1 2 3\n";

    fn process(user: u64, system: u64) -> String {
        format!("7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 5")
    }

    fn shares(after: &str, ours: (u64, u64)) -> (f64, f64) {
        let before = Ticks::of(BEFORE, &[process(10, 10), process(0, 0)]);
        let after = Ticks::of(after, &[process(10, 10), process(ours.0, ours.1)]);
        let share = |ticks: u64| ticks as f64 / (after.all - before.all) as f64;
        (share(after.busy - before.busy - (after.ours - before.ours)), share(after.stolen - before.stolen))
    }

    #[test]
    fn our_own_time_is_not_that_of_others() {
        assert_eq!(shares("cpu  160 0 140 1000 0 0 0 10 0 0", (60, 40)), (0.0, 0.0));
    }

    #[test]
    fn time_of_others_and_of_other_machines_is_seen() {
        assert_eq!(shares("cpu  160 0 120 1010 0 0 0 20 0 0", (30, 20)), (0.3, 0.1));
    }

    #[test]
    fn little_is_not_notable() {
        let quiet = Disturbance { others: 0.04, stolen: 0.01, long_turns: 0 };
        assert!(!quiet.is_notable());
        for loud in [
            Disturbance { others: 0.06, ..quiet },
            Disturbance { stolen: 0.03, ..quiet },
            Disturbance { long_turns: 1, ..quiet },
        ] {
            assert!(loud.is_notable(), "{loud}");
        }
    }
}
