//! Walks index and memory of a whole table and checks their consistency.

use crate::{
    chain,
    counts::Counts,
    item::ItemState,
    mode::Mode,
    settled::key_of,
    store::{Engine, Writing},
};
use minos_sync::Access;
use std::collections::{HashMap, HashSet};

impl<M: Mode, A: Access> Engine<M, A> {
    /// Checks that every linked item has memory of its own that is large enough, lies in the chain of its hash,
    /// and is counted; and that all allocated memory is accounted for. For tests: it stops all writers.
    ///
    /// # Errors
    /// The inconsistency found.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let mut writings: Vec<_> = (0..self.partitions()).map(|number| self.writing_at(number)).collect();
        writings.iter_mut().for_each(M::settle_all);
        let rooms = M::check(self, &writings)?;
        let mut items = HashSet::new();
        writings.iter().try_for_each(|writing| check_partition(writing, &rooms, &mut items))
    }
}

fn check_partition<M: Mode, A: Access>(
    writing: &Writing<'_, M, A>,
    rooms: &HashMap<u64, u64>,
    items: &mut HashSet<u64>,
) -> Result<(), String> {
    let (region, index) = (writing.region(), &writing.partition.index);
    let counts = Counts::default();
    for number in 0..index.buckets(region) {
        let head = index.bucket(region, number);
        for place in chain::places(region, head) {
            let slot = place.slot(region);
            if M::IS_TIERED && slot.is_on_flash() {
                counts.add_cold(slot);
            }
            let Some(item) = M::locate(&writing.partition.space, region, slot) else { continue };
            let state = ItemState::load(region, item, 0);
            let words = M::words_beside(state.key_bytes(), state.value_bytes() as u64, writing.engine);
            if rooms.get(&item.words()).is_none_or(|&room| room < words) {
                return Err(format!("item {} has no room for {words} words", item.words()));
            }
            if !items.insert(item.words()) {
                return Err(format!("item {} is linked twice", item.words()));
            }
            let hash = writing.engine.hash(key_of(writing, item));
            if writing.head(hash) != head || !slot.has_tag(hash.tag()) {
                return Err(format!("item {} is in the wrong bucket", item.words()));
            }
            counts.add(&state);
        }
    }
    let (counted, found) = (writing.partition.counts.tally(), counts.tally());
    if counted == found { Ok(()) } else { Err(format!("{counted:?} counted, {found:?} found")) }
}
