//! The driver's time: nanoseconds since the run started.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock counted from the start, and its distance from the clock of the kernel's stamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    start_ns: u64,
    /// Real time minus monotonic time. Renewed now and then, because real time may be adjusted.
    unix_offset_ns: u64,
}

impl RunClock {
    /// A clock whose zero is `start_ns` on the monotonic clock; it shows 0 before.
    pub(super) fn starting_at(start_ns: u64) -> Self {
        let mut clock = Self { start_ns, unix_offset_ns: 0 };
        clock.renew_offset();
        clock
    }

    /// When it starts, on the monotonic clock.
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    pub(super) fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.start_ns)
    }

    /// The time of a kernel's stamp, on this clock.
    pub(super) fn of_unix_ns(&self, unix_ns: u64) -> u64 {
        unix_ns.saturating_sub(self.unix_offset_ns).saturating_sub(self.start_ns)
    }

    /// Compares the two clocks again. Of a few tries the one counts in which least time passed between
    /// the two readings, lest a preemption shift every stamp that follows.
    pub(super) fn renew_offset(&mut self) {
        let tries = (0..3).map(|_| {
            let before = monotonic_ns();
            let unix = clock_ns(ClockId::Realtime);
            let after = monotonic_ns();
            (after - before, unix.saturating_sub(before + (after - before) / 2))
        });
        self.unix_offset_ns = tries.min().map_or(0, |(_, offset)| offset);
    }
}

pub(super) fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

fn clock_ns(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    // Both clocks are positive on a machine whose date is after 1970.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_now_is_now() {
        let clock = RunClock::starting_at(monotonic_ns());
        let before = clock.now_ns();
        let stamp = clock_ns(ClockId::Realtime);
        let after = clock.now_ns();
        let converted = clock.of_unix_ns(stamp);
        // A few microseconds of slack for the comparison of the clocks.
        assert!(converted + 50_000 >= before && converted <= after + 50_000, "{before} {converted} {after}");
    }

    #[test]
    fn it_shows_nothing_before_the_start() {
        assert_eq!(RunClock::starting_at(monotonic_ns() + 60_000_000_000).now_ns(), 0);
    }
}
