//! The threads of a run: the connections of each, their common start, and the sum of what they measure.

use std::{
    io,
    ops::Range,
    sync::{
        Barrier, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use minos_net::{HostPort, Source};

use super::{
    clock::{RunClock, monotonic_ns},
    config::{Moment, RunConfig, RunError},
    connection::Connection,
    datagram::{DatagramThread, MemcachedLink, NativeLink, Terms, open_memif, open_ports},
    recorder::Recorder,
    schedule::{Feed, Orders, Schedule},
    target::{Manner, Place},
    thread::DriverThread,
};
use crate::{Workload, model::OpSource};

/// Interval between two looks at the progress.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// Delay between the moment at which the last thread is ready and the first request, in which all wake.
const START_DELAY_NS: u64 = 20_000_000;

/// The common start of the threads of a run.
struct Start {
    all: Barrier,
    at_ns: OnceLock<u64>,
}

impl Start {
    /// Of so many threads, all of which must come to it.
    fn of(threads: usize) -> Self {
        Self { all: Barrier::new(threads), at_ns: OnceLock::new() }
    }

    /// Waits until the last thread is ready. Returns the clock of the run, which is the same for all.
    fn clock(&self) -> RunClock {
        self.all.wait();
        RunClock::starting_at(*self.at_ns.get_or_init(|| monotonic_ns() + START_DELAY_NS))
    }
}

/// One thread's share of one stream.
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

/// The connections or sockets of a thread.
enum Seats<'a> {
    Connections(Vec<Connection<'a>>),
    Native(Vec<NativeLink<'a, HostPort>>),
    Memcached(Vec<MemcachedLink<'a>>),
}

impl Seats<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Connections(connections) => connections.len(),
            Self::Native(links) => links.len(),
            Self::Memcached(links) => links.len(),
        }
    }
}

/// What a thread does once the run has a clock. Nothing is left to prepare, so nothing fails before the start.
type Member<'a> = Box<dyn FnOnce(RunClock, &AtomicU64) -> io::Result<Recorder> + Send + 'a>;

/// State shared by all threads.
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
        let target = &self.config.target;
        let refused = |error| RunError::Connect { target: target.clone(), error };
        let mut ports = self.open_ports(layout).map_err(refused)?;
        let mut crew = Vec::new();
        for shares in layout {
            let (feeds, seats) = self.feeds(shares, &source, &mut ports)?;
            crew.push(self.member(feeds, seats)?);
        }
        let (start, answered) = (Start::of(crew.len() + 1), AtomicU64::new(0));
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, member) in crew.into_iter().enumerate() {
                let cpus = &self.config.cpus;
                let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
                let (start, answered) = (&start, &answered);
                threads.push(scope.spawn(move || {
                    if let Some(cpu) = cpu {
                        // If pinning is not permitted, the system chooses the processor.
                        let _ = minos_net::pin_to(cpu);
                    }
                    member(start.clock(), answered)
                }));
            }
            let clock = start.clock();
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

    /// The ports of all links of the native protocol, which share a card or memory.
    fn open_ports(&self, layout: &[Vec<Share>]) -> io::Result<Vec<HostPort>> {
        let target = &self.config.target;
        if target.manner() != Manner::Native {
            return Ok(Vec::new());
        }
        let (count, address) = (links(layout), || target.datagram_address());
        match &target.place {
            Place::Memif(place) => open_memif(place, count),
            Place::Card(_) => open_ports(address()?, count, &Source::Card),
            _ => open_ports(address()?, count, &Source::Sockets),
        }
    }

    /// The feeds of one thread, and its connections or sockets.
    fn feeds(
        &self,
        shares: &[Share],
        source: &impl Fn(usize, Share) -> OpSource<'a>,
        ports: &mut Vec<HostPort>,
    ) -> Result<(Vec<Feed<'a>>, Seats<'a>), RunError> {
        let target = &self.config.target;
        let mut feeds: Vec<Feed<'a>> = Vec::new();
        let mut seats = match target.manner() {
            Manner::Stream(_) => Seats::Connections(Vec::new()),
            Manner::Native => Seats::Native(Vec::new()),
            Manner::MemcachedDatagrams => Seats::Memcached(Vec::new()),
        };
        for (stream, &share) in shares.iter().enumerate().filter(|(_, share)| share.connections > 0) {
            let first = seats.len();
            for _ in 0..share.connections {
                let connected = self.connect(&mut seats, feeds.len(), ports);
                connected.map_err(|error| RunError::Connect { target: target.clone(), error })?;
            }
            feeds.push(Feed { source: source(stream, share), connections: (first..seats.len()).collect() });
        }
        Ok((feeds, seats))
    }

    /// Adds a connection or a socket for the stream of this number; one of `ports`, if it speaks the native protocol.
    fn connect(&self, seats: &mut Seats<'a>, stream: usize, ports: &mut Vec<HostPort>) -> io::Result<()> {
        let RunConfig { target, check_contents, receive_buffer, datagrams, .. } = self.config;
        let dataset = &self.workload.dataset;
        let terms = Terms {
            width: self.orders.keys_per_get,
            contents: *check_contents,
            timeout: datagrams.timeout,
            repeats: self.orders.repeats,
        };
        match seats {
            Seats::Connections(connections) => {
                let Manner::Stream(protocol) = target.manner() else { return Ok(()) };
                let fd = target.connect(*receive_buffer)?;
                connections.push(Connection::new(fd, protocol, dataset, *check_contents, stream));
            }
            Seats::Native(links) => {
                let (server, seed) = (target.datagram_address()?, self.workload.seed());
                let port = ports.pop().ok_or(io::ErrorKind::NotConnected)?;
                links.push(NativeLink::connect(port, server, dataset, terms, datagrams.queue_by, seed)?);
            }
            Seats::Memcached(links) => {
                links.push(MemcachedLink::connect(target.datagram_address()?, dataset, terms)?);
            }
        }
        Ok(())
    }

    fn member(&self, feeds: Vec<Feed<'a>>, seats: Seats<'a>) -> io::Result<Member<'a>> {
        let schedule = Schedule::new(self.orders, feeds)?;
        let recorder = Recorder::new(self.window_ns.clone());
        Ok(match seats {
            Seats::Connections(connections) => {
                let dataset = &self.workload.dataset;
                let thread = DriverThread::new(schedule, dataset, connections, recorder)?;
                Box::new(move |clock, progress| thread.drive(clock, progress))
            }
            Seats::Native(links) => {
                let thread = DatagramThread::new(schedule, links, recorder)?;
                Box::new(move |clock, progress| thread.drive(clock, progress))
            }
            Seats::Memcached(links) => {
                let thread = DatagramThread::new(schedule, links, recorder)?;
                Box::new(move |clock, progress| thread.drive(clock, progress))
            }
        })
    }
}

/// Connections of all threads.
fn links(layout: &[Vec<Share>]) -> usize {
    layout.iter().flatten().map(|share| share.connections).sum()
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
    fn a_run_begins_for_all_when_the_last_is_ready() {
        let start = Start::of(3);
        let seen = thread::scope(|scope| {
            let threads = [0, 1, 2].map(|number| {
                let start = &start;
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(10 * number));
                    (monotonic_ns(), start.clock().start_ns())
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(
            seen.iter().all(|&(ready_ns, start_ns)| ready_ns < start_ns && start_ns == seen[0].1),
            "{seen:?}"
        );
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
