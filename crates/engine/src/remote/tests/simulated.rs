//! A fabric in virtual time, each line of which is of an instant of its own, and an owner whose stores take effect one
//! by one.

mod owner;

use super::{Completion, Fabric, History, PEER, Range, Rig};
use crate::index::BUCKET_WORDS;
use minos_base::seeded_stream;
use owner::Owner;
pub(super) use owner::{Change, Ground};
use rand::{RngExt, rngs::StdRng};
use std::collections::{BTreeMap, HashMap};

/// Longest time in which a line is read after its round has begun.
const LATENCY_MAX: u64 = 60;
/// Longest time between two stores of an operation, and between two operations.
const STORE_MAX: u64 = 8;
const OPERATION_MAX: u64 = 60;

/// A store of the owner, and what is true from then on.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) at: u64,
    pub(super) value: u64,
    pub(super) change: Option<Change>,
}

enum Event {
    Store(Store),
    Line { token: u64, words: std::ops::Range<u64>, to: usize },
    Done(u64),
    Operate,
}

pub(super) struct Simulated<'a> {
    ground: &'a Ground,
    memory: Vec<u64>,
    owner: Owner,
    random: StdRng,
    history: History,
    now: u64,
    /// By time, and in the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    reads: HashMap<u64, Vec<u64>>,
}

impl<'a> Simulated<'a> {
    pub(super) fn new(ground: &'a Ground, seed: u64) -> Self {
        let mut simulated = Self {
            ground,
            memory: ground.memory.clone(),
            owner: Owner::new(ground),
            random: seeded_stream(seed, 0),
            history: History::new(ground.keys.len()),
            now: 0,
            events: BTreeMap::new(),
            planned: 0,
            reads: HashMap::new(),
        };
        simulated.plan(1, Event::Operate);
        simulated
    }

    fn plan(&mut self, time: u64, event: Event) {
        self.planned += 1;
        self.events.insert((time, self.planned), event);
    }

    /// Plans the stores of the owner's next operation, and the operation after it.
    fn operate(&mut self) {
        let stores = self.owner.operate(self.ground, &self.memory, &mut self.random);
        let mut time = self.now;
        for store in stores {
            time += self.random.random_range(1..=STORE_MAX);
            self.plan(time, Event::Store(store));
        }
        time += self.random.random_range(1..=OPERATION_MAX);
        self.plan(time, Event::Operate);
    }

    fn store(&mut self, Store { at, value, change }: Store) {
        self.memory[at as usize] = value;
        if let Some(change) = change {
            self.history.change(self.now, |truth| change.apply(truth));
        }
    }
}

impl Fabric for Simulated<'_> {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        assert_eq!(peer, PEER);
        let (mut last, mut to) = (self.now, 0);
        for range in ranges {
            let end = range.start + range.words as u64;
            let mut at = range.start;
            while at < end {
                let line_end = (at / BUCKET_WORDS as u64 + 1) * BUCKET_WORDS as u64;
                let words = at..end.min(line_end);
                let time = self.now + self.random.random_range(1..=LATENCY_MAX);
                at = words.end;
                let count = (words.end - words.start) as usize;
                self.plan(time, Event::Line { token, words, to });
                (last, to) = (last.max(time), to + count);
            }
        }
        self.reads.insert(token, vec![0; to]);
        self.plan(last, Event::Done(token));
    }

    fn poll(&mut self, mut done: impl FnMut(Completion<'_>)) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = time;
            match event {
                Event::Operate => self.operate(),
                Event::Store(store) => self.store(store),
                Event::Line { token, words, to } => {
                    let line = &self.memory[words.start as usize..words.end as usize];
                    if let Some(read) = self.reads.get_mut(&token) {
                        read[to..to + line.len()].copy_from_slice(line);
                    }
                }
                Event::Done(token) => {
                    let words = self.reads.remove(&token);
                    return done(Completion { token, words: words.as_deref() });
                }
            }
        }
    }
}

impl Rig for Simulated<'_> {
    fn now(&self) -> u64 {
        self.now
    }

    fn keys(&self) -> usize {
        self.ground.keys.len()
    }

    fn key(&self, number: usize) -> [u8; 8] {
        self.ground.keys[number]
    }

    fn history(&self) -> &History {
        &self.history
    }
}
