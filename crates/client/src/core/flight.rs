//! Requests that are on their way.

use std::collections::BTreeMap;

use super::OpId;

/// A request that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// What it carried.
    pub(super) ids: Vec<OpId>,
    /// Taken for lost then.
    pub(super) lost_at_ns: u64,
    /// Operations in it without an answer.
    left: usize,
}

/// Requests without a whole answer, by their number; ordered, so that a run can be repeated.
#[derive(Debug, Default)]
pub(super) struct Flight {
    sent: BTreeMap<u64, Sent>,
    /// Lists that were used before: a request costs no allocation.
    spare: Vec<Vec<OpId>>,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// An empty list for what a request carries.
    pub(super) fn list(&mut self) -> Vec<OpId> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back a list.
    pub(super) fn spare(&mut self, mut ids: Vec<OpId>) {
        ids.clear();
        self.spare.push(ids);
    }

    pub(super) fn insert(&mut self, sequence: u64, ids: Vec<OpId>, lost_at_ns: u64) {
        let left = ids.len();
        self.sent.insert(sequence, Sent { ids, lost_at_ns, left });
    }

    /// One operation of the request with this number needs no answer any more.
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

    /// The number of a request that is taken for lost by now.
    pub(super) fn lost(&self, now_ns: u64) -> Option<u64> {
        self.sent.iter().find(|(_, sent)| sent.lost_at_ns <= now_ns).map(|(&sequence, _)| sequence)
    }

    /// When the next request will be taken for lost.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.sent.values().map(|sent| sent.lost_at_ns).min()
    }
}
