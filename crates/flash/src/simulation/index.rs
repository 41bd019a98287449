//! An index with whole hashes, and the memory above it.

use crate::{
    format::Life,
    log::{Index, Place, Standing},
};
use minos_base::KeyHash;
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

/// A put or delete that memory holds until it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) sequence: u64,
    pub(super) value_bytes: Option<usize>,
    /// Where it was packed; the last attempt, if that failed.
    pub(super) place: Option<Place>,
    /// The place of what it replaces.
    pub(super) old: Option<Place>,
    pub(super) has_failed: bool,
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) key: u64,
    pub(super) since: u64,
    pub(super) place: Place,
    pub(super) life: Life,
    pub(super) epoch: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) slots: HashMap<u64, (u64, Place)>,
    pub(super) pending: HashMap<u64, Pending>,
    pub(super) was_read: HashSet<u64>,
    /// Forgotten by eviction or loss.
    pub(super) forgotten: Vec<(u64, u64)>,
}

impl Index for Table {
    fn standing(&mut self, hash: KeyHash, sequence: u64, page: u32) -> Standing {
        let slot = self.slots.get(&hash.0).filter(|_| !self.pending.contains_key(&hash.0));
        match slot {
            Some((held, place)) if *held == sequence && place.page == page => {
                if self.was_read.contains(&hash.0) { Standing::Read } else { Standing::Live }
            }
            _ => Standing::Dead,
        }
    }

    fn relink(&mut self, hash: KeyHash, sequence: u64, from: u32, to: Place) -> bool {
        let is_live = self.standing(hash, sequence, from) != Standing::Dead;
        if is_live {
            self.slots.insert(hash.0, (sequence, to));
            self.was_read.remove(&hash.0);
        }
        is_live
    }

    fn forget(&mut self, hash: KeyHash, sequence: u64, page: u32) {
        if self.standing(hash, sequence, page) != Standing::Dead {
            self.slots.remove(&hash.0);
            self.forgotten.push((hash.0, sequence));
        }
    }

    fn forget_pages(&mut self, pages: Range<u32>) -> u64 {
        let gone = self.slots.extract_if(|_, (_, place)| pages.contains(&place.page));
        let gone: Vec<_> = gone.map(|(hash, (sequence, _))| (hash, sequence)).collect();
        // Memory hides the others.
        let lost = gone.into_iter().filter(|(hash, _)| !self.pending.contains_key(hash));
        let before = self.forgotten.len();
        self.forgotten.extend(lost);
        (self.forgotten.len() - before) as u64
    }
}
