//! The records of a segment without footers.

use crate::format::{Footer, Kind, Life, PAGE_BYTES, Pages, RoughLength, Seal, pages_of};

/// Footers of the records that begin in pages that verify as a whole.
///
/// A page with a torn record was never durable. It counts as empty, because a reader that looks for a key in
/// it could not tell that the torn record is not the key's newest.
pub(crate) fn scan(segment: &[u8], at: u64, life: Life, seal: Seal) -> Vec<Footer> {
    scan_pages(segment, at, life, seal).0
}

/// As [`scan`], with the number of pages that verify.
pub(super) fn scan_pages(segment: &[u8], at: u64, life: Life, seal: Seal) -> (Vec<Footer>, u16) {
    let pages = Pages::new(segment, at, life, seal);
    let (mut found, mut verified) = (Vec::new(), 0);
    for page in 0..pages.count() {
        let Ok(stamp) = pages.stamp(page) else { continue };
        verified += 1;
        if stamp.first == 0 {
            continue;
        }
        let mut offset = page * PAGE_BYTES + usize::from(stamp.first);
        let before = found.len();
        while offset / PAGE_BYTES == page {
            let (record, end) = match pages.record(offset) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(_) => {
                    found.truncate(before);
                    verified -= 1;
                    break;
                }
            };
            let header = &record.header;
            let length = RoughLength::of(header.bytes(), pages_of(offset as u64, header.bytes()));
            found.push(Footer {
                hash: header.hash,
                sequence: header.sequence,
                expiry: header.expiry,
                replaces: header.replaces,
                offset: offset as u32,
                length: (header.kind == Kind::Item).then_some(length),
            });
            offset = end;
        }
    }
    (found, verified)
}
