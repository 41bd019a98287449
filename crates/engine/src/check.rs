//! Walks index and heap of a whole store and says what is wrong.

use crate::{
    chain,
    index::Index,
    item::{ItemState, item_words},
    partition::{Writer, key_of},
    stats::PartitionCounts,
    store::Store,
};
use minos_sync::SpinGuard;
use std::collections::HashMap;

/// Every linked item has a chunk of its own that is large enough, stands where its hash says, and is
/// counted; everything the heaps hand out is accounted for.
pub(crate) fn check(store: &Store) -> Result<(), String> {
    let writers: Vec<_> = store.partition_list().iter().map(|partition| partition.writer.lock()).collect();
    let heaps: Vec<_> = writers.iter().map(|writer| &writer.heap).collect();
    let used = store.memory().check(&heaps)?;
    let chunks: HashMap<_, _> = used.into_iter().map(|(chunk, words)| (chunk.words(), words)).collect();
    let mut items = HashMap::new();
    for writer in &writers {
        check_partition(store, writer, &chunks, &mut items)?;
    }
    Ok(())
}

fn check_partition(
    store: &Store,
    writer: &SpinGuard<'_, Writer>,
    chunks: &HashMap<u64, u64>,
    items: &mut HashMap<u64, ()>,
) -> Result<(), String> {
    let region = store.memory().region();
    let buckets = writer.index.buckets(region);
    let mut counts = PartitionCounts::default();
    for number in 0..buckets {
        let head = writer.index.bucket(region, number);
        for place in chain::places(region, head) {
            let slot = place.slot(region);
            let item = slot.item();
            let state = ItemState::load(region, item, 0);
            let words = item_words(state.key_bytes(), state.value_bytes() as u64);
            if chunks.get(&item.words()).is_none_or(|&chunk_words| chunk_words < words) {
                return Err(format!("item {} has no chunk of {words} words", item.words()));
            }
            if items.insert(item.words(), ()).is_some() {
                return Err(format!("item {} is linked twice", item.words()));
            }
            let hash = store.hash(key_of(store.memory(), item));
            if bucket_of(&writer.index, store, hash) != head || !slot.has_tag(hash.tag()) {
                return Err(format!("item {} is in the wrong bucket", item.words()));
            }
            counts.add(&state, slot);
        }
    }
    let counted = (writer.counts.items, writer.counts.key_bytes, writer.counts.value_bytes);
    let found = (counts.items, counts.key_bytes, counts.value_bytes);
    if counted != found || writer.counts.by_class != counts.by_class {
        return Err(format!("{counted:?} counted, {found:?} found"));
    }
    if let Some(chunk) = writer.pins.retired().find(|chunk| !chunks.contains_key(chunk)) {
        return Err(format!("retired item {chunk} has lost its chunk"));
    }
    Ok(())
}

fn bucket_of(index: &Index, store: &Store, hash: minos_base::KeyHash) -> minos_region::Offset {
    let region = store.memory().region();
    index.bucket_of(region, index.buckets(region), hash)
}
