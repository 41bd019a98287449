//! The threads of a run: the connections of each, their common start, and the sum of what they measure.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::{
    clock::{RunClock, monotonic_ns},
    connection::Connection,
    recorder::Recorder,
    run::{Moment, RunConfig, RunError},
    thread::{DriverThread, Feed, Orders},
};
use crate::{Workload, model::OpSource};

/// Interval between two looks at the progress.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// From the last connection until the first request, so that all threads are there.
const START_DELAY_NS: u64 = 20_000_000;

/// What one thread has of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) thread: usize,
    pub(super) threads: usize,
    pub(super) connections: usize,
    pub(super) connections_of_all: usize,
}

/// Connections of each thread, by stream. They are dealt out in turn, beginning with another thread for
/// each stream, so that no thread gets all the streams of few connections.
pub(super) fn layout(threads: usize, counts: &[u32]) -> Vec<Vec<Share>> {
    let mut layout = Vec::new();
    for thread in 0..threads {
        let shares = counts.iter().enumerate().map(|(stream, &count)| {
            let dealt = (0..count as usize).filter(|number| (number + stream) % threads == thread).count();
            Share { thread, threads, connections: dealt, connections_of_all: count as usize }
        });
        layout.push(shares.collect());
    }
    layout
}

/// What all threads have in common.
pub(super) struct Crew<'a> {
    pub(super) config: &'a RunConfig,
    pub(super) workload: &'a Workload,
    pub(super) orders: Orders,
    pub(super) window_ns: Range<u64>,
}

impl<'a> Crew<'a> {
    /// Connects, drives with all threads and adds up what they measured.
    pub(super) fn drive(
        &self,
        layout: &[Vec<Share>],
        source: impl Fn(usize, Share) -> OpSource<'a>,
        mut watch: impl FnMut(Moment),
    ) -> Result<Recorder, RunError> {
        let mut crew = Vec::new();
        for shares in layout {
            crew.push(self.feeds(shares, &source)?);
        }
        let clock = RunClock::starting_at(monotonic_ns() + START_DELAY_NS);
        let answered = AtomicU64::new(0);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, (feeds, connections)) in crew.into_iter().enumerate() {
                let recorder = Recorder::new(self.window_ns.clone());
                let state = DriverThread::new(
                    self.orders,
                    &self.workload.dataset,
                    clock,
                    feeds,
                    connections,
                    recorder,
                )?;
                let cpus = &self.config.cpus;
                let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
                let answered = &answered;
                threads.push(scope.spawn(move || {
                    if let Some(cpu) = cpu {
                        // Where pinning is not permitted the system chooses the place.
                        let _ = minos_net::pin_to(cpu);
                    }
                    state.drive(answered)
                }));
            }
            watch(Moment { elapsed: Duration::ZERO, answered: 0 });
            while threads.iter().any(|thread| !thread.is_finished()) {
                thread::sleep(next_look(clock.now_ns(), &self.window_ns));
                let elapsed = Duration::from_nanos(clock.now_ns());
                watch(Moment { elapsed, answered: answered.load(Ordering::Relaxed) });
            }
            let mut sum = Recorder::new(self.window_ns.clone());
            for thread in threads {
                sum.merge(&thread.join().map_err(|_| RunError::Panicked)??);
            }
            Ok(sum)
        })
    }

    /// The feeds and connections of one thread.
    fn feeds(
        &self,
        shares: &[Share],
        source: &impl Fn(usize, Share) -> OpSource<'a>,
    ) -> Result<(Vec<Feed<'a>>, Vec<Connection<'a>>), RunError> {
        let target = &self.config.target;
        let dataset = &self.workload.dataset;
        let (mut feeds, mut connections) = (Vec::new(), Vec::new());
        for (stream, &share) in shares.iter().enumerate().filter(|(_, share)| share.connections > 0) {
            let first = connections.len();
            for _ in 0..share.connections {
                let fd =
                    target.connect().map_err(|error| RunError::Connect { target: target.clone(), error })?;
                let contents = self.config.check_contents;
                connections.push(Connection::new(fd, target.language(), dataset, contents, feeds.len()));
            }
            feeds.push(Feed {
                source: source(stream, share),
                connections: (first..connections.len()).collect(),
            });
        }
        Ok((feeds, connections))
    }
}

/// How long to sleep until the next look, which does not miss the ends of the window.
fn next_look(now_ns: u64, window_ns: &Range<u64>) -> Duration {
    let edges = [window_ns.start, window_ns.end];
    let edge_ns = edges.into_iter().filter(|&edge_ns| edge_ns > now_ns).min();
    edge_ns.map_or(WATCH_INTERVAL, |edge_ns| Duration::from_nanos(edge_ns - now_ns)).min(WATCH_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_belongs_to_one_thread() {
        for threads in 1..5 {
            let layout = layout(threads, &[16, 4, 1]);
            assert_eq!(layout.len(), threads);
            for (stream, count) in [16, 4, 1].into_iter().enumerate() {
                let dealt: usize = layout.iter().map(|shares| shares[stream].connections).sum();
                assert_eq!(dealt, count);
            }
        }
    }

    #[test]
    fn looks_do_not_miss_the_edges() {
        let window_ns = 10_000_000..200_000_000;
        assert_eq!(next_look(0, &window_ns), Duration::from_millis(10));
        assert_eq!(next_look(10_000_000, &window_ns), WATCH_INTERVAL);
        assert_eq!(next_look(190_000_000, &window_ns), Duration::from_millis(10));
        assert_eq!(next_look(300_000_000, &window_ns), WATCH_INTERVAL);
    }
}
