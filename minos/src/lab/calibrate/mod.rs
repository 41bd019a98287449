//! `minos calibrate`: the costs of the steps of a request on this machine, measured with the code that serves
//! it.
//!
//! Each step is measured in batches, so that the clock is read seldom; in turn with the others, so that a
//! disturbance of the machine hits all of them; and many times, so that a median can be taken. A cost that
//! depends on a number, such as that of datagrams or bytes, is measured at several, and a line (Theil and
//! Sen) separates the cost of one more from the fixed cost.
//!
//! A point is the median of 51 interleaved rounds of medians of small groups, less the clock's own time. It is printed
//! with its spread (median absolute deviation in percent), the fit of slopes (R^2), and a warning where the spread
//! exceeds 10 %.
//!
//! # Costs
//!
//! - `lookup_ns`: a GET in a burst of 32, random among three million items; alone: `lookup_alone_ns`
//! - `per_request_ns`: one more GET of 64 bytes in a burst, in the native part without sockets, less lookup and bytes
//! - `per_put_ns`: the excess of a PUT
//! - `per_receive_ns`: a burst beside its requests, and a receiving call beside its datagrams and the look
//! - `per_send_ns`: a sending call beside its datagrams
//! - `per_packet_ns`, `per_packet_out_ns`: one more datagram of 64 bytes in such a call, on loopback
//! - `per_segment_ns`, `per_segment_out_ns`: the same of segments of 1448 bytes in a train, less bytes
//! - `per_byte_ns`, `per_byte_in_ns`: one more byte of a value of 64 bytes to 1 MiB in the native part, in datagrams of
//!   1448 bytes, and in the kernel
//! - `hand_off_ns`: half of the way through a ring between two polling processors; each side pays half
//! - `poll_ns`, `ring_poll_ns`: a look at an empty socket, an empty ring; `profile_ns`: a size counted
//! - `wake_ns`: with `--poll sleep`: from hand-off until a sleeping thread goes on; 0 with `--poll busy` (default)
//! - `network_ns`: round trip of a GET of 64 bytes over loopback between two polling processors, less the server's part
//! - `link_gbps`: the most that loopback carried in a round, or `--link-gbps`
//!
//! Without a kernel `per_packet_ns` is the server's own work on a datagram (header, cookie, composing), half for each way,
//! without a driver; a fragment's head is in `per_byte_ns`; `network_ns` and `link_gbps` are the fitted set's. On loopback
//! the sender also delivers. Hand-offs do not count copying.

mod cpus;
mod measured;
mod native;
mod network;
mod report;
mod rings;
mod samples;
mod service;
mod sockets;
pub(in crate::lab) mod stats;
mod table;
mod transfers;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::lab::bench::emit_either;
use measured::Measured;
use report::Report;

pub(crate) use service::service_times;

/// Measure the costs of a request's steps on this machine, for `minos sim dispatch --costs FILE`.
///
/// Measures this binary's own code: look-ups, parsing, executing and composing, copies, datagrams and calls,
/// hand-offs between workers, polling. It takes about half a minute and two processors, on which nothing else
/// should run.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Write the costs to a file that `minos sim dispatch --costs` reads
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Path of packets
    #[arg(long = "path", value_enum, value_name = "PATH", default_value_t = PacketPath::Sockets)]
    packet_path: PacketPath,

    /// How an idle worker waits
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Poll::Busy)]
    poll: Poll,

    /// Bandwidth of the link, in Gbit/s [default: that of loopback; for kernel-bypass 40]
    #[arg(long, value_name = "GBPS")]
    link_gbps: Option<f64>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Measure little, to see that it works: the figures are not usable
    #[arg(long)]
    quick: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The path of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PacketPath {
    /// Through the kernel: UDP over loopback
    Sockets,
    /// Without a kernel: only the server's own work on a packet; there is no driver here to measure
    KernelBypass,
}

/// The way in which an idle worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Poll {
    /// It polls
    Busy,
    /// It sleeps until it is woken
    Sleep,
}

impl PacketPath {
    fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::KernelBypass => "kernel-bypass",
        }
    }
}

/// The amount of measuring.
#[derive(Clone, Copy, Debug)]
struct Scale {
    small_items: usize,
    /// Bytes of the values of each size.
    size_bytes: usize,
    rounds: usize,
    /// Operations of a sample.
    batch: usize,
    calls: usize,
    round_trips: usize,
    wakes: usize,
    trains: usize,
}

impl Scale {
    /// The table of small items is 500 MiB and more, which no cache holds.
    const WHOLE: Self = Self {
        small_items: 3 << 20,
        size_bytes: 32 << 20,
        rounds: 51,
        batch: 4096,
        calls: 64,
        round_trips: 1000,
        wakes: 20,
        trains: 400,
    };

    const QUICK: Self = Self {
        small_items: 1 << 14,
        size_bytes: 2 << 20,
        rounds: 3,
        batch: 256,
        calls: 8,
        round_trips: 20,
        wakes: 2,
        trains: 20,
    };
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<()> {
    if let Some(gbps) = args.link_gbps {
        ensure!((0.001..=1e5).contains(&gbps), "--link-gbps: {gbps} is not allowed; allowed is 0.001 to 1e5");
    }
    let scale = if args.quick { Scale::QUICK } else { Scale::WHOLE };
    let measured = Measured::take(&scale, args.packet_path, args.seed)?;
    let report = Report::of(args, &measured);
    report.costs.check()?;
    if let Some(path) = &args.out {
        fs::write(path, report.toml()?).with_context(|| format!("--out {}", path.display()))?;
    }
    Ok(emit_either(args.json, &report, &report.to_string())?)
}
