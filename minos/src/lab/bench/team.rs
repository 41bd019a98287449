//! Threads that measure one window together.

use std::{
    sync::{Barrier, OnceLock},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Processor time in user mode and in the kernel.
pub(super) type Times = (Duration, Duration);

/// Threads whose measured window begins for all at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Team<'a> {
    pub(super) threads: usize,
    /// Threads in turn, or none: where the system puts them.
    pub(super) cpus: &'a [usize],
    pub(super) warmup: Duration,
    /// Of the window, which follows the warm-up.
    pub(super) duration: Duration,
}

impl Team<'_> {
    /// Calls `prepare` with the number of each thread, then `measure` with the time at which the last was ready: the
    /// warm-up begins there. Returns the results by thread, and the processor time that the process spent in the
    /// window.
    ///
    /// # Errors
    /// A thread cannot be pinned, or `prepare` or `measure` failed.
    pub(super) fn run<P, T: Send>(
        &self,
        prepare: impl Fn(usize) -> Result<P> + Sync,
        measure: impl Fn(P, Instant) -> Result<T> + Sync,
    ) -> Result<(Vec<T>, Times)> {
        let (all, begin) = (Barrier::new(self.threads + 1), OnceLock::new());
        // A thread that failed comes too: the others wait for it.
        let ready = || {
            all.wait();
            *begin.get_or_init(Instant::now)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    let (prepare, measure, ready) = (&prepare, &measure, &ready);
                    scope.spawn(move || {
                        let prepared = pin(self.cpus, number).and_then(|()| prepare(number));
                        let begin = ready();
                        measure(prepared?, begin)
                    })
                })
                .collect();
            let begin = ready();
            let at = |time: Instant| {
                thread::sleep(time.saturating_duration_since(Instant::now()));
                minos_net::processor_time()
            };
            let (before, after) = (at(begin + self.warmup), at(begin + self.warmup + self.duration));
            let results = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
            let spent = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
            Ok((results.collect::<Result<_>>()?, spent))
        })
    }
}

/// Pins this thread to one of `cpus`, in turn by its number.
pub(super) fn pin(cpus: &[usize], thread: usize) -> Result<()> {
    let Some(cpu) = cpus.get(thread % cpus.len().max(1)) else { return Ok(()) };
    minos_net::pin_to(*cpu).with_context(|| format!("--pin {cpu}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use anyhow::ensure;

    use super::*;

    const TEAM: Team<'_> = Team { threads: 3, cpus: &[], warmup: Duration::ZERO, duration: Duration::ZERO };

    #[test]
    fn the_window_begins_when_all_are_ready() {
        let prepared = AtomicUsize::new(0);
        let prepare = |number| {
            thread::sleep(Duration::from_millis(number as u64));
            prepared.fetch_add(1, Relaxed);
            Ok(Instant::now())
        };
        let measure = |ready: Instant, begin| Ok((ready <= begin, begin, prepared.load(Relaxed)));
        let (seen, _) = TEAM.run(prepare, measure).unwrap();
        assert_eq!(seen, [(true, seen[0].1, 3); 3]);
    }

    #[test]
    fn a_thread_that_is_never_ready_fails_the_run() {
        let prepare = |number| {
            ensure!(number != 1, "not ready");
            Ok(())
        };
        let error = TEAM.run(prepare, |(), _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "not ready");
    }
}
