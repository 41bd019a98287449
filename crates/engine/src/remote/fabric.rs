//! What brings words of other processes' memory.

use super::Range;
use minos_region::{Image, Offset, View};
use minos_sync::ReadWord;
use std::{
    collections::VecDeque,
    sync::atomic::{
        Ordering::{Acquire, Relaxed},
        fence,
    },
};

/// A read that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The caller's name for it.
    pub token: u64,
    /// The words of its ranges, one after the other; `None` if they cannot be had.
    pub words: Option<&'a [u64]>,
}

/// Reads words in the memory of peers, while those write.
///
/// Each line of 64 bytes of a range is whole, and from an instant of its own between [`Fabric::read`] and the report of
/// the completion. Reads may end in any order.
pub trait Fabric {
    /// Begins to read ranges in the memory of peer number `peer`.
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64);

    /// Reports reads that have ended. It does not block.
    fn poll(&mut self, done: impl FnMut(Completion<'_>));
}

/// Appends the words of some ranges, as a fabric brings them; false if a range does not lie within the region.
pub fn copy_words(view: &View, ranges: &[Range], words: &mut Vec<u64>) -> bool {
    // Acquire fences: the rounds of a read are as ordered as the looks at a version, see `minos_sync::version`.
    fence(Acquire);
    let is_whole = ranges.iter().all(|range| {
        let found = view.try_words(Offset::from_words(range.start), range.words);
        words.extend(found.into_iter().flatten().map(|word: &ReadWord| word.load(Relaxed)));
        found.is_some()
    });
    fence(Acquire);
    is_whole
}

/// Peers whose memory this process has mapped, to be read only: words are copied at once.
#[derive(Debug, Default)]
pub struct Mapped {
    peers: Vec<Image>,
    ended: VecDeque<Ended>,
    /// Buffers of reads that were reported.
    free: Vec<Vec<u64>>,
}

#[derive(Debug)]
struct Ended {
    token: u64,
    words: Vec<u64>,
    is_whole: bool,
}

impl Mapped {
    /// Adds a peer; returns its number.
    pub fn add(&mut self, peer: Image) -> usize {
        self.peers.push(peer);
        self.peers.len() - 1
    }
}

impl Fabric for Mapped {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        let mut words = self.free.pop().unwrap_or_default();
        words.clear();
        let is_whole = self.peers.get(peer).is_some_and(|image| copy_words(image.view(), ranges, &mut words));
        self.ended.push_back(Ended { token, words, is_whole });
    }

    fn poll(&mut self, mut done: impl FnMut(Completion<'_>)) {
        for _ in 0..self.ended.len() {
            let Some(Ended { token, words, is_whole }) = self.ended.pop_front() else { return };
            done(Completion { token, words: is_whole.then_some(&words) });
            self.free.push(words);
        }
    }
}
