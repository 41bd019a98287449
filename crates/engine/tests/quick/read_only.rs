//! A table that is mapped to be read only answers as a model does, and changes no word of the region.

use crate::common::{key_bytes, pattern};
use minos_base::{FlashPlace, KeyHash, RoughLength};
use minos_engine::{
    Answer, Backing, CacheMode, Crcw, Engine, Erew, Get, ItemMeta, ItemView, Mode, OpenError, Opening,
    OwnerState, Ownership, ReadOnly, StoreConfig, StoreMode, Tiered, TieredMode,
};
use proptest::{collection::vec, prelude::*};
use std::{
    collections::HashMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const KEYS: u16 = 64;
const FILL_KEYS: u16 = 3000;

#[derive(Clone, Debug)]
enum Op {
    Set { key: u16, len: usize, ttl: u32 },
    Delete { key: u16 },
    Touch { key: u16, ttl: u32 },
    Fill { from: u16, count: u16 },
    Sweep { buckets: usize },
    Flush,
    Pass { seconds: u32 },
    // The owner reads, and records that.
    Read { key: u16 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..KEYS;
    let len = prop_oneof![6 => 0usize..200, 2 => 3900usize..4300, 1 => 10_000usize..60_000];
    let ttl = prop_oneof![3 => Just(0u32), 1 => 1u32..20];
    let op = prop_oneof![
        12 => (key.clone(), len, ttl.clone()).prop_map(|(key, len, ttl)| Op::Set { key, len, ttl }),
        3 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key.clone(), ttl).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        1 => (KEYS..FILL_KEYS, 1u16..400).prop_map(|(from, count)| Op::Fill { from, count }),
        2 => (1usize..80).prop_map(|buckets| Op::Sweep { buckets }),
        1 => Just(Op::Flush),
        2 => (1u32..5).prop_map(|seconds| Op::Pass { seconds }),
        3 => key.prop_map(|key| Op::Read { key }),
    ];
    vec(op, 1..120)
}

#[derive(Clone)]
struct Expected {
    value: Vec<u8>,
    cas: u64,
    flags: u32,
    expiry: u32,
}

/// An engine, the same region mapped again, and what both should hold.
struct Pair<M: Mode> {
    engine: Engine<M, Crcw>,
    table: ReadOnly<M>,
    path: PathBuf,
    model: HashMap<u16, Expected>,
    now: u32,
    step: u64,
    _dir: TempDir,
}

fn table_on_file(dir: &TempDir) -> (StoreConfig, PathBuf) {
    let path = dir.path().join("table");
    let backing = Backing::File(path.clone());
    // So much memory that the cache evicts nothing.
    (StoreConfig { backing, partitions: Some(2), ..StoreConfig::new(16 << 20) }, path)
}

impl<M: Mode> Pair<M> {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (config, path) = table_on_file(&dir);
        let engine = Engine::open(&config).unwrap().0;
        let table = ReadOnly::open(&path).unwrap();
        Self { engine, table, path, model: HashMap::new(), now: 5, step: 0, _dir: dir }
    }

    fn hash(&self, key: u16) -> (KeyHash, Vec<u8>) {
        let key = key_bytes(key);
        assert_eq!(self.engine.hash(&key), self.table.hash(&key));
        (self.engine.hash(&key), key)
    }

    fn expiry(&self, ttl: u32) -> u32 {
        if ttl == 0 { 0 } else { self.now + ttl }
    }

    fn set(&mut self, key: u16, len: usize, ttl: u32) {
        self.step += 1;
        let (hash, bytes) = self.hash(key);
        let (value, flags, expiry) = (pattern(self.step, len), self.step as u32, self.expiry(ttl));
        let meta = ItemMeta { flags, expiry, ..ItemMeta::default() };
        let cas = self.engine.entry(hash, &bytes, self.now).insert(&[&value], meta).unwrap();
        self.model.insert(key, Expected { value, cas, flags, expiry });
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Set { key, len, ttl } => self.set(key, len, ttl),
            Op::Delete { key } => {
                let (hash, bytes) = self.hash(key);
                let removed = self.engine.entry(hash, &bytes, self.now).remove();
                assert_eq!(removed, self.model.remove(&key).is_some());
            }
            Op::Touch { key, ttl } => {
                let (hash, bytes) = self.hash(key);
                let expiry = self.expiry(ttl);
                self.engine.entry(hash, &bytes, self.now).set_expiry(expiry);
                if let Some(item) = self.model.get_mut(&key) {
                    item.expiry = expiry;
                }
            }
            Op::Fill { from, count } => {
                (from..from.saturating_add(count).min(FILL_KEYS)).for_each(|key| self.set(key, 9, 0));
            }
            Op::Sweep { buckets } => {
                for partition in 0..self.engine.partitions() {
                    self.engine.sweep(partition, buckets, self.now);
                }
            }
            Op::Flush => {
                self.engine.flush();
                self.model.clear();
            }
            Op::Pass { seconds } => self.now += seconds,
            Op::Read { key } => {
                let (hash, bytes) = self.hash(key);
                self.engine.read(hash, &bytes, self.now, |_| ());
            }
        }
        let now = self.now;
        self.model.retain(|_, item| item.expiry == 0 || item.expiry > now);
    }

    /// Reads all keys one by one, and in bursts whose cache misses overlap.
    fn compare(&self) {
        let keys: Vec<_> = (0..FILL_KEYS).collect();
        for keys in keys.chunks(32) {
            let hashed: Vec<_> = keys.iter().map(|&key| self.hash(key)).collect();
            hashed.iter().for_each(|(hash, _)| self.table.prefetch_bucket(*hash));
            let staged: Vec<_> = hashed.iter().map(|(hash, _)| self.table.stage(*hash)).collect();
            for ((key, (hash, bytes)), staged) in keys.iter().zip(&hashed).zip(&staged) {
                self.judge(*key, self.table.read(*hash, bytes, self.now, seen));
                let get = Get { hash: *hash, key: bytes };
                self.judge(*key, self.table.read_staged(staged, &get, self.now, seen));
            }
        }
    }

    fn judge(&self, key: u16, answer: Answer<Seen>) {
        match (self.model.get(&key), answer) {
            (None, Answer::Missing) => {}
            (Some(item), Answer::Found((cas, flags, expiry, value))) => {
                assert_eq!((item.cas, item.flags, item.expiry), (cas, flags, expiry), "{key}");
                assert!(value == item.value, "{key}");
            }
            (item, answer) => panic!("{key}: {answer:?} instead of {:?}", item.map(|item| item.cas)),
        }
    }
}

/// CAS unique, flags, expiry and value.
type Seen = (u64, u32, u32, Vec<u8>);

fn seen(item: &ItemView<'_>) -> Seen {
    let mut value = Vec::new();
    item.copy_value_to(&mut value);
    (item.cas(), item.flags(), item.expiry(), value)
}

fn answers_as_the_model<M: Mode>(ops: &[Op]) {
    let mut pair = Pair::<M>::new();
    for (at, op) in ops.iter().enumerate() {
        pair.apply(op);
        if at % 40 == 39 {
            pair.compare();
        }
    }
    let before = fs::read(&pair.path).unwrap();
    pair.compare();
    assert!(fs::read(&pair.path).unwrap() == before, "a read has changed the region");
    pair.engine.check().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_store_that_is_read_only_answers_as_a_model(ops in ops()) {
        answers_as_the_model::<StoreMode>(&ops);
    }

    #[test]
    fn a_cache_that_is_read_only_answers_as_a_model(ops in ops()) {
        answers_as_the_model::<CacheMode>(&ops);
    }
}

/// The variable that has the test below read the table at its value, in a process of its own.
const CHILD: &str = "MINOS_READ_ONLY_TABLE";

#[test]
fn another_process_reads_what_this_one_writes() {
    const KEY: &[u8] = b"shared";
    if let Some(path) = std::env::var_os(CHILD) {
        let table = ReadOnly::<CacheMode>::open(Path::new(&path)).unwrap();
        let answer = table.read(table.hash(KEY), KEY, 5, |item| item.value_u64());
        assert_eq!((answer, table.clock_base()), (Answer::Found(Some(77)), 1234));
        return;
    }
    let mut pair = Pair::<CacheMode>::new();
    pair.engine.set_clock_base(1234);
    pair.apply(&Op::Fill { from: KEYS, count: 900 });
    let mut entry = pair.engine.entry(pair.engine.hash(KEY), KEY, 5);
    entry.insert(&[&77u64.to_le_bytes()], ItemMeta::default()).unwrap();
    drop(entry);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "read_only::another_process_reads_what_this_one_writes", "--nocapture"])
        .env(CHILD, &pair.path)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}

#[test]
fn a_table_that_cannot_be_read_beside_its_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = table_on_file(&dir);
    assert!(matches!(ReadOnly::<StoreMode>::open(&path), Err(OpenError::Region(_))));
    let (engine, _) = Engine::<StoreMode, Erew>::open(&config).unwrap();
    assert!(matches!(ReadOnly::<StoreMode>::open(&path), Err(OpenError::Unreliable { .. })));
    assert!(matches!(ReadOnly::<CacheMode>::open(&path), Err(OpenError::Layout { .. })));
    drop(engine);
}

const MICRO_SHARDS: u32 = 100;
const SHARD: u32 = 77;

fn owned(epoch: u32) -> Ownership {
    Ownership { epoch, state: OwnerState::Owned }
}

/// A table with one key, in a file.
struct Shard<M: Mode> {
    engine: Option<Engine<M, Crcw>>,
    config: StoreConfig,
    table: ReadOnly<M>,
    _dir: TempDir,
}

impl<M: Mode> Shard<M> {
    const KEY: &[u8] = b"of a micro-shard";

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (config, path) = table_on_file(&dir);
        let config = StoreConfig { micro_shards: MICRO_SHARDS, ..config };
        let engine = Engine::open(&config).unwrap().0;
        let table = ReadOnly::open(&path).unwrap();
        let shard = Self { engine: Some(engine), config, table, _dir: dir };
        shard.set(1);
        shard
    }

    fn engine(&self) -> &Engine<M, Crcw> {
        self.engine.as_ref().unwrap()
    }

    fn set(&self, value: u64) {
        let mut entry = self.engine().entry(self.table.hash(Self::KEY), Self::KEY, 5);
        entry.insert(&[&value.to_le_bytes()], ItemMeta::default()).unwrap();
    }

    fn read(&self, beside: impl FnMut()) -> Answer<Option<u64>> {
        self.read_key(Self::KEY, beside)
    }

    fn read_key(&self, key: &[u8], mut beside: impl FnMut()) -> Answer<Option<u64>> {
        self.table.read_owned(SHARD, self.table.hash(key), key, 5, |item| {
            beside();
            item.value_u64()
        })
    }

    /// Opens the table again, as after a kill.
    fn restart(&mut self) -> Opening {
        self.engine = None;
        let (engine, opening) = Engine::open(&self.config).unwrap();
        self.engine = Some(engine);
        opening
    }
}

fn is_read_only_while_it_is_owned<M: Mode>() {
    let shard = Shard::<M>::new();
    let give = |epoch, state| shard.engine().set_ownership(SHARD, Ownership { epoch, state });
    assert_eq!(
        (shard.table.micro_shards(), shard.table.ownership(SHARD)),
        (MICRO_SHARDS, Ownership::default())
    );
    assert_eq!((shard.read(|| ()), shard.read_key(b"none", || ())), (Answer::AskOwner, Answer::AskOwner));
    for state in [OwnerState::Owned, OwnerState::Frozen] {
        give(1, state);
        assert_eq!(shard.table.ownership(SHARD), Ownership { epoch: 1, state });
        assert_eq!(
            (shard.read(|| ()), shard.read_key(b"none", || ())),
            (Answer::Found(Some(1)), Answer::Missing)
        );
    }
    // Given away, or owned anew, while it is read.
    assert_eq!(shard.read(|| give(1, OwnerState::None)), Answer::AskOwner);
    give(2, OwnerState::Owned);
    let mut reads = 0;
    let answer = shard.read(|| {
        reads += 1;
        give(3, OwnerState::Owned);
    });
    assert_eq!((answer, reads), (Answer::Found(Some(1)), 2));
    let mut epoch = 3;
    let answer = shard.read(|| {
        epoch += 1;
        give(epoch, OwnerState::Owned);
    });
    assert_eq!((answer, epoch), (Answer::AskOwner, 3 + 16));
    let no_such = shard.table.read_owned(MICRO_SHARDS, shard.table.hash(b"none"), b"none", 5, |_| ());
    assert_eq!((no_such, shard.table.ownership(MICRO_SHARDS)), (Answer::AskOwner, Ownership::default()));
}

#[test]
fn a_micro_shard_is_read_only_while_it_is_owned() {
    is_read_only_while_it_is_owned::<StoreMode>();
    is_read_only_while_it_is_owned::<CacheMode>();
}

fn restart_ends_its_tenure<M: Mode>() {
    let mut shard = Shard::<M>::new();
    shard.engine().set_ownership(SHARD, owned(5));
    let opening = shard.restart();
    assert_eq!(opening, Opening::Repaired { items: 1, dropped: 0 });
    let nobody = Ownership { epoch: 5, state: OwnerState::None };
    assert_eq!((shard.engine().ownership(SHARD), shard.table.ownership(SHARD)), (nobody, nobody));
    // The table was mapped before the restart, and no reader need map it again.
    assert_eq!(shard.read(|| ()), Answer::AskOwner);
    shard.set(2);
    shard.engine().set_ownership(SHARD, owned(6));
    assert_eq!(shard.read(|| ()), Answer::Found(Some(2)));
    shard.engine.take().unwrap().close().unwrap();
    assert_eq!(shard.read(|| ()), Answer::Found(Some(2)), "nobody writes any more");
    assert_eq!(shard.restart(), Opening::Warm { items: 1 });
    assert_eq!(shard.engine().ownership(SHARD), Ownership { epoch: 6, state: OwnerState::None });
}

#[test]
fn a_restart_ends_the_tenure_of_a_micro_shard() {
    restart_ends_its_tenure::<StoreMode>();
    restart_ends_its_tenure::<CacheMode>();
}

fn is_read_through_a_descriptor<M: Mode>() {
    let config = StoreConfig { backing: Backing::Memfd, micro_shards: 1, ..StoreConfig::new(4 << 20) };
    let engine = Engine::<M, Crcw>::create(&config).unwrap();
    let table = ReadOnly::<M>::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
    let hash = engine.hash(b"key");
    engine.entry(hash, b"key", 5).insert(&[&7u64.to_le_bytes()], ItemMeta::default()).unwrap();
    engine.set_ownership(0, owned(1));
    // Who has the memory mapped keeps it.
    drop(engine);
    let answer = table.read_owned(0, table.hash(b"key"), b"key", 5, |item| item.value_u64());
    assert_eq!(answer, Answer::Found(Some(7)));
}

#[test]
fn a_table_is_read_through_a_descriptor() {
    is_read_through_a_descriptor::<StoreMode>();
    is_read_through_a_descriptor::<CacheMode>();
    let config = StoreConfig { backing: Backing::Private, ..StoreConfig::new(4 << 20) };
    let engine = Engine::<StoreMode, Crcw>::create(&config).unwrap();
    assert_eq!(engine.descriptor_to_read().unwrap_err().kind(), ErrorKind::Unsupported);
}

fn a_stage_belongs_to_its_tenure<M: Mode>() {
    let shard = Shard::<M>::new();
    let get = Get { hash: shard.table.hash(Shard::<M>::KEY), key: Shard::<M>::KEY };
    let stage = || shard.table.stage_owned(SHARD, get.hash);
    let read = |staged| shard.table.read_staged_owned(&staged, &get, 5, |item| item.value_u64());
    let early = stage();
    assert_eq!(read(early), Answer::AskOwner);
    shard.engine().set_ownership(SHARD, owned(1));
    assert_eq!((read(early), read(stage())), (Answer::Found(Some(1)), Answer::Found(Some(1))));
    let first = stage();
    shard.set(2);
    assert_eq!(read(first), Answer::Found(Some(2)));
    let second = stage();
    shard.engine().set_ownership(SHARD, Ownership::default());
    assert_eq!(read(second), Answer::AskOwner);
    shard.engine().set_ownership(SHARD, owned(2));
    assert_eq!(read(second), Answer::Found(Some(2)));
    shard.engine().entry(get.hash, get.key, 5).remove();
    assert_eq!((read(second), read(stage())), (Answer::Missing, Answer::Missing));
}

#[test]
fn a_stage_of_a_burst_belongs_to_its_tenure() {
    a_stage_belongs_to_its_tenure::<StoreMode>();
    a_stage_belongs_to_its_tenure::<CacheMode>();
}

#[test]
fn a_tiered_table_does_not_say_that_a_key_is_missing_which_flash_may_have() {
    let config = StoreConfig { backing: Backing::Memfd, ..StoreConfig::new(4 << 20) };
    let engine = Tiered::<Crcw>::create(&config).unwrap();
    let table = ReadOnly::<TieredMode>::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
    let read = |key: &[u8]| table.read(table.hash(key), key, 5, |item| item.value_u64());
    engine.entry(engine.hash(b"key"), b"key", 5).insert(&[&7u64.to_le_bytes()], ItemMeta::default()).unwrap();
    let place = FlashPlace { page: 9, length: RoughLength::of(100, 1) };
    engine.adopt(engine.hash(b"cold"), place, 1).unwrap();
    assert_eq!((read(b"key"), read(b"cold")), (Answer::Found(Some(7)), Answer::AskOwner));
    assert_eq!(read(b"none"), Answer::Missing);
}
