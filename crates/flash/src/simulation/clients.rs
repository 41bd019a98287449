//! Puts, deletes and reads of a run.

use super::{
    index::{Lookup, Pending, Table},
    world::{World, hash, key_name, twin_of, value_of},
};
use crate::{
    format::{PAGE_BYTES, Pages, Seal, Stream},
    log::{Place, Put, Refusal},
};
use minos_base::Tombstone;
use rand::RngExt;

/// The tombstone of a key's record.
fn tombstone(key: u64, sequence: u64, place: Place) -> Tombstone {
    Tombstone { hash: hash(key), sequence, place, is_forgotten: true }
}

impl World {
    pub(super) fn put(&mut self, key: u64) -> Result<(), Refusal> {
        let bytes = match self.random.random_range(0..20) {
            0 => self.random.random_range(0..20_000),
            1..6 => self.random.random_range(0..200),
            _ => self.random.random_range(200..3000),
        };
        let held = self.table.pending.get(&hash(key).0).copied();
        let old = match held {
            Some(pending) => pending.place.filter(|_| pending.value_bytes.is_some()),
            None => self.table.slots.get(&hash(key).0).map(|(_, place)| *place),
        };
        // A delete on its way keeps dead what it killed; a put that follows it replaces nothing more.
        let sequence = self.sequence + 1;
        let token = sequence << 8;
        let place = self.append(key, sequence, bytes, old, token)?;
        self.sequence = sequence;
        self.supersede(key, held);
        let pending =
            Pending { token, sequence, value_bytes: Some(bytes), place: Some(place), old, has_failed: false };
        self.model.add(key, sequence, Some(bytes));
        self.table.pending.insert(hash(key).0, pending);
        self.appends.insert(token, (key, pending));
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        key: u64,
        sequence: u64,
        bytes: usize,
        replaces: Option<Place>,
        token: u64,
    ) -> Result<Place, Refusal> {
        let stream = if key.is_multiple_of(7) { Stream::ShortLived } else { Stream::New };
        let (name, value) = (key_name(key), value_of(key, sequence, bytes));
        let (hash, flags, marks) = (hash(key), sequence as u32, 5);
        let put = Put { hash, key: &name, value: &value, sequence, expiry: 0, flags, marks, replaces, token };
        self.log.append(stream, &put)
    }

    /// A newer operation takes the place of one that memory holds.
    pub(super) fn supersede(&mut self, key: u64, held: Option<Pending>) {
        if let Some(Pending { has_failed: true, sequence, old, .. }) = held {
            old.into_iter().for_each(|old| self.log.disown(hash(key), sequence, old));
            self.log.answered();
        }
    }

    pub(super) fn delete(&mut self, key: u64) {
        let held = self.table.pending.get(&hash(key).0).copied();
        let old = match held {
            Some(Pending { value_bytes: None, .. }) => None,
            Some(pending) => pending.place,
            None => self.table.slots.get(&hash(key).0).map(|(_, place)| *place),
        };
        let Some(old) = old else { return };
        let sequence = self.sequence + 1;
        let token = sequence << 8;
        let Ok(is_needed) = self.log.bury(&tombstone(key, sequence, old), token) else { return };
        self.sequence = sequence;
        self.supersede(key, held);
        self.model.add(key, sequence, None);
        let pending =
            Pending { token, sequence, value_bytes: None, place: None, old: Some(old), has_failed: false };
        if is_needed {
            self.table.pending.insert(hash(key).0, pending);
            self.appends.insert(token, (key, pending));
        } else {
            self.table.pending.remove(&hash(key).0);
            self.table.slots.remove(&hash(key).0);
            self.model.mark(key, sequence, |op| (op.is_written, op.is_durable) = (true, true));
        }
    }

    /// The index forgets the written record of the key whose slot looks like this one's, as a cache may that
    /// does not read what it forgets.
    pub(super) fn forget_twin(&mut self, key: u64) {
        let twin = twin_of(key);
        let slot = hash(twin).0;
        if self.table.pending.contains_key(&slot) {
            return;
        }
        let Some((_, place)) = self.table.slots.remove(&slot) else { return };
        self.sequence += 1;
        self.model.add(twin, self.sequence, None);
        self.tally.twins += 1;
        let tombstone = Tombstone { sequence: 0, ..tombstone(key, 0, place) };
        self.bury_twin((twin, self.sequence, tombstone));
    }

    /// Appends the tombstone of a twin, now or later.
    fn bury_twin(&mut self, twin: (u64, u64, Tombstone)) {
        self.sequence += 1;
        let token = self.sequence << 8;
        match self.log.bury(&twin.2, token) {
            Ok(true) => drop(self.twins.insert(token, twin)),
            Ok(false) => self.twin_is_durable(twin),
            Err(_) => self.unburied.push((false, twin)),
        }
    }

    pub(super) fn twin_is_durable(&mut self, (twin, sequence, _): (u64, u64, Tombstone)) {
        self.model.mark(twin, sequence, |op| (op.is_written, op.is_durable) = (true, true));
    }

    /// Appends the tombstones of twins for which there was no room, or that failed.
    pub(super) fn bury_twins(&mut self) {
        for (has_failed, twin) in std::mem::take(&mut self.unburied) {
            let left = self.unburied.len();
            self.bury_twin(twin);
            if self.unburied.len() > left {
                self.unburied[left].0 = has_failed;
            } else if has_failed {
                self.log.answered();
            }
        }
    }

    pub(super) fn empty_all(&mut self) {
        self.sequence += 1;
        let failed = self.table.pending.values().filter(|it| it.has_failed).count();
        let failed = failed + self.unburied.iter().filter(|(has_failed, _)| *has_failed).count();
        (0..failed).for_each(|_| self.log.answered());
        self.table = Table::default();
        self.retries.clear();
        for (_, twin) in
            self.twins.drain().chain(std::mem::take(&mut self.unburied).into_iter().map(|it| (0, it.1)))
        {
            self.emptying.push((twin.0, twin.1));
        }
        self.log.empty_all();
        for key in self.model.keys() {
            self.model.add(key, self.sequence, None);
            self.emptying.push((key, self.sequence));
        }
        self.tally.emptied += 1;
    }

    pub(super) fn append_failed(&mut self, token: u64) {
        if let Some(twin) = self.twins.remove(&token) {
            return self.unburied.push((true, twin));
        }
        let Some((key, append)) = self.appends.remove(&token) else { return self.log.answered() };
        match self.table.pending.get_mut(&hash(key).0) {
            Some(pending) if pending.token == token => {
                pending.has_failed = true;
                self.retries.push(key);
            }
            _ => {
                append.old.into_iter().for_each(|old| self.log.disown(hash(key), append.sequence, old));
                self.log.answered();
            }
        }
    }

    /// Appends once more what failed.
    pub(super) fn retry(&mut self, key: u64) {
        let held = self.table.pending.get(&hash(key).0).copied().filter(|held| held.has_failed);
        let Some(mut held) = held else { return };
        let token = held.token + 1;
        let done = match (held.value_bytes, held.old) {
            (Some(bytes), old) => {
                self.append(key, held.sequence, bytes, old, token).map(|place| held.place = Some(place))
            }
            (None, Some(old)) => self.log.bury(&tombstone(key, held.sequence, old), token).map(|_| ()),
            (None, None) => Ok(()),
        };
        if done.is_err() {
            return self.retries.push(key);
        }
        self.log.answered();
        (held.token, held.has_failed) = (token, false);
        self.table.pending.insert(hash(key).0, held);
        self.appends.insert(token, (key, held));
    }

    pub(super) fn begin_read(&mut self, key: u64) {
        let Some((_, place)) = self.table.slots.get(&hash(key).0).copied() else { return };
        if self.table.pending.contains_key(&hash(key).0) {
            return;
        }
        self.table.was_read.insert(hash(key).0);
        let (life, epoch) = (self.log.life_of(place.page), self.log.epoch());
        self.lookups.push(Lookup { key, since: self.model.sequence(key), place, life, epoch });
    }

    pub(super) fn end_read(&mut self, number: usize) -> Result<(), String> {
        let Lookup { key, since, place, life, .. } = self.lookups.swap_remove(number);
        let at = u64::from(place.page) * PAGE_BYTES as u64;
        let len = (place.length.pages() as usize * PAGE_BYTES)
            .min((self.superblock.layout.device_bytes() - at) as usize);
        self.tally.reads += 1;
        let Ok(bytes) = self.disk.read(at as usize, len) else {
            self.tally.refused_reads += 1;
            return Ok(());
        };
        let pages = Pages::new(&bytes, at, life, Seal::new(self.superblock.seed));
        let seen = match pages.find(hash(key), &key_name(key)) {
            Ok(Some(record)) => {
                let (sequence, bytes) = (record.header.sequence, record.value.len());
                if record.value.to_vec() != value_of(key, sequence, bytes) {
                    return Err(format!("key {key} has the bytes of another"));
                }
                Some((sequence, bytes))
            }
            Ok(None) | Err(_) if self.plan.lies > 0 => {
                self.tally.refused_reads += 1;
                return Ok(());
            }
            other => return Err(format!("key {key} is not at {place:?}: {other:?}")),
        };
        let is_right = self.model.may_read(key, since, seen);
        if is_right {
            Ok(())
        } else {
            Err(format!("key {key} is read as {seen:?}, newest {:?}", self.model.newest(key)))
        }
    }
}
