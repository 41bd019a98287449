//! Partitions that belong to threads: [`Crew`](crate::Crew) and [`Erew`](crate::Erew) (MICA §4.1.2).
//!
//! The key's direction, a hash that clients know too, chooses the partition, so that they can send to its owner.

use crate::{mode::Mode, places::State, store::Engine};
use minos_base::{KeyHash, hash_key};
use minos_sync::Access;

impl<M: Mode, A: Access> Engine<M, A> {
    /// The owner of a key's partition.
    #[inline]
    pub fn owner_of(&self, hash: KeyHash) -> usize {
        self.owner_of_partition(self.partition_of(hash))
    }

    /// The owner of a partition: its number modulo [`Engine::owners`].
    #[inline]
    pub fn owner_of_partition(&self, partition: usize) -> usize {
        (partition as u32 % self.owners) as usize
    }

    /// [`crate::StoreConfig::owners`].
    #[inline]
    pub fn owners(&self) -> usize {
        self.owners as usize
    }

    /// The seed of the hash whose highest bits choose the partition, where partitions belong to threads.
    pub fn direction_seed(&self) -> u64 {
        self.direction_seed
    }

    /// Makes this thread owner number `owner`, where partitions belong to threads.
    ///
    /// # Panics
    /// If another thread has one of the partitions.
    pub fn take_up(&self, owner: usize) {
        if A::IS_BY_THREAD {
            self.each_of(owner, |partition| drop(self.writing_at(partition)));
        }
    }

    /// Leaves the partitions of owner number `owner` to whoever takes them up next, if they are this thread's.
    pub fn give_up(&self, owner: usize) {
        self.each_of(owner, |partition| A::give_up(&self.partitions[partition].writer));
    }

    /// As [`Engine::flush`], for the partitions of one owner.
    pub fn flush_of(&self, owner: usize) {
        self.each_of(owner, |partition| self.writing_at(partition).flush());
    }

    fn each_of(&self, owner: usize, f: impl FnMut(usize)) {
        (owner..self.partitions()).step_by(self.owners as usize).for_each(f);
    }
}

#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
impl<M: State, A: Access> Engine<M, A> {
    /// The hash of a key in the partition that the key's direction chooses.
    #[inline]
    pub(crate) fn directed(&self, key: &[u8], hash: KeyHash) -> KeyHash {
        let rest = u64::MAX >> self.hashing.partition_shift;
        KeyHash(hash.0 & rest | hash_key(key, self.direction_seed).0 & !rest)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Crew, Delete, Engine, Erew, Get, ItemMeta, Put, StoreConfig, StoreMode};
    use minos_base::hash_key;
    use std::{panic::AssertUnwindSafe, sync::Arc, thread};

    const SEED: u64 = 77;

    fn table<W: Access + Copy + Eq>() -> Engine<StoreMode<W>> {
        let config =
            StoreConfig { partitions: Some(8), owners: 3, direction_seed: SEED, ..StoreConfig::new(8 << 20) };
        Engine::create(&config).unwrap()
    }

    #[test]
    fn the_direction_chooses_the_partition_and_nothing_else() {
        let table = table::<Erew>();
        let mut owned = [0; 3];
        for key in 0..1000u32 {
            let key = key.to_be_bytes();
            let hash = table.hash(&key);
            assert_eq!(table.partition_of(hash), hash_key(&key, SEED).partition(3));
            assert_eq!(table.owner_of(hash), table.partition_of(hash) % 3);
            assert_eq!(hash.0 << 3, hash_key(&key, 0).0 << 3);
            owned[table.owner_of(hash)] += 1;
        }
        // Three partitions, three, and two.
        assert!(owned.iter().all(|&keys| keys > 200), "{owned:?}");
    }

    /// Whether a thread beside the owner can read, and write.
    fn can<W: Access + Copy + Eq>() -> (bool, bool) {
        let table = table::<W>();
        let (key, meta) = (b"key", ItemMeta::default());
        let hash = table.hash(key);
        table.take_up(table.owner_of(hash));
        table.entry(hash, key, 1).insert(&[b"value"], meta).unwrap();
        let is_there = || table.read(hash, key, 1, |item| item.value_bytes()) == Some(5);
        assert!(is_there());
        let beside = AssertUnwindSafe(&table);
        thread::scope(|scope| {
            let reads = scope.spawn(is_there).join().unwrap_or(false);
            let writes = scope.spawn(|| beside.entry(hash, key, 1).insert(&[b"other"], meta).is_ok()).join();
            (reads, writes.unwrap_or(false))
        })
    }

    #[test]
    fn others_than_the_owner_read_in_crew_and_touch_nothing_in_erew() {
        assert_eq!(can::<Crew>(), (true, false));
        assert_eq!(can::<Erew>(), (false, false));
        // The control: where partitions are locked, any thread does both.
        assert_eq!(can::<crate::Crcw>(), (true, true));
    }

    #[test]
    fn every_way_to_write_in_anothers_partition_panics() {
        let table = table::<Crew>();
        let (key, meta) = (b"key".as_slice(), ItemMeta::default());
        let hash = table.hash(key);
        let (partition, owner) = (table.partition_of(hash), table.owner_of(hash));
        table.take_up(owner);
        table.entry(hash, key, 1).insert(&[b"value"], meta).unwrap();
        let put = Put { hash, key, value: b"other", meta };
        let ways: [&(dyn Fn() + Sync); 6] = [
            &|| table.put_many(&[put], 1, |_, _| ()),
            &|| table.delete_many(&[Delete { hash, key }], 1, |_, _| ()),
            &|| _ = table.put_staged(&table.stage(hash), &put, 1),
            &|| _ = table.sweep(partition, 1, 1),
            &|| table.flush_of(owner),
            &|| table.take_up(owner),
        ];
        for way in ways {
            assert!(thread::scope(|scope| scope.spawn(way).join()).is_err());
        }
        assert_eq!(table.read(hash, key, 1, |item| item.value_bytes()), Some(5));
        // Not that thread's to give.
        thread::scope(|scope| scope.spawn(|| table.give_up(owner)).join()).unwrap();
        table.check().unwrap();
    }

    #[test]
    fn every_way_to_read_in_anothers_partition_panics_in_erew() {
        let table = Arc::new(table::<Erew>());
        let key = b"key".as_slice();
        let hash = table.hash(key);
        let get = Get { hash, key };
        table.entry(hash, key, 1).insert(&[b"value"], ItemMeta::default()).unwrap();
        let ways: [&(dyn Fn() + Sync); 8] = [
            &|| _ = table.read(hash, key, 1, |_| ()),
            &|| table.get_many(&[get], 1, |_, _| ()),
            &|| _ = table.read_staged(&table.stage(hash), &get, 1, |_| ()),
            &|| _ = table.pin(hash, key, 1),
            &|| _ = table.size_class(hash),
            &|| _ = table.visit(table.partition_of(hash), 0, 1, 1, |_, _| ()),
            &|| _ = table.visit_with_cold(table.partition_of(hash), 0, 1, |_| (), &mut Vec::new()),
            &|| table.keys_with(hash, 1, |_| ()),
        ];
        for way in ways {
            way();
            assert!(thread::scope(|scope| scope.spawn(way).join()).is_err());
        }
    }

    #[test]
    fn reads_are_recorded_by_the_owner_only() {
        let table = table::<Crew>();
        let hash = table.hash(b"key");
        table.entry(hash, b"key", 1).insert(&[b"value"], ItemMeta::default()).unwrap();
        let read = || assert!(table.read(hash, b"key", 1, |_| ()).is_some());
        let read_many = || table.get_many(&[Get { hash, key: b"key" }], 1, |_, item| assert!(item.is_some()));
        let was_fetched = || table.entry(hash, b"key", 1).item().unwrap().was_fetched();
        let by_others = thread::scope(|scope| [scope.spawn(read).join(), scope.spawn(read_many).join()]);
        assert!(by_others.iter().all(Result::is_ok) && !was_fetched());
        read_many();
        assert!(was_fetched());
    }

    #[test]
    fn the_next_owner_finds_what_the_one_before_has_given_up() {
        let table = table::<Erew>();
        let hash = table.hash(b"key");
        let owner = table.owner_of(hash);
        thread::scope(|scope| {
            let store = || {
                table.take_up(owner);
                table.entry(hash, b"key", 1).insert(&[b"value"], ItemMeta::default()).unwrap();
                table.give_up(owner);
            };
            scope.spawn(store).join().unwrap();
        });
        table.take_up(owner);
        assert!(table.read(hash, b"key", 1, |_| ()).is_some());
        table.flush_of((owner + 1) % 3);
        assert!(table.read(hash, b"key", 1, |_| ()).is_some());
        table.flush_of(owner);
        assert!(table.read(hash, b"key", 1, |_| ()).is_none());
    }

    #[test]
    fn a_walk_in_erew_ends_where_its_partition_is_given_up() {
        let table = table::<Erew>();
        let partition = table.partition_of(table.hash(b"key"));
        let owner = table.owner_of_partition(partition);
        let keys = (0..5000u32).map(u32::to_be_bytes);
        let keys = keys.filter(|key| table.partition_of(table.hash(key)) == partition);
        for key in keys {
            table.entry(table.hash(&key), &key, 1).insert(&[b"value"], ItemMeta::default()).unwrap();
        }
        let mut walked = 0;
        let walk = AssertUnwindSafe(|| {
            table.visit(partition, 0, usize::MAX, 1, |_, _| {
                walked += 1;
                table.give_up(owner);
                thread::scope(|scope| scope.spawn(|| table.take_up(owner)).join()).unwrap();
            })
        });
        assert!(std::panic::catch_unwind(walk).is_err());
        // A chain was copied before.
        assert!(walked < 100, "{walked}");
    }
}
