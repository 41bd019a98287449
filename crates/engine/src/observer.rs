//! Tells somebody which keys change.
//!
//! Whoever observes is told under the lock of the key's partition, when the change is there for readers. So a reader that
//! first notes somewhere that it reads a key, and then reads an old value, is found there by the observer.

use crate::{
    mode::Mode,
    places::State,
    settled::key_of,
    store::{Engine, Writing},
};
use minos_base::KeyHash;
use minos_region::Offset;
use minos_sync::Access;
use std::{fmt::Debug, sync::Arc};

/// Is told of changes, while the partition's other writers wait. It must not call the engine.
pub trait Observer: Debug + Send + Sync {
    /// Somebody has changed the item of this key, or has deleted it. It may have stayed the same.
    fn changed(&self, hash: KeyHash, key: &[u8]);

    /// The item of this key is gone without anybody's wish: it has expired, or was evicted.
    fn gone(&self, hash: KeyHash, key: &[u8]);

    /// All items are gone.
    fn flushed(&self);

    /// An item on flash whose key has this hash is gone: dropped to make room, expired or deleted. Its key is not at hand.
    fn lost(&self, hash: KeyHash);

    /// Items on flash of other keys than that of this hash may be gone, whose slots looked like its own: keys for which
    /// [`minos_base::may_look_alike_among`] so many buckets.
    fn lost_alike(&self, buckets: u32, hash: KeyHash);

    /// Items on flash are gone, and nobody knows which.
    fn lost_some(&self);
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Tells `observer` of all changes from now on; `None` to tell nobody. Waits for the writers of all partitions, one after
    /// the other: changes that nobody is told of are there for readers when this returns.
    ///
    /// Above flash, items that leave memory are not told of: they go to flash.
    pub fn observe(&self, observer: Option<&Arc<dyn Observer>>) {
        for partition in 0..self.partitions() {
            self.writing_at(partition).writer.observer = observer.cloned();
        }
    }
}

impl<M: State, A: Access> Writing<'_, M, A> {
    /// Tells of a change that was just made.
    #[inline]
    pub(crate) fn tell(&self, hash: KeyHash, key: &[u8]) {
        if let Some(observer) = &self.writer.observer {
            tell(&**observer, hash, key);
        }
    }

    /// Tells of an item that has expired or was evicted.
    pub(crate) fn tell_gone(&self, hash: KeyHash, key: &[u8]) {
        self.writer.observer.iter().for_each(|observer| observer.gone(hash, key));
    }

    /// Tells of an item on flash that is gone.
    pub(crate) fn tell_lost(&self, hash: KeyHash) {
        self.writer.observer.iter().for_each(|observer| observer.lost(hash));
    }

    /// Tells of an item on flash that is gone, whose slot looked like that of a key with this hash.
    pub(crate) fn tell_lost_alike(&self, hash: KeyHash) {
        if let Some(observer) = &self.writer.observer {
            // Keys in one chain have so many bits of the bucket's number in common.
            let buckets = self.partition.index.buckets(self.region());
            observer.lost_alike(u32::try_from(buckets).unwrap_or(u32::MAX), hash);
        }
    }

    /// The key of an item that is about to be unlinked, if somebody is to be told.
    pub(crate) fn key_to_tell(&self, item: Offset) -> Option<Box<[u8]>> {
        self.writer.observer.as_ref().map(|_| key_of(self, item).into())
    }
}

/// A function of its own, so that a store of which nobody is told pays for a test only.
#[cold]
#[inline(never)]
fn tell(observer: &dyn Observer, hash: KeyHash, key: &[u8]) {
    observer.changed(hash, key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, Concat, ItemMeta, Side, StoreConfig};
    use std::sync::Mutex;

    const NOW: u32 = 5;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<Vec<u8>>>);

    impl Observer for Told {
        fn changed(&self, _: KeyHash, key: &[u8]) {
            self.0.lock().unwrap().push(key.to_vec());
        }

        fn gone(&self, _: KeyHash, key: &[u8]) {
            self.0.lock().unwrap().push([b"gone ", key].concat());
        }

        fn flushed(&self) {
            self.0.lock().unwrap().push(b"*".to_vec());
        }

        fn lost(&self, _: KeyHash) {
            unreachable!("there is no flash")
        }

        fn lost_alike(&self, _: u32, _: KeyHash) {
            unreachable!("there is no flash")
        }

        fn lost_some(&self) {
            unreachable!("there is no flash")
        }
    }

    impl Told {
        fn take(&self) -> Vec<String> {
            let told = std::mem::take(&mut *self.0.lock().unwrap());
            told.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
        }
    }

    fn observed(bytes: u64) -> (Arc<Cache>, Arc<Told>) {
        let cache: Arc<Cache> =
            Cache::create(&StoreConfig { partitions: Some(2), ..StoreConfig::new(bytes) }).unwrap().into();
        let told = Arc::new(Told::default());
        let observer: Arc<dyn Observer> = Arc::clone(&told) as Arc<dyn Observer>;
        cache.observe(Some(&observer));
        (cache, told)
    }

    #[test]
    fn every_change_is_told_and_no_read() {
        let (cache, told) = observed(4 << 20);
        let key = b"k".as_slice();
        let hash = cache.hash(key);
        let entry = || cache.entry(hash, key, NOW);
        let meta = ItemMeta::default();
        let concat = Concat { side: Side::Back, extra: b"!", compare: None, cas: None };
        let large = vec![0; 200_000];
        let changes: [(&str, &dyn Fn()); 10] = [
            ("insert", &|| {
                let _ = entry().insert(&[b"1"], meta);
            }),
            ("overwrite", &|| {
                let _ = entry().insert(&[b"2"], meta);
            }),
            ("update", &|| {
                let _ = entry().insert(&[b"longer than before"], meta);
            }),
            ("join", &|| {
                let _ = cache.concat(hash, key, NOW, &concat);
            }),
            ("a part", &|| {
                let _ = entry().overwrite_value(0, b"x");
            }),
            ("expiry", &|| entry().set_expiry(NOW + 10)),
            ("CAS", &|| entry().set_cas(77)),
            ("stale", &|| entry().set_stale(true)),
            ("large", &|| {
                let _ = entry().insert(&[&large], meta);
            }),
            ("remove", &|| {
                let _ = entry().remove();
            }),
        ];
        for (what, change) in changes {
            change();
            assert_eq!(told.take(), ["k"], "{what}");
        }
        entry().remove();
        entry().insert(&[b"1"], meta).unwrap();
        told.take();
        entry().mark_fetched(NOW + 1);
        assert!(cache.read(hash, key, NOW, |_| ()).is_some());
        assert_eq!(told.take(), [""; 0]);
        cache.flush();
        assert_eq!(told.take(), ["*"]);
        cache.observe(None);
        entry().insert(&[b"1"], meta).unwrap();
        assert_eq!(told.take(), [""; 0]);
    }

    #[test]
    fn expired_and_evicted_items_are_told() {
        let (cache, told) = observed(1 << 20);
        let put = |key: &[u8], expiry| {
            let meta = ItemMeta { expiry, ..ItemMeta::default() };
            cache.entry(cache.hash(key), key, NOW).insert(&[&[0; 200]], meta).unwrap();
        };
        put(b"short", NOW + 1);
        told.take();
        for partition in 0..cache.partitions() {
            while !cache.sweep(partition, 64, NOW + 2).pass_ended {}
        }
        assert_eq!(told.take(), ["gone short"]);
        let keys: Vec<_> = (0..10_000).map(|number| format!("key{number}")).collect();
        keys.iter().for_each(|key| put(key.as_bytes(), 0));
        let is_gone =
            |key: &&String| cache.read(cache.hash(key.as_bytes()), key.as_bytes(), NOW, |_| ()).is_none();
        let gone: Vec<_> = keys.iter().filter(is_gone).collect();
        // Of items that the log has overwritten, it tells a little later.
        cache.check().unwrap();
        let mut told = told.take();
        assert!(told.len() > keys.len() + 1000, "{}", told.len());
        for key in gone {
            let of_key = |told: &&String| told.strip_prefix("gone ").unwrap_or(told) == key;
            let there: Vec<_> = told.iter().filter(of_key).cloned().collect();
            assert_eq!(there, [key.clone(), format!("gone {key}")]);
            told.retain(|told| !of_key(&told));
        }
    }
}
