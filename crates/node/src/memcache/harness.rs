//! A connection without a socket: does what a worker does around the service of a connection's input.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use minos_base::{Clock, Seconds, SizeClass, StatsGroup, limits::SLICE_BYTES};
use minos_engine::{Engine, Mode, StoreConfig};
use minos_proto::memcache::Limits;
use minos_sched::WorkerId;

use crate::memcache::{MemcacheSession, serve};
use crate::ops::counters::{Counters, Totals};
use crate::ops::receiving::{ReceivePermit, Receiving};
use crate::ops::{
    Admin, Context, Finished, LINE_END, LargeStore, Next, Placement, Prefixes, Work, flush_if_due,
};
use crate::rack::{Forward, Holes, NOWHERE, Owner};
use crate::resp::{self, RespSession};
use crate::server::settings::SettingError;
use crate::tcp::queue::VISIT_REQUESTS_MAX;
use crate::watch::Probe;

/// Serves values up to a class, and records the classes it is asked about.
pub(crate) struct UpTo {
    pub(crate) class_max: SizeClass,
    pub(crate) asked: Vec<SizeClass>,
    /// The worker for larger values, if that is another one.
    pub(crate) home: Option<WorkerId>,
}

impl Placement for UpTo {
    fn is_here(&mut self, class: SizeClass) -> bool {
        self.asked.push(class);
        self.serves(class)
    }

    fn serves(&self, class: SizeClass) -> bool {
        class <= self.class_max
    }

    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        self.home.filter(|_| !self.serves(class))
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

    /// The table has 8 MiB, so that this is the only limit that it can be given.
    fn change(&self, changes: &[(&str, &str)]) -> Result<(), SettingError> {
        match changes {
            [("memory", "8m")] => Ok(()),
            _ => Err(SettingError::Unknown(format!("{changes:?}"))),
        }
    }

    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        emit("group", &format!("{group:?}"));
    }

    fn flush_at(&self, due: Seconds) {
        self.flush_due_s.store(due, Ordering::Relaxed);
    }

    fn allows_shutdown(&self) -> bool {
        self.allows_shutdown.get()
    }

    fn admit(&self, bytes: u64) -> Option<ReceivePermit> {
        self.receiving.admit(bytes)
    }
}

/// One client's connection to a store or a cache.
pub(crate) struct Session<M: Mode> {
    pub(crate) store: Arc<Engine<M>>,
    pub(crate) clock: Clock,
    pub(crate) now: Seconds,
    pub(crate) state: MemcacheSession,
    /// The state of Redis' protocol, if the client speaks that.
    pub(crate) resp: Option<RespSession>,
    pub(crate) placement: UpTo,
    pub(crate) is_closed: bool,
    /// Values that were sent from their items.
    pub(crate) sent_large: usize,
    /// Keys that a line may read before it pauses.
    pub(crate) keys_max: usize,
    /// Slices in which values were copied.
    pub(crate) slices: usize,
    /// Times that a line of keys, or a read behind a change of its key, has paused.
    pub(crate) pauses: usize,
    /// Times that the connection was given to another worker.
    pub(crate) given: usize,
    /// The key of a change that the next step finds waiting for another node.
    pub(crate) changing: Option<&'static [u8]>,
    desk: Desk,
    probe: Probe,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes that the input needs before it is looked at.
    wanted_bytes: usize,
    /// A large value that is arriving, and the bytes that have.
    arriving: Option<(Box<LargeStore<M>>, usize)>,
}

/// 8 MiB for values up to 1 MiB.
fn small() -> StoreConfig {
    StoreConfig { value_bytes_max: 1 << 20, ..StoreConfig::new(8 << 20) }
}

/// A connection that has not sent anything yet.
fn state() -> MemcacheSession {
    let limits = Limits { value_bytes_max: 1 << 20, line_bytes_max: 64 << 10 };
    MemcacheSession::new(limits, SLICE_BYTES)
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
            state: state(),
            resp: None,
            placement: UpTo { class_max: SizeClass::of(here_bytes_max), asked: Vec::new(), home: None },
            is_closed: false,
            sent_large: 0,
            keys_max: VISIT_REQUESTS_MAX,
            pauses: 0,
            given: 0,
            changing: None,
            slices: 0,
            desk,
            probe: Probe::off(),
            input: Vec::new(),
            output: Vec::new(),
            wanted_bytes: 1,
            arriving: None,
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
        flush_if_due(&self.desk.flush_due_s, (&self.store, &self.desk), self.now);
        self.input.extend_from_slice(bytes.as_ref());
        while !self.is_closed && self.step() {}
        std::mem::take(&mut self.output)
    }

    /// Sends `text` and returns the replies as text.
    pub(crate) fn say(&mut self, text: &str) -> String {
        String::from_utf8_lossy(&self.send(text)).into_owned()
    }

    /// Calls `f` as a worker of a node of `rack` does.
    #[cfg(test)]
    pub(crate) fn in_rack<R>(
        &mut self,
        rack: &crate::rack::RackView<M>,
        f: impl FnOnce(&mut Context<'_, M, UpTo>) -> R,
    ) -> R {
        f(&mut Context {
            store: &self.store,
            clock: &self.clock,
            now: self.now,
            counters: &self.desk.counters,
            placement: &mut self.placement,
            admin: &self.desk,
            prefixes: None,
            fetched: None,
            rack: Some(rack),
            probe: &self.probe,
            holes: Holes::default(),
        })
    }

    /// Processes the input as far as possible; true if there may be more to do.
    fn step(&mut self) -> bool {
        if let Some((store, received)) = self.arriving.take() {
            self.receive(store, received);
            return !self.input.is_empty();
        }
        if self.input.len() < self.wanted_bytes {
            return false;
        }
        let input = std::mem::take(&mut self.input);
        self.state.begins_binary(&input);
        let mut cx = Context {
            store: &self.store,
            clock: &self.clock,
            now: self.now,
            counters: &self.desk.counters,
            placement: &mut self.placement,
            admin: &self.desk,
            prefixes: self.desk.prefixes.enabled(),
            fetched: None,
            rack: None,
            probe: &self.probe,
            holes: Holes::default(),
        };
        if let Some(key) = self.changing.take() {
            let away = Forward::to(Owner { node: NOWHERE, micro_shard: 0 });
            cx.holes.push(0, Some(self.store.hash(key)), away);
        }
        let mut replies = Vec::new();
        let keys_max = &mut { self.keys_max };
        let (consumed, next) = match &mut self.resp {
            Some(state) => resp::serve(&mut cx, state, &input, keys_max, &mut replies),
            None => serve(&mut cx, &mut self.state, &input, keys_max, &mut replies),
        };
        self.output.append(&mut replies);
        self.input = input;
        self.input.drain(..consumed);
        self.follow(next);
        true
    }

    fn follow(&mut self, next: Next<M>) {
        self.wanted_bytes = 1;
        match next {
            Next::Continue | Next::Blocked => {}
            Next::NeedMore { wanted_bytes } => self.wanted_bytes = wanted_bytes,
            Next::Yield => self.pauses += 1,
            Next::Close => self.is_closed = true,
            Next::Away(Work::Send { item, tail, .. }) => {
                self.sent_large += 1;
                assert!(!self.placement.serves(SizeClass::of(item.value().len() as u64)));
                self.output.extend_from_slice(item.value());
                self.output.extend_from_slice(tail);
            }
            Next::Away(Work::Receive { store, received_bytes }) => {
                self.arriving = Some((store, received_bytes));
            }
            Next::Away(Work::Finish { store }) => self.finish(store),
            Next::Check(_) => unreachable!("there are no users"),
            Next::Owner(_) => self.given += 1,
            Next::Unpaused => unreachable!("only Redis' clients are paused"),
            Next::Fetch(_) | Next::Durable(_) => unreachable!("there is no flash"),
            Next::Forward(forwards) => self.follow(forwards.then),
            Next::Away(Work::Collect { .. }) => unreachable!("there is no rack"),
        }
    }

    fn receive(&mut self, mut store: Box<LargeStore<M>>, mut received: usize) {
        while received < store.body_bytes() && !self.input.is_empty() {
            let room = store.room_at(received);
            let moved = room.len().min(self.input.len());
            room[..moved].copy_from_slice(&self.input[..moved]);
            self.input.drain(..moved);
            received += moved;
        }
        if received == store.body_bytes() && !store.wants_more() {
            self.finish(store);
        } else {
            self.arriving = Some((store, received));
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
            fetched: None,
            rack: None,
            probe: &self.probe,
            holes: Holes::default(),
        };
        loop {
            match store.finish(&cx, &mut self.output) {
                Finished::Copy(unfinished) => store = unfinished,
                Finished::Send(item) => {
                    self.output.extend_from_slice(item.value());
                    return self.output.extend_from_slice(LINE_END);
                }
                Finished::Refused => return self.is_closed = true,
                Finished::Answered => return,
                Finished::Fetch(_) => unreachable!("there is no flash"),
            }
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
        self.wanted_bytes = 1;
        self.arriving = None;
        self.state = state();
    }
}
