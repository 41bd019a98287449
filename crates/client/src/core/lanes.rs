//! Operations that wait to be sent, by queue.

use std::collections::VecDeque;

use super::OpId;

/// Operations that share datagrams, because they are for the same queue.
#[derive(Debug, Default)]
struct Lane {
    ids: VecDeque<OpId>,
    /// An upper bound of the bytes of their records.
    bytes: usize,
    /// The time at which the lane must be sent.
    due_ns: u64,
}

impl Lane {
    #[inline(always)]
    fn push(&mut self, id: OpId, record_bytes: usize, due_ns: u64) {
        self.due_ns = if self.ids.is_empty() { due_ns } else { self.due_ns.min(due_ns) };
        self.ids.push_back(id);
        self.bytes += record_bytes;
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The lanes of which operations are being sent: that of a queue, and behind it the one for any queue.
pub(super) struct OpenLanes<'a> {
    own: &'a mut Lane,
    any: &'a mut Lane,
    waiting: &'a mut usize,
}

impl OpenLanes<'_> {
    /// The first operation.
    #[inline]
    pub(super) fn front(&self) -> Option<OpId> {
        self.own.ids.front().or_else(|| self.any.ids.front()).copied()
    }

    /// Takes the first operation, whose record has `record_bytes`; 0 if it was not sent.
    #[inline]
    pub(super) fn pop(&mut self, record_bytes: usize) {
        let Lane { ids, bytes, .. } = if self.own.is_empty() { &mut *self.any } else { &mut *self.own };
        if ids.pop_front().is_some() {
            *self.waiting -= 1;
        }
        *bytes = if ids.is_empty() { 0 } else { bytes.saturating_sub(record_bytes) };
    }
}

/// A lane for each queue, a lane for any queue, and the operations that cannot be sent yet.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The last one is for any queue. Empty before the server is known.
    lanes: Vec<Lane>,
    /// Operations in all lanes.
    waiting: usize,
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

    /// True if no lane holds an operation.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// True if the lane of `queue` and the one for any queue are empty.
    pub(super) fn is_done(&self, queue: u16) -> bool {
        self.is_empty() || (self.is_lane_empty(Some(queue)) && self.is_lane_empty(None))
    }

    /// Appends an operation to the lane of `queue`, or to the one for any queue.
    #[inline]
    pub(super) fn push(&mut self, queue: Option<u16>, id: OpId, record_bytes: usize, due_ns: u64) {
        let at = self.place(queue);
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.push(id, record_bytes, due_ns);
            self.waiting += 1;
        }
    }

    /// The lane of `queue` and the one for any queue, to take operations from.
    #[inline]
    pub(super) fn open(&mut self, queue: u16) -> Option<OpenLanes<'_>> {
        let (any, lanes) = self.lanes.split_last_mut()?;
        Some(OpenLanes { own: lanes.get_mut(usize::from(queue))?, any, waiting: &mut self.waiting })
    }

    fn is_lane_empty(&self, queue: Option<u16>) -> bool {
        self.lanes.get(self.place(queue)).is_none_or(Lane::is_empty)
    }

    #[inline]
    fn place(&self, queue: Option<u16>) -> usize {
        queue.map_or(self.lanes.len().wrapping_sub(1), usize::from)
    }

    /// The next lane in turn that is due or fills a datagram; `Some(None)` is the lane for any queue.
    pub(super) fn due(&mut self, now_ns: u64, full_bytes: usize) -> Option<Option<u16>> {
        let count = self.lanes.len();
        let is_due = |at: &usize| {
            let lane = &self.lanes[*at];
            !lane.is_empty() && (lane.due_ns <= now_ns || lane.bytes >= full_bytes)
        };
        let found = (self.next..count).find(is_due).or_else(|| (0..self.next).find(is_due))?;
        let is_last = found + 1 == count;
        self.next = if is_last { 0 } else { found + 1 };
        Some((!is_last).then_some(found as u16))
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
        self.waiting = 0;
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
        lanes.push(Some(1), OpId(1), 40, 50);
        lanes.push(None, OpId(2), 40, 10);
        assert_eq!(lanes.due(5, 1000), None);
        assert_eq!(lanes.next_ns(5), Some(10));
        assert_eq!(lanes.due(10, 1000), Some(None));
        assert_eq!(lanes.due(10, 40), Some(Some(1)), "full before it is due");
        assert_eq!(lanes.due(10, 40), Some(None));
        lanes.flush();
        assert_eq!(lanes.due(0, 1000), Some(Some(1)));
        let mut lane = lanes.open(1).unwrap();
        assert_eq!(lane.front(), Some(OpId(1)));
        lane.pop(40);
        assert_eq!(lane.front(), Some(OpId(2)), "the one for any queue is next");
        assert_eq!(lanes.due(0, 1000), Some(None));
        assert!(!lanes.is_done(0) && !lanes.is_empty());
        let mut lane = lanes.open(0).unwrap();
        lane.pop(40);
        assert_eq!(lane.front(), None);
        assert!(lanes.is_done(0) && lanes.open(2).is_none());
        lanes.push(None, OpId(3), 40, 10);
        lanes.clear();
        assert!(lanes.is_done(0) && lanes.is_empty());
        assert_eq!(lanes.due(u64::MAX, 0), None);
    }
}
