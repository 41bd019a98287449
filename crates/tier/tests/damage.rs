//! What is damaged while nobody serves a table, the next start tells; what a crash tears, it does not.

mod common;

use common::{Rig, SEGMENT_BYTES, device, format, key, value};
use minos_device::{Device, LaneOptions, Request};
use minos_flash::format::PAGE_BYTES;
use minos_tier::{Damage, Durability, Noted, Options};
use std::{ops::Range, time::Duration};

/// About three times what memory holds.
const KEYS: u32 = 4000;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);
const SEGMENT_PAGES: u64 = SEGMENT_BYTES as u64 / PAGE_BYTES as u64;

/// A store with so many keys, all on flash.
fn filled(device: &Device, keys: Range<u32>) -> Rig {
    let mut rig = Rig::open(device, Options::store(Durability::None)).unwrap();
    for number in keys {
        assert!(rig.put(&key(number), &value(number, 0)), "{number}");
    }
    rig.sync();
    rig
}

fn table() -> Device {
    let device = device(8 << 20);
    minos_tier::format(&device, &format()).unwrap();
    device
}

/// Ends a session as a server does that stops.
fn stop(rig: Rig) {
    let Rig { tier, keeper, store, .. } = rig;
    drop((keeper, store));
    assert_eq!(tier.note_end(PATIENCE, || false).unwrap(), Noted::Whole);
}

fn open(device: &Device) -> Rig {
    Rig::open(device, Options::store(Durability::None)).unwrap()
}

/// Changes each of these pages.
fn change(device: &Device, pages: Range<u64>, change: impl Fn(&mut [u8])) {
    let mut lane = device.lane(&LaneOptions::default()).unwrap();
    for at in pages.map(|page| page * PAGE_BYTES as u64) {
        let mut read = Vec::new();
        let mut vector = vec![Request::read(0, at, lane.buffer(PAGE_BYTES).unwrap())];
        lane.submit_and_wait(&mut vector, 1, Duration::from_secs(10), &mut read).unwrap();
        let mut buffer = read.remove(0).buffer.unwrap();
        change(&mut buffer);
        let mut vector = vec![Request::write(0, at, buffer)];
        lane.submit_and_wait(&mut vector, 1, Duration::from_secs(10), &mut Vec::new()).unwrap();
    }
}

fn flip(page: &mut [u8]) {
    page[..8].iter_mut().for_each(|byte| *byte = !*byte);
    page[PAGE_BYTES - 8..].iter_mut().for_each(|byte| *byte = !*byte);
}

/// The pages of these segments.
fn pages(rig: &Rig, segments: Range<u32>) -> Range<u64> {
    let at = |segment| rig.tier.superblock().layout.segment_at(segment) / PAGE_BYTES as u64;
    at(segments.start)..at(segments.end)
}

/// Before the fix, a store began with fewer items in silence.
#[test]
fn segments_that_were_damaged_after_a_stop_are_told() {
    let changes: [fn(&mut [u8]); 2] = [|page| page.fill(0), flip];
    for changed in changes {
        let device = table();
        let rig = filled(&device, 0..KEYS);
        let damaged = pages(&rig, 3..6);
        stop(rig);
        change(&device, damaged, changed);
        let rig = open(&device);
        let expected = Damage { segments: 3, pages: 3 * SEGMENT_PAGES, items: Some(KEYS.into()) };
        assert_eq!(rig.recovered.damage, Some(expected));
        let lost = u64::from(KEYS) - rig.recovered.records;
        assert!(lost > 100, "{lost}");
        assert_eq!((rig.recovered.lost, rig.tier.stats().keeper.lost), (lost, lost));
    }
}

#[test]
fn footers_that_were_damaged_are_told_and_nothing_is_lost() {
    let device = table();
    let rig = filled(&device, 0..KEYS);
    let last = pages(&rig, 3..4).end - 1;
    stop(rig);
    change(&device, last..last + 1, flip);
    let Rig { recovered, .. } = open(&device);
    assert_eq!(recovered.damage.map(|damage| damage.segments), Some(1));
    assert_eq!((recovered.records, recovered.lost), (KEYS.into(), 0));
}

/// The segment that was open at the stop has no footers, which would name what is gone.
#[test]
fn a_page_of_an_open_segment_that_was_damaged_is_told() {
    let device = table();
    let rig = filled(&device, 0..20);
    let first = pages(&rig, 0..1).start;
    stop(rig);
    change(&device, first + 1..first + 2, flip);
    let Rig { recovered, .. } = open(&device);
    assert_eq!(recovered.damage, Some(Damage { segments: 1, pages: 1, items: Some(20) }));
    assert!(recovered.lost > 0 && recovered.lost == 20 - recovered.records, "{recovered:?}");
}

#[test]
fn nothing_is_told_of_a_table_that_is_whole() {
    let device = table();
    for session in 0..4 {
        stop(filled(&device, session * KEYS / 4..(session + 1) * KEYS / 4));
        let Rig { recovered, .. } = open(&device);
        assert_eq!((recovered.damage, recovered.lost), (None, 0), "{session}");
        assert_eq!(recovered.records, u64::from((session + 1) * KEYS / 4), "{session}");
    }
}

#[test]
fn segments_that_were_complete_before_a_kill_are_told() {
    let device = table();
    let rig = filled(&device, 0..KEYS);
    let damaged = pages(&rig, 3..6);
    drop(rig);
    change(&device, damaged, flip);
    let rig = open(&device);
    // How many items there were is not known.
    let expected = Damage { segments: 3, pages: 3 * SEGMENT_PAGES, items: None };
    assert_eq!((rig.recovered.damage, rig.recovered.lost), (Some(expected), 0));
    assert_eq!(rig.tier.stats().keeper.damaged_pages, 3 * SEGMENT_PAGES);
    assert!(rig.recovered.records < KEYS.into());
}

/// What a killed session wrote last may be torn.
#[test]
fn nothing_is_told_of_what_a_crash_tears() {
    let device = table();
    stop(filled(&device, 0..20));
    let rig = filled(&device, 20..40);
    // All but the first hold what came after the stop.
    let others = pages(&rig, 1..rig.tier.superblock().layout.segments());
    drop(rig);
    change(&device, others, flip);
    let Rig { recovered, .. } = open(&device);
    assert_eq!((recovered.damage, recovered.lost), (None, 0));
    assert!(recovered.records < 40, "{recovered:?}");
}

#[test]
fn a_stop_tells_what_was_damaged_before_it() {
    let device = table();
    let rig = filled(&device, 0..KEYS);
    let damaged = pages(&rig, 3..6);
    let Rig { tier, keeper, store, .. } = rig;
    drop((keeper, store));
    change(&device, damaged, |page| page.fill(0));
    let damage = Damage { segments: 3, pages: 3 * SEGMENT_PAGES, items: None };
    assert_eq!(tier.note_end(PATIENCE, || false).unwrap(), Noted::Damaged(damage));
}

/// The server was asked to end at once.
#[test]
fn without_a_note_the_lost_items_are_not_known() {
    let device = table();
    let rig = filled(&device, 0..KEYS);
    let damaged = pages(&rig, 3..6);
    let Rig { tier, keeper, store, .. } = rig;
    drop((keeper, store));
    assert_eq!(tier.note_end(PATIENCE, || true).unwrap(), Noted::Nothing);
    change(&device, damaged, flip);
    let Rig { recovered, .. } = open(&device);
    assert_eq!(recovered.damage.and_then(|damage| damage.items), None);
    assert_eq!(recovered.lost, 0);
    assert!(recovered.records < KEYS.into());
}
