//! Structures on flash: any bytes are read or refused, and what is read is composed to the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_flash::{
    FlashSlot,
    format::{
        FOOTER_BYTES, Footers, Journal, Kind, Life, PAGE_BYTES, Pages, RECORD_HEADER_BYTES, Record, Seal,
        SegmentHeader, Stamp, Superblock, write_footers,
    },
};

// The first byte chooses a structure, the next one a seed. Marks and checksums are made right, so that the
// fields are looked at.
fuzz_target!(|input: &[u8]| {
    let [structure, seed, bytes @ ..] = input else { return };
    let (seal, at) = (Seal::new(u64::from(*seed)), u64::from(*seed) << 12);
    match structure % 6 {
        0 => check_pages(bytes, seal, at),
        1 => {
            let page = mended(bytes, b"MinosFlT", |page| Seal::new(0).sum(Life::NONE, 0, &page[8..]));
            if let Ok(block) = Superblock::decode(&page) {
                assert_eq!(Superblock::decode(&block.encode()), Ok(block));
            }
        }
        2 => {
            let bytes = mended(bytes, b"MinosFlJ", |bytes| seal.sum(Life::NONE, at, &bytes[8..]));
            if let Ok(journal) = Journal::decode(&bytes, seal, at) {
                assert_eq!(Journal::decode(&journal.encode(seal, at, bytes.len()), seal, at), Ok(journal));
            }
        }
        3 => {
            let life = |page: &[u8]| Life(u32::from_le_bytes(page[28..32].try_into().unwrap()));
            let page = mended(bytes, b"MinosFlS", |page| seal.sum(life(page), at, &page[8..]));
            if let Ok(header) = SegmentHeader::decode(&page, seal, at) {
                let mut again = vec![0; PAGE_BYTES];
                header.encode(seal, at, &mut again);
                assert_eq!(SegmentHeader::decode(&again, seal, at), Ok(header));
            }
        }
        4 => check_footers(bytes, seal),
        _ => {
            let Some(slot) = bytes.first_chunk().map(|word| u64::from_le_bytes(*word)) else { return };
            if let Some(place) = FlashSlot::decode(slot) {
                assert_eq!(place.encode(), Some(slot));
            }
        }
    }
});

/// At least a page, with this mark and this checksum.
fn mended(bytes: &[u8], mark: &[u8; 8], sum: impl Fn(&[u8]) -> u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(1).next_multiple_of(PAGE_BYTES), 0);
    bytes[8..16].copy_from_slice(mark);
    let sum = sum(&bytes);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn check_pages(bytes: &[u8], seal: Seal, at: u64) {
    let life = Life(1);
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
    // Right stamps, so that the walk goes on to what the bytes say of records.
    for (number, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        let stamp = Stamp { life, page: number as u16, first: 16 };
        stamp.encode(seal, at + (number * PAGE_BYTES) as u64, page);
    }
    if let Some(record) = bytes.get_mut(16..PAGE_BYTES) {
        // A first record whose header is right, and which is right as a whole if it ends in the page.
        let check = seal.sum(life, at + 16, &record[8..42]) as u32;
        record[42..46].copy_from_slice(&check.to_le_bytes());
        let value_bytes = u32::from_le_bytes([record[32], record[33], record[34], record[35]]) as usize;
        let len = RECORD_HEADER_BYTES + usize::from(record[40]) + value_bytes;
        if len <= record.len() {
            let sum = seal.sum(life, at + 16, &record[8..len]);
            record[..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let pages = Pages::new(&bytes, at, life, seal);
    for offset in (0..bytes.len()).step_by(8) {
        if let Ok(Some((record, end))) = pages.record(offset) {
            assert!(offset < end && end <= bytes.len());
            assert_eq!(record.value.to_vec().len(), record.value.len());
            assert_eq!(record.key.pieces().map(<[u8]>::len).sum::<usize>(), record.key.len());
            let found = pages.find(record.header.hash, &record.key.to_vec());
            assert!(
                offset != 16
                    || found.is_err()
                    || found.is_ok_and(|found| found.is_some())
                    || is_tombstone(&record)
            );
        }
    }
}

fn is_tombstone(record: &Record<'_>) -> bool {
    record.header.kind == Kind::Tombstone
}

fn check_footers(bytes: &[u8], seal: Seal) {
    let end = bytes.len() as u64;
    if let Ok(footers) = Footers::decode(bytes, seal, end) {
        let mut entries = Vec::new();
        footers.iter().for_each(|footer| footer.encode(&mut entries));
        assert_eq!(entries.len(), footers.trailer.count as usize * FOOTER_BYTES);
        let again = write_footers(entries, footers.trailer, seal, end);
        assert_eq!(Footers::decode(&again, seal, end).unwrap().trailer, footers.trailer);
    }
}
