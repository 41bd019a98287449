//! Sends a large value to the server in acknowledged windows.

use std::collections::VecDeque;

use minos_proto::native::{AckState, Fragments, Grant, RANGES_MAX, Ranges, TRAIN_SEGMENTS_MAX};

/// Windows in flight without an acknowledgement.
const WINDOWS_OUT_MAX: usize = 2;
/// Marks a fragment to be sent or repeated. Datagram numbers are never 0.
const UNSENT: u64 = 0;
/// Marks a fragment that has arrived.
const ARRIVED: u64 = u64::MAX;

/// A large value that is being sent.
#[derive(Debug)]
pub(super) struct Store {
    /// The server's id for it.
    pub(super) transfer: u64,
    pub(super) fragments: Fragments,
    /// The queue that takes the fragments.
    pub(super) queue: u16,
    /// The session of the request, or 0. The server knows the transfer in this session only.
    pub(super) session: u64,
    /// The datagrams with its fragments have no lower numbers.
    lowest_sequence: u64,
    window: usize,
    /// The number of the last datagram of each fragment.
    sent: Vec<u64>,
    /// The number of fragments that have arrived.
    arrived: usize,
    /// No fragment below this is to be sent.
    lowest: usize,
    /// Fragments below this have been sent at least once.
    frontier: usize,
    /// Numbers of the datagrams that ask for an acknowledgement.
    pub(super) unacknowledged: VecDeque<u64>,
    /// True if the server must be asked which fragments have arrived.
    wants_probe: bool,
    /// True if it waits in the queue of transfers.
    pub(super) is_queued: bool,
    pub(super) again_at_ns: u64,
}

/// The next datagrams of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until an acknowledgement arrives.
    Nothing,
    /// A question which fragments have arrived.
    Probe,
    Window,
}

impl Store {
    /// Creates a granted transfer, whose fragments go out in datagrams with numbers from `lowest_sequence` on; `None` if
    /// the grant does not fit the value.
    pub(super) fn new(grant: &Grant, value_bytes: usize, session: u64, lowest_sequence: u64) -> Option<Self> {
        let fragments = grant.fragments().ok().filter(|_| grant.value_bytes == value_bytes as u64)?;
        Some(Self {
            transfer: grant.transfer,
            fragments,
            queue: grant.queue,
            session,
            lowest_sequence,
            window: usize::from(grant.window).clamp(1, TRAIN_SEGMENTS_MAX),
            sent: vec![UNSENT; fragments.count() as usize],
            arrived: 0,
            lowest: 0,
            frontier: 0,
            unacknowledged: VecDeque::with_capacity(WINDOWS_OUT_MAX + 1),
            wants_probe: false,
            is_queued: false,
            again_at_ns: u64::MAX,
        })
    }

    /// True if an answer to the datagram with this number is about the transfer, and not about the request that began it.
    pub(super) fn is_answered_by(&self, sequence: u64) -> bool {
        sequence >= self.lowest_sequence
    }

    /// The next datagrams of a transfer.
    pub(super) fn next(&mut self) -> Next {
        if self.wants_probe {
            return Next::Probe;
        }
        let is_open = self.unacknowledged.len() < WINDOWS_OUT_MAX && self.has_more();
        if is_open { Next::Window } else { Next::Nothing }
    }

    /// Takes the lowest fragment to be sent; the datagram with this number carries it.
    pub(super) fn take(&mut self, sequence: u64) -> Option<u32> {
        if !self.has_more() {
            return None;
        }
        let index = self.lowest;
        self.sent[index] = sequence;
        self.frontier = self.frontier.max(index + 1);
        self.lowest += 1;
        u32::try_from(index).ok()
    }

    /// True if there is a fragment to be sent.
    pub(super) fn has_more(&mut self) -> bool {
        while self.sent.get(self.lowest).is_some_and(|&sent| sent != UNSENT) {
            self.lowest += 1;
        }
        self.lowest < self.sent.len()
    }

    /// The fragments in a window, at most `most` and at least one.
    pub(super) fn window(&self, most: usize) -> usize {
        self.window.min(most).max(1)
    }

    /// Records that the datagram with this number asks for an acknowledgement.
    pub(super) fn asks(&mut self, sequence: u64) {
        self.wants_probe = false;
        self.unacknowledged.push_back(sequence);
    }

    /// Probes the server after a time-out: the fragments or their acknowledgement may be lost.
    pub(super) fn repair(&mut self) {
        self.unacknowledged.clear();
        self.wants_probe = true;
    }

    /// Handles the acknowledgement of the datagram with this number: missing fragments sent up to then are
    /// lost. Returns true if it reports a fragment not known before to have arrived; only this is progress,
    /// so that a server that repeats the same answer does not keep the transfer alive.
    pub(super) fn acknowledge(&mut self, sequence: u64, state: AckState, missing: Ranges<'_>) -> bool {
        let arrived = self.arrived;
        self.unacknowledged.retain(|&asked| asked > sequence);
        if state == AckState::Done {
            self.note_arrived(0, self.sent.len());
            return self.arrived > arrived;
        }
        // A full list may hold only the lowest ranges; nothing is known above them then.
        let are_all_listed = (1..RANGES_MAX).contains(&missing.len());
        let mut known = 0;
        for range in missing {
            let first = (range.first as usize).min(self.frontier);
            self.note_arrived(known, first);
            known = (range.indexes().end as usize).min(self.frontier);
            self.lost(first, known, sequence);
        }
        if are_all_listed {
            self.note_arrived(known, self.frontier);
        }
        self.arrived > arrived
    }

    fn note_arrived(&mut self, first: usize, end: usize) {
        for sent in self.sent.iter_mut().take(end).skip(first) {
            self.arrived += usize::from(*sent != ARRIVED);
            *sent = ARRIVED;
        }
    }

    fn lost(&mut self, first: usize, end: usize, sequence: u64) {
        for (sent, index) in self.sent.iter_mut().zip(0..).take(end).skip(first) {
            if *sent <= sequence {
                *sent = UNSENT;
                self.lowest = self.lowest.min(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use minos_proto::native::{FragmentRange, push_ranges};

    use super::*;

    fn store(count: u32, window: u16) -> Store {
        let value_bytes = u64::from(count) * 10;
        let grant =
            Grant { transfer: 5, value_bytes, fragment_bytes: 10, queue: 2, window, first_follows: false };
        Store::new(&grant, value_bytes as usize, 0, 100).unwrap()
    }

    /// Sends a window whose datagrams are numbered from `sequence` on; returns its fragments.
    fn send(store: &mut Store, mut sequence: u64) -> Vec<u32> {
        assert_eq!(store.next(), Next::Window);
        let mut window = Vec::new();
        while window.len() < store.window(64)
            && let Some(index) = store.take(sequence)
        {
            window.push(index);
            sequence += 1;
        }
        store.asks(sequence - 1);
        window
    }

    fn acknowledge(store: &mut Store, sequence: u64, missing: &[(u32, u32)]) -> bool {
        let mut bytes = Vec::new();
        push_ranges(&mut bytes, missing.iter().map(|&(first, count)| FragmentRange { first, count }));
        store.acknowledge(sequence, AckState::Open, Ranges::parse(&bytes).unwrap())
    }

    #[test]
    fn two_windows_are_out_at_most() {
        let mut store = store(10, 4);
        assert_eq!(send(&mut store, 100), [0, 1, 2, 3]);
        assert_eq!(send(&mut store, 104), [4, 5, 6, 7]);
        assert_eq!(store.next(), Next::Nothing);
        assert!(acknowledge(&mut store, 103, &[(4, 6)]));
        assert_eq!(send(&mut store, 108), [8, 9]);
        assert_eq!(store.next(), Next::Nothing);
    }

    #[test]
    fn what_is_missing_is_sent_again_unless_it_is_on_its_way() {
        let mut store = store(10, 4);
        send(&mut store, 100);
        send(&mut store, 104);
        assert!(acknowledge(&mut store, 103, &[(1, 1), (3, 7)]));
        assert_eq!(send(&mut store, 108), [1, 3, 8, 9]);
        assert!(acknowledge(&mut store, 111, &[(3, 1), (6, 1)]));
        assert_eq!(send(&mut store, 112), [3, 6]);
    }

    #[test]
    fn a_probe_finds_what_was_lost() {
        let mut store = store(4, 4);
        send(&mut store, 100);
        store.repair();
        assert_eq!(store.next(), Next::Probe);
        store.asks(104);
        assert_eq!(store.next(), Next::Nothing);
        assert!(acknowledge(&mut store, 104, &[(2, 2)]));
        assert!(!acknowledge(&mut store, 104, &[(2, 2)]), "it was known");
        store.repair();
        store.asks(105);
        assert!(!acknowledge(&mut store, 105, &[(2, 2)]), "nothing came of the question");
        assert_eq!(send(&mut store, 106), [2, 3]);
        assert!(store.acknowledge(107, AckState::Done, Ranges::parse(&[]).unwrap()));
        assert_eq!(store.next(), Next::Nothing);
    }

    #[test]
    fn a_grant_for_another_length_is_refused() {
        let grant = Grant {
            transfer: 5,
            value_bytes: 30,
            fragment_bytes: 10,
            queue: 2,
            window: 1,
            first_follows: false,
        };
        assert!(Store::new(&grant, 30, 0, 0).is_some());
        assert!(Store::new(&grant, 31, 0, 0).is_none());
    }
}
