//! Changes of several keys in one step.

use crate::{
    entry::Entry,
    item::ItemMeta,
    mode::Mode,
    reservation::Reservation,
    store::{Engine, Writing},
};
use minos_base::{KeyHash, Seconds};
use minos_sync::Access;
use std::sync::Arc;

/// A change of one key, with others in one step: see [`Engine::change_together`].
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The key's [`Engine::hash`].
    pub hash: KeyHash,
    /// The key; it may have several changes.
    pub key: &'a [u8],
    /// What must be there before any of the changes is made.
    pub seen: Seen,
    /// The change.
    pub then: Then<'a>,
}

/// A condition on what a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// None.
    Anything,
    /// There is no item.
    Nothing,
    /// There is an item with this CAS unique.
    Cas(u64),
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug)]
pub enum Then<'a> {
    /// It stays as it is; only its condition counts.
    Keep,
    /// Its item goes, if there is one.
    Remove,
    /// It has this value.
    Store(&'a [u8], ItemMeta),
    /// Its item, if there is one, expires then: see [`ItemMeta::expiry`] and [`ItemMeta::early_ms`].
    Expire(Seconds, u16),
}

/// The reason why changes were not made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTogether {
    /// A condition did not hold. Nothing was changed.
    Unmet,
    /// There was no memory, or a key or value is too long. Nothing was changed.
    OutOfMemory,
    /// There was no memory for a small value after this many changes had been made.
    Partly(usize),
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Makes all changes, in their order, if all conditions hold: every other change comes before or after all of
    /// them. A reader without a lock may see one key before and another one after it.
    ///
    /// The writers of all partitions wait meanwhile. Large values are copied to their place before.
    ///
    /// # Errors
    /// See [`NotTogether`].
    pub fn change_together<'a>(
        self: &'a Arc<Self>,
        changes: &[Change<'a>],
        now: Seconds,
    ) -> Result<(), NotTogether> {
        if !changes.iter().all(|change| self.may_make(change)) {
            return Err(NotTogether::OutOfMemory);
        }
        let mut large = self.large_values(changes)?;
        let mut writers = Writers::wait(self, changes);
        let holds = |change: &Change<'a>| {
            writers.entry(change, now, |entry| {
                let cas = entry.item().map(|item| item.cas());
                match change.seen {
                    Seen::Anything => true,
                    Seen::Nothing => cas.is_none(),
                    Seen::Cas(unique) => cas == Some(unique),
                }
            })
        };
        if !changes.iter().all(holds) {
            return Err(NotTogether::Unmet);
        }
        for (index, change) in changes.iter().enumerate() {
            let reserved = large.get_mut(index).and_then(Option::take);
            if !writers.entry(change, now, |entry| make(entry, change.then, reserved)) {
                return Err(NotTogether::Partly(index));
            }
        }
        Ok(())
    }

    /// False for a key or value that is too long, whatever memory is free, and where no new items are taken.
    fn may_make(&self, change: &Change<'_>) -> bool {
        let Then::Store(value, _) = change.then else { return true };
        let (key_bytes, value_bytes) = (change.key.len(), value.len() as u64);
        let words = || M::words_beside(key_bytes, value_bytes, self);
        M::takes(self, key_bytes, value_bytes) && words() <= M::item_words_max(self)
    }

    /// The large values of changes, in their places.
    fn large_values(
        self: &Arc<Self>,
        changes: &[Change<'_>],
    ) -> Result<Vec<Option<Reservation<M, A>>>, NotTogether> {
        let large_value = |change: &Change<'_>| {
            let Then::Store(value, _) = change.then else { return Ok(None) };
            if self.is_inline(value.len() as u64) {
                return Ok(None);
            }
            let reserved = self.reserve(change.hash, change.key, value.len() as u64);
            let mut reservation = reserved.map_err(|_| NotTogether::OutOfMemory)?;
            reservation.value_mut().copy_from_slice(value);
            reservation.settle();
            Ok(Some(reservation))
        };
        changes.iter().map(large_value).collect()
    }
}

/// Makes one change; false if there is no memory for it.
fn make<M: Mode, A: Access>(
    entry: &mut Entry<'_, M, A>,
    then: Then<'_>,
    reserved: Option<Reservation<M, A>>,
) -> bool {
    match (then, reserved) {
        (Then::Keep, _) => true,
        (Then::Remove, _) => {
            entry.remove();
            true
        }
        (Then::Expire(expiry, early_ms), _) => {
            entry.set_expiry_early(expiry, early_ms);
            true
        }
        (Then::Store(_, meta), Some(reservation)) => entry.commit(reservation, meta).is_ok(),
        (Then::Store(value, meta), None) => entry.insert(&[value], meta).is_ok(),
    }
}

/// The writers of some partitions, by the partitions' numbers.
struct Writers<'a, M: Mode, A: Access>(Vec<(usize, Writing<'a, M, A>)>);

impl<'a, M: Mode, A: Access> Writers<'a, M, A> {
    /// Waits for the writers of all keys.
    fn wait(engine: &'a Engine<M, A>, changes: &[Change<'a>]) -> Self {
        let mut partitions: Vec<_> = changes.iter().map(|change| engine.partition_of(change.hash)).collect();
        // In one order everywhere: two threads that need the same partitions never wait for each other.
        partitions.sort_unstable();
        partitions.dedup();
        Self(partitions.into_iter().map(|partition| (partition, engine.writing_at(partition))).collect())
    }

    fn entry<T>(
        &mut self,
        change: &Change<'a>,
        now: Seconds,
        call: impl FnOnce(&mut Entry<'a, M, A>) -> T,
    ) -> T {
        let wanted = |engine: &Engine<M, A>| engine.partition_of(change.hash);
        let at = self.0.partition_point(|(partition, writing)| *partition < wanted(writing.engine));
        let (partition, writing) = self.0.remove(at);
        let mut entry = Entry::find(writing, change.hash, change.key, now);
        let outcome = call(&mut entry);
        self.0.insert(at, (partition, entry.writing));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreConfig};
    use std::thread;

    const NOW: Seconds = 5;

    fn store() -> Arc<Store> {
        Store::create(&StoreConfig::new(16 << 20)).unwrap().into()
    }

    fn change<'a>(store: &Store, key: &'a [u8], seen: Seen, then: Then<'a>) -> Change<'a> {
        Change { hash: store.hash(key), key, seen, then }
    }

    fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
        store.entry(store.hash(key), key, NOW).item().map(|item| item.value().to_vec())
    }

    fn set<'a>(store: &Store, key: &'a [u8], value: &'a [u8]) -> Change<'a> {
        change(store, key, Seen::Anything, Then::Store(value, ItemMeta::default()))
    }

    #[test]
    fn all_changes_are_made_or_none() {
        let store = store();
        let large = vec![b'l'; 200_000];
        store.change_together(&[set(&store, b"a", b"1"), set(&store, b"b", &large)], NOW).unwrap();
        assert_eq!(value(&store, b"b"), Some(large));
        let cas = store.entry(store.hash(b"a"), b"a", NOW).item().unwrap().cas();
        let changes = |seen| {
            [
                change(&store, b"b", Seen::Anything, Then::Remove),
                change(&store, b"c", Seen::Nothing, Then::Store(b"3", ItemMeta::default())),
                change(&store, b"a", seen, Then::Keep),
            ]
        };
        for seen in [Seen::Cas(cas + 1), Seen::Nothing] {
            assert_eq!(store.change_together(&changes(seen), NOW), Err(NotTogether::Unmet));
            assert!(value(&store, b"b").is_some() && value(&store, b"c").is_none());
        }
        store.change_together(&changes(Seen::Cas(cas)), NOW).unwrap();
        assert_eq!((value(&store, b"b"), value(&store, b"c")), (None, Some(b"3".to_vec())));
    }

    #[test]
    fn a_key_may_change_twice_and_expire() {
        let store = store();
        let expire = change(&store, b"k", Seen::Anything, Then::Expire(9, 250));
        store.change_together(&[set(&store, b"k", b"1"), set(&store, b"k", b"2"), expire], NOW).unwrap();
        let entry = store.entry(store.hash(b"k"), b"k", NOW);
        let item = entry.item().unwrap();
        assert_eq!((item.value(), item.expiry(), item.early_ms()), (b"2".as_slice(), 9, 250));
    }

    #[test]
    fn a_value_that_cannot_be_stored_is_told() {
        let store = store();
        let huge = vec![0; 32 << 20];
        let changes = [set(&store, b"a", b"1"), set(&store, b"b", &huge)];
        assert_eq!(store.change_together(&changes, NOW), Err(NotTogether::OutOfMemory));
        assert_eq!(value(&store, b"a"), None);
    }

    #[test]
    fn a_key_that_no_log_holds_changes_nothing() {
        let cache: Arc<crate::Cache> = Arc::new(crate::Cache::create(&StoreConfig::new(32 << 20)).unwrap());
        let long = vec![b'k'; 60_000];
        let then = Then::Store(b"1", ItemMeta::default());
        let changes =
            [&b"a"[..], &long].map(|key| Change { hash: cache.hash(key), key, seen: Seen::Anything, then });
        assert_eq!(cache.change_together(&changes, NOW), Err(NotTogether::OutOfMemory));
        assert!(cache.entry(cache.hash(b"a"), b"a", NOW).item().is_none());
    }

    /// Two threads move money between accounts in opposite orders; none is lost, and neither waits for ever.
    #[test]
    fn changes_of_threads_do_not_mix() {
        const ROUNDS: usize = 2000;
        const ACCOUNTS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        let store = store();
        let fill = ACCOUNTS.map(|key| set(&store, key, &[100, 0]));
        store.change_together(&fill, NOW).unwrap();
        let read = |key: &[u8]| {
            let entry = store.entry(store.hash(key), key, NOW);
            let item = entry.item().unwrap();
            (item.cas(), u16::from_le_bytes(item.value().try_into().unwrap()))
        };
        let transfer = |from: usize, to: usize| {
            let [(from_cas, from_has), (to_cas, to_has)] = [from, to].map(|index| read(ACCOUNTS[index]));
            if from == to || from_has == 0 {
                return;
            }
            let (less, more) = ((from_has - 1).to_le_bytes(), (to_has + 1).to_le_bytes());
            let changes = [(from, from_cas, &less), (to, to_cas, &more)].map(|(index, cas, value)| {
                let then = Then::Store(value, ItemMeta::default());
                change(&store, ACCOUNTS[index], Seen::Cas(cas), then)
            });
            let _ = store.change_together(&changes, NOW);
        };
        thread::scope(|scope| {
            for thread in 0..2 {
                let transfer = &transfer;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        transfer((round + thread) % 4, (round / 4 + 3 * thread) % 4);
                    }
                });
            }
        });
        assert_eq!(ACCOUNTS.iter().map(|key| read(key).1).sum::<u16>(), 400);
    }
}
