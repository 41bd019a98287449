//! Growth, bounds, and the bytes of the index.

use super::{Choice, Cold, Need, Promotion, Standing, Ticket, Tiered, TieredMode, Written};
use crate::{
    chain::{self, Place},
    config::{StoreConfig, TierConfig},
    index::{BUCKET_WORDS, SLOTS},
    item::ItemMeta,
    mode::{Candidates, Lookup, Mode},
    observer::Observer,
    partition::OutOfMemory,
};
use minos_base::{FlashPlace, KeyHash, RoughLength, may_look_alike_among};
use minos_region::Backing;
use minos_sync::Crcw;
use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// A table of one partition, so that a test need not know which one.
fn config(memory_bytes: u64) -> StoreConfig {
    StoreConfig { partitions: Some(1), ..StoreConfig::new(memory_bytes) }
}

fn lossless(memory_bytes: u64) -> StoreConfig {
    let tier = TierConfig { is_lossless: true, ..TierConfig::default() };
    StoreConfig { tier, ..config(memory_bytes) }
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn place(page: u32) -> FlashPlace {
    FlashPlace { page, length: RoughLength::of(1100, 1) }
}

fn store(table: &Tiered, number: u32, bytes: usize) -> Result<u64, OutOfMemory> {
    let key = key(number);
    let value = vec![number as u8; bytes];
    table.entry(table.hash(&key), &key, 5).insert(&[&value], ItemMeta::default())
}

fn look(table: &Tiered, number: u32) -> Lookup {
    table.find_cold(table.hash(&key(number)), &key(number), 5)
}

/// The pages in which the item of a key may be.
fn pages(table: &Tiered, number: u32) -> Vec<u32> {
    match look(table, number) {
        Lookup::Cold(slots) => slots.iter().map(|slot| slot.page).collect(),
        Lookup::Hot | Lookup::Missing => Vec::new(),
    }
}

/// Copies everything that is due; the tickets, with the numbers of the keys.
fn copy_all(table: &Tiered) -> Vec<(Ticket, u32)> {
    let mut tickets = Vec::new();
    table.walk_all(0, usize::MAX, 5, |due| {
        assert_eq!(due.need, Need::Copy);
        let number = u32::from_le_bytes(*due.key.first_chunk().unwrap());
        tickets.push((due.ticket, number));
        Choice::Write(place(number + 1))
    });
    tickets
}

/// All copies reach flash, each at the page that its number gives.
fn write_all(table: &Tiered, copied: Vec<(Ticket, u32)>, page: impl Fn(u32) -> u32) {
    for (ticket, number) in copied {
        assert_eq!(table.written(&ticket, place(page(number))), Written::Linked);
    }
}

/// A table with keys up to `end`, each with a value of `bytes`.
fn hot(config: &StoreConfig, end: u32, bytes: usize) -> Tiered {
    let table = Tiered::create(config).unwrap();
    (0..end).for_each(|number| _ = store(&table, number, bytes).unwrap());
    table
}

/// As [`hot`], brought to flash, each to the page of its number, plus one.
fn cold(config: &StoreConfig, end: u32) -> Tiered {
    let table = hot(config, end, 100);
    write_all(&table, copy_all(&table), |number| number + 1);
    table
}

/// Adds records of keys, each in the page of its number, plus one.
fn adopt(table: &Tiered, numbers: Range<u32>) {
    for number in numbers {
        table.adopt(table.hash(&key(number)), place(number + 1), u64::from(number) + 1).unwrap();
    }
}

fn adopted(memory_bytes: u64, items: u32) -> Tiered {
    let table = Tiered::create(&config(memory_bytes)).unwrap();
    adopt(&table, 0..items);
    table
}

/// Where the records of a key may be, which is on flash.
fn seen(table: &Tiered, number: u32) -> Candidates {
    let Lookup::Cold(seen) = look(table, number) else { panic!("not cold") };
    seen
}

#[test]
fn an_item_on_flash_takes_less_than_eleven_bytes_of_the_index() {
    // Between powers of two, where some buckets are split and others are not.
    for items in [400_000, 500_000, 600_000, 700_000] {
        // The index has its size already when memory is full for the first time.
        let table = hot(&config(64 << 20), 50_000, 8);
        adopt(&table, 50_000..items);
        let (region, index) = (table.memory().region(), table.partitions[0].index);
        let buckets = index.buckets(region);
        let lines = |number| chain::buckets(region, index.bucket(region, number)).count();
        let lines: usize = (0..buckets).map(lines).sum();
        let bytes = (lines * BUCKET_WORDS * 8) as f64 / f64::from(items);
        println!("{items} items: {bytes:.2} B of index an item, {buckets} buckets");
        assert!(bytes <= 11.0, "{bytes}");
    }
}

#[test]
fn what_memory_has_stands_in_the_first_buckets() {
    // New ones, those that came back, and those whose chains were split.
    let table = adopted(64 << 20, 20_000);
    for number in 0..2000 {
        store(&table, 1_000_000 + number, 8).unwrap();
        adopt(&table, 20_000 + 16 * number..20_016 + 16 * number);
    }
    for number in 0..1000 {
        let seen = seen(&table, number);
        let record =
            Cold { slot: seen[0], seen: &seen, sequence: 1, value: b"value", meta: ItemMeta::default() };
        assert_eq!(
            table.promote(table.hash(&key(number)), &key(number), &record, 5),
            Ok(Promotion::Promoted)
        );
    }
    let (region, index) = (table.memory().region(), table.partitions[0].index);
    let is_cold = |place: Place| place.slot(region).is_on_flash();
    let mut hot = 0;
    for number in 0..index.buckets(region) {
        let head = index.bucket(region, number);
        hot += chain::places(region, head).filter(|&place| !is_cold(place)).count();
        if chain::places(region, head).take(SLOTS).any(is_cold) {
            assert!(chain::places(region, head).skip(SLOTS).all(is_cold), "bucket {number}");
        }
    }
    assert_eq!(hot, 3000);
    table.check().unwrap();
}

#[test]
fn an_index_grows_by_eight_doublings_without_reading_the_device() {
    let items = 300_000;
    let table = adopted(64 << 20, items);
    let stats = table.stats();
    assert_eq!(stats.buckets, 64 << 8, "from 64 buckets");
    assert!(table.tier_stats().unsplit > 0);
    for number in 0..items {
        assert!(pages(&table, number).contains(&(number + 1)), "{number}");
    }
    table.check().unwrap();
}

#[test]
fn an_item_that_comes_back_and_leaves_unchanged_is_not_written_again() {
    let table = cold(&config(4 << 20), 1000);
    assert_eq!((table.stats().items, table.tier_stats().cold), (0, 1000));
    let (hash, key) = (table.hash(&key(7)), key(7));
    let seen = seen(&table, 7);
    let meta = ItemMeta { cas: Some(77), flags: 3, ..ItemMeta::default() };
    let record = Cold { slot: seen[0], seen: &seen, sequence: 9, value: b"value", meta };
    assert_eq!(table.promote(hash, &key, &record, 5), Ok(Promotion::Promoted));
    assert_eq!(table.promote(hash, &key, &record, 5), Ok(Promotion::Present));
    assert_eq!(look(&table, 7), Lookup::Hot);
    assert_eq!(table.standing(hash, 8), Standing::Named);
    assert_eq!(table.read(hash, &key, 5, |item| (item.cas(), item.flags())), Some((77, 3)));
    assert!(copy_all(&table).is_empty());
    assert_eq!((pages(&table, 7), table.tier_stats().put_back), (vec![8], 1));
    assert!(table.take_tombstones(0, 9).list.is_empty());
    table.check().unwrap();
}

#[test]
fn an_item_that_changes_parts_from_its_record() {
    let table = cold(&config(4 << 20), 10);
    let (hash, key) = (table.hash(&key(7)), key(7));
    let seen = seen(&table, 7);
    let record = Cold { slot: seen[0], seen: &seen, sequence: 9, value: b"value", meta: ItemMeta::default() };
    table.promote(hash, &key, &record, 5).unwrap();
    table.entry(hash, &key, 5).mark_fetched(6);
    assert_eq!((table.standing(hash, 8), table.take_tombstones(0, 9).list.len()), (Standing::Read, 0));
    table.entry(hash, &key, 5).set_expiry(50);
    let tombstones = table.take_tombstones(0, 9).list;
    assert_eq!(tombstones.iter().map(|due| (due.hash, due.place)).collect::<Vec<_>>(), [(hash, place(8))]);
    assert_eq!(table.standing(hash, 8), Standing::Dead);
    assert_eq!(copy_all(&table).len(), 1);
}

#[test]
fn an_item_with_a_copy_stays_in_memory_until_its_room_is_needed() {
    let table = hot(&config(4 << 20), 3, 100);
    let copy_new = || {
        let mut due = Vec::new();
        table.copy_new(0, 100, 5, |item| {
            due.push(item.ticket);
            Choice::Write(place(due.len() as u32))
        });
        due
    };
    for (at, ticket) in copy_new().iter().enumerate() {
        assert_eq!(table.written(ticket, place(at as u32 + 1)), Written::Linked);
    }
    assert!((0..3).all(|number| look(&table, number) == Lookup::Hot));
    // What changes is due again, and only that.
    store(&table, 1, 100).unwrap();
    let again = copy_new();
    assert_eq!((again.len(), copy_new().len()), (1, 0));
    assert_eq!(table.written(&again[0], place(4)), Written::Linked);
    assert_eq!((copy_all(&table).len(), table.tier_stats().put_back), (0, 3));
    assert_eq!((pages(&table, 0), pages(&table, 1)), (vec![1], vec![4]));
    table.check().unwrap();
}

#[test]
fn a_copy_of_an_item_that_changed_meanwhile_does_not_count() {
    let table = hot(&config(4 << 20), 4, 100);
    let tickets = copy_all(&table);
    // Written over in its place, replaced by a longer one, deleted, and unchanged.
    store(&table, 0, 100).unwrap();
    store(&table, 1, 300).unwrap();
    assert!(table.entry(table.hash(&key(2)), &key(2), 5).remove());
    let result = |at: usize| table.written(&tickets[at].0, place(at as u32 + 1));
    let results = [0, 1, 2, 3].map(result);
    let lost = Written::Superseded;
    assert_eq!(results, [lost, lost, lost, Written::Linked]);
    assert_eq!(table.take_tombstones(0, 9).list.len(), 3);
    assert_eq!([0, 1, 2].map(|number| look(&table, number)), [Lookup::Hot, Lookup::Hot, Lookup::Missing]);
    // The one that was written over lies behind the walk, and is due again.
    let again: Vec<_> = copy_all(&table).into_iter().map(|(_, number)| number).collect();
    assert_eq!(again, [0, 1]);
    table.check().unwrap();
}

#[test]
fn a_store_over_a_key_on_flash_reads_nothing_and_loses_nobody() {
    let all = StoreConfig { hash_mask: 0xffff_ffc0_0000_0000, ..lossless(4 << 20) };
    let table = cold(&all, 3);
    store(&table, 1, 50).unwrap();
    assert_eq!(look(&table, 1), Lookup::Hot);
    assert_eq!((pages(&table, 0), pages(&table, 2)), (vec![1, 2, 3], vec![1, 2, 3]));
    // It hides records that may be its own: after a power loss they must stay dead.
    let tombstones = table.take_tombstones(0, 9).list;
    assert!(tombstones.iter().all(|due| due.hash == table.hash(&key(1)) && !due.is_forgotten));
    assert_eq!(tombstones.len(), 3);
    // Deleted, it stays as long as one of them may be its own.
    let (hash, key) = (table.hash(&key(1)), key(1));
    assert!(table.entry(hash, &key, 5).remove());
    assert_eq!(look(&table, 1), Lookup::Missing);
    let mut doubts = None;
    table.walk_all(0, 9, 5, |due| {
        doubts = Some((due.need, due.doubts.clone()));
        Choice::Later
    });
    let (need, seen) = doubts.unwrap();
    assert_eq!((need, seen.len()), (Need::Resolution, 3));
    assert!(table.drop_cold(hash, seen[1], Some(1)) && !table.drop_cold(hash, seen[1], None));
    assert!(table.resolve(hash, &key, &seen, 5));
    assert_eq!((table.stats().items, pages(&table, 0)), (0, vec![1, 3]));
    table.check().unwrap();
}

#[test]
fn a_cache_whose_flash_is_behind_gives_items_up_and_counts_them() {
    let table = hot(&config(1 << 20), 10_000, 500);
    let (stats, tier) = (table.stats(), table.tier_stats());
    assert_eq!(stats.items + tier.unwritten, 10_000);
    assert_eq!((stats.evictions_log, tier.written), (tier.unwritten, 0));
    table.check().unwrap();
}

#[derive(Debug, Default)]
struct Told {
    keys: Mutex<BTreeSet<u32>>,
    hashes: Mutex<Vec<KeyHash>>,
    alike: Mutex<Vec<(u32, KeyHash)>>,
    unknown: AtomicBool,
}

impl Observer for Told {
    fn changed(&self, _: KeyHash, key: &[u8]) {
        self.keys.lock().unwrap().insert(u32::from_le_bytes(*key.first_chunk().unwrap()));
    }

    fn gone(&self, hash: KeyHash, key: &[u8]) {
        self.changed(hash, key);
    }

    fn flushed(&self) {
        unreachable!("nobody flushes")
    }

    fn lost(&self, hash: KeyHash) {
        self.hashes.lock().unwrap().push(hash);
    }

    fn lost_alike(&self, buckets: u32, hash: KeyHash) {
        self.alike.lock().unwrap().push((buckets, hash));
    }

    fn lost_some(&self) {
        self.unknown.store(true, Relaxed);
    }
}

fn observe(table: &Tiered) -> Arc<Told> {
    let told = Arc::new(Told::default());
    let observer: Arc<dyn Observer> = Arc::clone(&told) as Arc<dyn Observer>;
    table.observe(Some(&observer));
    told
}

#[test]
fn items_that_flash_does_not_take_are_told_by_their_keys() {
    let table = hot(&config(1 << 20), 1000, 500);
    let told = observe(&table);
    (1000..10_000).for_each(|number| _ = store(&table, number, 500).unwrap());
    let told = std::mem::take(&mut *told.keys.lock().unwrap());
    let gone: Vec<_> = (0..10_000).filter(|&number| look(&table, number) == Lookup::Missing).collect();
    assert!(gone.len() > 5000, "the control: {}", gone.len());
    assert!(gone.iter().all(|number| told.contains(number)));
}

#[test]
fn records_that_flash_drops_are_told_by_their_hashes() {
    let table = cold(&config(4 << 20), 4);
    let told = observe(&table);
    let hashes = [0, 1, 2, 3].map(|number| table.hash(&key(number)));
    assert!(table.move_cold(hashes[0], 1, place(100)));
    assert_eq!(*told.hashes.lock().unwrap(), [], "it is only elsewhere");
    assert!(table.forget_cold(hashes[1], 2) && !table.forget_cold(hashes[1], 2));
    assert_eq!(std::mem::take(&mut *told.hashes.lock().unwrap()), [hashes[1]]);
    assert!(!told.unknown.load(Relaxed));
    table.forget_pages(0, 0, usize::MAX, |page| page == 3);
    assert!(told.unknown.load(Relaxed) && told.hashes.lock().unwrap().is_empty());
}

#[test]
fn records_that_make_room_for_keys_that_look_alike_are_told_by_those() {
    let table = cold(&config(4 << 20), 2000);
    let told = observe(&table);
    let own = table.hash(&key(5000));
    // Without partitions, nothing is chosen by these bits.
    let other = KeyHash(own.0 ^ 1 << 50);
    table.adopt(other, place(9000), 9).unwrap();
    assert_eq!(*told.alike.lock().unwrap(), [], "nothing is lost");
    store(&table, 5000, 10).unwrap();
    let told = std::mem::take(&mut *told.alike.lock().unwrap());
    let &[(buckets, hash)] = &told[..] else { panic!("{told:?}") };
    assert!(hash == own && buckets >= 64 && may_look_alike_among(buckets, own, other));
    let others = (0..2000).filter(|&number| may_look_alike_among(buckets, own, table.hash(&key(number))));
    assert_eq!(others.count(), 0, "the control: few look alike");
}

#[test]
fn a_table_that_may_lose_nothing_refuses_until_flash_has_caught_up() {
    let table = Tiered::create(&lossless(1 << 20)).unwrap();
    let stored = (0..10_000).take_while(|&number| store(&table, number, 500).is_ok()).count() as u32;
    assert!((500..10_000).contains(&stored), "{stored}");
    assert!((0..stored).all(|number| look(&table, number) == Lookup::Hot));
    write_all(&table, copy_all(&table), |number| number + 1);
    assert!((stored..stored + 500).all(|number| store(&table, number, 500).is_ok()));
    assert!((0..stored).all(|number| pages(&table, number) == [number + 1]));
    table.check().unwrap();
}

#[test]
fn copies_on_their_way_are_bounded() {
    let tier = TierConfig { tickets_max: 10, ..TierConfig::default() };
    let table = hot(&StoreConfig { tier, ..config(4 << 20) }, 50, 100);
    let tickets = copy_all(&table);
    assert_eq!((tickets.len(), copy_all(&table).len()), (10, 0));
    table.written(&tickets[0].0, place(1));
    assert_eq!(copy_all(&table).len(), 1);
}

#[test]
fn tombstones_are_bounded() {
    let bounded = |is_lossless| {
        let tier = TierConfig { is_lossless, tombstones_max: 5, ..TierConfig::default() };
        cold(&StoreConfig { tier, ..config(4 << 20) }, 20)
    };
    let cache = bounded(false);
    assert!((0..20).all(|number| store(&cache, number, 10).is_ok()));
    assert_eq!((cache.tier_stats().tombstones_waiting, cache.tier_stats().tombstones_lost), (5, 15));
    let due = cache.take_tombstones(0, 3);
    assert_eq!((due.list.len(), due.areas.len()), (3, 1));
    assert_eq!(due.areas[0], 0..4096);
    assert!(cache.take_tombstones(0, 9).areas.is_empty());
    let durable = bounded(true);
    let stored = (0..20).map(|number| store(&durable, number, 10));
    assert_eq!(stored.filter(Result::is_ok).count(), 5);
    durable.take_tombstones(0, 9);
    assert!(store(&durable, 10, 10).is_ok());
}

#[test]
fn a_flush_and_an_expiry_hold_for_records_too() {
    let table = cold(&config(4 << 20), 3);
    let promoted = |number: u32, sequence, expiry| {
        let (hash, key) = (table.hash(&key(number)), key(number));
        let Lookup::Cold(seen) = look(&table, number) else { return Ok(Promotion::Present) };
        let meta = ItemMeta { expiry, ..ItemMeta::default() };
        table.promote(hash, &key, &Cold { slot: seen[0], seen: &seen, sequence, value: b"", meta }, 5)
    };
    assert_eq!(promoted(0, 1, 5), Ok(Promotion::Dead));
    assert_eq!(look(&table, 0), Lookup::Missing);
    table.flush();
    assert_eq!(promoted(1, table.flushed_up_to(0), 0), Ok(Promotion::Dead));
    assert_eq!(promoted(2, table.flushed_up_to(0) + 1, 0), Ok(Promotion::Promoted));
    table.check().unwrap();
}

#[test]
fn compaction_moves_and_forgets_records_wherever_they_are_named() {
    let table = cold(&config(4 << 20), 3);
    let hashes = [0, 1, 2].map(|number| table.hash(&key(number)));
    let seen = seen(&table, 1);
    let record = Cold { slot: seen[0], seen: &seen, sequence: 9, value: b"", meta: ItemMeta::default() };
    table.promote(hashes[1], &key(1), &record, 5).unwrap();
    for at in [0, 1] {
        assert!(table.move_cold(hashes[at], at as u32 + 1, place(at as u32 + 100)));
        assert!(!table.move_cold(hashes[at], at as u32 + 1, place(999)));
    }
    assert_eq!((pages(&table, 0), table.standing(hashes[1], 101)), (vec![100], Standing::Named));
    assert!(table.forget_cold(hashes[2], 3) && !table.forget_cold(hashes[2], 3));
    assert_eq!(table.forget_pages(0, 0, usize::MAX, |page| page >= 100).1, None);
    assert_eq!((look(&table, 0), look(&table, 1)), (Lookup::Missing, Lookup::Hot));
    assert_eq!(table.standing(hashes[1], 101), Standing::Dead);
    assert_eq!(table.tier_stats().cold, 0);
    table.check().unwrap();
}

/// Compaction brings two records of a key into one page if the older one is still named.
#[test]
fn records_of_one_key_in_one_page_are_named_once_they_are_moved() {
    let both_in_one_page = || {
        let table = Tiered::create(&lossless(1 << 20)).unwrap();
        let hash = table.hash(&key(7));
        for (page, sequence) in [(8, 5), (9, 6)] {
            table.adopt(hash, place(page), sequence).unwrap();
            assert!(table.move_cold(hash, page, place(50)));
        }
        assert_eq!(pages(&table, 7), [50, 50]);
        (table, hash)
    };
    let (table, hash) = both_in_one_page();
    assert!(table.move_cold(hash, 50, place(60)));
    assert_eq!(pages(&table, 7), [60]);
    // Memory takes the newer one, and names it: the older one's slot is not what counts.
    let (table, hash) = both_in_one_page();
    let seen = seen(&table, 7);
    let cold = Cold { slot: seen[0], seen: &seen, sequence: 6, value: &[7; 100], meta: ItemMeta::default() };
    assert_eq!(table.promote(hash, &key(7), &cold, 5), Ok(Promotion::Promoted));
    assert_eq!(table.standing(hash, 50), Standing::Named);
}

#[test]
fn a_cache_names_one_record_of_a_key_whatever_is_dropped_first() {
    let table = cold(&config(4 << 20), 3);
    store(&table, 1, 100).unwrap();
    let due = table.take_tombstones(0, 9).list;
    assert_eq!(due.iter().map(|due| (due.place.page, due.is_forgotten)).collect::<Vec<_>>(), [(2, true)]);
    write_all(&table, copy_all(&table), |_| 50);
    assert_eq!(pages(&table, 1), [50]);
    assert!(table.forget_cold(table.hash(&key(1)), 50));
    assert_eq!((look(&table, 1), pages(&table, 0)), (Lookup::Missing, vec![1]));
    table.check().unwrap();
}

#[test]
fn a_record_of_a_store_that_may_uncover_an_older_one_is_needed() {
    let table = cold(&lossless(4 << 20), 3);
    let hash = table.hash(&key(1));
    assert!(table.uncovers_nothing(hash, 2));
    store(&table, 1, 100).unwrap();
    assert!(table.uncovers_nothing(hash, 2), "the item hides it");
    write_all(&table, copy_all(&table), |_| 50);
    assert_eq!(pages(&table, 1), [2, 50]);
    assert!(!table.uncovers_nothing(hash, 50));
    let seen = seen(&table, 1);
    assert!(table.drop_cold(hash, seen[0], Some(1)));
    assert!(table.uncovers_nothing(hash, 50));
}

#[test]
fn slots_on_flash_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let backing = Backing::File(folder.path().join("region"));
    let config = StoreConfig { backing, ..config(4 << 20) };
    let (table, _) = Tiered::<Crcw>::open(&config).unwrap();
    adopt(&table, 0..10);
    let hashes: Vec<KeyHash> = (0..10).map(|number| table.hash(&key(number))).collect();
    table.close().unwrap();
    let (table, opening) = Tiered::<Crcw>::open(&config).unwrap();
    assert_eq!(opening, crate::Opening::Warm { items: 0 });
    assert!((0..10).all(|number| table.standing(hashes[number], number as u32 + 1) == Standing::Named));
    table.check().unwrap();
}

#[test]
fn a_repair_uncovers_no_record_that_was_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let backing = Backing::File(folder.path().join("region"));
    let config = StoreConfig { backing, value_bytes_max: 1 << 20, ..config(1 << 20) };
    let (table, _) = Tiered::<Crcw>::open(&config).unwrap();
    adopt(&table, 0..3);
    // The newer value is evicted, and its item hides the record.
    store(&table, 0, 250_000).unwrap();
    store(&table, 1, 600_000).unwrap();
    assert_eq!((table.stats().evictions_large, pages(&table, 0)), (1, vec![]));
    // Not closed.
    drop(table);
    let (table, opening) = Tiered::<Crcw>::open(&config).unwrap();
    assert_eq!(opening, crate::Opening::Repaired { items: 1, dropped: 0 });
    assert_eq!([pages(&table, 0), pages(&table, 2)], [vec![], vec![3]]);
    table.check().unwrap();
}

/// Slots do not tell keys apart.
#[test]
fn a_repair_keeps_the_records_of_keys_that_look_like_those_of_flushed_items() {
    const KEYS: u32 = 200;
    let folder = tempfile::tempdir().unwrap();
    let backing = Backing::File(folder.path().join("region"));
    let hash_mask = 0xffff_ffc0_0003_00ff;
    let config = StoreConfig { backing, hash_mask, ..lossless(1 << 20) };
    let (table, _) = Tiered::<Crcw>::open(&config).unwrap();
    (0..KEYS).for_each(|number| _ = store(&table, number, 100).unwrap());
    table.flush();
    let newer = table.flushed_up_to(0) + 1;
    let hashes: Vec<KeyHash> = (KEYS..2 * KEYS).map(|number| table.hash(&key(number))).collect();
    for (number, &hash) in hashes.iter().enumerate() {
        table.adopt(hash, place(number as u32 + 1), newer + number as u64).unwrap();
    }
    // Not closed.
    drop(table);
    let (table, opening) = Tiered::<Crcw>::open(&config).unwrap();
    assert_eq!(opening, crate::Opening::Repaired { items: 0, dropped: 0 });
    let is_named =
        |(number, &hash): (usize, &KeyHash)| table.standing(hash, number as u32 + 1) == Standing::Named;
    assert_eq!(hashes.iter().enumerate().filter(|&entry| is_named(entry)).count(), KEYS as usize);
    table.check().unwrap();
}

#[test]
fn a_large_value_that_finds_no_place_is_freed_once() {
    // All keys of a partition are in one bucket, which is full.
    let config = StoreConfig {
        partitions: Some(2),
        hash_mask: 1 << 63 | 0xffff,
        chain_buckets_max: 1,
        value_bytes_max: 500_000,
        ..StoreConfig::new(1 << 20)
    };
    let table = Tiered::<Crcw>::create(&config).unwrap();
    let partition = |number: u32| table.hash(&key(number)).0 >> 63;
    let full: Vec<u32> = (0..).filter(|&number| partition(number) == 0).take(8).collect();
    assert!(full[..7].iter().all(|&number| store(&table, number, 10).is_ok()));
    let other = (0..).find(|&number| partition(number) == 1).unwrap();
    // Memory has room for one of the two, so that each evicts the other.
    let mut refused = 0;
    thread::scope(|scope| {
        let fails = || (0..3000).for_each(|_| refused += u32::from(store(&table, full[7], 480_000).is_err()));
        let threads =
            [scope.spawn(fails), scope.spawn(|| (0..3000).for_each(|_| _ = store(&table, other, 480_000)))];
        // ThreadSanitizer does not see how handles that were dropped are handed over.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    store(&table, other, 480_000).unwrap();
    assert_eq!((refused, table.stats().items), (3000, 8));
    table.check().unwrap();
}

#[test]
fn a_large_value_that_just_does_not_fit_is_made_room_for() {
    let table = Tiered::create(&lossless(8 << 20)).unwrap();
    let mut number = 0;
    while table.stats().largest_free_bytes > 1 << 20 {
        number += 1;
        store(&table, number, 64 << 10).unwrap();
    }
    // Its mark and its words are as long as the largest chunk, which has a word beside them.
    let bytes = table.stats().largest_free_bytes as usize - 8;
    assert!(store(&table, 0, bytes).is_err());
    let mut due = 0;
    table.walk_ahead(0, usize::MAX, 5, |_| {
        due += 1;
        Choice::Later
    });
    assert_eq!(due, 1, "nothing leaves memory for it");
}

/// A table with one large item, which has the same record in page 1.
fn large_and_clean() -> Tiered {
    let table = Tiered::create(&StoreConfig { value_bytes_max: 1 << 20, ..config(1 << 20) }).unwrap();
    table.adopt(table.hash(&key(0)), place(1), 1).unwrap();
    promote_large(&table);
    assert_eq!(look(&table, 0), Lookup::Hot);
    table
}

fn promote_large(table: &Tiered) {
    let seen = seen(table, 0);
    let (value, meta) = (vec![5; 250_000], ItemMeta::default());
    let record = Cold { slot: seen[0], seen: &seen, sequence: 1, value: &value, meta };
    assert_eq!(table.promote(table.hash(&key(0)), &key(0), &record, 5), Ok(Promotion::Promoted));
}

#[test]
fn an_item_whose_large_value_was_evicted_is_read_from_its_record() {
    let table = large_and_clean();
    store(&table, 1, 600_000).unwrap();
    assert_eq!(table.stats().evictions_large, 1);
    assert_eq!(pages(&table, 0), [1]);
    promote_large(&table);
    assert_eq!((look(&table, 0), table.take_tombstones(0, 9).list.len()), (Lookup::Hot, 0));
    table.check().unwrap();
}

#[test]
fn an_item_whose_large_value_was_evicted_keeps_its_record_whoever_comes_by() {
    let comes_by: [fn(&Tiered); 3] = [
        |table| assert_eq!(table.entry(table.hash(&key(0)), &key(0), 5).candidates().len(), 1),
        |table| assert!(table.sweep(0, usize::MAX, 5).pass_ended),
        |table| assert_eq!(copy_all(table).len(), 1),
    ];
    for come_by in comes_by {
        let table = large_and_clean();
        store(&table, 1, 600_000).unwrap();
        come_by(&table);
        assert_eq!((pages(&table, 0), table.tier_stats().cold), (vec![1], 1));
        assert!(table.take_tombstones(0, 9).list.is_empty());
        table.check().unwrap();
    }
}

#[test]
fn large_values_that_need_room_leave_alone() {
    const SMALL: Range<u32> = 0..2000;
    for config in [config(16 << 20), lossless(16 << 20)] {
        let table = hot(&config, SMALL.end, 1000);
        // Four times the memory.
        for number in SMALL.end..SMALL.end + 640 {
            while store(&table, number, 100_000).is_err() || table.common.wants_room(table.memory()) {
                let mut copied = Vec::new();
                let walked = table.walk_ahead(0, 64, 5, |due| {
                    let number = u32::from_le_bytes(*due.key.first_chunk().unwrap());
                    copied.push((due.ticket, number));
                    Choice::Write(place(number + 1))
                });
                write_all(&table, copied, |number| number + 1);
                if walked.is_done && look(&table, number) != Lookup::Missing {
                    break;
                }
            }
        }
        let is_hot = |&number: &u32| look(&table, number) == Lookup::Hot;
        let hot = SMALL.filter(is_hot).count();
        assert_eq!(hot, SMALL.len(), "a large value costs no small ones");
        let large_on_flash = (SMALL.end..SMALL.end + 640).filter(|&number| !pages(&table, number).is_empty());
        assert!(large_on_flash.count() > 480);
    }
}

/// Writes what is due for a walk ahead; how many items.
fn write_ahead(table: &Tiered) -> usize {
    let mut copied = Vec::new();
    table.walk_ahead(0, usize::MAX, 5, |due| {
        let number = u32::from_le_bytes(*due.key.first_chunk().unwrap());
        copied.push((due.ticket, number));
        Choice::Write(place(number + 1))
    });
    let written = copied.len();
    write_all(table, copied, |number| number + 1);
    written
}

/// Before the fix, it was given up although its copy was on its way.
#[test]
fn what_is_on_its_way_when_it_must_leave_is_there_when_it_is_written() {
    let table = hot(&config(4 << 20), 100, 1000);
    let copied = copy_all(&table);
    // They must leave before that is written.
    (100..10_000).for_each(|number| _ = store(&table, number, 1000).unwrap());
    let unwritten = || table.tier_stats().unwritten;
    let (before, tickets) = (unwritten(), table.tier_stats().tickets);
    assert!(before > 0 && tickets == 100, "{:?}", table.tier_stats());
    assert!((0..100).all(|number| pages(&table, number) == [number + 1]));
    let hash = |number| table.hash(&key(number));
    assert!(table.awaits(hash(5), 6) && !table.awaits(hash(100), 101));
    // One was overwritten since, one deleted, and one write fails.
    store(&table, 0, 1000).unwrap();
    TieredMode::forget_candidates(&mut table.entry(hash(1), &key(1), 5));
    for (ticket, number) in copied {
        match number {
            0 | 1 => assert_eq!(table.written(&ticket, place(number + 1)), Written::Superseded),
            2 => assert!(table.failed(&ticket, place(3))),
            _ => assert_eq!(table.written(&ticket, place(number + 1)), Written::Linked),
        }
    }
    assert_eq!((look(&table, 0), look(&table, 1)), (Lookup::Hot, Lookup::Missing));
    assert_eq!((look(&table, 2), unwritten()), (Lookup::Missing, before + 1));
    assert!((3..100).all(|number| pages(&table, number) == [number + 1]));
    assert!(!table.awaits(hash(5), 6) && table.tier_stats().tickets == 0);
    table.check().unwrap();
}

#[test]
fn large_values_leave_below_a_lower_limit() {
    // There is free memory that the limit forbids.
    let table = hot(&lossless(32 << 20), 100, 100_000);
    assert!(table.set_memory_limit(8 << 20));
    assert!(TieredMode::lacks_room(&table, 100_000));
    for number in 100..110 {
        let mut tries = 0..10;
        while store(&table, number, 100_000).is_err() {
            assert!(tries.next().is_some(), "nothing leaves memory for it: {:?}", table.stats());
            write_ahead(&table);
        }
    }
    assert!(table.stats().used_bytes <= 8 << 20, "{:?}", table.stats());
    table.check().unwrap();
}

#[test]
fn nothing_is_lost_below_a_lower_limit() {
    for config in [config(32 << 20), lossless(32 << 20)] {
        // So many that the log does not evict yet.
        let table = hot(&config, 20_000, 1000);
        assert!(table.set_memory_limit(16 << 20));
        for _ in 0..200 {
            // Flash is slower than sweeps.
            (0..10).for_each(|_| _ = table.sweep(0, 16, 5));
            write_ahead(&table);
        }
        assert!(table.stats().used_bytes <= 16 << 20, "{:?}", table.stats());
        assert_eq!((table.tier_stats().unwritten, table.stats().evictions()), (0, 0));
        assert!((0..20_000).all(|number| look(&table, number) != Lookup::Missing));
        table.check().unwrap();
    }
}

#[test]
fn nothing_waits_below_a_lower_limit_for_flash_that_takes_nothing() {
    for config in [config(32 << 20), lossless(32 << 20)] {
        let table = hot(&config, 20_000, 1000);
        assert!(table.set_memory_limit(16 << 20));
        table.set_flash_stuck(true);
        let gives_back = (0..200).take_while(|_| table.sweep(0, 16, 5).gives_back).count();
        assert!(gives_back < 200);
        assert_eq!(table.stats().used_bytes <= 16 << 20, !config.tier.is_lossless, "{:?}", table.stats());
        table.set_flash_stuck(false);
        assert_eq!(table.sweep(0, 16, 5).gives_back, config.tier.is_lossless);
        table.check().unwrap();
    }
}

#[test]
fn an_index_that_expects_records_grows_before_they_are_adopted() {
    let items = 300_000;
    let table = Tiered::create(&config(64 << 20)).unwrap();
    table.expect_cold(u64::from(items));
    adopt(&table, 0..items);
    assert_eq!(table.tier_stats().unsplit, 0);
    assert!(table.stats().chain_buckets_max < 8, "{:?}", table.stats());
    assert!((0..items).all(|number| pages(&table, number).contains(&(number + 1))));
    table.check().unwrap();
}

#[test]
fn an_index_without_slots_on_flash_grows_without_a_bound() {
    let table = adopted(64 << 20, 280_000);
    assert!(table.tier_stats().unsplit > 0);
    assert_eq!(table.forget_pages(0, 0, usize::MAX, |_| true).1, None);
    let before = table.tier_stats().unsplit;
    adopt(&table, 0..300_000);
    assert_eq!(table.tier_stats().unsplit, before);
    assert!((0..300_000).all(|number| pages(&table, number).contains(&(number + 1))));
    table.check().unwrap();
}

#[test]
fn a_ninth_record_of_equal_hash_bits_is_counted() {
    let all = StoreConfig { hash_mask: 0xffff_ffc0_0000_0000, ..lossless(4 << 20) };
    let table: Tiered = Tiered::create(&all).unwrap();
    let adopt = |number| table.adopt(table.hash(&key(number)), place(number + 1), 1);
    assert!((0..8).all(|number| adopt(number).is_ok()));
    assert_eq!((adopt(8), table.tier_stats().unadopted), (Err(OutOfMemory), 1));
}

#[test]
fn records_on_flash_are_counted_with_their_bytes() {
    let table = cold(&config(4 << 20), 10);
    let bytes = place(1).length.bytes_typical();
    let counted = || (table.stats().cold_items, table.stats().cold_bytes);
    assert_eq!((counted(), table.stats().items), ((10, 10 * bytes), 0));
    let longer = RoughLength::of(3000, 1);
    assert!(table.move_cold(table.hash(&key(1)), 2, FlashPlace { page: 90, length: longer }));
    assert!(table.forget_cold(table.hash(&key(2)), 3));
    assert_eq!(counted(), (9, 8 * bytes + longer.bytes_typical()));
}

#[test]
fn a_longer_chain_takes_its_memory_from_the_log() {
    const ITEMS: u32 = 12_000;
    for config in [config(1 << 20), lossless(1 << 20)] {
        let table = Tiered::create(&StoreConfig { partitions: Some(2), ..config }).unwrap();
        for number in 0..ITEMS {
            let mut copied = Vec::new();
            for partition in 0..2 {
                table.walk_ahead(partition, 64, 5, |due| {
                    let number = u32::from_le_bytes(*due.key.first_chunk().unwrap());
                    copied.push((due.ticket, number));
                    Choice::Write(place(number + 1))
                });
            }
            write_all(&table, copied, |number| number + 1);
            let stored = store(&table, number, 100 + number as usize * 37 % 900);
            assert!(stored.is_ok(), "{number}: {:?}", table.stats());
        }
        table.check().unwrap();
    }
}
