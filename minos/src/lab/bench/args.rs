//! The options of `minos bench`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use minos_base::SizeText;
use minos_net::allowed_cpus;
use minos_node::settings::parse_time;
use minos_workload::{
    Arrivals, DatagramOptions, Pace, Place, QueueBy, RunConfig, Shape, Target, TargetProtocol,
};

use crate::lab::sim::Range;

use super::{
    device::DeviceArgs,
    inproc::InprocArgs,
    numbers::{Rate, parse_exponent, parse_percent, parse_rate, parse_rate_range, parse_share},
    target::BenchTarget,
};

/// Measure a server: latencies of small and of large requests, open loop, from the intended send time.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// The server: minos://HOST:PORT, memcached://HOST:PORT, resp://HOST:PORT, memcached+unix:///PATH,
    /// memcached+udp://HOST:PORT, minos+xdp://HOST:PORT (AF_XDP, as root), minos+memif://IP:PORT/PATH?queues=N
    /// (DPDK, beside this process); or a table within this process: inproc://cache, inproc://store; or a file, block
    /// device or modelled memory: device:PATH, device:memory; a store above one: tier:PATH, tier:memory.
    #[arg(long, value_name = "URL")]
    pub(super) target: BenchTarget,

    /// Requests per second, such as 20k, or max: closed loop [default: 20k; noise: 40k; device: max].
    #[arg(long, value_name = "OPS", value_parser = parse_rate)]
    rate: Option<Rate>,

    /// Length of the measured window.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = parse_time)]
    duration: Duration,

    /// Time before the window; its requests do not count.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = parse_time)]
    warmup: Duration,

    /// Time to wait for answers after the window; requests without one are lost.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = parse_time)]
    drain: Duration,

    /// Connections, or sockets for datagrams, of the workload (noise has 4 more for its large objects).
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// Receive buffer of a TCP connection, at most net.core.rmem_max. A value larger than that comes in
    /// parts, each after the driver has read the last [default: the system's, which grows with use].
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<SizeText>,

    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    /// Which requests are drawn of the workload: others for each N, for the same items.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(super) draw: u32,

    /// etc, table1-0.125-500k and the other rows of Minos' Table 1, mica-tiny, mica-small, mica-large,
    /// ycsb-a, -b, -c, -d, -f, noise, FILE.toml, trace:FILE.csv, or files:DIR.
    #[arg(long, default_value = "etc", value_name = "NAME")]
    pub(super) workload: String,

    /// Items that are not large.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,

    /// Large items.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    large_keys: Option<u64>,

    /// Percentage of requests that go to large items.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    large_percent: Option<f64>,

    /// Size of the largest large item.
    #[arg(long, value_name = "SIZE")]
    large_max: Option<SizeText>,

    /// Values above this count as large in the report [default: as the workload says, else 1400].
    #[arg(long, value_name = "SIZE")]
    large_threshold: Option<SizeText>,

    /// Share of GETs, or of reads from a device, 0 to 1.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    get_ratio: Option<f64>,

    /// Exponent of the popularity; 0 is uniform.
    #[arg(long, value_name = "THETA", value_parser = parse_exponent)]
    zipf: Option<f64>,

    /// Keys of each GET; with minos:// operations of each vector, with inproc:// of each burst [default: 1;
    /// inproc://: 32].
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) multiget: Option<u32>,

    /// Closed loop: requests on each connection at a time, sent in one write or train. Implies --rate max.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: Option<u32>,

    /// With minos://, the queue that a request is sent to [default: as the server's access mode wants it].
    #[arg(long, value_name = "CHOICE")]
    queue_by: Option<QueueByArg>,

    /// With datagrams, time after which a request without an answer is lost [default: 500ms].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,

    /// How the driver waits.
    #[arg(long, default_value = "spin")]
    pace: PaceArg,

    /// Processors to pin the driver's threads to, in turn.
    #[arg(long, value_name = "CPU,..", value_delimiter = ',', value_parser = parse_cpu)]
    pin: Vec<usize>,

    /// Compare every byte of every value (files are always compared).
    #[arg(long)]
    verify: bool,

    /// Store all items first.
    #[arg(long)]
    pub(super) load: bool,

    /// Store all items and do nothing else.
    #[arg(long)]
    pub(super) load_only: bool,

    /// The server's process, for its processor time; else it is found by its port.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,

    /// Measure at rising rates and print the curve.
    #[arg(long, value_name = "FROM..TO", value_parser = parse_rate_range, conflicts_with_all = ["rate", "pipeline"])]
    pub(super) sweep: Option<Range>,

    /// Rates of a sweep, in equal ratios.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(super) sweep_steps: u32,

    /// Measure this server too, in turn with the first, and print ratios.
    #[arg(long, value_name = "URL", conflicts_with = "sweep")]
    pub(super) vs: Option<Target>,

    /// Rounds of a comparison.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,

    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) inproc: InprocArgs,

    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaceArg {
    /// Spin: send times are exact to the microsecond; takes a whole processor.
    Spin,
    /// Sleep: send times are late by the time it takes to wake.
    Sleep,
    /// Sleep until requests are due and receive answers only then, for a driver that shares the server's
    /// processors: requests leave up to 50 us late, answers are timed by the kernel.
    Due,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QueueByArg {
    /// Any queue.
    Random,
    /// The key's queue.
    Key,
    /// The queue after that: the server has to hand the request over.
    Wrong,
}

impl BenchArgs {
    /// Checks what clap cannot: options whose values contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(option) = self.inproc.first_given()
            && !matches!(self.target, BenchTarget::InProcess(_))
        {
            bail!("{option} goes with --target inproc://cache or inproc://store only");
        }
        if let Some(option) = self.device.first_given()
            && !matches!(self.target, BenchTarget::Device(_) | BenchTarget::Tier(_))
        {
            bail!("{option} goes with --target device:PATH or device:memory only, or with tier:");
        }
        self.check_target()?;
        if self.pipeline.is_some() && self.fixed_rate().is_some() {
            bail!("--pipeline is a closed loop: it goes with --rate max only");
        }
        Ok(())
    }

    /// Checks options that go with some targets only.
    fn check_target(&self) -> Result<()> {
        let target = match &self.target {
            BenchTarget::Server(target) => Some(target),
            BenchTarget::InProcess(_) | BenchTarget::Device(_) | BenchTarget::Tier(_) => None,
        };
        if self.queue_by.is_some() && target.is_none_or(|target| target.protocol != TargetProtocol::Minos) {
            bail!("--queue-by goes with --target minos:// only: nothing else has queues to choose from");
        }
        let has_datagrams =
            |target: &Target| matches!(target.place, Place::Udp(_) | Place::Card(_) | Place::Memif(_));
        if self.timeout.is_some() && !target.is_some_and(has_datagrams) {
            bail!("--timeout goes with datagrams only: --target minos:// or memcached+udp://");
        }
        if self.receive_buffer.is_some() && target.is_none_or(|target| !matches!(target.place, Place::Tcp(_)))
        {
            bail!("--receive-buffer goes with TCP only: --target memcached:// or resp://");
        }
        Ok(())
    }

    pub(super) fn shape(&self) -> Shape {
        Shape {
            keys: self.keys,
            large_keys: self.large_keys,
            large_percent: self.large_percent,
            large_max: self.large_max.map(|size| size.0),
            get_ratio: self.get_ratio,
            zipf: self.zipf,
            large_threshold: self.large_threshold.map(|size| size.0),
        }
    }

    /// The configuration of a run against `target`.
    pub(super) fn run_config(&self, target: &Target) -> RunConfig {
        RunConfig {
            target: target.clone(),
            arrivals: self.arrivals(),
            pace: match self.pace {
                PaceArg::Spin => Pace::Spin,
                PaceArg::Sleep => Pace::Sleep,
                PaceArg::Due => Pace::Due,
            },
            duration: self.measured_time(),
            warmup: self.warmup,
            drain: self.drain,
            threads: usize::from(self.threads),
            connections: self.connections,
            keys_per_get: self.multiget.unwrap_or(1),
            check_contents: self.verify,
            cpus: self.pin.clone(),
            server_pid: self.server_pid,
            receive_buffer: self.receive_buffer.map(|size| size.0 as usize),
            datagrams: self.datagram_options(),
        }
    }

    fn datagram_options(&self) -> DatagramOptions {
        let default = DatagramOptions::default();
        DatagramOptions {
            timeout: self.timeout.unwrap_or(default.timeout),
            queue_by: match self.queue_by {
                None => default.queue_by,
                Some(QueueByArg::Random) => QueueBy::Random,
                Some(QueueByArg::Key) => QueueBy::Key,
                Some(QueueByArg::Wrong) => QueueBy::Wrong,
            },
        }
    }

    fn arrivals(&self) -> Arrivals {
        let default = if self.workload == "noise" { 40_000.0 } else { 20_000.0 };
        match (self.pipeline, self.rate) {
            (Some(pipeline), _) => Arrivals::Closed { pipeline: pipeline as usize },
            (None, Some(Rate::Max)) => Arrivals::Closed { pipeline: 1 },
            (None, Some(Rate::PerSecond(rate))) => Arrivals::Open { rate },
            (None, None) => Arrivals::Open { rate: default },
        }
    }

    /// Rejects options that do not apply to a table within the process.
    pub(super) fn check_inproc(&self) -> Result<()> {
        let servers_only = [
            ("--rate", self.fixed_rate().is_some(), ": it is a closed loop, which is --rate max"),
            ("--pipeline", self.pipeline.is_some(), ": operations are executed in bursts of --multiget"),
            ("--sweep", self.sweep.is_some(), ""),
            ("--vs", self.vs.is_some(), ""),
            ("--load-only", self.load_only, ": all items are loaded anyway, and are gone at the end"),
            ("--server-pid", self.server_pid.is_some(), ""),
        ];
        refuse(&servers_only, "inproc://")
    }

    /// Rejects options that do not apply to a device.
    pub(super) fn check_device(&self) -> Result<()> {
        let others_only = [
            ("--pipeline", self.pipeline.is_some(), ": --depth is the number of requests in flight"),
            ("--multiget", self.multiget.is_some(), ": --width is the number of requests of a vector"),
            ("--keys", self.keys.is_some(), ": --device-size is its extent"),
            ("--large-keys", self.large_keys.is_some(), ""),
            ("--zipf", self.zipf.is_some(), ": all places are equally popular"),
            ("--sweep", self.sweep.is_some(), ""),
            ("--vs", self.vs.is_some(), ""),
            ("--load", self.load, ""),
            ("--load-only", self.load_only, ""),
            ("--server-pid", self.server_pid.is_some(), ""),
        ];
        refuse(&others_only, "device:")
    }

    /// Rejects options that do not apply to a store above a device.
    pub(super) fn check_tier(&self) -> Result<()> {
        let others_only = [
            ("--rate", self.fixed_rate().is_some()),
            ("--pipeline", self.pipeline.is_some()),
            ("--multiget", self.multiget.is_some()),
            ("--large-keys", self.large_keys.is_some()),
            ("--zipf", self.zipf.is_some()),
            ("--sweep", self.sweep.is_some()),
            ("--vs", self.vs.is_some()),
            ("--load", self.load),
            ("--load-only", self.load_only),
            ("--server-pid", self.server_pid.is_some()),
        ];
        refuse(&others_only.map(|(option, is_given)| (option, is_given, "")), "tier:")
    }

    /// Items of a store above a device.
    pub(super) fn tier_keys(&self) -> u64 {
        self.keys.unwrap_or(1 << 20)
    }

    /// Requests a second, unless it is a closed loop.
    pub(super) fn fixed_rate(&self) -> Option<f64> {
        match self.rate {
            Some(Rate::PerSecond(rate)) => Some(rate),
            None | Some(Rate::Max) => None,
        }
    }

    /// Share of reads from a device.
    pub(super) fn read_share(&self) -> f64 {
        self.get_ratio.unwrap_or(1.0)
    }

    /// True if an open loop spins.
    pub(super) fn spins(&self) -> bool {
        self.pace == PaceArg::Spin
    }

    pub(super) fn drain_time(&self) -> Duration {
        self.drain
    }

    pub(super) fn thread_count(&self) -> usize {
        usize::from(self.threads)
    }

    /// Processors for the driver's threads.
    pub(super) fn cpus(&self) -> &[usize] {
        &self.pin
    }

    pub(super) fn warmup_time(&self) -> Duration {
        self.warmup
    }

    pub(super) fn measured_time(&self) -> Duration {
        self.duration.max(Duration::from_millis(1))
    }

    /// True if only the result may be printed.
    pub(super) fn is_quiet(&self) -> bool {
        self.json
    }
}

fn parse_cpu(text: &str) -> Result<usize, String> {
    let cpu = text.parse().map_err(|error| format!("{error}"))?;
    let allowed = allowed_cpus();
    if allowed.contains(&cpu) { Ok(cpu) } else { Err(format!("this process may run on {allowed:?} only")) }
}

/// Rejects the first of `options` that was given. Each has the reason why it does not go with `target`.
fn refuse(options: &[(&str, bool, &str)], target: &str) -> Result<()> {
    match options.iter().find(|(_, is_given, _)| *is_given) {
        Some((option, _, reason)) => bail!("{option} does not go with --target {target}{reason}"),
        None => Ok(()),
    }
}
