//! Extents checked against an ordered list and its readers.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// Words of a chunk.
const WORDS: u64 = 512;

fn chunk(number: u64) -> Offset {
    Offset::from_words(WORDS * number)
}

fn zone_of(number: u64) -> Zone {
    Zone::ALL[number as usize % 2]
}

/// The chunks that are in use, those that only wait for their last reader too.
fn chunks(extents: &Extents) -> impl Iterator<Item = Offset> {
    extents.slots.iter().filter(|slot| slot.state != State::Free).map(|slot| slot.chunk)
}

#[test]
fn the_oldest_goes_first_unless_it_is_pinned_or_elsewhere() {
    let mut extents = Extents::default();
    let ids: Vec<_> =
        (0..6).map(|number| extents.insert((chunk(number), WORDS), zone_of(number), 100 + number)).collect();
    let pin = extents.pin(ids[0]).unwrap();
    assert_eq!(pin.chunk(), chunk(0));
    assert_eq!(extents.evict_oldest(&[Zone::Reserve]), Some((chunk(2), 102)));
    assert!(extents.chunk(ids[2]).is_none() && extents.pin(ids[2]).is_none());
    assert_eq!(extents.evict_oldest(&Zone::ALL), Some((chunk(1), 101)));
    assert_eq!(extents.release(ids[2]), None);
    assert_eq!(extents.unpin(&pin), None);
    let rest: Vec<_> = std::iter::from_fn(|| extents.evict_oldest(&Zone::ALL)).collect();
    assert_eq!(rest, [0, 3, 4, 5].map(|number| (chunk(number), 100 + number)));
    assert_eq!(extents.counts(), ExtentCounts { evictions: 6, ..ExtentCounts::default() });
}

#[test]
fn a_zone_is_not_searched_for_another() {
    let mut extents = Extents::default();
    (0..100).for_each(|number| _ = extents.insert((chunk(number), WORDS), Zone::Reserve, 1));
    assert_eq!((extents.evict_oldest(&[Zone::Rest]), extents.looks), (None, 0));
    let id = extents.insert((chunk(100), WORDS), Zone::Rest, 2);
    assert_eq!((extents.evict_oldest(&[Zone::Rest]), extents.looks), (Some((chunk(100), 2)), 1));
    assert!(extents.chunk(id).is_none());
}

#[test]
fn the_last_reader_frees_what_was_released() {
    let mut extents = Extents::default();
    let id = extents.insert((chunk(1), WORDS), Zone::Rest, 5000);
    let pins = [extents.pin(id).unwrap(), extents.pin(id).unwrap()];
    assert_eq!(extents.counts(), ExtentCounts { extents: 1, bytes: 5000, pinned: 1, evictions: 0 });
    assert_eq!(extents.release(id), None);
    assert_eq!(extents.counts(), ExtentCounts { pinned: 1, ..ExtentCounts::default() });
    assert!(extents.chunk(id).is_none() && extents.pin(id).is_none());
    assert_eq!((extents.release(id), extents.evict_oldest(&Zone::ALL)), (None, None));
    assert_eq!(chunks(&extents).collect::<Vec<_>>(), [chunk(1)]);
    assert_ne!(
        extents.insert((chunk(2), WORDS), Zone::Reserve, 1).to_word() >> 32,
        id.to_word() >> 32,
        "its slot is in use"
    );
    assert_eq!((extents.unpin(&pins[1]), extents.unpin(&pins[0])), (None, Some(chunk(1))));
    assert_eq!(extents.counts().pinned, 0);
}

#[test]
fn generations_come_round_without_an_id_of_zero() {
    let mut extents = Extents::default();
    let first = extents.insert((chunk(1), WORDS), Zone::Rest, 1);
    extents.slots[0].generation = u32::MAX;
    let last = ExtentId { generation: u32::MAX, ..first };
    assert_eq!(extents.release(first), None);
    assert_eq!(extents.release(last), Some(chunk(1)));
    assert_eq!(extents.insert((chunk(2), WORDS), Zone::Reserve, 1), first);
    assert_ne!(first.to_word(), 0);
    assert_eq!(ExtentId::from_word(last.to_word()), last);
    assert!([0, u64::MAX, 7 << 32].iter().all(|word| extents.chunk(ExtentId::from_word(*word)).is_none()));
}

/// Extents as an ordered list, with their readers.
#[derive(Default)]
struct Model {
    order: Vec<(ExtentId, Offset, u64)>,
    pins: Vec<ExtentPin>,
    released: HashSet<ExtentId>,
    used: HashSet<Offset>,
    gone: Vec<ExtentId>,
    evictions: u64,
}

impl Model {
    fn is_pinned(&self, id: ExtentId) -> bool {
        self.pins.iter().any(|pin| pin.id == id)
    }

    fn freed(&mut self, chunk: Offset) {
        assert!(self.used.remove(&chunk), "freed twice");
        assert!(self.pins.iter().all(|pin| pin.chunk != chunk), "freed while pinned");
    }

    fn insert(&mut self, extents: &mut Extents, number: u64, bytes: u64) {
        let id = extents.insert((chunk(number), WORDS), zone_of(number), bytes);
        assert!(!self.gone.contains(&id) && id.to_word() != 0, "an id came round");
        self.order.push((id, chunk(number), bytes));
        self.used.insert(chunk(number));
    }

    fn release(&mut self, extents: &mut Extents, choice: usize) {
        let (id, chunk, _) = self.order.remove(choice % self.order.len());
        self.gone.push(id);
        let is_pinned = self.is_pinned(id);
        assert_eq!(extents.release(id), (!is_pinned).then_some(chunk));
        if is_pinned {
            self.released.insert(id);
        } else {
            self.freed(chunk);
        }
    }

    fn unpin(&mut self, extents: &mut Extents, choice: usize) {
        let pin = self.pins.swap_remove(choice % self.pins.len());
        let is_last = !self.is_pinned(pin.id);
        let freed = extents.unpin(&pin);
        assert_eq!(freed.is_some(), is_last && self.released.contains(&pin.id));
        freed.into_iter().for_each(|chunk| self.freed(chunk));
    }

    fn evict(&mut self, extents: &mut Extents, bits: u64) {
        let zones = [&Zone::ALL[..], &[Zone::Reserve], &[Zone::Rest], &[]][bits as usize % 4];
        let suits = |chunk: Offset| zones.contains(&zone_of(chunk.words() / WORDS));
        let at = self.order.iter().position(|(id, chunk, _)| !self.is_pinned(*id) && suits(*chunk));
        let expected = at.map(|at| self.order.remove(at));
        let evicted = extents.evict_oldest(zones);
        assert_eq!(evicted, expected.map(|(_, chunk, bytes)| (chunk, bytes)), "not the oldest");
        if let Some((id, chunk, _)) = expected {
            self.gone.push(id);
            self.evictions += 1;
            self.freed(chunk);
        }
    }

    fn check(&self, extents: &Extents) {
        for (id, chunk, _) in &self.order {
            assert_eq!(extents.chunk(*id), Some(*chunk));
        }
        assert!(self.gone.iter().all(|id| extents.chunk(*id).is_none()), "found though gone");
        assert_eq!(chunks(extents).collect::<HashSet<_>>(), self.used);
        let pinned: HashSet<_> = self.pins.iter().map(|pin| pin.id).collect();
        let counts = ExtentCounts {
            extents: self.order.len() as u64,
            bytes: self.order.iter().map(|(_, _, bytes)| bytes).sum(),
            pinned: pinned.len() as u64,
            evictions: self.evictions,
        };
        assert_eq!(extents.counts(), counts);
        for zone in Zone::ALL {
            let is_evictable = |(id, chunk, _): &&(ExtentId, Offset, u64)| {
                !pinned.contains(id) && zone_of(chunk.words() / WORDS) == zone
            };
            let chunks = self.order.iter().filter(is_evictable).count() as u64;
            assert_eq!(extents.evictable(zone), Evictable { chunks, words: WORDS * chunks });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn extents_are_a_list_with_readers(steps in prop::collection::vec((0..11u8, any::<u64>()), 1..300)) {
        let (mut extents, mut model) = (Extents::default(), Model::default());
        let mut used_max = 0;
        for (number, (kind, choice)) in steps.into_iter().enumerate() {
            let at = choice as usize;
            match kind {
                0..5 => model.insert(&mut extents, number as u64, choice % 9000),
                5 if !model.order.is_empty() => model.release(&mut extents, at),
                6..8 if !model.order.is_empty() => {
                    let (id, chunk, _) = model.order[at % model.order.len()];
                    let pin = extents.pin(id).unwrap();
                    prop_assert_eq!(pin.chunk(), chunk);
                    model.pins.push(pin);
                }
                8..10 if !model.pins.is_empty() => model.unpin(&mut extents, at),
                10 => model.evict(&mut extents, choice),
                _ => {}
            }
            model.check(&extents);
            used_max = used_max.max(model.used.len());
            prop_assert_eq!(extents.slots.len(), used_max, "slots are used again");
        }
    }
}
