//! Large values on their way in: windows of fragments, of which the next is asked for while the last arrives.

use minos_proto::native::{DataHead, FragmentRange, Fragments, Grant, Header, Malformed, ReplyRecord};

use super::{NativeLink, STALL_NS, request::FETCH_RANGES_MAX};
use crate::driver::{
    datagram::ledger::{Outcome, Place},
    recorder::Recorder,
};

/// A value that is being received.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) place: Place,
    pub(super) serial: u64,
    cas: u64,
    grant: Grant,
    fragments: Fragments,
    /// A bit for each fragment: whether it has arrived.
    arrived: Vec<u64>,
    arrived_count: u32,
    /// Fragments below this have been asked for.
    asked_end: u32,
    /// The value, if it is to be looked at.
    value: Option<Vec<u8>>,
    /// When something was last heard or asked for.
    active_ns: u64,
}

impl Download {
    /// A value of which the server sends the first window unasked, unless its grant says otherwise.
    fn of(
        place: Place,
        serial: u64,
        cas: u64,
        grant: Grant,
        keeps: bool,
        now_ns: u64,
    ) -> Result<Self, Malformed> {
        let fragments = grant.fragments()?;
        let value_bytes = usize::try_from(grant.value_bytes).map_err(|_| Malformed::Body)?;
        Ok(Self {
            place,
            serial,
            cas,
            grant,
            fragments,
            arrived: vec![0; fragments.count().div_ceil(64) as usize],
            arrived_count: 0,
            asked_end: if grant.first_follows { fragments.count().min(u32::from(grant.window)) } else { 0 },
            value: keeps.then(|| vec![0; value_bytes]),
            active_ns: now_ns,
        })
    }

    /// Takes in a fragment. Says whether it is new.
    fn take(&mut self, head: &DataHead, bytes: &[u8], now_ns: u64) -> bool {
        let is_same = (head.cas, head.value_bytes, head.fragment_bytes)
            == (self.cas, self.grant.value_bytes, self.grant.fragment_bytes);
        let Some(range) = self.fragments.range(head.index).filter(|_| is_same) else { return false };
        let (word, bit) = (head.index as usize / 64, 1 << (head.index % 64));
        if self.arrived[word] & bit != 0 {
            return false;
        }
        self.arrived[word] |= bit;
        self.arrived_count += 1;
        self.active_ns = now_ns;
        if let Some(value) = &mut self.value {
            value[range].copy_from_slice(bytes);
        }
        true
    }

    /// The next window, if it is time to ask for it: no more than two are on their way.
    fn next_window(&mut self) -> Option<FragmentRange> {
        let window = u32::from(self.grant.window);
        let left = self.fragments.count() - self.asked_end;
        let on_their_way = self.asked_end - self.arrived_count;
        let count = left.min(window);
        if count == 0 || on_their_way > window {
            return None;
        }
        let first = self.asked_end;
        self.asked_end += count;
        Some(FragmentRange { first, count })
    }

    /// The lowest of the fragments that were asked for and are not there: a window of them at most.
    fn missing(&self) -> Vec<FragmentRange> {
        let mut ranges: Vec<FragmentRange> = Vec::new();
        let has = |index: u32| self.arrived[index as usize / 64] & (1 << (index % 64)) != 0;
        let absent = (0..self.asked_end).filter(|&index| !has(index));
        for index in absent.take(usize::from(self.grant.window)) {
            let is_full = ranges.len() == FETCH_RANGES_MAX;
            match ranges.last_mut() {
                Some(range) if range.first + range.count == index => range.count += 1,
                _ if is_full => break,
                _ => ranges.push(FragmentRange { first: index, count: 1 }),
            }
        }
        ranges
    }

    fn is_complete(&self) -> bool {
        self.arrived_count == self.fragments.count()
    }
}

impl NativeLink<'_> {
    /// The server says that a value comes in fragments.
    pub(super) fn begin_download(
        &mut self,
        place: Place,
        record: &ReplyRecord<'_>,
        now_ns: u64,
    ) -> Result<(), Malformed> {
        let grant = Grant::parse(record.value)?;
        if self.downloads.iter().any(|download| download.place == place) {
            return Ok(());
        }
        let (serial, asked) = (self.ledger.serial(place.slot), self.ledger.asked(place));
        let keeps = self.ledger.needs_bytes(asked.item);
        let download = Download::of(place, serial, record.cas, grant, keeps, now_ns)?;
        self.downloads.push(download);
        self.ledger.hear(place.slot, now_ns);
        self.fetch_next(self.downloads.len() - 1);
        Ok(())
    }

    /// A fragment of a value.
    pub(super) fn take_data(
        &mut self,
        datagram: &[u8],
        header: &Header,
        now_ns: u64,
        recorder: &mut Recorder,
    ) -> Result<(), Malformed> {
        let (head, bytes) = DataHead::parse(header.body(datagram))?;
        let Some(place) = self.ledger.find(head.request, header.stamp) else { return Ok(()) };
        let Some(at) = self.downloads.iter().position(|download| download.place == place) else {
            return Ok(());
        };
        if !self.downloads[at].take(&head, bytes, now_ns) {
            return Ok(());
        }
        self.ledger.hear(place.slot, now_ns);
        if self.downloads[at].is_complete() {
            let download = self.downloads.swap_remove(at);
            let outcome = self.judge(&download);
            self.settle(place, outcome, now_ns, recorder);
        } else {
            self.fetch_next(at);
        }
        Ok(())
    }

    fn judge(&self, download: &Download) -> Outcome {
        let item = self.ledger.asked(download.place).item;
        match &download.value {
            Some(value) => self.ledger.judge(item, value),
            None => self.ledger.judge_length(item, download.grant.value_bytes),
        }
    }

    /// Asks for the next window, if it is time.
    fn fetch_next(&mut self, at: usize) {
        let download = &mut self.downloads[at];
        let (place, cas, queue) = (download.place, download.cas, download.grant.queue);
        if let Some(range) = download.next_window() {
            self.fetch(place, cas, queue, &[range]);
        }
    }

    /// Asks again for what is missing where nothing moves.
    pub(super) fn resume_downloads(&mut self, now_ns: u64) {
        for at in 0..self.downloads.len() {
            let download = &mut self.downloads[at];
            if now_ns > download.active_ns + STALL_NS {
                download.active_ns = now_ns;
                let (place, cas, queue) = (download.place, download.cas, download.grant.queue);
                let missing = download.missing();
                self.fetch(place, cas, queue, &missing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { slot: 0, index: 0 };

    fn download() -> Download {
        let grant = Grant {
            transfer: 0,
            value_bytes: 1050,
            fragment_bytes: 100,
            queue: 1,
            window: 4,
            first_follows: true,
        };
        Download::of(PLACE, 1, 7, grant, true, 0).unwrap()
    }

    fn head(index: u32) -> DataHead {
        DataHead { request: 0, index, value_bytes: 1050, cas: 7, item_flags: 0, fragment_bytes: 100 }
    }

    fn range(first: u32, count: u32) -> FragmentRange {
        FragmentRange { first, count }
    }

    #[test]
    fn at_most_two_windows_are_on_their_way() {
        let mut download = download();
        assert_eq!(download.next_window(), Some(range(4, 4)), "the first one comes unasked");
        assert_eq!(download.next_window(), None);
        for index in 0..3 {
            assert!(download.take(&head(index), &[index as u8; 100], 0));
            assert_eq!(download.next_window(), None);
        }
        assert!(!download.take(&head(2), &[9; 100], 0), "a second copy is none");
        assert!(download.take(&head(5), &[5; 100], 0));
        assert_eq!(download.next_window(), Some(range(8, 3)));
        assert_eq!(download.missing(), [range(3, 2), range(6, 2)]);
    }

    #[test]
    fn a_value_is_put_together_from_its_fragments_in_any_order() {
        let mut download = download();
        for index in (0..11).rev() {
            assert!(!download.is_complete());
            let bytes = vec![index as u8; if index == 10 { 50 } else { 100 }];
            assert!(download.take(&head(index), &bytes, 0));
        }
        assert!(download.is_complete());
        let value = download.value.unwrap();
        assert!(value.iter().enumerate().all(|(at, &byte)| byte as usize == at / 100));
    }

    #[test]
    fn fragments_of_another_value_are_not_taken() {
        let mut download = download();
        assert!(!download.take(&DataHead { cas: 8, ..head(0) }, &[0; 100], 0));
        assert!(!download.take(&DataHead { value_bytes: 1040, ..head(0) }, &[0; 100], 0));
        assert!(!download.take(&head(11), &[0; 100], 0));
    }
}
