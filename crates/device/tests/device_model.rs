//! Devices of every kind against plain bytes.

mod common;

use std::ops::Range;

use common::{BLOCK, CAPACITY, LONG, Sample, all, lane};
use minos_base::seeded;
use minos_device::{Buffer, Completion, Lane, Request};
use proptest::prelude::*;
use rand::rngs::StdRng;

const BLOCKS: usize = CAPACITY as usize / BLOCK;

/// A device with two lanes, and the bytes that it should have.
struct Pair {
    name: &'static str,
    lanes: [Lane; 2],
    in_flight: [Vec<InFlight>; 2],
    bytes: Vec<u8>,
    next_tag: u64,
}

struct InFlight {
    tag: u64,
    range: Range<usize>,
    /// The byte that a write writes.
    mark: Option<u8>,
}

impl Pair {
    fn new(sample: &Sample) -> Self {
        Self {
            name: sample.name,
            lanes: [lane(&sample.device), lane(&sample.device)],
            in_flight: [Vec::new(), Vec::new()],
            bytes: vec![0; CAPACITY as usize],
            next_tag: 0,
        }
    }

    /// Submits a vector of requests none of which overlaps a write in flight, or anything if it writes.
    fn submit(&mut self, by: usize, rng: &mut StdRng) {
        let mut vector = Vec::new();
        for _ in 0..rng.random_range(1..12) {
            let (from, blocks) = (rng.random_range(0..BLOCKS), rng.random_range(1..6));
            let range = from * BLOCK..(from + blocks).min(BLOCKS) * BLOCK;
            let mark = rng.random_bool(0.5).then(|| rng.random());
            let collides = |other: &InFlight| {
                let overlaps = other.range.start < range.end && range.start < other.range.end;
                overlaps && (mark.is_some() || other.mark.is_some())
            };
            if self.in_flight.iter().flatten().any(collides) {
                continue;
            }
            let Ok(buffer) = self.lanes[by].buffer(range.len()) else { break };
            vector.push(self.request(by, range, mark, buffer));
        }
        if rng.random_bool(0.1) {
            vector.push(Request::flush(u64::MAX));
        }
        let width = vector.len();
        let taken = self.lanes[by].submit(&mut vector).unwrap();
        assert_eq!(taken, width - vector.len(), "{}", self.name);
        self.in_flight[by].retain(|other| vector.iter().all(|refused| refused.tag != other.tag));
        let written = self.in_flight[by].iter().filter_map(|write| Some((write.range.clone(), write.mark?)));
        written.for_each(|(range, mark)| self.bytes[range].fill(mark));
    }

    fn request(&mut self, by: usize, range: Range<usize>, mark: Option<u8>, mut buffer: Buffer) -> Request {
        let (tag, offset) = (self.next_tag, range.start as u64);
        self.next_tag += 1;
        self.in_flight[by].push(InFlight { tag, range, mark });
        // A read must overwrite all of it.
        buffer.fill(mark.unwrap_or(tag as u8));
        let request = if mark.is_some() { Request::write } else { Request::read };
        request(tag, offset, buffer)
    }

    fn complete(&mut self, by: usize, all: bool) {
        let mut ended = Vec::new();
        let lane = &mut self.lanes[by];
        if all { lane.wait(usize::MAX, LONG, &mut ended) } else { lane.complete(&mut ended) }.unwrap();
        for Completion { tag, buffer, result } in ended {
            assert_eq!(result, Ok(()), "{}", self.name);
            let Some(buffer) = buffer else { continue };
            let at = self.in_flight[by].iter().position(|other| other.tag == tag).unwrap();
            let InFlight { range, .. } = self.in_flight[by].swap_remove(at);
            assert!(buffer[..] == self.bytes[range.clone()], "{}: {range:?}", self.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn every_device_is_plain_bytes(seed: u64) {
        for sample in all() {
            let (mut pair, mut rng) = (Pair::new(&sample), seeded(seed));
            for _ in 0..60 {
                let by = rng.random_range(0..2);
                pair.submit(by, &mut rng);
                pair.complete(rng.random_range(0..2), rng.random_bool(0.2));
            }
            (0..2).for_each(|by| pair.complete(by, true));
            prop_assert!(pair.in_flight.iter().all(Vec::is_empty));
        }
    }
}
