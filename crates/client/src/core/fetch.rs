//! Receives a large value in windows that are requested one after the other.

use minos_proto::native::{DataHead, FragmentRange, Fragments, Grant, RANGES_MAX, TRAIN_BYTES_MAX};

/// Bits in a word of the fragment map.
const WORD_BITS: u32 = u64::BITS;

/// Values without a turn whose first windows, of a train each, are kept.
pub(super) const WINDOWS_KEPT_MAX: usize = 256;

/// A large value that is being received.
///
/// The server sends the first window unasked, unless it has too much to send. Each further window is
/// requested when half of the one before has arrived, so that at most one and a half are in flight. Lost
/// fragments are requested again one by one. Of one that waits for its turn the first window is kept.
#[derive(Debug)]
pub(super) struct Fetch {
    /// Empty if the caller wants the length only.
    value: Vec<u8>,
    pub(super) value_bytes: u64,
    fragments: Fragments,
    count: u32,
    /// A bit for each fragment that has arrived.
    have: Vec<u64>,
    /// There is room for the fragments below this.
    room: u32,
    have_count: u32,
    /// None from this one on has arrived.
    end_of_arrived: u32,
    /// Fragments below this were requested, or come unasked.
    asked: u32,
    /// True once some were requested.
    has_asked: bool,
    pub(super) cas: u64,
    pub(super) item_flags: u32,
    /// The queue to ask; `None` until the grant names it.
    pub(super) queue: Option<u16>,
    window: u32,
    /// The number of the datagram whose answer began this fetch.
    pub(super) begun_by: u64,
    /// True if it has a turn, and may ask.
    pub(super) is_active: bool,
    /// True if missing fragments below `asked` are to be requested again.
    wants_repair: bool,
    /// True if it waits in the queue of transfers.
    pub(super) is_queued: bool,
    pub(super) again_at_ns: u64,
}

/// A value that is too large for a datagram, as a grant or its first fragment describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) fragments: Fragments,
    pub(super) value_bytes: u64,
    pub(super) cas: u64,
    pub(super) item_flags: u32,
}

/// The result of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// A duplicate, or part of another value.
    Useless,
    /// More fragments are in flight.
    More,
    /// The server must be asked for more.
    Ask,
    /// The value is complete.
    Whole,
}

impl Fetch {
    /// Creates a fetch without fragments, and without memory for any.
    pub(super) fn new(found: &Found, window: u16, begun_by: u64) -> Self {
        Self {
            value: Vec::new(),
            value_bytes: found.value_bytes,
            fragments: found.fragments,
            count: found.fragments.count(),
            have: Vec::new(),
            room: 0,
            have_count: 0,
            end_of_arrived: 0,
            asked: 0,
            has_asked: false,
            cas: found.cas,
            item_flags: found.item_flags,
            queue: None,
            window: u32::from(window.max(1)),
            begun_by,
            is_active: false,
            wants_repair: false,
            is_queued: false,
            again_at_ns: u64::MAX,
        }
    }

    /// Makes room for the first window, at most a train, which the server may be sending though the fetch has no turn; `keeps`:
    /// the caller gets the bytes.
    pub(super) fn keep_first(&mut self, keeps: bool) {
        let fragment_bytes = self.fragments.range(0).map_or(1, |first| first.len());
        self.asked = self.window.min(self.count).min((TRAIN_BYTES_MAX / fragment_bytes).max(1) as u32);
        self.make_room(self.asked, keeps);
    }

    /// Begins the fetch, whose turn has come.
    pub(super) fn activate(&mut self, keeps: bool) {
        self.is_active = true;
        self.make_room(self.count, keeps);
    }

    /// Notes that the server may be sending the first window.
    pub(super) fn expect_first(&mut self) {
        self.asked = self.window.min(self.count);
    }

    /// Makes room for the fragments below `room`.
    fn make_room(&mut self, room: u32, keeps: bool) {
        self.room = room;
        self.have.resize(self.count.div_ceil(WORD_BITS) as usize, 0);
        if keeps {
            let bytes =
                room.checked_sub(1).and_then(|last| self.fragments.range(last)).map_or(0, |it| it.end);
            // The system maps zeroed pages on their first use, so this costs nothing before the bytes arrive. The
            // caller of `new` has checked the size.
            let arrived = std::mem::replace(&mut self.value, vec![0; bytes]);
            self.value[..arrived.len()].copy_from_slice(&arrived);
        }
    }

    /// Takes the queue and the window from the grant, and how many fragments come unasked: the first window, which may be
    /// smaller than the server's largest, or none.
    pub(super) fn learn(&mut self, grant: &Grant) {
        self.queue = Some(grant.queue);
        self.window = u32::from(grant.window.max(1));
        if !self.has_asked && self.room > 0 {
            let unasked = if grant.first_follows { self.window.min(self.count) } else { 0 };
            self.asked = unasked.max(self.end_of_arrived);
        }
    }

    /// True if a fragment or a grant describes this value.
    pub(super) fn is_of(&self, cas: u64, fragments: Fragments) -> bool {
        self.cas == cas && self.fragments == fragments
    }

    /// Stores a fragment.
    pub(super) fn take(&mut self, head: &DataHead, data: &[u8]) -> Arrived {
        let is_ours = head.fragments().is_ok_and(|fragments| self.is_of(head.cas, fragments));
        let has_room = head.index < self.room;
        let Some(range) = self.fragments.range(head.index).filter(|_| is_ours && has_room) else {
            return Arrived::Useless;
        };
        let (word, bit) = place(head.index);
        if self.have[word] & bit != 0 || range.len() != data.len() {
            return Arrived::Useless;
        }
        if let Some(room) = self.value.get_mut(range) {
            room.copy_from_slice(data);
        }
        self.have[word] |= bit;
        self.have_count += 1;
        self.end_of_arrived = self.end_of_arrived.max(head.index + 1);
        self.asked = self.asked.max(self.end_of_arrived);
        self.after(head.index)
    }

    /// The result of the fragment at `index`, which has been stored.
    fn after(&mut self, index: u32) -> Arrived {
        if self.have_count == self.count {
            return Arrived::Whole;
        }
        let is_last_asked = index + 1 == self.asked && self.asked > self.have_count;
        // Others were overtaken or lost: a repeated request costs less than a time-out.
        self.wants_repair |= is_last_asked;
        if is_last_asked || self.may_ask_more() { Arrived::Ask } else { Arrived::More }
    }

    /// True if there is something to request by now.
    pub(super) fn wants_more(&self) -> bool {
        self.wants_repair || self.may_ask_more()
    }

    /// True if there is more to request, and at most half a window is outstanding.
    pub(super) fn may_ask_more(&self) -> bool {
        self.asked < self.count && self.asked - self.have_count <= self.window / 2
    }

    /// Requests missing fragments again after a time-out.
    pub(super) fn repair(&mut self) {
        self.wants_repair = true;
    }

    /// Fills `ranges` with the next request, at most a window: missing fragments after a repair, then new
    /// ones.
    pub(super) fn ask(&mut self, ranges: &mut Vec<FragmentRange>) {
        ranges.clear();
        self.has_asked = true;
        let mut left = self.window;
        if std::mem::take(&mut self.wants_repair) {
            left = self.push_missing(ranges, left);
        }
        let count = left.min(self.count - self.asked);
        if count > 0 && ranges.len() < RANGES_MAX {
            ranges.push(FragmentRange { first: self.asked, count });
            self.asked += count;
        }
    }

    /// Appends the lowest missing ranges that were requested before, at most `left` fragments. Returns the
    /// fragments left.
    fn push_missing(&self, ranges: &mut Vec<FragmentRange>, mut left: u32) -> u32 {
        let mut index = 0;
        while index < self.asked && left > 0 && ranges.len() < RANGES_MAX {
            let (word, bit) = place(index);
            if self.have[word] == u64::MAX {
                index = (index / WORD_BITS + 1) * WORD_BITS;
                continue;
            }
            if self.have[word] & bit == 0 {
                match ranges.last_mut() {
                    Some(range) if range.first + range.count == index => range.count += 1,
                    _ => ranges.push(FragmentRange { first: index, count: 1 }),
                }
                left -= 1;
            }
            index += 1;
        }
        left
    }

    pub(super) fn take_value(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.value)
    }
}

/// Word index and bit mask of a fragment in the map.
const fn place(index: u32) -> (usize, u64) {
    ((index / WORD_BITS) as usize, 1 << (index % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAGMENT_BYTES: u32 = 10;

    fn head(index: u32, count: u32) -> DataHead {
        let value_bytes = u64::from(count * FRAGMENT_BYTES);
        DataHead { request: 1, index, value_bytes, cas: 7, item_flags: 3, fragment_bytes: FRAGMENT_BYTES }
    }

    fn fetch(count: u32, window: u16) -> Fetch {
        let DataHead { value_bytes, cas, item_flags, .. } = head(0, count);
        let fragments = head(0, count).fragments().unwrap();
        let mut fetch = Fetch::new(&Found { fragments, value_bytes, cas, item_flags }, window, 1);
        fetch.activate(true);
        fetch.expect_first();
        fetch
    }

    fn take(fetch: &mut Fetch, index: u32) -> Arrived {
        let head = head(index, fetch.count);
        fetch.take(&head, &[index as u8; FRAGMENT_BYTES as usize])
    }

    fn asked(fetch: &mut Fetch) -> Vec<(u32, u32)> {
        let mut ranges = Vec::new();
        fetch.ask(&mut ranges);
        ranges.iter().map(|range| (range.first, range.count)).collect()
    }

    #[test]
    fn the_next_window_is_asked_for_at_half_of_the_last() {
        let mut fetch = fetch(100, 8);
        for index in 0..3 {
            assert_eq!(take(&mut fetch, index), Arrived::More);
        }
        assert_eq!(take(&mut fetch, 3), Arrived::Ask);
        assert_eq!(asked(&mut fetch), [(8, 8)]);
        assert_eq!(take(&mut fetch, 4), Arrived::More);
        assert_eq!(take(&mut fetch, 4), Arrived::Useless, "it came twice");
    }

    #[test]
    fn a_first_window_is_as_large_as_its_grant_says() {
        let mut fetch = fetch(100, 32);
        let grant = |window, first_follows| Grant {
            transfer: 0,
            value_bytes: head(0, 100).value_bytes,
            fragment_bytes: FRAGMENT_BYTES,
            queue: 0,
            window,
            first_follows,
        };
        assert_eq!(take(&mut fetch, 0), Arrived::More);
        fetch.learn(&grant(8, true));
        assert_eq!(take(&mut fetch, 1), Arrived::More);
        assert_eq!(take(&mut fetch, 2), Arrived::More);
        assert_eq!(take(&mut fetch, 3), Arrived::Ask);
        assert_eq!(asked(&mut fetch), [(8, 8)]);
        // A repeated answer says nothing of what was requested.
        fetch.learn(&grant(8, false));
        assert_eq!(take(&mut fetch, 8), Arrived::More);
        assert_eq!(asked(&mut fetch), [(16, 8)]);
    }

    #[test]
    fn what_was_lost_is_asked_for_alone() {
        let mut fetch = fetch(10, 16);
        for index in [0, 1, 4, 5, 6, 8] {
            assert_eq!(take(&mut fetch, index), Arrived::More);
        }
        assert_eq!(take(&mut fetch, 9), Arrived::Ask, "the last one has come, others have not");
        assert_eq!(asked(&mut fetch), [(2, 2), (7, 1)]);
        assert_eq!(take(&mut fetch, 7), Arrived::More);
        assert_eq!(take(&mut fetch, 3), Arrived::More);
        fetch.repair();
        assert_eq!(asked(&mut fetch), [(2, 1)]);
        assert_eq!(take(&mut fetch, 2), Arrived::Whole);
        let value = fetch.take_value();
        assert!(value.chunks(10).zip(0..).all(|(chunk, index)| chunk == [index; 10]));
    }

    #[test]
    fn a_repair_keeps_to_the_window_and_fills_it() {
        let mut fetch = fetch(1000, 8);
        take(&mut fetch, 0);
        fetch.repair();
        assert_eq!(asked(&mut fetch), [(1, 7), (8, 1)]);
        fetch.repair();
        assert_eq!(asked(&mut fetch), [(1, 8)]);
    }

    #[test]
    fn fragments_of_another_value_are_useless() {
        let mut fetch = fetch(10, 4);
        let other = DataHead { cas: 8, ..head(1, 10) };
        assert_eq!(fetch.take(&other, &[0; 10]), Arrived::Useless);
        let longer = head(1, 11);
        assert_eq!(fetch.take(&longer, &[0; 10]), Arrived::Useless);
        assert_eq!(fetch.take(&head(1, 10), &[0; 9]), Arrived::Useless);
        assert_eq!(fetch.take(&head(10, 10), &[0; 10]), Arrived::Useless);
    }
}
