//! Reads in memory that is not mapped, in place of commands to its owner.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::Instant,
};

use minos_base::{Clock, SizeClass};
use minos_engine::{Engine, Mode};
use minos_fabric::ucx::{Ucx, UcxMemory, Way};
use minos_net::Poller;

use super::{Links, PartId};
use crate::rack::{
    Forward, RackView,
    config::RackConfig,
    fabric::Advertisement,
    reads::{Asked, Ended, Expected, Reads},
};

/// The part of the time for a command after which its owner is asked instead.
const LATE_PART: u32 = 4;

/// The reads of one worker in memory that is not mapped.
pub(crate) struct Afar {
    reads: Reads<Ucx>,
    /// By node, whose memory is read.
    known: Vec<Option<Arc<Advertisement>>>,
    /// The version of the routes by which they are known.
    routes: u64,
    /// The class of each value that was read; `None` for misses.
    read: VecDeque<Option<SizeClass>>,
}

impl Afar {
    /// No reads yet, by a node with this memory.
    ///
    /// # Errors
    /// UCX refuses.
    pub(crate) fn new<M: Mode>(
        own: &UcxMemory,
        config: &RackConfig,
        (store, clock): (&Engine<M>, Clock),
    ) -> io::Result<Self> {
        let fabric = Ucx::open(own.transports(), Way::Get).map_err(io::Error::other)?;
        let expected = Expected {
            nodes: config.nodes.len(),
            micro_shards: config.micro_shards,
            hash: store.hash(b"minos"),
            zero_unix_s: clock.zero_unix_s(),
        };
        let reads = Reads::new(fabric, clock, expected, config.timeout / LATE_PART);
        Ok(Self { reads, known: vec![None; expected.nodes], routes: 0, read: VecDeque::new() })
    }

    /// Takes over what a node says of its memory.
    fn meet(&mut self, node: usize, said: Option<Arc<Advertisement>>) {
        let is_same = match (&said, &self.known[node]) {
            (Some(said), Some(known)) => Arc::ptr_eq(said, known),
            (said, known) => said.is_none() && known.is_none(),
        };
        if is_same {
            return;
        }
        if let Some(number) = self.reads.leave(node) {
            self.reads.fabric.disconnect(number);
        }
        match said.as_ref().map(|said| said.connect(&mut self.reads.fabric)) {
            Some(Ok(number)) => self.reads.meet(node, number),
            Some(Err(error)) => tracing::warn!(node, %error, "the memory of a node of the unit is not read"),
            None => {}
        }
        self.known[node] = said;
    }
}

impl<M: Mode, P: Poller> Links<M, P> {
    /// These links, with reads in memory that is not mapped.
    pub(crate) fn reading(self, afar: Option<Afar>) -> Self {
        Self { afar, ..self }
    }

    /// True if something is under way there.
    #[inline]
    pub(super) fn is_reading(&self) -> bool {
        self.afar.as_ref().is_some_and(|afar| !afar.reads.is_idle())
    }

    /// Takes over which nodes are read.
    #[inline]
    pub(crate) fn follow(&mut self, rack: &RackView<M>) {
        let Some(afar) = &mut self.afar else { return };
        if afar.routes != rack.version() {
            afar.routes = rack.version();
            // Before this worker says that it goes by the newest routes: what has changed hands may come back.
            afar.reads.give_up_unless(|owner| rack.is_at(owner));
            (0..rack.nodes()).for_each(|node| afar.meet(node, rack.afar(node)));
        }
    }

    /// Begins to read the key of a command, if that is possible; returns the command if it is to be sent.
    pub(super) fn read_afar(
        &mut self,
        part: PartId,
        forward: Forward,
        (rack, now): (&RackView<M>, Instant),
    ) -> Option<Forward> {
        let (Some(afar), Some(term)) = (&mut self.afar, rack.term()) else { return Some(forward) };
        let left = afar.reads.begin(part, forward, (term.right, now, &rack.counters));
        let is_asked =
            |forward: &Forward| forward.is_read && forward.node.is_some_and(|node| rack.is_afar(node));
        left.inspect(|forward| {
            if is_asked(forward) {
                rack.counters.remote_asked.count()
            }
        })
    }

    /// Goes on with reads, and answers what has been read.
    pub(super) fn advance_afar(&mut self, rack: &RackView<M>, now: Instant) {
        let Some(afar) = &mut self.afar else { return };
        afar.reads.advance(now, &rack.counters);
        self.answer_afar(rack, now);
    }

    /// Lets owners answer where reads are late.
    pub(super) fn give_up_afar(&mut self, rack: &RackView<M>, now: Instant) {
        let Some(afar) = &mut self.afar else { return };
        afar.reads.give_up_late(now);
        self.answer_afar(rack, now);
    }

    fn answer_afar(&mut self, rack: &RackView<M>, now: Instant) {
        while let Some(Ended { asked, reply }) = self.afar.as_mut().and_then(|afar| afar.reads.take_ended()) {
            let was_right = asked.owner().is_some_and(|owner| rack.was_right(owner, asked.right));
            let Asked { part, forward, since, .. } = asked;
            let counters = &rack.counters;
            match reply.filter(|_| was_right) {
                Some((reply, class)) => {
                    if class.is_some() {
                        counters.fabric_hits.count()
                    } else {
                        counters.fabric_misses.count()
                    }
                    self.afar.iter_mut().for_each(|afar| afar.read.push_back(class));
                    self.fill(part, forward.shortened(reply), None);
                }
                None => {
                    counters.fabric_given_up.count();
                    counters.remote_asked.count();
                    self.leave(part, forward, (rack, now), since);
                }
            }
        }
    }

    /// Lets the descriptor become readable once reads may go on; false if some may already.
    pub(crate) fn arm(&mut self) -> bool {
        let busy = self.afar.as_mut().filter(|afar| !afar.reads.is_idle());
        busy.is_none_or(|afar| afar.reads.fabric.arm())
    }

    /// The descriptor that is readable when reads may go on.
    pub(crate) fn descriptor_afar(&self) -> Option<BorrowedFd<'_>> {
        let busy = self.afar.as_ref().filter(|afar| !afar.reads.is_idle());
        busy.map(|afar| afar.reads.fabric.as_fd())
    }

    /// The class of a value that was read, or `None` for a miss.
    pub(crate) fn take_read(&mut self) -> Option<Option<SizeClass>> {
        self.afar.as_mut()?.read.pop_front()
    }

    /// True if some nodes are to be told of reads.
    pub(crate) fn has_notes(&self) -> bool {
        self.afar.as_ref().is_some_and(|afar| afar.reads.has_notes())
    }

    /// Tells nodes what was read there.
    pub(crate) fn note_reads(&mut self, rack: &RackView<M>, now: Instant) {
        let mut frames = Vec::new();
        let Some(afar) = self.afar.as_mut().filter(|afar| afar.reads.has_notes()) else { return };
        afar.reads.take_notes(|node, frame| frames.push((node, frame.to_vec())));
        frames.iter().for_each(|(node, frame)| self.note(*node, frame, rack, now));
    }
}
