//! Copies the items of micro-shards from the memory of other nodes, and removes those that went elsewhere.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use minos_base::{Clock, KeyHash, Seconds};
use minos_engine::{Answer, Engine, ItemMeta, ItemView, Mode, Named, OutOfMemory, ReadOnly};
use minos_rack::{MicroShard, ServerId};
use minos_unit::CopyJob;

use super::{
    Event, PAUSE, READS_MAX,
    below::{Below, BelowError},
    far::{Afar, hashes_of},
    showing::meta_of,
};
use crate::{
    rack::{Rack, attach::attach, owners::shifted},
    server::Stop,
    tracking::tell_only,
};

/// Chains of a table that are copied at a time.
const CHAINS: usize = 64;
/// Value bytes from which on memory is reserved before the partition's lock is taken.
const LARGE_BYTES: usize = 4096;
/// Longest wait for flash to take items, so that there is room for others.
const ROOM_MAX: Duration = Duration::from_secs(5);
/// Tombstones that may wait while micro-shards are removed: with too many, a cache gives up other items.
const TOMBSTONES_MAX: u64 = 1 << 14;
/// Pause until records that cannot be looked at are tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Time without another warning of what is tried again.
const QUIET: Duration = Duration::from_secs(1);

/// Work on the items of a micro-shard.
pub(super) enum Job {
    Empty(MicroShard),
    Copy(CopyJob),
    /// Jobs for changed keys of one node.
    Apply(ServerId, Vec<CopyJob>),
}

impl Job {
    /// True if others wait for it: it is done first.
    fn is_of_keys(&self) -> bool {
        match self {
            Self::Copy(job) => job.hashes.is_some(),
            Self::Apply(..) => true,
            Self::Empty(_) => false,
        }
    }
}

/// A thread that does such work. What needs to look at all items of a table is done together; a batch of changes, for
/// which writers may wait, comes first.
pub(crate) struct Copier<M: Mode> {
    pub(super) rack: Arc<Rack<M>>,
    pub(super) store: Arc<Engine<M>>,
    pub(super) clock: Clock,
    pub(super) jobs: Receiver<Job>,
    pub(super) events: Sender<Event>,
    pub(super) pending: Vec<Job>,
    pub(super) afar: Afar,
    /// Its items, if some are on flash.
    pub(super) below: Option<Below<M>>,
    pub(super) stop: Arc<Stop>,
    /// The last warning.
    pub(super) warned: Cell<Option<Instant>>,
}

/// Why a micro-shard is not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error("its owner does not finish a write, or has lost it")]
    Unreadable,
    #[error("there is no memory for its items")]
    NoMemory,
    #[error("its owner does not show them: {0}")]
    Afar(#[from] io::Error),
    #[error("older items cannot be removed: {0}")]
    Below(#[from] BelowError),
}

/// The memory of the owner while its items are copied.
struct Source<M: Mode> {
    table: Arc<ReadOnly<M>>,
    /// Seconds that its clock shows more than this node's.
    ahead_s: i64,
    value: Vec<u8>,
}

impl<M: Mode> Copier<M> {
    /// Runs until nobody sends jobs any more.
    pub(crate) fn run(mut self) {
        let rack = Arc::clone(&self.rack);
        // Its owner tells of what was changed there.
        tell_only(move |key| usize::from(rack.reader(key)) == rack.config.node);
        loop {
            if self.pending.is_empty() {
                let Ok(job) = self.jobs.recv() else { return };
                self.pending.push(job);
            }
            self.take_in(&BTreeMap::new(), &mut BTreeSet::new());
            if self.pending.is_empty() {
                continue;
            }
            let (group, left) = group(std::mem::take(&mut self.pending));
            self.pending = left;
            match group {
                Group::Empty(micro_shards) => self.empty(&micro_shards),
                Group::Scan(from, jobs) => self.scan(from, &jobs),
            }
        }
    }

    /// Takes in new jobs, and does those that must not wait. A micro-shard that is to be emptied is copied no further.
    pub(super) fn take_in(
        &mut self,
        running: &BTreeMap<MicroShard, CopyJob>,
        failed: &mut BTreeSet<MicroShard>,
    ) {
        while let Ok(job) = self.jobs.try_recv() {
            if let Job::Empty(micro_shard) = job {
                self.pending.retain(|job| !matches!(job, Job::Copy(it) if it.id.micro_shard == micro_shard));
                failed.extend(running.get_key_value(&micro_shard).map(|(running, _)| *running));
            }
            self.pending.push(job);
        }
        while let Some(at) = self.pending.iter().position(Job::is_of_keys) {
            match self.pending.remove(at) {
                Job::Copy(job) => {
                    let is_copied = self.copy_changed(job.from, std::slice::from_ref(&job));
                    self.say(Event::Copied(job.id, is_copied));
                }
                Job::Apply(from, jobs) => {
                    let is_copied = self.copy_changed(from, &jobs);
                    self.say(Event::Applied(from, is_copied));
                }
                Job::Empty(_) => {}
            }
        }
    }

    /// Copies the items of changed keys of one node; false if that has failed.
    fn copy_changed(&mut self, from: ServerId, jobs: &[CopyJob]) -> bool {
        let copied = if self.is_far(from) {
            self.batch_afar(from, jobs)
        } else {
            jobs.iter().try_for_each(|job| self.batch(job))
        };
        copied.inspect_err(|error| self.warn(from, error)).is_ok()
    }

    fn say(&self, event: Event) {
        // The server stops if nobody listens.
        let _ = self.events.send(event);
    }

    fn empty(&mut self, micro_shards: &BTreeSet<MicroShard>) {
        for partition in 0..self.store.partitions() {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                if self.stop.is_requested() {
                    return;
                }
                // What writers wait for, of other micro-shards.
                self.take_in(&BTreeMap::new(), &mut BTreeSet::new());
                match self.empty_chains((partition, from), micro_shards) {
                    Ok(next) => cursor = next,
                    Err(_) if self.stop.is_requested() => return,
                    Err(error) => {
                        tracing::warn!(%error, "micro-shards are not emptied yet");
                        thread::sleep(RETRY);
                    }
                }
            }
        }
        micro_shards.iter().for_each(|micro_shard| self.say(Event::Emptied(*micro_shard)));
    }

    /// Removes the items of micro-shards in some chains; returns the next cursor.
    fn empty_chains(
        &self,
        (partition, from): (usize, u64),
        micro_shards: &BTreeSet<MicroShard>,
    ) -> Result<Option<u64>, CopyError> {
        let now = self.clock.seconds();
        let is_meant = |key: &[u8]| micro_shards.contains(&MicroShard(self.rack.micro_shard(key)));
        let Some(below) = &self.below else {
            return Ok(self.store.visit(partition, from, CHAINS, now, |key, _| {
                if is_meant(key) {
                    self.store.entry(self.store.hash(key), key, now).remove();
                }
            }));
        };
        while below.tombstones() > TOMBSTONES_MAX && !self.stop.is_requested() {
            thread::sleep(PAUSE);
        }
        let mut keys = Vec::<Box<[u8]>>::new();
        // What cannot be read is never served.
        let next = below.chains((partition, from, CHAINS), now, true, |key| {
            keys.extend(is_meant(key).then(|| key.into()));
        })?;
        keys.iter().try_for_each(|key| self.remove(self.store.hash(key), key))?;
        Ok(next)
    }

    /// Removes the item of a key, wherever it is.
    pub(super) fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), CopyError> {
        let now = self.clock.seconds();
        loop {
            self.store.entry(hash, key, now).remove();
            let Some(below) = &self.below else { return Ok(()) };
            // A request that has begun before may have brought it to memory.
            if below.forget(hash, key, now)? {
                return Ok(());
            }
        }
    }

    /// The memory of a node: as it is attached already, or attached for this job.
    fn source(&self, from: ServerId) -> io::Result<Source<M>> {
        let node = from.0 as usize;
        let table = match self.rack.table(node) {
            Some(table) => table,
            None => {
                let attached = attach(&self.rack, &self.store, node)?;
                Arc::clone(attached.memory.table().ok_or(io::ErrorKind::Unsupported)?)
            }
        };
        let ahead_s = self.clock.zero_unix_s().cast_signed() - table.clock_base().cast_signed();
        Ok(Source { table, ahead_s, value: Vec::new() })
    }

    /// Copies all items of some micro-shards from one node.
    fn scan(&mut self, from: ServerId, jobs: &BTreeMap<MicroShard, CopyJob>) {
        let mut failed = BTreeSet::new();
        let walked = if self.is_far(from) {
            self.walk_afar(from, jobs, &mut failed)
        } else {
            self.walk(from, jobs, &mut failed)
        };
        let is_walked = walked.inspect_err(|error| self.warn(from, error)).is_ok();
        for (micro_shard, job) in jobs {
            self.say(Event::Copied(job.id, is_walked && !failed.contains(micro_shard)));
        }
    }

    fn walk(
        &mut self,
        from: ServerId,
        jobs: &BTreeMap<MicroShard, CopyJob>,
        failed: &mut BTreeSet<MicroShard>,
    ) -> Result<(), CopyError> {
        let mut source = self.source(from)?;
        let walked = self.walk_through(&mut source, jobs, failed);
        failed.extend(jobs.values().filter(|job| !source.has_held(job)).map(|job| job.id.micro_shard));
        walked
    }

    fn walk_through(
        &mut self,
        source: &mut Source<M>,
        jobs: &BTreeMap<MicroShard, CopyJob>,
        failed: &mut BTreeSet<MicroShard>,
    ) -> Result<(), CopyError> {
        let table = Arc::clone(&source.table);
        let mut keys: Vec<(MicroShard, Box<[u8]>)> = Vec::new();
        for partition in 0..table.partitions() {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                if self.stop.is_requested() {
                    return Err(CopyError::Unreadable);
                }
                self.take_in(jobs, failed);
                let now = self.clock.seconds();
                let there = shifted(now, source.ahead_s);
                let next = table.visit(partition, from, CHAINS, there, |named| {
                    let Named::Key(key) = named else { return };
                    let micro_shard = MicroShard(self.rack.micro_shard(key));
                    if jobs.contains_key(&micro_shard) {
                        keys.push((micro_shard, key.into()));
                    }
                });
                cursor = next.map_err(|_| CopyError::Unreadable)?;
                for (micro_shard, key) in
                    keys.drain(..).filter(|(it, _)| !failed.contains(it)).collect::<Vec<_>>()
                {
                    if let Err(error) = self.copy(source, micro_shard, &key, now) {
                        tracing::warn!(micro_shard = micro_shard.0, %error, "a micro-shard is not copied");
                        failed.insert(micro_shard);
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies the items of some keys, or removes those that are gone.
    fn batch(&self, job: &CopyJob) -> Result<(), CopyError> {
        let mut source = self.source(job.from)?;
        hashes_of(job).iter().try_for_each(|hash| self.copy_keys(&mut source, job, *hash))?;
        if source.has_held(job) { Ok(()) } else { Err(CopyError::Unreadable) }
    }

    fn copy_keys(&self, source: &mut Source<M>, job: &CopyJob, hash: KeyHash) -> Result<(), CopyError> {
        let (micro_shard, now) = (job.id.micro_shard, self.clock.seconds());
        let mut there = Vec::<Box<[u8]>>::new();
        let table = Arc::clone(&source.table);
        let is_meant = |key: &&[u8]| self.rack.micro_shard(key) == micro_shard.0;
        let keys = table.keys_with(hash, shifted(now, source.ahead_s), |named| {
            let Named::Key(key) = named else { return };
            there.extend(Some(key).filter(is_meant).map(Box::from))
        });
        keys.map_err(|_| CopyError::Unreadable)?;
        // An owner that has begun anew shows none: its items may be here alone.
        if !source.has_held(job) {
            return Err(CopyError::Unreadable);
        }
        self.forget(micro_shard, hash, &there.iter().map(|key| &key[..]).collect::<Vec<_>>())?;
        there.iter().try_for_each(|key| self.copy(source, micro_shard, key, now))
    }

    /// Removes the items with this hash whose keys are not `there`, at the owner.
    pub(super) fn forget(
        &self,
        micro_shard: MicroShard,
        hash: KeyHash,
        there: &[&[u8]],
    ) -> Result<(), CopyError> {
        let (now, mut here) = (self.clock.seconds(), Vec::<Box<[u8]>>::new());
        let is_gone = |key: &&[u8]| self.rack.micro_shard(key) == micro_shard.0 && !there.contains(key);
        let mut add = |key: &[u8]| here.extend(Some(key).filter(is_gone).map(Box::from));
        match &self.below {
            Some(below) => below.keys_with(hash, now, add)?,
            None => self.store.keys_with(hash, now, &mut add),
        }
        here.iter().try_for_each(|key| self.remove(hash, key))
    }

    /// Copies one item, or removes it if it is gone.
    fn copy(
        &self,
        source: &mut Source<M>,
        micro_shard: MicroShard,
        key: &[u8],
        now: Seconds,
    ) -> Result<(), CopyError> {
        let hash = self.store.hash(key);
        for _ in 0..READS_MAX {
            let flushes = self.store.flushes();
            match source.read(micro_shard, hash, key, now) {
                Answer::Found(meta) => {
                    if self.insert(hash, key, (&source.value, meta), now, flushes)? {
                        return Ok(());
                    }
                }
                Answer::Missing => {
                    self.store.entry(hash, key, now).remove();
                    return Ok(());
                }
                Answer::AskOwner => thread::sleep(PAUSE),
            }
        }
        Err(CopyError::Unreadable)
    }

    /// Stores an item that was read when the table had seen so many `flushes`; false if there was one since. The owner was
    /// flushed before, so that what it shows now is right.
    pub(super) fn insert(
        &self,
        hash: KeyHash,
        key: &[u8],
        (value, meta): (&[u8], ItemMeta),
        now: Seconds,
        flushes: u64,
    ) -> Result<bool, CopyError> {
        let entry = || Some(self.store.entry(hash, key, now)).filter(|_| self.store.flushes() == flushes);
        self.with_room(|| {
            let inserted = if value.len() < LARGE_BYTES {
                entry().map(|mut entry| entry.insert(&[value], meta).map(drop))
            } else {
                let mut reservation = self.store.reserve(hash, key, value.len() as u64)?;
                reservation.value_mut().copy_from_slice(value);
                reservation.settle();
                entry().map(|mut entry| entry.commit(reservation, meta).map(drop))
            };
            inserted.transpose().map(|inserted| inserted.is_some())
        })
    }

    /// Repeats what finds no memory, while flash may be about to take items.
    pub(super) fn with_room<T>(
        &self,
        mut act: impl FnMut() -> Result<T, OutOfMemory>,
    ) -> Result<T, CopyError> {
        let begun = Instant::now();
        loop {
            match act() {
                Ok(done) => return Ok(done),
                Err(_) if self.below.is_some() && begun.elapsed() < ROOM_MAX && !self.stop.is_requested() => {
                    thread::sleep(PAUSE);
                }
                Err(_) => return Err(CopyError::NoMemory),
            }
        }
    }

    /// Warns of what is tried again soon.
    fn warn(&self, from: ServerId, error: &dyn std::error::Error) {
        if self.warned.get().is_some_and(|at| at.elapsed() < QUIET) {
            return;
        }
        self.warned.set(Some(Instant::now()));
        tracing::warn!(node = from.0, %error, "items of a node are not copied");
    }
}

impl<M: Mode> Source<M> {
    /// Reads an item; its value is in `value`.
    fn read(&mut self, micro_shard: MicroShard, hash: KeyHash, key: &[u8], now: Seconds) -> Answer<ItemMeta> {
        let Self { table, ahead_s, value } = self;
        table.read_owned(micro_shard.0, hash, key, shifted(now, *ahead_s), |item: &ItemView<'_>| {
            value.clear();
            item.copy_value_to(value);
            let meta = meta_of(item);
            let expiry = if meta.expiry == 0 { 0 } else { shifted(meta.expiry, -*ahead_s) };
            ItemMeta { expiry, ..meta }
        })
    }

    /// True if everything that was read so far was the owner's: it has not lost the micro-shard since.
    fn has_held(&self, job: &CopyJob) -> bool {
        let ownership = self.table.ownership_after_reads(job.id.micro_shard.0);
        ownership.is_readable() && ownership.epoch == job.epoch
    }
}

/// Jobs that are done together.
enum Group {
    Empty(BTreeSet<MicroShard>),
    Scan(ServerId, BTreeMap<MicroShard, CopyJob>),
}

/// The first job and those that can be done with it, and the others in their order. There is one job of a micro-shard at
/// a time.
fn group(jobs: Vec<Job>) -> (Group, Vec<Job>) {
    let mut jobs = jobs.into_iter();
    let mut left = Vec::new();
    let group = match jobs.next() {
        Some(Job::Empty(first)) => {
            let mut micro_shards = BTreeSet::from([first]);
            for job in jobs {
                match job {
                    Job::Empty(micro_shard) => drop(micro_shards.insert(micro_shard)),
                    other => left.push(other),
                }
            }
            Group::Empty(micro_shards)
        }
        Some(Job::Copy(first)) => {
            let from = first.from;
            let mut group = BTreeMap::from([(first.id.micro_shard, first)]);
            for job in jobs {
                match job {
                    Job::Copy(it) if it.from == from => {
                        group.insert(it.id.micro_shard, it);
                    }
                    other => left.push(other),
                }
            }
            Group::Scan(from, group)
        }
        // Jobs for changed keys are done before.
        Some(Job::Apply(..)) | None => Group::Empty(BTreeSet::new()),
    };
    (group, left)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use minos_engine::{Backing, OwnerState, Ownership, StoreConfig, StoreMode};
    use minos_unit::MoveId;

    use super::*;
    use crate::rack::{config::RackConfig, member::Calls};

    const MICRO_SHARDS: u32 = 4;
    const OWNER: ServerId = ServerId(0);
    const EPOCH: u32 = 5;
    const KEY: &[u8] = b"key";

    fn store() -> Arc<Engine<StoreMode>> {
        let config = StoreConfig {
            backing: Backing::Memfd,
            micro_shards: MICRO_SHARDS,
            hash_seed: 7,
            ..StoreConfig::new(8 << 20)
        };
        Arc::new(Engine::create(&config).unwrap())
    }

    fn put(store: &Engine<StoreMode>, value: &[u8]) {
        store.entry(store.hash(KEY), KEY, 5).insert(&[value], ItemMeta::default()).unwrap();
    }

    fn value_at(store: &Engine<StoreMode>) -> Option<Vec<u8>> {
        store.read(store.hash(KEY), KEY, 5, |item| {
            let mut value = Vec::new();
            item.copy_value_to(&mut value);
            value
        })
    }

    /// The copier of a follower, which reads the memory of this owner.
    fn copier(owner: &Engine<StoreMode>) -> Copier<StoreMode> {
        let config = RackConfig::of_units(1, &[0, 1], MICRO_SHARDS);
        let (calls, clock) = (Arc::new(Calls::new(&config)), Clock::new());
        let rack = Arc::new(Rack::new(config, 1));
        let memory = ReadOnly::from_descriptor(owner.descriptor_to_read().unwrap()).unwrap();
        rack.attach(OWNER.0 as usize, Some(Arc::new(memory)), "attached");
        Copier {
            rack,
            store: store(),
            clock,
            jobs: channel().1,
            events: channel().0,
            pending: Vec::new(),
            afar: Afar::new(calls, String::new(), clock),
            below: None,
            stop: Arc::new(Stop::new().unwrap()),
            warned: Cell::new(None),
        }
    }

    /// Tells a follower that has an older value of the key that it has changed at its owner, whose memory says this of the
    /// micro-shard; returns whether that is copied, and the follower's value then.
    fn tell_of_a_change(owner: &Engine<StoreMode>, said: Ownership) -> (bool, Option<Vec<u8>>) {
        let mut copier = copier(owner);
        put(&copier.store, b"old");
        let micro_shard = copier.rack.micro_shard(KEY);
        owner.set_ownership(micro_shard, said);
        let id = MoveId { micro_shard: MicroShard(micro_shard), number: EPOCH + 1 };
        let hashes = Some(vec![owner.hash(KEY)]);
        let job = CopyJob { id, from: OWNER, epoch: EPOCH, hashes };
        (copier.copy_changed(OWNER, &[job]), value_at(&copier.store))
    }

    #[test]
    fn a_follower_takes_in_what_its_owner_has_changed() {
        let (owner, owned) = (store(), Ownership { epoch: EPOCH, state: OwnerState::Owned });
        assert_eq!(tell_of_a_change(&owner, owned), (true, None));
        put(&owner, b"new");
        assert_eq!(tell_of_a_change(&owner, owned), (true, Some(b"new".to_vec())));
    }

    /// It has a new memory, or repairs the index of its old one; or it is the owner again without its items.
    #[test]
    fn an_owner_that_begins_anew_takes_nothing_from_its_followers() {
        for said in [
            Ownership { epoch: 0, state: OwnerState::None },
            Ownership { epoch: EPOCH, state: OwnerState::None },
            Ownership { epoch: EPOCH + 1, state: OwnerState::Owned },
        ] {
            let told = tell_of_a_change(&store(), said);
            assert_eq!(told, (false, Some(b"old".to_vec())), "{said:?}");
        }
    }
}
