//! An owner in a process of its own, which writes until its input ends or it is killed.
//!
//! A value says which of the owner's turns it is of, in each of its words. What is stored while the micro-shard is
//! another's is a lie.

use super::memory;
use minos_engine::{
    ItemMeta, Store, StoreConfig,
    remote::rig::{MICRO_SHARD, NOW},
};
use minos_region::{OwnerState, Ownership};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

pub(super) const KEYS: u64 = 64;
/// Keys from this one on are never removed.
pub(super) const KEYS_LASTING: u64 = 32;
/// Other keys, which come and go in turn, so that the index grows and chunks are used again.
const KEYS_OTHER: u64 = 5000;
const LIE: u64 = 1 << 63;
/// Words of values.
const LENGTHS: [u64; 4] = [2, 3, 12, 25];
/// Before the advertisement, on the owner's output.
const MARK: &str = "advertisement: ";
const VARIABLE: &str = "MINOS_UCX_OWNER";

/// The value of a key in a turn.
pub(super) fn value(key: u64, turn: u64) -> Vec<u8> {
    let length = LENGTHS[(turn % 4) as usize];
    (0..length).flat_map(|at| (turn ^ (at * key)).to_le_bytes()).collect()
}

/// The turn of a value, if it is one, and no lie.
pub(super) fn turn_of(key: u64, found: &[u8]) -> Option<u64> {
    let turn = u64::from_le_bytes(*found.first_chunk()?);
    (turn < LIE && value(key, turn) == found).then_some(turn)
}

/// A process that owns and writes.
pub(super) struct Owner {
    child: Child,
    pub(super) advertisement: Vec<u8>,
    _input: ChildStdin,
}

impl Owner {
    pub(super) fn start() -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["owner::owner", "--exact", "--ignored", "--nocapture"]).env(VARIABLE, "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let text =
            lines.map_while(Result::ok).find_map(|line| Some(line.split_once(MARK)?.1.to_owned())).unwrap();
        let advertisement = text.split(' ').map(|byte| byte.parse().unwrap()).collect();
        let input = child.stdin.take().unwrap();
        Self { child, advertisement, _input: input }
    }

    /// As SIGKILL does.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The process, which is told by a variable what it is.
#[test]
#[ignore = "the other process of other tests"]
fn owner() {
    if env::var_os(VARIABLE).is_none() {
        return;
    }
    let (memory, backing) = memory();
    let config =
        StoreConfig { backing, partitions: Some(2), micro_shards: 16, ..StoreConfig::new(super::BYTES) };
    let mut writer = Writer::new(Store::create(&config).unwrap());
    let text: Vec<_> = memory.advertisement().iter().map(u8::to_string).collect();
    println!("{MARK}{}", text.join(" "));
    io::stdout().flush().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            _ = io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Relaxed);
        });
        while !is_over.load(Relaxed) {
            memory.progress();
            writer.write();
        }
    });
}

struct Writer {
    store: Store,
    random: StdRng,
    turn: u64,
    epoch: u32,
}

impl Writer {
    fn new(store: Store) -> Self {
        let mut writer = Self { store, random: StdRng::seed_from_u64(1), turn: 0, epoch: 1 };
        (0..KEYS).for_each(|key| writer.put(key, 0));
        writer.own(OwnerState::Owned);
        writer
    }

    fn own(&self, state: OwnerState) {
        self.store.set_ownership(MICRO_SHARD, Ownership { epoch: self.epoch, state });
    }

    fn write(&mut self) {
        match self.random.random_range(0..1000) {
            0 => self.be_away(),
            1..100 => {
                let key = self.random.random_range(0..KEYS_LASTING);
                self.remove(key);
            }
            100..200 => self.pass_by(),
            _ => {
                let key = self.random.random_range(0..KEYS);
                self.put(key, 0);
            }
        }
    }

    fn put(&mut self, key: u64, mark: u64) {
        self.turn += 1;
        let (value, name) = (value(key, self.turn | mark), key.to_le_bytes());
        let mut entry = self.store.entry(self.store.hash(&name), &name, NOW);
        entry.insert(&[&value], ItemMeta::default()).unwrap();
    }

    fn remove(&self, key: u64) {
        let name = key.to_le_bytes();
        self.store.entry(self.store.hash(&name), &name, NOW).remove();
    }

    /// Another key comes, or goes.
    fn pass_by(&mut self) {
        let key = KEYS + self.random.random_range(0..KEYS_OTHER);
        if self.random.random() { self.put(key, 0) } else { self.remove(key) }
    }

    /// Another node owns the keys for a moment, while this one lies, and removes what must last.
    fn be_away(&mut self) {
        self.own(OwnerState::None);
        for key in 0..KEYS {
            if key % 3 == 0 { self.remove(key) } else { self.put(key, LIE) }
        }
        (0..KEYS).for_each(|key| self.put(key, 0));
        self.epoch += 1;
        self.own(OwnerState::Owned);
    }
}
