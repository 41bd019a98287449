//! Every structure comes back, and any byte that changed is found out.

use super::*;
use crate::switches::{Safeguard, without};
use minos_base::{KeyHash, limits::ITEM_KEY_BYTES_MAX};
use proptest::prelude::*;

const LIFE: Life = Life(77);
const AT: u64 = 40 * PAGE_BYTES as u64;
/// Sequence of the first record: all bits of one come back.
const FIRST: u64 = u64::MAX << 8;

fn seal() -> Seal {
    Seal::new(0x1234_5678_9abc_def0)
}

fn header(key: &[u8], value: &[u8], sequence: u64) -> RecordHeader {
    RecordHeader {
        checksum: 0,
        hash: KeyHash(u64::from(key[0])),
        sequence,
        expiry: 5,
        flags: 6,
        value_bytes: value.len() as u32,
        replaces: Life(3),
        key_bytes: key.len() as u32,
        kind: Kind::Item,
        marks: 0x2a,
    }
}

/// Pages at [`AT`] with these records, stamped.
fn pages(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut at, mut firsts) = (Vec::new(), 0u64, Vec::new());
    for (sequence, (key, value)) in records.iter().enumerate() {
        let header = header(key, value, FIRST + sequence as u64);
        at = position_of(at, header.bytes());
        let end = end_of(at, header.bytes());
        bytes.resize(end.next_multiple_of(PAGE_BYTES as u64) as usize, 0);
        firsts.resize(bytes.len() / PAGE_BYTES, 0);
        let first = &mut firsts[at as usize / PAGE_BYTES];
        *first = if *first == 0 { at as usize % PAGE_BYTES } else { *first };
        header.write([key, value], &mut bytes, AT, at as usize, (LIFE, seal()));
        at = end;
    }
    for (page, first) in firsts.into_iter().enumerate() {
        let begin = page * PAGE_BYTES;
        let page = &mut bytes[begin..begin + PAGE_BYTES];
        Stamp { first: first as u16 }.encode((LIFE, seal()), AT + begin as u64, page);
    }
    bytes
}

/// All records, as a scan of pages would find them.
fn scan(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pages = Pages::new(bytes, AT, LIFE, seal());
    let mut found = Vec::new();
    for page in 0..pages.count() {
        let Ok(stamp) = pages.stamp(page) else { continue };
        let mut at = page * PAGE_BYTES + usize::from(stamp.first);
        while at / PAGE_BYTES == page {
            let Ok(Some((record, end))) = pages.record(at) else { break };
            found.push((record.key.to_vec(), record.value.to_vec()));
            at = end;
        }
    }
    found
}

fn records() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let size = prop_oneof![0usize..200, 900usize..1200, 3900usize..4200, 0usize..20_000];
    let key_bytes = prop_oneof![8 => 1usize..=256, 1 => 257usize..9000, 1 => Just(ITEM_KEY_BYTES_MAX)];
    let record = (any::<u8>(), key_bytes, size, any::<u8>());
    let record = record.prop_map(|(first, key_bytes, size, fill)| {
        let key = (0..key_bytes).map(|at| first.wrapping_add((at % 251) as u8)).collect();
        (key, vec![fill; size])
    });
    proptest::collection::vec(record, 1..12)
}

/// Numbers of all widths.
fn any_u32() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0u32..=32).prop_map(|(number, zeros)| number.checked_shr(zeros).unwrap_or(0))
}

fn any_u64() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..=64).prop_map(|(number, zeros)| number.checked_shr(zeros).unwrap_or(0))
}

fn any_header() -> impl Strategy<Value = RecordHeader> {
    let key_bytes = prop_oneof![Just(0u32), 1u32..=256, 257u32..9000, Just(ITEM_KEY_BYTES_MAX as u32)];
    let value_bytes = prop_oneof![9 => Just(0u32), 9 => 1u32..=256, 9 => 250u32..70_000, 1 => Just(1 << 24)];
    let numbers = (any::<u64>(), any_u64(), any_u32(), any_u32(), any_u32(), 0u8..64);
    (key_bytes, value_bytes, numbers, any::<bool>()).prop_map(|(key_bytes, value_bytes, numbers, is_item)| {
        let (hash, sequence, expiry, flags, replaces, marks) = numbers;
        let (hash, replaces) = (KeyHash(hash), Life(replaces));
        let kind = if is_item || key_bytes > 255 { Kind::Item } else { Kind::Tombstone };
        let checksum = 0;
        RecordHeader {
            checksum,
            hash,
            sequence,
            expiry,
            flags,
            value_bytes,
            replaces,
            key_bytes,
            kind,
            marks,
        }
    })
}

fn any_footers() -> impl Strategy<Value = Vec<Footer>> {
    let numbers = (any::<u64>(), any_u64(), any_u32(), any_u32(), 0u8..=191);
    let footer = (numbers, prop_oneof![0u32..300, 0u32..80_000]);
    proptest::collection::vec(footer, 0..300).prop_map(|footers| {
        let mut offset = 0;
        let next = |((hash, sequence, expiry, replaces, code), gap): ((u64, u64, u32, u32, u8), u32)| {
            offset = (offset + gap * 8).min(Layout::SEGMENT_BYTES * 4 - 8);
            let (hash, replaces, length) = (KeyHash(hash), Life(replaces), RoughLength::from_code(code));
            Footer { hash, sequence, expiry, replaces, offset, length }
        };
        footers.into_iter().map(next).collect()
    })
}

/// Flips one byte and expects `decode` to refuse.
fn flip(bytes: &[u8], at: usize, by: u8, mut is_refused: impl FnMut(&[u8]) -> bool) -> bool {
    let mut changed = bytes.to_vec();
    changed[at] ^= by;
    is_refused(&changed)
}

fn layout() -> Layout {
    Layout::new(64 << 10, 20).unwrap()
}

fn superblock() -> Superblock {
    Superblock { table: 1, seed: 2, hash_seed: 3, clock_zero_unix_s: 4, layout: layout() }
}

fn journal(uses: Vec<Use>) -> Journal {
    let held = (0..uses.len()).map(|number| match number % 3 {
        0 => Held::Unknown,
        1 => Held::Sealed,
        _ => Held::Pages(number as u16),
    });
    let held = held.collect();
    Journal { table: 9, number: 8, next_life: Life(100), least_life: Life(2), items: None, uses, held }
}

fn footer_block(count: u32) -> Vec<u8> {
    let mut writer = FooterWriter::default();
    assert!((0..count).all(|number| writer.push(&footer(number), u64::MAX)));
    let entries = writer.into_bytes();
    let entry_bytes = entries.len() as u32;
    let trailer = Trailer { table: 1, segment: 2, life: LIFE, entry_bytes, stream: Stream::Compacted };
    write_footers(entries, trailer, seal(), AT)
}

fn footer(number: u32) -> Footer {
    Footer {
        hash: KeyHash(u64::from(number) << 32),
        sequence: u64::from(number) + 1,
        expiry: number,
        replaces: Life(number),
        offset: number * 8,
        length: (!number.is_multiple_of(3)).then(|| RoughLength::of(1000, u64::from(number))),
    }
}

proptest! {
    #[test]
    fn records_come_back_whole_and_by_key(records in records()) {
        let bytes = pages(&records);
        prop_assert_eq!(scan(&bytes), records.clone());
        let mut at = 0;
        for (sequence, (key, value)) in records.iter().enumerate() {
            let length = header(key, value, FIRST).bytes();
            at = position_of(at, length);
            let page = at as usize / PAGE_BYTES;
            let rough = RoughLength::of(length, pages_of(at, length));
            let read = &bytes[page * PAGE_BYTES..][..rough.pages() as usize * PAGE_BYTES];
            let read = Pages::new(read, AT + (page * PAGE_BYTES) as u64, LIFE, seal());
            // A cut record behind it in the last page is not looked at.
            let found = read.find(KeyHash(u64::from(key[0])), key);
            if let Ok(Some(found)) = found {
                prop_assert!(found.header.sequence >= FIRST + sequence as u64);
                prop_assert!(found.key.equals(key));
            } else {
                prop_assert!(false, "{key:?} is not found: {found:?}");
            }
            at = end_of(at, length);
        }
    }

    #[test]
    fn heads_tell_all_keys_and_sequences(records in records()) {
        let bytes = pages(&records);
        let mut found = Vec::new();
        for begin in (0..bytes.len()).step_by(PAGE_BYTES) {
            let read = Pages::new(&bytes[begin..], AT + begin as u64, LIFE, seal());
            read.heads(|header, key| found.push((header.sequence, key.to_vec()))).unwrap();
        }
        let keys = records.into_iter().map(|(key, _)| key);
        prop_assert_eq!(found, (FIRST..).zip(keys).collect::<Vec<_>>());
    }

    /// Nothing else of its pages is there.
    #[test]
    fn a_record_that_crosses_is_found_in_its_window(records in records(), other in any::<u8>()) {
        let bytes = pages(&records);
        let mut at = 0;
        for (key, value) in &records {
            let length = header(key, value, FIRST).bytes();
            at = position_of(at, length);
            let (page, within) = (at as usize / PAGE_BYTES * PAGE_BYTES, at as usize % PAGE_BYTES);
            let is_crossing = length <= PAGE_BYTES as u64 && within + length as usize > PAGE_BYTES;
            let rough = RoughLength::of(length, pages_of(at, length));
            let window = window_of(rough);
            // Of its longest, some do not fit a page.
            prop_assert_eq!(window.is_some(), is_crossing && rough.bytes_max() < PAGE_BYTES as u64);
            if let Some(window) = window {
                let mut read = vec![other; 2 * PAGE_BYTES];
                read[window.clone()].copy_from_slice(&bytes[page..][window.clone()]);
                let read = Pages::new(&read, AT + page as u64, LIFE, seal());
                let hash = KeyHash(u64::from(key[0]));
                prop_assert_eq!(read.find_crossing(hash, key, window.clone()), Some(within));
                let (record, _) = read.record(within).unwrap().unwrap();
                prop_assert_eq!((record.key.to_vec(), record.value.to_vec()), (key.clone(), value.clone()));
                let others = [(KeyHash(!hash.0), key.clone()), (hash, [key.as_slice(), b"x"].concat())];
                for (hash, key) in others {
                    prop_assert_eq!(read.find_crossing(hash, &key, window.clone()), None);
                }
            }
            at = end_of(at, length);
        }
    }

    #[test]
    fn any_changed_byte_of_pages_hides_records_but_invents_none(
        records in records(), at: prop::sample::Index, by in 1u8..,
    ) {
        let mut bytes = pages(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let found = scan(&bytes);
        prop_assert!(found.iter().all(|record| records.contains(record)));
        for (key, _) in &records {
            let read = Pages::new(&bytes, AT, LIFE, seal());
            if let Ok(Some(record)) = read.find(KeyHash(u64::from(key[0])), key) {
                prop_assert!(records.contains(&(record.key.to_vec(), record.value.to_vec())));
            }
        }
    }

    #[test]
    fn the_crossing_rule_holds(next in 0u64..100_000, bytes in 24u64..20_000) {
        let at = position_of(next, bytes);
        let (within, room) = (at % 4096, 4096 - at % 4096);
        prop_assert!(at >= next && at.is_multiple_of(8) && within >= STAMP_BYTES as u64);
        // No header crosses.
        prop_assert!(room >= bytes.min(49));
        if bytes <= 4088 && bytes > room {
            prop_assert!(room > 64);
        }
        // A record that needs one page only may lose 1/64 of a page, no more.
        prop_assert!(at - next <= 64 + 8 + STAMP_BYTES as u64);
    }

    #[test]
    fn a_superblock_refuses_any_change(at in 0..PAGE_BYTES, by in 1u8..) {
        let page = superblock().encode();
        prop_assert_eq!(Superblock::decode(&page), Ok(superblock()));
        prop_assert!(flip(&page, at, by, |bytes| Superblock::decode(bytes).is_err()));
    }

    #[test]
    fn numbers_of_any_width_come_back(header in any_header(), footers in any_footers()) {
        let (key, value) = (vec![1; header.key_bytes as usize], vec![2; header.value_bytes as usize]);
        let end = end_of(STAMP_BYTES as u64, header.bytes()) as usize;
        let mut bytes = vec![0; end.next_multiple_of(PAGE_BYTES)];
        header.write([&key, &value], &mut bytes, AT, STAMP_BYTES, (LIFE, seal()));
        let pages = Pages::new(&bytes, AT, LIFE, seal());
        let (record, behind) = pages.record(STAMP_BYTES).unwrap().unwrap();
        prop_assert_eq!(RecordHeader { checksum: 0, ..record.header }, header);
        prop_assert_eq!(behind, end);

        let mut writer = FooterWriter::default();
        prop_assert!(footers.iter().all(|footer| writer.push(footer, u64::MAX)));
        let entries = writer.into_bytes();
        prop_assert!(entries.len() <= footers.len() * FOOTER_BYTES_MAX);
        let trailer = Trailer {
            table: 1, segment: 2, life: LIFE, entry_bytes: entries.len() as u32, stream: Stream::New,
        };
        let block = write_footers(entries, trailer, seal(), AT);
        let read = Footers::decode(&block, seal(), AT).unwrap();
        prop_assert_eq!(read.trailer, trailer);
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), footers);
    }

    /// The first chunk of a segment is bounded by what its footers take: none is let in beyond that.
    #[test]
    fn footers_keep_within_their_room(footers in any_footers(), pages in 1u64..3) {
        let (mut writer, room) = (FooterWriter::default(), pages * PAGE_BYTES as u64);
        let count = footers.iter().take_while(|footer| writer.push(footer, room)).count();
        let bytes = writer.clone().into_bytes().len() as u32;
        prop_assert!(footer_block_bytes(bytes) <= room);
        let is_full = footer_block_bytes(bytes + FOOTER_BYTES_MAX as u32) > room;
        prop_assert!(count == footers.len() || is_full);
    }

    #[test]
    fn a_stamp_refuses_any_change(at in 0..STAMP_BYTES, by in 1u8.., first in 2u16..500) {
        let (stamp, sealed) = (Stamp { first: first * 8 }, (LIFE, seal()));
        let mut page = vec![0; PAGE_BYTES];
        stamp.encode(sealed, AT, &mut page);
        prop_assert_eq!(Stamp::decode(&page, sealed, AT), Ok(stamp));
        prop_assert!(flip(&page, at, by, |bytes| Stamp::decode(bytes, sealed, AT).is_err()));
        prop_assert!(Stamp::decode(&page, (Life(LIFE.0 + 1), seal()), AT).is_err());
    }

    #[test]
    fn a_journal_refuses_any_change(
        count in 0usize..900,
        items in prop::option::of(0..u32::MAX - 1),
        at: prop::sample::Index,
        by in 1u8..,
    ) {
        let used = |number| match number % 5 {
            0 => Use::Free,
            1 => Use::Live(Life(number as u32)),
            2 => Use::Leaving(Life(number as u32)),
            3 => Use::Failing(Life(number as u32)),
            _ => Use::Bad,
        };
        let journal = Journal { items, ..journal((0..count).map(used).collect()) };
        let bytes = journal.encode(seal(), AT, Journal::bytes(count as u32).next_multiple_of(PAGE_BYTES));
        prop_assert_eq!(&Journal::decode(&bytes, seal(), AT), &Ok(journal));
        let at = at.index(bytes.len());
        prop_assert!(flip(&bytes, at, by, |bytes| Journal::decode(bytes, seal(), AT).is_err()));
    }

    #[test]
    fn footers_refuse_any_change(count in 0u32..400, at: prop::sample::Index, by in 1u8..) {
        let block = footer_block(count);
        let footers = Footers::decode(&block, seal(), AT).unwrap();
        prop_assert_eq!(footers.iter().collect::<Vec<_>>(), (0..count).map(footer).collect::<Vec<_>>());
        let at = at.index(block.len());
        prop_assert!(flip(&block, at, by, |bytes| Footers::decode(bytes, seal(), AT).is_err()));
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000), at in 0u64..1 << 20) {
        prop_assert!(Superblock::decode(&bytes).is_err());
        prop_assert!(Journal::decode(&bytes, seal(), at).is_err());
        prop_assert!(Footers::decode(&bytes, seal(), at).is_err());
        let pages = Pages::new(&bytes, at, LIFE, seal());
        for offset in (0..bytes.len()).step_by(8) {
            prop_assert!(!matches!(pages.record(offset), Ok(Some(_))));
        }
    }
}

/// The same record in an earlier life, read as one of this life.
fn accepts_a_stale_record() -> bool {
    let bytes = pages(&[(b"key".to_vec(), b"old".to_vec())]);
    Pages::new(&bytes, AT, Life(78), seal()).record(STAMP_BYTES).is_ok()
}

#[test]
fn a_stale_record_is_refused_and_control_without_the_seed_accepts_it() {
    assert!(!accepts_a_stale_record());
    assert!(without(Some(Safeguard::Seed), accepts_a_stale_record));
}

#[test]
fn a_misdirected_page_is_refused() {
    let bytes = pages(&[(b"key".to_vec(), b"value".to_vec())]);
    let elsewhere = Pages::new(&bytes, AT + PAGE_BYTES as u64, LIFE, seal());
    assert_eq!(elsewhere.stamp(0), Err(Fault::Checksum));
    assert_eq!(elsewhere.record(STAMP_BYTES).unwrap_err(), Fault::Checksum);
}

#[test]
fn errors_are_precise() {
    assert_eq!(Superblock::decode(&[0; 10]), Err(Fault::Short { len: 10, needed: PAGE_BYTES }));
    assert_eq!(Superblock::decode(&[0; PAGE_BYTES]), Err(Fault::Mark(0)));
    let bytes = pages(&[(b"key".to_vec(), b"value".to_vec())]);
    assert_eq!(Pages::new(&bytes, AT, Life(78), seal()).stamp(0), Err(Fault::Checksum));
    assert_eq!(Layout::new(5000, 20), Err(LayoutError::SegmentBytes(5000)));
    let text = Layout::fitting(1 << 20, Layout::SEGMENT_BYTES).unwrap_err().to_string();
    assert_eq!(text, "1048576 bytes hold fewer than 8 segments of 16777216 bytes");
}

#[test]
fn the_parts_of_a_device_do_not_overlap() {
    let layout = Layout::fitting(4 << 30, Layout::SEGMENT_BYTES).unwrap();
    assert!(layout.device_bytes() <= 4 << 30 && layout.segments() == 255);
    let mut parts: Vec<(u64, u64)> =
        (0..2).map(|copy| (layout.superblock_at(copy), PAGE_BYTES as u64)).collect();
    for (number, copy) in [(4, 0), (5, 0), (4, 1), (5, 1)] {
        parts.push((layout.journal_at(number, copy), layout.journal_bytes()));
    }
    parts.extend((0..255).map(|segment| (layout.segment_at(segment), Layout::SEGMENT_BYTES.into())));
    assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
    assert_eq!(layout.segment_of(layout.segment_at(3) + 5), Some((3, 5)));
    assert_eq!(layout.segment_of(layout.device_bytes()), None);
    assert_eq!(layout.segment_of(0), None);
}

/// A client may know the hash of a key, and store its bytes.
#[test]
fn bytes_of_a_value_are_no_record() {
    let hash = KeyHash(u64::from(b's'));
    // Where a header at a multiple of 8 has its hash.
    let (key, value) = (b"a key of".to_vec(), hash.0.to_le_bytes().repeat(375));
    let records = [(key[1..].to_vec(), value), (b"sought".to_vec(), vec![1; 1100])];
    let [before, length] = [0, 1].map(|at| header(&records[at].0, &records[at].1, FIRST).bytes());
    let within = end_of(STAMP_BYTES as u64, before);
    let window = window_of(RoughLength::of(length, pages_of(within, length))).unwrap();
    assert!(window.start + 8 < within as usize);
    let bytes = pages(&records);
    let imitations =
        (window.start..within as usize).step_by(8).filter(|at| bytes[at + 12..][..8] == hash.0.to_le_bytes());
    assert!(imitations.count() > 10);
    let read = Pages::new(&bytes, AT, LIFE, seal());
    assert_eq!(read.find_crossing(hash, b"sought", window), Some(within as usize));
}
