//! The answers that a cache may give: the last value written, or none if it was lost.

use std::collections::{BTreeMap, BTreeSet};

/// The order in which items must be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Items appended first leave first; reads change nothing.
    Appended,
    /// Items appended or read first leave first.
    Used,
    /// No promise about single items.
    Any,
}

/// Live items that a cache reports as evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictions {
    /// At the head of a log, in the order that the policy promises.
    pub(crate) at_head: u64,
    /// For lack of a slot in a bucket, or of memory for a large value, in any order.
    pub(crate) elsewhere: u64,
}

/// The item found or written under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    /// In seconds; 0 is never.
    pub(crate) expiry: u32,
}

impl Written {
    fn is_live(&self, now: u32) -> bool {
        self.expiry == 0 || self.expiry > now
    }
}

#[derive(Clone, Debug)]
struct Known {
    written: Written,
    partition: usize,
    /// The time at which it got its place in the log; `None` after an overwrite, which may have moved it.
    placed: Option<u64>,
}

/// The last value of each key, and the order in which they may be lost.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    order: Order,
    known: BTreeMap<u16, Known>,
    now: u64,
    pub(crate) lost: u64,
    /// Places of items lost since the last [`Model::settle`], by partition.
    lost_places: BTreeMap<usize, BTreeSet<u64>>,
    /// Items lost while an older one was present.
    early: u64,
    settled: Evictions,
}

impl Model {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            known: BTreeMap::new(),
            now: 0,
            lost: 0,
            lost_places: BTreeMap::new(),
            early: 0,
            settled: Evictions::default(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(crate) fn expire(&mut self, now: u32) {
        self.known.retain(|_, known| known.written.is_live(now));
    }

    pub(crate) fn expected(&self, key: u16) -> Option<&Written> {
        self.known.get(&key).map(|known| &known.written)
    }

    /// A write that the cache has accepted.
    pub(crate) fn write(&mut self, key: u16, partition: usize, written: Written) {
        let now = self.tick();
        let placed = (!self.known.contains_key(&key)).then_some(now);
        self.known.insert(key, Known { written, partition, placed });
    }

    /// Changes a key's known item without a new place in the log.
    pub(crate) fn amend(&mut self, key: u16, change: impl FnOnce(&mut Written)) {
        if let Some(known) = self.known.get_mut(&key) {
            change(&mut known.written);
            known.placed = None;
        }
    }

    pub(crate) fn delete(&mut self, key: u16) {
        self.known.remove(&key);
    }

    pub(crate) fn flush(&mut self) {
        self.known.clear();
    }

    /// Checks that the cache may have found this under a key, and records a lost item.
    pub(crate) fn read(&mut self, key: u16, found: Option<&Written>) -> Result<(), String> {
        match (self.known.get(&key).map(|known| known.written == *found.unwrap_or(&known.written)), found) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(format!("key {key} was deleted, expired, flushed or lost, and is there")),
            (Some(false), _) => Err(format!("key {key} has not what was written last")),
            (Some(true), Some(_)) => {
                self.used(key);
                Ok(())
            }
            (Some(true), None) => {
                self.lose(key);
                Ok(())
            }
        }
    }

    /// Records that a key was found: lost items with later places were evicted too early.
    fn used(&mut self, key: u16) {
        let now = self.tick();
        let Some(known) = self.known.get_mut(&key) else { return };
        if let (Some(placed), Some(lost)) = (known.placed, self.lost_places.get_mut(&known.partition)) {
            self.early += lost.split_off(&placed).len() as u64;
        }
        if self.order == Order::Used {
            known.placed = Some(now);
        }
    }

    pub(crate) fn lose(&mut self, key: u16) {
        let Some(known) = self.known.remove(&key) else { return };
        self.lost += 1;
        self.lost_places.entry(known.partition).or_default().extend(known.placed);
    }

    /// Checks that `evictions` explain all losses, and that the losses since the last call were in order.
    pub(crate) fn settle(&mut self, evictions: Evictions) -> Result<(), String> {
        if self.lost > evictions.at_head + evictions.elsewhere {
            return Err(format!("{} keys were lost with {evictions:?}", self.lost));
        }
        let early = std::mem::take(&mut self.early);
        let excused = evictions.elsewhere - self.settled.elsewhere;
        self.settled = evictions;
        self.lost_places.clear();
        if self.order != Order::Any && early > excused {
            return Err(format!("{early} keys left before older ones, {excused} had another reason"));
        }
        Ok(())
    }

    /// All keys below `end`, oldest places last. Reads in this order reveal most: each item found has
    /// outlived the items missing before it.
    pub(crate) fn newest_first(&self, end: u16) -> Vec<u16> {
        let mut keys: Vec<u16> = (0..end).collect();
        let placed = |key: &u16| self.known.get(key).and_then(|known| known.placed);
        keys.sort_by_key(|key| std::cmp::Reverse(placed(key)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: u8) -> Written {
        Written { value: vec![value], flags: 0, expiry: 0 }
    }

    fn filled(order: Order) -> Model {
        let mut model = Model::new(order);
        (0..4).for_each(|key| model.write(key, 0, written(key as u8)));
        model
    }

    #[test]
    fn only_the_last_value_will_do() {
        let mut model = filled(Order::Appended);
        model.write(0, 0, written(9));
        assert!(model.read(0, Some(&written(9))).is_ok() && model.read(0, Some(&written(0))).is_err());
        model.delete(1);
        assert!(model.read(1, None).is_ok() && model.read(1, Some(&written(1))).is_err());
        model.amend(2, |written| written.expiry = 5);
        model.expire(5);
        assert!(model.read(2, Some(&written(2))).is_err());
        model.flush();
        assert!(model.read(3, Some(&written(3))).is_err());
    }

    #[test]
    fn a_loss_needs_an_eviction() {
        let mut model = filled(Order::Any);
        assert!(model.read(0, None).is_ok());
        assert!(model.settle(Evictions::default()).is_err());
        assert!(model.settle(Evictions { at_head: 1, elsewhere: 0 }).is_ok());
        // A lost item stays lost.
        assert!(model.read(0, Some(&written(0))).is_err());
    }

    #[test]
    fn losses_go_in_order() {
        let at_head = Evictions { at_head: 1, elsewhere: 0 };
        for (order, is_ok) in [(Order::Appended, true), (Order::Used, false), (Order::Any, true)] {
            let mut model = filled(order);
            // The oldest is read, and lost.
            model.read(0, Some(&written(0))).unwrap();
            model.read(0, None).unwrap();
            model.read(1, Some(&written(1))).unwrap();
            assert_eq!(model.settle(at_head).is_ok(), is_ok, "{order:?}");
        }
        let mut model = filled(Order::Appended);
        model.read(1, None).unwrap();
        model.read(0, Some(&written(0))).unwrap();
        assert!(model.clone().settle(at_head).is_err());
        // A full bucket explains one loss, but not a second one.
        assert!(model.settle(Evictions { at_head: 0, elsewhere: 1 }).is_ok());
        model.read(2, None).unwrap();
        model.read(0, Some(&written(0))).unwrap();
        assert!(model.settle(Evictions { at_head: 1, elsewhere: 1 }).is_err());
    }

    #[test]
    fn partitions_have_orders_of_their_own() {
        let mut model = filled(Order::Appended);
        model.write(9, 1, written(9));
        model.read(9, None).unwrap();
        (0..4).for_each(|key| model.read(key, Some(&written(key as u8))).unwrap());
        assert!(model.settle(Evictions { at_head: 1, elsewhere: 0 }).is_ok());
    }
}
