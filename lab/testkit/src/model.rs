//! The reference model of a store: a plain map.

use std::collections::BTreeMap;

use minos_base::Seconds;

/// An item of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelItem {
    /// The value.
    pub value: Vec<u8>,
    /// Client flags.
    pub flags: u32,
    /// When it expires; zero is never.
    pub expiry: Seconds,
    /// Differs from every other write's.
    pub cas: u64,
}

/// A map from keys to items that expire. Time is passed in, and each method does one thing.
#[derive(Clone, Debug, Default)]
pub struct Model {
    items: BTreeMap<Vec<u8>, ModelItem>,
    cas_last: u64,
}

impl Model {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// The item at `key` unless it has expired at `now`.
    pub fn get(&self, key: &[u8], now: Seconds) -> Option<&ModelItem> {
        self.items.get(key).filter(|item| item.expiry == 0 || item.expiry > now)
    }

    /// Writes unconditionally. Returns the CAS unique of the write.
    pub fn set(&mut self, key: &[u8], value: &[u8], flags: u32, expiry: Seconds) -> u64 {
        self.cas_last += 1;
        let item = ModelItem { value: value.to_vec(), flags, expiry, cas: self.cas_last };
        self.items.insert(key.to_vec(), item);
        self.cas_last
    }

    /// Writes if `key` still has this CAS unique; false if it has another, `None` if it is not there.
    pub fn compare_and_set(&mut self, key: &[u8], value: &[u8], cas: u64, now: Seconds) -> Option<bool> {
        let (had, flags, expiry) = self.get(key, now).map(|item| (item.cas, item.flags, item.expiry))?;
        if had == cas {
            self.set(key, value, flags, expiry);
        }
        Some(had == cas)
    }

    /// Appends `tail` to the value. Returns false if there is no item.
    pub fn append(&mut self, key: &[u8], tail: &[u8], now: Seconds) -> bool {
        let Some(item) = self.get(key, now).cloned() else { return false };
        self.set(key, &[&item.value, tail].concat(), item.flags, item.expiry);
        true
    }

    /// Prepends `head` to the value. Returns false if there is no item.
    pub fn prepend(&mut self, key: &[u8], head: &[u8], now: Seconds) -> bool {
        let Some(item) = self.get(key, now).cloned() else { return false };
        self.set(key, &[head, &item.value].concat(), item.flags, item.expiry);
        true
    }

    /// Sets the expiry. Returns false if there is no item.
    pub fn touch(&mut self, key: &[u8], expiry: Seconds, now: Seconds) -> bool {
        let is_there = self.get(key, now).is_some();
        if let Some(item) = self.items.get_mut(key).filter(|_| is_there) {
            item.expiry = expiry;
        }
        is_there
    }

    /// Removes the item. Returns false if there is none.
    pub fn delete(&mut self, key: &[u8], now: Seconds) -> bool {
        let is_there = self.get(key, now).is_some();
        self.items.remove(key);
        is_there
    }

    /// Removes everything.
    pub fn flush(&mut self) {
        self.items.clear();
    }

    /// Items that have not expired at `now`.
    pub fn len(&self, now: Seconds) -> usize {
        self.items.keys().filter(|key| self.get(key, now).is_some()).count()
    }

    /// True if every item has expired at `now`.
    pub fn is_empty(&self, now: Seconds) -> bool {
        self.len(now) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_expire_at_their_second() {
        let mut model = Model::new();
        model.set(b"a", b"1", 7, 10);
        assert_eq!(model.get(b"a", 9).map(|item| item.flags), Some(7));
        assert!(model.get(b"a", 10).is_none() && model.is_empty(10));
        assert!(model.touch(b"a", 20, 9) && model.get(b"a", 19).is_some());
        assert!(!model.touch(b"a", 30, 20) && !model.delete(b"a", 20));
    }

    #[test]
    fn writes_compose() {
        let mut model = Model::new();
        assert!(!model.append(b"a", b"x", 0));
        let cas = model.set(b"a", b"b", 0, 0);
        assert!(model.append(b"a", b"c", 0) && model.prepend(b"a", b"a", 0));
        assert_eq!(model.get(b"a", 0).unwrap().value, b"abc");
        assert_eq!(model.compare_and_set(b"a", b"z", cas, 0), Some(false));
        let cas = model.get(b"a", 0).unwrap().cas;
        assert_eq!(model.compare_and_set(b"a", b"z", cas, 0), Some(true));
        assert_eq!(model.compare_and_set(b"b", b"z", cas, 0), None);
        model.flush();
        assert_eq!(model.len(0), 0);
    }
}
