//! Runs and loads: the orders of the threads, and the report.

use std::{ops::Range, time::Duration};

use super::{
    clock::monotonic_ns,
    config::{Arrivals, Moment, RATE_MAX, RunConfig, RunError},
    cpu::ThreadTimes,
    crew::{Crew, Share, layout},
    recorder::Recorder,
    report::{DriverShare, LatencyReport, LoadReport, Report, errors_by_name},
    schedule::{Orders, Pace, Timing},
    target::Manner,
};
use crate::{Workload, model::OpSource};

/// Drives a server with a workload. `watch` is called with the progress now and then.
///
/// # Errors
/// The server cannot be reached, or an open loop has no rate. A server that fails meanwhile is reported, not an error.
pub fn run(
    config: &RunConfig,
    workload: &Workload,
    mut watch: impl FnMut(Moment),
) -> Result<Report, RunError> {
    let window_ns = window(config, workload);
    let orders = Orders {
        timing: match config.arrivals {
            Arrivals::Open { .. } => Timing::Open,
            Arrivals::Closed { pipeline } => Timing::Closed { batch: pipeline.max(1) },
        },
        pace: config.pace,
        keys_per_get: config.keys_per_get.max(1),
        end_ns: window_ns.end,
        drain_end_ns: window_ns.end + nanoseconds(config.drain),
        repeats: 0,
    };
    let rates = rates(config, workload)?;
    let source = |stream, share: Share| {
        let rate = rates[stream] * share.connections as f64 / share.connections_of_all as f64;
        OpSource::of_stream(workload, stream, share.thread, share.threads, rate)
    };
    let layout = layout(config.threads.max(1), &connection_counts(config, workload));
    let pid = config.server_pid.or_else(|| config.target.server_pid());
    let mut cpu = CpuWatch { pid, window_ns: window_ns.clone(), begin: None, end: None };
    let crew = Crew { config, workload, orders, window_ns: window_ns.clone() };
    let recorder = crew.drive(&layout, source, |moment| {
        cpu.look(moment.elapsed);
        watch(moment);
    })?;
    Ok(report((config, &rates), workload, &window_ns, &recorder, cpu.spent_ns()))
}

/// Stores every item of a workload once.
///
/// # Errors
/// The server cannot be reached.
pub fn load(
    config: &RunConfig,
    workload: &Workload,
    watch: impl FnMut(Moment),
) -> Result<LoadReport, RunError> {
    // Requests in flight and operations of each. Datagrams have no flow control: too many overrun the server.
    let (batch, width) = match config.target.manner() {
        Manner::Stream(_) => (64, 1),
        Manner::MemcachedDatagrams => (8, 1),
        Manner::Native => (1, 32),
    };
    let orders = Orders {
        timing: Timing::Closed { batch },
        pace: Pace::Sleep,
        keys_per_get: width,
        end_ns: u64::MAX,
        drain_end_ns: u64::MAX,
        repeats: LOAD_REPEATS,
    };
    let threads = config.threads.max(1);
    let source = |_, share: Share| OpSource::load(workload, share.thread, share.threads);
    let crew = Crew { config, workload, orders, window_ns: 0..u64::MAX };
    let begun_ns = monotonic_ns();
    let recorder = crew.drive(&layout(threads, &[4 * threads as u32]), source, watch)?;
    let duration_s = (monotonic_ns() - begun_ns) as f64 / 1e9;
    // All are meant to be sent within the window, which has no end.
    let stored = recorder.operations_in_window;
    Ok(LoadReport {
        stored,
        errors: workload.item_count() - stored.min(workload.item_count()),
        errors_by_kind: errors_by_name(&recorder),
        value_bytes: workload.sizes(),
        duration_s,
    })
}

/// How often a load sends a datagram again that is not answered.
const LOAD_REPEATS: u32 = 20;

/// The measured window, in nanoseconds since the start. A trace that ends earlier ends it.
fn window(config: &RunConfig, workload: &Workload) -> Range<u64> {
    let begin_ns = nanoseconds(config.warmup);
    let end_ns = begin_ns + nanoseconds(config.duration);
    let recorded_ns = workload.streams.iter().map(|stream| stream.recorded_ns()).max().flatten();
    match (recorded_ns, config.arrivals) {
        // The warm-up of a short trace must leave something to measure.
        (Some(recorded_ns), Arrivals::Open { .. }) if recorded_ns < end_ns => {
            begin_ns.min(recorded_ns / 2)..recorded_ns + 1
        }
        _ => begin_ns..end_ns,
    }
}

/// Requests per second of each stream. Those without a rate of their own share the given one.
fn rates(config: &RunConfig, workload: &Workload) -> Result<Vec<f64>, RunError> {
    let given = match config.arrivals {
        // Without gaps between requests there would be no last one.
        Arrivals::Open { rate } if !(rate > 0.0 && rate <= RATE_MAX) => return Err(RunError::Rate(rate)),
        Arrivals::Open { rate } => rate,
        Arrivals::Closed { .. } => 0.0,
    };
    let sharing = workload.streams.iter().filter(|stream| stream.rate.is_none()).count().max(1);
    Ok(workload.streams.iter().map(|stream| stream.rate.unwrap_or(given / sharing as f64)).collect())
}

fn connection_counts(config: &RunConfig, workload: &Workload) -> Vec<u32> {
    let counts = workload.streams.iter().map(|stream| stream.connections.unwrap_or(config.connections));
    counts.map(|count| count.max(1)).collect()
}

/// The server's processor time at both ends of the window.
struct CpuWatch {
    pid: Option<u32>,
    window_ns: Range<u64>,
    begin: Option<ThreadTimes>,
    end: Option<ThreadTimes>,
}

impl CpuWatch {
    fn look(&mut self, elapsed: Duration) {
        let Some(pid) = self.pid else { return };
        let elapsed_ns = nanoseconds(elapsed);
        if self.begin.is_none() && elapsed_ns >= self.window_ns.start {
            self.begin = Some(ThreadTimes::of(pid));
        }
        if self.end.is_none() && elapsed_ns >= self.window_ns.end {
            self.end = Some(ThreadTimes::of(pid));
        }
    }

    /// None when the server is not known, or ended meanwhile.
    fn spent_ns(&self) -> Option<u64> {
        self.end.as_ref()?.since_ns(self.begin.as_ref()?)
    }
}

fn report(
    (config, rates): (&RunConfig, &[f64]),
    workload: &Workload,
    window_ns: &Range<u64>,
    recorder: &Recorder,
    server_cpu_ns: Option<u64>,
) -> Report {
    let duration_s = (window_ns.end - window_ns.start) as f64 / 1e9;
    let completed = recorder.small.len() + recorder.large.len();
    let errors: u64 = recorder.errors.values().sum();
    let achieved_rps = recorder.completed_in_window as f64 / duration_s;
    let is_recorded = workload.streams.iter().any(|stream| stream.recorded_ns().is_some());
    let offered_rps = match config.arrivals {
        Arrivals::Closed { .. } => achieved_rps,
        Arrivals::Open { .. } if is_recorded => (completed + errors + recorder.lost) as f64 / duration_s,
        Arrivals::Open { .. } => rates.iter().sum(),
    };
    let cpu_us_per_op = |spent_ns: u64| spent_ns as f64 / 1e3 / recorder.completed_in_window as f64;
    let operations_per_cpu_s = |spent_ns: u64| recorder.operations_in_window as f64 * 1e9 / spent_ns as f64;
    Report {
        offered_rps,
        achieved_rps,
        completed,
        errors,
        lost: recorder.lost,
        server_cpu_us_per_op: server_cpu_ns.map(cpu_us_per_op).filter(|us| us.is_finite()),
        operations_per_s: recorder.operations_in_window as f64 / duration_s,
        operations_per_server_cpu_s: server_cpu_ns.map(operations_per_cpu_s).filter(|rate| rate.is_finite()),
        latency_us: LatencyReport::of(recorder),
        errors_by_kind: errors_by_name(recorder),
        misses: recorder.keys_missed,
        driver: DriverShare::of(recorder),
        duration_s,
        target: config.target.to_string(),
        workload: workload.name().to_owned(),
        seed: workload.seed(),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
