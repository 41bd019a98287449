//! Rings of descriptors, one for each direction of a queue.
//!
//! ```text
//! 0    cookie u32 | flags u16: 1 = do not ring | head u16
//! 64   tail u16
//! 128  descriptors: flags u16: 1 = the frame goes on in the next | region u16 | bytes u32 | offset u32 | metadata u32
//! ```
//!
//! Head and tail count up modulo 2^16. The client owns all buffers. On a ring to the server it raises the head over frames,
//! and the server the tail behind those that it has read. On a ring to the client it raises the head over empty buffers, and the
//! server the tail over those that it has filled.
//!
//! A server believes nothing that it reads there: a descriptor is looked at once, and its place is checked. A client knows
//! where its buffers are, and reads lengths alone.

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU16, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
};

use arrayvec::ArrayVec;

use super::{
    bell::Bell,
    region::{Region, Span},
};
use crate::udp::BURST_MESSAGES;

const COOKIE: u32 = 0x03e3_1f20;
const FLAGS_AT: u32 = 4;
const HEAD_AT: u32 = 6;
const TAIL_AT: u32 = 64;
const DESCRIPTORS_AT: u32 = 128;
const DESCRIPTOR_BYTES: u32 = 16;
/// A ring's flag: its reader looks at it by itself.
const DO_NOT_RING: u16 = 1;
/// A descriptor's flag.
const GOES_ON: u64 = 1;
/// The bits of a descriptor that number the region.
const REGION: u64 = 0xffff_0000;

/// Largest ring, as a power of two.
pub(super) const LOG2_ENTRIES_MAX: u8 = 14;
/// Bytes of a client's buffers: an odd number of cache lines, or their beginnings would share a few sets of the caches.
pub(super) const BUFFER_BYTES: u32 = 2048 + 64;
/// Longest frame.
pub(super) const FRAME_BYTES_MAX: usize = 2048;

/// Bytes of a ring.
pub(super) const fn ring_bytes(log2_entries: u8) -> u32 {
    DESCRIPTORS_AT + (DESCRIPTOR_BYTES << log2_entries)
}

/// Which of the two this process is, with what it knows of buffers.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// It reads descriptors, whose buffers lie in these regions.
    Server(Arc<[Region]>),
    /// Its buffers lie one behind the other from this offset on in the first region, which this is.
    Client(Arc<[Region]>, u32),
}

/// A ring in a region, which stays mapped for as long.
#[derive(Debug)]
pub(super) struct Ring {
    side: Side,
    flags: NonNull<AtomicU16>,
    head: NonNull<AtomicU16>,
    tail: NonNull<AtomicU16>,
    /// Two words each.
    descriptors: NonNull<AtomicU64>,
    mask: u16,
    bell: Bell,
}

// SAFETY: all that it points to is atomic, and lies in a mapping that any thread may use.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring at this offset of a region of the side's; `None` if it does not fit there, or is none.
    pub(super) fn find(
        side: &Side,
        (region, offset): (u16, u32),
        log2_entries: u8,
        bell: Bell,
    ) -> Option<Self> {
        let place = side.regions().get(usize::from(region))?;
        let fits = log2_entries <= LOG2_ENTRIES_MAX
            && offset.is_multiple_of(DESCRIPTOR_BYTES)
            && place.holds(offset, ring_bytes(log2_entries) as usize);
        if !fits {
            return None;
        }
        let number = |at| place.numbers::<AtomicU16>(offset + at, 1);
        let ring = Self {
            flags: number(FLAGS_AT),
            head: number(HEAD_AT),
            tail: number(TAIL_AT),
            descriptors: place.numbers(offset + DESCRIPTORS_AT, 2 << log2_entries),
            side: side.clone(),
            mask: ((1_u32 << log2_entries) - 1) as u16,
            bell,
        };
        let cookie = place.numbers::<AtomicU32>(offset, 1);
        // SAFETY: it lies in the mapping.
        (unsafe { cookie.as_ref() }.load(Relaxed) == COOKIE).then_some(ring)
    }

    /// Writes a ring's beginning, where a client will find it, whose buffers are the ones from `first` on.
    pub(super) fn make(regions: &[Region], offset: u32, log2_entries: u8, (buffers, first): (u32, u32)) {
        let region = &regions[0];
        // SAFETY: they lie in the mapping, as the place was made for them.
        unsafe {
            region.numbers::<AtomicU32>(offset, 1).as_ref().store(COOKIE, Relaxed);
            let words = region.numbers::<AtomicU64>(offset + DESCRIPTORS_AT, 2 << log2_entries);
            for slot in 0..1_u32 << log2_entries {
                let at = u64::from(buffers + (first + slot) * BUFFER_BYTES);
                let word = words.add(2 * slot as usize);
                word.as_ref().store(u64::from(BUFFER_BYTES) << 32, Relaxed);
                word.add(1).as_ref().store(at, Relaxed);
            }
        }
    }

    fn entries(&self) -> u16 {
        self.mask + 1
    }

    fn head(&self) -> &AtomicU16 {
        // SAFETY: it lies in a mapping that `side` keeps.
        unsafe { self.head.as_ref() }
    }

    fn tail(&self) -> &AtomicU16 {
        // SAFETY: as above.
        unsafe { self.tail.as_ref() }
    }

    fn flags(&self) -> &AtomicU16 {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }
    }

    /// The two words of a descriptor.
    #[inline]
    fn descriptor(&self, slot: u16) -> [&AtomicU64; 2] {
        // SAFETY: as above; there are `mask + 1` of them.
        unsafe {
            let word = self.descriptors.add(2 * usize::from(slot & self.mask));
            [word.as_ref(), word.add(1).as_ref()]
        }
    }

    /// The frame in a slot, and whether it goes on in the next one; no frame if it lies nowhere.
    #[inline]
    fn frame(&self, slot: u16, first: u32) -> (Option<Span<'_>>, bool) {
        let [word, place] = self.descriptor(slot).map(|word| word.load(Relaxed));
        let bytes = (word >> 32) as usize;
        let frame = match &self.side {
            Side::Server(regions) => {
                let region = regions.get(usize::from((word >> 16) as u16));
                region.and_then(|region| region.span(place as u32, bytes))
            }
            Side::Client(regions, _) if bytes <= BUFFER_BYTES as usize => {
                regions[0].span(self.buffer_at(slot, first), bytes)
            }
            Side::Client(..) => None,
        };
        (frame, word & GOES_ON != 0)
    }

    /// The buffer of a slot for a frame, and the word that says in which region it is; `None` if it lies nowhere.
    #[inline]
    fn room(&self, slot: u16, first: u32) -> Option<(Span<'_>, u64)> {
        match &self.side {
            Side::Server(regions) => {
                let [word, place] = self.descriptor(slot).map(|word| word.load(Relaxed));
                let region = regions.get(usize::from((word >> 16) as u16))?;
                Some((region.span(place as u32, (word >> 32) as usize)?, word & REGION))
            }
            Side::Client(regions, _) => {
                Some((regions[0].span(self.buffer_at(slot, first), BUFFER_BYTES as usize)?, 0))
            }
        }
    }

    /// Where the buffer of a slot of a client's ring lies in its first region.
    fn buffer_at(&self, slot: u16, first: u32) -> u32 {
        let Side::Client(_, buffers) = self.side else { return 0 };
        buffers + (first + u32::from(slot & self.mask)) * BUFFER_BYTES
    }

    /// Wakes the reader, unless it looks by itself.
    fn ring_bell(&self) {
        // The index must be seen before the flag is read, or both sides wait.
        fence(SeqCst);
        if self.flags().load(Relaxed) & DO_NOT_RING == 0 {
            self.bell.ring();
        }
    }
}

impl Side {
    fn regions(&self) -> &Arc<[Region]> {
        match self {
            Self::Server(regions) | Self::Client(regions, _) => regions,
        }
    }
}

/// Frames from the other process.
#[derive(Debug)]
pub(super) struct Incoming {
    ring: Ring,
    /// The first buffer of a client's ring.
    first: u32,
    next: u16,
    /// The last descriptor belonged to a frame that goes on.
    goes_on: bool,
    /// The indices make no sense: nothing is read any more.
    is_broken: bool,
}

/// What a look at a ring has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Looked {
    /// Descriptors that were read.
    pub(super) taken: u16,
    /// Frames that lie nowhere, are too long or in several pieces.
    pub(super) invalid: u16,
}

impl Incoming {
    /// From a ring whose reader this process is. A client gives all its buffers to the server.
    pub(super) fn of(ring: Ring, first: u32) -> Self {
        ring.flags().store(DO_NOT_RING, Relaxed);
        let next = ring.tail().load(Relaxed);
        if let Side::Client(..) = ring.side {
            ring.head().store(next.wrapping_add(ring.entries()), Release);
        }
        Self { ring, first, next, goes_on: false, is_broken: false }
    }

    /// Reads at most `most` frames, at most [`BURST_MESSAGES`]: `take` copies each.
    #[inline]
    pub(super) fn receive(&mut self, most: usize, mut take: impl FnMut(Span<'_>)) -> Looked {
        let (ring, next) = (&self.ring, self.next);
        let until = match ring.side {
            Side::Server(_) => ring.head().load(Acquire),
            Side::Client(..) => ring.tail().load(Acquire),
        };
        let waiting = until.wrapping_sub(next);
        self.is_broken |= waiting > ring.entries();
        if waiting == 0 || self.is_broken {
            return Looked::default();
        }
        let taken = waiting.min(most.min(BURST_MESSAGES) as u16);
        // The other process wrote descriptors and frames in its own cache: wait for all of them at once.
        let mut frames: ArrayVec<(Option<Span<'_>>, bool), BURST_MESSAGES> = ArrayVec::new();
        for slot in 0..taken {
            let (frame, goes_on) = ring.frame(next.wrapping_add(slot), self.first);
            frame.iter().for_each(Span::prefetch);
            frames.push((frame, goes_on));
        }
        let mut invalid = 0;
        for (frame, goes_on) in frames {
            let is_whole = !self.goes_on && !goes_on;
            match frame.filter(|frame| is_whole && frame.bytes() <= FRAME_BYTES_MAX) {
                Some(frame) => take(frame),
                // One in several pieces counts once.
                None => invalid += u16::from(!goes_on),
            }
            self.goes_on = goes_on;
        }
        self.next = next.wrapping_add(taken);
        self.give_back(next, taken);
        Looked { taken, invalid }
    }

    /// Lets the other process use buffers again.
    fn give_back(&self, first: u16, count: u16) {
        let ring = &self.ring;
        match ring.side {
            Side::Server(_) => ring.tail().store(self.next, Release),
            Side::Client(..) => {
                for slot in 0..count {
                    let [word, _] = ring.descriptor(first.wrapping_add(slot));
                    word.store(u64::from(BUFFER_BYTES) << 32, Relaxed);
                }
                ring.head().store(self.next.wrapping_add(ring.entries()), Release);
            }
        }
    }
}

/// Frames to the other process.
#[derive(Debug)]
pub(super) struct Outgoing {
    ring: Ring,
    /// The first buffer of a client's ring.
    first: u32,
    next: u16,
    /// Up to where the other process knows.
    shown: u16,
    /// Buffers from `next` on that are free, as far as is known.
    free: u16,
}

impl Outgoing {
    /// To a ring that this process fills.
    pub(super) fn of(ring: Ring, first: u32) -> Self {
        let next = match ring.side {
            Side::Server(_) => ring.tail().load(Relaxed),
            Side::Client(..) => ring.head().load(Relaxed),
        };
        Self { ring, first, next, shown: next, free: 0 }
    }

    /// Looks which buffers are free; those for the next `count` frames are brought near.
    #[inline]
    pub(super) fn prepare(&mut self, count: usize) {
        let ring = &self.ring;
        if usize::from(self.free) < count {
            let free = match ring.side {
                Side::Server(_) => ring.head().load(Acquire).wrapping_sub(self.next),
                Side::Client(..) => {
                    ring.entries().wrapping_sub(self.next.wrapping_sub(ring.tail().load(Acquire)))
                }
            };
            // More than all is nonsense.
            self.free = if free <= ring.entries() { free } else { 0 };
        }
        for slot in 0..self.free.min(count.min(BURST_MESSAGES) as u16) {
            let room = ring.room(self.next.wrapping_add(slot), self.first);
            room.iter().for_each(|(room, _)| room.prefetch());
        }
    }

    /// Writes a frame of two parts; false if there is no buffer for it.
    #[inline]
    pub(super) fn push(&mut self, parts: [&[u8]; 2]) -> bool {
        if self.free == 0 {
            self.prepare(1);
        }
        let ring = &self.ring;
        let (room, bytes) = (ring.room(self.next, self.first), parts[0].len() + parts[1].len());
        let Some((room, region)) = room.filter(|(room, _)| self.free > 0 && room.bytes() >= bytes) else {
            return false;
        };
        room.copy_from(parts);
        let [word, _] = ring.descriptor(self.next);
        word.store((bytes as u64) << 32 | region, Relaxed);
        self.next = self.next.wrapping_add(1);
        self.free -= 1;
        true
    }

    /// Shows what was written to the other process.
    #[inline]
    pub(super) fn show(&mut self) {
        if self.shown == self.next {
            return;
        }
        self.shown = self.next;
        let ring = &self.ring;
        match ring.side {
            Side::Server(_) => ring.tail().store(self.next, Release),
            Side::Client(..) => ring.head().store(self.next, Release),
        }
        ring.ring_bell();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::event::{EventfdFlags, eventfd};

    use super::{super::bell::Bells, *};

    const LOG2: u8 = 3;
    const BUFFERS: u32 = 4096;
    const BYTES: u32 = BUFFERS + (BUFFER_BYTES << LOG2);

    fn bell() -> Bell {
        Bell::Ours(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
    }

    /// A client's memory with a ring at its beginning, as both sides see it.
    fn memory() -> [Side; 2] {
        let (here, file) = Region::create(BYTES as usize).unwrap();
        let there = Region::of_peer(std::os::fd::AsFd::as_fd(&file), BYTES.into()).unwrap();
        let here: Arc<[Region]> = [here].into();
        Ring::make(&here, 0, LOG2, (BUFFERS, 0));
        [Side::Client(here, BUFFERS), Side::Server([there].into())]
    }

    fn ring(side: &Side) -> Ring {
        Ring::find(side, (0, 0), LOG2, bell()).unwrap()
    }

    fn take(incoming: &mut Incoming, most: usize) -> (Vec<Vec<u8>>, Looked) {
        let mut frames = Vec::new();
        let looked = incoming.receive(most, |span| {
            let mut frame = vec![0; span.bytes()];
            span.copy_to(&mut frame);
            frames.push(frame);
        });
        (frames, looked)
    }

    #[test]
    fn frames_go_round_in_both_directions() {
        for [writer, reader] in [[0, 1], [1, 0]] {
            let sides = memory();
            // The reader of a ring to the client gives it empty buffers first.
            let mut incoming = Incoming::of(ring(&sides[reader]), 0);
            let mut outgoing = Outgoing::of(ring(&sides[writer]), 0);
            for round in 0..100_u8 {
                let count = usize::from(round) % (1 << LOG2) + 1;
                for frame in 0..count {
                    assert!(outgoing.push([&[round; 10], &vec![round; frame]]));
                }
                // Nothing is seen before it is shown.
                assert_eq!(take(&mut incoming, 32).1, Looked::default());
                outgoing.show();
                let (frames, looked) = take(&mut incoming, 32);
                assert_eq!(looked, Looked { taken: count as u16, invalid: 0 });
                assert!(frames.iter().zip(10..).all(|(frame, bytes)| *frame == vec![round; bytes]));
            }
            for _ in 0..1 << LOG2 {
                assert!(outgoing.push([b"full", b""]));
            }
            assert!(!outgoing.push([b"no room", b""]));
        }
    }

    #[test]
    fn a_reader_that_sleeps_is_woken() {
        let sides = memory();
        let (mut bells, mut rung) = (Bells::new().unwrap(), [0; 8]);
        // A full pipe would hold up whoever writes there.
        let (pipe, full) = rustix::pipe::pipe().unwrap();
        let theirs = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let file = rustix::io::dup(&theirs).unwrap();
        let stuck = bells.add(rustix::io::dup(&full).unwrap()).unwrap();
        while rustix::io::write(&full, &[0; 4096]).is_ok() {}
        let bell = bells.add(file).unwrap();
        let found = Ring::find(&sides[0], (0, 0), LOG2, bell).unwrap();
        let mut outgoing = Outgoing::of(found, 0);
        for _ in 0..2 {
            assert!(outgoing.push([b"wake up", b""]));
            outgoing.show();
            stuck.ring();
            bells.ring();
            assert_eq!(rustix::io::read(&theirs, &mut rung), Ok(8));
        }
        drop(pipe);
        // It looks by itself.
        let _incoming = Incoming::of(ring(&sides[1]), 0);
        assert!(outgoing.push([b"see it", b""]));
        outgoing.show();
        bells.ring();
        assert!(rustix::io::read(&theirs, &mut rung).is_err());
    }

    #[test]
    fn frames_in_pieces_and_without_a_place_are_dropped() {
        let sides = memory();
        let (client, mut incoming) = (ring(&sides[0]), Incoming::of(ring(&sides[1]), 0));
        let descriptor = |slot, flags: u64, region: u64, bytes: u64, offset: u64| {
            let [word, place] = client.descriptor(slot);
            word.store(flags | region << 16 | bytes << 32, Relaxed);
            place.store(offset, Relaxed);
        };
        // In two pieces, in another region, behind the end, too long; then one that is sound.
        descriptor(0, GOES_ON, 0, 10, 4096);
        descriptor(1, 0, 0, 10, 4096);
        descriptor(2, 0, 1, 10, 4096);
        descriptor(3, 0, 0, 10, u64::from(BYTES - 9));
        descriptor(4, 0, 0, u64::from(u32::MAX), u64::from(u32::MAX));
        descriptor(5, 0, 0, 2049, 4096);
        descriptor(6, 0, 0, 10, u64::from(BYTES - 10));
        client.head().store(7, Release);
        let (frames, looked) = take(&mut incoming, 32);
        assert_eq!((frames.len(), looked), (1, Looked { taken: 7, invalid: 5 }));
        assert_eq!(client.tail().load(Acquire), 7);
        // More than there are.
        client.head().store(7 + (1 << LOG2) + 1, Release);
        assert_eq!(take(&mut incoming, 32).1, Looked::default());
        client.head().store(8, Release);
        assert_eq!(take(&mut incoming, 32).1, Looked::default(), "it is not believed any more");
    }

    #[test]
    fn rings_that_are_none_are_not_found() {
        let [client, server] = memory();
        for (place, log2) in
            [((1, 0), LOG2), ((0, 8), LOG2), ((0, 4096), LOG2), ((0, 0), 15), ((0, BYTES), LOG2)]
        {
            assert!(Ring::find(&server, place, log2, bell()).is_none(), "{place:?}");
        }
        assert!(Ring::find(&client, (0, 0), LOG2, bell()).is_some());
    }

    proptest! {
        /// Whatever the client writes, the server ends, and stays within its memory.
        #[test]
        fn any_memory_is_read_and_written_within_its_bounds(
            words in proptest::collection::vec((0..34_u32, any::<u64>()), 1..60),
            looks in 1..5_usize,
        ) {
            let [client, server] = memory();
            let mut incoming = Incoming::of(ring(&server), 0);
            let mut outgoing = Outgoing::of(ring(&server), 0);
            let Side::Client(regions, _) = &client else { unreachable!() };
            for words in words.chunks(words.len().div_ceil(looks)) {
                for (at, value) in words {
                    // SAFETY: it lies in the mapping.
                    let word = unsafe { regions[0].numbers::<AtomicU64>(8 * at, 1).as_ref() };
                    word.store(*value, Relaxed);
                }
                let taken = incoming.receive(32, |span| assert!(span.bytes() <= FRAME_BYTES_MAX));
                prop_assert!(taken.taken <= 1 << LOG2);
                for bytes in [0, 60, 1500] {
                    outgoing.prepare(32);
                    outgoing.push([&vec![7; bytes], b""]);
                }
                outgoing.show();
            }
        }
    }
}
