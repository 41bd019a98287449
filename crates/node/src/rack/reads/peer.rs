//! A node whose memory is read.

use std::cell::Cell;

use minos_engine::remote::{Range, RemoteSketch, RemoteTable};

use super::Expected;
use crate::rack::notes::Notes;

/// Reads of one node, of which it is told of one, due or not: it sees none of them, and must not take what is hot for old.
const NOTED_ONCE_IN: u32 = 16;

/// A node whose memory is read.
pub(super) struct Peer {
    /// Its number for the fabric.
    pub(super) number: usize,
    /// Differs from that of its earlier processes.
    pub(super) serial: u64,
    stage: Stage,
    /// Reads that were given up and have not ended: it gets no others meanwhile.
    pub(super) given_up: usize,
    /// Reads that it has not been told of.
    pub(super) notes: Notes,
    until_noted: Cell<u32>,
}

/// What is known of its table.
enum Stage {
    Unknown,
    Sketched(RemoteSketch),
    /// With the seconds that its clock shows more than this node's.
    Known(RemoteTable, i64),
    /// It is none that this node could read.
    Refused,
}

impl Peer {
    /// A peer, and what is to be read of it first.
    pub(super) fn new(number: usize, serial: u64) -> (Self, Range) {
        let (stage, notes, until_noted) = (Stage::Unknown, Notes::default(), Cell::new(0));
        (Self { number, serial, stage, given_up: 0, notes, until_noted }, RemoteSketch::HEADER)
    }

    /// Goes on with words of its table; returns what is to be read next.
    pub(super) fn learn(&mut self, words: &[u64], expected: &Expected) -> Option<Range> {
        match std::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::Unknown => {
                let sketch = RemoteSketch::of(words)?;
                let range = sketch.saved_range();
                self.stage = Stage::Sketched(sketch);
                Some(range)
            }
            Stage::Sketched(sketch) => {
                let table = sketch.table(words).filter(|table| expected.is_met_by(table))?;
                let ahead_s = expected.zero_unix_s.cast_signed() - table.clock_base().cast_signed();
                self.stage = Stage::Known(table, ahead_s);
                None
            }
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Its table, if reads may begin there, and the seconds that its clock shows more than this node's.
    pub(super) fn open(&self) -> Option<(&RemoteTable, i64)> {
        match &self.stage {
            Stage::Known(table, ahead_s) if self.given_up == 0 => Some((table, *ahead_s)),
            _ => None,
        }
    }

    /// Its table, for a read that goes on.
    pub(super) fn table(&mut self) -> Option<&mut RemoteTable> {
        if let Stage::Known(table, _) = &mut self.stage { Some(table) } else { None }
    }

    /// The seconds that its clock shows more than this node's.
    pub(super) fn ahead_s(&self) -> i64 {
        if let Stage::Known(_, ahead_s) = &self.stage { *ahead_s } else { 0 }
    }

    /// True if it is to be told of a read now.
    pub(super) fn is_noted(&self, is_due: bool) -> bool {
        let left = self.until_noted.get();
        self.until_noted.set(if left == 0 { NOTED_ONCE_IN - 1 } else { left - 1 });
        is_due || left == 0
    }
}

impl Expected {
    /// True if a table belongs to the rack.
    fn is_met_by(&self, table: &RemoteTable) -> bool {
        table.hash(b"minos") == self.hash && table.micro_shards() == self.micro_shards
    }
}
