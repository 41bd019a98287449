//! All measurements.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget};
use minos_sim::Random;

use super::{
    PacketPath, Scale,
    cpus::Cpus,
    native::{Asks, Sink, SmallRequests},
    network::{RoundTrips, Streams},
    rings::{Counts, EmptyPops, HandOffs, WakeUps},
    samples::{Samples, measure},
    sockets::{EmptyReceives, Load, Receives, Sends},
    stats::{Figure, Line},
    table::{Lookups, Table},
    transfers::Transfers,
};

/// The measurements. Times are in nanoseconds.
pub(super) struct Measured {
    pub(super) small_items: usize,
    /// Samples at each place.
    pub(super) rounds: usize,
    /// True if two threads had a processor each.
    pub(super) had_two_cpus: bool,
    pub(super) lookup_alone: Figure,
    pub(super) lookup_in_burst: Figure,
    /// A GET alone, in a burst of one.
    pub(super) get_alone: Figure,
    /// A line over the GETs of a burst.
    pub(super) gets: Line,
    /// A line over the PUTs of a burst.
    pub(super) puts: Line,
    /// A line over the datagrams that carry 32 GETs.
    pub(super) vectors: Line,
    /// A line over the bytes of a value that is read.
    pub(super) get_bytes: Line,
    /// A line over the bytes of a value that is stored.
    pub(super) put_bytes: Line,
    pub(super) ring_poll: Figure,
    pub(super) profile: Figure,
    /// One way between two polling threads.
    pub(super) hand_off: Figure,
    /// From the hand-over to a sleeping thread until that thread runs.
    pub(super) wake: Figure,
    /// The time that the wake-up call takes in the waking thread.
    pub(super) wake_call: Figure,
    /// The kernel's share, if packets go through it.
    pub(super) kernel: Option<Kernel>,
}

pub(super) struct Kernel {
    /// Lines over the datagrams of a call.
    pub(super) datagrams: Ways<Line>,
    /// Lines over the segments of a train.
    pub(super) segments: Ways<Line>,
    /// Lines over the bytes of a datagram.
    pub(super) bytes: Ways<Line>,
    /// Calls with one datagram.
    pub(super) single: Ways<Figure>,
    pub(super) poll: Figure,
    pub(super) round_trip: Figure,
    /// The highest rate of a stream in any round.
    pub(super) link_gbps: Figure,
}

/// One value for sending and one for receiving.
pub(super) struct Ways<T> {
    pub(super) send: T,
    pub(super) receive: T,
}

impl Measured {
    /// Takes all measurements for this packet path.
    pub(super) fn take(scale: &Scale, path: PacketPath, seed: u64) -> Result<Self> {
        let stages = if path == PacketPath::Sockets { 2 } else { 1 };
        let ticks = stages * (scale.rounds as u64 + 1);
        let bar = ProgressBar::with_draw_target(Some(ticks), ProgressDrawTarget::stderr_with_hz(5));
        let table = Table::load(scale, Transfers::room_bytes(scale))?;
        let cpus = Cpus::find();
        let tick = || bar.inc(1);
        let mut measured = Self::take_own(scale, path, &table, cpus, seed, tick)?;
        if path == PacketPath::Sockets {
            measured.kernel = Some(Kernel::take(scale, &table, cpus, tick)?);
        }
        bar.finish_and_clear();
        Ok(measured)
    }

    /// Takes the measurements that need no kernel.
    fn take_own(
        scale: &Scale,
        path: PacketPath,
        table: &Table,
        cpus: Cpus,
        seed: u64,
        tick: impl Fn(),
    ) -> Result<Self> {
        let random = |stream| Random::new(seed, stream);
        let sink = || match path {
            PacketPath::Sockets => Sink::swallowing(),
            PacketPath::KernelBypass => Sink::copying(),
        };
        let samples = measure(
            [
                &mut Lookups::new(table, scale, random(0)),
                &mut SmallRequests::single(("GETs", Asks::Get), table, scale, random(1))?,
                &mut SmallRequests::single(("PUTs", Asks::Put), table, scale, random(2))?,
                &mut SmallRequests::vectors(table, scale, random(3))?,
                &mut Transfers::new(("GETs of sizes", Asks::Get), table, scale, sink())?,
                &mut Transfers::new(("PUTs of sizes", Asks::Put), table, scale, sink())?,
                &mut EmptyPops::new(scale),
                &mut Counts::new(scale, random(4)),
                &mut HandOffs::new(cpus, scale),
                &mut WakeUps::new(cpus, scale),
            ],
            scale.rounds,
            tick,
        )?;
        let [lookups, gets, puts, vectors, get_bytes, put_bytes, ring_poll, profile, hand_off, wake] =
            &samples;
        Ok(Self {
            small_items: table.small_items,
            rounds: lookups.rounds(),
            had_two_cpus: cpus.are_two(),
            lookup_alone: lookups.at(Lookups::ALONE),
            lookup_in_burst: lookups.at(Lookups::IN_BURST),
            get_alone: gets.at(0),
            gets: gets.line(),
            puts: puts.line(),
            vectors: vectors.line(),
            get_bytes: get_bytes.line(),
            put_bytes: put_bytes.line(),
            ring_poll: ring_poll.at(0),
            profile: profile.at(0),
            hand_off: hand_off.at(0),
            wake: wake.at(WakeUps::UNTIL_AWAKE),
            wake_call: wake.at(WakeUps::CALL),
            kernel: None,
        })
    }
}

impl Kernel {
    fn take(scale: &Scale, table: &Table, cpus: Cpus, tick: impl Fn()) -> Result<Self> {
        let [
            sent,
            sent_segments,
            sent_bytes,
            received,
            received_segments,
            received_bytes,
            poll,
            trips,
            streams,
        ] = measure(
            [
                &mut Sends::new("datagrams sent", Load::Datagrams, scale)?,
                &mut Sends::new("segments sent", Load::Segments, scale)?,
                &mut Sends::new("bytes sent", Load::Bytes, scale)?,
                &mut Receives::new("datagrams received", Load::Datagrams, scale)?,
                &mut Receives::new("segments received", Load::Segments, scale)?,
                &mut Receives::new("bytes received", Load::Bytes, scale)?,
                &mut EmptyReceives::new(scale)?,
                &mut RoundTrips::new(table, cpus, scale)?,
                &mut Streams::new(cpus, scale)?,
            ],
            scale.rounds,
            tick,
        )?;
        let lines = |send: &Samples, receive: &Samples| Ways { send: send.line(), receive: receive.line() };
        Ok(Self {
            single: Ways { send: sent.at(0), receive: received.at(0) },
            datagrams: lines(&sent, &received),
            segments: lines(&sent_segments, &received_segments),
            bytes: lines(&sent_bytes, &received_bytes),
            poll: poll.at(0),
            round_trip: trips.at(0),
            link_gbps: streams.most_at(0),
        })
    }
}
