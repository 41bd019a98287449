//! The items of a workload: key, size and contents of each, by its number.

use std::io;

use super::{
    Op,
    files::FileItem,
    key::write_key,
    mix,
    spec::{Class, SizeRange},
    trace::TracedItem,
    value::{Body, Check, ValueBlock},
};

/// All items of a workload, numbered from 0.
#[derive(Debug)]
pub(crate) struct Dataset {
    seed: u64,
    block: ValueBlock,
    items: Items,
    large_threshold: Option<u64>,
}

#[derive(Debug)]
pub(super) enum Items {
    /// Groups one after the other; the last one goes on beyond its end as items are inserted.
    Drawn(Vec<Group>),
    /// One item a file.
    Files(Vec<FileItem>),
    /// One item a key of the trace.
    Traced(Vec<TracedItem>),
}

/// Items of one kind.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) first: u64,
    pub(super) keys: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: SizeRange,
    pub(super) class: Option<Class>,
}

/// Values above this are large unless the workload says otherwise: the end of the papers' small class.
pub const LARGE_THRESHOLD_DEFAULT: u64 = 1400;

impl Dataset {
    pub(super) fn new(seed: u64, items: Items, large_threshold: Option<u64>) -> Self {
        Self { seed, block: ValueBlock::new(seed), items, large_threshold }
    }

    /// Items that a load stores.
    pub(crate) fn item_count(&self) -> u64 {
        match &self.items {
            Items::Drawn(groups) => groups.last().map_or(0, |group| group.first + group.keys),
            Items::Files(files) => files.len() as u64,
            Items::Traced(items) => items.len() as u64,
        }
    }

    pub(crate) fn write_key(&self, item: u64, out: &mut Vec<u8>) {
        match &self.items {
            Items::Drawn(groups) => write_key(item, group_of(groups, item).key_bytes, out),
            Items::Files(files) => out.extend_from_slice(&files[item as usize].key),
            Items::Traced(items) => out.extend_from_slice(&items[item as usize].key),
        }
    }

    /// Bytes of an item's value. A pure function of seed and item, so that load and run agree.
    pub(crate) fn value_bytes(&self, item: u64) -> u64 {
        match &self.items {
            Items::Drawn(groups) => self.drawn_bytes(group_of(groups, item), item),
            Items::Files(files) => files[item as usize].value_bytes,
            Items::Traced(items) => items[item as usize].value_bytes,
        }
    }

    fn drawn_bytes(&self, group: &Group, item: u64) -> u64 {
        let SizeRange { min, max } = group.value_bytes;
        if min == max {
            return min;
        }
        let span = u128::from(max - min) + 1;
        // The high half of a product maps the hash onto the span without bias worth mentioning.
        min + ((u128::from(self.item_hash(item)) * span) >> 64) as u64
    }

    /// Where latencies of an item are counted.
    pub(crate) fn class(&self, item: u64) -> Class {
        let declared = match (&self.items, self.large_threshold) {
            (Items::Drawn(groups), None) => group_of(groups, item).class,
            _ => None,
        };
        declared.unwrap_or_else(|| self.class_of_bytes(self.value_bytes(item)))
    }

    /// Where latencies of an operation are counted.
    pub(crate) fn class_of(&self, op: &Op) -> Class {
        op.value_bytes.map_or_else(|| self.class(op.item), |value_bytes| self.class_of_bytes(value_bytes))
    }

    /// Where latencies of values of a size are counted, regardless of their group.
    fn class_of_bytes(&self, value_bytes: u64) -> Class {
        let threshold = self.large_threshold.unwrap_or(LARGE_THRESHOLD_DEFAULT);
        if value_bytes > threshold { Class::Large } else { Class::Small }
    }

    /// The value of an item.
    ///
    /// # Errors
    /// Its file cannot be read any more.
    pub(crate) fn body(&self, item: u64) -> io::Result<Body> {
        match &self.items {
            Items::Files(files) => files[item as usize].read().map(Body::Whole),
            Items::Drawn(_) | Items::Traced(_) => {
                Ok(self.block.body(mix(self.item_hash(item)), self.value_bytes(item)))
            }
        }
    }

    /// The check of a reply with an item's value. `contents` compares every byte of drawn items. Files are
    /// always compared. Values of a trace are not checked, because their sizes change.
    pub(crate) fn check(&self, item: u64, contents: bool) -> Check {
        let value_bytes = self.value_bytes(item);
        match &self.items {
            Items::Files(files) => {
                Check::Digest { value_bytes, digest: files[item as usize].digest, state: Box::default() }
            }
            Items::Traced(_) => Check::Nothing,
            Items::Drawn(_) if contents => {
                let body = self.block.body(mix(self.item_hash(item)), value_bytes);
                Check::Contents { body, at: 0, same: true }
            }
            Items::Drawn(_) => Check::Length { value_bytes },
        }
    }

    /// True if a value of this length can be the item's.
    pub(crate) fn is_length(&self, item: u64, value_bytes: u64) -> bool {
        matches!(self.items, Items::Traced(_)) || self.value_bytes(item) == value_bytes
    }

    /// True if such checks compare bytes, not only lengths.
    pub(crate) fn looks_at_bytes(&self, contents: bool) -> bool {
        match &self.items {
            Items::Files(_) => true,
            Items::Drawn(_) => contents,
            Items::Traced(_) => false,
        }
    }

    /// The value to store: in traces, of another size than the item's own.
    pub(crate) fn body_of(&self, op: &Op) -> io::Result<Body> {
        match op.value_bytes {
            Some(value_bytes) => Ok(self.block.body(mix(self.item_hash(op.item)), value_bytes)),
            None => self.body(op.item),
        }
    }

    fn item_hash(&self, item: u64) -> u64 {
        mix(self.seed ^ mix(item))
    }
}

/// The group that holds `item`; inserted items belong to the last.
fn group_of(groups: &[Group], item: u64) -> &Group {
    if let [only] = groups {
        return only;
    }
    let after = groups.partition_point(|group| group.first <= item);
    &groups[after.saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(large_threshold: Option<u64>) -> Dataset {
        let group = |first, keys, min, max, class| Group {
            first,
            keys,
            key_bytes: 8,
            value_bytes: SizeRange { min, max },
            class,
        };
        let groups = vec![
            group(0, 1000, 1, 13, Some(Class::Small)),
            group(1000, 1000, 14, 1400, None),
            group(2000, 10, 1500, 500_000, None),
        ];
        Dataset::new(5, Items::Drawn(groups), large_threshold)
    }

    #[test]
    fn sizes_lie_in_their_groups_bounds_and_reach_them() {
        let data = dataset(None);
        assert_eq!(data.item_count(), 2010);
        let tiny: Vec<u64> = (0..1000).map(|item| data.value_bytes(item)).collect();
        assert_eq!((tiny.iter().min(), tiny.iter().max()), (Some(&1), Some(&13)));
        assert!((1000..2000).all(|item| (14..=1400).contains(&data.value_bytes(item))));
        assert!((2000..2010).all(|item| (1500..=500_000).contains(&data.value_bytes(item))));
        let mean = (1000..2000).map(|item| data.value_bytes(item)).sum::<u64>() as f64 / 1000.0;
        assert!((mean - 707.0).abs() < 40.0, "{mean}");
    }

    #[test]
    fn the_same_seed_gives_the_same_items() {
        let (one, two) = (dataset(None), dataset(None));
        assert!((0..2010).all(|item| one.value_bytes(item) == two.value_bytes(item)));
        let other = Dataset { seed: 6, ..dataset(None) };
        assert!((1000..2000).any(|item| one.value_bytes(item) != other.value_bytes(item)));
    }

    #[test]
    fn classes_follow_the_group_or_the_threshold() {
        let data = dataset(None);
        assert_eq!(
            (data.class(0), data.class(1999), data.class(2000)),
            (Class::Small, Class::Small, Class::Large)
        );
        let all_large = dataset(Some(0));
        assert_eq!(all_large.class(0), Class::Large);
    }

    #[test]
    fn inserted_items_belong_to_the_last_group() {
        let data = dataset(None);
        assert!(data.value_bytes(1_000_000) >= 1500);
    }
}
