//! Requests in flight.

use std::collections::BTreeMap;

use super::OpId;

/// A request that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// Its operations.
    pub(super) ids: Vec<OpId>,
    /// The time at which it counts as lost.
    pub(super) lost_at_ns: u64,
    /// Operations in it without an answer.
    left: usize,
}

/// Requests that are not completely answered, by number; ordered, so that runs are deterministic.
#[derive(Debug, Default)]
pub(super) struct Flight {
    sent: BTreeMap<u64, Sent>,
    /// Emptied lists for reuse, so that a request needs no allocation.
    spare: Vec<Vec<OpId>>,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// An empty list for the operations of a request.
    pub(super) fn list(&mut self) -> Vec<OpId> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a list back for reuse.
    pub(super) fn spare(&mut self, mut ids: Vec<OpId>) {
        ids.clear();
        self.spare.push(ids);
    }

    pub(super) fn insert(&mut self, sequence: u64, ids: Vec<OpId>, lost_at_ns: u64) {
        let left = ids.len();
        self.sent.insert(sequence, Sent { ids, lost_at_ns, left });
    }

    /// Marks one operation of the request with this number as answered.
    pub(super) fn answered(&mut self, sequence: u64) {
        let Some(sent) = self.sent.get_mut(&sequence) else { return };
        sent.left = sent.left.saturating_sub(1);
        if sent.left == 0
            && let Some(sent) = self.sent.remove(&sequence)
        {
            self.spare(sent.ids);
        }
    }

    pub(super) fn remove(&mut self, sequence: u64) -> Option<Sent> {
        self.sent.remove(&sequence)
    }

    /// The number of a request that counts as lost by now.
    pub(super) fn lost(&self, now_ns: u64) -> Option<u64> {
        self.sent.iter().find(|(_, sent)| sent.lost_at_ns <= now_ns).map(|(&sequence, _)| sequence)
    }

    /// The earliest time at which a request counts as lost.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.sent.values().map(|sent| sent.lost_at_ns).min()
    }
}
