//! A connection without a socket: does the node's part around the execution of commands, one at a time.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use minos_base::{Clock, Seconds, SizeClass, StatsGroup, limits::SLICE_BYTES};
use minos_engine::{Engine, Mode, StoreConfig};
use minos_proto::memcache::{Limits, Parsed, Resume, parse, parse_resumed, text};
use minos_sched::WorkerId;

use crate::memcache::{LargeReply, LargeStore, Lookup, Outcome, execute};
use crate::ops::counters::{Counters, Totals};
use crate::ops::receiving::{ReceivePermit, Receiving};
use crate::ops::{Admin, Context, Placement, Prefixes, flush_if_due};
use crate::tcp::visit::VISIT_REQUESTS_MAX;

/// Serves values up to a class, and records the classes it is asked about.
pub(crate) struct UpTo {
    pub(crate) class_max: SizeClass,
    pub(crate) asked: Vec<SizeClass>,
}

impl Placement for UpTo {
    fn is_here(&mut self, class: SizeClass) -> bool {
        self.asked.push(class);
        self.serves(class)
    }

    fn serves(&self, class: SizeClass) -> bool {
        class <= self.class_max
    }

    fn home(&self, _class: SizeClass) -> Option<WorkerId> {
        None
    }
}

/// A server of one worker.
pub(crate) struct Desk {
    counters: Arc<Counters>,
    baseline: RefCell<Totals>,
    flush_due_s: AtomicU32,
    allows_shutdown: Cell<bool>,
    receiving: Arc<Receiving>,
    prefixes: Prefixes,
}

impl Admin for Desk {
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        totals.add(&self.counters);
        totals.since(&self.baseline.borrow())
    }

    fn prefixes(&self) -> Option<&Prefixes> {
        Some(&self.prefixes)
    }

    fn reset(&self) {
        self.prefixes.clear();
        self.baseline.replace(Totals::default());
        let totals = self.totals();
        self.baseline.replace(totals);
    }

    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        emit("group", &format!("{group:?}"));
    }

    fn set_verbosity(&self, _level: u32) {}

    fn flush_at(&self, due: Seconds) {
        self.flush_due_s.store(due, Ordering::Relaxed);
    }

    fn allows_shutdown(&self) -> bool {
        self.allows_shutdown.get()
    }

    fn replies_bytes_max(&self) -> usize {
        SLICE_BYTES
    }

    fn admit(&self, bytes: u64) -> Option<ReceivePermit> {
        self.receiving.admit(bytes)
    }
}

/// The bytes that a connection waits for.
enum Waiting<M: Mode> {
    /// The next command.
    Command,
    /// Enough bytes for the command at the front of the input.
    Bytes(usize),
    /// The rest of a large value.
    Value(Box<LargeStore<M>>, usize),
}

/// One client's connection to a store or a cache.
pub(crate) struct Session<M: Mode> {
    pub(crate) store: Arc<Engine<M>>,
    pub(crate) clock: Clock,
    pub(crate) now: Seconds,
    pub(crate) limits: Limits,
    pub(crate) placement: UpTo,
    pub(crate) is_closed: bool,
    /// Values that were sent from their items.
    pub(crate) sent_large: usize,
    /// Keys that a line may read before it pauses.
    pub(crate) keys_max: usize,
    /// Slices in which values were copied.
    pub(crate) slices: usize,
    /// Times that a line of keys has paused.
    pub(crate) pauses: usize,
    desk: Desk,
    input: Vec<u8>,
    output: Vec<u8>,
    waiting: Waiting<M>,
    swallow: u64,
    resume: Option<Resume>,
}

/// 8 MiB for values up to 1 MiB.
fn small() -> StoreConfig {
    StoreConfig { value_bytes_max: 1 << 20, ..StoreConfig::new(8 << 20) }
}

impl<M: Mode> Session<M> {
    /// A connection to an empty table; values above `here_bytes_max` are moved without being copied.
    pub(crate) fn new(here_bytes_max: u64) -> Self {
        let store = Arc::new(Engine::create(&small()).expect("that much memory can be had"));
        let desk = Desk {
            counters: Arc::default(),
            baseline: RefCell::default(),
            flush_due_s: AtomicU32::new(0),
            allows_shutdown: Cell::new(false),
            receiving: Arc::new(Receiving::new(u64::MAX)),
            prefixes: Prefixes::new(8),
        };
        Self {
            store,
            clock: Clock::new(),
            now: 100,
            limits: Limits { value_bytes_max: 1 << 20, line_bytes_max: 64 << 10 },
            placement: UpTo { class_max: SizeClass::of(here_bytes_max), asked: Vec::new() },
            is_closed: false,
            sent_large: 0,
            keys_max: VISIT_REQUESTS_MAX,
            pauses: 0,
            slices: 0,
            desk,
            input: Vec::new(),
            output: Vec::new(),
            waiting: Waiting::Command,
            swallow: 0,
            resume: None,
        }
    }

    /// Takes all memory for arriving values until the permit is dropped.
    #[cfg(test)]
    pub(crate) fn take_receiving(&mut self) -> Option<ReceivePermit> {
        self.desk.receiving = Arc::new(Receiving::new(0));
        self.desk.receiving.admit(1)
    }

    #[cfg(test)]
    pub(crate) fn allow_shutdown(&self) {
        self.desk.allows_shutdown.set(true);
    }

    #[cfg(test)]
    pub(crate) fn totals(&self) -> Totals {
        self.desk.totals()
    }

    /// Sends `bytes` and returns the replies to all complete commands.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        flush_if_due(&self.desk.flush_due_s, &self.store, self.now);
        self.input.extend_from_slice(bytes.as_ref());
        while !self.is_closed && self.step() {}
        std::mem::take(&mut self.output)
    }

    /// Sends `text` and returns the replies as text.
    pub(crate) fn say(&mut self, text: &str) -> String {
        String::from_utf8_lossy(&self.send(text)).into_owned()
    }

    /// Processes the input as far as possible; true if there may be more to do.
    fn step(&mut self) -> bool {
        let swallowed = self.swallow.min(self.input.len() as u64);
        self.swallow -= swallowed;
        self.input.drain(..swallowed as usize);
        if self.input.is_empty() {
            return false;
        }
        match std::mem::replace(&mut self.waiting, Waiting::Command) {
            Waiting::Command => self.step_command(),
            Waiting::Bytes(bytes) if self.input.len() < bytes => {
                self.waiting = Waiting::Bytes(bytes);
                false
            }
            Waiting::Bytes(_) => self.step_command(),
            Waiting::Value(store, received) => {
                self.receive(store, received);
                true
            }
        }
    }

    fn step_command(&mut self) -> bool {
        let input = std::mem::take(&mut self.input);
        let parsed = match self.resume {
            Some(resume) => parse_resumed(resume, &input),
            None => parse(&input, &self.limits),
        };
        let (consumed, goes_on) = match parsed {
            Parsed::NeedMore => (0, false),
            Parsed::Malformed(malformed) => {
                self.output.extend_from_slice(malformed.reply);
                self.swallow = malformed.swallow;
                self.is_closed = malformed.close;
                (malformed.consumed, true)
            }
            Parsed::Request { command, consumed } => {
                self.resume = None;
                let lookup = Lookup::of(&self.store, &command);
                let mut cx = Context {
                    store: &self.store,
                    clock: &self.clock,
                    now: self.now,
                    counters: &self.desk.counters,
                    placement: &mut self.placement,
                    admin: &self.desk,
                    prefixes: self.desk.prefixes.enabled(),
                };
                let executed = execute(&mut cx, &command, lookup, &mut { self.keys_max }, &mut self.output);
                self.follow(executed.outcome, consumed - executed.unread_bytes)
            }
        };
        self.input = input;
        self.input.drain(..consumed);
        goes_on
    }

    /// Acts on an outcome; returns the bytes of input used, and whether to go on.
    fn follow(&mut self, outcome: Outcome<M>, consumed: usize) -> (usize, bool) {
        match outcome {
            Outcome::Done => {}
            Outcome::ListConnections => self.output.extend_from_slice(text::END),
            Outcome::SendLarge(reply) => self.deliver(*reply),
            Outcome::ReceiveLarge(store) => self.waiting = Waiting::Value(store, 0),
            Outcome::FinishLarge(store) => self.finish(store),
            Outcome::Paused(resume) => {
                self.resume = Some(resume);
                self.pauses += 1;
            }
            Outcome::NeedMore { body_bytes } => {
                self.waiting = Waiting::Bytes(consumed + body_bytes as usize);
                return (0, true);
            }
            Outcome::Refused { swallow } => self.swallow = swallow,
            Outcome::Quit | Outcome::Shutdown { .. } => self.is_closed = true,
        }
        (consumed, true)
    }

    fn deliver(&mut self, mut reply: LargeReply<M>) {
        self.sent_large += 1;
        assert!(!self.placement.serves(reply.class()));
        self.output.extend_from_slice(reply.value());
        self.output.extend_from_slice(reply.tail());
        self.resume = reply.take_resume();
    }

    fn receive(&mut self, mut store: Box<LargeStore<M>>, mut received: usize) {
        while received < store.body_bytes() && !self.input.is_empty() {
            let room = store.room_at(received);
            let moved = room.len().min(self.input.len());
            room[..moved].copy_from_slice(&self.input[..moved]);
            self.input.drain(..moved);
            received += moved;
        }
        if received == store.body_bytes() {
            self.finish(store);
        } else {
            self.waiting = Waiting::Value(store, received);
        }
    }

    fn finish(&mut self, mut store: Box<LargeStore<M>>) {
        let cx = Context {
            store: &self.store,
            clock: &self.clock,
            now: self.now,
            counters: &self.desk.counters,
            placement: &mut self.placement,
            admin: &self.desk,
            prefixes: None,
        };
        while let Some(unfinished) = store.finish(&cx, &mut self.output) {
            store = unfinished;
            while store.copy(SLICE_BYTES) > 0 {
                self.slices += 1;
            }
        }
    }
}

impl<M: Mode> Session<M> {
    /// Another connection to the same store, in place of this one.
    pub(crate) fn reopen(&mut self) {
        self.is_closed = false;
        self.input.clear();
        self.output.clear();
        self.waiting = Waiting::Command;
        self.swallow = 0;
        self.resume = None;
    }
}
