//! Structures on flash: any bytes are read or refused, and what is read is composed to the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_flash::{
    FlashSlot,
    format::{
        FooterWriter, Footers, Journal, Kind, Life, PAGE_BYTES, Pages, RECORD_HEADER_BYTES_MIN, Record,
        RecordHeader, STAMP_BYTES, Seal, Stamp, Stream, Superblock, TRAILER_BYTES, Trailer,
        footer_block_bytes, write_footers,
    },
};

// The first byte chooses a structure, the next one a seed. Marks and checksums are made right, so that the
// fields are looked at.
fuzz_target!(|input: &[u8]| {
    let [structure, seed, bytes @ ..] = input else { return };
    let (seal, at) = (Seal::new(u64::from(*seed)), u64::from(*seed) << 12);
    match structure % 5 {
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
        3 => check_footers(bytes, seal),
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
    let sealed = (Life(1), seal);
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
    // Right stamps, so that the walk goes on to what the bytes say of records.
    for (number, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        let stamp = Stamp { first: STAMP_BYTES as u16 };
        stamp.encode(sealed, at + (number * PAGE_BYTES) as u64, page);
    }
    if let Some(record) = bytes.get_mut(STAMP_BYTES..PAGE_BYTES) {
        mend_record(record, sealed, at + STAMP_BYTES as u64);
    }
    let pages = Pages::new(&bytes, at, sealed.0, seal);
    for offset in (0..bytes.len()).step_by(8) {
        if let Ok(Some((record, end))) = pages.record(offset) {
            assert!(offset < end && end <= bytes.len());
            assert_eq!(record.value.to_vec().len(), record.value.len());
            assert_eq!(record.key.pieces().map(<[u8]>::len).sum::<usize>(), record.key.len());
            let found = pages.find(record.header.hash, &record.key.to_vec());
            assert!(
                offset != STAMP_BYTES
                    || found.is_err()
                    || found.is_ok_and(|found| found.is_some())
                    || is_tombstone(&record)
            );
            check_again(&record, sealed, at);
        }
    }
}

/// Makes the first record right in its header, and as a whole if it ends in the page.
fn mend_record(record: &mut [u8], (life, seal): (Life, Seal), at: u64) {
    let packed = usize::from(u16::from_le_bytes([record[22], record[23]]));
    let widths = [packed & 7, packed >> 3 & 7, packed >> 6 & 7, packed >> 9 & 7, packed >> 12];
    let is_long = record[21] & 3 == 3;
    let before_key = RECORD_HEADER_BYTES_MIN + widths.iter().sum::<usize>() + usize::from(is_long);
    let mut key_bytes = usize::from(record[20]);
    if is_long {
        key_bytes = (key_bytes | usize::from(record[before_key - 1]) << 8) + 1;
    }
    let value_bytes = (0..widths[0]).fold(0, |all, at| all | usize::from(record[24 + at]) << (8 * at));
    let check = seal.sum(life, at, &record[12..before_key]) as u32;
    record[8..12].copy_from_slice(&check.to_le_bytes());
    let len = before_key + key_bytes + value_bytes;
    if len <= record.len() {
        let sum = seal.sum(life, at, &record[8..len]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Numbers may have had zeros at their high ends, and have none when they are written again.
fn check_again(record: &Record<'_>, sealed: (Life, Seal), at: u64) {
    let (key, value, header) = (record.key.to_vec(), record.value.to_vec(), record.header);
    let mut pages = vec![0; (header.bytes() as usize + PAGE_BYTES) / 4000 * PAGE_BYTES + PAGE_BYTES];
    header.write([&key, &value], &mut pages, at, STAMP_BYTES, sealed);
    let again = Pages::new(&pages, at, sealed.0, sealed.1);
    let (again, _) = again.record(STAMP_BYTES).unwrap().unwrap();
    assert_eq!(RecordHeader { checksum: header.checksum, ..again.header }, header);
    assert_eq!((again.key.to_vec(), again.value.to_vec()), (key, value));
}

fn is_tombstone(record: &Record<'_>) -> bool {
    record.header.kind == Kind::Tombstone
}

fn check_footers(bytes: &[u8], seal: Seal) {
    let trailer =
        |entry_bytes| Trailer { table: 1, segment: 2, life: Life(3), entry_bytes, stream: Stream::New };
    let block = write_footers(bytes.to_vec(), trailer(bytes.len() as u32), seal, 1 << 40);
    let footers = Footers::decode(&block, seal, 1 << 40).unwrap();
    let (mut writer, footers) = (FooterWriter::default(), footers.iter().collect::<Vec<_>>());
    assert!(footers.iter().all(|footer| writer.push(footer, u64::MAX)));
    let entries = writer.into_bytes();
    assert!(entries.len() <= bytes.len());
    let trailer = trailer(entries.len() as u32);
    let block = write_footers(entries, trailer, seal, 1 << 40);
    assert_eq!(block.len() as u64, footer_block_bytes(trailer.entry_bytes));
    let again = Footers::decode(&block, seal, 1 << 40).unwrap();
    assert_eq!((again.trailer, again.iter().collect::<Vec<_>>()), (trailer, footers));
    // What a segment ends with is read or refused.
    assert!(Trailer::decode(bytes).is_err() || bytes.len() >= TRAILER_BYTES);
}
