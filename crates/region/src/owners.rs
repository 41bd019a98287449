//! Words that say who owns each micro-shard, for readers in other processes.
//!
//! ```text
//! word   epoch (32) | unused (30) | state (2): 0 none, 1 owned, 2 frozen
//! ```

use crate::{offset::Offset, region::Region, view::View};
use minos_sync::{ReadWord, tenure};
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

/// The bits of a word below the epoch.
const STATE_MASK: u64 = u32::MAX as u64;
const EPOCH_SHIFT: u32 = 32;

/// The tenure of a micro-shard: who owns it is known by the epoch.
///
/// No two owners have the same epoch, and an owner that has given a micro-shard up takes it back under a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Number of the tenure; later ones are higher.
    pub epoch: u32,
    /// What the owner of the region does with the micro-shard in this tenure.
    pub state: OwnerState,
}

/// What the owner of a region does with a micro-shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerState {
    /// It does not own it, or is not ready: the items in this region count for nothing.
    #[default]
    None,
    /// It reads and writes it.
    Owned,
    /// It reads it; writes wait.
    Frozen,
}

impl Ownership {
    /// The ownership that a word stands for; any word will do.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        let state = match word & STATE_MASK {
            1 => OwnerState::Owned,
            2 => OwnerState::Frozen,
            _ => OwnerState::None,
        };
        Self { epoch: (word >> EPOCH_SHIFT) as u32, state }
    }

    /// True if the items in the region are those of the micro-shard.
    #[inline]
    pub const fn is_readable(self) -> bool {
        !matches!(self.state, OwnerState::None)
    }

    const fn to_word(self) -> u64 {
        let state = match self.state {
            OwnerState::None => 0,
            OwnerState::Owned => 1,
            OwnerState::Frozen => 2,
        };
        (self.epoch as u64) << EPOCH_SHIFT | state
    }
}

/// Where the words lie: one for each micro-shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners {
    start: Offset,
    count: u64,
}

impl Owners {
    pub(crate) fn new(start: Offset, count: u64) -> Self {
        Self { start, count }
    }

    pub(crate) fn ownership(self, region: &Region, micro_shard: u32) -> Ownership {
        Ownership::from_word(self.word(region, micro_shard).load(Acquire))
    }

    pub(crate) fn set(self, region: &Region, micro_shard: u32, ownership: Ownership) {
        tenure::begin(self.word(region, micro_shard), ownership.to_word());
    }

    /// Ends every tenure and keeps its epoch, so that the next one can be told from it.
    pub(crate) fn end_all(self, region: &Region) {
        tenure::end(self.words(region), |word| word & !STATE_MASK);
    }

    /// Lets readers read on what is owned, while its owner writes no more.
    pub(crate) fn freeze_all(self, region: &Region) {
        for word in self.words(region) {
            let Ownership { epoch, state } = Ownership::from_word(word.load(Acquire));
            if state == OwnerState::Owned {
                tenure::begin(word, Ownership { epoch, state: OwnerState::Frozen }.to_word());
            }
        }
    }

    /// The word of a micro-shard, as readers see it; `None` if there is no such micro-shard.
    #[inline]
    pub(crate) fn seen(self, view: &View, micro_shard: u32) -> Option<&ReadWord> {
        self.place(micro_shard).map(|place| view.word(place))
    }

    /// Where that word lies.
    #[inline]
    pub(crate) fn place(self, micro_shard: u32) -> Option<Offset> {
        let micro_shard = u64::from(micro_shard);
        (micro_shard < self.count).then(|| self.start.plus(micro_shard))
    }

    fn word(self, region: &Region, micro_shard: u32) -> &AtomicU64 {
        &self.words(region)[micro_shard as usize]
    }

    fn words(self, region: &Region) -> &[AtomicU64] {
        region.words(self.start, self.count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ownerships_come_back() {
        for state in [OwnerState::None, OwnerState::Owned, OwnerState::Frozen] {
            for epoch in [0, 1, u32::MAX] {
                let ownership = Ownership { epoch, state };
                assert_eq!(Ownership::from_word(ownership.to_word()), ownership);
            }
        }
        assert_eq!(Ownership::from_word(0), Ownership::default());
        assert!(!Ownership::from_word(3).is_readable() && !Ownership::from_word(u64::MAX).is_readable());
    }
}
