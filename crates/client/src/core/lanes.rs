//! Operations that wait to be sent, by queue.

use std::collections::VecDeque;

use super::OpId;

/// Operations that share datagrams, because they are for the same queue.
#[derive(Debug, Default)]
pub(super) struct Lane {
    ids: VecDeque<OpId>,
    /// An upper bound of the bytes of their records.
    bytes: usize,
    /// The time at which the lane must be sent.
    due_ns: u64,
}

impl Lane {
    pub(super) fn push(&mut self, id: OpId, record_bytes: usize, due_ns: u64) {
        self.due_ns = if self.ids.is_empty() { due_ns } else { self.due_ns.min(due_ns) };
        self.ids.push_back(id);
        self.bytes += record_bytes;
    }

    /// Takes the first operation.
    pub(super) fn pop(&mut self) -> Option<OpId> {
        let id = self.ids.pop_front();
        if self.ids.is_empty() {
            self.bytes = 0;
        }
        id
    }

    pub(super) fn front(&self) -> Option<OpId> {
        self.ids.front().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Subtracts the bytes of a record that was sent.
    pub(super) fn sent(&mut self, record_bytes: usize) {
        self.bytes = if self.ids.is_empty() { 0 } else { self.bytes.saturating_sub(record_bytes) };
    }
}

/// A lane for each queue, a lane for any queue, and the operations that cannot be sent yet.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The last one is for any queue. Empty before the server is known.
    lanes: Vec<Lane>,
    /// Operations that wait until the server, or the session, is known.
    pub(super) parked: VecDeque<OpId>,
    /// Operations that wait for a once number.
    pub(super) without_number: VecDeque<OpId>,
    /// The lane to check first, for fairness.
    next: usize,
}

impl Lanes {
    /// Makes lanes for this number of queues.
    pub(super) fn set_queues(&mut self, queues: u16) {
        self.lanes.resize_with(usize::from(queues) + 1, Lane::default);
        self.next = 0;
    }

    /// The lane of `queue`, or the one for any queue.
    pub(super) fn of(&mut self, queue: Option<u16>) -> Option<&mut Lane> {
        match queue {
            Some(queue) => self.lanes.get_mut(usize::from(queue)),
            None => self.lanes.last_mut(),
        }
    }

    /// The next lane in turn that is due or fills a datagram; `Some(None)` is the lane for any queue.
    pub(super) fn due(&mut self, now_ns: u64, full_bytes: usize) -> Option<Option<u16>> {
        let count = self.lanes.len();
        let found = (0..count).map(|step| (self.next + step) % count).find(|&at| {
            let lane = &self.lanes[at];
            !lane.is_empty() && (lane.due_ns <= now_ns || lane.bytes >= full_bytes)
        })?;
        self.next = (found + 1) % count;
        Some((found + 1 < count).then_some(found as u16))
    }

    /// Makes all lanes due now.
    pub(super) fn flush(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.due_ns = 0);
    }

    /// The earliest time at which another lane becomes due.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let waiting = self.lanes.iter().filter(|lane| !lane.is_empty() && lane.due_ns > now_ns);
        waiting.map(|lane| lane.due_ns).min()
    }

    /// Empties all lanes and waiting lists.
    pub(super) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| *lane = Lane::default());
        self.parked.clear();
        self.without_number.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_take_turns_when_due_or_full() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.due(100, 1), None);
        lanes.set_queues(2);
        lanes.of(Some(1)).unwrap().push(OpId(1), 40, 50);
        lanes.of(None).unwrap().push(OpId(2), 40, 10);
        assert_eq!(lanes.due(5, 1000), None);
        assert_eq!(lanes.next_ns(5), Some(10));
        assert_eq!(lanes.due(10, 1000), Some(None));
        assert_eq!(lanes.due(10, 40), Some(Some(1)), "full before it is due");
        assert_eq!(lanes.due(10, 40), Some(None));
        lanes.flush();
        assert_eq!(lanes.due(0, 1000), Some(Some(1)));
        assert_eq!(lanes.of(Some(1)).unwrap().pop(), Some(OpId(1)));
        assert_eq!(lanes.due(0, 1000), Some(None));
        lanes.clear();
        assert_eq!(lanes.due(u64::MAX, 0), None);
    }
}
