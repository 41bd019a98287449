//! Reads of long runs, of which unreadable pages stay zero.

use crate::{
    format::PAGE_BYTES,
    work::{Names, Outcome, Work, WorkId},
};

/// Most bytes of one read.
const READ_BYTES_MAX: usize = 1 << 20;
/// Reads of a page until it counts as unreadable: a device may fail once, and records are lost with a page.
const PAGE_READS: u32 = 4;

/// A run of pages that is being read. A read that failed is halved, down to single pages, which are read again.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) at: u64,
    /// All of them when it is done.
    pub(crate) bytes: Vec<u8>,
    len: usize,
    waiting: Vec<Part>,
    /// Pages that could not be read.
    pub(crate) failed_pages: usize,
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct Part {
    id: WorkId,
    begin: usize,
    len: usize,
    /// Reads of it that failed.
    failures: u32,
}

impl Gather {
    /// Asks for `len` bytes from `at` on.
    pub(crate) fn start(at: u64, len: usize, names: &mut Names, jobs: &mut Vec<(WorkId, Work)>) -> Self {
        Self::start_in(Vec::new(), (at, len), names, jobs)
    }

    /// As [`Gather::start`], into the memory of another run.
    pub(crate) fn start_in(
        bytes: Vec<u8>,
        (at, len): (u64, usize),
        names: &mut Names,
        jobs: &mut Vec<(WorkId, Work)>,
    ) -> Self {
        let mut gather = Self { at, bytes, len, waiting: Vec::new(), failed_pages: 0 };
        for begin in (0..len).step_by(READ_BYTES_MAX) {
            gather.ask((begin, READ_BYTES_MAX.min(len - begin)), 0, names, jobs);
        }
        gather
    }

    fn ask(
        &mut self,
        (begin, len): (usize, usize),
        failures: u32,
        names: &mut Names,
        jobs: &mut Vec<(WorkId, Work)>,
    ) {
        let id = names.next();
        self.waiting.push(Part { id, begin, len, failures });
        jobs.push((id, Work::Read { at: self.at + begin as u64, len }));
    }

    /// Takes a result. Returns false if it is not of this run.
    pub(crate) fn done(
        &mut self,
        id: WorkId,
        outcome: Outcome<'_>,
        names: &mut Names,
        jobs: &mut Vec<(WorkId, Work)>,
    ) -> bool {
        let Some(position) = self.waiting.iter().position(|part| part.id == id) else {
            return false;
        };
        let Part { begin, len, failures, .. } = self.waiting.swap_remove(position);
        match outcome {
            // A run in one piece is not filled with zeros first.
            Ok(bytes) if bytes.len() == self.len => {
                self.bytes.clear();
                self.bytes.extend_from_slice(bytes);
            }
            Ok(bytes) if bytes.len() == len => self.part(begin, len).copy_from_slice(bytes),
            _ if len <= PAGE_BYTES && failures + 1 < PAGE_READS => {
                self.ask((begin, len), failures + 1, names, jobs);
            }
            _ if len <= PAGE_BYTES => {
                self.part(begin, len).fill(0);
                self.failed_pages += 1;
            }
            _ => {
                let half = (len / 2).next_multiple_of(PAGE_BYTES);
                self.ask((begin, half), 0, names, jobs);
                self.ask((begin + half, len - half), 0, names, jobs);
            }
        }
        true
    }

    fn part(&mut self, begin: usize, len: usize) -> &mut [u8] {
        if self.bytes.capacity() < self.len {
            // Fresh memory is zero, and is not filled again.
            self.bytes = vec![0; self.len];
        }
        self.bytes.resize(self.len, 0);
        &mut self.bytes[begin..begin + len]
    }

    /// True if all is there that can be read.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of the run.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::DeviceFailed;

    #[test]
    fn only_the_pages_that_fail_are_missing() {
        let (mut names, mut jobs) = (Names::default(), Vec::new());
        const PAGES: usize = 600;
        const BAD: [u64; 2] = [5, 511];
        // In memory that held other bytes.
        let room = vec![9; PAGES * PAGE_BYTES];
        let mut gather = Gather::start_in(room, (0, PAGES * PAGE_BYTES), &mut names, &mut jobs);
        let mut reads = 0;
        while let Some((id, work)) = jobs.pop() {
            let Work::Read { at, len } = work else { panic!("{work:?}") };
            let mut pages = at / PAGE_BYTES as u64..(at + len as u64) / PAGE_BYTES as u64;
            let bytes = vec![7; len];
            let outcome = if pages.any(|page| BAD.contains(&page)) {
                Err(DeviceFailed::Broken)
            } else {
                Ok(&bytes[..])
            };
            assert!(gather.done(id, outcome, &mut names, &mut jobs));
            reads += 1;
        }
        assert!(gather.is_done() && gather.failed_pages == BAD.len() && reads < 50, "{reads}");
        for (page, bytes) in gather.bytes.chunks(PAGE_BYTES).enumerate() {
            assert_eq!(bytes[0], if BAD.contains(&(page as u64)) { 0 } else { 7 }, "{page}");
        }
        assert!(!gather.done(WorkId(1), Err(DeviceFailed::Broken), &mut names, &mut jobs));
    }

    #[test]
    fn a_page_that_fails_now_and_then_is_read() {
        for failures in [PAGE_READS - 1, PAGE_READS] {
            let (mut names, mut jobs) = (Names::default(), Vec::new());
            let mut gather = Gather::start(0, PAGE_BYTES, &mut names, &mut jobs);
            let mut reads = 0;
            while let Some((id, _)) = jobs.pop() {
                reads += 1;
                let outcome =
                    if reads <= failures { Err(DeviceFailed::Broken) } else { Ok(&[7; PAGE_BYTES][..]) };
                assert!(gather.done(id, outcome, &mut names, &mut jobs));
            }
            let is_lost = failures == PAGE_READS;
            assert_eq!((gather.failed_pages, gather.bytes[0]), if is_lost { (1, 0) } else { (0, 7) });
        }
    }
}
